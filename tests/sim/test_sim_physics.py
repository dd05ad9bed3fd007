"""The simulated arm: kinematics, impedance law, forces, determinism."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mujoco
import numpy as np
import pytest

from robot_rl.errors import RobotRLError
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply, rotation_error
from robot_rl.ports import ResetPlan
from robot_rl.robots import Fr3, fr3
from robot_rl.tasks import LiftTask, PegInsertTask, ReachTask, SimTask
from robot_rl.types import Command, Driver, Pose
from robot_rl_sim.builder import build_model
from robot_rl_sim.robot import MujocoRobot


def go(robot: MujocoRobot, target: Pose, seconds: float, width_m: float | None = None) -> None:
    """Command a target and let time pass."""
    robot.apply(Command(0, robot.now_s(), Driver.POLICY, "test", target, width_m))
    robot.advance(seconds)


def shifted(start: Pose, xyz_m: Sequence[float], rotvec_rad: Sequence[float] = (0, 0, 0)) -> Pose:
    """`start` moved and turned in base."""
    turned = quat_multiply(quat_from_rotvec(rotvec_rad), start.quaternion_xyzw)
    return pose(start.position_m + np.array(xyz_m), turned)


def at_start(task: SimTask, seed: int = 0) -> MujocoRobot:
    """A robot at a start of its task."""
    robot = MujocoRobot(task)
    robot.reset(task.sample_reset(np.random.default_rng(seed)))
    return robot


def above_hole() -> PegInsertTask:
    """Peg task that starts exactly above a hole at its nominal place."""
    return PegInsertTask(start_xy_m=0.0, start_yaw_rad=0.0, hole_xy_m=0.0)


def dh_tcp(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """TCP position and rotation from the DH table alone."""

    def transform(a: float, d: float, alpha: float, theta: float) -> np.ndarray:
        ca, sa, ct, st = math.cos(alpha), math.sin(alpha), math.cos(theta), math.sin(theta)
        return np.array(
            (
                (ct, -st, 0, a),
                (st * ca, ct * ca, -sa, -d * sa),
                (st * sa, ct * sa, ca, d * ca),
                (0, 0, 0, 1),
            )
        )

    pose_matrix = np.eye(4)
    for (a, d, alpha), theta in zip(fr3.DH, q, strict=True):
        pose_matrix = pose_matrix @ transform(a, d, math.radians(alpha), theta)
    hand = transform(0, fr3.FLANGE_M + Fr3.gripper.tcp_m, 0, math.radians(-45))
    pose_matrix = pose_matrix @ hand
    return pose_matrix[:3, 3], pose_matrix[:3, :3]


def test_forward_kinematics_is_the_dh_chain() -> None:
    model = build_model(ReachTask(), Fr3())
    data, tcp = mujoco.MjData(model), model.site("tcp").id
    rng = np.random.default_rng(0)
    for _ in range(20):
        q = rng.uniform(*np.array(fr3.RANGES_RAD).T)
        data.qpos[:7] = q
        mujoco.mj_kinematics(model, data)
        position, rotation = dh_tcp(q)
        assert data.site_xpos[tcp] == pytest.approx(position, abs=1e-9)
        assert data.site_xmat[tcp].reshape(3, 3) == pytest.approx(rotation, abs=1e-9)


def test_ready_pose_is_where_franka_says() -> None:
    """The TCP of the ready pose, as libfranka prints it: 0.307, 0, 0.487 m, fingers down."""
    q = np.array((0, -np.pi / 4, 0, -3 * np.pi / 4, 0, np.pi / 2, np.pi / 4))
    position, rotation = dh_tcp(q)
    assert position == pytest.approx((0.3069, 0.0, 0.4869), abs=2e-4)
    assert rotation == pytest.approx(np.diag((1.0, -1.0, -1.0)), abs=1e-9)


def test_masses_limits_and_torques_are_the_fr3s() -> None:
    model = build_model(ReachTask(), Fr3())
    masses = [model.body(f"fr3_link{i}").mass[0] for i in range(8)]
    assert masses == pytest.approx(
        [2.397, 2.927, 2.936, 2.245, 2.616, 2.327, 1.817, 0.627], abs=1e-3
    )
    assert model.body("hand").mass[0] == pytest.approx(0.6544)
    assert model.jnt_range[:7] == pytest.approx(np.array(fr3.RANGES_RAD))
    assert model.jnt_actfrcrange[:7, 1] == pytest.approx(fr3.TORQUES_NM)


def test_arm_floats_without_command_and_without_wrench() -> None:
    robot = at_start(PegInsertTask())
    before = robot.read()
    robot.advance(2.0)
    after = robot.read()
    assert after.tcp_in_base.position_m == pytest.approx(before.tcp_in_base.position_m, abs=1e-6)
    assert not after.wrench_in_tcp.any()


@pytest.mark.parametrize("task", [PegInsertTask(), LiftTask(), ReachTask()], ids=lambda t: t.name)
def test_free_space_converges_to_the_target(task: SimTask) -> None:
    robot = at_start(task)
    target = shifted(robot.read().tcp_in_base, (-0.02, 0.015, 0.02), (0.05, -0.04, 0.15))
    go(robot, target, 2.5)
    reached = robot.read().tcp_in_base
    assert np.abs(reached.position_m - target.position_m).max() < 2e-4
    assert np.abs(rotation_error(target, reached)).max() < 2e-3


def test_force_in_contact_is_stiffness_times_depth_up_to_the_clip() -> None:
    task = above_hole()
    robot = at_start(task)
    start = robot.read().tcp_in_base
    go(robot, shifted(start, (0.015, 0, -0.04)), 1.5)  # over the block, beside the hole
    law = task.impedance
    for depth_m, force_n in ((0.004, 0.004 * law.stiffness_n_m), (0.05, 20.0)):
        go(robot, shifted(start, (0.015, 0, -task.start_height_m - depth_m)), 2.0)
        wrench = robot.read().wrench_in_tcp
        assert wrench[2] == pytest.approx(-force_n, abs=0.1)  # the tool is pushed out, along -z
        assert force_n <= law.stiffness_n_m * law.clip_m[2] + 1e-9


def test_sideways_force_points_away_from_the_wall_and_is_clipped() -> None:
    task = above_hole()
    robot = at_start(task)
    start = robot.read().tcp_in_base
    for down_m in np.linspace(0, 0.06, 61):  # slowly, 10 mm into the hole
        go(robot, shifted(start, (0, 0, -down_m)), 0.2)
    for axis, offset in ((0, (0.02, 0, -0.06)), (1, (0, 0.02, -0.06))):
        go(robot, shifted(start, offset), 2.0)
        wrench = robot.read().wrench_in_tcp
        # TCP x is base x, TCP y is minus base y: the wall pushes back against the offset
        expected = (-6.0, 6.0)[axis]
        assert wrench[axis] == pytest.approx(expected, abs=0.4)
        # at rest the wrench balances the controller's six springs, lever arms included
        springs = robot.data.actuator_force[:12:2]
        assert wrench[:3] == pytest.approx(-springs[:3], abs=0.3)
        assert wrench[3:] == pytest.approx(-springs[3:], abs=0.03)
        assert np.abs(wrench[3:5]).max() > 0.1
        go(robot, shifted(start, (0, 0, -0.06)), 1.0)


def test_wrench_reads_zero_while_moving_in_free_air() -> None:
    robot = at_start(PegInsertTask())
    start = robot.read().tcp_in_base
    for k in range(20):
        go(robot, shifted(start, (0.01 * math.sin(k), 0.01 * math.cos(k), 0.01)), 0.1)
        assert np.abs(robot.read().wrench_in_tcp).max() < 1e-9


def test_twist_is_the_derivative_of_the_pose() -> None:
    robot = at_start(PegInsertTask())
    start = robot.read().tcp_in_base
    go(robot, shifted(start, (0.02, 0.01, 0.01), (0, 0, 0.1)), 0.1)
    a = robot.read()
    robot.advance(0.002)
    b = robot.read()
    linear = (b.tcp_in_base.position_m - a.tcp_in_base.position_m) / 0.002
    angular = rotation_error(b.tcp_in_base, a.tcp_in_base) / 0.002
    assert b.tcp_twist_in_base[:3] == pytest.approx(linear, abs=2e-3)
    assert b.tcp_twist_in_base[3:] == pytest.approx(angular, abs=1e-2)
    assert np.linalg.norm(linear) > 0.02  # it did move


def test_elbow_returns_to_its_posture_without_moving_the_tcp() -> None:
    undisturbed, robot = at_start(ReachTask()), at_start(ReachTask())
    home = robot.read()
    null_space = np.linalg.svd(robot._jacobian[:, :7])[2][-1]
    robot.data.qpos[:7] += 0.2 * null_space  # elbow aside
    robot.advance(5.0)
    undisturbed.advance(5.0)
    gap = robot.read().tcp_in_base.position_m - home.tcp_in_base.position_m
    assert np.abs(robot.data.qpos[:7] - undisturbed.data.qpos[:7]).max() < 0.002
    assert np.abs(gap).max() < 2e-4


def random_run(robot: MujocoRobot, task: SimTask, pieces: int = 1) -> np.ndarray:
    """State trajectory [20, nq + nv] under fixed random actions."""
    rng, rows, spec = np.random.default_rng(7), [], task.spec.action
    for k in range(20):
        action = rng.uniform(-1, 1, spec.size).astype(np.float32)
        action[2] = 1.0  # keep pressing down: contacts belong to the test
        state = robot.read()
        target, width = spec.target(action, state.tcp_in_base), spec.gripper_width_m(action)
        robot.apply(Command(k, state.stamp_s, Driver.POLICY, "test", target, width))
        for _ in range(pieces):
            robot.advance(0.1 / pieces)
        after = robot.read()
        rows.append(np.concatenate((robot.data.qpos, robot.data.qvel, after.wrench_in_tcp)))
    return np.array(rows)


@pytest.mark.parametrize("task", [PegInsertTask(), LiftTask()], ids=lambda t: t.name)
def test_same_seed_and_actions_give_bit_identical_states(task: SimTask) -> None:
    first = random_run(at_start(task), task)
    robot = at_start(task, seed=5)
    random_run(robot, task)  # an episode before it must leave no trace
    robot.advance(0.012)  # nor must the moment at which it ended
    robot.reset(task.sample_reset(np.random.default_rng(0)))
    assert np.array_equal(first, random_run(robot, task))


@pytest.mark.parametrize("pieces", [5, 50])
def test_advancing_in_pieces_is_bit_identical(pieces: int) -> None:
    task = PegInsertTask()
    whole, parts = random_run(at_start(task), task), random_run(at_start(task), task, pieces)
    assert np.array_equal(whole, parts)


def test_snapshot_restores_the_future() -> None:
    task = PegInsertTask(in_hand_m=0.001)
    robot = at_start(task)
    random_run(robot, task)
    saved = robot.snapshot()
    now_s = robot.now_s()
    future = random_run(robot, task)
    robot.reset(task.sample_reset(np.random.default_rng(9)))
    robot.restore(saved)
    assert robot.now_s() == now_s
    assert np.array_equal(future, random_run(robot, task))


def test_reset_reaches_the_plan_exactly_and_at_rest() -> None:
    task = PegInsertTask(in_hand_m=0.002)
    robot = MujocoRobot(task)
    for seed in range(20):
        plan = task.sample_reset(np.random.default_rng(seed))
        robot.reset(plan)
        state = robot.read()
        assert state.tcp_in_base.position_m == pytest.approx(plan.tcp_in_base.position_m, abs=1e-6)
        assert np.abs(rotation_error(plan.tcp_in_base, state.tcp_in_base)).max() < 1e-6
        assert not state.joint_velocity_rad_s.any()
        assert plan.held_in_tcp is not None
        peg = robot.data.body("peg").xpos - state.tcp_in_base.position_m
        tool = robot.data.site("tcp").xmat.reshape(3, 3)
        assert peg @ tool == pytest.approx(plan.held_in_tcp.position_m, abs=1e-9)


def test_place_objects_leaves_the_arm_alone() -> None:
    task = PegInsertTask()
    robot = at_start(task)
    go(robot, shifted(robot.read().tcp_in_base, (0.02, 0, 0.02)), 0.1)
    before = robot.read()
    plan = task.sample_reset(np.random.default_rng(4))
    robot.place_objects(plan)
    after = robot.read()
    assert np.array_equal(before.joint_position_rad, after.joint_position_rad)
    assert np.array_equal(before.joint_velocity_rad_s, after.joint_velocity_rad_s)
    hole = after.objects["hole"].position_m
    assert hole == pytest.approx(plan.objects["hole"].position_m, abs=1e-12)


def test_unreachable_start_and_unknown_object_are_refused() -> None:
    robot = at_start(ReachTask())
    far = pose((1.5, 0, 0.2), (1, 0, 0, 0))
    with pytest.raises(RobotRLError, match="out of the arm's reach"):
        robot.reset(ResetPlan(far, {}, 0.0))
    with pytest.raises(RobotRLError, match="not in the scene"):
        robot.place_objects(ResetPlan(far, {"banana": far}, 0.0))


@pytest.mark.parametrize("variant", ["std", "hard"])
def test_peg_never_passes_through_the_block(variant: str) -> None:
    """Penetration at every physics step of an insertion stays below the radial clearance."""
    task = PegInsertTask(variant=variant)
    robot, deepest_m = at_start(task, seed=1), 0.0
    expert = task.expert(1.0)
    expert.reset(np.random.default_rng(1))
    state = robot.read()
    for k in range(30):
        target = task.spec.action.target(expert.act(state), state.tcp_in_base)
        robot.apply(Command(k, state.stamp_s, Driver.POLICY, "test", target))
        for _ in range(round(0.1 / task.timestep_s)):
            robot.advance(task.timestep_s)
            if robot.data.ncon:
                deepest_m = max(deepest_m, -float(robot.data.contact.dist.min()))
        state = robot.read()
        if task.success(state):
            break
    assert task.success(state)
    assert deepest_m < (task.hole_width_m - task.peg_width_m) / 2


def test_pressing_beside_the_hole_never_gets_in() -> None:
    task = above_hole()
    robot = at_start(task)
    start = robot.read().tcp_in_base
    go(robot, shifted(start, (0.004, 0, -0.045)), 1.0)
    go(robot, shifted(start, (0.004, 0, -0.1)), 3.0)
    position, _ = task.tip_in_hole(robot.read())
    assert position[2] > -0.001


def test_gripper_holds_the_cube_with_a_bounded_force() -> None:
    task = LiftTask(cube_xy_m=0.0, cube_yaw_rad=0.0, start_xy_m=0.0)
    robot = at_start(task)
    cube = robot.read().objects["cube"]
    start = robot.read().tcp_in_base
    down = shifted(start, (0, 0, 0.02 - start.position_m[2]))
    go(robot, down, 2.0, width_m=0.08)
    go(robot, down, 1.5, width_m=0.0)
    held = robot.read()
    assert held.gripper_width_m == pytest.approx(0.04, abs=0.003)
    assert abs(robot.data.actuator("gripper").force[0]) <= Fr3.gripper.force_n + 1e-9
    go(robot, start, 3.0)  # None: keep the gripper as it is
    lifted = robot.read()
    raised_m = lifted.objects["cube"].position_m[2] - cube.position_m[2]
    assert raised_m > 0.14
    assert lifted.wrench_in_tcp[2] == pytest.approx(0.1 * 9.81, abs=0.1)  # its weight, downwards
    go(robot, start, 1.5, width_m=0.08)
    assert robot.read().objects["cube"].position_m[2] < 0.05  # let go: it falls


def test_reset_opens_the_gripper_and_it_stays_open() -> None:
    task = LiftTask()
    robot = at_start(task)
    go(robot, robot.read().tcp_in_base, 1.0, width_m=0.0)
    assert robot.read().gripper_width_m < 0.005
    robot.reset(task.sample_reset(np.random.default_rng(1)))
    assert robot.read().gripper_width_m == pytest.approx(0.08)
    robot.advance(0.5)
    assert robot.read().gripper_width_m == pytest.approx(0.08, abs=0.001)
