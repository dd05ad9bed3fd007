"""Deadlines one after the other, whatever happens to the clock."""

from __future__ import annotations

import pytest

from robot_rl.system.clock import next_tick_s


@pytest.mark.parametrize(
    ("tick_s", "now_s", "next_s"),
    [
        (10.0, 10.0, 10.1),
        (10.0, 10.02, 10.1),  # a little late: the pace is kept
        (10.0, 10.35, 10.35),  # very late: now, and no burst
        (10.0, 3610.0, 3610.0),  # the clock was set ahead
        (3610.0, 10.0, 10.1),  # set back: nobody waits for an hour
    ],
)
def test_the_next_deadline_is_never_more_than_a_period_away(
    tick_s: float, now_s: float, next_s: float
) -> None:
    assert next_tick_s(tick_s, 0.1, now_s) == pytest.approx(next_s)
    assert next_tick_s(tick_s, 0.1, now_s) <= now_s + 0.1 + 1e-9
