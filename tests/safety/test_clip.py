"""Clipping: nothing to do -> untouched; otherwise inside every limit, close to what was asked."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from robot_rl.geometry import quat_from_rotvec, quat_multiply
from robot_rl.safety.clip import Clip, Conflict, Motion, clip_target, tilt_rad, yaw_rad
from robot_rl.safety.limits import Limits
from robot_rl.safety.readings import Placement

LIMITS = Limits()
DOWN = (1.0, 0.0, 0.0, 0.0)
HERE = Placement((0.5, 0.0, 0.3), DOWN)
REST = Motion(HERE, HERE, (0.0, 0.0, 0.0), 0.1)


def turned(*rotvec_rad: float) -> tuple[float, float, float, float]:
    """Tool-down orientation turned in base."""
    x, y, z, w = quat_multiply(quat_from_rotvec(rotvec_rad), np.array(DOWN)).tolist()
    return (x, y, z, w)


def at(x: float, y: float, z: float) -> Placement:
    """Tool down at a position."""
    return Placement((x, y, z), DOWN)


def test_an_admissible_target_is_returned_as_it_is() -> None:
    want = Placement((0.51, 0.0, 0.3), turned(0.0, 0.0, 0.1))
    clip = clip_target(LIMITS, want, REST)
    assert isinstance(clip, Clip) and clip.target is want and clip.checks == ()


def test_the_direction_asked_for_is_kept() -> None:
    clip = clip_target(LIMITS, at(0.8, 0.4, 0.3), REST)
    assert isinstance(clip, Clip)
    dx, dy, dz = (a - b for a, b in zip(clip.target.position, HERE.position, strict=True))
    assert math.hypot(dx, dy) == pytest.approx(0.025, rel=2e-3)  # 0.25 m/s for 0.1 s
    assert dy / dx == pytest.approx(0.4 / 0.3) and dz == pytest.approx(0.0)


def test_a_wall_is_slid_along() -> None:
    wall = at(0.80, 0.0, 0.3)
    clip = clip_target(LIMITS, at(0.82, 0.01, 0.3), Motion(wall, wall, (0.0, 0.0, 0.0), 0.1))
    assert isinstance(clip, Clip)
    assert clip.checks == ("box",)
    assert clip.target.position == pytest.approx((0.80, 0.01, 0.3))


def test_acceleration_limits_the_change_of_velocity() -> None:
    limits = Limits(max_acceleration_m_s2=1.0)
    moving = Motion(HERE, HERE, (0.2, 0.0, 0.0), 0.1)
    clip = clip_target(limits, at(0.48, 0.0, 0.3), moving)
    assert isinstance(clip, Clip) and clip.checks == ("acceleration",)
    assert clip.target.position[0] == pytest.approx(0.52 - 0.01, abs=1e-4)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_turn_is_cut_on_the_short_way_round(sign: float) -> None:
    x, y, z, w = turned(0.0, 0.0, 3.0)
    want = Placement(HERE.position, (sign * x, sign * y, sign * z, sign * w))
    clip = clip_target(LIMITS, want, REST)
    assert isinstance(clip, Clip)
    expected = turned(0.0, 0.0, 0.2 * 0.999)  # 2 rad/s for 0.1 s
    assert abs(np.dot(clip.target.quaternion, expected)) == pytest.approx(1.0, abs=1e-9)


def test_the_sign_of_a_quaternion_does_not_matter() -> None:
    x, y, z, w = turned(0.02, 0.0, 0.05)
    clip = clip_target(LIMITS, Placement(HERE.position, (-x, -y, -z, -w)), REST)
    assert isinstance(clip, Clip) and clip.checks == ()


@given(angle=st.floats(-3.1, 3.1), yaw=st.floats(-3.1, 3.1))
def test_tilt_is_measured_from_straight_down(angle: float, yaw: float) -> None:
    spun = quat_multiply(np.array(turned(angle, 0.0, 0.0)), quat_from_rotvec((0.0, 0.0, yaw)))
    x, y, z, w = spun.tolist()
    assert tilt_rad((x, y, z, w)) == pytest.approx(abs(angle), abs=1e-6)


@given(tilt=st.floats(-0.7, 0.7), yaw=st.floats(-3.1, 3.1))
def test_yaw_is_limited_and_the_tilt_stays(tilt: float, yaw: float) -> None:
    assume(abs(abs(yaw) - 0.4) > 1e-9)  # on the limit itself rounding decides
    spun = quat_multiply(quat_from_rotvec((0.0, 0.0, yaw)), np.array(turned(tilt, 0.0, 0.0)))
    want = Placement(HERE.position, tuple(spun.tolist()))
    assert yaw_rad(want.quaternion) == pytest.approx(yaw, abs=1e-9)
    limits = dataclasses.replace(LIMITS, max_yaw_rad=0.4, max_step_rad=1.5)
    limits = dataclasses.replace(limits, max_rotation_speed_rad_s=math.pi)
    facing = math.copysign(min(abs(yaw), 0.4 * 0.999), yaw)
    clip = clip_target(limits, want, Motion(want, want, (0.0, 0.0, 0.0), 0.1))
    if abs(yaw) < 0.4:
        assert isinstance(clip, Clip) and clip.checks == ()
    elif abs(yaw) < 0.6:  # further out there is no target within a tick's turn: conflict
        assert isinstance(clip, Clip) and clip.checks == ("box",)
        assert yaw_rad(clip.target.quaternion) == pytest.approx(facing, abs=1e-9)
        assert tilt_rad(clip.target.quaternion) == pytest.approx(abs(tilt), abs=1e-6)


def test_limits_without_a_common_point_conflict() -> None:
    runaway = Motion(HERE, at(0.7, 0.0, 0.3), (0.2, 0.0, 0.0), 0.1)
    assert isinstance(clip_target(LIMITS, HERE, runaway), Conflict)
    upside = Motion(Placement(HERE.position, (0.0, 0.0, 0.0, 1.0)), HERE, (0.0, 0.0, 0.0), 0.1)
    assert isinstance(clip_target(LIMITS, HERE, upside), Conflict)


small = st.floats(-0.03, 0.03)
speed = st.floats(-0.14, 0.14)


@settings(max_examples=300)
@given(
    ask=st.tuples(*[st.floats(-2.0, 2.0)] * 3),
    lead=st.tuples(small, small, small),
    velocity=st.tuples(speed, speed, speed),
    dt_s=st.floats(0.01, 0.15),
)
def test_whatever_is_returned_satisfies_every_limit(
    ask: tuple, lead: tuple, velocity: tuple, dt_s: float
) -> None:
    """And in free space with a modest lead there always is something to return."""
    last = np.array(HERE.position) + lead
    motion = Motion(HERE, at(*last), velocity, dt_s)
    clip = clip_target(LIMITS, at(*ask), motion)
    if np.linalg.norm(lead) + np.linalg.norm(velocity) * dt_s < LIMITS.max_step_m:
        assert isinstance(clip, Clip)
    if isinstance(clip, Clip):
        new = np.array(clip.target.position)
        slack = 1.0 + 1e-6
        assert (new >= LIMITS.workspace_min_m).all() and (new <= LIMITS.workspace_max_m).all()
        assert np.linalg.norm(new - HERE.position) <= LIMITS.max_step_m * slack
        assert np.linalg.norm(new - last) <= LIMITS.max_speed_m_s * dt_s * slack
        jolt = np.linalg.norm(new - last - np.array(velocity) * dt_s)
        assert jolt <= LIMITS.max_acceleration_m_s2 * dt_s**2 * slack
