"""Input devices that other ROS 2 nodes publish, by name: `operator=joy`, `twist`, `leader`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from robot_rl.config.registry import register, resolve
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.operate.devices import need_real_time, run_of
from robot_rl.operate.handset import HandsetConfig
from robot_rl.operate.held import hand_on
from robot_rl.operate.leader import Leading, led_by, robot_of
from robot_rl.operate.mapping import JOY_LAYOUTS, InputMap, check_map
from robot_rl.operate.remote import page_of
from robot_rl.ports import InputDevice, Task
from robot_rl.robots.chain import Chain


@runtime_checkable
class Hears(Protocol):
    """An operator whose device other nodes publish."""

    @property
    def heard(self) -> tuple[str, ...]:
        """Topics that the operator node subscribes to for it."""
        ...


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

    @property
    def heard(self) -> tuple[str, ...]:
        """See `Hears`."""
        return (self.topic,)

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

    @property
    def heard(self) -> tuple[str, ...]:
        """See `Hears`."""
        return tuple(filter(None, (self.topic, self.enable_topic)))

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("twist", node)
        from robot_rl.ros.input_devices import TwistSource

        frames = (self.base_frame, self.tcp_frame)
        source = TwistSource(node, task, self.topic, self.enable_topic, frames)
        return hand_on(task, self.handset, source, f"twist on {self.topic}")


@register("operator", "leader")
@dataclass(frozen=True, kw_only=True)
class LeaderConfig(Leading):
    """Any arm whose joints a node publishes as `sensor_msgs/JointState`: the robot follows it.

    joints: names in the message, from foot to tool; () = the robot's own names. arm: the robot
    (`robot=...`) whose kinematics the leader has; "" = this run's, and then the leader is brought
    to the robot before a takeover. trigger: joint of its gripper, "" = none. enable_topic: a
    `std_msgs/Bool` that is true while the person holds the leader; "" = the keys of the page or of
    `robot-rl keyboard`.
    """

    topic: str = "leader/joint_states"
    joints: tuple[str, ...] = ()
    arm: str = ""
    trigger: str = ""
    trigger_open: float = 0.0
    trigger_closed: float = 1.0
    enable_topic: str = ""

    def __post_init__(self) -> None:
        """Refuse a trigger whose two ends are one."""
        super().__post_init__()
        if self.trigger_open == self.trigger_closed:
            raise ValueError("trigger_open and trigger_closed are the same position")

    @property
    def at_page(self) -> bool:
        """Whether the buttons are the page's."""
        return not self.enable_topic

    @property
    def heard(self) -> tuple[str, ...]:
        """See `Hears`."""
        return tuple(filter(None, (self.topic, self.enable_topic)))

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time("leader", node)
        from robot_rl.ros.input_devices import EnableSource, JointStateSource

        robot = robot_of(run_of(node))
        other = resolve("robot", {"name": self.arm}) if self.arm not in ("", robot.name) else None
        arm = other or robot
        names = self.joints or arm.joint_names
        if len(names) != len(arm.joints):
            raise ConfigError(
                "these are not the joints of the leader",
                expected=f"{len(arm.joints)} names, as {arm.title} has joints",
                got=", ".join(names),
                fix="name them from foot to tool in operator.joints, or the leader in operator.arm",
            )
        trigger = (self.trigger, self.trigger_open, self.trigger_closed) if self.trigger else None
        leader = JointStateSource(node, self.topic, names, trigger)
        buttons = EnableSource(node, self.enable_topic) if self.enable_topic else page_of(node)
        chain = None if other is None else Chain(other)
        name = f"leader on {self.topic}"
        return led_by(task, self, leader, buttons, name, robot=robot, chain=chain)
