"""Demonstrations through the graph, without a learner; training goes on from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_rl.run.experiment import Experiment
from robot_rl.run.record import record
from robot_rl.store.store import Store
from tests.support.ros import new_domain

pytestmark = [pytest.mark.ros, pytest.mark.alone]  # beside others it takes seven times as long


def test_demonstrations_are_recorded_and_a_second_call_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "experiment=reach",
        "runtime=ros",
        "train.demos=2",
        f"ros.domain_id={new_domain()}",
        f"run_dir={tmp_path / 'run'}",
    ]
    seen: list[dict[str, object]] = []
    result = record(Experiment.compose(words), seen.append)
    assert result["successes"] == 2
    with Store(tmp_path / "run" / "actor.sqlite") as store:
        episodes = store.episode_summaries()
    assert [e.purpose for e in episodes] == ["demo"] * len(episodes)
    assert sum(bool(e.success) for e in episodes) == 2
    assert all(e.human_steps == e.steps for e in episodes if e.success)
    assert seen and not (tmp_path / "run" / "logs" / "learner.log").exists()
    monkeypatch.setattr("robot_rl.run.graph.record_ros", None)  # no graph is started
    assert record(Experiment.compose(words)) == result
