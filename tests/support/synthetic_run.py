"""A made-up run folder for tests of the report: invented numbers, never shown as results."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.report.tally import Tally
from robot_rl.store.cycles import Cycle
from robot_rl.types import Ending


def write_run(folder: Path, *, episodes: int = 120, video: bytes = b"", seed: int = 0) -> Path:
    """Write config.yaml, run.json, metrics.jsonl and eval.json as of a finished run."""
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "name": "peg_insert",
        "seed": seed,
        "runtime": "ros",
        "task": {"name": "peg_insert", "clearance_m": 0.0005},
        "algo": {"name": "hil_serl", "gamma": 0.97},
        "train": {"demos": 20, "target_success": 0.95},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    record = {
        "created": "2026-01-02T03:04:05+0000",
        "command": "robot-rl train experiment=peg_insert",
        "config_hash": "0123456789abcdef",
        "git": {"commit": "ab" * 20, "dirty": False},
        "versions": {"python": "3.11.7", "robot-rl": "0.1.0"},
        "machine": {"cpu": "Example CPU", "cores": 2},
    }
    (folder / "run.json").write_text(json.dumps(record))
    lines = [json.dumps(row) for row in metric_rows(episodes, np.random.default_rng(seed))]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    evaluation = {
        "deterministic": {"successes": 97, "episodes": 100, "cycle_time_s_mean": 4.2},
        "stochastic": {"successes": 93, "episodes": 100, "cycle_time_s_mean": 4.6},
    }
    (folder / "eval.json").write_text(json.dumps(evaluation))
    if video:
        (folder / "eval.mp4").write_bytes(video)
    return folder


def metric_rows(episodes: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Metric lines of practice: success rises, interventions fall, noise everywhere."""
    rows: list[dict[str, Any]] = []
    env_steps, updates = 0, 0
    for index in range(episodes):
        skill = 1 / (1 + math.exp(-(index - episodes * 0.35) / (episodes * 0.08)))
        won = bool(rng.random() < 0.1 + 0.9 * skill)
        length = int(rng.integers(35, 60) + 50 * (1 - skill))
        env_steps += length
        updates += 2 * length
        human = max(0.0, (1 - skill) * 0.7 + rng.normal(0, 0.06)) if rng.random() > skill else 0.0
        rows.append(
            {
                "time_s": env_steps * 0.1,
                "env_steps": env_steps,
                "episode/index": index + 20,
                "episode/success": float(won),
                "episode/length": length,
                "episode/return": float(won),
                "episode/intervention_rate": min(human, 1.0),
                "episode/takeovers": int(human * 5),
                "loop/period_ms": 100 + rng.normal(0, 0.2),
                "loop/period_ms_p99": 101 + abs(rng.normal(0, 1.5)),
                "weights/version": index,
            }
        )
        for part in range(4):
            rows.append(
                {
                    "time_s": env_steps * 0.1 + part,
                    "env_steps": env_steps - 30 + 8 * part,
                    "critic/q_mean": 0.2 + 0.7 * skill + rng.normal(0, 0.02),
                    "critic/loss": 0.02 * math.exp(-index / 40) + abs(rng.normal(0, 0.002)),
                    "actor/entropy": 3 - 5 * skill + rng.normal(0, 0.1),
                    "temperature/value": 0.01 * math.exp(-index / 60),
                    "learner/utd": 2 + rng.normal(0, 0.05),
                    "learner/updates": updates,
                    "learner/updates_per_s": 60 + rng.normal(0, 4),
                    "weights/staleness_s": abs(rng.normal(1.2, 0.4)),
                    "replay/online": env_steps,
                    "replay/demo": 900 + int(env_steps * 0.1),
                }
            )
    return rows


def write_deployment(folder: Path, outcomes: str, hours: Sequence[int] = ()) -> dict[str, Any]:
    """Write deploy.json of episodes: + success, - failure, x aborted; hours: when each began."""
    tally = Tally()
    for number, (outcome, hour) in enumerate(
        zip(outcomes, hours or [0] * len(outcomes), strict=True)
    ):
        ending = Ending.ABORTED if outcome == "x" else Ending.TERMINATED
        stamp_ns = (1_750_000_000 + 3600 * hour + number) * 10**9
        reason = "stop pressed" if outcome == "x" else "missed the hole"
        tally.add(
            Cycle(number, "deploy", number, stamp_ns, 40, 0, 4.0, ending, outcome == "+", reason,
                  0, False, "")
        )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "deploy.json").write_text(json.dumps(tally.figures()))
    return tally.figures()
