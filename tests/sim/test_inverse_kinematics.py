"""From TCP targets to joint targets: limits, singular poses, the arm itself, and standing still."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mink", reason="mink is not installed: pip install 'robot-rl[ik]'")

from robot_rl.geometry import compose, pose, quat_from_rotvec
from robot_rl.robots import Fr3, Panda, Robot, Ur5e
from robot_rl.robots.ik import InverseKinematics
from robot_rl.safety.body import body_of
from robot_rl.safety.collision import nearest_of
from robot_rl.safety.limits import Limits
from robot_rl.tasks import ReachTask
from robot_rl.types import Pose
from robot_rl_sim.inverse_kinematics import RAMP_S, SLACK_RAD, MinkKinematics
from robot_rl_sim.robot import MujocoRobot

DT_S = 0.008
ARMS = (Ur5e(), Fr3(), Panda())


class Walk:
    """Joints that a solver moves, with what must never happen checked at each step."""

    def __init__(self, robot: Robot, start_rad: np.ndarray | None = None) -> None:
        self.robot, self.limits = robot, Limits.of(robot)
        self.solver = MinkKinematics(robot, self.limits)
        self.q = np.array(robot.home_rad) if start_rad is None else start_rad.copy()
        self.v = np.zeros_like(self.q)
        self.most_rad = 0.0
        self.held_by = ""
        self.hardest = 1.0  # share of the acceleration that may be used
        self._speed = 0.5 * np.array([joint.velocity_rad_s for joint in robot.joints])

    @property
    def tcp(self) -> Pose:
        """Where the TCP is."""
        return self.solver.forward(self.q, self.v)[0]

    def to(
        self, target: Pose | np.ndarray, seconds: float, *, brakes_hard: bool = False
    ) -> tuple[float, float]:
        """Walk; what is left (m, rad). brakes_hard: joints may, who keep the arm from itself."""
        left = (0.0, 0.0)
        margin = self.limits.joint_margin_rad
        low = np.array(self.limits.joint_min_rad) + margin
        high = np.array(self.limits.joint_max_rad) - margin
        for _ in range(round(seconds / DT_S)):
            step = self.solver.step(self.q, self.v, target, DT_S)
            assert np.allclose(step.position_rad, self.q + DT_S * step.velocity_rad_s)
            assert (np.abs(step.velocity_rad_s) <= self._speed + 1e-6).all()
            change = np.abs(step.velocity_rad_s - self.v)
            assert (change <= self.hardest * self._speed / RAMP_S * DT_S + 1e-6).all()
            assert (step.position_rad >= low).all() and (step.position_rad <= high).all()
            self.most_rad = max(self.most_rad, float(np.abs(step.position_rad - self.q).max()))
            self.q, self.v = step.position_rad, step.velocity_rad_s
            left, self.held_by = (step.left_m, step.left_rad), step.held_by
        return left


def offset(tcp: Pose, x: float, y: float, z: float) -> Pose:
    """`tcp`, moved in base."""
    return pose(tcp.position_m + np.array((x, y, z)), tcp.quaternion_xyzw)


@pytest.mark.parametrize("robot", ARMS, ids=lambda r: r.name)
def test_forward_is_what_the_simulated_arm_says(robot: Robot) -> None:
    simulated, solver = MujocoRobot(ReachTask(), robot), MinkKinematics(robot, Limits.of(robot))
    assert isinstance(solver, InverseKinematics)
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = np.array(robot.home_rad) + rng.normal(0.0, 0.3, len(robot.joints))
        v = rng.normal(0.0, 1.0, len(q))
        tcp, twist = solver.forward(q, v)
        expected = simulated.tcp_at(q.tolist())
        assert np.allclose(tcp.position_m, expected.position_m, atol=1e-9)
        assert abs(tcp.quaternion_xyzw @ expected.quaternion_xyzw) == pytest.approx(1.0)
        after = solver.forward(q + 1e-6 * v, v)[0]
        assert np.allclose((after.position_m - tcp.position_m) / 1e-6, twist[:3], atol=1e-4)


@pytest.mark.parametrize("robot", ARMS, ids=lambda r: r.name)
def test_it_reaches_targets_and_stands_there_with_every_joint(robot: Robot) -> None:
    walk = Walk(robot)
    start = walk.tcp
    turned = compose(
        offset(start, 0.08, -0.1, -0.1), pose((0, 0, 0), quat_from_rotvec((0, 0, 0.5)))
    )
    left_m, left_rad = walk.to(turned, 4.0)
    assert left_m < 5e-4 and left_rad < 3e-3 and not walk.held_by
    before = walk.q.copy()
    walk.to(walk.tcp, 1.0)
    assert np.abs(walk.q - before).max() < 2e-3  # no elbow wanders


@pytest.mark.parametrize("robot", ARMS, ids=lambda r: r.name)
def test_who_is_told_to_stay_stays_also_away_from_home(robot: Robot) -> None:
    rng = np.random.default_rng(1)
    walk = Walk(robot, np.array(robot.home_rad) + rng.uniform(-0.3, 0.3, len(robot.joints)))
    before = walk.q.copy()
    walk.to(walk.tcp, 2.0)
    assert np.abs(walk.q - before).max() < 1e-4


@pytest.mark.parametrize(
    "robot",
    # a Panda's joints are an FR3's
    [pytest.param(r, marks=[pytest.mark.slow] * isinstance(r, Panda)) for r in ARMS],
    ids=lambda r: r.name,
)
@pytest.mark.parametrize(
    "way", [(2.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.0, 0.0, 2.0)], ids=("x", "y", "z")
)
def test_a_straight_arm_slows_down_and_comes_back(
    robot: Robot, way: tuple[float, float, float]
) -> None:
    """Two metres away: beyond each arm's reach, where the Jacobian loses a rank."""
    walk = Walk(robot)
    start = walk.tcp
    left_m, _ = walk.to(offset(start, *way), 8.0)
    assert left_m > 0.3 and walk.held_by
    assert np.abs(walk.v).max() < 0.05  # it creeps to the nearest place; it does not hunt
    left_m, left_rad = walk.to(start, 8.0)
    assert left_m < 2e-3 and left_rad < 0.02 and not walk.held_by


def test_the_end_of_a_joint_is_approached_slowly_and_said() -> None:
    walk = Walk(Fr3())
    start = walk.tcp
    assert walk.to(pose((0.1, 0.0, 0.3), start.quaternion_xyzw), 6.0)[0] > 0.02
    assert walk.held_by.startswith("the end of fr3_joint")
    margin = walk.limits.joint_margin_rad + SLACK_RAD
    room = np.minimum(
        walk.q - np.array(walk.limits.joint_min_rad), np.array(walk.limits.joint_max_rad) - walk.q
    )
    assert room.min() == pytest.approx(margin, abs=2e-3)
    assert walk.to(start, 6.0)[0] < 2e-3


def test_a_joint_beyond_its_end_comes_back_and_goes_no_further() -> None:
    robot = Fr3()
    limits = replace(Limits.of(robot), joint_margin_rad=0.3)
    solver = MinkKinematics(robot, limits)
    q = np.array(robot.home_rad)
    q[5] = limits.joint_min_rad[5] + 0.2  # inside the margin
    v, before = np.zeros(7), q[5]
    target = solver.forward(q, v)[0]
    for _ in range(250):
        step = solver.step(q, v, target, DT_S)
        assert step.position_rad[5] >= q[5] - 1e-9
        q, v = step.position_rad, step.velocity_rad_s
    assert q[5] > before + 0.05


@pytest.mark.parametrize("robot", [Ur5e(), Fr3()], ids=lambda r: r.name)
def test_the_arm_keeps_away_from_itself(robot: Robot) -> None:
    """Targets inside the arm; distances by the gate's own check, another implementation."""
    walk, body = Walk(robot), body_of(robot)
    walk.hardest = 3.0  # who would touch himself may brake harder
    start, rng = walk.tcp, np.random.default_rng(2)
    least_m, held = 1.0, set()
    for _ in range(6):
        inside = rng.uniform((-0.15, -0.15, 0.1), (0.15, 0.15, 0.5))
        for goal in (pose(inside, start.quaternion_xyzw), start):
            for _ in range(20):
                walk.to(goal, 0.12)
                held.add(walk.held_by)
                near = nearest_of(body, body.pairs, tuple(walk.q.tolist()))
                assert near is not None
                least_m = min(least_m, near.distance_m)
    assert least_m > walk.limits.collision_margin_m
    assert any(held)


def test_braking_ends_at_rest_within_the_ramp() -> None:
    walk = Walk(Ur5e())
    walk.to(offset(walk.tcp, 0.3, 0.0, -0.1), 0.4)
    assert np.abs(walk.v).max() > 0.1
    q, v = walk.q, walk.v
    for _ in range(round(RAMP_S / DT_S) + 1):
        step = walk.solver.brake(q, v, DT_S)
        assert (np.abs(step.velocity_rad_s) <= np.abs(v)).all()
        q, v = step.position_rad, step.velocity_rad_s
    assert not v.any()


def test_an_arm_with_five_joints_gives_the_place_and_what_it_can_of_the_turn() -> None:
    robot = FiveJoints()
    walk = Walk(robot)
    start = walk.tcp
    left_m, left_rad = walk.to(offset(start, 0.0, 0.15, -0.05), 5.0)
    assert left_m < 2e-3 and left_rad > 0.02  # it turned with the first joint
    assert not walk.held_by  # what it cannot turn is no failure
    assert walk.to(start, 5.0)[0] < 1e-3


class FiveJoints(Ur5e):
    """A UR5e whose wrist has lost its second joint: pan, lift, elbow, wrist, roll."""

    name = "five"
    joints = (
        *Ur5e.joints[:4],
        replace(
            Ur5e.joints[5],
            position_m=(0.0, -0.0997, 0.0),
            quaternion_xyzw=(0.5, -0.5, 0.5, 0.5),
        ),
    )
    home_rad = (0.0, -1.57, 1.57, -1.57, 0.0)
    capsules = ()


@pytest.mark.parametrize("robot", ARMS, ids=lambda r: r.name)
def test_a_joint_target_is_reached_straight_and_under_the_same_limits(robot: Robot) -> None:
    walk = Walk(robot)
    start = walk.q.copy()
    goal = start + np.linspace(-0.3, 0.3, len(start))
    away, left_m, left_rad = [], 1.0, 1.0
    for _ in range(round(3.0 / DT_S)):
        left_m, left_rad = walk.to(goal, DT_S)  # checks ranges, speeds and accelerations
        way, whole = walk.q - start, goal - start
        share = float(way @ whole) / float(whole @ whole)
        away.append(float(np.abs(way - share * whole).max()))
        assert share < 1.001  # it does not overshoot
    assert np.allclose(walk.q, goal, atol=1e-3) and left_rad < 1e-3 and left_m == 0.0
    assert max(away) < 1e-3  # from the straight line between the two, which the gate has checked


def test_a_joint_target_inside_the_arm_itself_is_not_reached() -> None:
    """The gate holds such a command; the node keeps its own distance all the same."""
    robot = Ur5e()
    walk = Walk(robot)
    folded = walk.q.copy()
    folded[2] = 2.9  # the forearm folded onto the upper arm
    body = body_of(robot)
    nearest = []
    walk.hardest = 1e9
    for _ in range(60):
        walk.to(folded, 5 * DT_S)
        near = nearest_of(body, body.pairs, tuple(walk.q.tolist()))
        assert near is not None
        nearest.append(near.distance_m)
    assert min(nearest) > walk.limits.collision_margin_m


def test_a_joint_target_beyond_its_range_ends_inside() -> None:
    robot = Fr3()
    walk = Walk(robot)
    walk.to(walk.q + 5.0 * np.eye(7)[6], 8.0)
    end = walk.limits.joint_max_rad[6] - walk.limits.joint_margin_rad - SLACK_RAD
    assert walk.q[6] == pytest.approx(end, abs=2e-3)
