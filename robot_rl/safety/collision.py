"""Will the arm touch itself or its surroundings on the way to a target? Pure functions.

The arm is capsules on its links, the surroundings are boxes in base, and d(q) is the least distance
between two of them that may not touch. A command says where the tool goes, not the joints: `check`
predicts the joints from the measured ones (damped least squares on the geometric Jacobian, Wampler
1986), and asks that d(q) keeps the margin along the straight line between both in joint space.

Between two configurations d is bounded from below: a point moves by at most the chord between its
two places, plus what it bulges from the chord. Where this bound is below the margin the piece is
halved, as in continuous collision detection by conservative advancement (Mirtich 1996).

Plain floats, as in `readings`: single small matrices are faster in Python than in numpy.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from robot_rl.config.registry import resolve
from robot_rl.robots import Robot
from robot_rl.robots.chain import prioritised
from robot_rl.safety.limits import Limits, Vec3
from robot_rl.safety.readings import ArmReading, Placement, Quat

Matrix = tuple[Vec3, Vec3, Vec3]  # columns
Frame = tuple[Matrix, Vec3]
Segment = tuple[Vec3, Vec3]
Box = tuple[float, ...]  # centre x y z, half sizes x y z (m), yaw about base z (rad)

FAR_M = 0.15  # distances beyond are not told apart: no step is that long
TOLERANCE = 2e-4  # m and rad: a prediction this close has converged
ROUNDS = 6  # of the prediction; from a healthy pose two are enough
SETTLED_RAD = 1e-3  # fewer than six joints: a step this small gains nothing more
DAMPING = 1e-6  # of the normal equations
MOST_RAD = 0.8  # turn of one joint in one step; beyond, the arm stands next to a singular pose
FINEST_M = 0.004  # a piece of the path on which nothing moves further is not halved again
STILL_M = 1e-5  # a way out of the margin may lose this much to rounding
DETOUR_M = 1e-3  # ... and this much on the way
UNKNOWN = "collision: the joints' way cannot be predicted here (singular pose)"


class Arm(NamedTuple):
    """What the checks need of a robot, prepared once.

    joints: rotation and place of each joint's frame in the one before it; hand: of the hand in the
    last one. capsules: (frame, start, end, radius); frame 0 = base, J + 1 = hand. free: numbers of
    the capsules that are compared with the boxes; pairs: of those compared with each other.
    reaches_m: of each joint; no capsule's axis behind it has a point further from it.
    """

    names: tuple[str, ...]
    joints: tuple[Frame, ...]
    hand: Frame
    tcp_m: float
    capsules: tuple[tuple[int, Vec3, Vec3, float], ...]
    free: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    reaches_m: tuple[float, ...]


class Nearest(NamedTuple):
    """The least distance (at most `FAR_M`) and the two that have it."""

    distance_m: float
    one: str
    other: str


_INTRODUCED: dict[str, Arm] = {}


def introduce(robot: Robot) -> None:
    """Have this process know an arm that no file of `robot_rl.robots` describes: one from YAML."""
    _INTRODUCED[robot.name] = arm_of(robot)


def arm_called(name: str) -> Arm:
    """The arm of a robot that was introduced, or is registered. Raises `ConfigError` for others."""
    return _INTRODUCED.get(name) or _registered(name)


@cache
def _registered(name: str) -> Arm:
    return arm_of(resolve("robot", {"name": name}))


def arm_of(robot: Robot) -> Arm:
    """Prepare `robot`.

    The foot and the first link are not compared with boxes: they stand on one and stay in place.
    """
    n = len(robot.joints)
    joints = tuple((_columns(j.quaternion_xyzw), j.position_m) for j in robot.joints)
    mount = robot.hand_in_last
    hand = (_columns(_four(mount.quaternion_xyzw)), _three(mount.position_m))
    capsules = tuple((c.link, c.start_m, c.end_m, c.radius_m) for c in robot.capsules)
    links = [c.link for c in robot.capsules]
    pairs = tuple(
        (i, k)
        for i, a in enumerate(links)
        for k, b in enumerate(links)
        if b - a > 1 and (a, b) not in robot.neighbours
    )
    longest_m = max(
        (math.hypot(*p) for c in robot.capsules for p in (c.start_m, c.end_m)), default=0
    )
    steps_m = [math.hypot(*place) for _, place in (*joints, hand)]
    reaches_m = tuple(sum(steps_m[i + 1 :]) + longest_m for i in range(n))
    names = ("foot", *(f"link{i}" for i in range(1, n + 1)), "hand")
    free = tuple(i for i, link in enumerate(links) if link > 1)
    tcp_m = robot.gripper.tcp_m
    return Arm(names, joints, hand, tcp_m, capsules, free, pairs, reaches_m)


def check(limits: Limits, reading: ArmReading, target: Placement) -> str:
    """Why the arm must not go from where it was measured to `target`; "" when it may.

    An arm that is already inside the margin may move if d(q) does not shrink, or nobody could free
    it.

    Args:
        limits: `collision_arm` names the arm ("" = no check), `collision_margin_m`, `obstacles`.
        reading: measured joints and TCP. Only the *difference* of target and measured TCP is used,
            so a tool of another length does not spoil the prediction.
        target: TCP in base.
    """
    if not limits.collision_arm:
        return ""
    arm, q = arm_called(limits.collision_arm), reading.joints_rad
    if len(q) != len(arm.joints):
        return f"collision: {len(q)} joints, but {limits.collision_arm} has {len(arm.joints)}"
    start = frames(arm, q)
    goal = predict(arm, q, start, reading.measured, target)
    if goal is None:
        return UNKNOWN
    found = _on_the_way(arm, limits, q, start, goal)
    if found is None:
        return ""
    return f"collision: {found.one} and {found.other}, {1e3 * found.distance_m:.0f} mm"


def frames(arm: Arm, q: tuple[float, ...]) -> list[Frame]:
    """Base, the frame behind each joint at angles `q` (rad), and the hand, all in base."""
    found: list[Frame] = [(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0))]
    for fixed, angle in zip(arm.joints, q, strict=True):
        (x, y, z), place = _after(found[-1], fixed)
        c, s = math.cos(angle), math.sin(angle)
        turned = (
            (c * x[0] + s * y[0], c * x[1] + s * y[1], c * x[2] + s * y[2]),
            (c * y[0] - s * x[0], c * y[1] - s * x[1], c * y[2] - s * x[2]),
            z,
        )
        found.append((turned, place))
    found.append(_after(found[-1], arm.hand))
    return found


def tcp_at(arm: Arm, at: list[Frame]) -> Vec3:
    """Place of the TCP in base (m)."""
    return _point(at[-1], (0.0, 0.0, arm.tcp_m))


def jacobian(arm: Arm, at: list[Frame]) -> np.ndarray:
    """Geometric Jacobian of the TCP in base [6, J]: m/rad, then rad/rad."""
    px, py, pz = tcp_at(arm, at)
    columns = []
    for (_, _, (ax, ay, az)), (ox, oy, oz) in at[1:-1]:
        x, y, z = px - ox, py - oy, pz - oz
        columns.append((ay * z - az * y, az * x - ax * z, ax * y - ay * x, ax, ay, az))
    return np.array(columns).T


def predict(
    arm: Arm, q: tuple[float, ...], at: list[Frame], measured: Placement, target: Placement
) -> tuple[float, ...] | None:
    """Joint angles (rad) after the tool has moved by the way from `measured` to `target`.

    Fewer than six joints put the TCP there and turn the tool as far as they can (`robots.chain`).

    Returns:
        None when this does not converge, or asks one joint for more than `MOST_RAD`.
    """
    x0, y0, z0 = tcp_at(arm, at)
    (x1, y1, z1), (x2, y2, z2) = target.position, measured.position
    want = (x0 + x1 - x2, y0 + y1 - y2, z0 + z1 - z2)
    turn = _columns(_between(measured.quaternion, target.quaternion))
    zero: Vec3 = (0.0, 0.0, 0.0)
    facing = [_point((turn, zero), axis) for axis in at[-1][0]]
    new, few = np.array(q), len(q) < 6
    for _ in range(2 * ROUNDS if few else ROUNDS):
        here = tcp_at(arm, at)
        wx = wy = wz = 0.0  # half the sum of cross products: the rotation left, for small ones
        for (a, b, c), (d, e, f) in zip(at[-1][0], facing, strict=True):
            wx, wy, wz = wx + b * f - c * e, wy + c * d - a * f, wz + a * e - b * d
        left = (*(w - h for w, h in zip(want, here, strict=True)), wx / 2, wy / 2, wz / 2)
        if max(map(abs, left)) < TOLERANCE:
            return tuple(new.tolist())
        j = jacobian(arm, at)
        if few:
            step = prioritised(j, np.array(left))
            if max(map(abs, left[:3])) < TOLERANCE and np.abs(step).max() < SETTLED_RAD:
                return tuple(new.tolist())
        else:
            square = j @ j.T
            square.flat[::7] += DAMPING
            step = j.T @ np.linalg.solve(square, np.array(left))
        new = new + step
        if not np.abs(new - q).max() <= MOST_RAD:
            return None
        at = frames(arm, tuple(new.tolist()))
    return None


def capsules_at(arm: Arm, at: list[Frame]) -> list[Segment]:
    """The axis of every capsule in base (m)."""
    return [(_point(at[i], a), _point(at[i], b)) for i, a, b, _ in arm.capsules]


def nearest(arm: Arm, obstacles: tuple[Box, ...], axes: list[Segment]) -> Nearest:
    """The least distance of the arm to itself and to the boxes; negative or 0 = overlap."""
    best = Nearest(FAR_M, "", "")
    middles = [_middle(axis) for axis in axes]
    for number, box in enumerate(obstacles):
        for i in arm.free:
            link, _, _, radius_m = arm.capsules[i]
            middle, half_m = middles[i]
            reach_m = best.distance_m + radius_m
            if _point_box(middle, box) - half_m >= reach_m:
                continue
            distance_m = segment_box(axes[i], box)
            if distance_m < reach_m:
                other = "the table" if number == 0 else f"obstacle {number}"
                best = Nearest(distance_m - radius_m, arm.names[link], other)
    for i, k in arm.pairs:
        radii_m = arm.capsules[i][3] + arm.capsules[k][3]
        (p, p_half_m), (q, q_half_m) = middles[i], middles[k]
        reach_m = best.distance_m + radii_m
        if math.dist(p, q) - p_half_m - q_half_m >= reach_m:
            continue
        distance_m = segment_segment(axes[i], axes[k])
        if distance_m < reach_m:
            one, other = arm.names[arm.capsules[i][0]], arm.names[arm.capsules[k][0]]
            best = Nearest(distance_m - radii_m, one, other)
    return best


def segment_segment(one: Segment, other: Segment) -> float:
    """Distance of two segments (m): Ericson, Real-Time Collision Detection (2005), 5.1.9."""
    (p, p2), (q, q2) = one, other
    ux, uy, uz = p2[0] - p[0], p2[1] - p[1], p2[2] - p[2]
    vx, vy, vz = q2[0] - q[0], q2[1] - q[1], q2[2] - q[2]
    wx, wy, wz = p[0] - q[0], p[1] - q[1], p[2] - q[2]
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


def segment_box(axis: Segment, box: Box) -> float:
    """Distance of a segment and a box (m); 0 when they overlap.

    The squared distance to a box is convex along a segment, and its slope is made of straight
    pieces: the zero of the slope is enclosed by halving, then taken from the last straight piece.
    """
    p, q = _in_box(axis[0], box), _in_box(axis[1], box)
    d = (q[0] - p[0], q[1] - p[1], q[2] - p[2])
    half = (box[3], box[4], box[5])

    def slope(t: float) -> float:
        total = 0.0
        for x, v, h in zip(p, d, half, strict=True):
            y = x + t * v
            if y > h:
                total += (y - h) * v
            elif y < -h:
                total += (y + h) * v
        return total

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
    x, y, z = (max(abs(a + t * b) - h, 0.0) for a, b, h in zip(p, d, half, strict=True))
    return math.sqrt(x * x + y * y + z * z)


def _on_the_way(
    arm: Arm, limits: Limits, q: tuple[float, ...], start: list[Frame], goal: tuple[float, ...]
) -> Nearest | None:
    """What comes too near between two configurations; None when nothing does."""
    margin_m, obstacles = limits.collision_margin_m, limits.obstacles
    bulge_m = _bulge(arm, q, goal)

    def look(t: float) -> tuple[list[Segment], Nearest]:
        angles = tuple(a + t * (b - a) for a, b in zip(q, goal, strict=True))
        axes = capsules_at(arm, frames(arm, angles))
        return axes, nearest(arm, obstacles, axes)

    axes = capsules_at(arm, start)
    first = nearest(arm, obstacles, axes)
    end = look(1.0)
    if first.distance_m < margin_m:  # only the way out
        if end[1].distance_m < first.distance_m - STILL_M:
            return end[1]
        middle = (look(0.25)[1], look(0.5)[1], look(0.75)[1])
        return next((m for m in middle if m.distance_m < first.distance_m - DETOUR_M), None)
    pieces = [(0.0, (axes, first), 1.0, end)]
    while pieces:
        t0, one, t1, other = pieces.pop()
        nearer = min(one[1], other[1])
        if nearer.distance_m < margin_m:
            return nearer
        moved_m = 2 * (
            _chord(one[0], other[0]) + bulge_m * (t1 - t0) ** 2
        )  # of two links against each other
        if one[1].distance_m + other[1].distance_m - moved_m >= 2 * margin_m:
            continue
        if moved_m <= 2 * FINEST_M:
            return nearer
        t = (t0 + t1) / 2
        between = look(t)
        pieces += [(t0, one, t, between), (t, between, t1, other)]
    return None


def _bulge(arm: Arm, q: tuple[float, ...], goal: tuple[float, ...]) -> float:
    """How far a point of the arm strays from its chord at most (m).

    The second derivative of a point's place by two joints is no longer than its distance from the
    outer one of them, and a curve strays by an eighth of its second derivative.
    """
    total = before = 0.0
    for a, b, reach_m in zip(q, goal, arm.reaches_m, strict=True):
        turn = abs(b - a)
        total += reach_m * turn * (turn + 2 * before)
        before += turn
    return total / 8


def _chord(one: list[Segment], other: list[Segment]) -> float:
    """How far the end of a capsule's axis moves at most, straight (m)."""
    dist = math.dist
    return max(max(dist(a, c), dist(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def _unit(t: float) -> float:
    return 0.0 if t < 0.0 else min(t, 1.0)


def _middle(axis: Segment) -> tuple[Vec3, float]:
    """The middle of a segment and half its length (m)."""
    (a, b, c), (d, e, f) = axis
    return ((a + d) / 2, (b + e) / 2, (c + f) / 2), math.dist(*axis) / 2


def _in_box(p: Vec3, box: Box) -> Vec3:
    """`p` in the frame of the box."""
    x, y, z = p[0] - box[0], p[1] - box[1], p[2] - box[2]
    if box[6] == 0.0:
        return (x, y, z)
    c, s = math.cos(box[6]), math.sin(box[6])
    return (c * x + s * y, c * y - s * x, z)


def _point_box(p: Vec3, box: Box) -> float:
    x, y, z = _in_box(p, box)
    x, y, z = max(abs(x) - box[3], 0.0), max(abs(y) - box[4], 0.0), max(abs(z) - box[5], 0.0)
    return math.sqrt(x * x + y * y + z * z)


def _point(frame: Frame, p: Vec3) -> Vec3:
    """`p` of a frame in base."""
    (x, y, z), o = frame
    a, b, c = p
    return (
        o[0] + a * x[0] + b * y[0] + c * z[0],
        o[1] + a * x[1] + b * y[1] + c * z[1],
        o[2] + a * x[2] + b * y[2] + c * z[2],
    )


def _after(frame: Frame, fixed: Frame) -> Frame:
    """The frame that stands at `fixed` in `frame`."""
    (x, y, z), place = fixed
    turn: Frame = (frame[0], (0.0, 0.0, 0.0))
    return (_point(turn, x), _point(turn, y), _point(turn, z)), _point(frame, place)


def _three(array: np.ndarray) -> Vec3:
    x, y, z = array.tolist()
    return (x, y, z)


def _four(array: np.ndarray) -> Quat:
    x, y, z, w = array.tolist()
    return (x, y, z, w)


def _columns(q: Quat) -> Matrix:
    """Rotation matrix of a unit quaternion xyzw, by columns."""
    x, y, z, w = q
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)),
        (2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w)),
        (2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)),
    )


def _between(a: Quat, b: Quat) -> Quat:
    """The rotation that turns `a` into `b`: b times the inverse of a."""
    x, y, z, w = b
    i, j, k, r = -a[0], -a[1], -a[2], a[3]
    return (
        w * i + x * r + y * k - z * j,
        w * j - x * k + y * r + z * i,
        w * k + x * j - y * i + z * r,
        w * r - x * i - y * j - z * k,
    )
