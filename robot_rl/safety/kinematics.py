"""Where the links of an arm are, and where its joints go when the tool moves. Pure functions.

Plain floats and unrolled products, as in `readings`: for single small matrices numpy would mostly
be call overhead.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from robot_rl.robots import Robot
from robot_rl.robots.chain import Chain as ArrayChain
from robot_rl.robots.chain import prioritised
from robot_rl.safety.limits import Vec3
from robot_rl.safety.readings import Placement, Quat

Frame = tuple[float, ...]
"""Twelve numbers: the axes x, y, z of a frame in base, then its origin (m)."""

TOLERANCE = 1e-3  # m and rad: a prediction this close has converged
ROUNDS = 4  # of the last correction; in a healthy pose none is needed
BENT_RAD = 0.1  # a leg on which a joint departs further from a straight line is cut ...
LEGS = 4  # ... into this many, and where that does not suffice the way is not known
DAMPING = 1e-6  # of the normal equations
SETTLED_RAD = 1e-3  # fewer than six joints do not come nearer in turn when they move less
MOST_RAD = 0.8  # turn of one joint in one step; beyond, the arm stands next to a singular pose
BASE: Frame = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


class Chain(NamedTuple):
    """The kinematics of a robot, prepared once.

    joints: each joint's frame at angle 0 in the frame behind the joint before it. hand: in the
    frame behind the last joint; tcp_m: along the hand's z.
    """

    joints: tuple[Frame, ...]
    hand: Frame
    tcp_m: float


def chain_of(robot: Robot) -> Chain:
    """Prepare the kinematics of `robot`: those of `robots.chain`, as plain floats."""
    arm, tcp_m = ArrayChain(robot), robot.gripper.tcp_m
    *axes, tcp = np.split(np.array(_frame(arm.tool)), 4)
    hand = (*axes, tcp - tcp_m * axes[2])
    joints = tuple(map(_frame, arm.places))
    return Chain(joints, tuple(np.concatenate(hand).tolist()), tcp_m)


def _frame(matrix: np.ndarray) -> Frame:
    return tuple(matrix[:3].T.ravel().tolist())


def frames(chain: Chain, q: tuple[float, ...]) -> list[Frame]:
    """Base, the frame behind each joint at angles `q` (rad), and the hand: number of joints + 2."""
    found = [BASE]
    e0, e1, e2, f0, f1, f2, z0, z1, z2, p0, p1, p2 = chain.joints[0]
    for angle, fixed in zip(q, (*chain.joints[1:], chain.hand), strict=True):
        c, s = math.cos(angle), math.sin(angle)
        x0, x1, x2 = c * e0 + s * f0, c * e1 + s * f1, c * e2 + s * f2
        y0, y1, y2 = c * f0 - s * e0, c * f1 - s * e1, c * f2 - s * e2
        found.append((x0, x1, x2, y0, y1, y2, z0, z1, z2, p0, p1, p2))
        # the next frame, before its own joint turns it
        a0, a1, a2, b0, b1, b2, c0, c1, c2, d0, d1, d2 = fixed
        p0 += d0 * x0 + d1 * y0 + d2 * z0
        p1 += d0 * x1 + d1 * y1 + d2 * z1
        p2 += d0 * x2 + d1 * y2 + d2 * z2
        if a0 == 1.0:  # turned about x only, as nearly every joint is
            e0, e1, e2 = x0, x1, x2
            f0, f1, f2 = b1 * y0 + b2 * z0, b1 * y1 + b2 * z1, b1 * y2 + b2 * z2
            z0, z1, z2 = c1 * y0 + c2 * z0, c1 * y1 + c2 * z1, c1 * y2 + c2 * z2
        else:
            e0, f0, z0 = (
                a0 * x0 + a1 * y0 + a2 * z0,
                b0 * x0 + b1 * y0 + b2 * z0,
                c0 * x0 + c1 * y0 + c2 * z0,
            )
            e1, f1, z1 = (
                a0 * x1 + a1 * y1 + a2 * z1,
                b0 * x1 + b1 * y1 + b2 * z1,
                c0 * x1 + c1 * y1 + c2 * z1,
            )
            e2, f2, z2 = (
                a0 * x2 + a1 * y2 + a2 * z2,
                b0 * x2 + b1 * y2 + b2 * z2,
                c0 * x2 + c1 * y2 + c2 * z2,
            )
    found.append((e0, e1, e2, f0, f1, f2, z0, z1, z2, p0, p1, p2))
    return found


def tcp_at(chain: Chain, at: list[Frame]) -> Vec3:
    """Place of the TCP in base (m)."""
    _, _, _, _, _, _, z0, z1, z2, p0, p1, p2 = at[-1]
    m = chain.tcp_m
    return (p0 + m * z0, p1 + m * z1, p2 + m * z2)


def jacobian(chain: Chain, at: list[Frame]) -> np.ndarray:
    """Geometric Jacobian of the TCP in base [6, J]: m/rad, then rad/rad."""
    return np.array(_columns(chain, at)).T


def _columns(chain: Chain, at: list[Frame]) -> list[tuple[float, ...]]:
    """Of the Jacobian: by how much the tool moves and turns per radian of each joint."""
    px, py, pz = tcp_at(chain, at)
    columns: list[tuple[float, ...]] = []
    for _, _, _, _, _, _, ax, ay, az, ox, oy, oz in at[1:-1]:
        x, y, z = px - ox, py - oy, pz - oz
        columns.append((ay * z - az * y, az * x - ax * z, ax * y - ay * x, ax, ay, az))
    return columns


class Leg(NamedTuple):
    """A piece of the joints' way, on a parabola.

    joints_rad, at: angles at its end, and the frames there. bend_rad: by how much each joint turns
    further than it would if all went on as at the start of the leg.
    """

    joints_rad: tuple[float, ...]
    at: list[Frame]
    bend_rad: list[float]


def predict(
    chain: Chain, q: tuple[float, ...], at: list[Frame], measured: Placement, target: Placement
) -> list[Leg]:
    """The way of the joints while the tool moves straight from `measured` to `target`.

    Resolved rates (Whitney 1969) with damped least squares (Wampler 1986): of all motions of a
    redundant arm the one that turns the joints least at every moment, as a Cartesian controller
    moves it. They are integrated by the midpoint method in one leg, or in `LEGS` where that one
    bends; then the end is corrected. An arm with fewer than six joints brings the TCP to its place
    and turns the tool as far as the joints can.

    Args:
        at: `frames` at the measured joints `q` (rad).

    Returns:
        One leg or `LEGS`. Empty where the joints' way is not known, which is next to a singular
        pose: it bends too much, or does not converge, or asks one joint for more than `MOST_RAD`.
    """
    x0, y0, z0 = tcp_at(chain, at)
    (x1, y1, z1), (x2, y2, z2) = target.position, measured.position
    way_x, way_y, way_z = x1 - x2, y1 - y2, z1 - z2
    x, y, z, w = turn = _between(measured.quaternion, target.quaternion)
    sine = 2 * abs(w) * math.sqrt(x * x + y * y + z * z)  # of the whole angle
    share = 2 * w * (math.asin(min(sine, 1.0)) / sine if sine > 0.0 else 1.0)
    twist = (way_x, way_y, way_z, share * x, share * y, share * z)
    spin, hand = axes(turn), at[-1]
    goal: Frame = (
        *turned(spin, hand[:3]),
        *turned(spin, hand[3:6]),
        *turned(spin, hand[6:9]),
        *(x0 + way_x, y0 + way_y, z0 + way_z),
    )
    legs = [_leg(chain, q, at, twist)]
    if not max(map(abs, legs[0].bend_rad)) <= BENT_RAD:
        piece, legs = tuple(part / LEGS for part in twist), []
        end = Leg(q, at, [])
        for _ in range(LEGS):
            end = _leg(chain, end.joints_rad, end.at, piece)
            if not max(map(abs, end.bend_rad)) <= BENT_RAD:
                return []
            legs.append(end)
    end = _corrected(chain, legs[-1], goal)
    if end is None:
        return []
    turns = [abs(b - a) for a, b in zip(q, end.joints_rad, strict=True)]
    return [*legs[:-1], end] if max(turns) <= MOST_RAD else []


def _leg(chain: Chain, q: tuple[float, ...], at: list[Frame], twist: tuple[float, ...]) -> Leg:
    """The midpoint method: the Jacobian in the middle of the way gives the whole turn."""
    straight = least_turns(chain, at, twist)
    middle = tuple([a + b / 2 for a, b in zip(q, straight, strict=True)])
    turns = least_turns(chain, frames(chain, middle), twist)
    end = tuple([a + b for a, b in zip(q, turns, strict=True)])
    return Leg(end, frames(chain, end), [a - b for a, b in zip(turns, straight, strict=True)])


def _corrected(chain: Chain, leg: Leg, goal: Frame) -> Leg | None:
    """The leg with its end at the goal; None when this does not converge."""
    few, settled = len(leg.joints_rad) < 6, False
    for _ in range(ROUNDS):
        left = _left(chain, leg.at, goal)
        if max(left) < TOLERANCE and min(left) > -TOLERANCE:
            return leg
        if settled and max(map(abs, left[:3])) < TOLERANCE:
            return leg
        turns = least_turns(chain, leg.at, left)
        settled = few and max(map(abs, turns)) < SETTLED_RAD
        q = tuple([a + b for a, b in zip(leg.joints_rad, turns, strict=True)])
        leg = Leg(q, frames(chain, q), leg.bend_rad)
    return None


def _left(chain: Chain, at: list[Frame], goal: Frame) -> tuple[float, ...]:
    """Way (m) and turn (rad) [6] in base from where the TCP is to `goal`.

    The turn is half the sum of the axes' cross products: about its axis, as long as its sine.
    """
    hx, hy, hz = tcp_at(chain, at)
    d0, d1, d2, e0, e1, e2, f0, f1, f2 = at[-1][:9]
    a0, a1, a2, b0, b1, b2, c0, c1, c2, x, y, z = goal
    return (
        x - hx,
        y - hy,
        z - hz,
        (d1 * a2 - d2 * a1 + e1 * b2 - e2 * b1 + f1 * c2 - f2 * c1) / 2,
        (d2 * a0 - d0 * a2 + e2 * b0 - e0 * b2 + f2 * c0 - f0 * c2) / 2,
        (d0 * a1 - d1 * a0 + e0 * b1 - e1 * b0 + f0 * c1 - f1 * c0) / 2,
    )


def least_turns(chain: Chain, at: list[Frame], twist: tuple[float, ...]) -> list[float]:
    """The least turns of the joints (rad) that move the tool by a small `twist` [6].

    With damped least squares: J' (J J' + damping)^-1 twist.
    """
    columns = _columns(chain, at)
    if len(columns) < 6:
        return prioritised(np.array(columns).T, np.array(twist)).tolist()
    a, b, c, d, e, f = _solved(columns, twist)
    return [a * u + b * v + c * w + d * x + e * y + f * z for u, v, w, x, y, z in columns]


def _solved(  # noqa: PLR0915 - unrolled: six times six numbers are too few for numpy
    columns: list[tuple[float, ...]], twist: tuple[float, ...]
) -> tuple[float, ...]:
    """Solve (J J' + damping) f = twist [6] for J with these columns.

    J J' + damping = M is positive definite, so M = L D L' without exchange of rows (Cholesky). m20
    is row 2, column 0 of M and, once the columns before are eliminated, of L D; l20 is that of L.
    """
    m00 = m11 = m22 = m33 = m44 = m55 = DAMPING
    m10 = m20 = m30 = m40 = m50 = m21 = m31 = m41 = m51 = 0.0
    m32 = m42 = m52 = m43 = m53 = m54 = 0.0
    for a, b, c, d, e, f in columns:
        m00 += a * a
        m10 += b * a
        m20 += c * a
        m30 += d * a
        m40 += e * a
        m50 += f * a
        m11 += b * b
        m21 += c * b
        m31 += d * b
        m41 += e * b
        m51 += f * b
        m22 += c * c
        m32 += d * c
        m42 += e * c
        m52 += f * c
        m33 += d * d
        m43 += e * d
        m53 += f * d
        m44 += e * e
        m54 += f * e
        m55 += f * f
    l10, l20, l30, l40, l50 = m10 / m00, m20 / m00, m30 / m00, m40 / m00, m50 / m00
    m11 -= l10 * m10
    m21 -= l20 * m10
    m31 -= l30 * m10
    m41 -= l40 * m10
    m51 -= l50 * m10
    m22 -= l20 * m20
    m32 -= l30 * m20
    m42 -= l40 * m20
    m52 -= l50 * m20
    m33 -= l30 * m30
    m43 -= l40 * m30
    m53 -= l50 * m30
    m44 -= l40 * m40
    m54 -= l50 * m40
    m55 -= l50 * m50
    l21, l31, l41, l51 = m21 / m11, m31 / m11, m41 / m11, m51 / m11
    m22 -= l21 * m21
    m32 -= l31 * m21
    m42 -= l41 * m21
    m52 -= l51 * m21
    m33 -= l31 * m31
    m43 -= l41 * m31
    m53 -= l51 * m31
    m44 -= l41 * m41
    m54 -= l51 * m41
    m55 -= l51 * m51
    l32, l42, l52 = m32 / m22, m42 / m22, m52 / m22
    m33 -= l32 * m32
    m43 -= l42 * m32
    m53 -= l52 * m32
    m44 -= l42 * m42
    m54 -= l52 * m42
    m55 -= l52 * m52
    l43, l53 = m43 / m33, m53 / m33
    m44 -= l43 * m43
    m54 -= l53 * m43
    m55 -= l53 * m53
    l54 = m54 / m44
    m55 -= l54 * m54
    f0, f1, f2, f3, f4, f5 = twist
    f1 -= l10 * f0
    f2 -= l20 * f0 + l21 * f1
    f3 -= l30 * f0 + l31 * f1 + l32 * f2
    f4 -= l40 * f0 + l41 * f1 + l42 * f2 + l43 * f3
    f5 -= l50 * f0 + l51 * f1 + l52 * f2 + l53 * f3 + l54 * f4
    f5 /= m55
    f4 = f4 / m44 - l54 * f5
    f3 = f3 / m33 - l43 * f4 - l53 * f5
    f2 = f2 / m22 - l32 * f3 - l42 * f4 - l52 * f5
    f1 = f1 / m11 - l21 * f2 - l31 * f3 - l41 * f4 - l51 * f5
    f0 = f0 / m00 - l10 * f1 - l20 * f2 - l30 * f3 - l40 * f4 - l50 * f5
    return f0, f1, f2, f3, f4, f5


def turned(frame: Frame, v: tuple[float, ...]) -> Vec3:
    """A direction of a frame, in base."""
    a, b, c = v
    return (
        a * frame[0] + b * frame[3] + c * frame[6],
        a * frame[1] + b * frame[4] + c * frame[7],
        a * frame[2] + b * frame[5] + c * frame[8],
    )


def point(frame: Frame, p: tuple[float, ...]) -> Vec3:
    """A point of a frame, in base (m)."""
    x0, x1, x2, y0, y1, y2, z0, z1, z2, p0, p1, p2 = frame
    a, b, c = p
    return (
        p0 + a * x0 + b * y0 + c * z0,
        p1 + a * x1 + b * y1 + c * z1,
        p2 + a * x2 + b * y2 + c * z2,
    )


def axes(q: Quat) -> tuple[float, ...]:
    """The axes x, y, z [9] that a unit quaternion xyzw turns to."""
    x, y, z, w = q
    return (
        *(1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)),
        *(2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w)),
        *(2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)),
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
