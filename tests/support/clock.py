"""Clocks without time of their own."""

from __future__ import annotations

import math
from collections.abc import Callable


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


class SimulatedTime:
    """In place of the module `time`: sleeping jumps, and does on the way what is due.

    A test of code that polls takes no time by it, and a busy machine cannot fail it.
    """

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now_s = start_s
        self.forget()

    def monotonic(self) -> float:
        """The time slept so far, and a microsecond more each time: what follows is later."""
        self._now_s += 1e-6
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Jump."""
        until_s = self._now_s + max(seconds, 0.0)
        while self._due_s <= until_s:
            self._now_s, self._due_s = self._due_s, self._due_s + self._period_s
            self._work()
        self._now_s = until_s

    def every(self, period_s: float, work: Callable[[], None]) -> None:
        """Call `work` when somebody sleeps: for now, and for each period."""
        self._due_s, self._period_s, self._work = self._now_s, period_s, work

    def forget(self) -> None:
        """Call nothing any more."""
        self.every(math.inf, lambda: None)
        self._due_s = math.inf
