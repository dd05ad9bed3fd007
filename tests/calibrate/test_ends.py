"""End points of a gripper that can be right, and those that cannot."""

from __future__ import annotations

import pytest

from robot_rl.calibrate.ends import at_rest, judged, short_of
from robot_rl.errors import ConfigError
from robot_rl.robots.driver import GripperDriver

KNUCKLE = GripperDriver(
    kind="command", opened=0.0, closed=0.8, opened_joints=0.0, closed_joints=0.8
)


def test_fingers_at_rest() -> None:
    moving = [(0.05 * i, 0.02 * i) for i in range(20)]
    assert at_rest(moving, 0.8) is None and at_rest([], 0.8) is None
    rested = [*moving, *((1.0 + 0.05 * i, 0.4) for i in range(10))]
    assert at_rest(rested, 0.8) == pytest.approx(0.4)


def test_the_ends_are_the_middle_of_several() -> None:
    ends = judged([0.01, 0.012, 0.011], [0.77, 0.772, 0.771], KNUCKLE)
    assert (ends.opened_joints, ends.closed_joints) == (0.011, 0.771)
    assert short_of(ends, KNUCKLE) == ""


def test_fingers_that_have_not_moved_are_refused() -> None:
    with pytest.raises(ConfigError, match="hardly moved") as error:
        judged([0.3, 0.3], [0.31, 0.31], KNUCKLE)
    assert "switched on" in error.value.fix


def test_an_inverted_gripper_is_refused() -> None:
    with pytest.raises(ConfigError, match="other way round") as error:
        judged([0.79, 0.79], [0.01, 0.01], KNUCKLE)
    assert "swap" in error.value.fix


def test_ends_that_differ_each_time_are_refused() -> None:
    with pytest.raises(ConfigError, match="one closed end") as error:
        judged([0.0, 0.0, 0.0], [0.77, 0.5, 0.6], KNUCKLE)
    assert "between the fingers" in error.value.fix


def test_a_part_between_the_fingers_is_asked_about() -> None:
    ends = judged([0.0, 0.0], [0.55, 0.55], KNUCKLE)
    assert short_of(ends, KNUCKLE) == "closed at 0.55 where the profile says 0.8"
