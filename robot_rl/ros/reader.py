"""From state topics to one `RobotState`: polled, converted by name, paired by stamp."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from robot_rl.errors import LinkError
from robot_rl.geometry import compose, quat_conjugate, quat_multiply, quat_to_rotvec, rotate
from robot_rl.observe import Stamped, Track, newest_consistent
from robot_rl.ports import Task
from robot_rl.robots import Robot
from robot_rl.robots.driver import ArmDriver
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.frames import Frames, unknown
from robot_rl.ros.preflight import tcp_or_flange, tool_of
from robot_rl.ros.runtime import Shell
from robot_rl.system.jumps import JUMP_S
from robot_rl.types import Pose, RobotState

log = logging.getLogger(__name__)

OBJECT = "object:"
LOOKS = 3  # a look that was interrupted half-way (no CPU) is repeated at once
DEPTH = 8  # readings kept per topic, for pairing after such an interruption
SLOW_S = 0.5  # wall; a topic that was not heard for this long is silent, also a slow gripper's
AHEAD_S = 0.1  # run time; a message from further ahead has a wrong stamp
TWIST_S = 0.04  # a derived twist is the mean over about this long: shorter is noise
NO_DRIVER = ArmDriver()


class StateReader:
    """Reads the robot's state topics. One thread; never blocks.

    Args:
        objects: names of the tracked objects that must be part of a state (none for the gate).
        robot, driver: whose topics these are, with a vendor's driver; None = as our simulated arm.
    """

    def __init__(
        self,
        shell: Shell,
        objects: Sequence[str] = (),
        robot: Robot | None = None,
        driver: ArmDriver = NO_DRIVER,
    ) -> None:
        params = shell.params
        self._shell, self._tolerance_s, self._driver = shell, params["pair_tolerance_s"], driver
        self._base = params["base_frame"]
        self._frames = Frames(shell.node) if driver.is_vendors else None
        self._width = _Width(shell, robot, driver) if robot and driver.is_vendors else None
        self._tool = tool_of(robot) if robot else None
        self._past: deque[tuple[float, Pose]] = deque()  # poses of the last `TWIST_S`
        read_pose = self._in_base(convert.pose_from, compose)
        sources: dict[str, tuple[topics.Topic, Callable[[Any], object]]] = {
            "joints": (topics.JOINT_STATES, self._joints),
            "pose": (topics.CURRENT_POSE, read_pose),
        }
        if driver.twist == "topic":
            read = self._in_base(convert.twist_from, _turned_twist)
            sources["twist"] = (topics.CURRENT_TWIST, read)
        if driver.wrench == "topic":
            sources["wrench"] = (topics.WRENCH, self._wrench)
        else:
            log.warning("the driver publishes no wrench: no force stops the arm")
        for name in objects:
            sources[OBJECT + name] = (topics.OBJECT.named(object=name), read_pose)
        self._sources = {
            key: (Newest(shell.node, topic, "paired"), read, shell.diagnostics.source(topic.name))
            for key, (topic, read) in sources.items()
        }
        self._tracks: dict[str, Track[Any]] = {key: Track(DEPTH) for key in sources}
        self._state: RobotState | None = None
        self._refused: dict[str, str] = {}  # source -> why its newest message was refused
        # in simulation states and /clock have one source, and a state may come before its time
        self._ahead_s = JUMP_S if shell.is_simulated else AHEAD_S

    @property
    def topics(self) -> tuple[topics.Topic, ...]:
        """Every topic that a state is made of: each has one publisher, the driver."""
        own = tuple(newest.topic for newest, _, _ in self._sources.values())
        return own + (self._width.topics if self._width else ())

    def why_not(self) -> str:
        """Why there is no new state, for people; "" when every topic is heard and understood."""
        readers = (newest for newest, _, _ in self._sources.values())
        silent = [newest.topic.name for newest in readers if newest.silent_s > SLOW_S]
        parts = [f"{key}: {why}" for key, why in self._refused.items()]
        parts += [self._width.why_not()] if self._width and self._width.why_not() else []
        return "; ".join([*parts, *([f"silent: {', '.join(silent)}"] if silent else [])])

    def read(self) -> RobotState | None:
        """The newest consistent state (the last one when nothing new fits); None before any.

        `stamp_s` is that of its oldest part, so that the state never looks newer than it is.
        """
        for _ in range(LOOKS):
            self._poll()
            parts = newest_consistent(self._tracks, self._tolerance_s)
            if parts is not None and (self._width is None or self._width.is_known()):
                self._state = self._assemble(parts)
                if max(t.newest.stamp_s for t in self._tracks.values() if t.newest) <= (
                    self._state.stamp_s + self._tolerance_s
                ):
                    break
        return self._state

    def _poll(self) -> None:
        """Take what has arrived on every topic."""
        now_s, wall_s = self._shell.now_s(), time.monotonic()
        for key, (newest, convert_message, freshness) in self._sources.items():
            for msg in newest.arrived():
                stamp_s = convert.from_stamp(msg.header.stamp)
                try:
                    self._check_stamp(stamp_s - now_s)
                    kept = self._tracks[key].add(stamp_s, convert_message(msg))
                    self._refused.pop(key, None)
                except LinkError as error:
                    kept = False
                    self._refused[key] = (
                        f"{error.summary} (expected {error.expected}, got {error.got})"
                    )
                    self._shell.diagnostics.error(str(error))
                freshness.saw(wall_s, now_s - stamp_s)
                freshness.dropped += not kept

    # --- one message -----------------------------------------------------------------------------

    def _check_stamp(self, ahead_s: float) -> None:
        """Refuse what is from the future: it would hide all that comes after it."""
        if ahead_s > self._ahead_s:
            raise LinkError(
                "stamped in the future",
                expected=f"at most {self._ahead_s:g} s ahead of our clock",
                got=f"{ahead_s:.2f} s",
                fix="synchronise the clocks (chrony); look whether a recording is played back",
            )

    def _joints(self, message: Any) -> object:
        """(position [J] rad, velocity [J] rad/s, finger distance m)."""
        params = self._shell.params
        if self._width is None:
            return convert.joints_from(message, params["joint_names"], params["finger_joint_names"])
        self._width.take(message)
        position, velocity, _ = convert.joints_from(message, params["joint_names"], ())
        return position, velocity, self._width.width_m

    def _in_base(
        self, read: Callable[[Any], Any], turned: Callable[[Pose, Any], Any]
    ) -> Callable[[Any], object]:
        """`read` for messages in the base frame, or in one that is fixed to it.

        Limits in another frame guard another place: such a message is refused with `LinkError`.
        """

        def checked(message: Any) -> object:
            frame = message.header.frame_id
            if frame == self._base:
                return read(message)
            found = self._frames.find(frame, self._base) if self._frames else None
            if found is None:
                raise unknown(f"a {type(message).__name__}", self._base, frame)
            return turned(found, read(message))

        return checked

    def _wrench(self, message: Any) -> object:
        """Force and torque that act on the tool, about the TCP."""
        wrench, driver = convert.wrench_from(message), self._driver
        frame = message.header.frame_id
        if self._frames is None or frame == driver.tcp_frame:
            return driver.wrench_sign * wrench
        found = self._frames.find(frame, driver.tcp_frame)
        if found is None:
            raise LinkError(
                "a WrenchStamped in another frame",
                expected=f"frame_id '{driver.tcp_frame}', about whose origin forces are told, or "
                "one that /tf_static connects with it",
                got=repr(frame),
                fix=self._wrench_fix(frame),
            )
        return driver.wrench_sign * _turned_wrench(found, wrench)

    def _wrench_fix(self, frame: str) -> str:
        fix = "have the driver publish in that frame, or start its robot_state_publisher"
        if self._tool is None:
            return fix
        return f"{fix}; {tcp_or_flange(self._tool, frame, self._driver.tcp_frame)}"

    # --- the state -------------------------------------------------------------------------------

    def _assemble(self, parts: dict[str, Stamped[Any]]) -> RobotState:
        position, velocity, width_m = parts["joints"].value
        tcp: Stamped[Pose] = parts["pose"]
        return RobotState(
            stamp_s=min(part.stamp_s for part in parts.values()),
            joint_position_rad=position,
            joint_velocity_rad_s=velocity,
            tcp_in_base=tcp.value,
            tcp_twist_in_base=parts["twist"].value if "twist" in parts else self._derived(tcp),
            wrench_in_tcp=parts["wrench"].value if "wrench" in parts else np.zeros(6),
            gripper_width_m=width_m,
            objects={k.removeprefix(OBJECT): p.value for k, p in parts.items() if OBJECT in k},
        )

    def _derived(self, tcp: Stamped[Pose]) -> np.ndarray:
        """Twist from the poses of the last `TWIST_S`; zero until there are two."""
        past = self._past
        if past and not past[-1][0] <= tcp.stamp_s <= past[-1][0] + 1.0:
            past.clear()
        if not past or tcp.stamp_s > past[-1][0]:
            past.append((tcp.stamp_s, tcp.value))
        while len(past) > 2 and past[1][0] <= tcp.stamp_s - TWIST_S:
            past.popleft()
        passed_s = past[-1][0] - past[0][0]
        if passed_s <= 0.0:
            return np.zeros(6)
        (_, before), (_, now) = past[0], past[-1]
        turn = quat_multiply(now.quaternion_xyzw, quat_conjugate(before.quaternion_xyzw))
        moved = (now.position_m - before.position_m, quat_to_rotvec(turn))
        return np.concatenate(moved) / passed_s


def _turned_twist(frame_in_base: Pose, twist: np.ndarray) -> np.ndarray:
    """A twist of the same point, seen from base."""
    turn = frame_in_base.quaternion_xyzw
    return np.concatenate((rotate(turn, twist[:3]), rotate(turn, twist[3:])))


def _turned_wrench(frame_in_tcp: Pose, wrench: np.ndarray) -> np.ndarray:
    """A wrench about the origin of another frame -> about the TCP, in its axes."""
    force = rotate(frame_in_tcp.quaternion_xyzw, wrench[:3])
    torque = rotate(frame_in_tcp.quaternion_xyzw, wrench[3:])
    return np.concatenate((force, torque + np.cross(frame_in_tcp.position_m, force)))


class _Width:
    """Finger distance from the driver's finger joints, perhaps on a topic of their own."""

    def __init__(self, shell: Shell, robot: Robot, driver: ArmDriver) -> None:
        gripper = driver.gripper
        self._shell, self._gripper, self._stroke_m = shell, gripper, robot.gripper.stroke_m
        self._names = gripper.joints or tuple(shell.params["finger_joint_names"])
        self._newest: Newest | None = None
        self._width_m: float | None = 0.0 if gripper.kind == "none" else None
        self._read_s = -np.inf
        self._refused = ""
        if gripper.kind != "none" and gripper.state_topic != topics.JOINT_STATES.name:
            topic = replace(topics.JOINT_STATES, name=gripper.state_topic)
            self._newest = Newest(shell.node, topic)

    @property
    def topics(self) -> tuple[topics.Topic, ...]:
        """The topic of the fingers, where they have their own."""
        return (self._newest.topic,) if self._newest else ()

    def take(self, message: Any) -> None:
        """Read the fingers out of the arm's joint states, when they are in them."""
        if self._newest is None and self._gripper.kind != "none":
            self._read(message)

    def _read(self, message: Any) -> None:
        joints = sum(convert.positions_from(message, self._names).tolist())
        self._width_m = self._gripper.width_m(joints, self._stroke_m)
        self._read_s = time.monotonic()

    def is_known(self) -> bool:
        """Whether there is a width that is new enough."""
        if self._newest is not None:
            for message in self._newest.arrived():
                try:
                    self._read(message)
                    self._refused = ""
                except LinkError as error:
                    self._refused = str(error)
        return self._gripper.kind == "none" or time.monotonic() - self._read_s < SLOW_S

    def why_not(self) -> str:
        """Why there is no width; "" when there is one."""
        if self.is_known():
            return ""
        return self._refused or f"silent: {self._gripper.state_topic} (finger joints)"

    @property
    def width_m(self) -> float:
        """The newest width."""
        return 0.0 if self._width_m is None else self._width_m


def tracked_objects(shell: Shell, task: Task) -> tuple[str, ...]:
    """Names of the objects whose poses a state must have, in a fixed order.

    Those that the task places; on a real arm, where tracking is hard, only if the task needs them.
    """
    if not shell.is_simulated and not getattr(task, "needs_objects", True):
        return ()
    return tuple(sorted(task.sample_reset(np.random.default_rng(0)).objects))
