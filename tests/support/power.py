"""Power cuts of a store: what the disk may hold afterwards, made from copies of its files."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np

WAL_HEADER, FRAME_HEADER, PAGE = 32, 24, 4096


def wal_of(path: Path) -> Path:
    """The write-ahead log of a store file."""
    return path.with_name(f"{path.name}-wal")


def page_ends(path: Path) -> list[int]:
    """Sizes of the log at which a page of it is complete, 0 (no log) first."""
    size = wal_of(path).stat().st_size
    return [0, *range(WAL_HEADER + FRAME_HEADER + PAGE, size + 1, FRAME_HEADER + PAGE)]


def cut(path: Path, into: Path, at: int, torn: np.random.Generator | None = None) -> Path:
    """Copy a store as a cut leaves it: of its log only `at` bytes, and noise behind if torn."""
    into.parent.mkdir(parents=True, exist_ok=True)
    for old in (into, wal_of(into), into.with_name(f"{into.name}-shm")):
        old.unlink(missing_ok=True)
    shutil.copy(path, into)
    log = wal_of(path).read_bytes() if wal_of(path).exists() else b""
    kept = log[:at]
    if torn is not None:
        kept += torn.bytes(min(len(log) - at, PAGE))
    wal_of(into).write_bytes(kept)
    return into


def no_checkpoints(db: sqlite3.Connection) -> None:
    """Leave everything in the log, so that each page of it can be lost."""
    db.execute("PRAGMA wal_autocheckpoint=0")
