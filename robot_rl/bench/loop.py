"""`robot-rl bench loop`: the control loop in real time through ROS 2, with the learner beside it.

Real time factor 1, one machine for everything: the hardest case for jitter on a small computer.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import LEARNER_METRICS, METRICS
from robot_rl.run.experiment import Experiment

DEMOS = 2  # enough to start learning
LATE_MS = 110.0  # a tenth over the 10 Hz period


def bench(seconds: float) -> dict[str, Any]:
    """Practise for about `seconds` of wall time; figures over every control period in it.

    late_share <= 0.01 means that the 99th percentile of the period is within `LATE_MS`.
    """
    from robot_rl.run.graph import train_ros

    with tempfile.TemporaryDirectory(prefix="robot-rl-loop-") as folder:
        experiment = Experiment.compose(
            [
                "experiment=peg_insert",
                "runtime=ros",
                "ros.real_time_factor=1.0",
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
    """Figures of `bench` from the metric lines of its practice episodes."""
    ticks = sum(int(x["episode/length"]) for x in episodes)
    late = sum(x["loop/late_ticks"] for x in episodes)
    return {
        "ticks": ticks,
        "period_ms_p50": sorted(x["loop/wall_ms"] for x in episodes)[len(episodes) // 2],
        "worst_episode_p99_ms": max(x["loop/wall_ms_p99"] for x in episodes),
        "max_ms": max(x["loop/wall_ms_max"] for x in episodes),
        "late_ticks": int(late),
        "late_share": late / max(ticks, 1),
        "p99_within_110_ms": late <= 0.01 * ticks,
        "gradient_steps_per_s": learner[-1]["learner/updates_per_s"] if learner else 0.0,
    }
