"""Clipping a target so that it satisfies every limit at once, or saying that none does.

Box, step, speed and acceleration limits are convex sets (a box and three balls) in position; tilt,
step and rotation speed are caps on the sphere of orientations. A target is projected onto one set
after the other until a whole round changes nothing (alternating projections, von Neumann 1933).
A projection goes 0.1 % of the radius into a ball, so that the rounds end. When they do not end, the
sets have no useful common point and the gate holds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from robot_rl.safety.limits import Limits, Vec3
from robot_rl.safety.readings import Joints, Placement, Quat

ROUNDS = 8  # real conflicts (box edge against acceleration) need two or three
INSIDE = 0.999  # how far into a ball a clipped target is put
SLACK = 1.0 + 1e-9  # rounding


class Clip(NamedTuple):
    """A target that satisfies every limit, and the names of the checks that changed it.

    joints_rad: of a joint target (`safety.joints`); () = the target is the TCP's.
    """

    target: Placement
    checks: tuple[str, ...]
    joints_rad: Joints = ()


class Conflict(NamedTuple):
    """No target satisfies every limit; `check` is the one that changed the target last."""

    check: str


class Motion(NamedTuple):
    """What a new target is compared with.

    last: target sent before; velocity_m_s: of the targets sent; dt_s: time since `last` was sent.
    """

    measured: Placement
    last: Placement
    velocity_m_s: Vec3
    dt_s: float


def clip_target(limits: Limits, want: Placement, motion: Motion) -> Clip | Conflict:
    """Nearest admissible target to `want` (finite floats). See the module docstring."""
    position, moved = _clip_position(limits, want.position, motion)
    if position is None:
        return Conflict(moved[-1])
    quaternion, turned = _clip_quaternion(limits, want.quaternion, motion)
    if quaternion is None:
        return Conflict(turned[-1])
    if not moved and not turned:
        return Clip(want, ())
    checks = tuple(c for c in ("box", "step", "speed", "acceleration") if c in moved or c in turned)
    return Clip(Placement(position, quaternion), checks)


def within_step(limits: Limits, target: Placement, measured: Placement) -> bool:
    """True when `target` is no further from `measured` than one step."""
    p, q = target
    near = _into_ball(p, measured.position, limits.max_step_m) is p
    return near and _towards(q, measured.quaternion, limits.max_step_rad) is q


def _clip_position(limits: Limits, p: Vec3, motion: Motion) -> tuple[Vec3 | None, list[str]]:
    """(position, checks that changed it), or (None, ...) when the limits conflict."""
    dt_s = motion.dt_s
    last, v = motion.last.position, motion.velocity_m_s
    coast = (last[0] + v[0] * dt_s, last[1] + v[1] * dt_s, last[2] + v[2] * dt_s)
    speed_m = limits.max_speed_m_s * dt_s
    change_m = limits.max_acceleration_m_s2 * dt_s * dt_s
    changed: list[str] = []
    for _ in range(ROUNDS):
        before = p
        inside = into_box(p, limits.workspace_min_m, limits.workspace_max_m)
        if inside != p:
            p = inside
            changed.append("box")
        inside = _into_ball(p, motion.measured.position, limits.max_step_m)
        if inside is not p:
            p = inside
            changed.append("step")
        inside = _into_ball(p, last, speed_m)
        if inside is not p:
            p = inside
            changed.append("speed")
        inside = _into_ball(p, coast, change_m)
        if inside is not p:
            p = inside
            changed.append("acceleration")
        if p is before:
            return p, changed
    return None, changed


def _clip_quaternion(limits: Limits, q: Quat, motion: Motion) -> tuple[Quat | None, list[str]]:
    """(quaternion, checks that changed it), or (None, ...) when the limits conflict."""
    turn_rad = limits.max_rotation_speed_rad_s * motion.dt_s
    changed: list[str] = []
    for _ in range(ROUNDS):
        before = q
        inside = facing(upright(q, limits.max_tilt_rad), limits.max_yaw_rad)
        if inside is not q:
            q = inside
            changed.append("box")
        inside = _towards(q, motion.measured.quaternion, limits.max_step_rad)
        if inside is not q:
            q = inside
            changed.append("step")
        inside = _towards(q, motion.last.quaternion, turn_rad)
        if inside is not q:
            q = inside
            changed.append("speed")
        if q is before:
            return q, changed
    return None, changed


def into_box(p: Vec3, low: Vec3, high: Vec3) -> Vec3:
    """`p` itself when it lies in the box, else the nearest point of it."""
    if low[0] <= p[0] <= high[0] and low[1] <= p[1] <= high[1] and low[2] <= p[2] <= high[2]:
        return p
    return (
        min(max(p[0], low[0]), high[0]),
        min(max(p[1], low[1]), high[1]),
        min(max(p[2], low[2]), high[2]),
    )


def _into_ball(p: Vec3, centre: Vec3, radius_m: float) -> Vec3:
    """`p` itself when it lies in the ball, else the point on the way to the centre just inside."""
    dx, dy, dz = p[0] - centre[0], p[1] - centre[1], p[2] - centre[2]
    distance_m = math.sqrt(dx * dx + dy * dy + dz * dz)
    if distance_m <= radius_m * SLACK:
        return p
    k = INSIDE * radius_m / distance_m
    return (centre[0] + dx * k, centre[1] + dy * k, centre[2] + dz * k)


def _towards(q: Quat, centre: Quat, angle_rad: float) -> Quat:
    """`q` itself within `angle_rad` of `centre`, else the point on the geodesic just inside."""
    dot = q[0] * centre[0] + q[1] * centre[1] + q[2] * centre[2] + q[3] * centre[3]
    if abs(dot) >= math.cos(0.5 * min(angle_rad, math.pi)):
        return q
    half_rad = math.acos(min(1.0, abs(dot)))  # half of the rotation angle between the two
    fraction = INSIDE * 0.5 * angle_rad / half_rad
    a = math.sin((1.0 - fraction) * half_rad)
    b = math.copysign(math.sin(fraction * half_rad), dot)
    x, y, z, w = (a * c + b * t for c, t in zip(centre, q, strict=True))
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    return (x / norm, y / norm, z / norm, w / norm)


def tilt_rad(q: Quat) -> float:
    """Angle between the tool's z axis and straight down (-z of base)."""
    return math.acos(max(-1.0, min(1.0, 2.0 * (q[0] * q[0] + q[1] * q[1]) - 1.0)))


def yaw_rad(q: Quat) -> float:
    """Turn about base z, in [-pi, pi]: the twist of q relative to the tool pointing down."""
    yaw = 2.0 * math.atan2(q[1], q[0])  # q (1, 0, 0, 0)^-1 has z = y, w = x
    return math.remainder(yaw, 2.0 * math.pi)


def facing(q: Quat, max_rad: float) -> Quat:
    """`q` itself when yawed by at most `max_rad`, else turned back about base z, just inside."""
    if max_rad >= math.pi:
        return q
    yaw = yaw_rad(q)
    if abs(yaw) <= max_rad * SLACK:
        return q
    half_rad = 0.5 * (math.copysign(INSIDE * max_rad, yaw) - yaw)
    s, c = math.sin(half_rad), math.cos(half_rad)
    x, y, z, w = q
    return (c * x - s * y, c * y + s * x, c * z + s * w, c * w - s * z)


def upright(q: Quat, max_rad: float) -> Quat:
    """`q` itself when tilted by at most `max_rad`, else turned back the short way, just inside."""
    tilt = tilt_rad(q)
    if tilt <= max_rad * SLACK:
        return q
    x, y, z, w = q
    # axis that turns the tool's z axis (ax, ay, .) towards (0, 0, -1): their cross product
    ax, ay = 2.0 * (x * z + y * w), 2.0 * (y * z - x * w)
    length = math.hypot(ax, ay)
    nx, ny = (-ay / length, ax / length) if length > 1e-9 else (1.0, 0.0)  # upside down: any axis
    half_rad = 0.5 * (tilt - INSIDE * max_rad)
    s, c = math.sin(half_rad), math.cos(half_rad)
    bx, by = nx * s, ny * s
    return (
        c * x + bx * w + by * z,
        c * y - bx * z + by * w,
        c * z + bx * y - by * x,
        c * w - bx * x - by * y,
    )
