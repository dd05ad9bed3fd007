"""What several arms have achieved together: one eval.json and one policy for the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.config.run_folder import POLICY
from robot_rl.control.statistics import wilson
from robot_rl.run.evaluations import write_eval
from robot_rl.system.files import replace_file

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

TIMES = ("cycle_time_s_mean", "cycle_time_s_std", "action_jerk", "return_mean", "return_std")


def pool(experiment: Experiment, results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Pool the evaluations of the arms, write eval.json and the newest policy; return eval.json.

    results: eval.json of each arm, by name. Each stays in the result, under `arms`.
    """
    parts = list(results.values())
    newest = max(results, key=lambda name: results[name]["weights_version"])
    arm = next(a for a in experiment.arms if a.arm == newest)
    policy = arm.run_dir / POLICY
    for file in (policy, policy.with_suffix(".json")):  # the manifest last, as in `save_policy`
        if file.is_file():
            replace_file(experiment.run_dir / file.name, file.read_bytes())
    pooled = {
        "deterministic": _pooled([p["deterministic"] for p in parts]),
        "stochastic": _pooled([p["stochastic"] for p in parts]),
        "runtime": parts[0]["runtime"],
        "env_steps": sum(p["env_steps"] for p in parts),
        "train_s": max(p["train_s"] for p in parts),
        "mastered": any(p["mastered"] for p in parts),
        "mastered_steps": min(
            (p["mastered_steps"] for p in parts if p["mastered_steps"]), default=0
        ),
        "human_steps": sum(p["human_steps"] for p in parts),
        "weights_version": results[newest]["weights_version"],
        "seed": parts[0].get("seed"),
        "evaluated_in": parts[0].get("evaluated_in"),
        "arms": dict(results),
    }
    return write_eval(experiment.run_dir, pooled)


def _pooled(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Successes and episodes added; means weighted by the episodes that they are of."""
    wins, episodes = sum(p["successes"] for p in parts), sum(p["episodes"] for p in parts)
    low, high = wilson(wins, episodes)
    of_wins = ("cycle_time_s_mean", "cycle_time_s_std")
    means = {
        key: _mean([(p[key], p["successes" if key in of_wins else "episodes"]) for p in parts])
        for key in TIMES
    }
    return {
        "successes": wins,
        "episodes": episodes,
        "success": wins / max(episodes, 1),
        "wilson_low": low,
        "wilson_high": high,
        "success_known": all(p["success_known"] for p in parts),
        **means,
    }


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    if not known:
        return None
    return float(np.average([v for v, _ in known], weights=[w for _, w in known]))
