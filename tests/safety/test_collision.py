"""Collision check: distances, kinematics against MuJoCo, coverage, and what the gate does."""

from __future__ import annotations

import dataclasses
import math
import sys
import time

import mujoco
import numpy as np
import pytest

from robot_rl.geometry import pose
from robot_rl.robots import Fr3, Panda, Robot, Ur5e
from robot_rl.safety import collision
from robot_rl.safety.limits import TABLE, Limits
from robot_rl.safety.readings import Placement, read_pose, read_state
from robot_rl.types import Outcome, Pose, RobotState
from robot_rl_sim.arm import HAND, add_arm, add_hand, covers_of, link
from robot_rl_sim.scene import dress
from tests.support.gate_bench import GateBench

ROBOTS = (Fr3(), Panda(), Ur5e())
WALL = (0.5, 0.5, 0.4, 0.4, 0.05, 0.4, 0.3)


def model_of(robot: Robot, boxes: tuple = ()) -> mujoco.MjModel:
    """The arm alone, with the simulator's own covers as geoms that collide, and boxes."""
    spec = mujoco.MjSpec()
    last = add_arm(spec.worldbody, robot)
    add_hand(last, robot, moving=False, width_m=0.04, friction=1.0)
    for i in range(len(robot.covers)):
        if i == 0:
            for name in ("dark", "joint", "cover", "light_ring"):
                spec.add_material(name=name)
    dress(spec, robot)
    for geom in spec.geoms:
        finger = geom.parent.name.startswith("finger")
        geom.contype, geom.conaffinity = (0, 0) if finger else (1, 1)
    n = len(robot.joints)
    names = [link(robot, i) for i in range(n + 1)] + [HAND]
    for i, one in enumerate(names):
        for k, other in enumerate(names):
            if k - i == 1 or (i, k) in robot.neighbours:
                spec.add_exclude(bodyname1=one, bodyname2=other)
    for i, (x, y, z, a, b, c, yaw) in enumerate(boxes):
        body = spec.worldbody.add_body(
            name=f"box{i}", pos=(x, y, z), quat=(math.cos(yaw / 2), 0, 0, math.sin(yaw / 2))
        )
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=(a, b, c))
        for one in names[:2]:
            spec.add_exclude(bodyname1=one, bodyname2=f"box{i}")
    return spec.compile()


def drawn(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    """Joints at random in their ranges."""
    return rng.uniform(robot.joint_min_rad, robot.joint_max_rad)


def at_work(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    """Joints at random with the TCP in the robot's box, or up to 0.1 m outside."""
    arm = collision.arm_of(robot)
    low, high = np.array(robot.workspace_min_m) - 0.1, np.array(robot.workspace_max_m) + 0.1
    while True:
        q = np.array(robot.home_rad) + rng.normal(0.0, 0.6, len(robot.joints))
        q = np.clip(q, robot.joint_min_rad, robot.joint_max_rad)
        tcp = np.array(collision.tcp_at(arm, frames(arm, q)))
        if (low <= tcp).all() and (tcp <= high).all():
            return q


def frames(arm: collision.Arm, q: np.ndarray) -> list[collision.Frame]:
    """Frames at `q` (rad)."""
    return collision.frames(arm, tuple(q.tolist()))


def test_distances_agree_with_brute_force() -> None:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 201)[:, None]
    for _ in range(200):
        a, b, c, d = rng.uniform(-0.5, 0.5, (4, 3))
        p, q = a + t * (b - a), c + t * (d - c)
        brute = float(np.linalg.norm(p[:, None] - q[None], axis=2).min())
        found = collision.segment_segment((tuple(a), tuple(b)), (tuple(c), tuple(d)))
        assert brute - 0.02 <= found <= brute + 1e-9
        box = (*rng.uniform(-0.3, 0.3, 3), *rng.uniform(0.02, 0.3, 3), rng.uniform(-3, 3))
        cos, sin = math.cos(box[6]), math.sin(box[6])
        v = (p - box[:3]) @ np.array(((cos, -sin, 0), (sin, cos, 0), (0, 0, 1)))
        brute = float(np.linalg.norm(np.maximum(np.abs(v) - box[3:6], 0), axis=1).min())
        found = collision.segment_box((tuple(a), tuple(b)), box)
        assert brute - 0.01 <= found <= brute + 1e-6


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda r: r.name)
def test_kinematics_are_mujocos(robot: Robot) -> None:
    rng, model, arm = np.random.default_rng(1), model_of(robot), collision.arm_of(robot)
    data = mujoco.MjData(model)
    for _ in range(20):
        q = drawn(robot, rng)
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        at = frames(arm, q)
        np.testing.assert_allclose(collision.tcp_at(arm, at), data.site("tcp").xpos, atol=1e-9)
        np.testing.assert_allclose(
            np.array(at[-1][0]).T, data.body(HAND).xmat.reshape(3, 3), atol=1e-9
        )
        jac = np.zeros((6, model.nv))
        mujoco.mj_jacSite(model, data, jac[:3], jac[3:], model.site("tcp").id)
        np.testing.assert_allclose(collision.jacobian(arm, at), jac, atol=1e-9)


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda r: r.name)
def test_capsules_cover_what_the_simulator_draws(robot: Robot) -> None:
    names = [link(robot, i) for i in range(len(robot.joints) + 1)] + [HAND]
    by_link = {name: [c for c in robot.capsules if names[c.link] == name] for name in names}
    for body, cover in covers_of(robot):
        if body not in by_link:
            continue  # fingers: their contact is the task
        for point, radius_m in surface(cover):
            gaps = []
            for c in by_link[body]:
                a, d = np.array(c.start_m), np.array(c.end_m) - c.start_m
                t = np.clip((point - a) @ d / (d @ d), 0, 1)
                gaps.append(float(np.linalg.norm(point - a - t * d)) + radius_m - c.radius_m)
            assert min(gaps) <= 5e-4, (robot.name, body, cover, min(gaps))


def surface(cover: object) -> list[tuple[np.ndarray, float]]:
    """Points with a radius, whose hull the cover is."""
    shape, start, end, radius_m = (
        getattr(cover, n) for n in ("shape", "start_m", "end_m", "radius_m")
    )
    a, b = np.array(start, float), np.array(end, float)
    if shape == "rod":
        return [(a + t * (b - a), radius_m) for t in np.linspace(0, 1, 5)]
    if shape == "box":
        signs = np.array(np.meshgrid(*[(-1, 1)] * 3)).reshape(3, -1).T
        return [(a + b * s, 0.0) for s in signs]
    n = (b - a) / np.linalg.norm(b - a)
    v = np.cross(n, (1, 0, 0) if abs(n[0]) < 0.9 else (0, 1, 0))
    v /= np.linalg.norm(v)
    turns = np.linspace(0, 2 * math.pi, 32, endpoint=False)
    rim = [radius_m * (math.cos(x) * v + math.sin(x) * np.cross(n, v)) for x in turns]
    return [(a + t * (b - a) + r, 0.0) for t in np.linspace(0, 1, 5) for r in rim]


def state_at(robot: Robot, q: np.ndarray) -> RobotState:
    """A robot at rest at `q` (rad)."""
    at = frames(collision.arm_of(robot), q)
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.array(at[-1][0]).T.ravel())
    tcp = Pose(np.array(collision.tcp_at(collision.arm_of(robot), at)), quat[[1, 2, 3, 0]])
    return RobotState(0.0, q, np.zeros(len(q)), tcp, np.zeros(6), np.zeros(6), 0.04)


def wall_at(distance_m: float) -> tuple:
    """A wall in front of the resting arm's foremost capsule, facing it along y."""
    return (0.3, 0.13 + distance_m + 0.05, 0.5, 0.5, 0.05, 0.5, 0.0)


def test_the_gate_holds_before_a_wall_and_lets_go_away_from_it() -> None:
    q = np.array(Fr3().home_rad)
    for gap_m, ways in ((0.012, (0.02, -0.02)), (0.002, (0.01, -0.01))):
        limits = dataclasses.replace(Limits(), obstacles=(TABLE, wall_at(gap_m)))
        bench = GateBench(limits, armed=False)
        bench.state = state_at(Fr3(), q)
        assert bench.arm() == ""
        bench.wait()
        into = bench.judge((0.0, ways[0], 0.0))
        assert into.outcome is Outcome.HOLD
        assert into.reason.startswith("collision: hand and obstacle 1"), into.reason
        bench.wait()
        assert bench.judge((0.0, ways[1], 0.0)).outcome is not Outcome.HOLD
    off = dataclasses.replace(limits, collision_arm="")
    bench = GateBench(off)
    bench.wait()
    assert bench.judge((0.0, 0.01, 0.0)).outcome is not Outcome.HOLD


def test_another_number_of_joints_is_held_and_said() -> None:
    reading = read_state(Limits(), state_at(Fr3(), np.array(Fr3().home_rad)))
    assert reading is not None
    found = collision.check(Limits(collision_arm="ur5e"), reading, reading.measured)
    assert found == "collision: 7 joints, but ur5e has 6"


@pytest.mark.parametrize("robot", [Fr3(), Ur5e()], ids=lambda r: r.name)
@pytest.mark.parametrize(
    "commands", [1_500, pytest.param(500_000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
)
def test_random_commands_touch_nothing(
    robot: Robot, commands: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What passes is played in MuJoCo on the covers, along the predicted joints' straight line."""
    rng, arm = np.random.default_rng(2), collision.arm_of(robot)
    limits = dataclasses.replace(Limits.of(robot), obstacles=(TABLE, WALL), max_tilt_rad=math.pi)
    margin_m = limits.collision_margin_m
    model = model_of(robot, limits.obstacles)
    data = mujoco.MjData(model)
    contacts = passed = clear = clear_passed = unknown = done = 0
    took_s: list[float] = []
    while done < commands:
        q = at_work(robot, rng)
        here = collision.nearest(
            arm, limits.obstacles, collision.capsules_at(arm, frames(arm, q))
        ).distance_m
        if here < margin_m or (here > 0.06 and rng.random() < 0.7):
            continue  # starts near something are the interesting ones
        done += 1
        state = state_at(robot, q)
        reading, measured = read_state(limits, state), read_pose(state.tcp_in_base)
        assert reading is not None and measured is not None
        way = rng.normal(size=3)
        way *= rng.uniform(0, limits.max_step_m) / np.linalg.norm(way)
        turn = rng.normal(size=3)
        turn *= rng.uniform(0, limits.max_step_rad) / np.linalg.norm(turn)
        half = np.linalg.norm(turn) / 2
        spin = (*(turn / (2 * half) * math.sin(half)).tolist(), math.cos(half))
        goal = _turned(measured, way, spin)
        t = time.process_time()
        reason = collision.check(limits, reading, goal)
        took_s.append(time.process_time() - t)
        unknown += reason == collision.UNKNOWN
        end = collision.predict(arm, reading.joints_rad, frames(arm, q), measured, goal)
        if end is None:
            continue
        line = [q + s * (np.array(end) - q) for s in np.linspace(0, 1, 9)]
        if not reason:
            passed += 1
            for at in line[1:]:
                data.qpos[:] = at
                mujoco.mj_kinematics(model, data)
                mujoco.mj_collision(model, data)
                contacts += data.ncon > 0
        least = min(
            collision.nearest(
                arm, limits.obstacles, collision.capsules_at(arm, frames(arm, at))
            ).distance_m
            for at in line
        )
        if least >= margin_m + 0.005:
            clear += 1
            clear_passed += not reason
    p50, p99 = np.percentile(np.array(took_s) * 1e6, (50, 99))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{robot.name}: {commands} commands, {passed} passed, {contacts} contacts, "
            f"{clear_passed}/{clear} of the clear ones passed, {unknown} not predicted, "
            f"check p50 {p50:.0f} us, p99 {p99:.0f} us\n"
        )
    assert contacts == 0
    assert clear_passed >= 0.95 * (clear + unknown) and clear > commands // 5


def _turned(measured: Placement, way: np.ndarray, spin: tuple) -> Placement:
    x, y, z, w = spin
    i, j, k, r = measured.quaternion
    turned = (
        w * i + x * r + y * k - z * j,
        w * j - x * k + y * r + z * i,
        w * k + x * j - y * i + z * r,
        w * r - x * i - y * j - z * k,
    )
    target = read_pose(pose(np.array(measured.position) + way, np.array(turned)))
    assert target is not None
    return target
