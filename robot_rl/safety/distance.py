"""Distances of line segments to each other and to boxes, in plain floats."""

from __future__ import annotations

import math

from robot_rl.safety.limits import Box, Vec3

Segment = tuple[Vec3, Vec3]

ROUNDS = 30  # of Newton's method; eight were enough for 60,000 random segments and boxes
LEVEL_M2 = 1e-12  # a slope this small is 0: the squared distance is wrong by twice this at most


def segment_segment(one: Segment, other: Segment) -> float:
    """Distance of two segments (m): Ericson, Real-Time Collision Detection (2005), 5.1.9."""
    (p0, p1, p2), (a0, a1, a2) = one
    (q0, q1, q2), (b0, b1, b2) = other
    ux, uy, uz = a0 - p0, a1 - p1, a2 - p2
    vx, vy, vz = b0 - q0, b1 - q1, b2 - q2
    wx, wy, wz = p0 - q0, p1 - q1, p2 - q2
    a, e = ux * ux + uy * uy + uz * uz, vx * vx + vy * vy + vz * vz
    f, c = vx * wx + vy * wy + vz * wz, ux * wx + uy * wy + uz * wz
    b = ux * vx + uy * vy + uz * vz
    tiny = 1e-12  # m2: a point
    if a <= tiny:
        s, t = 0.0, _unit(f / e) if e > tiny else 0.0
    elif e <= tiny:
        s, t = _unit(-c / a), 0.0
    else:
        across = a * e - b * b
        s = (b * f - c * e) / across if across > tiny * a * e else 0.0
        s = 0.0 if s < 0.0 else 1.0 if s > 1.0 else s
        t = (b * s + f) / e
        if t < 0.0:
            t, s = 0.0, _unit(-c / a)
        elif t > 1.0:
            t, s = 1.0, _unit((b - c) / a)
    x, y, z = wx + s * ux - t * vx, wy + s * uy - t * vy, wz + s * uz - t * vz
    return math.sqrt(x * x + y * y + z * z)


def segment_box(axis: Segment, box: Box, enough_m: float = math.inf) -> float:
    """Distance of a segment and a box (m); 0 when they overlap.

    The squared distance to a box is convex along a segment, and its slope is made of straight
    pieces. Newton's method finds the zero of one piece at once, so it ends on the right one; where
    it would leave what encloses the zero, that is halved.

    Args:
        enough_m: a lower bound of the distance will do when it is at least this.
    """
    (px, py, pz), (qx, qy, qz) = axis
    cx, cy, cz, hx, hy, hz, c, s = box
    dx, dy, dz = qx - px, qy - py, qz - pz
    dx, dy = c * dx + s * dy, c * dy - s * dx
    px, py, pz = px - cx, py - cy, pz - cz
    px, py = c * px + s * py, c * py - s * px
    gx = abs(px + dx / 2) - abs(dx) / 2 - hx
    gy = abs(py + dy / 2) - abs(dy) / 2 - hy
    gz = abs(pz + dz / 2) - abs(dz) / 2 - hz
    gx, gy, gz = gx if gx > 0.0 else 0.0, gy if gy > 0.0 else 0.0, gz if gz > 0.0 else 0.0
    least_m = math.sqrt(gx * gx + gy * gy + gz * gz)  # of the box around the segment
    if least_m >= enough_m:
        return least_m
    x, y, z = _outside(px, py, pz, box)
    at_low = x * dx + y * dy + z * dz
    if at_low >= 0.0:
        return math.sqrt(x * x + y * y + z * z)
    x, y, z = _outside(px + dx, py + dy, pz + dz, box)
    at_high = x * dx + y * dy + z * dz
    if at_high <= 0.0:
        return math.sqrt(x * x + y * y + z * z)
    low, high, t = 0.0, 1.0, at_low / (at_low - at_high)
    for _ in range(ROUNDS):
        x, y, z = _outside(px + t * dx, py + t * dy, pz + t * dz, box)
        slope = x * dx + y * dy + z * dz
        if abs(slope) < LEVEL_M2:
            break
        low, high = (low, t) if slope > 0.0 else (t, high)
        rise = (x != 0.0) * dx * dx + (y != 0.0) * dy * dy + (z != 0.0) * dz * dz
        t -= slope / rise  # where this straight piece of the slope is 0
        if not low < t < high:
            t = (low + high) / 2
    return math.sqrt(x * x + y * y + z * z)


def _outside(x: float, y: float, z: float, box: Box) -> Vec3:
    """The shortest way from a box to a point (m), both in the frame of the box."""
    hx, hy, hz = box[3:6]
    return (
        x - hx if x > hx else x + hx if x < -hx else 0.0,
        y - hy if y > hy else y + hy if y < -hy else 0.0,
        z - hz if z > hz else z + hz if z < -hz else 0.0,
    )


def _unit(t: float) -> float:
    return 0.0 if t < 0.0 else min(t, 1.0)
