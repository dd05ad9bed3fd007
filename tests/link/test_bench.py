"""The link bench runs and its figures hang together; `robot-rl bench link` says how fast."""

from __future__ import annotations

import math

from robot_rl.bench.link import bench


def test_bench_reports_figures_that_hang_together() -> None:
    figures = bench(0.5)
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    for case in ("state", "images"):
        for name in ("prepare_ms", "commit_ms", "round_trip_ms"):
            assert figures[f"{case}/{name}_p50"] <= figures[f"{case}/{name}_p99"]
    assert {"floor/zmq_megabytes_per_s", "floor/memcpy_megabytes_per_s"} <= set(figures)
