"""Clocks: absolute deadlines, so a late tick never shifts the ones after it."""

from __future__ import annotations

import time


class WallClock:
    """Monotonic real time; immune to NTP steps and suspended wall clocks."""

    def now_s(self) -> float:
        """Seconds since an arbitrary origin."""
        return time.monotonic()

    def sleep_until_s(self, deadline_s: float) -> None:
        """Sleep to an absolute deadline."""
        remaining_s = deadline_s - time.monotonic()
        if remaining_s > 0:
            time.sleep(remaining_s)


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
