"""Folder of an export: files appear whole or not at all, and a repeated command goes on.

Every file is written under a temporary name, synced and renamed. The folder says from the start
what it is for (`robot_rl.json`); what makes it a finished export is written last.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from robot_rl.errors import ConfigError, StoreError
from robot_rl.spec import diff
from robot_rl.system import plain_json
from robot_rl.system.files import sync_folder, write_synced

Progress = Callable[[int, int], None]
"""Called with (episodes done, all episodes) after each."""

IDENTITY = "robot_rl.json"
PART = ".part"  # end of temporary names


def silent(_done: int, _all: int) -> None:
    """A `Progress` that does nothing."""


class ExportFolder:
    """A folder that belongs to one export, and to one process at a time while it is open.

    Args:
        path: made if absent.
        identity: what is exported and how, as JSON values. An export goes on only if it is equal.

    Raises:
        ConfigError: the folder holds something else or another export, or another process writes
            to it.
        StoreError: the folder cannot be written.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        plain = json.loads(json.dumps(identity))
        before = _identity(path)
        if before is None and path.exists() and _foreign(path):
            raise _taken(path, f"{len(_foreign(path))} other files or folders", "an empty folder")
        if before not in (None, plain):
            changed = "; ".join(diff(before, plain))
            raise _taken(path, f"another export: {changed}"[:600], "the export that began here")
        make_folder(path)
        self._lock = _locked(path)
        if before is None:
            self.write(IDENTITY, as_json(plain))

    def has(self, name: str) -> bool:
        """Whether a finished file is there."""
        return (self.path / name).is_file()

    def write(self, name: str, data: bytes) -> None:
        """Put a whole file there. Raises `StoreError`: disk full or not writable."""
        write_file(self.path / name, data)

    def close(self) -> None:
        """Let other processes in."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole: temporary name, sync, rename; folders are made.

    Raises:
        StoreError: the disk is full, or the path cannot be written; no half file is left.
    """
    part = path.with_name(path.name + PART)
    try:
        make_folder(path.parent)
        write_synced(part, data)
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise _disk_error(path, error) from error


def make_folder(path: Path) -> None:
    """Make a folder and its parents, so that they outlive a power cut. Raises `StoreError`."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise _disk_error(path, error) from error


def as_json(value: Any) -> bytes:
    """Readable JSON text of plain values."""
    return (json.dumps(value, indent=2) + "\n").encode()


def _identity(path: Path) -> dict[str, Any] | None:
    """What the folder is for; None when it does not say so."""
    try:
        found = plain_json.loads((path / IDENTITY).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _foreign(path: Path) -> list[Path]:
    """Everything in a folder except our unfinished files; a file at the path counts, too."""
    if not path.is_dir():
        return [path]
    return [p for p in path.iterdir() if p.suffix != PART]


def _locked(path: Path) -> int:
    """Descriptor that keeps other exports out until it is closed, or the process has died."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise _taken(path, "another process that writes to it", "a folder nobody uses") from error
    return descriptor


def _taken(path: Path, got: str, expected: str) -> ConfigError:
    return ConfigError(
        f"cannot export into {path}",
        expected=expected,
        got=got,
        fix="choose another folder; nothing was changed in this one",
    )


def _disk_error(path: Path, error: OSError) -> StoreError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return StoreError(
        "the disk is full" if full else f"{path} cannot be written",
        expected=f"room for {path.name} in {path.parent}",
        got=str(error),
        fix="free some space and repeat the command: it goes on where it was"
        if full
        else "check the path and its permissions",
    )
