"""What the collision check needs of a robot, prepared once: capsules, and which can meet at all."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from robot_rl.config.registry import resolve
from robot_rl.robots import Robot
from robot_rl.robots.robot import Capsule
from robot_rl.safety.distance import segment_segment
from robot_rl.safety.kinematics import Chain, Frame, chain_of, frames, point
from robot_rl.safety.limits import Limits, Vec3
from robot_rl.safety.obstacles import Box

BEYOND_RAD = 0.2  # an arm may stand this far outside the range of a joint
TRIES = 200  # configurations at random in which two capsules that overlap are found out
LOOKS = 400  # configurations that are looked at to find out how near two capsules can come

NO_BOX: Box = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)


class Couple(NamedTuple):
    """Two that must keep apart: capsule `one`, and capsule `other` or, with other = -1, a box."""

    one: int
    other: int
    box: Box
    radii_m: float
    names: tuple[str, str]
    number: int = -1  # among the pairs


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """The capsules of a robot.

    Attributes:
        ranges_rad: of the joints, and what an arm may stand beyond them.
        parts: names of the links: foot, link1 ..., hand.
        capsules: (link, start, end, radius); link 0 = foot, J + 1 = hand.
        middles: (link, middle of the axis) of each; outer_m: half its length plus the radius.
        links: of each but the foot, the middle of its capsules' axes, how far these reach from
            there, and the greatest of their `around_m`.
        pairs: those that must keep apart, whatever stands around.
        around_m: [capsule, joint], how far a point of the capsule's axis can be from the joint's
            axis; 0 where the joint does not move the capsule.
        apart_m: [pair, joint], by how much the distance of two changes at most per radian.
    """

    chain: Chain
    ranges_rad: tuple[tuple[float, float], ...]
    parts: tuple[str, ...]
    capsules: tuple[tuple[int, Vec3, Vec3, float], ...]
    middles: tuple[tuple[int, Vec3], ...]
    outer_m: tuple[float, ...]
    links: tuple[tuple[Vec3, float, float], ...]
    pairs: tuple[Couple, ...]
    around_m: list[list[float]]
    apart_m: np.ndarray


class Watched(NamedTuple):
    """What one check looks at.

    pairs: of capsules, with their `Body.apart_m`; of_pairs: (couple, its two capsules, their links,
    the sum of their `Body.outer_m`). boxed: capsules with boxes; boxes_of: the same by capsule,
    which is quicker: (capsule, its link, `Body.outer_m`, ((couple, box) ...)).
    """

    pairs: tuple[Couple, ...]
    apart_m: list[list[float]]
    of_pairs: tuple[tuple[Couple, int, int, int, int, float], ...]
    boxed: tuple[Couple, ...]
    boxes_of: tuple[tuple[int, int, float, tuple[tuple[Couple, Box], ...]], ...]


_INTRODUCED: dict[str, Body] = {}


def introduce(robot: Robot) -> None:
    """Have this process know the capsules of a robot that its name alone does not describe."""
    _INTRODUCED[robot.name] = body_of(robot)


def body_called(name: str) -> Body:
    """Of a robot that was introduced, or is registered. Raises `ConfigError` for others."""
    return _INTRODUCED.get(name) or _registered(name)


@cache
def _registered(name: str) -> Body:
    return body_of(resolve("robot", {"name": name}))


def body_of(robot: Robot) -> Body:
    """Prepare `robot`.

    Links next to each other are not compared, nor are its `neighbours`.
    """
    n, chain = len(robot.joints), chain_of(robot)
    parts = ("foot", *(f"link{i}" for i in range(1, n + 1)), "hand")
    capsules = tuple((c.link, c.start_m, c.end_m, c.radius_m) for c in robot.capsules)
    links = [c.link for c in robot.capsules]
    pairs: list[Couple] = []
    for i, a in enumerate(links):
        for k, b in enumerate(links):
            if b - a > 1 and (a, b) not in robot.neighbours:
                radii_m, names = capsules[i][3] + capsules[k][3], (parts[a], parts[b])
                pairs.append(Couple(i, k, NO_BOX, radii_m, names, len(pairs)))
    around_m = np.array([_around(chain, c) for c in robot.capsules]).reshape(-1, n)
    joints = np.arange(n)
    apart_m = np.zeros((len(pairs), n))
    for number, p in enumerate(pairs):
        between = (joints >= links[p.one]) & (joints < links[p.other])
        apart_m[number] = np.minimum(around_m[p.one], around_m[p.other]) * between
    around_m = around_m * (joints < np.array(links)[:, None])
    ranges = ((j.range_rad[0] - BEYOND_RAD, j.range_rad[1] + BEYOND_RAD) for j in robot.joints)
    return Body(
        chain=chain,
        ranges_rad=tuple(ranges),
        parts=parts,
        capsules=capsules,
        middles=tuple((link, _middle((a, b))) for link, a, b, _ in capsules),
        outer_m=tuple(math.dist(a, b) / 2 + radius_m for _, a, b, radius_m in capsules),
        links=tuple(_link(capsules, around_m, i) for i in range(1, n + 2)),
        pairs=tuple(pairs),
        around_m=around_m.tolist(),
        apart_m=apart_m,
    )


def watched(limits: Limits) -> Watched:
    """What the check of these limits looks at."""
    return _watched(body_called(limits.collision_arm), limits.collision_margin_m, limits.boxes)


@lru_cache(maxsize=16)
def _watched(
    body: Body, margin_m: float, boxes: tuple[tuple[str, Box, tuple[str, ...]], ...]
) -> Watched:
    """It takes some 0.2 s to find out which pairs never come within the margin.

    The foot and the first link stand on a box and stay in place: boxes are nothing to them.
    """
    kept = [p for p in body.pairs if least_m(body, p, margin_m) < margin_m]
    pairs = tuple(p._replace(number=i) for i, p in enumerate(kept))
    boxed = tuple(couple for box in boxes for couple in boxed_with(body, *box))
    outer_m, links = body.outer_m, [link for link, _ in body.middles]
    boxes_of = (
        (i, links[i], outer_m[i], tuple((c, c.box) for c in boxed if c.one == i))
        for i in range(len(links))
    )
    return Watched(
        pairs=pairs,
        apart_m=[body.apart_m[p.number].tolist() for p in kept],
        of_pairs=tuple(
            (p, p.one, p.other, links[p.one], links[p.other], outer_m[p.one] + outer_m[p.other])
            for p in pairs
        ),
        boxed=boxed,
        boxes_of=tuple(group for group in boxes_of if group[-1]),
    )


def boxed_with(
    body: Body, name: str, box: Box, may_touch: tuple[str, ...] = ()
) -> tuple[Couple, ...]:
    """The capsules that must keep apart from a box: all but the foot's and the first link's."""
    return tuple(
        Couple(i, -1, box, radius_m, (body.parts[link], name))
        for i, (link, _, _, radius_m) in enumerate(body.capsules)
        if link > 1 and body.parts[link] not in may_touch
    )


def _middle(points: Sequence[Vec3]) -> Vec3:
    """Of the box around some points."""
    x, y, z = ((min(c) + max(c)) / 2 for c in zip(*points, strict=True))
    return (x, y, z)


def _link(
    capsules: Sequence[tuple[int, Vec3, Vec3, float]], around_m: np.ndarray, link: int
) -> tuple[Vec3, float, float]:
    """`Body.links` of one."""
    numbers = [i for i, (of, *_) in enumerate(capsules) if of == link]
    if not numbers:
        return (0.0, 0.0, 0.0), 0.0, 0.0
    ends = [end for i in numbers for end in capsules[i][1:3]]
    middle = _middle(ends)
    return middle, max(math.dist(middle, end) for end in ends), float(around_m[numbers].max())


def _around(chain: Chain, capsule: Capsule) -> list[float]:
    """How far the capsule's axis can be at most from the axis of each joint, in any configuration.

    Exact for the joints on either end of its link; then it grows by the links between.
    """
    n, link = len(chain.joints), capsule.link
    ends = (capsule.start_m, capsule.end_m)
    found = [0.0] * n
    near_m = 0.0
    if link > n:  # the hand stands still in the frame of the last joint
        ends = tuple(point(chain.hand, end) for end in ends)
        link = n
    if link > 0:
        found[link - 1] = max(math.hypot(x, y) for x, y, _ in ends)
        near_m = max(math.hypot(*end) for end in ends)
    for joint in reversed(range(link - 1)):
        x, y, z = chain.joints[joint + 1][9:]
        found[joint] = math.hypot(x, y) + near_m
        near_m += math.hypot(x, y, z)
    if link < n:
        frame = chain.joints[link]
        found[link] = max(_off_axis(end, frame) for end in ends)
        near_m = max(math.dist(end, frame[9:]) for end in ends)
    for joint in range(link + 1, n):
        near_m += math.hypot(*chain.joints[joint][9:])
        found[joint] = near_m
    return found


def _off_axis(p: Vec3, frame: Frame) -> float:
    """Distance of a point from the z axis of a frame; both are in the same frame."""
    away = np.array(p) - frame[9:]
    return float(np.linalg.norm(away - (away @ frame[6:9]) * np.array(frame[6:9])))


def least_m(body: Body, pair: Couple, enough_m: float) -> float:
    """A lower bound of the distance of two capsules in all configurations, by branch and bound.

    -inf for two that are seen to overlap in one. Only the joints between the two links matter, and
    `body.chain` from the one link to the other. In a cell of their angles the distance is at least
    that in the middle, less what the joints change it by on their way to the cell's border. The
    cell with the lowest bound is halved, until the bound is `enough_m`.
    """
    (first, p, q, _), (last, r, s, _) = body.capsules[pair.one], body.capsules[pair.other]
    joints = slice(first, min(last, len(body.chain.joints)))
    chain = body.chain._replace(joints=body.chain.joints[joints])
    slopes, ranges_rad = body.apart_m[pair.number][joints].tolist(), body.ranges_rad[joints]

    def distance_m(angles: tuple[float, ...]) -> float:
        at = frames(chain, angles)[last - first]
        return segment_segment((p, q), (point(at, r), point(at, s))) - pair.radii_m

    def bound(cell: tuple[tuple[float, float], ...]) -> float:
        way_m = sum(m * (high - low) / 2 for m, (low, high) in zip(slopes, cell, strict=True))
        return distance_m(tuple((low + high) / 2 for low, high in cell)) - way_m

    rng, (low_rad, high_rad) = np.random.default_rng(0), np.array(ranges_rad).T
    for angles in rng.uniform(low_rad, high_rad, (TRIES, len(slopes))).tolist():
        if distance_m(tuple(angles)) < 0.0:
            return -math.inf  # these two can meet
    cell = tuple(ends if m else (0.0, 0.0) for ends, m in zip(ranges_rad, slopes, strict=True))
    heap = [(bound(cell), cell)]
    for _ in range(LOOKS // 2):
        if heap[0][0] >= enough_m:
            break
        _, cell = heapq.heappop(heap)
        widest = max(range(len(cell)), key=lambda j: slopes[j] * (cell[j][1] - cell[j][0]))
        low, high = cell[widest]
        for half in ((low, (low + high) / 2), ((low + high) / 2, high)):
            part = (*cell[:widest], half, *cell[widest + 1 :])
            heapq.heappush(heap, (bound(part), part))
    return heap[0][0]
