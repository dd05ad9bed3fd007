"""A clock without time of its own."""

from __future__ import annotations


class ManualClock:
    """A clock that tests move by hand; sleeping jumps to the deadline."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """The time set so far."""
        return self._now_s

    def sleep_until_s(self, deadline_s: float) -> None:
        """Jump."""
        self._now_s = max(self._now_s, deadline_s)
