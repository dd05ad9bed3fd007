"""Joint targets: every rule of a TCP target, and the joints' own. Pure functions, plain floats.

A joint target leads the TCP somewhere, and what is allowed there is what is allowed of a TCP
target: box, step, speed, acceleration. The joints' ranges and speed come first. Nothing has to be
predicted.

A target outside the box is brought to its edge, as one of the TCP is: the TCP goes to the nearest
pose inside, and the joints turn as little as possible to put it there. So an arm slides along an
edge, and does not stick to it.

What goes too far otherwise is shortened as a whole, towards where the arm is: all joints by the
same share, so the direction is kept. A single joint that was cut off would send the TCP somewhere
that nobody asked for. Only where standing still breaks a rule itself (a fast arm cannot stop within
one period) the target lies on the line to where the arm was sent before, or to where it would
coast. The share is found by halving; what is sent was itself found to keep every rule.

Who is outside a range or the box already may come back, or go along, but no further out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from robot_rl.safety.body import body_called
from robot_rl.safety.clip import (
    SLACK,
    Clip,
    Conflict,
    Motion,
    facing,
    into_box,
    tilt_rad,
    upright,
    yaw_rad,
)
from robot_rl.safety.kinematics import Chain, Frame, frames, least_turns, tcp_at
from robot_rl.safety.limits import Limits
from robot_rl.safety.readings import Joints, Placement, Quat

ROUNDS = 3  # of the way to the edge of the box
EDGE_M = 1e-4  # so far inside
HALVINGS = 10  # a clipped target is within a thousandth of the way of the furthest allowed one


class JointMotion(NamedTuple):
    """What a new joint target is compared with, beside the TCP's `Motion`.

    measured_rad; last_rad: joints sent before; velocity_rad_s: of the joints sent.
    """

    measured_rad: Joints
    last_rad: Joints
    velocity_rad_s: Joints


def chain_of_joints(limits: Limits) -> Chain:
    """Kinematics of the arm whose joints are commanded. Raises `ConfigError` for an unknown one."""
    return body_called(limits.joint_arm).chain


def wrong_target(limits: Limits, joints_rad: Joints) -> str:
    """Why this kind of target is not what the run's actions ask for; "" when it is.

    joints_rad: of the target; () = it is the TCP's.
    """
    if not limits.joint_arm:
        wrong = "target: one of the joints, but the actions of this run move the TCP"
        return wrong if joints_rad else ""
    if not joints_rad:
        return "target: one of the TCP, but the actions of this run move the joints"
    count = len(chain_of_joints(limits).joints)
    if len(joints_rad) != count:
        return f"target: {len(joints_rad)} joints, but {limits.joint_arm} has {count}"
    return ""


def clip_joints(limits: Limits, want: Joints, joints: JointMotion, tcp: Motion) -> Clip | Conflict:
    """The joint target nearest to `want` [J] (rad) that keeps every rule; see the module."""
    rules = _Rules(limits, joints, tcp)
    checks: list[str] = []
    kept = rules.shortened(want, checks, but="box")
    if kept is not None and rules.broken(kept):
        checks.append("box")
        kept = rules.shortened(rules.into_box(kept), checks)
    if kept is None:
        return Conflict(checks[-1])
    return Clip(rules.place(kept), tuple(dict.fromkeys(checks)), kept)


class _Rules:
    """The rules of one moment."""

    def __init__(self, limits: Limits, joints: JointMotion, tcp: Motion) -> None:
        self._limits, self._joints, self._tcp = limits, joints, tcp
        here = joints.measured_rad
        moved = zip(joints.last_rad, joints.velocity_rad_s, strict=True)
        self._coast_rad = tuple(q + v * tcp.dt_s for q, v in moved)
        margin = limits.joint_margin_rad
        self._low = [min(a + margin, q) for a, q in zip(limits.joint_min_rad, here, strict=True)]
        self._high = [max(b - margin, q) for b, q in zip(limits.joint_max_rad, here, strict=True)]
        self._chain = chain_of_joints(limits)
        self._at = frames(self._chain, here)
        (x, y, z), turn = tcp.measured
        (a, b, c), (d, e, f) = limits.workspace_min_m, limits.workspace_max_m
        self._box = (min(a, x), min(b, y), min(c, z)), (max(d, x), max(e, y), max(f, z))
        self._tilt = max(limits.max_tilt_rad, tilt_rad(turn))
        self._yaw = max(limits.max_yaw_rad, abs(yaw_rad(turn)))

    def into_box(self, q: Joints) -> Joints:
        """The joints near `q`, outside the box, that put the TCP on its edge.

        With the least turns of the joints, as in the prediction for a TCP target.
        """
        (a, b, c), (d, e, f) = self._box
        low, high = (a + EDGE_M, b + EDGE_M, c + EDGE_M), (d - EDGE_M, e - EDGE_M, f - EDGE_M)
        for _ in range(ROUNDS):
            at = frames(self._chain, q)
            place, turn = _carried(self._chain, self._tcp.measured, self._at, at)
            goal = into_box(place, low, high)
            faced = facing(upright(turn, self._tilt), self._yaw)
            if goal is place and faced is turn:
                break
            x, y, z, w = _times(faced, _back(turn))
            twice = math.copysign(2.0, w)  # of a small turn
            left = (*(g - p for g, p in zip(goal, place, strict=True)), twice * x, twice * y,
                    twice * z)  # fmt: skip
            turns = least_turns(self._chain, at, left)
            q = tuple(a + b for a, b in zip(q, turns, strict=True))
        return q

    def shortened(self, want: Joints, checks: list[str], but: str = "") -> Joints | None:
        """`want`, or as much of it as keeps every rule `but` one; None when nothing does.

        checks: the names of the rules that `want` and what was tried break are added.
        """
        first = self.broken(want, but)
        if not first:
            return want
        checks.append(first)
        for anchor in (self._joints.measured_rad, self._joints.last_rad, self._coast_rad):
            if self.broken(anchor, but):
                continue
            best, kept, share = anchor, 0.0, 1.0
            for _ in range(HALVINGS):
                share /= 2
                tried = _between(anchor, want, kept + share)
                if broken := self.broken(tried, but):
                    checks.append(broken)
                else:
                    best, kept = tried, kept + share
            return best
        return None

    def place(self, q: Joints) -> Placement:
        """Where `q` puts the TCP."""
        return _carried(self._chain, self._tcp.measured, self._at, frames(self._chain, q))

    def broken(self, q: Joints, but: str = "") -> str:
        """The first rule that `q` breaks, of all `but` one; "" = none."""
        return self._of_joints(q) or self._of_tcp(self.place(q), but)

    def _of_joints(self, q: Joints) -> str:
        """The first rule of the joints themselves that `q` breaks."""
        turn_rad = self._limits.max_joint_speed_rad_s * self._tcp.dt_s * SLACK
        in_range = all(
            low <= x <= high for low, x, high in zip(self._low, q, self._high, strict=True)
        )
        slow = all(abs(x - y) <= turn_rad for x, y in zip(q, self._joints.last_rad, strict=True))
        return "" if in_range and slow else "speed" if in_range else "joint"

    def _of_tcp(self, place: Placement, but: str) -> str:
        """The first rule of the TCP that a place in base breaks."""
        p, turn = place
        limits, dt_s = self._limits, self._tcp.dt_s
        measured, last, v, _ = self._tcp
        x, y, z = last.position
        coast = (x + v[0] * dt_s, y + v[1] * dt_s, z + v[2] * dt_s)
        inside = into_box(p, *self._box) is p
        rows = (  # check, how far, how far at most
            ("box", 0.0 if inside else 1.0, 0.0),
            ("box", tilt_rad(turn), self._tilt),
            ("box", abs(yaw_rad(turn)), self._yaw),
            ("step", math.dist(p, measured.position), limits.max_step_m),
            ("step", _angle(turn, measured.quaternion), limits.max_step_rad),
            ("speed", math.dist(p, last.position), limits.max_speed_m_s * dt_s),
            ("speed", _angle(turn, last.quaternion), limits.max_rotation_speed_rad_s * dt_s),
            ("acceleration", math.dist(p, coast), limits.max_acceleration_m_s2 * dt_s * dt_s),
        )
        broken = (check for check, is_, most in rows if not is_ <= most * SLACK and check != but)
        return next(broken, "")


def _between(start: Joints, end: Joints, share: float) -> Joints:
    return tuple(a + share * (b - a) for a, b in zip(start, end, strict=True))


def _carried(chain: Chain, measured: Placement, here: list[Frame], there: list[Frame]) -> Placement:
    """The measured TCP after the motion between two configurations.

    Only the *difference* of the two counts, as in `collision.check`: a tool that is longer than the
    robot's file says does no harm, and who asks for no motion gets none.
    """
    a, b, place = tcp_at(chain, here), tcp_at(chain, there), measured.position
    x, y, z, w = _times(_quat(there[-1]), _times(_back(_quat(here[-1])), measured.quaternion))
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    return Placement(
        (place[0] + b[0] - a[0], place[1] + b[1] - a[1], place[2] + b[2] - a[2]),
        (x / norm, y / norm, z / norm, w / norm),
    )


def _quat(frame: Frame) -> Quat:
    """Quaternion of a frame's axes (Shepperd 1978): the largest component divides the others."""
    a0, a1, a2, b0, b1, b2, c0, c1, c2 = frame[:9]
    trace = a0 + b1 + c2
    most = max(a0, b1, c2, trace)
    if most == trace:
        q = (b2 - c1, c0 - a2, a1 - b0, 1.0 + trace)
    elif most == a0:
        q = (1.0 + a0 - b1 - c2, a1 + b0, a2 + c0, b2 - c1)
    elif most == b1:
        q = (a1 + b0, 1.0 + b1 - a0 - c2, b2 + c1, c0 - a2)
    else:
        q = (a2 + c0, b2 + c1, 1.0 + c2 - a0 - b1, a1 - b0)
    x, y, z, w = q
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    return (x / norm, y / norm, z / norm, w / norm)


def _back(q: Quat) -> Quat:
    return (-q[0], -q[1], -q[2], q[3])


def _times(a: Quat, b: Quat) -> Quat:
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def _angle(a: Quat, b: Quat) -> float:
    dot = abs(a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3])
    return 2.0 * math.acos(min(1.0, dot))
