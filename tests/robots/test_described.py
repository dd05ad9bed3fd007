"""A robot as data: from YAML to a checked arm, to limits, to the simulated arm."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import mujoco
import numpy as np
import pytest

from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply
from robot_rl.robots import Described, Ur5e
from robot_rl.robots.chain import AXIS_RAD, Chain, axis_error_rad
from robot_rl.run.experiment import Experiment
from robot_rl.run.robot_file import text_of, write
from robot_rl.safety.kinematics import chain_of, frames, predict
from robot_rl.safety.readings import read_pose
from robot_rl.tasks.common import tool_down
from robot_rl.tasks.lift import LiftTask
from robot_rl.tasks.reach import ReachTask
from robot_rl_sim.builder import build_model
from tests.robots.test_urdf import ARMS, arm_of

each = pytest.mark.parametrize("name", ARMS)


def placed(name: str) -> Described:
    """An arm with a workspace, for tests that need no guess."""
    known = {"workspace_min_m": (0.2, -0.3, 0.1), "workspace_max_m": (0.6, 0.3, 0.5)}
    if name.startswith("ur"):  # in the middle of its ranges it would lie on the table
        known |= {"home_rad": Ur5e.home_rad, "neighbours": Ur5e.neighbours}
    return dataclasses.replace(arm_of(name), called=f"a_{name}", **known)  # type: ignore[arg-type]


@each
def test_yaml_and_simulator_say_the_same_arm(name: str, tmp_path: Path) -> None:
    robot = placed(name)
    write({robot.name: text_of(robot, "a test", ["a remark"])}, tmp_path)
    experiment = Experiment.compose([f"robot={robot.name}", "task=reach"], tmp_path)
    assert experiment.robot == robot and experiment.robot.name == f"a_{name}"
    assert experiment.robot_limits.joint_max_rad == robot.joint_max_rad
    again = Experiment.from_dict(experiment.resolved())
    assert again.robot == robot  # a run folder is self-contained
    model = build_model(ReachTask().with_robot(robot), robot)
    data, chain, rng = mujoco.MjData(model), Chain(robot), np.random.default_rng(0)
    for _ in range(5):
        q = rng.uniform(chain.low_rad, chain.high_rad)
        data.qpos[: len(q)] = q
        mujoco.mj_kinematics(model, data)
        assert data.site("tcp").xpos == pytest.approx(chain.frames(q)[-1, :3, 3], abs=1e-9)
        turn = data.site("tcp").xmat.reshape(3, 3)
        assert turn == pytest.approx(chain.frames(q)[-1, :3, :3], abs=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"called": "my arm"}, "robot.called"),
        ({"home_rad": (0.0,) * 6}, "robot.home_rad"),
        ({"home_rad": (9.0,) * 7}, "robot.home_rad"),
        ({"workspace_min_m": (1.0, 0.0, 0.0)}, "robot.workspace_min_m"),
        ({"joints": placed("xarm7").joints[:4]}, "robot.joints"),
        ({"joints": placed("xarm7").joints[:6] * 2}, "robot.joints"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_key(change: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(placed("xarm7"), **change)


def test_a_key_that_is_misspelt_is_named(tmp_path: Path) -> None:
    robot = placed("xarm7")
    text = text_of(robot, "a test", []).replace("base_frame:", "base_fram:")
    with pytest.raises(ConfigError, match="base_frame"):
        write({robot.name: text}, tmp_path)
    assert not list((tmp_path / "robot").iterdir())


def test_a_task_that_grasps_refuses_an_arm_without_fingers() -> None:
    with pytest.raises(ConfigError, match="no fingers"):
        LiftTask().with_robot(placed("xarm7"))
    assert LiftTask().with_robot(placed("fr3")).spec.pose_action.gripper_open_m == 0.08


def test_reach_moves_into_the_workspace_of_a_small_arm() -> None:
    robot = dataclasses.replace(
        placed("so101"), workspace_min_m=(0.1, -0.1, 0.02), workspace_max_m=(0.2, 0.1, 0.08)
    )
    task, rng = ReachTask().with_robot(robot), np.random.default_rng(0)
    for _ in range(50):
        plan = task.sample_reset(rng)
        for place in (plan.tcp_in_base, plan.objects["target"]):
            assert (place.position_m > robot.workspace_min_m).all()
            assert (place.position_m < robot.workspace_max_m).all()


# --- five joints ----------------------------------------------------------------------------------


def test_five_joints_reach_the_place_and_turn_as_far_as_they_can() -> None:
    chain = Chain(arm_of("so101"))
    q = np.array((0.3, 0.1, 0.2, 1.2, 0.1))
    here = chain.tcp_in_base(q)
    assert chain.solve(here, q + 0.05) == pytest.approx(q, abs=1e-5)
    lean = quat_multiply(quat_from_rotvec((0.3, 0.0, 0.0)), here.quaternion_xyzw)
    goal = pose(here.position_m + np.array((0.005, 0.0, 0.0)), lean)
    near = chain.nearest(goal, q)
    assert near.position_m == pytest.approx(goal.position_m, abs=1e-6)
    found, frames, _, there = chain.approach(goal, q)
    assert not there and axis_error_rad(frames, goal) > AXIS_RAD
    with pytest.raises(RobotRLError, match="5 joints: the tool's axis is"):
        chain.solve(goal, found)


def test_the_gate_predicts_five_joints_as_the_arm_moves_them() -> None:
    robot = arm_of("so101")
    chain, known, rng = Chain(robot), chain_of(robot), np.random.default_rng(0)
    home = np.array((0.0, 0.1, 0.2, 1.2, 0.0))
    for _ in range(50):
        q = home + rng.uniform(-0.2, 0.2, 5)
        here = chain.tcp_in_base(q)
        turn = quat_from_rotvec(rng.uniform(-0.1, 0.1, 3))
        goal = pose(
            here.position_m + rng.uniform(-0.02, 0.02, 3), quat_multiply(turn, here.quaternion_xyzw)
        )
        measured, target = read_pose(here), read_pose(goal)
        assert measured is not None and target is not None
        angles = tuple(q.tolist())
        *_, end = predict(known, angles, frames(known, angles), measured, target)
        near, _, _, _ = chain.approach(goal, q)
        assert end.joints_rad == pytest.approx(near, abs=1e-3)


def test_a_place_that_is_out_of_reach_is_an_error() -> None:
    chain = Chain(arm_of("xarm7"))
    with pytest.raises(RobotRLError, match="out of the arm's reach"):
        chain.solve(tool_down(np.array((2.0, 0.0, 0.2))), np.zeros(7))
