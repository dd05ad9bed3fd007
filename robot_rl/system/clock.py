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
