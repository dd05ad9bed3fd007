"""What a fuzz target is, and the table that `messages`, `robots` and `files` fill."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutate import PART

Open = Callable[[Path], Callable[[bytes], object]]

TARGETS: dict[str, Target] = {}
"""name -> target."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One decoder or parser.

    name: of the target, and of its folder in `corpus/`. reads: what is called. open: imports what
    it needs and returns a function of bytes; gets an empty folder for files. promised: what the
    function may raise; everything else is a defect. weight: share of the inputs of a soak. longest:
    bytes of an input. tree, skip: see `mutate.Mutator`. spare_mb: what the process may grow by
    beside `FACTOR` times the input.
    """

    name: str
    reads: str
    open: Open
    promised: tuple[type[Exception], ...] = ()
    weight: float = 1.0
    longest: int = 4096
    tree: str = ""
    skip: int = 0
    spare_mb: int = 64


def target(
    name: str, reads: str, *promised: type[Exception], **options: object
) -> Callable[[Open], Open]:
    """Decorator that puts an opener into the table."""

    def add(opener: Open) -> Open:
        assert name not in TARGETS
        TARGETS[name] = Target(name=name, reads=reads, open=opener, promised=promised, **options)  # type: ignore[arg-type]
        return opener

    return add


def parts_into(folder: Path, names: tuple[str, ...]) -> Callable[[bytes], None]:
    """Writes the parts of an input into files of these names."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(data: bytes) -> None:
        parts = data.split(PART, len(names) - 1)
        for name, part in zip(names, [*parts, *[b""] * len(names)], strict=False):
            (folder / name).write_bytes(part)

    return write


class Cursor:
    """Takes typed values from the front of bytes; zeros when they have ended."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def bytes(self, count: int) -> bytes:
        """The next bytes, fewer at the end."""
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def number(self, kind: str) -> float:
        """The next number; kind: as of `struct`, little-endian."""
        size = struct.calcsize(kind)
        return struct.unpack(f"<{kind}", self.bytes(size).ljust(size, b"\0"))[0]

    def count(self, most: int) -> int:
        """A small number."""
        return int(self.number("B")) % (most + 1)

    def numbers(self, kind: str, most: int) -> list[float]:
        """Up to `most` numbers."""
        return [self.number(kind) for _ in range(self.count(most))]

    def text(self) -> str:
        """A short text, perhaps not UTF-8 before it was read."""
        return self.bytes(self.count(40)).decode("utf-8", "replace")

    def rest(self) -> bytes:
        """All that is left."""
        return self.bytes(len(self._data))
