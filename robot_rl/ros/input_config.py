"""Input devices that other ROS 2 nodes publish, by name: `operator=joy`, `operator=twist`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from robot_rl.config.registry import register
from robot_rl.errors import did_you_mean
from robot_rl.operate.devices import need_real_time
from robot_rl.operate.handset import HandsetConfig
from robot_rl.operate.held import hand_on
from robot_rl.operate.mapping import JOY_LAYOUTS, InputMap, check_map
from robot_rl.ports import InputDevice, Task


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
        from robot_rl.ros.input_devices import JoySource  # needs ROS; this module does not

        source = JoySource(node, self.topic, self.inputs)
        return hand_on(task, self.handset, source, f"joy on {self.topic}")


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
        )  # the sender has shaped it already
    )

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("twist", node)
        from robot_rl.ros.input_devices import TwistSource

        frames = (self.base_frame, self.tcp_frame)
        source = TwistSource(node, task, self.topic, self.enable_topic, frames)
        return hand_on(task, self.handset, source, f"twist on {self.topic}")
