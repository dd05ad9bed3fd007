"""Observes a driver for some seconds and moves nothing: the ears of `robot_rl.ros.preflight`."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from robot_rl.errors import LinkError
from robot_rl.geometry import compose
from robot_rl.robots import Robot
from robot_rl.robots.chain import Chain
from robot_rl.robots.driver import ArmDriver
from robot_rl.ros import convert, topics
from robot_rl.ros.controllers import listing
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.frames import Frames
from robot_rl.ros.graph import RealGraphConfig
from robot_rl.ros.preflight import ENOUGH, Heard, Needed, Seen, tool_of
from robot_rl.ros.runtime import visitor
from robot_rl.ros.topics import Topic
from robot_rl.ros.watches import Words
from robot_rl.types import Pose

LISTEN_S = 5.0
TOGETHER_S = 0.02  # from joints to pose; an arm that is guided by hand moves by few mm meanwhile
MEASURED = (topics.JOINT_STATES.name,)  # sensors with noise: never the same for seconds


def needed_of(
    robot: Robot,
    driver: ArmDriver,
    config: RealGraphConfig,
    pictures: Mapping[str, tuple[Topic, int, int]],
) -> Needed:
    """What a run with this robot and driver needs. pictures: camera -> (topic, height, width)."""
    gripper, chosen = driver.gripper, driver.controllers
    services: dict[str, str] = {}
    if chosen.manager:
        services[f"{chosen.manager}/switch_controller"] = "stop"
        services[f"{chosen.manager}/list_controllers"] = "controllers listed"
    else:
        services[config.stop_service] = "stop"
    services |= {call.name: "recovery" for call in driver.recover}
    services |= {driver.tare: "tare"} if driver.tare else {}
    services |= dict.fromkeys(_gripper_actions(driver), "gripper")
    has_fingers = gripper.kind != "none"
    return Needed(
        min_hz=driver.min_hz,
        frames={
            topics.CURRENT_POSE.name: robot.base_frame,
            topics.CURRENT_TWIST.name: robot.base_frame,
            topics.WRENCH.name: driver.tcp_frame,
        },
        joints=robot.joint_names,
        tool=tool_of(robot),
        tcp_at=Chain(robot).tcp_in_base,
        fingers=(gripper.joints or robot.gripper.fingers) if has_fingers else (),
        ends=(gripper.closed_joints, gripper.opened_joints),
        services=services,
        controllers=(chosen.cartesian, *chosen.beside) if chosen.manager else (),
        loaded=(chosen.home,) if chosen.home else (),
        pictures=pictures,
    )


def _gripper_actions(driver: ArmDriver) -> tuple[str, ...]:
    name = driver.gripper.name
    kinds = {"command": (name,), "franka": (f"{name}/move", f"{name}/grasp")}
    return kinds.get(driver.gripper.kind, ())


class Ear:
    """One topic: what comes, and from whom."""

    def __init__(self, node: Node, topic: Topic) -> None:
        self._node, self.topic = node, topic
        self.newest = Newest(node, topic, "counted" if topic.qos == "stream" else None)
        self.messages: list[tuple[float, Any]] = []
        self.numbers: list[int] = []  # of the messages, as their publisher counts

    def poll(self) -> None:
        """Take what has arrived; pictures only the newest of."""
        for message in self.newest.arrived():
            if self.topic.qos == "image":
                self.messages = self.messages[:0]
            self.messages.append((time.time(), message))
            if self.newest.number is not None:
                self.numbers.append(self.newest.number)

    def heard(self) -> Heard:
        """What it comes to."""
        sources = self._node.get_publishers_info_by_topic(self._resolved)
        stamps = [convert.from_stamp(m.header.stamp) for _, m in self.messages]
        ages = [at_s - stamp for (at_s, _), stamp in zip(self.messages, stamps, strict=True)]
        values = {_values(m) for _, m in self.messages}
        frozen = self.topic.name in MEASURED and len(self.messages) >= ENOUGH and len(values) == 1
        return Heard(
            topic=self._resolved.lstrip("/"),
            wanted_type=self.topic.type,
            types=tuple(sorted({source.topic_type for source in sources})),
            publishers=tuple(sorted(source.node_name for source in sources)),
            count=len(self.messages),
            rate_hz=_rate_hz(self.messages) if self.messages else 0.0,
            age_s=float(np.median(ages)) if ages else 0.0,
            moves=len(set(stamps)) > 1 or len(stamps) < 2,
            frozen=frozen,
            frames=tuple(sorted({m.header.frame_id for _, m in self.messages})),
            lost=_lost(self.numbers) if len(sources) == 1 else None,
        )

    @property
    def _resolved(self) -> str:
        return self._node.resolve_topic_name(self.topic.name)


def _rate_hz(messages: list[tuple[float, Any]]) -> float:
    span_s = messages[-1][0] - messages[0][0]
    return (len(messages) - 1) / span_s if span_s > 0 else 0.0


def _lost(numbers: list[int]) -> float | None:
    """Share of one publisher's messages that did not arrive; None where nobody counts them."""
    if len(numbers) < ENOUGH:
        return None
    sent = max(numbers) - min(numbers) + 1
    return max(sent - len(numbers), 0) / sent


def _values(message: Any) -> bytes:
    """What a message measures, without its stamp."""
    if hasattr(message, "pose"):
        p, q = message.pose.position, message.pose.orientation
        return np.array((p.x, p.y, p.z, q.x, q.y, q.z, q.w)).tobytes()
    if hasattr(message, "position"):
        return bytes(memoryview(message.position)) + bytes(memoryview(message.velocity))
    return b""


def listen(
    driver: ArmDriver,
    config: RealGraphConfig,
    needed: Needed,
    *,
    learner: tuple[str, int] | None = None,
    listen_s: float = LISTEN_S,
) -> Seen:
    """Observe the driver. learner: host and port of one that must be up already."""
    remaps = {**driver.topics, **config.remaps}
    with visitor("preflight", config.domain_id, config.namespace, remaps) as node:
        listener = Listener(node, driver, needed, listen_s)
        listener.run()
        return replace(listener.seen(), learner=_unreachable(learner))


class Listener:
    """Hears everything for `listen_s`, then tells what was seen."""

    def __init__(self, node: Node, driver: ArmDriver, needed: Needed, listen_s: float) -> None:
        self._node, self._driver, self._needed, self._listen_s = node, driver, needed, listen_s
        self._ears = {topic.name: Ear(node, topic) for topic in _state_topics(driver)}
        self._pictures = {name: Ear(node, topic) for name, (topic, *_) in needed.pictures.items()}
        self._frames = Frames(node)
        self._words = Words(node, driver, needed.tool, listen_s)
        manager = driver.controllers.manager
        self._lists = listing(node, manager, listen_s) if manager else None
        self._states: dict[str, str] | None = None

    def run(self) -> None:
        """Listen."""
        executor = SingleThreadedExecutor(context=self._node.context)
        executor.add_node(self._node)
        until_s = time.monotonic() + self._listen_s
        while time.monotonic() < until_s:
            executor.spin_once(timeout_sec=0.005)
            for ear in (*self._ears.values(), *self._pictures.values()):
                ear.poll()
            if self._lists is not None and self._states is None:
                answer = self._lists.poll()
                if answer is not None:
                    self._states = {c.name: c.state for c in answer.controller}

    def seen(self) -> Seen:
        """What it came to."""
        node, needed = self._node, self._needed
        heard = {name: ear.heard() for name, ear in self._ears.items()}
        targets = [topics.TARGET_POSE, topics.TARGET_JOINTS]
        targets += [topics.JOINT_TARGET] * self._driver.joints.is_used
        newest = {camera: ear.messages[-1:] for camera, ear in self._pictures.items()}
        return Seen(
            heard=heard,
            frames_known=_connected(self._frames, heard, needed),
            joints=_joint_names(self._ears[topics.JOINT_STATES.name]),
            fingers=_fingers(self._ears, self._driver, needed.fingers),
            reach_m=_reach_m(self._ears.get(topics.CURRENT_POSE.name)),
            tcp=_tcp(self._ears, needed, self._frames),
            controllers=self._states,
            served=_served(node, needed.services),
            target_publishers=tuple(
                source.node_name
                for topic in targets
                for source in node.get_publishers_info_by_topic(node.resolve_topic_name(topic.name))
            ),
            told=tuple(self._words.findings()),
            pictures={camera: _size(m[0][1]) for camera, m in newest.items() if m},
            picture_age_s={
                camera: m[0][0] - convert.from_stamp(m[0][1].header.stamp)
                for camera, m in newest.items()
                if m
            },
        )


def _state_topics(driver: ArmDriver) -> list[Topic]:
    found = [topics.JOINT_STATES]
    if not driver.joints.is_used:  # of such an arm the node `ik` tells the TCP, once it runs
        found += [topics.CURRENT_POSE]
        found += [topics.CURRENT_TWIST] if driver.twist == "topic" else []
    found += [topics.WRENCH] if driver.wrench == "topic" else []
    fingers = driver.gripper.state_topic
    if driver.gripper.kind != "none" and fingers != topics.JOINT_STATES.name:
        found.append(replace(topics.JOINT_STATES, name=fingers))
    return found


def _connected(frames: Frames, heard: Mapping[str, Heard], needed: Needed) -> frozenset[str]:
    """Frames of the messages that /tf_static connects with the frame that is needed."""
    return frozenset(
        frame
        for name, what in heard.items()
        for frame in what.frames
        if (within := needed.frames.get(name)) and frames.find(frame, within) is not None
    )


def _size(picture: Any) -> tuple[int, int]:
    """Height and width of an Image, or of a CompressedImage."""
    if hasattr(picture, "height"):
        return picture.height, picture.width
    height, width, _ = convert.compressed_from(picture).shape
    return height, width


def _joint_names(ear: Ear) -> tuple[str, ...]:
    return tuple(ear.messages[-1][1].name) if ear.messages else ()


def _fingers(ears: Mapping[str, Ear], driver: ArmDriver, names: Iterable[str]) -> float | None:
    ear = ears.get(driver.gripper.state_topic)
    if ear is None or not ear.messages:
        return None
    try:
        return float(convert.positions_from(ear.messages[-1][1], tuple(names)).sum())
    except LinkError:
        return None


def _reach_m(ear: Ear | None) -> float | None:
    if ear is None or not ear.messages:
        return None
    p = ear.messages[-1][1].pose.position
    return float(np.linalg.norm((p.x, p.y, p.z)))


def _tcp(ears: Mapping[str, Ear], needed: Needed, frames: Frames) -> tuple[Pose, Pose] | None:
    """The TCP in the base: as the driver says last, and by the joints that were measured then."""
    poses = ears.get(topics.CURRENT_POSE.name)
    joints = ears[topics.JOINT_STATES.name].messages
    if poses is None or not poses.messages or not joints or needed.tcp_at is None:
        return None
    told = poses.messages[-1][1]
    stamp_s = convert.from_stamp(told.header.stamp)

    def gap_s(message: Any) -> float:
        return abs(convert.from_stamp(message.header.stamp) - stamp_s)

    measured = min((message for _, message in joints), key=gap_s)
    base = needed.frames[topics.CURRENT_POSE.name]
    frame_in_base = frames.find(told.header.frame_id, base)
    if frame_in_base is None or gap_s(measured) > TOGETHER_S:
        return None  # both have a line of their own in the list
    try:
        angles_rad = convert.positions_from(measured, needed.joints)
        return compose(frame_in_base, convert.pose_from(told)), needed.tcp_at(angles_rad)
    except LinkError:
        return None


def _served(node: Node, names: Iterable[str]) -> frozenset[str]:
    """Those of the services and actions that somebody serves."""
    known = {name for name, _ in node.get_service_names_and_types()}
    return frozenset(
        name
        for name in names
        if (full := node.resolve_service_name(name)) in known
        or f"{full}/_action/send_goal" in known
    )


def _unreachable(learner: tuple[str, int] | None) -> str:
    """Why the learner cannot be reached; "" when it can."""
    if learner is None:
        return ""
    try:
        socket.create_connection(learner, timeout=2.0).close()
    except OSError as error:
        return f"no learner at {learner[0]}:{learner[1]}: {error}"
    return ""
