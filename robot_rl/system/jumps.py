"""Notices that a clock was set: ages that were measured on it are then worth nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

STEP_S = 0.1  # the system clock and the monotonic one may drift apart by this between two looks
JUMP_S = 1.0  # of a simulated clock: more between two looks means a restarted simulator
TIGHT_S = 0.01  # two clocks that were read within this were read at once
LOOKS = 3


class Jumps:
    """Watches one clock; look at least every second.

    The system's clock is compared with the monotonic one, which nobody can set: so a process that
    was frozen sees no jump, and a clock that was set by little more than a state may be old does
    not go unnoticed. A simulated clock has no such witness; it never goes back and never leaps.

    Args:
        read_s: the clock that is watched, in seconds. steady_s: one that nobody can set; None: the
            watched clock is simulated.
    """

    def __init__(
        self,
        read_s: Callable[[], float],
        steady_s: Callable[[], float] | None = time.monotonic,
    ) -> None:
        self._read_s, self._steady_s = read_s, steady_s
        self._last: tuple[float, float, float] | None = None

    def look(self) -> tuple[float, float]:
        """(time on the watched clock, by how much it was set since the last look; 0.0 = it was
        not), in seconds."""
        now_s, steady_s, spread_s = self._both()
        last, self._last = self._last, (now_s, steady_s, spread_s)
        if last is None or last[0] <= 0.0:  # the first look, or no clock yet
            return now_s, 0.0
        passed_s = now_s - last[0]
        if self._steady_s is None:
            return now_s, passed_s if not 0.0 <= passed_s <= JUMP_S else 0.0
        set_s = passed_s - (steady_s - last[1])
        return now_s, set_s if abs(set_s) > STEP_S + spread_s + last[2] else 0.0

    def _both(self) -> tuple[float, float, float]:
        """(watched, steady, time that passed between the two readings)."""
        if self._steady_s is None:
            return self._read_s(), 0.0, 0.0
        found = (0.0, 0.0, math.inf)
        for _ in range(LOOKS):  # between two readings, somebody else may get the processor
            before_s = self._steady_s()
            now_s = self._read_s()
            spread_s = self._steady_s() - before_s
            if spread_s < found[2]:
                found = (now_s, before_s + spread_s / 2, spread_s)
            if spread_s < TIGHT_S:
                break
        return found
