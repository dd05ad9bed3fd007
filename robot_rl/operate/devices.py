"""What `operator=...` can name, and the device behind each name.

A config is a registered dataclass with `open`; yours works the same way (docs/devices.md). Drivers
live where their libraries may be imported: `robot_rl_hardware`, `robot_rl.ros`; this module is the
composition root that imports them, late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import robot_rl.operate.remote
import robot_rl.operate.scripted  # noqa: F401  (both register what they define)
from robot_rl.config import register
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.operate.handset import HandsetConfig
from robot_rl.operate.mapping import JOY_LAYOUTS, InputMap, check_map
from robot_rl.ports import InputDevice, Task


@runtime_checkable
class OperatorConfig(Protocol):
    """What a class registered under `operator` has besides its fields."""

    def open(self, task: Task, node: Any) -> InputDevice:
        """Open the device. `node`: the rclpy node that polls it; None outside ROS.

        Raises:
            RobotRLError: it is not there, may not be read, or cannot drive this task.
        """
        ...


def make_operator(config: object, task: Task, node: Any = None) -> InputDevice:
    """The device that `operator=...` names.

    Args:
        config: section `operator` of the experiment.
        node: rclpy node of the process; None in lockstep, where nobody can keep up.

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


@register("operator", "gamepad")
@dataclass(frozen=True, kw_only=True)
class GamepadConfig:
    """A gamepad on the robot PC, read through evdev (Linux)."""

    device: str = ""  # its path, or part of its name; "" = the only one there is
    axes: tuple[str, ...] = ()  # six of its axes for tx ty tz rx ry rz; () = by kind of pad
    buttons: dict[str, str] = field(default_factory=dict[str, str])  # changes to the default map
    quiet_s: float | None = None  # a stick is out and nothing changes: lost; None = 1 on Bluetooth
    handset: HandsetConfig = field(default_factory=HandsetConfig)

    def __post_init__(self) -> None:
        """Check the map, and the range of `quiet_s`."""
        check_map(self.axes, self.buttons)
        if self.quiet_s is not None and not self.quiet_s >= 0.1:
            raise ValueError(f"quiet_s must be at least 0.1, got {self.quiet_s}")

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("gamepad", node)
        from robot_rl_hardware.gamepad import open_gamepad

        return open_gamepad(self, task)


@register("operator", "spacemouse")
@dataclass(frozen=True, kw_only=True)
class SpaceMouseConfig:
    """A 3Dconnexion SpaceMouse on the robot PC, read through hidapi."""

    device: str = ""  # its path, or part of its name; "" = the only one there is
    axes: tuple[str, ...] = ()  # six of x y z rx ry rz; () = the cap is the tool, fingers down
    buttons: dict[str, str] = field(default_factory=dict[str, str])  # changes to the default map
    handset: HandsetConfig = field(default_factory=lambda: HandsetConfig(dead_zone=0.15))

    def __post_init__(self) -> None:
        """Check the map."""
        check_map(self.axes, self.buttons)

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("spacemouse", node)
        from robot_rl_hardware.spacemouse import open_spacemouse

        return open_spacemouse(self, task)


@register("operator", "joy")
@dataclass(frozen=True, kw_only=True)
class JoyConfig:
    """Any joystick that a ROS 2 node publishes as `sensor_msgs/Joy`."""

    topic: str = "joy"
    layout: str = "joy"  # joy (joy_node, joy_linux) | game_controller (game_controller_node)
    axes: tuple[str, ...] = ()  # six of axis0, axis1 ...; () = as the layout says
    buttons: dict[str, str] = field(default_factory=dict[str, str])  # changes to the layout
    handset: HandsetConfig = field(default_factory=HandsetConfig)

    def __post_init__(self) -> None:
        """Check the layout and the map."""
        if self.layout not in JOY_LAYOUTS:
            raise ValueError(f"layout={self.layout} ({did_you_mean(self.layout, JOY_LAYOUTS)})")
        check_map(self.axes, self.buttons)

    @property
    def inputs(self) -> InputMap:
        """The map in force."""
        return JOY_LAYOUTS[self.layout].changed(self.axes, self.buttons)

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("joy", node)
        from robot_rl.ros.input_devices import open_joy

        return open_joy(self, task, node)


@register("operator", "twist")
@dataclass(frozen=True, kw_only=True)
class TwistConfig:
    """Any teleoperation node that publishes `geometry_msgs/TwistStamped`, with a deadman topic."""

    topic: str = "teleop/twist"
    enable_topic: str = "teleop/enable"  # std_msgs/Bool, true while the person holds the device
    base_frame: str = "base"  # frame_id of a twist along the axes of the robot's base
    tcp_frame: str = "tcp"  # ... of the tool
    handset: HandsetConfig = field(
        default_factory=lambda: HandsetConfig(
            dead_zone=0.02, expo=0.0
        )  # whoever sends it shaped it
    )

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("twist", node)
        from robot_rl.ros.input_devices import open_twist

        return open_twist(self, task, node)


def need_real_time(name: str, node: Any) -> None:
    """A person needs a clock that runs as fast as the wall's; lockstep has none."""
    if node is None:
        raise ConfigError(
            f"operator={name} needs real time",
            expected="runtime=ros, whose operator node polls the device",
            got="lockstep, which runs as fast as it computes",
            fix="add runtime=ros, or use operator=scripted",
        )
