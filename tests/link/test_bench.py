"""The link bench runs and its figures hang together; `robot-rl bench link` says how fast."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from robot_rl.bench import link


def test_bench_reports_figures_that_hang_together() -> None:
    figures = link.bench(0.5)
    assert all(math.isfinite(value) and value > 0 for value in figures.values()), figures
    for case in ("state", "images"):
        for name in ("prepare_ms", "commit_ms", "round_trip_ms"):
            assert figures[f"{case}/{name}_p50"] <= figures[f"{case}/{name}_p99"]
    assert {"floor/zmq_megabytes_per_s", "floor/memcpy_megabytes_per_s"} <= set(figures)


def test_rows_that_all_come_with_one_poll_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Both:
        """Server and store: the first poll brings nothing, the second everything."""

        polls = 0

        def poll(self, _timeout_ms: int) -> None:
            self.polls += 1

        def last_seq(self) -> int:
            return 100 if self.polls > 1 else 0

    both: Any = Both()  # and a clock on which a poll takes 20 ms
    monkeypatch.setattr(link, "time", SimpleNamespace(perf_counter=lambda: 0.02 * both.polls))
    figures = link._until_drained(both, both, 100, 1_000_000)
    assert figures["rows_per_s"] == pytest.approx(5000)
    assert figures["steps_per_s"] == pytest.approx(2500)
    assert figures["megabytes_per_s"] == pytest.approx(50)
