"""What `operator=...` can name, and the device behind each name.

A config is a registered dataclass with `open`; yours works the same way (docs/devices.md). Drivers
live where their libraries may be imported, and their configs beside them: `robot_rl_hardware`,
`robot_rl.ros.input_config`, and here for the script and the console.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from robot_rl.errors import ConfigError
from robot_rl.ports import InputDevice, Task


@runtime_checkable
class OperatorConfig(Protocol):
    """What a class registered under `operator` has besides its fields."""

    def open(self, task: Task, node: Any) -> InputDevice:
        """Open the device. `node`: the rclpy node that polls it; None outside ROS.

        Raises:
            RobotRLError: the device is not there, may not be read, or cannot drive this task.
        """
        ...


@runtime_checkable
class AtPage(Protocol):
    """An operator config whose buttons are the page's keys: the run opens the page for it."""

    at_page: bool


@dataclass(frozen=True, slots=True)
class Here:
    """In the place of a node: this process polls the device itself (`operate.pace`)."""

    run_dir: Path


def run_of(node: Any) -> Path:
    """Run folder of the operator's node."""
    if isinstance(node, Here):
        return node.run_dir
    return Path(str(node.get_parameter("run_dir").value))


def make_operator(config: object, task: Task, node: Any = None) -> InputDevice:
    """The device that `operator=...` names.

    Args:
        config: section `operator` of the experiment.
        node: rclpy node of the process, or `Here`; None in lockstep, where no person can keep up.

    Raises:
        RobotRLError: see `OperatorConfig.open`.
    """
    if isinstance(config, OperatorConfig):
        return config.open(task, node)
    raise ConfigError(
        f"{type(config).__name__} opens no device",
        expected="a dataclass with open(task, node), registered under 'operator'",
        got=repr(config)[:120],
        fix="give it that method; docs/devices.md has an example",
    )


def need_real_time(name: str, node: Any) -> None:
    """Raise `ConfigError` in lockstep (no node): a person needs a clock that runs in wall time."""
    if node is None:
        raise ConfigError(
            f"operator={name} needs real time",
            expected="runtime=ros, whose operator node polls the device",
            got="lockstep, which runs as fast as it computes",
            fix="add runtime=ros, or use operator=scripted",
        )
