"""Digests of the files of a dataset: two datasets with the same description are told apart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from robot_rl.errors import StoreError

VIDEOS = (".mp4", ".mkv", ".avi", ".webm")
END_BYTES = 1 << 20
"""Of a video, at either end: the table of its pictures' places and sizes stands at one of them."""


class SourceFiles:
    """Digests of files below `root`, each file read once; paths are told relative to it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, str] = {}

    def digests(self, paths: Iterable[Path]) -> dict[str, str]:
        """Path -> digest of what the file holds. Raises `StoreError`: a file cannot be read."""
        found = {}
        for path in paths:
            if path not in self._known:
                self._known[path] = digest_of(path)
            found[path.relative_to(self._root).as_posix()] = self._known[path]
        return found


def digest_of(path: Path) -> str:
    """16 hex digits of a file's content; of a video, of its size and its two ends.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            if path.suffix.lower() not in VIDEOS:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256(str(size).encode())
            digest.update(file.read(END_BYTES))
            file.seek(max(size - END_BYTES, 0))
            digest.update(file.read(END_BYTES))
            return digest.hexdigest()[:16]
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read",
            expected="a file of the dataset",
            got=str(error),
            fix="get this file again, then repeat the command",
        ) from error
