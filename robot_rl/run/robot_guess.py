"""What a URDF does not say of an arm: a home pose, the box it works in, links that always touch.

Guesses, made by sampling with a fixed seed, and told as such; a person changes them in the YAML.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.robots.chain import Chain, axis_error_rad
from robot_rl.robots.described import Described
from robot_rl.robots.fingers import mounted
from robot_rl.robots.robot import Capsule, Inertial
from robot_rl.safety.body import Body, body_of, boxed_with
from robot_rl.safety.collision import look_at, nearest_of
from robot_rl.safety.obstacles import TABLE
from robot_rl.tasks.common import tool_down
from robot_rl.types import Pose

F64 = NDArray[np.float64]
Vec3 = tuple[float, float, float]

SAMPLES = 600  # poses, drawn evenly from the joint ranges
TRIES = 30  # starts of the search for a home pose
ALWAYS = 0.9  # links that touch in so many of the poses cannot help it
MARGIN_RAD = 0.15  # of a home pose from the ends of the joint ranges; the gate keeps 0.1
TIGHT_RAD = 0.1
MARGIN_M = 0.015  # from the table and from itself; the gate keeps 0.010
PLACES = (0.55, 0.45, 0.65, 0.35)  # of the reach: how far in front the home pose is looked for
HEIGHTS = (0.3, 0.2, 0.1)  # of the reach
MOST_M: tuple[Vec3, Vec3] = ((0.10, -0.40, 0.005), (0.85, 0.40, 0.60))
"""The box looked at: a table in front of the arm, 5 mm above its top (as the shipped robots')."""

TASKS_M: tuple[Vec3, Vec3] = ((0.35, -0.25, 0.01), (0.65, 0.25, 0.40))
"""Where the shipped tasks work."""

FINE_ENOUGH = 3  # cells along each side of the box
FINE = (12, 4, 14)  # points along x, y >= 0, z
TURN_GAIN = 0.3  # of the cost: half a turn of the tool must be worth it
RELAXING = 20  # steps of a seventh joint towards the middle of the ranges
WINDING = 2 * math.pi


@dataclass(frozen=True, slots=True)
class Guessed:
    """The robot with its guesses, and what to tell the person."""

    robot: Described
    remarks: list[str]


def guess(
    robot: Described, home_rad: Sequence[float] | None, progress: Callable[[float], object]
) -> Guessed:
    """Fill in links that always touch, home pose (unless given) and workspace.

    progress: is told the share that is done, from 0 to 1.

    Raises:
        ConfigError: no pose with the tool down was found in front of the arm.
    """
    remarks: list[str] = []
    chain, rng = Chain(robot), np.random.default_rng(0)
    low, high = _ranges(chain)
    poses = rng.uniform(low, high, (SAMPLES, len(low)))
    reach_m = _reach_m(chain, poses)
    robot, turned = (
        replace(one, neighbours=_neighbours(body_of(one), poses)) for one in (robot, _turned(robot))
    )
    progress(0.2)
    if home_rad is None:
        found = _home(robot, chain, reach_m, rng)
        other = _home(turned, Chain(turned), reach_m, rng)
        if other is not None and (found is None or other[0] < found[0] - TURN_GAIN):
            robot, chain, found = turned, Chain(turned), other
            remarks.append("yaw_rad: the tool is turned by pi about its axis, to spare the wrist")
        if found is None:
            raise _nowhere(reach_m)
        _, home = found
        remarks.append(f"home_rad: {home.round(3).tolist()}, tool down in front (--home)")
    else:
        home = np.array(home_rad, float)
        robot = replace(robot, home_rad=tuple(home.tolist()))  # checks them
    robot = replace(robot, home_rad=tuple((home.round(4) + 0.0).tolist()))
    progress(0.4)
    box = _workspace(robot, chain, home, reach_m, lambda x: progress(0.4 + 0.6 * x))
    remarks.append(
        f"workspace: {box[0]} to {box[1]} m, reached with the tool down by sampling: check it "
        "against your table"
    )
    return Guessed(replace(robot, workspace_min_m=box[0], workspace_max_m=box[1]), remarks)


def _ranges(chain: Chain) -> tuple[F64, F64]:
    """The joint ranges, at most half a turn to either side."""
    low, high = np.maximum(chain.low_rad, -math.pi), np.minimum(chain.high_rad, math.pi)
    odd = low >= high  # a range that lies beyond half a turn
    return np.where(odd, chain.low_rad, low), np.where(odd, chain.high_rad, high)


def _reach_m(chain: Chain, poses: F64) -> float:
    """How far from the base's axis the TCP comes."""
    places = np.array([chain.frames(q)[-1, :3, 3] for q in poses])
    return float(np.quantile(np.linalg.norm(places[:, :2], axis=1), 0.99))


def _neighbours(body: Body, poses: F64) -> tuple[tuple[int, int], ...]:
    """Pairs of links that touch nearly always: their shapes overlap around a joint."""
    counts: dict[tuple[int, int], int] = {}
    looked = poses[: SAMPLES // 3]
    for q in looked:
        for pair in _touching(body, q):
            counts[pair] = counts.get(pair, 0) + 1
    return tuple(sorted(p for p, n in counts.items() if n >= ALWAYS * len(looked)))


def _touching(body: Body, q: F64) -> set[tuple[int, int]]:
    """Pairs of links that are inside the margin at joint angles q."""
    look = look_at(body, tuple(q.tolist()))
    return {
        (body.capsules[pair.one][0], body.capsules[pair.other][0])
        for pair in body.pairs
        if look.distance_m(pair) < MARGIN_M
    }


def _clear(robot: Described) -> Callable[[F64], bool]:
    """Whether the arm keeps the margin from itself and the table at joint angles [J] rad."""
    body = body_of(robot)
    couples = (*body.pairs, *boxed_with(body, "table", TABLE.box))

    def check(q: F64) -> bool:
        near = nearest_of(body, couples, tuple(q.tolist()))
        return near is None or near.distance_m > MARGIN_M

    return check


def _turned(robot: Described) -> Described:
    """The frame of the hand turned by pi, and with it a gripper of ours that is mounted there.

    What the URDF has behind the tip stays where it is on the flange.
    """
    gripper, link = robot.gripper, len(robot.joints) + 1
    yaw_rad = gripper.yaw_rad + (math.pi if gripper.yaw_rad <= 0.0 else -math.pi)
    with_it = mounted(gripper, link)
    hand = gripper.hand if with_it else _inertial_turned(gripper.hand)
    return replace(
        robot,
        gripper=replace(gripper, yaw_rad=yaw_rad, hand=hand),
        capsules=tuple(
            c if c.link != link or c in with_it else _capsule_turned(c) for c in robot.capsules
        ),
    )


def _capsule_turned(c: Capsule) -> Capsule:
    """As it is seen from a frame that was turned by pi about z."""
    return replace(c, start_m=_place_turned(c.start_m), end_m=_place_turned(c.end_m))


def _inertial_turned(inertial: Inertial) -> Inertial:
    """As it is seen from a frame that was turned by pi about z."""
    xx, yy, zz, xy, xz, yz = inertial.inertia_kg_m2
    inertia = (xx, yy, zz, xy, 0.0 - xz, 0.0 - yz)
    return replace(inertial, centre_m=_place_turned(inertial.centre_m), inertia_kg_m2=inertia)


def _place_turned(place_m: Vec3) -> Vec3:
    x, y, z = place_m
    return 0.0 - x, 0.0 - y, z


def _home(
    robot: Described, chain: Chain, reach_m: float, rng: np.random.Generator
) -> tuple[float, F64] | None:
    """(cost, pose): tool down, clear, joints near their middle, elbow up; None: nowhere."""
    low, high = _ranges(chain)
    clear = _clear(robot)
    best: tuple[float, F64] | None = None
    for far in PLACES:
        for height in HEIGHTS:
            goal = tool_down(np.array((far * reach_m, 0.0, height * reach_m)))
            for start in _starts(low, high, rng):
                q, _, _, there = chain.approach(goal, start)
                if not there:
                    continue
                q = _relaxed(_unwound(q, chain), chain, goal)
                at = chain.frames(q)
                fits = axis_error_rad(at, goal) < 0.02 and _inside(q, chain, MARGIN_RAD)
                if not fits or not clear(q):
                    continue
                cost = _cost(q, at, low, high, reach_m)
                if best is None or cost < best[0]:
                    best = (cost, q)
            if best is not None:
                return best
    return None


def _starts(low: F64, high: F64, rng: np.random.Generator) -> F64:
    """Where the search begins [TRIES, J]: half of it near the middle of the ranges."""
    wide = rng.uniform(low, high, (TRIES // 2, len(low)))
    near = rng.normal((low + high) / 2, 0.15 * (high - low), (TRIES // 2, len(low)))
    return np.vstack((near.clip(low, high), wide))


def _nowhere(reach_m: float) -> ConfigError:
    near, far = min(PLACES) * reach_m, max(PLACES) * reach_m
    return ConfigError(
        "no home pose was found: nowhere in front of the arm does the tool point down",
        expected="a tip whose z axis points out of the tool, a base with z up and x forward; "
        f"looked {near:.2f} to {far:.2f} m in front",
        got=f"{2 * len(PLACES) * len(HEIGHTS) * TRIES} tries, none within the ranges and clear",
        fix="--home 'ANGLES in rad', another --tip, or a fixed joint that turns the tip",
    )


def _relaxed(q: F64, chain: Chain, goal: Pose) -> F64:
    """The same pose of the tool, seven joints nearer to their middle."""
    if len(q) <= 6:
        return q
    low, high = _ranges(chain)
    for _ in range(RELAXING):
        jacobian = chain.jacobian(chain.frames(q))
        free = np.eye(len(q)) - np.linalg.pinv(jacobian, rcond=1e-3) @ jacobian
        pull = free @ (((low + high) / 2 - q) / (high - low) ** 2)
        near, _, _, there = chain.approach(goal, q + 2.0 * pull)
        if not there or np.abs(near - q).max() < 1e-3:
            return q
        q = near
    return q


def _cost(q: F64, at: F64, low: F64, high: F64, reach_m: float) -> float:
    """Small for joints near the middle of their range and an elbow that is up."""
    off = (q - (low + high) / 2) / (high - low)
    up = float(at[1:-2, 2, 3].max()) / reach_m
    return 4.0 * float(off @ off) - up


def _unwound(q: F64, chain: Chain) -> F64:
    """The same pose, each joint within half a turn where its range allows it."""
    turned = (q + math.pi) % WINDING - math.pi
    fits = (turned > chain.low_rad) & (turned < chain.high_rad)
    return np.where(fits, turned, q)


def _inside(q: F64, chain: Chain, margin_rad: float) -> bool:
    return bool((q > chain.low_rad + margin_rad).all() and (q < chain.high_rad - margin_rad).all())


def _workspace(
    robot: Described,
    chain: Chain,
    home: F64,
    reach_m: float,
    progress: Callable[[float], object],
) -> tuple[Vec3, Vec3]:
    """The largest box, the same to the left and right, that is reached with the tool down.

    Looked for on a grid; where the arm reaches little of it, again on a finer one around that.
    """
    reached = _Reached(chain, home, _clear(robot))
    share = min(reach_m / MOST_M[1][0], 1.0)
    (x0, _, z0), (x1, y1, z1) = MOST_M[0], (share * value for value in MOST_M[1])
    spans = [(x0, x1), (0.0, y1), (z0, z1)]
    good, at = _grid(reached, spans, lambda x: progress(x / 2))
    side, best = _largest(good, at)
    if good.any() and side < FINE_ENOUGH:
        cells = [np.flatnonzero(good.any(axis=tuple({0, 1, 2} - {a}))) for a in range(3)]
        spans = [
            (float(along[max(cell[0] - 1, 0)]), float(along[min(cell[-1] + 1, len(along) - 1)]))
            for along, cell in zip(at, cells, strict=True)
        ]
        good, at = _grid(reached, spans, lambda x: progress((1 + x) / 2))
        _, best = _largest(good, at)
    progress(1.0)
    if best is None:
        raise ConfigError(
            "no box was found that the arm reaches with the tool down",
            expected=f"a box within {MOST_M[0]} to {MOST_M[1]} m",
            got=f"{int(good.sum())} of {good.size} points",
            fix="--home 'ANGLES in rad' with the tool down in front of the arm",
        )
    return best


def _grid(
    reached: _Reached, spans: Sequence[tuple[float, float]], progress: Callable[[float], object]
) -> tuple[NDArray[np.bool_], list[F64]]:
    """(which points of a grid are reached to the left and right, its x, y >= 0 and z)."""
    at = [np.linspace(a, b, n) for (a, b), n in zip(spans, FINE, strict=True)]
    xs, ys, zs = at
    good = np.zeros(FINE, bool)
    for i, x in enumerate(xs):
        for k, z in enumerate(zs):
            for j, y in enumerate(ys):
                good[i, j, k] = all(reached(np.array((x, s * y, z))) for s in (1.0, -1.0))
                if not good[i, j, k]:
                    break  # further out is no better
        progress((i + 1) / len(xs))
    return good, at


def _largest(good: NDArray[np.bool_], at: Sequence[F64]) -> tuple[int, tuple[Vec3, Vec3] | None]:
    """(cells along the shortest side, corners) of the best box of a grid; None: there is none."""
    xs, ys, zs = at
    most, found, side = 0.0, None, 0
    for i0, i1 in itertools.combinations(range(len(xs)), 2):
        for k0, k1 in itertools.combinations(range(len(zs)), 2):
            rows = good[i0 : i1 + 1, :, k0 : k1 + 1].all(axis=(0, 2))
            j = len(ys) - 1 if rows.all() else int(np.argmin(rows)) - 1
            low, high = (xs[i0], -ys[max(j, 0)], zs[k0]), (xs[i1], ys[max(j, 0)], zs[k1])
            if j > 0 and (worth := _worth(low, high)) > most:
                most, found, side = worth, (_corner(low), _corner(high)), min(i1 - i0, k1 - k0)
    return side, found


def _worth(low: Sequence[float], high: Sequence[float]) -> float:
    """Volume of a box (m3); what the shipped tasks work in counts tenfold."""
    common = np.minimum(high, TASKS_M[1]) - np.maximum(low, TASKS_M[0])
    return float(np.prod(np.subtract(high, low)) + 10.0 * np.prod(np.maximum(common, 0.0)))


def _corner(values: Sequence[float]) -> Vec3:
    x, y, z = (round(float(v), 3) + 0.0 for v in values)
    return (x, y, z)


class _Reached:
    """Whether a place is reached with the tool down, starting from places reached before."""

    def __init__(self, chain: Chain, home: F64, clear: Callable[[F64], bool]) -> None:
        self._chain, self._clear, self._home = chain, clear, home
        self._places, self._angles = [chain.frames(home)[-1, :3, 3]], [home]

    def __call__(self, place: F64) -> bool:
        away = np.square(np.array(self._places) - place).sum(1)
        for start in (self._angles[int(np.argmin(away))], self._home):
            try:
                q = self._chain.solve(tool_down(place), start)
            except RobotRLError:
                continue
            if _inside(q, self._chain, TIGHT_RAD) and self._clear(q):
                self._places.append(place)
                self._angles.append(q)
                return True
        return False
