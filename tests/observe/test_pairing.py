"""Pairing by stamp and freshness figures: no ROS needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.observe import Freshness, Track, newest_consistent


def filled(*stamps_s: float) -> Track[float]:
    track: Track[float] = Track()
    for stamp_s in stamps_s:
        track.add(stamp_s, stamp_s)
    return track


def test_the_newest_common_instant_is_chosen() -> None:
    tracks = {"pose": filled(1.00, 1.02, 1.04), "wrench": filled(1.00, 1.02)}
    parts = newest_consistent(tracks, 0.012)
    assert parts is not None and {p.stamp_s for p in parts.values()} == {1.02}


def test_a_fast_source_is_paired_with_its_reading_nearest_before() -> None:
    tracks = {"fast": filled(1.001, 1.003, 1.005), "slow": filled(1.000)}
    parts = newest_consistent(tracks, 0.012)
    assert parts is not None and parts["fast"].stamp_s == 1.005 and parts["slow"].stamp_s == 1.0


def test_sources_that_have_drifted_apart_give_nothing() -> None:
    assert newest_consistent({"a": filled(1.0), "b": filled(1.5)}, 0.02) is None
    assert newest_consistent({"a": filled(1.0), "b": filled()}, 0.02) is None


def test_late_and_repeated_readings_are_dropped_but_a_restart_is_followed() -> None:
    track = filled(5.0, 5.1)
    assert not track.add(5.05, 0.0) and not track.add(5.1, 0.0) and track.dropped == 2
    assert track.add(0.1, 0.0)  # seconds back: the source was restarted
    assert track.newest is not None and track.newest.stamp_s == 0.1


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_a_set_never_spans_more_than_the_tolerance_and_is_the_newest(
    stamps: list[list[int]], tolerance: int
) -> None:
    tracks = {str(i): filled(*(s / 100 for s in sorted(set(row)))) for i, row in enumerate(stamps)}
    parts = newest_consistent(tracks, tolerance / 100)
    kept = [list(t.stamps()) for t in tracks.values()]
    combos = [
        combo
        for combo in np.array(np.meshgrid(*kept)).reshape(len(kept), -1).T
        if combo.max() - combo.min() <= tolerance / 100 + 1e-9
    ]
    if parts is None:
        assert not combos
        return
    chosen = np.array([p.stamp_s for p in parts.values()])
    assert chosen.max() - chosen.min() <= tolerance / 100 + 1e-9
    assert chosen.max() == pytest.approx(max(c.max() for c in combos))


def test_freshness_reports_rate_age_and_silence() -> None:
    fresh = Freshness()
    assert math.isinf(fresh.silent_s(0.0)) and math.isnan(fresh.report(0.0).age_p50_s)
    for i in range(1, 51):
        fresh.saw(i * 0.02, age_s=0.001 if i < 50 else 0.5)
    report = fresh.report(1.0)
    assert report.rate_hz == pytest.approx(50.0) and report.received == 50
    assert report.age_p50_s == pytest.approx(0.001) and report.age_p99_s > 0.1
    assert fresh.silent_s(3.0) == pytest.approx(2.0)
