"""Pairing by stamp: the newest set of readings, one per source, that belong to the same instant.

Sources arrive on their own topics and at their own rates; a control step must never mix a pose of
now with an older wrench. Pure Python, no clock of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

JUMP_S = 1.0  # a stamp this far *behind* the newest is a restarted source, not a late message


@dataclass(frozen=True, slots=True)
class Stamped(Generic[T]):
    """A value and the time it was measured at (seconds on the run's clock)."""

    stamp_s: float
    value: T


class Track(Generic[T]):
    """Bounded history of one source, stamps strictly increasing.

    Args:
        depth: how many readings to keep; 4 covers a fast source paired with one a tick behind.
    """

    def __init__(self, depth: int = 4) -> None:
        self._items: deque[Stamped[T]] = deque(maxlen=depth)
        self.dropped = 0  # late or repeated readings that were refused

    def add(self, stamp_s: float, value: T) -> bool:
        """Append a reading; False if it is late or a repeat. A jump back restarts the history."""
        if self._items and stamp_s <= self._items[-1].stamp_s:
            if stamp_s > self._items[-1].stamp_s - JUMP_S:
                self.dropped += 1
                return False
            self._items.clear()
        self._items.append(Stamped(stamp_s, value))
        return True

    @property
    def newest(self) -> Stamped[T] | None:
        """The last reading, or None before any."""
        return self._items[-1] if self._items else None

    def before(self, stamp_s: float) -> Stamped[T] | None:
        """The newest reading measured at or before `stamp_s`, or None."""
        return next((i for i in reversed(self._items) if i.stamp_s <= stamp_s), None)

    def stamps(self) -> Iterable[float]:
        """Stamps in the history, oldest first."""
        return (item.stamp_s for item in self._items)


def newest_consistent(
    tracks: Mapping[str, Track[T]], tolerance_s: float
) -> dict[str, Stamped[T]] | None:
    """Return the newest set (one reading per track) whose stamps span at most `tolerance_s`.

    None when some track is empty or no such set is left in the histories: the caller keeps the set
    it had, whose age then tells that the sources have drifted apart.
    """
    anchors = sorted({s for track in tracks.values() for s in track.stamps()}, reverse=True)
    for anchor_s in anchors:
        picked: dict[str, Stamped[T]] = {}
        for name, track in tracks.items():
            item = track.before(anchor_s)
            if item is None or anchor_s - item.stamp_s > tolerance_s + 1e-9:
                break
            picked[name] = item
        else:
            return picked
    return None
