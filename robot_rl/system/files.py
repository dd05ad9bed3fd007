"""Files that are whole: on the disk when the call returns, replaced at once, or still growing."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import ConfigError
from robot_rl.system import plain_json

log = logging.getLogger(__name__)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it. Raises `OSError`."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the disk knows what is in a folder. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: str | bytes, mode: int | None = None) -> None:
    """Write a file: the whole file, or the one before stays.

    mode: who may do what with it; None = as this user's files usually are.
    """
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    try:
        with os.fdopen(made, "w" if isinstance(data, str) else "wb") as file:
            if mode is not None:
                os.fchmod(made, mode)  # whatever the umask says
            file.write(data)
            file.flush()
            os.fsync(made)  # before its name: else a power cut may leave an empty file
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)  # a full disk has no room for half a file
        raise
    sync_folder(path.parent)


def rewrite_text(path: Path, text: str) -> None:
    """Change a file of a person, whole or not at all; its mode stays, and what leads to it."""
    target = path.resolve()
    replace_file(target, text, stat.S_IMODE(target.stat().st_mode))


def replace_json(path: Path, data: Mapping[str, Any], mode: int | None = None) -> None:
    """Write a file of JSON; see `replace_file`."""
    replace_file(path, json.dumps(data, indent=1) + "\n", mode)


def need_writable(folder: Path) -> None:
    """Raise `ConfigError` when nothing can be written into a folder."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"cannot write into {folder}",
            expected="a folder of yours: results are kept in it",
            got="no permission to write" if folder.exists() else "no such folder",
            fix="copy it to a place of yours, or ask its owner",
        )


def write_picture(path: Path, picture: Any) -> None:
    """Write a picture, uint8 [H, W, 3] in the order blue, green, red, in the format of its name.

    Raises:
        ConfigError: no format is called so.
        OSError: it cannot be written.
    """
    import cv2
    import numpy as np

    try:
        _, data = cv2.imencode(path.suffix, np.ascontiguousarray(picture))
    except cv2.error as error:
        raise ConfigError(
            f"a picture cannot be called {path.name}",
            expected="a name that ends in .png or .jpg",
            got=path.suffix or "no ending",
        ) from error
    path.write_bytes(data.tobytes())


def user_folder() -> Path:
    """Where this user's own settings lie, beside every run: `~/.config/robot-rl`."""
    return Path.home() / ".config" / "robot-rl"


class TextTail:
    """Lines of a growing file; it may not be there yet.

    Args:
        new_only: leave out what was there before.
    """

    def __init__(self, path: Path, *, new_only: bool = False) -> None:
        self._path = path
        self._offset = path.stat().st_size if new_only and path.is_file() else 0

    @property
    def offset(self) -> int:
        """Bytes of the file that were read, up to the end of a line."""
        return self._offset

    def read(self, most: int = -1) -> list[bytes]:
        """Lines appended since the last call; a torn last line is left for the next one.

        most: bytes that are read at once, more than the longest line has; -1 = all.
        """
        if not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(most)
        end = data.rfind(b"\n") + 1
        self._offset += end
        return data[:end].splitlines()


class Tail(TextTail):
    """Objects of a growing JSONL file; see `TextTail`."""

    def lines(self, most: int = -1) -> list[dict[str, Any]]:
        """Objects appended since the last call; see `read`."""
        found = []
        for line in self.read(most):
            try:
                row = plain_json.loads(line)
            except ValueError:
                row = None
            if isinstance(row, dict):
                found.append(row)
            else:
                log.warning("unreadable line in %s", self._path.name)
        return found
