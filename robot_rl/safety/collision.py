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
from collections.abc import Iterable, Sequence
from operator import mul
from typing import NamedTuple

from robot_rl.errors import SafetyError
from robot_rl.safety.body import Body, Couple, Watched, body_called, boxed_with, watched
from robot_rl.safety.distance import Segment, segment_box, segment_segment
from robot_rl.safety.kinematics import Frame, Leg, frames, predict
from robot_rl.safety.limits import Limits, Vec3
from robot_rl.safety.readings import ArmReading, Joints, Placement

COAST_S = 0.1  # so long the arm goes on at its speed: see docs/hazards/collision.md, "Evidence"
REACHED = 0.5  # ... while it goes this share of the way to the target
UNSURE_M = 0.01  # more margin where the way had to be cut into legs
SLOW_RAD = 2e-3  # what does not carry a joint this far is left out
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
    if joints_rad:  # a straight line in joint space: nothing has to be predicted
        legs = [Leg(joints_rad, frames(body.chain, joints_rad), [0.0] * len(q))]
    else:
        legs = predict(body.chain, q, at, reading.measured, target)
    if not legs:
        return UNKNOWN
    what, margin_m = watched(limits), limits.collision_margin_m
    if len(legs) > 1:
        margin_m += UNSURE_M
    start, coast_rad = Look(body, q, at), [COAST_S * speed for speed in reading.speeds_rad_s]
    if max(map(abs, coast_rad), default=0.0) <= SLOW_RAD:
        coast_rad = []
    for leg in legs:
        way = Way(body, what, start, leg, coast_rad)
        found = way.too_near(margin_m)
        if found:
            return f"collision: {found}"
        start, coast_rad = way.goal, []
    return ""


def nearest(limits: Limits, q: Joints) -> Near | None:
    """The two that are nearest at joint angles `q` (rad); None when there are no two."""
    body = body_called(limits.collision_arm)
    boxed = (couple for box in limits.boxes for couple in boxed_with(body, *box))
    return nearest_of(body, (*body.pairs, *boxed), q)


def nearest_of(body: Body, couples: Iterable[Couple], q: Joints) -> Near | None:
    """Of some couples, the two that are nearest at joint angles `q` (rad); None without any."""
    look = look_at(body, q)
    return min((Near(look.distance_m(c), c) for c in couples), default=None)


def look_at(body: Body, q: Joints) -> Look:
    """The arm at joint angles `q` (rad)."""
    return Look(body, q, frames(body.chain, q))


class Look:
    """The arm at joint angles `q` (rad); where a capsule is is computed when it is asked for.

    `kinematics.point` is unrolled here, because these points are most of what a command costs.
    """

    __slots__ = ("_at", "_axes", "_body", "q")

    def __init__(self, body: Body, q: Joints, at: list[Frame]) -> None:
        self.q, self._at, self._body = q, at, body
        self._axes: list[Segment | None] = [None] * len(body.capsules)

    def axis(self, number: int) -> Segment:
        """The axis of a capsule in base (m)."""
        found = self._axes[number]
        if found is None:
            link, (a, b, c), (d, e, f), _ = self._body.capsules[number]
            x0, x1, x2, y0, y1, y2, z0, z1, z2, p0, p1, p2 = self._at[link]
            start = (
                p0 + a * x0 + b * y0 + c * z0,
                p1 + a * x1 + b * y1 + c * z1,
                p2 + a * x2 + b * y2 + c * z2,
            )
            end = (
                p0 + d * x0 + e * y0 + f * z0,
                p1 + d * x1 + e * y1 + f * z1,
                p2 + d * x2 + e * y2 + f * z2,
            )
            found = self._axes[number] = (start, end)
        return found

    def middles(self) -> list[Vec3]:
        """The middle of every capsule's axis in base (m)."""
        at = self._at
        found: list[Vec3] = []
        for link, (a, b, c) in self._body.middles:
            x0, x1, x2, y0, y1, y2, z0, z1, z2, p0, p1, p2 = at[link]
            x, y = p0 + a * x0 + b * y0 + c * z0, p1 + a * x1 + b * y1 + c * z1
            found.append((x, y, p2 + a * x2 + b * y2 + c * z2))
        return found

    def moved_m(self, other: Look) -> list[float]:
        """Of every link but the foot, how far at most its capsules' axes are from those elsewhere.

        Its middle moves, and it turns about that. R' - R, with the singular values s, s and 0,
        makes a vector s times as long at most; s is its Frobenius norm / sqrt(2).
        """
        found: list[float] = []
        ways = zip(self._at[1:], other._at[1:], self._body.links, strict=True)
        for one, two, ((a, b, c), reach_m, _) in ways:
            x0, x1, x2, y0, y1, y2, z0, z1, z2, p0, p1, p2 = one
            i0, i1, i2, j0, j1, j2, k0, k1, k2, q0, q1, q2 = two
            i0, i1, i2 = i0 - x0, i1 - x1, i2 - x2
            j0, j1, j2 = j0 - y0, j1 - y1, j2 - y2
            k0, k1, k2 = k0 - z0, k1 - z1, k2 - z2
            u = q0 - p0 + a * i0 + b * j0 + c * k0
            v = q1 - p1 + a * i1 + b * j1 + c * k1
            w = q2 - p2 + a * i2 + b * j2 + c * k2
            turned = i0 * i0 + i1 * i1 + i2 * i2 + j0 * j0 + j1 * j1 + j2 * j2
            turned += k0 * k0 + k1 * k1 + k2 * k2
            found.append(math.sqrt(u * u + v * v + w * w) + math.sqrt(turned / 2) * reach_m)
        return found

    def distance_m(self, couple: Couple, enough_m: float = math.inf) -> float:
        """Between the surfaces of two; at most 0 when they overlap.

        A lower bound of the distance will do when it is at least `enough_m`.
        """
        one, other, box, radii_m, _, _ = couple
        axis = self._axes[one] or self.axis(one)
        if other < 0:
            return segment_box(axis, box, enough_m + radii_m) - radii_m
        return segment_segment(axis, self._axes[other] or self.axis(other)) - radii_m


class Way:
    """From one configuration to the end of a leg, on a parabola in joint space.

    coast_rad: by how much each joint turns if the arm goes on as it moves; none when it stands.
    """

    def __init__(
        self, body: Body, what: Watched, start: Look, leg: Leg, coast_rad: Sequence[float] = ()
    ) -> None:
        self._body, self._what, self._start = body, what, start
        self.goal = Look(body, leg.joints_rad, leg.at)
        self._bend_rad = leg.bend_rad
        # A point strays from its chord by at most an eighth of its second derivative, and that by
        # two joints is no longer than the point's distance from the axis of the outer one.
        before, turns, weights = 0.0, [], []
        for a, b, bend in zip(start.q, leg.joints_rad, leg.bend_rad, strict=True):
            turn = abs(b - a) + abs(bend)  # its greatest speed, with the way as the unit of time
            turns.append(turn)
            weights.append((turn * (turn + 2 * before) + 2 * abs(bend)) / 8)
            before += turn
        self._weights = weights
        self._carried: Look | None = None
        self._carried_m: list[float] = []
        if coast_rad:
            ways = zip(start.q, leg.joints_rad, coast_rad, strict=True)
            q = tuple([a + REACHED * (b - a) + coast for a, b, coast in ways])
            self._carried = Look(body, q, frames(body.chain, q))
            turns = [max(t, abs(b - a)) for t, a, b in zip(turns, start.q, q, strict=True)]
        self._turns = turns

    def _bulge_m(self, number: int) -> float:
        """How far a capsule strays at most from the straight lines between both ends of the way."""
        return sum(map(mul, self._body.around_m[number], self._weights))

    def _apart_m(self, number: int) -> float:
        """By how much the turns of the joints change the distance of a pair at most."""
        return sum(map(mul, self._what.apart_m[number], self._turns))

    def too_near(self, margin_m: float) -> Near | None:
        """What comes nearer than the margin; None when nothing does.

        That counts where the arm's motion carries it, too, but for what the way leads away from: a
        hold would keep the arm from going.
        """
        open_ = []
        for couple, here_m in self._candidates(margin_m):
            if here_m >= margin_m:
                open_.append((couple, here_m))
            else:
                worse = self._nearer(couple, here_m)
                if worse is not None:
                    return worse
        if not open_:
            return None
        found, carried = self._on_the_way(open_, margin_m), self._carried
        if found is None and carried is not None:
            capsules, carried_m = self._body.capsules, self._carried_m
            for couple, here_m in open_:
                i, k = couple.one, couple.other
                way_m = carried_m[capsules[i][0]] + (carried_m[capsules[k][0]] if k >= 0 else 0.0)
                if here_m - way_m < margin_m and self.goal.distance_m(couple, here_m) < here_m:
                    there_m = carried.distance_m(couple, margin_m)
                    if there_m < margin_m:
                        return Near(there_m, couple)
        return found

    def _on_the_way(self, open_: list[tuple[Couple, float]], margin_m: float) -> Near | None:
        """Of those, with their distance at the start, what comes nearer than the margin."""
        some = [(couple, d0, self._bounds_m(couple)) for couple, d0 in open_]
        pieces = [(0.0, self._start, 1.0, self.goal, some)]
        while pieces:
            begin, one, end, other, some = pieces.pop()
            left: list[tuple[Couple, float, tuple[float, float]]] = []
            for couple, d0, bounds_m in some:
                moved_m = _moved_m(couple, one, other, end - begin, bounds_m)
                if d0 >= margin_m + moved_m:
                    continue  # which saves the distance at the end
                enough_m = 2 * margin_m + moved_m - d0
                d1 = other.distance_m(couple, max(enough_m, margin_m))
                if d1 < margin_m:
                    return Near(d1, couple)
                if d1 >= enough_m:
                    continue
                if moved_m <= 2 * FINEST_M:
                    return Near(min(d0, d1), couple)
                left.append((couple, d0, bounds_m))
            if left:
                half = (begin + end) / 2
                middle = self._at(half)
                pieces.append((begin, one, half, middle, left))
                halves = [(couple, middle.distance_m(couple), m) for couple, _, m in left]
                pieces.append((half, middle, end, other, halves))
        return None

    def _bounds_m(self, couple: Couple) -> tuple[float, float]:
        """How far the two bulge from their chords, and move against each other, on the way."""
        if couple.other < 0:
            return self._bulge_m(couple.one), math.inf
        bulge_m = self._bulge_m(couple.one) + self._bulge_m(couple.other)
        return bulge_m, self._apart_m(couple.number)

    def _candidates(self, margin_m: float) -> list[tuple[Couple, float]]:
        """Those that could come nearer than the margin, with their distance at the start.

        Judged by the spheres that hold the capsules first, which is quick, and by how far a link
        goes at most. That bound is no less than the one by which `_on_the_way` judges, so who is
        dismissed here would pass there.
        """
        what, start, dist = self._what, self._start, math.dist
        middles, moved_m = start.middles(), self.links_moved_m()
        found: list[tuple[Couple, float]] = []
        for pair, i, k, link, other, both_m in what.of_pairs:
            off_m = dist(middles[i], middles[k]) - both_m - margin_m
            if off_m < moved_m[link] + moved_m[other]:
                apart_m = self._apart_m(pair.number)
                if off_m < apart_m:
                    here_m = start.distance_m(pair)
                    if here_m < min(apart_m, moved_m[link] + moved_m[other]) + margin_m:
                        found.append((pair, here_m))
        for i, link, outer_m, boxed in what.boxes_of:
            (x, y, z), need_m = middles[i], moved_m[link] + margin_m
            far_m = outer_m + need_m
            for couple, (cx, cy, cz, half_x, half_y, half_z, cos, sin) in boxed:
                if abs(z - cz) - half_z >= far_m:
                    continue  # most are far above the table
                u, v = x - cx, y - cy
                if abs(cos * u + sin * v) - half_x < far_m > abs(cos * v - sin * u) - half_y:
                    here_m = start.distance_m(couple, need_m)
                    if here_m < need_m:
                        found.append((couple, here_m))
        return found

    def links_moved_m(self) -> list[float]:
        """Of every link, how far at most it goes from the start, or is carried.

        No less than chord and bulge of its capsules: sum(around * weight) <= max(around) * sum.
        """
        start, before, found = self._start, 0.0, [0.0]
        weights = (*self._weights, 0.0)  # the hand goes with the last joint
        ways = zip(start.moved_m(self.goal), self._body.links, weights, strict=True)
        for moved_m, (_, _, around_m), weight in ways:
            before += weight
            found.append(moved_m + around_m * before)
        if self._carried is None:
            return found
        self._carried_m = [0.0, *start.moved_m(self._carried)]
        return list(map(max, found, self._carried_m))

    def _nearer(self, couple: Couple, here_m: float) -> Near | None:
        """Of two inside the margin: where they come nearer to each other; None if nowhere."""
        distance_m = self.goal.distance_m(couple)
        if distance_m < here_m - STILL_M:
            return Near(distance_m, couple)
        for share in (0.25, 0.5, 0.75):
            distance_m = self._at(share).distance_m(couple)
            if distance_m < here_m - DETOUR_M:
                return Near(distance_m, couple)
        return None

    def _at(self, share: float) -> Look:
        """The arm when it has gone this share of the time."""
        ways = zip(self._start.q, self.goal.q, self._bend_rad, strict=True)
        back = share * (1.0 - share)
        q = tuple([a + share * (b - a) - back * bend for a, b, bend in ways])
        return Look(self._body, q, frames(self._body.chain, q))


def _moved_m(
    couple: Couple, one: Look, other: Look, share: float, bounds_m: tuple[float, float]
) -> float:
    """How far the two move at most against each other on a piece of the way."""
    i, k = couple.one, couple.other
    moved_m = _chord_m(one.axis(i), other.axis(i))
    if k >= 0:
        moved_m += _chord_m(one.axis(k), other.axis(k))
    return min(moved_m + bounds_m[0] * share * share, bounds_m[1] * share)


def _chord_m(one: Segment, other: Segment) -> float:
    """How far the end of a capsule's axis is from its other place."""
    return max(math.dist(one[0], other[0]), math.dist(one[1], other[1]))
