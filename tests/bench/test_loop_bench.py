"""`bench loop` runs apart from other runs, and its figures are of wall time with a busy learner."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from robot_rl.bench.loop import bench, summarise
from robot_rl.config.run_folder import LEARNER_METRICS, METRICS
from robot_rl.errors import ConfigError
from robot_rl.run.experiment import Experiment


def episode(ended_s: float, p99_ms: float = 101.0, **more: float) -> dict[str, float]:
    """The line of an episode of ten steps, one second long."""
    periods = {"": 100.0, "_p99": p99_ms, "_max": p99_ms + 2.0}
    wall = {f"loop/wall_ms{key}": value for key, value in periods.items()}
    facts = {"episode/success": 1.0, "episode/length": 10, "episode/duration_s": 1.0}
    return {"time_s": ended_s, **facts, **wall, "loop/late_ticks": 0.0, **more}


def learned(at_s: float, updates: int) -> dict[str, float]:
    """A line of the learner."""
    return {"time_s": at_s, "learner/updates": updates, "learner/updates_per_s": 999.0}


def test_it_runs_where_no_other_run_hears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Experiment] = []

    def train(experiment: Experiment, _watch: Callable[..., object]) -> None:
        asked.append(experiment)
        demo = {"time_s": 9.0, "demo_episode/success": 1.0}
        for name, lines in ((METRICS, [demo, episode(12.0)]), (LEARNER_METRICS, LEARNER)):
            (experiment.run_dir / name).write_text("\n".join(map(json.dumps, lines)) + "\n")

    monkeypatch.setattr("robot_rl.run.graph.train_ros", train)
    assert bench(5.0)["ticks"] == 10
    usual = Experiment.compose(["experiment=peg_insert", "runtime=ros"])
    assert asked[0].ros.domain_id != usual.ros.domain_id
    assert asked[0].link.port != usual.link.port
    assert asked[0].learner.min_steps == 1 and asked[0].learner.pretrain_updates > 0


LEARNER = [learned(8.0, 0), learned(10.0, 100), learned(11.5, 140), learned(12.9, 200)]


def test_the_verdict_is_of_the_wall_time_beside_it() -> None:
    """A simulated clock that waits has no late tick, however long the wall's periods are."""
    found: dict[str, Any] = summarise([episode(12.0), episode(13.0, 180.0)], LEARNER)
    assert (
        found["worst_episode_p99_ms"] == 180.0 and found["each_episode_p99_within_110_ms"] is False
    )
    found = summarise([episode(12.0), episode(13.0, 109.0)], LEARNER)
    assert found["each_episode_p99_within_110_ms"] is True and found["max_ms"] == 111.0
    assert found["period_ms_p50"] == 100.0


def test_only_episodes_with_the_learner_beside_them_count() -> None:
    found = summarise([episode(10.5, 300.0), episode(12.0), episode(13.0)], LEARNER)
    assert found["ticks"] == 20 and found["worst_episode_p99_ms"] == 101.0
    assert found["gradient_steps_per_s"] == pytest.approx(100 / 2.0), "waiting counts"


@pytest.mark.parametrize(
    ("episodes", "learner"),
    [
        ([], LEARNER),
        ([episode(10.5)], LEARNER),  # began before the first update
        ([episode(12.0)], [learned(8.0, 0)]),
        ([episode(15.0)], LEARNER),  # nothing was learned meanwhile
    ],
)
def test_a_loop_without_learning_is_refused(
    episodes: list[dict[str, Any]], learner: list[dict[str, Any]]
) -> None:
    with pytest.raises(ConfigError, match="has not learned beside"):
        summarise(episodes, learner)
