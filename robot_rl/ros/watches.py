"""Looks at a driver's own words: readiness, payload, TCP, controllers, cameras, watchdog.

Each look is a `Finding`. Doctor and arm node share them: the one looks for some seconds, the other
as long as the graph runs. One thread; nothing here blocks.
"""

from __future__ import annotations

import time
from functools import reduce
from typing import Any

from rclpy.node import Node

from robot_rl.errors import ConfigError, LinkError, did_you_mean
from robot_rl.robots.driver import ArmDriver, Payload, Ready, Tcp, Told
from robot_rl.ros import convert, preflight, topics, wire
from robot_rl.ros.controllers import listing
from robot_rl.ros.endpoints import Newest, message_type
from robot_rl.ros.preflight import Finding
from robot_rl.ros.readiness import IK, STATE
from robot_rl.ros.topics import Topic
from robot_rl.types import Pose

LIST_S = 0.25  # wall; the controllers are asked for this often
CAMERA_S = 2.0  # a camera that is silent for longer, or sends older pictures, is not there
HEARD_S = 1.5  # wall; three reports of the watchdog; the gate reports more often
START = "start the driver, or the node of it that publishes this"


class Words:
    """What the driver says of itself on its topics: readiness, payload, TCP.

    A topic that tells several things is read once.

    Args:
        tool: the robot's TCP in its flange.
        silence_s: a topic that is not latched may be this old (wall time).
    """

    def __init__(self, node: Node, driver: ArmDriver, tool: Pose, silence_s: float) -> None:
        self._node, self._driver, self._tool, self._silence_s = node, driver, tool, silence_s
        self._newest: dict[str, Newest] = {}
        for told in driver.told:
            _check_member(told)
            if told.topic not in self._newest:
                self._newest[told.topic] = Newest(node, topic_of(told))

    def findings(self) -> list[Finding]:
        """One for each thing that the driver tells."""
        return [self._finding(told) for told in self._driver.told]

    def _finding(self, told: Told) -> Finding:
        try:
            value = self._value(told)
            if isinstance(told, Ready):
                return preflight.ready(told, value)
            if isinstance(told, Payload):
                return preflight.payload(told, value)
            return preflight.tcp(told, self._tool, convert.pose_from(value))
        except LinkError as error:
            kinds = {Payload: "payload", Tcp: "tcp"}
            name = kinds.get(type(told), told.topic)
            return Finding(name, "fail", error.summary, error.fix or START)

    def _value(self, told: Told) -> Any:
        """What it says now. Raises `LinkError` when nobody says it."""
        newest = self._newest[told.topic]
        message = newest.read()
        if self._node.count_publishers(told.topic) == 0:
            raise LinkError(f"nobody publishes {told.topic}")
        if message is None or (not told.latched and newest.silent_s > self._silence_s):
            raise LinkError(f"{told.topic} is silent")
        return member_of(message, told.member)


def topic_of(told: Told) -> Topic:
    """The topic on which it is told."""
    qos = "latched" if told.latched else "stream"
    return Topic(told.topic, told.type, qos, "driver", ("arm",), 0, "-", "")


def member_of(message: Any, member: str) -> Any:
    """`a.b` -> member b of member a of the message."""
    return reduce(getattr, member.split("."), message)


def _check_member(told: Told) -> None:
    """Raise `ConfigError` when the message has no such member."""
    message = message_type(told.type)()
    for name in told.member.split("."):
        known = getattr(message, "get_fields_and_field_types", dict)()
        if name not in known:
            raise ConfigError(
                f"{told.type} has no member '{told.member}'",
                expected=f"a member of {told.type}, as the driver's section of the profile says it",
                got=name,
                fix=did_you_mean(name, known),
            )
        message = getattr(message, name)


class Controllers:
    """Whether the controllers that must be active are."""

    def __init__(self, node: Node, driver: ArmDriver, reply_s: float) -> None:
        chosen = driver.controllers
        self._needed = (chosen.cartesian, *chosen.beside)
        self._listing = listing(node, chosen.manager, reply_s)
        self._states: dict[str, str] = {}
        self._heard_s = self._due_s = 0.0

    def tick(self) -> None:
        """Ask again when it is time."""
        wall_s = time.monotonic()
        if wall_s < self._due_s:
            return
        response = self._listing.poll()
        if response is not None:
            self._states = {c.name: c.state for c in response.controller}
            self._heard_s, self._due_s = wall_s, wall_s + LIST_S

    def finding(self) -> Finding:
        """Which controller is not as it must be."""
        text = self._problem()
        if not text:
            return Finding("controllers", "ok", f"{', '.join(self._needed)} active")
        fix = "look why; then controller/resume and gate/acknowledge, or start the driver again"
        return Finding("controllers", "fail", text, fix)

    def _problem(self) -> str:
        if not self._listing.is_served:
            return f"nobody serves {self._listing.name}"
        if not self._states or time.monotonic() - self._heard_s > 4 * LIST_S + 1.0:
            return f"{self._listing.name} does not answer"
        for name in self._needed:
            state = self._states.get(name, "not loaded")
            if state != "active":
                return f"controller {name} is {state}"
        return ""


class Chain:
    """Whether somebody would stop the controller now: what the watchdog tells."""

    def __init__(self, node: Node) -> None:
        self._problem = Newest(node, topics.WATCHDOG_PROBLEM)

    def finding(self) -> Finding:
        """What keeps the arm from being stopped."""
        problem = self._problem.read()
        if problem is None or self._problem.silent_s > HEARD_S:
            text = "the watchdog is silent: nobody would stop the arm"
            return Finding(
                "stop", "fail", text, "it is started again; its log is logs/watchdog.log"
            )
        if problem.data:
            fix = "start the node that serves it; a dry run ends by itself"
            return Finding("stop", "fail", problem.data, fix)
        return Finding("stop", "ok", "the watchdog can stop the arm")


class Joints:
    """Whether the node that turns TCP targets into joint targets could do so now."""

    def __init__(self, node: Node) -> None:
        self._problem = Newest(node, topics.IK_PROBLEM)

    def finding(self) -> Finding:
        """What keeps it from commanding the joints."""
        problem = self._problem.read()
        if problem is None or self._problem.silent_s > HEARD_S:
            text = "the ik node is silent: nobody would move the arm"
            return Finding(IK, "fail", text, "it is started again; its log is logs/ik.log")
        if problem.data:
            fix = "start the driver; end whoever publishes joint targets, too"
            return Finding(IK, "fail", f"ik: {problem.data}"[: wire.MAX_TEXT], fix)
        return Finding(IK, "ok", "TCP targets become joint targets")


class Sight:
    """Whether the gate sees the arm: what it tells of its own reader."""

    def __init__(self, gate: Newest) -> None:
        self._gate = gate

    def finding(self) -> Finding:
        """Why the gate has no state of the arm."""
        message = self._gate.read()
        if message is None or self._gate.silent_s > HEARD_S:
            fix = "it is started again; its log is logs/gate.log"
            return Finding(STATE, "fail", "the gate is silent", fix)
        try:
            blind = wire.decode_report(message.data).blind
        except LinkError as error:
            return Finding(STATE, "fail", error.summary, error.fix)
        if blind:
            fix = "robot-rl doctor with the same words says which topic, and why"
            return Finding(STATE, "fail", f"no state of the arm: {blind}"[: wire.MAX_TEXT], fix)
        return Finding(STATE, "ok", "the gate sees the arm")


class CameraWatch:
    """Whether a camera sends pictures, by the CameraInfo that it sends beside each of them.

    The pictures themselves would be a megabyte each, in a process that has a deadline. Where nobody
    sends a CameraInfo, only the publisher of the pictures is looked for.
    """

    def __init__(self, node: Node, name: str, picture: Topic, info: Topic) -> None:
        self._node, self._name = node, f"camera {name}"
        self._picture = node.resolve_topic_name(picture.name).lstrip("/")
        self._info, self._beside = Newest(node, info), node.resolve_topic_name(info.name)

    def finding(self) -> Finding:
        """What is wrong with the camera."""
        node, info, picture = self._node, self._info, self._picture
        message = info.read()
        if not node.count_publishers(f"/{picture}"):
            return self._wrong(f"nobody publishes {picture}")
        if not node.count_publishers(self._beside):
            return Finding(self._name, "ok", f"{picture} (without a camera_info: age unknown)")
        if message is None or info.silent_s > CAMERA_S:
            return self._wrong(f"{picture} is silent")
        arrived_s = node.get_clock().now().nanoseconds * 1e-9 - info.silent_s
        age_s = arrived_s - convert.from_stamp(message.header.stamp)  # silence is no clock skew
        if abs(age_s) > CAMERA_S:
            return self._wrong(f"{picture} has stamps more than {CAMERA_S:.0f} s from our clock")
        return Finding(self._name, "ok", picture)

    def _wrong(self, what: str) -> Finding:
        fix = "look at the camera's cable and node, start it again"
        return Finding(self._name, "fail", f"{self._name}: {what}", fix)
