"""Whether a described task fits its robot, its limits and who judges it: asked before motion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robot_rl.errors import ConfigError
from robot_rl.geometry import quat_from_rotvec, quat_multiply
from robot_rl.reward.config import PredicateRewardConfig, RewardConfig
from robot_rl.safety.clip import tilt_rad, yaw_rad
from robot_rl.safety.limits import Limits
from robot_rl.tasks.described import DescribedTask, TcpPose

NOBODY = ("none", "scripted")  # operators without a person


@dataclass(frozen=True, slots=True)
class Present:
    """Who is there to say what success is, and whether anybody measures force.

    operator: its name; real: a real arm, or its double; wrench: the driver publishes one.
    """

    reward: RewardConfig
    operator: str
    runtime: str
    real: bool
    wrench: bool = True


def check_described(task: DescribedTask, robot: Limits, present: Present) -> None:
    """Check `task` against the limits of its robot, and that somebody says what success is.

    Raises:
        ConfigError: the first thing that does not fit.
    """
    _check_box(task, robot)
    _check_rate(task, robot)
    limits = robot.narrow_to(task)
    for where, given in task.named_poses():
        spread_rad = task.start_spread_rad if where.startswith("starts") else 0.0
        for turn_rad in (-spread_rad, spread_rad):
            _check_rotation(where, given, turn_rad, limits)
    _check_judge(task, present)
    _check_wrench(task, present)
    _check_scene(task)


def _check_wrench(task: DescribedTask, present: Present) -> None:
    """A force that nobody measures would be observed as zero in all that the policy learns."""
    if task.wrench and present.real and not present.wrench:
        raise ConfigError(
            "the task observes force and torque, and the arm's driver publishes none",
            expected="task.wrench=false beside a driver without a wrench (driver.wrench: none)",
            got="task.wrench=true",
            fix="task.wrench=false; or have the driver publish one: driver.topics.wrench",
        )


def _check_box(task: DescribedTask, robot: Limits) -> None:
    low, high = robot.workspace_min_m, robot.workspace_max_m
    inside = all(a <= b for a, b in zip(low, task.workspace_min_m, strict=True))
    inside &= all(a >= b for a, b in zip(high, task.workspace_max_m, strict=True))
    if not inside:
        raise ConfigError(
            "the task's box is not inside the robot's workspace",
            expected=f"within {low} to {high} m, what the limits allow (section safety)",
            got=f"{task.workspace_min_m} to {task.workspace_max_m} m",
            fix="lessen task.workspace_min_m / workspace_max_m; whoever signs the limits may widen "
            "them",
        )


def _check_rate(task: DescribedTask, robot: Limits) -> None:
    """One action must be possible within one period, and the next one must not come too late."""
    hz = task.control_hz
    if hz < 1.0 / robot.command_timeout_s:
        raise ConfigError(
            "the gate would hold between any two commands of the task",
            expected=f"task.control_hz of at least {1.0 / robot.command_timeout_s:g}: a command "
            f"is too old after {robot.command_timeout_s:g} s",
            got=f"{hz:g}",
            fix=f"a higher rate, or safety.control_hz={hz:g}",
        )
    rows = (
        ("translation_m", min(robot.max_speed_m_s / hz, robot.max_step_m)),
        ("rotation_rad", min(robot.max_rotation_speed_rad_s / hz, robot.max_step_rad)),
        *([("joint_rad", robot.max_joint_speed_rad_s / hz)] if task.moves_joints else []),
    )
    for name, most in rows:
        if getattr(task, name) > most:
            raise ConfigError(
                f"one action unit of the task is more than the gate lets through: task.{name}",
                expected=f"at most {most:g} at {hz:g} Hz (section safety: speed and step)",
                got=f"{getattr(task, name):g}",
                fix=f"task.{name}={most:g}, or less",
            )


def _check_rotation(where: str, given: TcpPose, turn_rad: float, limits: Limits) -> None:
    turn = quat_from_rotvec((0.0, 0.0, turn_rad))
    x, y, z, w = quat_multiply(turn, given.pose.quaternion_xyzw).tolist()
    for name, angle in (("tilt", tilt_rad((x, y, z, w))), ("yaw", yaw_rad((x, y, z, w)))):
        most = getattr(limits, f"max_{name}_rad")
        if abs(angle) > most + 1e-6:
            raise ConfigError(
                f"the {name} of task.{where} is more than the limits allow",
                expected=f"at most {most:g} rad (task.max_{name}_rad, safety.max_{name}_rad)",
                got=f"{angle:.3g} rad" + (", with start_spread_rad" if turn_rad else ""),
                fix=f"turn the pose, or raise task.max_{name}_rad as far as the robot's limits go",
            )


def _check_judge(task: DescribedTask, present: Present) -> None:
    if task.judge == "reward" and isinstance(present.reward, PredicateRewardConfig):
        raise ConfigError(
            "nobody says when the task has succeeded",
            expected="a model as reward, because task.judge is reward",
            got="reward=predicate",
            fix="reward=classifier or reward=vlm (docs/rewards.md), or task.judge=person",
        )
    staged = task.staged is not None and not present.real  # its rule stands in
    if task.judge == "person" and present.operator in NOBODY and not staged:
        raise ConfigError(
            "nobody says when the task has succeeded",
            expected="a person, because task.judge is person",
            got=f"operator={present.operator}",
            fix="operator=gamepad, spacemouse, joy, twist or console (docs/devices.md)",
        )
    if task.judge == "topic" and present.runtime == "lockstep" and task.staged is None:
        raise ConfigError(
            "nobody says when the task has succeeded",
            expected="a program on the topic task/success, because task.judge is topic",
            got="runtime=lockstep, which has no topics",
            fix="runtime=ros, or a task.scene whose own rule stands in",
        )


def _check_scene(task: DescribedTask) -> None:
    """Without cameras nothing tells the policy where things are, so they must not move."""
    if task.staged is None or task.images:
        return
    first, second = (task.sample_reset(np.random.default_rng(seed)).objects for seed in (0, 1))
    moved = [n for n in first if not np.allclose(first[n].position_m, second[n].position_m)]
    if moved:
        raise ConfigError(
            "the scene puts things elsewhere in each episode, and nothing observed says where",
            expected="the same place each time, or cameras",
            got=f"{', '.join(moved)} of the scene {task.staged.name}",
            fix="set its ranges to 0, e.g. task.scene.hole_xy_m=0.0, or task.images=[wrist]",
        )
