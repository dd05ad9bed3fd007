"""Robots: one file says everything, and limits, simulator, nodes and YAML agree with it."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
import yaml

from robot_rl.config.registry import build
from robot_rl.errors import ConfigError
from robot_rl.geometry import quat_to_matrix
from robot_rl.robots import Fr3, Panda, Robot, Ur5e
from robot_rl.ros.graph import SimGraphConfig, sim_graph
from robot_rl.run.experiment import Experiment
from robot_rl.safety.limits import Limits
from robot_rl.safety.sheet import sheet
from robot_rl.tasks.common import tool_down
from robot_rl.tasks.lift import LiftTask
from robot_rl_sim.builder import build_model
from robot_rl_sim.robot import MujocoRobot

ROBOTS = (Fr3(), Panda(), Ur5e())
CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "robot"
TASKS = ("reach", "lift", "peg_insert", "peg_insert_easy", "pick_insert")
each = pytest.mark.parametrize("robot", ROBOTS, ids=lambda r: r.name)


@each
def test_the_signed_file_says_every_limit_as_the_robots_own_file_does(robot: Robot) -> None:
    path = CONFIGS / f"{robot.name}.yaml"
    assert path.read_text() == sheet(robot), f"run: python -m robot_rl.safety.sheet {robot.name}"
    limits = Experiment.compose([f"robot={robot.name}"]).config["safety"]
    assert build(Limits, {k: v for k, v in limits.items() if k != "name"}) == Limits.of(robot)
    assert "NOT signed off on hardware" in path.read_text()


def test_every_robot_has_a_file_and_every_file_a_robot() -> None:
    files = {p.stem for p in CONFIGS.glob("*.yaml") if "driver:" not in p.read_text()}
    assert files == {robot.name for robot in ROBOTS}


@each
def test_the_gate_allows_no_joint_what_the_arm_cannot_do(robot: Robot) -> None:
    limits = Limits.of(robot)
    for joint, low, high in zip(
        robot.joints, limits.joint_min_rad, limits.joint_max_rad, strict=True
    ):
        assert (low, high) == joint.range_rad
        assert limits.joint_margin_rad > 0.0


@each
def test_the_simulated_arm_is_the_robots(robot: Robot) -> None:
    model = build_model(LiftTask(), robot)
    count = len(robot.joints)
    names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, i) for i in range(count + 2)]
    assert names == [*robot.joint_names, *robot.gripper.fingers]
    assert model.jnt_range[:count] == pytest.approx(np.array([j.range_rad for j in robot.joints]))
    assert model.jnt_actfrcrange[:count, 1] == pytest.approx([j.torque_nm for j in robot.joints])
    masses = [model.body(f"{robot.name}_link{i + 1}").mass[0] for i in range(count)]
    assert masses == pytest.approx([j.link.mass_kg for j in robot.joints])
    assert model.jnt_range[count : count + 2].sum() == pytest.approx(robot.gripper.stroke_m)


@each
@pytest.mark.parametrize("task", TASKS)
def test_every_task_starts_within_the_limits_of_every_robot(robot: Robot, task: str) -> None:
    experiment = Experiment.compose([f"experiment={task}", f"robot={robot.name}"])
    simulated = MujocoRobot(experiment.task, experiment.robot)  # type: ignore[arg-type]
    limits, margin = experiment.limits, experiment.limits.joint_margin_rad
    rng = np.random.default_rng(0)
    for _ in range(5):
        plan = experiment.task.sample_reset(rng)
        simulated.reset(plan)
        state = simulated.read()
        assert state.tcp_in_base.position_m == pytest.approx(plan.tcp_in_base.position_m, abs=1e-4)
        joints = state.joint_position_rad
        assert (joints > np.array(limits.joint_min_rad) + margin).all()
        assert (joints < np.array(limits.joint_max_rad) - margin).all()


@each
def test_the_arm_stands_still_and_goes_where_it_is_sent(robot: Robot) -> None:
    from robot_rl.types import Command, Driver

    task = LiftTask().with_robot(robot)
    arm = MujocoRobot(task, robot)
    plan = task.sample_reset(np.random.default_rng(0))
    arm.reset(plan)
    arm.advance(1.0)
    assert arm.read().tcp_in_base.position_m == pytest.approx(plan.tcp_in_base.position_m, abs=1e-3)
    target = tool_down(plan.tcp_in_base.position_m + np.array((0.02, -0.02, 0.02)))
    arm.apply(Command(1, arm.now_s(), Driver.POLICY, "test", target, 0.0))
    arm.advance(2.0)
    state = arm.read()
    assert state.tcp_in_base.position_m == pytest.approx(target.position_m, abs=1e-3)
    down = quat_to_matrix(state.tcp_in_base.quaternion_xyzw)
    assert down == pytest.approx(np.diag((1.0, -1.0, -1.0)), abs=1e-2)
    assert state.gripper_width_m == pytest.approx(0.0, abs=2e-3)


@each
def test_the_nodes_speak_of_the_robots_joints(robot: Robot) -> None:
    for spec in sim_graph(SimGraphConfig(), "runs/x", robot):
        if "joint_names" in spec.params:
            assert spec.params["joint_names"] == [*robot.joint_names]
            assert spec.params["finger_joint_names"] == [*robot.gripper.fingers]


def test_the_limits_of_another_robot_are_refused() -> None:
    with pytest.raises(ConfigError, match="another robot's"):
        Experiment.compose(["robot=ur5e", "safety.name=fr3"])


def test_the_action_opens_the_gripper_that_is_there() -> None:
    spec = Experiment.compose(["experiment=lift", "robot=ur5e"]).task.spec.pose_action
    assert spec.gripper_open_m == Ur5e.gripper.stroke_m == 0.085


def test_a_run_from_before_robots_had_files_still_has_its_limits() -> None:
    config = yaml.safe_load(yaml.safe_dump(dict(Experiment.compose([]).config)))
    del config["robot"]
    config["safety"] = {"name": "panda", "joint_min_rad": [-1.0] * 7, "joint_max_rad": [4.0] * 7}
    experiment = Experiment.from_dict(config)
    assert experiment.limits.joint_min_rad == (-1.0,) * 7 and experiment.robot == Fr3()
