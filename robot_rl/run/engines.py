"""What moves the simulated arm: MuJoCo, PhysX or Isaac Sim (config key `sim`)."""

from __future__ import annotations

import importlib
from typing import Any

from robot_rl.errors import ConfigError, SetupError, did_you_mean
from robot_rl.ports import BringsSimulator, SimulatedRobot
from robot_rl.robots import Robot

ENGINES = {
    "mujoco": "robot_rl_sim.robot:MujocoRobot",
    "physx": "robot_rl_sim.physx:PhysxRobot",
    "isaac": "robot_rl_sim.isaac:IsaacRobot",
}
"""Name -> the robot that it moves; all are `robot_rl_sim.robot.MujocoRobot`s."""
MUJOCO = "mujoco"


def check(name: str) -> None:
    """Raise `ConfigError` where no engine has this name."""
    if name not in ENGINES:
        raise ConfigError(
            f"unknown physics engine '{name}'",
            expected=f"one of: {', '.join(ENGINES)}",
            got=name,
            fix=did_you_mean(name, ENGINES),
        )


def robot_class(name: str) -> Any:
    """The class of the arm that an engine moves: called with task, robot and, perhaps, a model.

    Raises:
        ConfigError: there is no such engine.
        SetupError: the simulation extra is not installed.
    """
    check(name)
    module, _, found = ENGINES[name].partition(":")
    try:
        return getattr(importlib.import_module(module), found)
    except ImportError as error:
        raise SetupError(
            "the simulator is not installed",
            expected="packages robot_rl_sim and mujoco",
            got=str(error),
            fix="pip install 'robot-rl[sim]'",
        ) from error


def simulate(task: Any, robot: Robot, engine: str) -> SimulatedRobot:
    """The arm in the scene of its task, or in the task's own simulator.

    Raises:
        ConfigError: no such engine, or one that cannot build this scene.
        SetupError: the simulation extra, or the engine, is not installed.
    """
    check(engine)
    if not isinstance(task, BringsSimulator):
        return robot_class(engine)(task, robot)
    if engine != MUJOCO:
        raise one_simulator(engine, type(task).__name__)
    return task.simulate(robot)


def one_simulator(engine: str, got: str) -> ConfigError:
    """The error of a task that no other engine can simulate."""
    return ConfigError(
        f"this task has a simulator of its own, not {engine}",
        expected="a task of robot_rl.tasks, whose scene other engines can build",
        got=got,
        fix=f"leave sim={engine}, or --engine, out",
    )
