"""What a policy did before it failed, as a file for people: DUMPS/episode-N.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.store.store import Store
from robot_rl.system.files import write_synced

DUMPS = "dumps"  # folder of the run
STEPS = 100


def write_dump(
    store: Store, run_dir: Path, why: str, refused: NDArray[np.float32] | None = None
) -> Path | None:
    """Write the last `STEPS` steps of the newest episode; None when there is no step.

    refused: the action that ended it, as it was proposed. Pictures are left in the store.

    Raises:
        OSError: the folder cannot be written.
    """
    known = store.episode_summaries()
    steps = store.steps(known[-1].id)[-STEPS:] if known else []
    if not steps:
        return None
    frames = {frame.frame: frame for frame in store.frames(known[-1].id)}
    facts = {
        "why": why,
        "refused_action": None if refused is None else _plain(refused),
        "weights_version": steps[-1].weights_version,
        "steps": [
            {
                "step": step.step,
                "stamp_ns": step.stamp_ns,
                "driver": step.driver,
                "policy_action": _plain(step.policy_action),
                "action": _plain(step.action),
                "outcome": step.outcome,
                "reason": step.reason,
                "observation": {
                    name: _plain(value)
                    for name, value in frames[step.frame].observation.items()
                    if not name.startswith("image/")
                },
            }
            for step in steps
            if step.frame in frames
        ],
    }
    path = run_dir / DUMPS / f"episode-{known[-1].id.episode}.json"
    path.parent.mkdir(exist_ok=True)
    write_synced(path, (json.dumps(facts, indent=1) + "\n").encode())
    return path


def _plain(values: NDArray[Any]) -> list[Any]:
    """Numbers for JSON, which knows neither NaN nor infinity: those as words."""
    flat = np.asarray(values, np.float64).ravel().tolist()
    return [value if np.isfinite(value) else str(value) for value in flat]
