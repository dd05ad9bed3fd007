"""A task that is poses in a YAML file: what it observes, what it calls success, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError
from robot_rl.geometry import quat_from_rotvec, quat_multiply
from robot_rl.ports import Task
from robot_rl.robots import Ur5e
from robot_rl.run.experiment import Experiment
from robot_rl.tasks import DescribedTask
from robot_rl.tasks.common import TOOL_DOWN_XYZW, tool_down, upright
from robot_rl.types import Pose, RobotState

START, GOAL = (0.50, 0.0, 0.12), (0.50, 0.0, 0.045)
SECTION: dict[str, Any] = {
    "name": "described",
    "starts_in_base": [{"position_m": list(START)}],
    "goal_in_base": {"position_m": list(GOAL)},
    "start_spread_m": [0.02, 0.02, 0.0],
    "start_spread_rad": 0.1,
    "workspace_min_m": [0.44, -0.06, 0.03],
    "workspace_max_m": [0.56, 0.06, 0.16],
}
SCENE = {"name": "peg_insert", "variant": "easy", "hole_xy_m": 0.0}
HOLE = {"hole": upright(np.array((0.5, 0.0, 0.03)))}


def make(**changes: Any) -> DescribedTask:
    task = resolve("task", SECTION | changes)
    assert isinstance(task, DescribedTask)
    return task


def state_at(tcp: Pose, **fields: Any) -> RobotState:
    zero, joints = np.zeros(6), np.zeros(6)
    return RobotState(0.0, joints, joints, tcp, zero, zero, 0.0, **fields)


def test_it_is_a_task_of_poses_alone() -> None:
    task = make(title="mine")
    assert isinstance(task, Task) and task.name == task.spec.task == "mine"
    assert not task.privileged and not task.needs_objects
    plan = task.sample_reset(np.random.default_rng(0))
    assert plan.objects == {} and plan.held_in_tcp is None
    observation = task.observe(state_at(plan.tcp_in_base), {})
    task.spec.check(observation)
    assert task.spec.state_layout[0][0] == "tcp_in_goal"


def test_starts_vary_about_each_of_the_poses_and_repeat() -> None:
    two = [{"position_m": list(START)}, {"position_m": [0.5, 0.03, 0.15]}]
    task = make(starts_in_base=two)
    drawn = [task.sample_reset(np.random.default_rng(seed)).tcp_in_base for seed in range(60)]
    again = task.sample_reset(np.random.default_rng(7)).tcp_in_base
    assert np.array_equal(again.position_m, drawn[7].position_m)
    heights = {round(float(p.position_m[2]), 3) for p in drawn}
    assert heights == {0.12, 0.15}
    at = np.array([p.position_m for p in drawn])
    assert (at >= task.workspace_min_m).all() and (at <= task.workspace_max_m).all()
    assert np.ptp(at[:, 0]) > 0.03


def test_the_state_is_told_from_the_goal_and_says_where_the_arm_was() -> None:
    turned = quat_multiply(quat_from_rotvec((0.0, 0.0, 0.3)), TOOL_DOWN_XYZW)
    goal = {"position_m": list(GOAL), "quaternion_xyzw": turned.tolist()}
    task = make(goal_in_base=goal)
    at = tool_down(np.array((0.51, -0.02, 0.11)), 0.1)
    vector = task.observe(state_at(at), {})["state"]
    assert task.tcp_position_m(vector) == pytest.approx(at.position_m, abs=1e-6)
    there = task.observe(state_at(tool_down(np.array(GOAL), 0.3)), {})["state"]
    assert there[:9] == pytest.approx(np.zeros(9), abs=1e-5)
    free = make(goal_in_base=None, judge="person")
    assert free.spec.state_layout[0][0] == "tcp_in_start"


def test_success_by_pose_needs_place_and_rotation() -> None:
    task = make()
    near, off = (np.array(GOAL) + np.array((0.0, 0.0015, z)) for z in (0.001, 0.002))
    assert task.success(state_at(tool_down(near)))
    assert task.success(state_at(tool_down(off))) is False
    assert task.success(state_at(tool_down(near, 0.12))) is False
    assert task.progress(state_at(tool_down(off))).remaining_m > 0.0


@pytest.mark.parametrize("judge", ["person", "topic", "reward"])
def test_somebody_else_judges_and_the_scene_stands_in(judge: str) -> None:
    inside = tool_down(np.array(GOAL))
    alone, staged = make(judge=judge), make(judge=judge, scene=SCENE)
    assert alone.success(state_at(inside)) is None  # nobody knows from the state
    assert staged.success(state_at(inside)) is None  # a real arm sees no objects
    assert staged.success(state_at(inside, objects=HOLE)) is True
    assert staged.success(state_at(tool_down(np.array(START)), objects=HOLE)) is False
    told = alone.success(state_at(inside, told_success=True))
    assert told is (True if judge == "topic" else None)


def test_without_a_wrench_none_is_observed() -> None:
    task = make(wrench=False)
    names = [name for name, _, _ in task.spec.state_layout]
    assert not any("force" in name or "torque" in name for name in names)
    task.spec.check(task.observe(state_at(tool_down(np.array(START))), {}))


def test_a_gripper_and_any_cameras_are_the_policys() -> None:
    task = make(gripper=True, gripper_width_m=0.05, images=["left", "wrist"], image_size=32)
    assert task.spec.action.size == 7 and task.spec.cameras == ["left", "wrist"]
    assert "left" in task.cameras() and "wrist" not in task.cameras()
    assert task.sample_reset(np.random.default_rng(0)).gripper_width_m == 0.05
    assert "gripper_width" in [name for name, _, _ in task.spec.state_layout]


def test_a_scene_brings_its_parts_its_controller_and_its_truth() -> None:
    task = make(scene=SCENE)
    assert [p.name for p in task.parts()] == ["peg", "hole"]
    assert task.impedance.clip_m[0] == 0.003
    plan = task.sample_reset(np.random.default_rng(3))
    assert plan.objects["hole"].position_m == pytest.approx((0.5, 0.0, 0.03))
    assert plan.held_in_tcp is not None
    assert task.truth(state_at(tool_down(np.array(GOAL)))) is None
    assert task.truth(state_at(tool_down(np.array(GOAL)), objects=HOLE)) is True
    assert make().parts() == () and make().truth(state_at(plan.tcp_in_base)) is None


def test_the_way_to_the_start_is_in_the_plan() -> None:
    rng = np.random.default_rng(0)
    above = make(reset={"clear_z_m": 0.14}).sample_reset(rng)
    assert (above.clear_z_m, above.via, above.ask) == (0.14, (), "")
    asked = make(reset={"by": "ask", "ask": "the nut on its bolt"}).sample_reset(rng)
    assert asked.ask == "the nut on its bolt"
    via = [{"position_m": [0.45, 0.0, 0.1]}, {"position_m": [0.46, 0.0, 0.15]}]
    scripted = make(reset={"by": "scripted", "via_in_base": via}).sample_reset(rng)
    assert [p.position_m[0] for p in scripted.via] == [0.45, 0.46]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"starts_in_base": []}, "task.starts_in_base", "at least one pose"),
    ({"starts_in_base": [{"position_m": [0.5, 0.05, 0.12]}]}, "starts_in_base[0]", "y 0.05"),
    ({"starts_in_base": [{"position_m": list(START), "quaternion_xyzw": [1, 1, 0, 0]}]},
     "quaternion_xyzw", "norm 1.41"),
    ({"starts_in_base": [{"position": list(START)}]}, "task.starts_in_base.position",
     "did you mean 'position_m'"),
    ({"goal_in_base": {"position_m": [0.5, 0.0, 0.01]}}, "task.goal_in_base", "z 0.01"),
    ({"goal_in_base": {"position_m": [0.5, float("nan"), 0.1]}}, "task.goal_in_base", "0.5, nan"),
    ({"goal_in_base": None}, "task.goal_in_base", "another judge"),
    ({"start_spread_m": [0.1, 0.0, 0.0]}, "starts_in_base[0]", "lessen start_spread_m"),
    ({"start_spread_m": [0.1, 0.0]}, "task.start_spread_m", "a list of 3 numbers"),
    ({"starts_in_base": [{"position_m": [0.5, 0.0, 0.046]}]}, "starts_in_base[0]", "move one"),
    ({"start_spread_rad": -0.1}, "start_spread_rad", "at least 0"),
    ({"tolerance_m": 0.0}, "tolerance_m", "above 0"),
    ({"judge": "persn"}, "task.judge", "did you mean 'person'"),
    ({"workspace_min_m": [0.6, 0.0, 0.0]}, "workspace_min_m", "lower corner first"),
    ({"title": " "}, "task.title", "my_insert"),
    ({"horizon_s": 10}, "unknown config key 'task.horizon_s'", "control_hz"),
    ({"max_steps": 5}, "task.max_steps", "5 steps at 10 Hz"),
    ({"control_hz": 60.0}, "control_hz", "[1, 50]"),
    ({"translation_m": 0.0}, "translation_m", "positive"),
    ({"privileged": True}, "task.privileged", "delete it"),
    ({"reset": {"by": "abve"}}, "task.reset.by", "did you mean 'above'"),
    ({"reset": {"by": "ask"}}, "task.reset.ask", "words"),
    ({"reset": {"ask": "the part"}}, "task.reset.ask", "only if"),
    ({"reset": {"by": "scripted"}}, "task.reset.via_in_base", "0 poses"),
    ({"reset": {"clear_z_m": 0.2}}, "task.reset.clear_z_m", "z 0.2"),
    ({"reset": {"by": "scripted", "clear_z_m": 0.1, "via_in_base": [{"position_m": list(START)}]}},
     "task.reset.clear_z_m", "via_in_base"),
    ({"reset": {"by": "scripted", "via_in_base": [{"position_m": [0.5, 0.0, 0.3]}]}},
     "via_in_base[0]", "z 0.3"),
    ({"scene": {"name": "peg_insertt"}}, "unknown task", "did you mean 'peg_insert'"),
    ({"scene": {"name": "peg_insert", "variannt": "easy"}}, "variannt", "did you mean 'variant'"),
    ({"scene": {"name": "gym"}}, "task.scene", "peg_insert"),
    ({"scene": {"name": "lift"}}, "task.gripper", "gripper: true"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "where", "fix"), WRONG, ids=lambda x: str(x)[:40])
def test_each_wrong_value_is_one_error_with_its_fix(
    change: dict[str, Any], where: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as error:
        make(**change)
    assert where in str(error.value) and fix in str(error.value), str(error.value)
    assert error.value.expected and error.value.got and error.value.fix


def test_a_gripper_width_that_the_robot_does_not_have() -> None:
    with pytest.raises(ConfigError, match="stroke of the Robotiq"):
        make(gripper_width_m=0.2).with_robot(Ur5e())


def test_a_script_needs_a_goal_or_a_scene() -> None:
    with pytest.raises(ConfigError, match="by a script"):
        make(goal_in_base=None, judge="person").expert(1.0)


MISFITS = [
    (["task.workspace_min_m=[0.1,-0.06,0.03]"], "not inside the robot's workspace", "lessen"),
    (["task.control_hz=5"], "hold between any two commands", "safety.control_hz=5"),
    (["task.translation_m=0.03"], "task.translation_m", "0.025"),
    (["task.rotation_rad=0.3"], "task.rotation_rad", "0.2"),
    (["task.max_yaw_rad=0.05"], "yaw of task.starts_in_base[0]", "max_yaw_rad"),
    (["task.goal_in_base.quaternion_xyzw=[0.97,0,0.243,0]"], "tilt of task.goal_in_base", "0.2"),
    (["task.judge=reward"], "nobody says when", "reward=classifier"),
    (["task.judge=person", "runtime=ros", "ros=real", "operator=none"], "nobody says", "gamepad"),
    (["~task.scene", "task.judge=person"], "nobody says", "gamepad"),
    (["~task.scene", "task.judge=topic"], "nobody says", "runtime=ros"),
    (["task.scene.hole_xy_m=0.01"], "elsewhere in each episode", "task.scene.hole_xy_m=0.0"),
]


@pytest.mark.parametrize(("words", "what", "fix"), MISFITS, ids=lambda x: str(x)[:40])
def test_what_does_not_fit_robot_limits_or_judge_is_refused_before_motion(
    words: list[str], what: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Experiment.compose(["experiment=taught_insert", *words]).check()
    assert what in str(error.value) and fix in str(error.value), str(error.value)


@pytest.mark.parametrize("robot", ["fr3", "panda", "ur5e"])
def test_the_shipped_example_fits_every_robot(robot: str) -> None:
    Experiment.compose(["experiment=taught_insert", f"robot={robot}"]).check()


def test_a_pose_is_normalised() -> None:
    given = make(goal_in_base={"position_m": list(GOAL), "quaternion_xyzw": [0.9999, 0, 0, 0]})
    assert given.goal_in_base is not None
    assert given.goal_in_base.pose.quaternion_xyzw[0] == 1.0
