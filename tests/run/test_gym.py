"""Training on a Gymnasium environment, through the same store, learner and evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from robot_rl.cli.train import summary
from robot_rl.data.episodes import choose
from robot_rl.data.lerobot_import import import_lerobot
from robot_rl.data.lerobot_rows import ImportOptions
from robot_rl.data.lerobot_write import WriteOptions, write_lerobot
from robot_rl.errors import RobotRLError
from robot_rl.report.report import write_report
from robot_rl.run.evaluate import evaluate
from robot_rl.run.experiment import Experiment
from robot_rl.run.record import record
from robot_rl.run.train import train
from robot_rl.store.store import Store
from robot_rl.tasks.gym import GymTask
from robot_rl.types import Driver, EpisodeStart, Step
from tests.support.data_samples import make_foreign
from tests.support.gym import POINT, register_point


def pendulum(folder: Path, *words: str) -> dict[str, Any]:
    """Train on the pendulum; returns eval.json."""
    return train(Experiment.compose(["experiment=gym", f"run_dir={folder}", *words]))


SMALL = (
    "task.max_steps=40",
    "algo.hidden=[16,16]",
    "algo.batch_size=16",
    "learner.min_steps=40",
    "train.max_env_steps=80",
    "train.eval_episodes=2",
    "train.stochastic_eval_episodes=1",
)


def test_a_run_ends_with_its_return_and_the_same_seed_repeats_it(tmp_path: Path) -> None:
    first, second = pendulum(tmp_path / "a", *SMALL), pendulum(tmp_path / "b", *SMALL)
    assert first["deterministic"] == second["deterministic"]
    assert first["env_steps"] == 80 and first["human_steps"] == 0
    assert not first["deterministic"]["success_known"]
    assert first["deterministic"]["return_mean"] < 0
    assert "deterministic mean return -" in summary(first)
    assert "nobody says what success is" in write_report(tmp_path / "a").read_text()
    assert evaluate(tmp_path / "a", episodes=2)["deterministic"] == first["deterministic"]
    assert not (tmp_path / "a" / "eval.mp4").exists()  # no render mode: a warning, not an error


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    seen: list[Any] = []

    def interrupt(stats: dict[str, Any]) -> None:
        seen.append(stats)
        if len(seen) == 1:
            raise KeyboardInterrupt

    words = ["experiment=gym", f"run_dir={tmp_path / 'c'}", *SMALL]
    with pytest.raises(KeyboardInterrupt):
        train(Experiment.compose(words), interrupt)
    result = train(Experiment.compose(words), interrupt)
    assert result["env_steps"] == 80
    assert json.loads((tmp_path / "c" / "eval.json").read_text()) == result


@pytest.fixture
def point() -> Any:
    """The point is registered while the test runs."""
    before = dict(gymnasium.registry)
    register_point()
    yield POINT
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def helped(folder: Path, *words: str) -> Experiment:
    """The point, with a script that demonstrates and corrects."""
    more = ["operator=scripted", "operator.stuck_s=0.5", "learner.utd=1", f"run_dir={folder}"]
    return Experiment.compose(["experiment=gym", f"task.env_id={POINT}", *more, *words])


GRIP = ("task.env_kwargs.grip=true", "task.gripper=true")


@pytest.mark.parametrize(
    ("algo", "more"), [("hil_serl_state", GRIP), ("rlif", ())], ids=["gripper", "rlif"]
)
def test_demonstrations_and_corrections_as_on_an_arm(
    tmp_path: Path, point: str, algo: str, more: tuple[str, ...]
) -> None:
    small = [w for w in SMALL if not w.startswith("task.")]
    words = ("train.demos=2", f"algo={algo}", *small, *more)
    recorded = record(helped(tmp_path / "r", *words))
    assert recorded == {"successes": 2, "episodes": 2}
    result = train(helped(tmp_path / "r", *words))  # goes on after the demonstrations
    assert result["env_steps"] >= 80 and result["human_steps"] > 0
    with Store(tmp_path / "r" / "store.sqlite") as store:
        episodes = list(store.episode_summaries())
        rows, _ = store.rows_since(0, 10_000)
        assert {row.limits_hash for row in rows if isinstance(row, EpisodeStart)} == {""}
        drivers = {row.driver for row in rows if isinstance(row, Step)}
    assert [episode.purpose for episode in episodes[:3]] == ["demo", "demo", "train"]
    assert episodes[0].human_steps == episodes[0].steps > 0
    assert drivers == {Driver.DEMO, Driver.CORRECTION, Driver.POLICY}
    if more:  # the policy's network chooses the last entry among three
        mine = [row.action for row in rows if isinstance(row, Step) and not row.driver.is_human]
        assert {float(action[2]) for action in mine} <= {-1.0, 0.0, 1.0}
    assert "demonstration" in write_report(tmp_path / "r").read_text()
    assert not (tmp_path / "r" / "scenes.bin").exists()  # there is no arm that could be drawn


def test_a_demonstration_that_nobody_judges_ends_the_run_at_the_first(tmp_path: Path) -> None:
    words = ["experiment=gym", "train.demos=2", "operator=environment", f"run_dir={tmp_path / 'u'}"]
    with pytest.raises(RobotRLError, match=r"nobody says .*\n(.*\n)*.*task\.success_return"):
        record(Experiment.compose([*words, *SMALL]))
    with Store(tmp_path / "u" / "store.sqlite") as store:
        assert len(list(store.episode_summaries())) == 1
    judged = [*words[:-1], f"run_dir={tmp_path / 'j'}", "task.success_return=-1000000"]
    assert record(Experiment.compose([*judged, *SMALL])) == {"successes": 2, "episodes": 2}


@pytest.mark.parametrize("foreign", [False, True], ids=["ours", "theirs"])
def test_recorded_demonstrations_are_imported_for_a_wrapper_of_the_environment(
    tmp_path: Path, point: str, foreign: bool
) -> None:
    record(helped(tmp_path / "r", "train.demos=2"))
    with Store(tmp_path / "r" / "store.sqlite") as store:
        write_lerobot(store, choose(store), tmp_path / "dataset", WriteOptions())
        starts = store.episodes()
        before = [step.action.tolist() for start in starts for step in store.steps(start.id)]
    if foreign:
        make_foreign(tmp_path / "dataset")
    task = GymTask(env_id=register_point("robot_rl_test/Wrapped-v0"), base_id=POINT)
    out, low = tmp_path / "demos", 10.0 if foreign else 1.0  # another program's are not in [-1, 1]
    import_lerobot(tmp_path / "dataset", task.spec, out, ImportOptions(success="last"))
    with Store(out / "store.sqlite") as store:
        assert {start.spec_hash for start in store.episodes()} == {starts[0].spec_hash}
        steps = [step for start in store.episodes() for step in store.steps(start.id)]
    assert {step.driver for step in steps} == {Driver.DEMO}
    assert np.allclose([step.action for step in steps], np.divide(before, low), atol=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_point_is_learned_with_help(tmp_path: Path, point: str) -> None:
    words = ("train.demos=20", "algo=hil_serl_state", "learner.utd=4", "train.max_env_steps=1500")
    more = ("learner.min_steps=50", "train.eval_episodes=20", "train.stochastic_eval_episodes=0")
    short = ("operator.stuck_s=1.5", "operator.drive_s=0.5", "algo.policy_tau=0.02")
    result = train(helped(tmp_path / "l", *words, *more, *short))
    assert result["deterministic"]["successes"] >= 15


@pytest.mark.slow
def test_the_pendulum_is_swung_up(tmp_path: Path) -> None:
    words = ("task.success_return=-400", "train.max_env_steps=6000", "train.eval_episodes=20")
    result = pendulum(tmp_path / "p", *words, "train.stochastic_eval_episodes=0")
    assert result["deterministic"]["successes"] >= 18
    assert result["deterministic"]["return_mean"] > -300
