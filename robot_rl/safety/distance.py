"""Distances of line segments to each other and to boxes, in plain floats."""

from __future__ import annotations

import math

from robot_rl.safety.limits import Box, Vec3

Segment = tuple[Vec3, Vec3]


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
        s = _unit((b * f - c * e) / across) if across > tiny * a * e else 0.0
        t = (b * s + f) / e
        if not 0.0 <= t <= 1.0:
            t = _unit(t)
            s = _unit((b * t - c) / a)
    x, y, z = wx + s * ux - t * vx, wy + s * uy - t * vy, wz + s * uz - t * vz
    return math.sqrt(x * x + y * y + z * z)


def segment_box(axis: Segment, box: Box, enough_m: float = math.inf) -> float:
    """Distance of a segment and a box (m); 0 when they overlap.

    The squared distance to a box is convex along a segment, and its slope is made of straight
    pieces: the zero of the slope is enclosed by halving, then taken from the last straight piece.

    Args:
        enough_m: a lower bound of the distance will do when it is at least this.
    """
    px, py, pz = in_box(axis[0], box)
    qx, qy, qz = in_box(axis[1], box)
    hx, hy, hz = box[3], box[4], box[5]
    gx = (px if px < qx else qx) - hx if px + qx > 0.0 else -(px if px > qx else qx) - hx
    gy = (py if py < qy else qy) - hy if py + qy > 0.0 else -(py if py > qy else qy) - hy
    gz = (pz if pz < qz else qz) - hz if pz + qz > 0.0 else -(pz if pz > qz else qz) - hz
    gx, gy, gz = gx if gx > 0.0 else 0.0, gy if gy > 0.0 else 0.0, gz if gz > 0.0 else 0.0
    least_m = math.sqrt(gx * gx + gy * gy + gz * gz)  # of the box around the segment
    if least_m >= enough_m:
        return least_m
    dx, dy, dz = qx - px, qy - py, qz - pz

    def slope(t: float) -> float:
        x, y, z = px + t * dx, py + t * dy, pz + t * dz
        x = x - hx if x > hx else x + hx if x < -hx else 0.0
        y = y - hy if y > hy else y + hy if y < -hy else 0.0
        z = z - hz if z > hz else z + hz if z < -hz else 0.0
        return x * dx + y * dy + z * dz

    low, high = 0.0, 1.0
    at_low, at_high = slope(low), slope(high)
    if at_low >= 0.0:
        t = 0.0
    elif at_high <= 0.0:
        t = 1.0
    else:
        for _ in range(10):
            t = (low + high) / 2
            at_t = slope(t)
            if at_t > 0.0:
                high, at_high = t, at_t
            else:
                low, at_low = t, at_t
        t = low - at_low * (high - low) / (at_high - at_low)
    x, y, z = abs(px + t * dx) - hx, abs(py + t * dy) - hy, abs(pz + t * dz) - hz
    x, y, z = x if x > 0.0 else 0.0, y if y > 0.0 else 0.0, z if z > 0.0 else 0.0
    return math.sqrt(x * x + y * y + z * z)


def in_box(p: Vec3, box: Box) -> Vec3:
    """`p` in the frame of the box."""
    x, y, z = p[0] - box[0], p[1] - box[1], p[2] - box[2]
    c, s = box[6], box[7]
    return (c * x + s * y, c * y - s * x, z)


def _unit(t: float) -> float:
    return 0.0 if t < 0.0 else min(t, 1.0)
