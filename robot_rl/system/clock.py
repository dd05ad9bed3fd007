"""Clocks: absolute deadlines, so a late tick never shifts the ones after it."""

from __future__ import annotations

import time


def next_tick_s(tick_s: float, period_s: float, now_s: float) -> float:
    """The deadline after `tick_s`: one period later; now, where that was missed by a whole period.

    Never more than a period from now: a clock that was set back makes nobody wait.
    """
    return min(max(tick_s, now_s - period_s), now_s) + period_s


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
