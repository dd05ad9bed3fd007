"""Staleness bookkeeping of one source: rate, age, drops - what `/diagnostics` reports."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

WINDOW = 256  # readings that the statistics look back on: 5 s of a 50 Hz topic


@dataclass(frozen=True, slots=True)
class FreshnessReport:
    """rate_hz since the last report; ages (s from stamp to use) over the window, NaN if none."""

    rate_hz: float
    age_p50_s: float
    age_p99_s: float
    received: int
    dropped: int
    silent_s: float


class Freshness:
    """Counts the readings of one source. `now_s` is wall time (monotonic), and so is silence."""

    def __init__(self) -> None:
        self._ages_s: deque[float] = deque(maxlen=WINDOW)
        self._last_s: float | None = None
        self._reported: tuple[float, int] | None = None
        self.received = 0
        self.dropped = 0

    def saw(self, now_s: float, age_s: float | None = None) -> None:
        """Count a reading used at `now_s`, `age_s` after it was measured (on the run's clock)."""
        self.received += 1
        self._last_s = now_s
        if age_s is not None:
            self._ages_s.append(age_s)

    def silent_s(self, now_s: float) -> float:
        """Seconds since the last reading; infinity before the first."""
        return float("inf") if self._last_s is None else now_s - self._last_s

    def report(self, now_s: float) -> FreshnessReport:
        """Statistics; the rate counts from the previous report."""
        since_s, before = self._reported or (now_s, self.received)
        elapsed_s = now_s - since_s
        rate_hz = (self.received - before) / elapsed_s if elapsed_s > 0 else 0.0
        self._reported = (now_s, self.received)
        p50_s, p99_s = percentile(self._ages_s, 0.50), percentile(self._ages_s, 0.99)
        silent_s = self.silent_s(now_s)
        return FreshnessReport(rate_hz, p50_s, p99_s, self.received, self.dropped, silent_s)


def percentile(values: Iterable[float], share: float) -> float:
    """The value that this share of a few hundred lie below; NaN of none.

    Without numpy's, whose first call imports `numpy.ma`: 60 ms in a node that has deadlines.
    """
    ordered = sorted(values)
    return ordered[int(share * len(ordered))] if ordered else math.nan
