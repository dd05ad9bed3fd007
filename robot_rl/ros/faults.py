"""Faults of a driver, injected into its double (parameter `fault` of the sim node).

    ros2 param set /sim fault '{"drop": ["wrench"]}'

One fault or several at a time; "" ends them all. Topics have our names (`robot_rl.ros.topics`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_rl.config.registry import build
from robot_rl.errors import ConfigError, LinkError
from robot_rl.ros import convert
from robot_rl.system import plain_json


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What is wrong with the driver.

    drop: topics that are not sent. freeze: topics whose values stay, with new stamps. stale: topics
    whose stamps stay, too. slow_hz: topic -> at most this rate. skew_s: topic -> stamps are this
    much too old. frame: topic -> another frame. scale: topic -> positions times this (millimetres
    for metres). without_joint: a joint that is missing. inactive: controllers that are not active.
    frozen_cameras: no camera sends anything. gone: services and actions that refuse. ready: topic
    -> what a readiness topic says instead. payload_kg: the mass that the driver compensates. tcp_m:
    the driver's TCP lies this much further out than the robot's. camera_delay_s: pictures are sent,
    and stamped, this much after they were taken. gripper_ends: sum of the finger joints when open
    and when closed, in place of what the profile says; () = as it says. No faults of the driver are
    push_n: somebody pushes the hand with this force in base; and touch_n: the wrench tells of this
    force besides, in its own frame, as when the tool hits something.

    Pictures are topics, too: `drop`, `freeze`, `stale` and `slow_hz` of `camera/wrist/color/...`.
    """

    drop: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    slow_hz: dict[str, float] = field(default_factory=dict)
    skew_s: dict[str, float] = field(default_factory=dict)
    frame: dict[str, str] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    without_joint: str = ""
    inactive: tuple[str, ...] = ()
    frozen_cameras: bool = False
    gone: tuple[str, ...] = ()
    ready: dict[str, Any] = field(default_factory=dict)
    payload_kg: float | None = None
    tcp_m: float = 0.0
    camera_delay_s: float = 0.0
    gripper_ends: tuple[float, ...] = ()
    push_n: tuple[float, float, float] = (0.0, 0.0, 0.0)
    touch_n: tuple[float, float, float] = (0.0, 0.0, 0.0)


def read(text: str) -> Faults:
    """JSON of `Faults`; "" = none.

    Raises:
        LinkError: not JSON, an unknown fault, or a wrong type.
    """
    if not text:
        return Faults()
    try:
        data = plain_json.loads(text)
        if not isinstance(data, Mapping):
            raise LinkError("a fault is no JSON object", expected='{"drop": [...]}', got=text)
        return build(Faults, data, "fault")
    except (ValueError, ConfigError) as error:
        raise LinkError("a fault that nobody knows", got=str(error)) from error


class Injector:
    """Spoils the messages of a double on their way out."""

    def __init__(self) -> None:
        self.faults = Faults()
        self._kept: dict[str, Any] = {}  # topic -> newest message before it froze
        self._due_s: dict[str, float] = {}  # topic -> when a slow one sends again

    def spoil(self, topic: str, message: Any) -> Any:
        """The message as the faulty driver sends it; None when it is not sent."""
        faults = self.faults
        if topic in faults.drop or self._is_early(topic):
            return None
        if topic in faults.freeze or topic in faults.stale:
            kept = copy.deepcopy(self._kept.setdefault(topic, message))
            if topic in faults.freeze:
                kept.header.stamp = message.header.stamp
            return kept
        self._kept.pop(topic, None)
        if topic in faults.skew_s:
            stamp_s = convert.from_stamp(message.header.stamp)
            message.header.stamp = convert.to_stamp(stamp_s - faults.skew_s[topic])
        if topic in faults.frame:
            message.header.frame_id = faults.frame[topic]
        if topic in faults.scale:
            _scale(message, faults.scale[topic])
        if topic == "wrench" and any(faults.touch_n):
            _touch(message.wrench.force, faults.touch_n)
        if topic == "joint_states" and faults.without_joint in list(message.name):
            _remove_joint(message, faults.without_joint)
        return message

    def _is_early(self, topic: str) -> bool:
        rate_hz = self.faults.slow_hz.get(topic)
        if rate_hz is None:
            return False
        wall_s, period_s = time.monotonic(), 1.0 / rate_hz
        due_s = self._due_s.get(topic, 0.0)
        if wall_s < due_s:
            return True
        self._due_s[topic] = max(due_s + period_s, wall_s)  # the mean rate, whatever comes in
        return False


def _scale(message: Any, factor: float) -> None:
    """Positions in another unit: of a pose, or of joints."""
    if hasattr(message, "pose"):
        where = message.pose.position
        where.x, where.y, where.z = where.x * factor, where.y * factor, where.z * factor
    else:
        message.position = [value * factor for value in message.position]


def _touch(force: Any, touch_n: tuple[float, float, float]) -> None:
    """A force more."""
    x_n, y_n, z_n = touch_n
    force.x, force.y, force.z = force.x + x_n, force.y + y_n, force.z + z_n


def _remove_joint(message: Any, name: str) -> None:
    kept = [i for i, found in enumerate(message.name) if found != name]
    for part in ("position", "velocity"):
        setattr(message, part, [getattr(message, part)[i] for i in kept])
    message.name = [message.name[i] for i in kept]
