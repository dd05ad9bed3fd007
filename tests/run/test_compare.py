"""Blind, paired comparisons in lockstep: order, seal, figures, refusals, resumption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError, RobotRLError, SpecError
from robot_rl.run.compare import compare, rounds_of
from robot_rl.run.compare_result import result_of
from robot_rl.run.deploy_setup import experiment_on, policy_weights
from robot_rl.run.experiment import Experiment
from robot_rl.run.sealed import commitment_of, order_of, sealed_secret
from robot_rl.store.cycles import read_cycles
from robot_rl.store.daily import day_files
from robot_rl.store.store import Store
from tests.support.deployed import trained


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [trained(folder / "good"), trained(folder / "bad", good=False)]


def begin(runs: list[Path], folder: Path, episodes: int, **more: Any) -> Path:
    experiments = [experiment_on(run, [], folder) for run in runs]
    policies = [policy_weights(r, x) for r, x in zip(runs, experiments, strict=True)]
    return compare(experiments, policies, runs, episodes, **more)


def test_a_better_policy_is_found_blindly(runs: list[Path], tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    folder = begin(runs, tmp_path / "c", 8, watch=lines.append)
    assert not any(key.startswith("weights/") for line in lines for key in line)
    result = result_of(folder)
    good, bad = result["policies"]
    assert good["successes"] >= 7 and bad["successes"] == 0
    (pair,) = result["pairs"]
    assert pair["low"] > 0.3 and pair["p_value"] < 0.05 and pair["difference"] > 0.8
    assert result["commitment_holds"] and len(result["orders"]) == 8
    assert {tuple(order) for order in result["orders"]} == {(0, 1), (1, 0)}  # both, of 8 draws
    page = (folder / "comparison.html").read_text()
    assert "Difference" in page and result["secret"] in page
    with Store(day_files(folder)[0]) as store:
        cycles = read_cycles(store, "c", "actor-0")
        assert {s.weights_version for c in store.episodes() for s in store.steps(c.id)} == {0}
    assert len({c.seed for c in cycles}) == 8  # each start twice: paired


def test_nobody_is_told_before_the_end_and_a_kill_costs_nothing(
    runs: list[Path], tmp_path: Path
) -> None:
    count = 0

    def kill(line: dict[str, Any]) -> None:
        nonlocal count
        count += "eval_episode/index" in line
        if count == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(runs, tmp_path / "c", 4, watch=kill)
    with pytest.raises(RobotRLError, match="stopped before its end"):
        result_of(tmp_path / "c")
    texts = [p.read_text() for p in (tmp_path / "c").glob("*.json*")]
    secret = sealed_secret(tmp_path / "c")
    assert not any(secret in text for text in texts)
    begin(runs, tmp_path / "c", 4)
    assert sealed_secret(tmp_path / "c") == secret
    result = result_of(tmp_path / "c")
    assert [p["episodes"] for p in result["policies"]] == [4, 4]
    with Store(day_files(tmp_path / "c")[0]) as store:
        found = rounds_of(read_cycles(store, "c", "actor-0"))
    assert sorted(found) == [(start, slot) for start in range(4) for slot in range(2)]


def test_the_order_follows_from_the_secret_and_is_fair() -> None:
    assert order_of("a", 3, 4) == order_of("a", 3, 4)
    first = sum(order_of("secret", start, 2)[0] for start in range(1000))
    assert 440 < first < 560
    assert commitment_of("a") != commitment_of("b")


def test_a_secret_that_was_changed_is_noticed(runs: list[Path], tmp_path: Path) -> None:
    folder = begin(runs, tmp_path / "c", 1)
    (folder / "sealed").unlink()
    with pytest.raises(ConfigError, match="not the one that was drawn"):
        result_of(folder)


def test_one_policy_gets_an_interval_of_its_own(runs: list[Path], tmp_path: Path) -> None:
    result = result_of(begin(runs[:1], tmp_path / "c", 3))
    assert result["pairs"] == [] and result["policies"][0]["episodes"] == 3


def test_what_cannot_be_compared_is_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the same policy"):
        begin([runs[0], runs[0]], tmp_path / "c", 1)
    other = tmp_path / "other"
    Experiment.compose(["experiment=lift", f"run_dir={other}"]).save()
    experiments = [experiment_on(r, [], tmp_path / "c") for r in (runs[0], other)]
    weights = policy_weights(runs[0], experiments[0])
    with pytest.raises(SpecError, match="cannot be compared"):
        compare(experiments, [weights, weights], [runs[0], other], 1)
    short = tmp_path / "short"
    Experiment.compose(["experiment=reach", "task.max_steps=9", f"run_dir={short}"]).save()
    experiments = [experiment_on(r, [], tmp_path / "c") for r in (runs[0], short)]
    with pytest.raises(SpecError, match="their tasks differ"):
        compare(experiments, [weights, weights], [runs[0], short], 1)


def test_a_task_that_cannot_tell_needs_a_person(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robot_rl.tasks.reach import ReachTask

    monkeypatch.setattr(ReachTask, "success", lambda _self, _state: None)
    with pytest.raises(RobotRLError, match="nobody says whether"):
        begin(runs, tmp_path / "c", 1)


def test_the_verb(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", *map(str, runs), "--on", "robot", "--episodes", "2", "--out"]
    assert main([*words, str(tmp_path / "c"), "--json", str(tmp_path / "r.json")]) == 0
    said = capsys.readouterr().out
    assert "A - B" in said and "4 of 4 episodes" in said
    assert json.loads((tmp_path / "r.json").read_text())["starts"] == 2
    assert main(["eval", *map(str, runs)]) == 2
    assert "several runs need --on robot" in capsys.readouterr().err
