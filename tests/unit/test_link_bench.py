"""The link bench measures something, and a robot's data rate is far inside it."""

from __future__ import annotations

import math

from robot_rl.link.bench import bench


def test_bench_reports_rates_far_above_a_robot_and_below_the_floor() -> None:
    figures = bench(0.5)
    assert all(math.isfinite(value) and value > 0 for value in figures.values())
    for case in ("state", "images"):
        assert figures[f"{case}/steps_per_s"] > 100  # ten robots at 10 Hz
        for name in ("prepare_ms", "commit_ms", "round_trip_ms"):
            assert figures[f"{case}/{name}_p50"] <= figures[f"{case}/{name}_p99"]
    assert figures["images/megabytes_per_s"] < figures["floor/zmq_megabytes_per_s"]
    assert figures["floor/zmq_megabytes_per_s"] < figures["floor/memcpy_megabytes_per_s"]
