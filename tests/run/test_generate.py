"""Demonstrations by policies: only successes, the smoothest of each start, resumable, exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.cli.main import main
from robot_rl.config.run_folder import STORE
from robot_rl.control.loop import Policy
from robot_rl.control.summary import jerk_of
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.run import generate as module
from robot_rl.run.experiment import Experiment
from robot_rl.run.generate import GENERATE_SEED, SMOOTHED, Smoothed, generate
from robot_rl.run.train import train
from robot_rl.store.dataset import open_store
from robot_rl.store.store import Store
from robot_rl.types import Driver
from tests.support.deployed import trained

Tries = dict[int, list[tuple[float, bool]]]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("generate") / "good")


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("generate") / "poor", good=False)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    """Start seed -> (how much it was smoothed, whether it succeeded) of each try."""
    found: Tries = {}
    drive = module._Driver.episode

    def watched(self: Any, seed: int, number: int, share: float) -> Any:
        rows = drive(self, seed, number, share)
        found.setdefault(seed, []).append((share, bool(rows)))
        return rows

    monkeypatch.setattr(module._Driver, "episode", watched)
    return found


def kept(folder: Path) -> dict[int, list[Any]]:
    """Start seed -> steps of the episode that was kept."""
    with open_store(folder) as store:
        starts = list(store.episodes())
        assert {start.purpose for start in starts} == {"data"}
        assert len({start.id for start in starts}) == len({s.seed for s in starts}) == len(starts)
        return {start.seed: store.steps(start.id) for start in starts}


def test_every_episode_is_the_smoothest_success_of_its_start(
    good: Path, tmp_path: Path, tries: Tries
) -> None:
    told: list[tuple[int, int]] = []
    made = generate([good], tmp_path / "out", 4, lambda *n: told.append(n))
    episodes = kept(tmp_path / "out")
    assert made["episodes"] == len(episodes) == 4 and told[0] == (0, 4) and told[-1] == (4, 4)
    assert made["tries"] == sum(map(len, tries.values())) and made["by_run"] == {"good": 4}
    assert set(episodes) | set(made["failed_starts"]) == set(tries)
    for seed, steps in episodes.items():
        assert seed >= GENERATE_SEED and steps[-1].success
        assert {step.driver for step in steps} == {Driver.POLICY}
        shares = [share for share, _ in tries[seed]]
        assert shares == list(SMOOTHED[: len(shares)])
        assert [success for _, success in tries[seed]] == [False] * (len(shares) - 1) + [True]
    jerks = [jerk_of([step.action for step in steps], 6) for steps in episodes.values()]
    assert made["jerk"] == pytest.approx(np.mean(jerks))


def test_the_motion_is_smoothed_and_the_gripper_obeys_at_once() -> None:
    class Shaking(Policy):
        version = 7
        calls = 0

        def act(self, observation: Any, deterministic: bool) -> Any:
            self.calls += 1
            sign = 1.0 if self.calls % 2 else -1.0
            return np.array([sign, 0.5, sign], np.float32)

    policy = Smoothed(Shaking(), motion=2)
    assert policy.version == 7 and not policy.ready() and not policy.problem
    for share in (0.0, 0.8):
        policy.share = share
        policy.begin_episode(True)
        done = np.array([policy.act({}, True) for _ in range(40)])
        assert np.abs(done[:, 2]).min() == 1.0  # as the policy says
        wanted = [0.5 * (1.0 - share ** (n + 1)) for n in range(40)]  # from rest
        np.testing.assert_allclose(done[:, 1], wanted, rtol=1e-5)
        if share == 0.0:
            rough = jerk_of(list(done), 2)
    assert jerk_of(list(done), 2) < 0.2 * rough


def test_where_nobody_succeeds_nothing_is_kept(poor: Path, tmp_path: Path) -> None:
    with pytest.raises(RobotRLError, match="the policies do not succeed"):
        generate([poor], tmp_path / "out", 2)
    with open_store(tmp_path / "out") as store:
        assert not list(store.episodes())
        assert len(store.meta(module.DONE)["failed"]) == module.FRUITLESS


def test_a_start_at_which_one_policy_fails_is_given_to_the_other(
    good: Path, poor: Path, tmp_path: Path, tries: Tries
) -> None:
    made = generate([poor, good], tmp_path / "out", 3)
    assert made["by_run"] == {"good": 3}
    first = next(iter(tries.values()))
    assert [share for share, _ in first][:2] == [SMOOTHED[0]] * 2  # both, before it is less


@pytest.mark.parametrize("cut", ["append", "set_meta"])
def test_a_killed_command_goes_on_where_it_was(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """Killed just before or just after an episode is kept: no start is used twice."""
    calls: list[Any] = []
    plain = getattr(Store, cut)

    def killed(self: Store, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Store, cut, killed)
        with pytest.raises(KeyboardInterrupt):
            generate([good], tmp_path / "out", 4)
    generate([good], tmp_path / "out", 4)
    made = generate([good], tmp_path / "out", 4)  # there is nothing left to do
    whole = generate([good], tmp_path / "whole", 4)
    assert made["episodes"] == 4 and made["starts"] == whole["starts"]
    assert set(kept(tmp_path / "out")) == set(kept(tmp_path / "whole"))


def test_runs_that_do_not_belong_together_are_refused(good: Path, tmp_path: Path) -> None:
    other = trained(tmp_path / "other", "task.control_hz=20", good=False)
    with pytest.raises(ConfigError, match=r"(?s)other settings.*control_hz: 10\.0 -> 20\.0"):
        generate([good, other], tmp_path / "out", 1)
    with pytest.raises(ConfigError, match="same name"):
        generate([good, good], tmp_path / "out", 1)
    with pytest.raises(ConfigError, match="belongs to another experiment"):
        generate([good], other, 1)
    assert (other / STORE).is_file()


def test_the_verb_makes_a_dataset_that_a_policy_learns_from(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, dataset, figures = tmp_path / "out", tmp_path / "dataset", tmp_path / "figures.json"
    words = ["generate", str(good), "--episodes", "3", "--out", str(out)]
    words += ["--dataset", str(dataset), "--task", "reach the point", "--json", str(figures)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "3 episodes in" in said and "eval 0" not in said
    assert json.loads(figures.read_text())["episodes"] == 3
    assert "reach the point" in (dataset / "meta" / "tasks.parquet").read_bytes().decode("latin-1")
    assert json.loads((dataset / "meta" / "info.json").read_text())["total_episodes"] == 3
    clone = ["experiment=reach", "algo=bc", "algo.hidden=[64]", f"train.dataset={out}"]
    clone += ["train.demos=0", "train.max_env_steps=0", "learner.pretrain_updates=2"]
    clone += ["train.eval_episodes=1", "train.stochastic_eval_episodes=0", "train.video=false"]
    train(Experiment.compose([*clone, f"run_dir={tmp_path / 'clone'}"]))
    with open_store(tmp_path / "clone") as store:
        assert sum(start.purpose == "data" for start in store.episodes()) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--episodes", "0"], "--episodes must be at least 1"),
        (["--task", "x"], "give --dataset FOLDER, too"),
        ([], "no run in"),
    ],
)
def test_wrong_words_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert main(["generate", str(tmp_path / "none"), *out, *words]) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
