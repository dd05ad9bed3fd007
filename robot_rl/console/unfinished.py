"""Whether an episode without an ending still runs: only while somebody works on its run.

A run that was stopped in the middle of an episode leaves one. It is marked as aborted when the run
goes on (`Store.recover`); until then whoever shows it says the same, and stores nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import ARMS, AT_WORK, read_facts
from robot_rl.errors import ConfigError
from robot_rl.system.presence import runs_still

RECORDING = ("train", "record", "deploy")  # verbs that record episodes and say who does it
FRESH_S = 60.0  # where nobody is known for certain, a store that was written to so lately is in use


def still_runs(run_dir: Path, store: Path, begun_s: float) -> bool:
    """Whether the newest episode of a store, which has no ending, is being recorded now.

    Args:
        run_dir: the folder of the run, or of one of its arms.
        begun_s: when the episode was begun, in seconds since 1970.
    """
    told = [*_told(run_dir)]
    open_ended = [runs_still(str(x.get("process", ""))) for x in told if "ended" not in x]
    if any(open_ended):
        return True
    untold = all(begun_s > _ended_s(x) for x in told)  # `robot-rl up` does not say its name
    if None in open_ended or untold:
        return time.time() - _written_s(store) < FRESH_S
    return False


def _told(run_dir: Path) -> Iterator[Mapping[str, Any]]:
    """What the processes of a run say of themselves; those of an arm are in the run's folder."""
    folder = run_dir.parent.parent if run_dir.parent.name == ARMS else run_dir
    for verb in RECORDING:
        with suppress(ConfigError):
            yield read_facts(folder / f"{verb}{AT_WORK}")


def _ended_s(told: Mapping[str, Any]) -> float:
    """When a process ended; one that was killed has not said it, and may have begun anything."""
    ended_s = told.get("ended_s")
    return float(ended_s) if isinstance(ended_s, int | float) else float("inf")


def _written_s(store: Path) -> float:
    newest_s = 0.0
    for path in (store, store.with_name(f"{store.name}-wal")):
        with suppress(OSError):
            newest_s = max(newest_s, path.stat().st_mtime)
    return newest_s
