"""`eval.json` of a run: every evaluation stays in it, and the largest of the policy is shown.

The evaluation that is shown has its figures at the top, `deterministic` and `stochastic`; all of
them, oldest first, are under `evaluations` with seed, time, weights and place. Two episodes that
were tried in passing do not take the place of a hundred, and figures of another physics engine or
another scene do not take the place of those of the one that was learned in.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import EVALUATION, read_facts
from robot_rl.report.rundata import HOME
from robot_rl.system.files import replace_json

PARTS = ("deterministic", "stochastic")
OF_EACH = (*PARTS, "seed", "weights_version", "evaluated_in")
EFFORT = ("env_steps", "train_s")  # what it took to learn these weights; the learning run tells


def read_eval(run_dir: Path) -> dict[str, Any]:
    """Content of eval.json; {} when there is none."""
    path = run_dir / EVALUATION
    return read_facts(path) if path.is_file() else {}


def write_eval(run_dir: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """Add an evaluation to eval.json, and return its new content.

    The whole file is written, or the one before stays.

    Args:
        result: `OF_EACH`, and what is true of the whole run.
    """
    content = with_evaluation(read_eval(run_dir), result, time.strftime("%Y-%m-%dT%H:%M:%S"))
    replace_json(run_dir / EVALUATION, content)
    return content


def with_evaluation(
    before: Mapping[str, Any], result: Mapping[str, Any], now: str
) -> dict[str, Any]:
    """Content of eval.json when `result` comes to what was there `before`.

    Shown is the evaluation with the most episodes of the weights that were evaluated last, among
    equals the newest; one of another engine or scene only where there is no other. A file of an
    older version has one evaluation.
    """
    known = before.get("evaluations")
    if known is None:
        known = [_one(before, "")] if PARTS[0] in before else []
    evaluations = [*known, _one(result, now)]
    of_these = [e for e in evaluations if e["weights_version"] == result["weights_version"]]
    at_home = [e for e in of_these if e["evaluated_in"] in HOME]
    shown = max(reversed(at_home or of_these), key=_size)
    if before.get("weights_version") != result["weights_version"]:
        before = {key: value for key, value in before.items() if key not in EFFORT}
    return {**before, **result, **shown, "evaluations": evaluations}


def _one(content: Mapping[str, Any], now: str) -> dict[str, Any]:
    return {"time": now} | {key: content.get(key) for key in OF_EACH}


def _size(evaluation: Mapping[str, Any]) -> int:
    return sum((evaluation[part] or {}).get("episodes", 0) for part in PARTS)
