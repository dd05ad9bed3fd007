"""Looks at the cameras of a graph that runs (`robot-rl camera list | show | roi`); sends nothing.

Pictures go the way of the actor's (`CameraReader`), so what is refused there is refused here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from sensor_msgs.msg import Image

from robot_rl.errors import LinkError, RobotRLError, SetupError, did_you_mean
from robot_rl.observe.cameras import Calibration, CameraConfig
from robot_rl.observe.watching import Blind, Sight, StampGaps, Tally, Watch
from robot_rl.ros import convert, topics
from robot_rl.ros.cameras import CameraReader, calibration_of, image_topic, info_topic
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.graph import IMAGE_PROFILE
from robot_rl.ros.runtime import Shell, visitor
from robot_rl.ros.topics import Topic
from robot_rl.types import Pose

log = logging.getLogger(__name__)

TYPES = (topics.CAMERA_IMAGE.type, topics.CAMERA_COMPRESSED.type)
POLL_S = 0.004  # between two looks for pictures
LOOK_S = 0.2  # between two looks at who publishes
SILENT_S = 2.0  # no picture for this long: say why
DISCOVERY_S = 1.5  # publishers that run have been found after this time
NAME = "camera_viewer"  # of our node


@dataclass(frozen=True, kw_only=True)
class Where:
    """Which graph. remaps: our topic -> the driver's."""

    domain_id: int
    namespace: str = ""
    remaps: Mapping[str, str] | None = None


# --- what is there --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FoundTopic:
    """A topic with pictures. problem: why we cannot read it; "" when we can, or nothing came."""

    topic: str
    type: str
    publishers: tuple[str, ...]
    encoding: str = ""
    width: int = 0
    height: int = 0
    rate_hz: float = 0.0
    problem: str = ""


class _Ear:
    """Counts what comes on one topic, and decodes the newest."""

    def __init__(self, node: Node, name: str, kind: str) -> None:
        about = Topic(name, kind, "image", "", (), 0.0, "", "")
        self._node, self.name, self.kind = node, name, kind
        self._newest = Newest(node, about)
        self._first_s = self._last_s = 0.0
        self._count = 0

    def poll(self) -> None:
        for _ in self._newest.arrived():
            self._last_s = time.monotonic()
            self._first_s = self._first_s or self._last_s
            self._count += 1

    def found(self) -> FoundTopic:
        sources = self._node.get_publishers_info_by_topic(self.name)
        names = tuple(sorted({source.node_name for source in sources}))
        msg, span_s = self._newest.value, self._last_s - self._first_s
        if msg is None:
            return FoundTopic(topic=self.name, type=self.kind, publishers=names)
        problem, height, width = "", getattr(msg, "height", 0), getattr(msg, "width", 0)
        try:
            height, width = convert.picture_from(msg).shape[:2]
        except LinkError as error:
            problem = f"{error.summary}: {error.got}"
            if isinstance(msg, Image) and msg.encoding not in convert.ENCODINGS:
                problem = (
                    f"{msg.encoding} is no colour picture; read are {', '.join(convert.ENCODINGS)}"
                )
        return FoundTopic(
            topic=self.name,
            type=self.kind,
            publishers=names,
            encoding=getattr(msg, "encoding", "") or getattr(msg, "format", ""),
            width=width,
            height=height,
            rate_hz=(self._count - 1) / span_s if span_s > 0.0 else 0.0,
            problem=problem,
        )


def find_image_topics(where: Where, listen_s: float) -> list[FoundTopic]:
    """The topics with pictures of a graph, listened to for `listen_s` seconds; by their names."""
    ears: dict[str, _Ear] = {}
    until_s, look_s = time.monotonic() + listen_s, 0.0
    with visitor(NAME, where.domain_id, profile=IMAGE_PROFILE) as node:
        while (now_s := time.monotonic()) < until_s:
            if now_s >= look_s:
                look_s = now_s + LOOK_S
                for name, kind in _image_topics(node):
                    if name not in ears:
                        ears[name] = _Ear(node, name, kind)
            for ear in ears.values():
                ear.poll()
            time.sleep(POLL_S)
        found = [ear.found() for ear in ears.values()]
    return sorted((f for f in found if f.publishers), key=lambda f: f.topic)


def _image_topics(node: Node) -> list[tuple[str, str]]:
    """(name, type) of every topic with pictures that somebody publishes.

    Of a topic with both types only the first: nobody can listen to both.
    """
    return [
        (name, next(kind for kind in TYPES if kind in kinds))
        for name, kinds in node.get_topic_names_and_types()
        if set(TYPES) & set(kinds) and node.count_publishers(name)
    ]


# --- what a task's cameras send -------------------------------------------------------------------


class TopicWatch:
    """`Watch` of a camera's topic. `poll` is called by one thread."""

    def __init__(
        self, shell: Shell, name: str, config: CameraConfig, size: tuple[int, int], domain_id: int
    ) -> None:
        self._node, self._name, self._domain_id = shell.node, name, domain_id
        self._config = config
        self._topic = image_topic(name, config)
        self._resolved = shell.node.resolve_topic_name(self._topic.name)
        self._reader = CameraReader(shell, name, config, size)
        self._info = Newest(shell.node, info_topic(name, config))
        self._gaps = StampGaps()
        self._tally = Tally(f"topic {self._resolved}")
        self._number, self._looked_s, self._heard_s = 0, 0.0, time.monotonic()

    def sight(self) -> Sight:
        """See `Watch`."""
        return self._tally.sight()

    def poll(self) -> None:
        """Take what has arrived; when nothing does, find out why."""
        self._reader.read()
        whole, now_s = self._reader.whole, time.monotonic()
        if whole is not None and whole.number != self._number:
            self._number, self._heard_s = whole.number, now_s
            lost, calibration = self._gaps.lost(whole.stamp_s), self._calibration(*whole.rgb.shape)
            source = f"topic {self._resolved}"
            self._tally.took(whole.rgb, whole.stamp_s, lost, source, calibration)
        elif now_s - self._heard_s > SILENT_S and now_s - self._looked_s > LOOK_S:
            self._looked_s = now_s
            self._tally.wrong(self._problem())

    def _calibration(self, rows: int, columns: int, _: int) -> Calibration | None:
        """What the driver says of pictures of this size."""
        return calibration_of(self._config, self._info.read(), rows, columns)

    def _problem(self) -> RobotRLError:
        if isinstance(self._reader.refusal, LinkError):
            return self._reader.refusal
        sources = self._node.get_publishers_info_by_topic(self._resolved)
        key = f"cameras.{self._name}"
        if not sources:
            there = [name for name, _ in _image_topics(self._node)]
            return SetupError(
                f"nobody publishes {self._resolved}",
                expected=f"pictures ({self._topic.type}) in ROS domain {self._domain_id}",
                got=f"image topics: {', '.join(there) or 'none'}",
                fix=f"choose another topic, {key}.topic=...: {did_you_mean(self._resolved, there)}"
                if there
                else "start the camera's driver, in a shell with "
                f"ROS_DOMAIN_ID={self._domain_id}; robot-rl camera list shows what is there",
            )
        types = sorted({source.topic_type for source in sources})
        names = ", ".join(sorted({source.node_name for source in sources}))
        if self._topic.type not in types:
            compressed = topics.CAMERA_COMPRESSED.type in types
            return SetupError(
                f"{self._resolved} carries something else",
                expected=self._topic.type,
                got=f"{', '.join(types)} from {names}",
                fix=f"{key}.compressed={str(compressed).lower()}"
                if types[0] in TYPES
                else f"choose the topic of its pictures: {key}.topic=...",
            )
        return SetupError(
            f"{self._resolved} is silent",
            expected=f"a picture within {SILENT_S:.0f} s",
            got=f"nothing from {names}",
            fix="look at the log of the camera's driver; `ros2 topic hz` tells whether it sends",
        )


class GraphWatch:
    """The cameras of one graph, looked at in one thread of its own."""

    def __init__(self, node: Node, where: Where) -> None:
        self._where, self._stop = where, threading.Event()
        self._shell = Shell(node, {}, self._stop)
        self._watches: list[TopicWatch] = []
        self._poses = Newest(node, topics.CURRENT_POSE)
        self._tcp: Pose | None = None
        self._thread = threading.Thread(target=self._work, name="graph-cameras", daemon=True)
        self._began_s = time.monotonic()

    def sends(self, name: str, config: CameraConfig) -> bool:
        """Whether somebody publishes a camera's topic; waits until that can be known."""
        resolved = self._shell.node.resolve_topic_name(image_topic(name, config).name)
        while not (found := self._shell.node.count_publishers(resolved)):
            if time.monotonic() - self._began_s > DISCOVERY_S:
                break
            time.sleep(POLL_S)
        return found > 0

    def watch(self, name: str, config: CameraConfig, size: tuple[int, int]) -> Watch:
        """A camera's topic; before `start`."""
        try:
            made = TopicWatch(self._shell, name, config, size, self._where.domain_id)
        except rclpy_implementation.RCLError as error:
            problem = SetupError(
                f"ROS 2 does not let the topic of camera {name} be read",
                expected="one type for each topic",
                got=str(error),
                fix="another camera reads this topic as another type: look at "
                f"cameras.{name}.topic and cameras.{name}.compressed",
            )
            return Blind(problem)
        self._watches.append(made)
        return made

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def tcp_in_base(self) -> Pose | None:
        """Where the TCP is; None before anybody has said so."""
        return self._tcp

    def _work(self) -> None:
        while not self._stop.wait(POLL_S):
            msg = self._poses.read()
            with suppress(LinkError):  # not finite: the pose before it stays
                self._tcp = None if msg is None else convert.pose_from(msg)
            for watch in self._watches:
                watch.poll()

    def close(self) -> None:
        """End the thread, before the node under it is destroyed."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._shell.close()


@contextmanager
def graph_watch(where: Where) -> Iterator[GraphWatch]:
    """Look at a graph as long as the block lasts."""
    with visitor(
        NAME, where.domain_id, where.namespace, where.remaps, profile=IMAGE_PROFILE
    ) as node:
        made = GraphWatch(node, where)
        try:
            yield made
        finally:
            made.close()
