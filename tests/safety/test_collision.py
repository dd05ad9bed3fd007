"""Collision check: distances, kinematics against MuJoCo, coverage, and what the gate does.

Whether anything touches in the end: tests/faults/test_collision_million.py.
"""

from __future__ import annotations

import dataclasses
import math

import mujoco
import numpy as np
import pytest

from robot_rl.bench.faults.gate_bench import GateBench
from robot_rl.bench.gate import AROUND, at_rest, cell, commands, moving, start
from robot_rl.config.registry import build
from robot_rl.errors import ConfigError, SafetyError
from robot_rl.robots import Fr3, Panda, Robot, Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.safety import collision
from robot_rl.safety.body import body_of, introduce, least_m, watched
from robot_rl.safety.distance import segment_box, segment_segment
from robot_rl.safety.kinematics import (
    Leg,
    chain_of,
    frames,
    jacobian,
    least_turns,
    predict,
    tcp_at,
)
from robot_rl.safety.limits import Limits
from robot_rl.safety.obstacles import TABLE, Obstacle
from robot_rl.safety.readings import Placement, read_pose, read_state
from robot_rl.types import Outcome
from robot_rl_sim.arm import HAND, link
from tests.support.cell import COVER, Cell

ROBOTS = (Fr3(), Panda(), Ur5e())
each = pytest.mark.parametrize("robot", ROBOTS, ids=lambda r: r.name)


class FiveJoints(Ur5e):
    """A UR5e whose last joint is glued: its tool cannot turn any way it likes."""

    name = "five"
    joints = Ur5e.joints[:5]
    home_rad = Ur5e.home_rad[:5]
    capsules = tuple(
        dataclasses.replace(c, link=min(c.link, 6)) for c in Ur5e.capsules if c.link != 6
    )
    neighbours = ((0, 2), (4, 6))


def drawn(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    """Joints at random in their ranges."""
    return rng.uniform(robot.joint_min_rad, robot.joint_max_rad)


def test_distances_agree_with_brute_force() -> None:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 201)[:, None]
    for _ in range(200):
        a, b, c, d = rng.uniform(-0.5, 0.5, (4, 3))
        p, q = a + t * (b - a), c + t * (d - c)
        brute = float(np.linalg.norm(p[:, None] - q[None], axis=2).min())
        found = segment_segment((tuple(a), tuple(b)), (tuple(c), tuple(d)))
        assert brute - 0.02 <= found <= brute + 1e-9
        box = Obstacle(
            centre_in_base_m=tuple(rng.uniform(-0.3, 0.3, 3).tolist()),
            size_m=tuple(rng.uniform(0.04, 0.6, 3).tolist()),
            yaw_rad=float(rng.uniform(-3, 3)),
        )
        cos, sin = math.cos(box.yaw_rad), math.sin(box.yaw_rad)
        v = (p - box.centre_in_base_m) @ np.array(((cos, -sin, 0), (sin, cos, 0), (0, 0, 1)))
        outside = np.maximum(np.abs(v) - np.array(box.size_m) / 2, 0)
        brute = float(np.linalg.norm(outside, axis=1).min())
        found = segment_box((tuple(a), tuple(b)), box.box)
        assert brute - 0.01 <= found <= brute + 1e-9


@each
def test_kinematics_are_mujocos(robot: Robot) -> None:
    rng, chain, world = np.random.default_rng(1), chain_of(robot), Cell(robot, {}, 0.0)
    for _ in range(20):
        q = drawn(robot, rng)
        world.place(q)
        at = frames(chain, tuple(q.tolist()))
        np.testing.assert_allclose(tcp_at(chain, at), world.tcp_in_base.position_m, atol=1e-9)
        hand = world.data.body(HAND).xmat.reshape(3, 3)
        np.testing.assert_allclose(np.array(at[-1][:9]).reshape(3, 3).T, hand, atol=1e-9)
        mujoco.mj_comPos(world.model, world.data)
        jac = np.zeros((6, world.model.nv))
        tcp = world.model.site("tcp").id
        mujoco.mj_jacSite(world.model, world.data, jac[:3], jac[3:], tcp)
        np.testing.assert_allclose(jacobian(chain, at), jac, atol=1e-9)


@each
def test_capsules_cover_what_the_simulator_draws(robot: Robot) -> None:
    """Except for the fingers, whose contact is the task; the camera at the wrist is covered."""
    model = Cell(robot, {}, 0.0).model
    names = [link(robot, i) for i in range(len(robot.joints) + 1)] + [HAND]
    for geom in np.flatnonzero(model.geom_contype == COVER):
        body = model.body(model.geom_bodyid[geom]).name
        capsules = [c for c in robot.capsules if names[c.link] == body]
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
        for point, radius_m in surface(model.geom_type[geom], model.geom_size[geom]):
            at = model.geom_pos[geom] + turn.reshape(3, 3) @ point
            gaps = []
            for c in capsules:
                a, d = np.array(c.start_m), np.array(c.end_m) - c.start_m
                t = np.clip((at - a) @ d / (d @ d), 0, 1)
                gaps.append(float(np.linalg.norm(at - a - t * d)) + radius_m - c.radius_m)
            assert min(gaps) <= 5e-4, (robot.name, body, at, min(gaps))


def surface(kind: int, size_m: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Points with a radius, whose hull a geom is, in its own frame."""
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        signs = np.array(np.meshgrid(*[(-1, 1)] * 3)).reshape(3, -1).T
        return [(size_m * s, 0.0) for s in signs]
    radius_m, half_m, _ = size_m
    along = [np.array((0.0, 0.0, z)) for z in np.linspace(-half_m, half_m, 5)]
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return [(z, radius_m) for z in along]
    assert kind == mujoco.mjtGeom.mjGEOM_CYLINDER
    turns = np.linspace(0, 2 * math.pi, 32, endpoint=False)
    rim = [radius_m * np.array((math.cos(x), math.sin(x), 0.0)) for x in turns]
    return [(z + r, 0.0) for z in along for r in rim]


@each
def test_pairs_that_are_not_looked_at_cannot_meet(robot: Robot) -> None:
    """The bounds that dismiss a pair for ever, and how fast a joint can change a distance."""
    rng, body = np.random.default_rng(5), body_of(robot)
    bounds_m = [least_m(body, pair, enough_m=0.1) for pair in body.pairs]  # the largest margin
    assert sum(bound_m > 0.0 for bound_m in bounds_m) > 10, "the bound dismisses hardly any"
    for _ in range(150):
        q = drawn(robot, rng)
        nudge = rng.normal(0.0, 0.05, len(q))
        one, other = (
            collision.Look(body, tuple(x.tolist()), frames(body.chain, tuple(x.tolist())))
            for x in (q, q + nudge)
        )
        for pair, bound_m, slopes_m in zip(body.pairs, bounds_m, body.apart_m, strict=True):
            here_m = one.distance_m(pair)
            assert here_m >= bound_m - 1e-9, pair.names
            if here_m > -pair.radii_m + 1e-6:  # the axes do not cross
                change_m = abs(other.distance_m(pair) - here_m)
                assert change_m <= slopes_m @ np.abs(nudge) + 1e-9, pair.names


@each
def test_only_a_pair_that_cannot_come_within_the_margin_is_not_watched(robot: Robot) -> None:
    body, limits = body_of(robot), cell(robot)
    couples = {(couple.one, couple.other) for couple in watched(limits).pairs}
    left_out = [p for p in body.pairs if (p.one, p.other) not in couples]
    closely_m = [least_m(body, pair, math.inf) for pair in left_out]
    assert left_out and min(closely_m) > limits.collision_margin_m - 0.002


@each
def test_no_capsule_goes_further_than_the_bound_of_its_link(robot: Robot) -> None:
    """Between two configurations, and on the whole of a bent way from one to the other."""
    rng, body = np.random.default_rng(9), body_of(robot)
    what, tightest = watched(cell(robot)), math.inf
    for _ in range(60):
        q, turn, bend = drawn(robot, rng), *rng.normal(0.0, 0.1, (2, len(robot.joints)))
        ways = [q + t * turn - t * (1 - t) * bend for t in np.linspace(0, 1, 9)]
        start, *middles, goal = (collision.look_at(body, tuple(x.tolist())) for x in ways)
        leg = Leg(goal.q, frames(body.chain, goal.q), bend.tolist())
        most_m = collision.Way(body, what, start, leg).links_moved_m()
        straight_m = start.moved_m(goal)
        for i, (part, *_) in enumerate(body.capsules):
            here = np.array(start.axis(i))
            chord_m, *found_m = (
                float(np.linalg.norm(np.array(look.axis(i)) - here, axis=1).max())
                for look in (goal, *middles)
            )
            assert max(found_m) <= most_m[part] + 1e-9
            if part > 0:
                assert chord_m <= straight_m[part - 1] + 1e-9
                tightest = min(tightest, straight_m[part - 1] - chord_m)
    assert tightest < 1e-3, "a bound that is never nearly reached says little"


@pytest.mark.parametrize("robot", [Fr3(), Ur5e()], ids=lambda r: r.name)
def test_dismissing_the_far_ones_first_changes_no_verdict(
    robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a check that looks at all couples, of commands to arms that move."""
    limits, rng = cell(robot), np.random.default_rng(10)
    dismiss, what, counts = collision.Way._candidates, watched(limits), [0, 0]
    couples = (*what.pairs, *sorted(what.boxed, key=lambda couple: couple.one))

    def look_at_all(way: collision.Way, margin_m: float) -> list[tuple[collision.Couple, float]]:
        counts[0] += len(dismiss(way, margin_m))
        counts[1] += len(couples)
        return [(couple, way._start.distance_m(couple)) for couple in couples]

    held = 0
    for _ in range(150):
        q = np.array(robot.home_rad) + rng.normal(0.0, 0.8, len(robot.joints))
        q = np.clip(q, robot.joint_min_rad, robot.joint_max_rad)
        state = moving(robot, limits, q, rng)
        reading = read_state(limits, state)
        assert reading is not None
        target = read_pose(next(commands(limits, state, rng, 1)).tcp_target_in_base)
        assert target is not None
        found = collision.check(limits, reading, target)
        with monkeypatch.context() as patch:
            patch.setattr(collision.Way, "_candidates", look_at_all)
            assert collision.check(limits, reading, target) == found
        held += found.startswith("collision: ")
    assert 20 < held < 130 and counts[0] < 0.2 * counts[1], (held, counts)


@pytest.mark.parametrize("robot", [Fr3(), Ur5e()], ids=lambda r: r.name)
def test_least_turns_are_those_of_damped_least_squares(robot: Robot) -> None:
    rng, chain = np.random.default_rng(11), chain_of(robot)
    for _ in range(50):
        at = frames(chain, tuple(drawn(robot, rng).tolist()))
        j, twist = jacobian(chain, at), rng.normal(0.0, 0.1, 6)
        wanted = j.T @ np.linalg.solve(j @ j.T + 1e-6 * np.eye(6), twist)
        found = least_turns(chain, at, tuple(twist.tolist()))
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("robot", [Fr3(), Ur5e()], ids=lambda r: r.name)
def test_a_way_keeps_the_margin_between_the_samples_too(robot: Robot) -> None:
    """Straight ways in joint space against 40 samples of each."""
    limits, rng, body = cell(robot), np.random.default_rng(6), body_of(robot)
    margin_m, what = limits.collision_margin_m, watched(cell(robot))
    clear = passed = stopped = 0
    for _ in range(100):
        q = start(robot, limits, rng)
        goal = q + rng.normal(0.0, 0.12, len(q))
        ways = [tuple((q + t * (goal - q)).tolist()) for t in np.linspace(0, 1, 41)]
        looks = [collision.Look(body, x, frames(body.chain, x)) for x in ways]
        least_m = min(
            look.distance_m(couple) for look in looks for couple in (*what.pairs, *what.boxed)
        )
        leg = Leg(ways[-1], frames(body.chain, ways[-1]), [0.0] * len(q))
        found = collision.Way(body, what, looks[0], leg).too_near(margin_m)
        assert found is not None or least_m >= margin_m
        if least_m >= margin_m + 0.005:
            clear, passed = clear + 1, passed + (found is None)
        stopped += found is not None
    assert passed >= 0.95 * clear and stopped > 10, (clear, passed, stopped)


@pytest.mark.parametrize("robot", [Fr3(), Ur5e(), FiveJoints()], ids=lambda r: r.name)
def test_the_prediction_brings_the_tool_to_its_place(robot: Robot) -> None:
    """7, 6 and 5 joints; the redundant arm keeps the elbow where the least motion leaves it."""
    rng, chain, q = np.random.default_rng(7), chain_of(robot), tuple(robot.home_rad)
    at = frames(chain, q)
    here = Placement(tcp_at(chain, at), (0.0, 0.0, 0.0, 1.0))
    for _ in range(50):
        way = rng.normal(0.0, 0.02, 3)
        turn = rng.normal(0.0, 0.05, 3)
        half = np.linalg.norm(turn) / 2
        spin = (*(turn / (2 * half) * math.sin(half)).tolist(), math.cos(half))
        place = tuple((np.array(here.position) + way).tolist())
        (found,) = predict(chain, q, at, here, Placement(place, spin))
        np.testing.assert_allclose(tcp_at(chain, found.at), place, atol=1.1e-3)
        j, moved = jacobian(chain, at), np.array(found.joints_rad) - q
        elbow = moved - np.linalg.pinv(j) @ (j @ moved)
        assert np.linalg.norm(elbow) <= 0.02, "beyond the second order of such a motion"


@pytest.mark.parametrize("robot", [Fr3(), Ur5e()], ids=lambda r: r.name)
def test_the_joints_go_where_a_fine_controller_takes_them(robot: Robot) -> None:
    """Against MuJoCo's Jacobian in 60 small pieces; on the way and at its end; cut or not."""
    limits, rng, chain = cell(robot), np.random.default_rng(8), chain_of(robot)
    world, off_rad, cut, unknown = Cell(robot, {}, 0.0), [], 0, 0
    for _ in range(300):
        state = world.at_rest(start(robot, limits, rng))
        q = tuple(state.joint_position_rad.tolist())
        reading = read_state(limits, state)
        assert reading is not None
        command = next(commands(limits, state, rng, 1))
        target = read_pose(command.tcp_target_in_base)
        assert target is not None
        legs = predict(chain, q, frames(chain, q), reading.measured, target)
        unknown += not legs
        if not legs:
            continue
        real = list(world.go(command.tcp_target_in_base, 60))
        ends = np.array([leg.joints_rad for leg in legs])
        if len(legs) > 1:
            cut += 1
            off_rad.append(max(np.abs(ends - real[14::15]).max(), 0.0))
        else:
            middle = (np.array(q) + ends[0]) / 2 - np.array(legs[0].bend_rad) / 4
            off_rad.append(max(np.abs(ends[0] - real[-1]).max(), np.abs(middle - real[29]).max()))
    assert cut > 0 and unknown <= 15, (cut, unknown)
    assert np.median(off_rad) < 2e-3 and max(off_rad) < 0.05, np.percentile(off_rad, (50, 99, 100))


def test_a_way_next_to_a_singular_pose_is_not_known_and_held() -> None:
    """The UR5e's elbow nearly straight: the tool may come back, not go further out."""
    q = np.array((0.0, -0.8, 0.3, -0.8, -1.57, 0.0))
    limits = dataclasses.replace(cell(Ur5e()), obstacles={})
    state = at_rest(Ur5e(), q)
    reading = read_state(limits, state)
    assert reading is not None
    x, y, z = reading.measured.position
    out = Placement((1.04 * x, 1.04 * y, z), reading.measured.quaternion)
    assert collision.check(limits, reading, out) == collision.UNKNOWN
    back = Placement((0.98 * x, 0.98 * y, z), reading.measured.quaternion)
    assert collision.check(limits, reading, back) == ""


def wall_at(distance_m: float) -> Obstacle:
    """A wall beside the resting arm's hand, facing it along y."""
    return Obstacle(centre_in_base_m=(0.3, 0.13 + distance_m + 0.05, 0.5), size_m=(1.0, 0.1, 1.0))


def test_the_gate_holds_before_a_wall_and_lets_go_away_from_it() -> None:
    robot = Fr3()
    for gap_m, ways in ((0.012, (0.02, -0.02)), (0.002, (0.01, -0.01))):
        limits = dataclasses.replace(Limits(), obstacles={"table": TABLE, "wall": wall_at(gap_m)})
        bench = GateBench(limits, armed=False)
        bench.state = at_rest(robot, np.array(robot.home_rad))
        assert bench.arm() == ""
        bench.wait()
        into = bench.judge((0.0, ways[0], 0.0))
        assert into.outcome is Outcome.HOLD
        assert into.reason.startswith("collision: hand and wall"), into.reason
        bench.wait()
        assert bench.judge((0.0, ways[1], 0.0)).outcome is not Outcome.HOLD
        for other in (
            {"collision_arm": ""},
            {"obstacles": {"table": TABLE}},
            {"obstacles": {"wall": dataclasses.replace(wall_at(gap_m), may_touch=("hand",))}},
        ):
            free = GateBench(dataclasses.replace(limits, **other), armed=False)
            free.state = at_rest(robot, np.array(robot.home_rad))
            assert free.arm() == ""
            free.wait()
            assert free.judge((0.0, 0.01, 0.0)).outcome is not Outcome.HOLD


@pytest.mark.parametrize(
    ("speed_m_s", "way_m", "held"),
    [(0.0, 0.005, False), (0.25, 0.005, True), (-0.25, 0.005, False), (0.25, -0.005, False)],
)
def test_what_its_motion_carries_the_arm_into_counts(
    speed_m_s: float, way_m: float, held: bool
) -> None:
    """30 mm before a wall: 5 mm towards it at rest, on the run; and what leads away passes."""
    robot, q = Fr3(), np.array(Fr3().home_rad)
    limits = dataclasses.replace(Limits(), obstacles={"wall": wall_at(0.03)})
    chain = Chain(robot)
    twist = np.array((0.0, speed_m_s, 0.0, 0.0, 0.0, 0.0))
    speeds = np.linalg.pinv(chain.jacobian(chain.frames(q))) @ twist
    state = dataclasses.replace(at_rest(robot, q), joint_velocity_rad_s=speeds)
    reading = read_state(limits, state)
    assert reading is not None
    x, y, z = reading.measured.position
    target = Placement((x, y + way_m, z), reading.measured.quaternion)
    found = collision.check(limits, reading, target)
    assert found.startswith("collision: hand and wall") if held else found == ""


def test_another_number_of_joints_is_held_and_said() -> None:
    reading = read_state(Limits(), at_rest(Fr3(), np.array(Fr3().home_rad)))
    assert reading is not None
    found = collision.check(Limits(collision_arm="ur5e"), reading, reading.measured)
    assert found == "collision: 7 joints, but ur5e has 6"


def test_an_arm_that_nobody_knows_is_an_error_before_anything_moves() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ur5e'"):
        GateBench(Limits(collision_arm="ur5"), armed=False)


def test_a_robot_from_a_file_is_known_when_it_was_introduced() -> None:
    introduce(FiveJoints())
    near = collision.nearest(Limits.of(FiveJoints()), FiveJoints().home_rad)
    assert near is not None and near.distance_m > 0.0


def test_an_obstacle_in_the_arm_is_refused() -> None:
    limits = dataclasses.replace(Limits(), obstacles={"wall": wall_at(-0.05)})
    with pytest.raises(SafetyError, match="hand and wall, -") as error:
        collision.check_home(limits, Fr3().home_rad)
    assert "lengths of its edges" in str(error.value)
    collision.check_home(Limits(), Fr3().home_rad)
    collision.check_home(dataclasses.replace(limits, collision_arm=""), Fr3().home_rad)


def box(**changes: object) -> dict[str, object]:
    """Section `safety` with one box."""
    plain = {"centre_in_base_m": [0.5, 0.5, 0.5], "size_m": [0.1, 0.1, 0.1]}
    return {"obstacles": {"wall": {k: v for k, v in (plain | changes).items() if v is not None}}}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (box(size_m=[100.0, 0.1, 0.1]), "lengths of the edges"),
        (box(size_m=[0.1, 0.1, 0.0]), "lengths of the edges"),
        (box(size_m=[0.1, 0.1]), "safety.obstacles.wall.size_m"),
        (box(centre_in_base_m=[500.0, 0.0, 0.0]), "centre_in_base_m"),
        (box(centre_in_base_m=None), "centre_in_base_m"),
        (box(yaw_rad=90.0), "yaw_rad is in radians"),
        (box(yaw_rad=math.nan), "finite"),
        (box(centre_m=[0.5, 0.5, 0.5]), "did you mean 'centre_in_base_m'"),
        (box(may_touch=["hnd"]), "did you mean 'hand'"),
        ({"obstacles": {"wall": [0.5, 0.5]}}, "safety.obstacles.wall"),
    ],
)
def test_a_box_that_cannot_be_meant_is_refused_by_name(section: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(Limits, section, "safety")


def test_what_may_touch_is_said() -> None:
    limits = build(Limits, box(may_touch=["hand", "link7"]), "safety")
    assert limits.surroundings == "itself, wall (hand, link7 may touch it)"
    assert dataclasses.replace(limits, obstacles=AROUND).surroundings == "itself, table, wall, post"
    assert build(Limits, {"obstacles": {"table": None}}, "safety").boxes == ()
    assert "nothing" in Limits(collision_arm="").surroundings
