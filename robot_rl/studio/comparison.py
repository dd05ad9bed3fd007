"""Two or more runs beside each other: figures, curves, and the keys in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from robot_rl.config.yaml_file import read_yaml
from robot_rl.errors import RobotRLError
from robot_rl.spec import ABSENT, differing
from robot_rl.studio.films import FILM
from robot_rl.studio.run import Run

MOST = 6  # runs: as many colours as can be told apart
MAX_KEYS = 200


def compared(runs: Sequence[Run]) -> dict[str, Any]:
    """What a page shows of runs beside each other."""
    return {
        "runs": [_column(run) for run in runs],
        "differ": differing_keys([r.folder for r in runs]),
    }


def _column(run: Run) -> dict[str, Any]:
    figures, evaluation = run.figures, run.evaluation
    stochastic = evaluation.get("stochastic")
    return {
        **run.row(),
        "curve": figures.curve(figures.success),
        "human_curve": figures.curve(figures.human),
        "stochastic": stochastic if isinstance(stochastic, Mapping) else None,
        "cycle_s": (evaluation.get("deterministic") or {}).get("cycle_time_s_mean"),
        "mastered_steps": evaluation.get("mastered_steps") or None,
        "demos": figures.demos,
        "takeovers": figures.takeovers,
        "human_steps": figures.human_steps,
        "train_s": evaluation.get("train_s"),
        "has_film": (run.folder / FILM).is_file(),
    }


def differing_keys(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Keys of the configurations whose values are not the same in all runs, with each value."""
    configs = [_config(folder) for folder in folders]
    keys = {
        path: None for other in configs[1:] for path, _, _ in differing(configs[0], other)
    }  # in order, once
    rows = [{"key": key, "values": [_value(config, key) for config in configs]} for key in keys]
    return sorted(rows, key=lambda row: row["key"])[:MAX_KEYS]


def _config(folder: Path) -> Mapping[str, Any]:
    try:
        found = read_yaml(folder / "config.yaml")
    except (OSError, RobotRLError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _value(config: Mapping[str, Any], path: str) -> str:
    value: Any = config
    for key in path.split("."):
        value = value.get(key, ABSENT) if isinstance(value, Mapping) else ABSENT
    return str(value)[:200]
