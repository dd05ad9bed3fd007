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
