"""Input devices that other ROS 2 nodes publish: a joystick (`Joy`), a twist with a deadman, the
joints of a leader arm.

Their age is judged by when their messages arrive, not by their headers: a joystick driver knows
nothing of the clock of this run. A message that makes no sense raises `LinkError`; the device then
does not drive and says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from robot_rl.errors import LinkError, did_you_mean
from robot_rl.geometry import rotate_inverse
from robot_rl.operate.handset import DeviceReading
from robot_rl.operate.leader import Joints
from robot_rl.operate.mapping import InputMap
from robot_rl.ports import Task
from robot_rl.ros import convert
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.topics import Topic
from robot_rl.types import RobotState


class _Heard:
    """Newest message of a topic that is not of our graph, with its time of arrival."""

    def __init__(self, node: Node, name: str, kind: str) -> None:
        topic = Topic(name, kind, "stream", "any node", ("operator",), 50, "-", "input device")
        self._newest = Newest(node, topic)
        self._message: Any = None
        self._heard_s = 0.0

    def read(self) -> tuple[Any, float]:
        """(message or None, monotonic seconds at which it was taken)."""
        for message in self._newest.arrived():
            self._message, self._heard_s = message, time.monotonic()
        return self._message, self._heard_s


class JoySource:
    """`held.Source` from a `sensor_msgs/Joy` topic: axis0, axis1 ..., button0, button1 ..."""

    def __init__(self, node: Node, topic: str, inputs: InputMap) -> None:
        self._heard = _Heard(node, topic, "sensor_msgs/msg/Joy")
        self._topic, self._inputs = topic, inputs
        self._shape = (-1, -1)

    def read(self, state: RobotState | None = None) -> DeviceReading | None:
        """Newest reading. Raises `ConfigError` when the map names what the message lacks."""
        message, heard_s = self._heard.read()
        if message is None:
            return None
        values = {f"axis{i}": float(v) for i, v in enumerate(message.axes)}
        values |= {f"button{i}": float(v) for i, v in enumerate(message.buttons)}
        shape = (len(message.axes), len(message.buttons))
        if shape != self._shape:
            self._inputs.check(values, self._topic)
            self._shape = shape
        return self._inputs.reading(values, heard_s)


class TwistSource:
    """`held.Source` from a `geometry_msgs/TwistStamped` topic and a `std_msgs/Bool` deadman.

    A reading is as old as the older of the two messages: when either topic falls silent, it counts
    as let go.

    Args:
        frames: `frame_id` of a twist along the axes of the base, and of the tool.

    Raises:
        SpecError: the task moves no arm.
    """

    def __init__(
        self, node: Node, task: Task, topic: str, enable_topic: str, frames: tuple[str, str]
    ) -> None:
        action = task.spec.pose_action
        self._topic, self._frames = topic, frames
        self._twist = _Heard(node, topic, "geometry_msgs/msg/TwistStamped")
        self._enable = _Heard(node, enable_topic, "std_msgs/msg/Bool")
        self._full_m_s = action.translation_m * task.spec.control_hz
        self._full_rad_s = action.rotation_rad * task.spec.control_hz

    def read(self, state: RobotState | None) -> DeviceReading | None:
        """Newest reading. Raises `LinkError` on an unknown frame or a value that is not finite."""
        twist, twist_s = self._twist.read()
        enable, enable_s = self._enable.read()
        if twist is None or enable is None or state is None:
            return None
        vector = convert.twist_from(twist)
        linear, angular = vector[:3] / self._full_m_s, vector[3:] / self._full_rad_s
        if self._in_base(twist.header.frame_id):
            q = state.tcp_in_base.quaternion_xyzw  # both turned, no adjoint: deltas, not a twist
            linear, angular = rotate_inverse(q, linear), rotate_inverse(q, angular)
        held = frozenset({"drive"} if enable.data else ())
        axes = np.concatenate((_within_one(linear), _within_one(angular)))
        return DeviceReading(min(twist_s, enable_s), axes, held)

    def _in_base(self, frame: str) -> bool:
        """True for the base, False for the tool. Raises `LinkError` for any other frame."""
        known = self._frames
        if frame not in known:
            raise LinkError(
                f"a twist on {self._topic} in frame '{frame}'",
                expected=f"frame_id {known[0]} or {known[1]}",
                got=repr(frame),
                fix="set frame_id in the publisher, or operator.base_frame / operator.tcp_frame",
            )
        return frame == known[0]


class JointStateSource:
    """`leader.JointSource` from any `sensor_msgs/JointState` topic.

    Args:
        joints: names in the message, in the order from the foot of the leader to its tool.
        trigger: (name, position when open, when closed); None = the leader has none.
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        joints: Sequence[str],
        trigger: tuple[str, float, float] | None,
    ) -> None:
        self._heard = _Heard(node, topic, "sensor_msgs/msg/JointState")
        self._topic, self._joints, self._trigger = topic, tuple(joints), trigger

    def read(self) -> Joints | None:
        """The newest angles. Raises `LinkError` when a joint is missing or not finite."""
        message, heard_s = self._heard.read()
        if message is None:
            return None
        told = dict(zip(message.name, message.position, strict=False))
        names = (*self._joints, *(self._trigger[:1] if self._trigger else ()))
        for name in names:
            if name not in told or not math.isfinite(told[name]):
                raise LinkError(
                    f"the leader on {self._topic} does not tell joint '{name}'",
                    expected=f"finite positions of {', '.join(names)}",
                    got=f"{told.get(name, 'nothing')}; the message has {', '.join(told)}"[:160],
                    fix=f"name the leader's joints: operator.joints ({did_you_mean(name, told)})",
                )
        share = None
        if self._trigger is not None:
            name, opened, closed = self._trigger
            share = min(max((told[name] - opened) / (closed - opened), 0.0), 1.0)
        return Joints(heard_s, np.array([told[name] for name in self._joints]), share)


class EnableSource:
    """`held.Source` of a `std_msgs/Bool` topic alone: true while the person holds the device."""

    def __init__(self, node: Node, topic: str) -> None:
        self._enable = _Heard(node, topic, "std_msgs/msg/Bool")

    def read(self, state: RobotState | None) -> DeviceReading | None:
        """The newest word; None before the first."""
        message, heard_s = self._enable.read()
        if message is None:
            return None
        return DeviceReading(heard_s, np.zeros(6), frozenset({"drive"} if message.data else ()))


def _within_one(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shorten a vector that is too long; unlike clipping each entry, this keeps its direction."""
    return vector / max(1.0, float(np.abs(vector).max()))
