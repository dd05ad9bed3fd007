"""The simulated arms keep the promises of `RobotPort` and `Clock`, whichever engine moves them."""

from __future__ import annotations

import importlib.util
import itertools

import numpy as np
import pytest

from robot_rl.config.registry import resolve
from robot_rl.geometry import compose, pose
from robot_rl.ports import Clock, RobotPort
from robot_rl.types import Command, Driver, Pose
from robot_rl_sim.isaac import IsaacRobot
from robot_rl_sim.physx import PhysxRobot
from robot_rl_sim.robot import MujocoRobot
from tests.support.isaac import use_stand_in

TASKS = ("peg_insert", "lift", "pick_insert", "reach")
ENGINES = {"mujoco": MujocoRobot, "physx": PhysxRobot, "isaac": IsaacRobot}


CASES = [case for case in itertools.product(ENGINES, TASKS) if case not in (
    ("isaac", "pick_insert"), ("isaac", "reach"),  # a process for each test; they show nothing new
)]  # fmt: skip


@pytest.fixture(params=CASES, ids="-".join)
def robot(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MujocoRobot:
    """A fresh robot, never reset: ports must work from the first moment."""
    engine, task = request.param
    if engine == "isaac":  # as far as it can be run here
        pytest.importorskip("pxr")
        use_stand_in(monkeypatch, f"experiment={task}")
    if engine == "physx" and importlib.util.find_spec("ovphysx") is None:
        pytest.skip("PhysX is not installed: .ci/physx runs these")
    return ENGINES[engine](resolve("task", {"name": task}))


def raised(tcp: Pose, by_m: float) -> Pose:
    """`tcp`, higher."""
    return compose(pose((0.0, 0.0, by_m)), tcp)


def test_it_is_a_robot_port_and_a_clock(robot: MujocoRobot) -> None:
    assert isinstance(robot, RobotPort)
    assert isinstance(robot, Clock)


def test_state_has_the_documented_shapes_dtypes_and_units(robot: MujocoRobot) -> None:
    state = robot.read()
    assert state.stamp_s == robot.now_s()
    for array, size in (
        (state.joint_position_rad, 7),
        (state.joint_velocity_rad_s, 7),
        (state.tcp_in_base.position_m, 3),
        (state.tcp_in_base.quaternion_xyzw, 4),
        (state.tcp_twist_in_base, 6),
        (state.wrench_in_tcp, 6),
    ):
        assert array.shape == (size,)
        assert array.dtype == np.float64
        assert np.isfinite(array).all()
    assert 0.0 <= state.gripper_width_m <= 0.081
    assert np.linalg.norm(state.tcp_in_base.quaternion_xyzw) == pytest.approx(1.0)
    assert state.objects.keys() == robot.task.sample_reset(np.random.default_rng(0)).objects.keys()


def test_states_are_copies(robot: MujocoRobot) -> None:
    before = robot.read()
    kept = before.joint_position_rad.copy(), before.tcp_in_base.position_m.copy()
    target = raised(before.tcp_in_base, 0.02)
    robot.apply(Command(0, 0.0, Driver.POLICY, "test", target))
    robot.advance(0.3)
    assert np.array_equal(before.joint_position_rad, kept[0])
    assert np.array_equal(before.tcp_in_base.position_m, kept[1])
    assert robot.read().tcp_in_base.position_m[2] > kept[1][2] + 0.01


def test_apply_returns_at_once_and_only_time_moves_the_arm(robot: MujocoRobot) -> None:
    before = robot.read()
    robot.apply(Command(0, 0.0, Driver.POLICY, "test", raised(before.tcp_in_base, 0.02)))
    after = robot.read()
    assert after.stamp_s == before.stamp_s
    assert np.array_equal(after.joint_position_rad, before.joint_position_rad)


def test_clock_never_goes_back_and_sleeps_to_absolute_deadlines(robot: MujocoRobot) -> None:
    start_s = robot.now_s()
    robot.sleep_until_s(start_s + 0.25)
    assert robot.now_s() == pytest.approx(start_s + 0.25, abs=1e-9)
    robot.sleep_until_s(start_s)  # passed: returns at once
    assert robot.now_s() == pytest.approx(start_s + 0.25, abs=1e-9)
    robot.reset(robot.task.sample_reset(np.random.default_rng(1)))
    assert robot.now_s() >= start_s + 0.25


def test_ten_hertz_deadlines_do_not_drift(robot: MujocoRobot) -> None:
    start_s = robot.now_s()
    for k in range(1, 51):
        robot.sleep_until_s(start_s + 0.1 * k)
    assert robot.now_s() == pytest.approx(start_s + 5.0, abs=1e-9)


def test_no_command_means_no_motion(robot: MujocoRobot) -> None:
    before = robot.read().tcp_in_base.position_m
    robot.advance(1.0)
    assert robot.read().tcp_in_base.position_m == pytest.approx(before, abs=1e-6)
