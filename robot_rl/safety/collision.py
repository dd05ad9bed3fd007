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
from itertools import pairwise
from operator import add
from typing import NamedTuple

from robot_rl.errors import SafetyError
from robot_rl.safety.body import Body, Couple, Watched, body_called, watched
from robot_rl.safety.distance import Segment, point_box, segment_box, segment_segment
from robot_rl.safety.kinematics import Frame, Predicted, frames, point, predict
from robot_rl.safety.limits import Limits
from robot_rl.safety.readings import ArmReading, Placement

Joints = tuple[float, ...]

COAST_S = 0.065  # an arm goes on for so long: our impedance control (45 ms), its filter (20 ms)
FINEST_M = 0.004  # a piece of the path on which nothing moves further is not halved again
STILL_M = 1e-5  # a way out of the margin may lose this much to rounding
DETOUR_M = 1e-3  # ... and this much on the way
TURN_RAD = 0.3  # largest turn of a joint, and ...
BENT_RAD = 0.02  # ... largest departure from a linear prediction in one piece of the way
PIECES = 4
SURE_RAD = 1.4  # all turns together, and ...
SURE_BENT_RAD = 0.2  # ... departure; beyond, or next to a singular pose, the arm may go elsewhere:
UNSURE_M = 0.03  # then it must keep this much more away from everything
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


def check(limits: Limits, reading: ArmReading, target: Placement) -> str:
    """Why the arm must not go from where it was measured to `target`; "" when it may.

    Two that are already inside the margin may move if they do not come nearer to each other, or
    nobody could free the arm.

    Args:
        limits: `collision_arm` names the arm ("" = no check), `collision_margin_m`, `obstacles`.
        reading: measured joints and TCP. Only the *difference* of target and measured TCP is used,
            so a tool of another length does not spoil the prediction.
        target: TCP in base.
    """
    if not limits.collision_arm:
        return ""
    body, q = body_called(limits.collision_arm), reading.joints_rad
    if len(q) != len(body.chain.joints):
        return (
            f"collision: {len(q)} joints, but {limits.collision_arm} has {len(body.chain.joints)}"
        )
    at = frames(body.chain, q)
    goal = predict(body.chain, q, at, reading.measured, target)
    if goal is None:
        return UNKNOWN
    looks, sure = _way(body, q, at, goal)
    margin_m = limits.collision_margin_m + (0.0 if sure else UNSURE_M)
    found = Way(body, watched(limits), looks, reading.speeds_rad_s).too_near(margin_m)
    return f"collision: {found}" if found else ""


def _way(body: Body, q: Joints, at: list[Frame], goal: Predicted) -> tuple[list[Look], bool]:
    """Configurations on the way, which is straight enough between them; and whether it is sure.

    The joints begin as the linear prediction says and end at the goal: a parabola.
    """
    bends = [b - a - t for a, b, t in zip(q, goal.joints_rad, goal.linear_rad, strict=True)]
    bent_rad = max(map(abs, bends))
    turns = [abs(b - a) for a, b in zip(q, goal.joints_rad, strict=True)]
    sure = not goal.singular and bent_rad <= SURE_BENT_RAD and sum(turns) <= SURE_RAD
    pieces = max(math.ceil(max(turns) / TURN_RAD), math.ceil(math.sqrt(bent_rad / BENT_RAD)))
    pieces = max(min(pieces, PIECES), 1)
    looks = [Look(body, q, at)]
    for piece in range(1, pieces):
        s = piece / pieces
        there = tuple(
            a + s * (t + s * bend) for a, t, bend in zip(q, goal.linear_rad, bends, strict=True)
        )
        looks.append(Look(body, there, frames(body.chain, there)))
    return [*looks, Look(body, goal.joints_rad, goal.at)], sure


def nearest(limits: Limits, q: Joints) -> Near | None:
    """The two that are nearest at joint angles `q` (rad); None when there are no two."""
    body = body_called(limits.collision_arm)
    what = watched(limits)
    return nearest_of(body, (*what.pairs, *what.boxed), q)


def nearest_of(body: Body, couples: Iterable[Couple], q: Joints) -> Near | None:
    """Of some couples, the two that are nearest at joint angles `q` (rad); None without any."""
    look = look_at(body, q)
    return min((Near(look.distance_m(c), c) for c in couples), default=None)


def look_at(body: Body, q: Joints) -> Look:
    """The arm at joint angles `q` (rad)."""
    return Look(body, q, frames(body.chain, q))


class Look:
    """The arm at joint angles `q` (rad); where a capsule is is computed when it is asked for."""

    __slots__ = ("_all", "_at", "_axes", "_capsules", "q")

    def __init__(self, body: Body, q: Joints, at: list[Frame]) -> None:
        self.q, self._at, self._capsules = q, at, body.capsules
        self._axes: dict[int, Segment] = {}
        self._all: list[Segment] = []

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
        if self._all:
            return self._all
        found = self._all
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


class Leg(NamedTuple):
    """A piece of a way, straight in joint space.

    bulge_m: how far a point of each capsule strays from its chord at most. apart_m: by how much the
    distance of each pair changes at most.
    """

    one: Look
    other: Look
    bulge_m: list[float]
    apart_m: list[float]


class Way:
    """From one configuration over others to the last one.

    speeds_rad_s: of the joints at the start. The arm must keep clear of what it would come near if
    it went on at this speed for `COAST_S`, too: no controller turns it at once.
    """

    def __init__(
        self, body: Body, what: Watched, looks: list[Look], speeds_rad_s: Joints = ()
    ) -> None:
        self._body, self._what, self._start = body, what, looks[0]
        self._coast_rad = [COAST_S * speed for speed in speeds_rad_s if any(speeds_rad_s)]
        self._legs = [self._leg(one, other) for one, other in pairwise(looks)]

    def too_near(self, margin_m: float) -> Near | None:
        """What comes nearer than the margin; None when nothing does."""
        found: list[tuple[Couple, float]] = []
        for couple, here_m in self._candidates(margin_m):
            if here_m >= margin_m:
                found.append((couple, here_m))
            else:
                worse = self._nearer(couple, here_m)
                if worse is not None:
                    return worse
        near = self._coasting(found, margin_m) if found and self._coast_rad else None
        for number, leg in enumerate(self._legs):
            if near is not None or not found:
                break
            if number > 0:
                found = [(couple, leg.one.distance_m(couple)) for couple, _ in found]
            near = self._on_leg(leg, found, margin_m)
        return near

    def _leg(self, one: Look, other: Look) -> Leg:
        turns = [abs(b - a) for a, b in zip(one.q, other.q, strict=True)]
        # A point strays from its chord by at most an eighth of its second derivative, and that by
        # two joints is no longer than the point's distance from the axis of the outer one.
        before, weights = 0.0, []
        for turn in turns:
            weights.append(turn * (turn + 2 * before) / 8)
            before += turn
        bulge_m = self._body.around_m @ weights
        return Leg(one, other, bulge_m.tolist(), (self._what.apart_m @ turns).tolist())

    def _candidates(self, margin_m: float) -> list[tuple[Couple, float]]:
        """Those that could come nearer than the margin, with their distance at the start.

        Judged by the spheres that hold the capsules first, which is quick.
        """
        dist, outer_m = math.dist, self._body.outer_m
        axes, moved_m, apart_m = self._start.all_axes(), *self._moved()
        middles = [((a + d) / 2, (b + e) / 2, (c + f) / 2) for (a, b, c), (d, e, f) in axes]
        found: list[tuple[Couple, float]] = []
        for couple, least_m in zip(self._what.pairs, apart_m, strict=True):
            i, k, _, radii_m, _, _ = couple
            need_m = moved_m[i] + moved_m[k]
            need_m = (least_m if least_m < need_m else need_m) + margin_m
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
                here_m = segment_box(axes[i], box, need_m + radius_m) - radius_m
                if here_m < need_m:
                    found.append((couple, here_m))
        return found

    def _moved(self) -> tuple[list[float], list[float]]:
        """How far each capsule, and the two of each pair against each other, move at most."""
        moved_m: list[float] = []
        apart_m: list[float] = []
        for one, other, bulge_m, leg_apart_m in self._legs:
            ways = zip(one.all_axes(), other.all_axes(), bulge_m, strict=True)
            leg_m = [_chord_m(a, b) + stray_m for a, b, stray_m in ways]
            moved_m = list(map(add, moved_m, leg_m)) if moved_m else leg_m
            apart_m = list(map(add, apart_m, leg_apart_m)) if apart_m else leg_apart_m
        if self._coast_rad:
            turns = [abs(turn) for turn in self._coast_rad]
            moved_m = list(map(max, moved_m, (self._body.around_m @ turns).tolist()))
            apart_m = list(map(max, apart_m, (self._what.apart_m @ turns).tolist()))
        return moved_m, apart_m

    def _coasting(self, found: list[tuple[Couple, float]], margin_m: float) -> Near | None:
        """Of those, what comes nearer than the margin if the arm goes on as it moves now."""
        q = tuple(a + b for a, b in zip(self._start.q, self._coast_rad, strict=True))
        ahead = Look(self._body, q, frames(self._body.chain, q))
        near = min(Near(ahead.distance_m(couple), couple) for couple, _ in found)
        return near if near.distance_m < margin_m else None

    def _on_leg(self, leg: Leg, found: list[tuple[Couple, float]], margin_m: float) -> Near | None:
        """Of those, which have a distance at the start of the leg, what comes nearer on it."""
        pieces = [(leg.one, leg.other, 1.0, found)]
        while pieces:
            one, other, share, some = pieces.pop()
            left: list[tuple[Couple, float]] = []
            for couple, d0 in some:
                d1 = other.distance_m(couple)
                if d1 < margin_m:
                    return Near(d1, couple)
                moved_m = _moved_m(leg, couple, one, other, share)
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

    def _nearer(self, couple: Couple, here_m: float) -> Near | None:
        """Of two inside the margin: where they come nearer to each other; None if nowhere."""
        for leg in self._legs:
            for share in (1.0, 0.25, 0.5, 0.75):
                distance_m = self._between(leg.one, leg.other, share).distance_m(couple)
                if distance_m < here_m - (STILL_M if share == 1.0 else DETOUR_M):
                    return Near(distance_m, couple)
        return None

    def _between(self, one: Look, other: Look, share: float) -> Look:
        q = tuple(a + share * (b - a) for a, b in zip(one.q, other.q, strict=True))
        return Look(self._body, q, frames(self._body.chain, q))


def _moved_m(leg: Leg, couple: Couple, one: Look, other: Look, share: float) -> float:
    """How far two move at most against each other on a piece of a leg."""
    i, k = couple.one, couple.other
    moved_m = _chord_m(one.axis(i), other.axis(i)) + leg.bulge_m[i] * share * share
    if k < 0:
        return moved_m
    moved_m += _chord_m(one.axis(k), other.axis(k)) + leg.bulge_m[k] * share * share
    return min(moved_m, leg.apart_m[couple.number] * share)


def _chord_m(one: Segment, other: Segment) -> float:
    """How far the end of a capsule's axis is from its other place."""
    first_m, second_m = math.dist(one[0], other[0]), math.dist(one[1], other[1])
    return first_m if first_m > second_m else second_m
