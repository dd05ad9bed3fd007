"""`robot-rl bench loop`: the control loop in real time through ROS 2, with the learner beside it.

Real time factor 1, one machine for everything: the hardest case for jitter on a small computer.
The learner pretrains first, so that it learns beside the whole of the practice.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import LEARNER_METRICS, METRICS
from robot_rl.console.address import HOST
from robot_rl.errors import ConfigError
from robot_rl.run.experiment import Experiment
from robot_rl.system.ports import probe

DEMOS = 2  # enough to start learning
LATE_MS = 110.0  # a tenth over the 10 Hz period


def bench(seconds: float) -> dict[str, Any]:
    """Practise for about `seconds` of wall time; figures over every control period in it.

    Periods are wall time. each_episode_p99_within_110_ms: of no episode is the 99th percentile
    above `LATE_MS`; of a short episode that is nearly its longest period. gradient_steps_per_s: of
    wall time, the learner's waiting for new steps included.

    Raises:
        ConfigError: too short, see `summarise`.
    """
    from robot_rl.ros.graph import free_domain
    from robot_rl.run.graph import train_ros

    with tempfile.TemporaryDirectory(prefix="robot-rl-loop-") as folder:
        experiment = Experiment.compose(
            [
                "experiment=peg_insert",
                "runtime=ros",
                "ros.real_time_factor=1.0",
                # a run that goes on beside, perhaps of a real arm, is neither heard nor disturbed
                f"ros.domain_id={free_domain()}",
                f"link.port={probe(HOST, 0)}",
                "learner.min_steps=1",
                "learner.pretrain_updates=100",
                "learner.log_updates=20",  # tells well when how many were done
                f"train.demos={DEMOS}",
                f"train.max_minutes={seconds / 60}",
                "train.max_env_steps=1000000",
                "train.min_env_steps=1000000",
                "train.eval_episodes=1",
                "train.stochastic_eval_episodes=0",
                "train.video=false",
                f"run_dir={folder}/run",
            ]
        )
        experiment.save()
        train_ros(experiment, lambda _line: None)
        run_dir = Path(folder) / "run"
        lines = [json.loads(x) for x in (run_dir / METRICS).read_text().splitlines()]
        learner = [json.loads(x) for x in (run_dir / LEARNER_METRICS).read_text().splitlines()]
    return summarise([x for x in lines if "episode/success" in x], learner)


def summarise(episodes: list[dict[str, Any]], learner: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of `bench` from the lines of its practice episodes and of its learner.

    Raises:
        ConfigError: no episode has the learner beside it.
    """
    first_s = min((x["time_s"] for x in learner if x["learner/updates"]), default=float("inf"))
    counted = [x for x in episodes if "loop/wall_ms" in x and _began_s(x) >= first_s]
    began_s, ended_s = (_began_s(counted[0]), counted[-1]["time_s"]) if counted else (0.0, 0.0)
    updates = _updates(learner, ended_s) - _updates(learner, began_s)
    if not updates:
        raise ConfigError(
            "there is nothing to measure: the learner has not learned beside the control loop",
            expected="a practice episode that begins after the first gradient update",
            got=f"{len(episodes)} practice episodes, {len(counted)} of them after the first update",
            fix="--seconds 30",
        )
    worst_ms = max(x["loop/wall_ms_p99"] for x in counted)
    return {
        "ticks": sum(int(x["episode/length"]) for x in counted),
        "period_ms_p50": statistics.median(x["loop/wall_ms"] for x in counted),
        "worst_episode_p99_ms": worst_ms,
        "max_ms": max(x["loop/wall_ms_max"] for x in counted),
        "each_episode_p99_within_110_ms": worst_ms <= LATE_MS,
        "gradient_steps_per_s": updates / (ended_s - began_s),
    }


def _began_s(episode: dict[str, Any]) -> float:
    """When an episode began (s); its line is written when it ends."""
    return episode["time_s"] - episode["episode/duration_s"]


def _updates(learner: list[dict[str, Any]], at_s: float) -> float:
    """Gradient updates done by then, as far as the learner has told."""
    return max((x["learner/updates"] for x in learner if x["time_s"] <= at_s), default=0.0)
