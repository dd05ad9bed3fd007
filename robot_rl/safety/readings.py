"""From arrays that may hold anything to plain floats that can be trusted, or None.

Plain floats, because a gate call handles a few dozen numbers: numpy would mostly be call overhead.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robot_rl.safety.limits import Limits, Vec3
from robot_rl.types import Pose, RobotState

Quat = tuple[float, float, float, float]

Joints = tuple[float, ...]
"""Angles of all joints (rad), or their velocities."""

REACH_M = 5.0  # no table-top arm reaches further: a reading beyond is a broken sensor
NORM_TOLERANCE = 1e-3  # a quaternion further from unit length is not a rotation someone meant
SETTLES_S = 0.3  # after a jump, an arm is believed to be where it has been said to be for so long
GAP_S = 0.2  # readings that are further apart do not confirm each other


class Placement(NamedTuple):
    """A pose as floats: metres, unit quaternion xyzw."""

    position: Vec3
    quaternion: Quat


class ArmReading(NamedTuple):
    """What the gate needs of one `RobotState`.

    depth_rad / ahead_rad: how far the worst joint stands inside its margin now, and one control
    period ahead at its measured velocity; negative = clear of the margin.
    """

    measured: Placement
    depth_rad: float
    ahead_rad: float
    force_n: float
    torque_nm: float
    joints_rad: Joints
    speeds_rad_s: Joints


class Sight(NamedTuple):
    """Where the arm was said to be.

    joints_rad: () where they are not commanded. stamp_s: of the reading; since_s: of the first one
    that was followed by no jump.
    """

    place: Placement
    joints_rad: Joints
    stamp_s: float
    since_s: float


NOWHERE = Sight(Placement((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0)), (), -math.inf, -math.inf)
"""The odd sight of a gate that has seen nothing yet and believes no first reading at once."""


def read_pose(pose: Pose) -> Placement | None:
    """`pose` as floats, or None when it is malformed, not finite or not a rotation."""
    try:
        x, y, z = pose.position_m.tolist()
        qx, qy, qz, qw = pose.quaternion_xyzw.tolist()
        norm = math.sqrt(qx * qx + qy * qy + qz * qz + qw * qw)
        if not (math.isfinite(x + y + z) and abs(norm - 1.0) <= NORM_TOLERANCE):
            return None
    except (TypeError, ValueError, AttributeError):
        return None
    return Placement((x, y, z), (qx / norm, qy / norm, qz / norm, qw / norm))


def write_pose(placement: Placement) -> Pose:
    """Inverse of `read_pose`: fresh arrays that nobody else can change."""
    return Pose(np.array(placement.position), np.array(placement.quaternion))


def read_joints(angles_rad: NDArray[np.float64]) -> Joints | None:
    """Joint angles [J] as floats, or None when they are malformed or not finite."""
    try:
        joints = tuple(map(float, angles_rad.tolist()))
    except (TypeError, ValueError, AttributeError):
        return None
    return joints if joints and math.isfinite(sum(joints)) else None


def write_joints(joints_rad: Joints) -> NDArray[np.float64] | None:
    """Inverse of `read_joints`: a fresh array that nobody else can change; None for ()."""
    return np.array(joints_rad) if joints_rad else None


def read_state(limits: Limits, state: RobotState) -> ArmReading | None:
    """`state` as floats, or None when any of it cannot be trusted (NaN, wrong shape, absurd)."""
    measured = read_pose(state.tcp_in_base)
    if measured is None or max(map(abs, measured.position)) > REACH_M:
        return None
    try:
        joints = state.joint_position_rad.tolist()
        speeds = state.joint_velocity_rad_s.tolist()
        fx, fy, fz, tx, ty, tz = state.wrench_in_tcp.tolist()
        if not math.isfinite(sum(joints) + sum(speeds) + fx + fy + fz + tx + ty + tz):
            return None
        depth_rad, ahead_rad = _margin_use(limits, joints, speeds)
        force_n = math.sqrt(fx * fx + fy * fy + fz * fz)
        torque_nm = math.sqrt(tx * tx + ty * ty + tz * tz)
    except (TypeError, ValueError, AttributeError):
        return None
    return ArmReading(
        measured, depth_rad, ahead_rad, force_n, torque_nm, tuple(joints), tuple(speeds)
    )


def look(
    limits: Limits, seen: Sight | None, odd: Sight | None, state: RobotState | None, now_s: float
) -> tuple[Sight | None, Sight | None, ArmReading | None]:
    """Where the arm is believed to be, where it is said to be instead, and the reading.

    A pose further away than an arm gets between two readings comes from somebody else, or from a
    driver that is starting. It is believed after `SETTLES_S` without another jump.

    Args:
        seen, odd: as they were returned last; both None = the first pose is believed at once.

    Returns:
        (seen, odd, reading). odd: None while the newest state is believed. reading: None when there
        is no state, or it is stale, malformed or not believed.
    """
    if state is None or not abs(now_s - state.stamp_s) <= limits.state_timeout_s:
        return seen, odd, None
    reading = read_state(limits, state)
    if reading is None:
        return seen, odd, None
    joints_rad = reading.joints_rad if limits.joint_arm else ()
    here = Sight(reading.measured, joints_rad, state.stamp_s, state.stamp_s)
    if _is_near(limits, seen, here) if seen else odd is None:
        return here, None, reading
    gap_s = max(GAP_S, limits.state_timeout_s)  # of a driver that tells states rarely
    if odd and 0.0 <= here.stamp_s - odd.stamp_s <= gap_s and _is_near(limits, odd, here):
        here = here._replace(since_s=odd.since_s)
        if here.stamp_s - here.since_s >= SETTLES_S:
            return here, None, reading
    return seen, here, None


def _is_near(limits: Limits, before: Sight, after: Sight) -> bool:
    """Whether an arm gets from one to the other between two readings.

    No target is further than a step from where the arm is, and at 50 Hz a step is 2.5 m/s, faster
    than anybody guides an arm by hand. So it does not matter who moves it.
    """
    apart_s = 2.0 * limits.state_timeout_s  # with steps that are tiny, the speed counts
    far_m = max(limits.max_step_m, limits.max_speed_m_s * apart_s)
    if math.dist(before.place.position, after.place.position) > far_m:
        return False
    pairs = zip(before.place.quaternion, after.place.quaternion, strict=True)
    turned_rad = 2.0 * math.acos(min(abs(sum(a * b for a, b in pairs)), 1.0))
    if turned_rad > max(limits.max_step_rad, limits.max_rotation_speed_rad_s * apart_s):
        return False
    far_rad = max(limits.max_step_rad, limits.max_joint_speed_rad_s * apart_s)
    pairs = zip(before.joints_rad, after.joints_rad, strict=True)
    return all(abs(a - b) <= far_rad for a, b in pairs)


def _margin_use(limits: Limits, joints: list[float], speeds: list[float]) -> tuple[float, float]:
    """(depth_rad, ahead_rad) of the worst joint. Raises ValueError on another number of joints."""
    lows, highs = limits.joint_min_rad, limits.joint_max_rad
    if not lows:
        return -math.inf, -math.inf
    period_s, now, ahead = 1.0 / limits.control_hz, -math.inf, -math.inf
    for low, high, joint, speed in zip(lows, highs, joints, speeds, strict=True):
        # comparisons, because max() on each of seven joints costs a tenth of the whole call
        over = joint - high if joint - high > low - joint else low - joint
        now = over if over > now else now
        soon = joint + speed * period_s
        over = soon - high if soon - high > low - soon else low - soon
        ahead = over if over > ahead else ahead
    return now + limits.joint_margin_rad, ahead + limits.joint_margin_rad
