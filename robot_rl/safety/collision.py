"""Will the arm touch itself or its surroundings on the way to a target? Pure functions.

The arm is capsules on its links, the surroundings are boxes in base, and d(q) is the least distance
between two of them that may not touch. A command says where the tool goes, not the joints: `check`
predicts the joints from the measured ones (`kinematics.predict`), and asks that d(q) keeps the
margin along the straight line between both in joint space.

Between two configurations d is bounded from below: a point moves by at most the chord between its
two places, plus what it bulges from the chord. So most couples of capsules, or of a capsule and a
box, are dismissed at once; for the rest the way is halved until the bound suffices, as in
continuous collision detection by conservative advancement (Mirtich 1996).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from robot_rl.errors import SafetyError
from robot_rl.safety.body import Body, Couple, Watched, body_called, watched
from robot_rl.safety.distance import Segment, point_box, segment_box, segment_segment
from robot_rl.safety.kinematics import Frame, frames, point, predict
from robot_rl.safety.limits import Limits, Vec3
from robot_rl.safety.readings import ArmReading, Joints, Placement

FINEST_M = 0.004  # a piece of the path on which nothing moves further is not halved again
STILL_M = 1e-5  # a way out of the margin may lose this much to rounding
DETOUR_M = 1e-3  # ... and this much on the way
UNKNOWN = "collision: the joints' way cannot be predicted here (singular pose)"


class Near(NamedTuple):
    """The distance of a couple (m); negative or 0 when they overlap."""

    distance_m: float
    couple: Couple

    def __str__(self) -> str:
        """Both by name, and how far apart they are."""
        one, other = self.couple.names
        return f"{one} and {other}, {1e3 * self.distance_m:.0f} mm"


def make_ready(limits: Limits) -> None:
    """Do what the first `check` of these limits would otherwise do, which takes some 0.1 s.

    Raises:
        ConfigError: `collision_arm` names no robot.
    """
    if limits.collision_arm:
        watched(limits)


def check_home(limits: Limits, home_rad: Joints) -> None:
    """Refuse a cell in which the arm at home is inside the margin: somewhere a number is wrong.

    Raises:
        SafetyError: names the two, and how far apart they are.
    """
    near = nearest(limits, home_rad) if limits.collision_arm else None
    if near is not None and near.distance_m < limits.collision_margin_m:
        raise SafetyError(
            "at its home pose the arm would be inside the collision margin",
            expected=f"{1e3 * limits.collision_margin_m:g} mm between any two",
            got=str(near),
            fix="correct safety.obstacles: centre_in_base_m is the middle of the box, size_m the "
            "lengths of its edges, both in metres, in the base frame of the robot",
        )


def check(limits: Limits, reading: ArmReading, target: Placement, joints_rad: Joints = ()) -> str:
    """Why the arm must not go from where it was measured to `target`; "" when it may.

    Two that are already inside the margin may move if they do not come nearer to each other, or
    nobody could free the arm.

    Args:
        limits: `collision_arm` names the arm ("" = no check), `collision_margin_m`, `obstacles`.
        reading: measured joints and TCP. Only the *difference* of target and measured TCP is used,
            so a tool of another length does not spoil the prediction.
        target: TCP in base.
        joints_rad: where the joints are commanded to go, if they are; then nothing is predicted.
    """
    if not limits.collision_arm:
        return ""
    body, q = body_called(limits.collision_arm), reading.joints_rad
    if len(q) != len(body.chain.joints):
        return (
            f"collision: {len(q)} joints, but {limits.collision_arm} has {len(body.chain.joints)}"
        )
    at = frames(body.chain, q)
    if joints_rad:
        goal = look_at(body, joints_rad)
    else:
        predicted = predict(body.chain, q, at, reading.measured, target)
        if predicted is None:
            return UNKNOWN
        goal = Look(body, *predicted)
    way = Way(body, watched(limits), Look(body, q, at), goal)
    found = way.too_near(limits.collision_margin_m)
    return f"collision: {found}" if found else ""


def nearest(limits: Limits, q: Joints) -> Near | None:
    """The two that are nearest at joint angles `q` (rad); None when there are no two."""
    body = body_called(limits.collision_arm)
    return nearest_of(body, (*body.pairs, *watched(limits).boxed), q)


def nearest_of(body: Body, couples: Iterable[Couple], q: Joints) -> Near | None:
    """Of some couples, the two that are nearest at joint angles `q` (rad); None without any."""
    look = look_at(body, q)
    return min((Near(look.distance_m(c), c) for c in couples), default=None)


def look_at(body: Body, q: Joints) -> Look:
    """The arm at joint angles `q` (rad)."""
    return Look(body, q, frames(body.chain, q))


class Look:
    """The arm at joint angles `q` (rad); where a capsule is is computed when it is asked for."""

    __slots__ = ("_at", "_axes", "_capsules", "q")

    def __init__(self, body: Body, q: Joints, at: list[Frame]) -> None:
        self.q, self._at, self._capsules = q, at, body.capsules
        self._axes: dict[int, Segment] = {}

    def axis(self, number: int) -> Segment:
        """The axis of a capsule in base (m)."""
        found = self._axes.get(number)
        if found is None:
            link, start, end, _ = self._capsules[number]
            frame = self._at[link]
            found = self._axes[number] = (point(frame, start), point(frame, end))
        return found

    def all_axes(self) -> list[Segment]:
        """The axis of every capsule."""
        found: list[Segment] = []
        for link, (a, b, c), (d, e, f), _ in self._capsules:
            x0, x1, x2, y0, y1, y2, z0, z1, z2, p0, p1, p2 = self._at[link]
            start = (  # `point`, unrolled: it would be called 60 times for each command
                p0 + a * x0 + b * y0 + c * z0,
                p1 + a * x1 + b * y1 + c * z1,
                p2 + a * x2 + b * y2 + c * z2,
            )
            end = (
                p0 + d * x0 + e * y0 + f * z0,
                p1 + d * x1 + e * y1 + f * z1,
                p2 + d * x2 + e * y2 + f * z2,
            )
            found.append((start, end))
        self._axes = dict(enumerate(found))
        return found

    def distance_m(self, couple: Couple) -> float:
        """Between the surfaces of two; at most 0 when they overlap."""
        one, other, box, radii_m, _, _ = couple
        if other < 0:
            return segment_box(self.axis(one), box) - radii_m
        return segment_segment(self.axis(one), self.axis(other)) - radii_m


class Way:
    """From one configuration to another on a straight line in joint space."""

    def __init__(self, body: Body, what: Watched, start: Look, goal: Look) -> None:
        self._body, self._what, self._start, self._goal = body, what, start, goal
        turns = [abs(b - a) for a, b in zip(start.q, goal.q, strict=True)]
        # A point strays from its chord by at most an eighth of its second derivative, and that by
        # two joints is no longer than the point's distance from the axis of the outer one.
        before, weights = 0.0, []
        for turn in turns:
            weights.append(turn * (turn + 2 * before) / 8)
            before += turn
        self._bulge_m: list[float] = (body.around_m @ weights).tolist()
        self._apart_m: list[float] = (what.apart_m @ turns).tolist()

    def too_near(self, margin_m: float) -> Near | None:
        """What comes nearer than the margin; None when nothing does."""
        open_ = []
        for couple, here_m in self._candidates(margin_m):
            if here_m >= margin_m:
                open_.append((couple, here_m))
            else:
                worse = self._nearer(couple, here_m)
                if worse is not None:
                    return worse
        pieces = [(self._start, self._goal, 1.0, open_)] if open_ else []
        while pieces:
            one, other, share, some = pieces.pop()
            left: list[tuple[Couple, float]] = []
            for couple, d0 in some:
                d1 = other.distance_m(couple)
                if d1 < margin_m:
                    return Near(d1, couple)
                moved_m = self._moved_m(couple, one, other, share)
                if d0 + d1 - moved_m >= 2 * margin_m:
                    continue
                if moved_m <= 2 * FINEST_M:
                    return Near(min(d0, d1), couple)
                left.append((couple, d0))
            if left:
                middle = self._between(one, other, 0.5)
                pieces.append((one, middle, share / 2, left))
                halves = [(couple, middle.distance_m(couple)) for couple, _ in left]
                pieces.append((middle, other, share / 2, halves))
        return None

    def _candidates(self, margin_m: float) -> list[tuple[Couple, float]]:
        """Those that could come nearer than the margin, with their distance at the start.

        Judged by the spheres that hold the capsules first, which is quick.
        """
        dist, outer_m = math.dist, self._body.outer_m
        axes = self._start.all_axes()
        middles: list[Vec3] = []
        moved_m: list[float] = []
        for (a, b), (c, d), bulge_m in zip(axes, self._goal.all_axes(), self._bulge_m, strict=True):
            middles.append(((a[0] + b[0]) / 2, (a[1] + b[1]) / 2, (a[2] + b[2]) / 2))
            first_m, second_m = dist(a, c), dist(b, d)
            moved_m.append((first_m if first_m > second_m else second_m) + bulge_m)
        found: list[tuple[Couple, float]] = []
        for couple, apart_m in zip(self._what.pairs, self._apart_m, strict=True):
            i, k, _, radii_m, _, _ = couple
            need_m = moved_m[i] + moved_m[k]
            need_m = (apart_m if apart_m < need_m else need_m) + margin_m
            if dist(middles[i], middles[k]) < outer_m[i] + outer_m[k] + need_m:
                here_m = segment_segment(axes[i], axes[k]) - radii_m
                if here_m < need_m:
                    found.append((couple, here_m))
        for couple in self._what.boxed:
            i, _, box, radius_m, _, _ = couple
            middle, need_m = middles[i], moved_m[i] + margin_m
            far_m = outer_m[i] + need_m
            if abs(middle[2] - box[2]) - box[5] >= far_m:
                continue  # most are far above the table
            away_m = abs(middle[0] - box[0]) + abs(middle[1] - box[1])  # at most 1.42 x straight
            if away_m < 1.5 * (far_m + box[3] + box[4]) and point_box(middle, box) < far_m:
                here_m = segment_box(axes[i], box) - radius_m
                if here_m < need_m:
                    found.append((couple, here_m))
        return found

    def _moved_m(self, couple: Couple, one: Look, other: Look, share: float) -> float:
        """How far the two move at most against each other on a piece of the way."""
        i, k = couple.one, couple.other
        moved_m = _chord_m(one.axis(i), other.axis(i)) + self._bulge_m[i] * share * share
        if k < 0:
            return moved_m
        moved_m += _chord_m(one.axis(k), other.axis(k)) + self._bulge_m[k] * share * share
        return min(moved_m, self._apart_m[couple.number] * share)

    def _nearer(self, couple: Couple, here_m: float) -> Near | None:
        """Of two inside the margin: where they come nearer to each other; None if nowhere."""
        for share, less_m in ((1.0, STILL_M), (0.25, DETOUR_M), (0.5, DETOUR_M), (0.75, DETOUR_M)):
            distance_m = self._between(self._start, self._goal, share).distance_m(couple)
            if distance_m < here_m - less_m:
                return Near(distance_m, couple)
        return None

    def _between(self, one: Look, other: Look, share: float) -> Look:
        q = tuple(a + share * (b - a) for a, b in zip(one.q, other.q, strict=True))
        return Look(self._body, q, frames(self._body.chain, q))


def _chord_m(one: Segment, other: Segment) -> float:
    """How far the end of a capsule's axis is from its other place."""
    return max(math.dist(one[0], other[0]), math.dist(one[1], other[1]))
