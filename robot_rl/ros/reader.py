"""From state topics to one `RobotState`: polled, converted by name, paired by stamp."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robot_rl.errors import LinkError
from robot_rl.observe import Stamped, Track, newest_consistent
from robot_rl.ports import Task
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.runtime import Shell
from robot_rl.types import RobotState

log = logging.getLogger(__name__)

OBJECT = "object:"
LOOKS = 3  # a look that was interrupted half-way (no CPU) is repeated at once
DEPTH = 8  # readings kept per topic, for pairing after such an interruption


class StateReader:
    """Reads the robot's state topics. One thread; never blocks.

    Args:
        objects: names of the tracked objects that must be part of a state (none for the gate).
    """

    def __init__(self, shell: Shell, objects: Sequence[str] = ()) -> None:
        params = shell.params
        self._shell, self._tolerance_s = shell, params["pair_tolerance_s"]
        arm, fingers = params["joint_names"], params["finger_joint_names"]
        base = params["base_frame"]
        sources: dict[str, tuple[topics.Topic, Callable[[Any], object]]] = {
            "joints": (topics.JOINT_STATES, lambda m: convert.joints_from(m, arm, fingers)),
            "pose": (topics.CURRENT_POSE, _in(base, convert.pose_from)),
            "twist": (topics.CURRENT_TWIST, _in(base, convert.twist_from)),
            "wrench": (topics.WRENCH, convert.wrench_from),
        }
        for name in objects:
            sources[OBJECT + name] = (
                topics.OBJECT.named(object=name),
                _in(base, convert.pose_from),
            )
        self._sources = {
            key: (Newest(shell.node, topic, "paired"), read, shell.diagnostics.source(topic.name))
            for key, (topic, read) in sources.items()
        }
        self._tracks: dict[str, Track[Any]] = {key: Track(DEPTH) for key in sources}
        self._state: RobotState | None = None
        self._refused: dict[str, str] = {}  # source -> why its newest message was refused

    def why_not(self) -> str:
        """Why there is no new state, for people; "" when every topic is heard and understood."""
        readers = (newest for newest, _, _ in self._sources.values())
        silent = [newest.topic.name for newest in readers if newest.value is None]
        parts = [f"{key}: {why}" for key, why in self._refused.items()]
        return "; ".join([*parts, *([f"silent: {', '.join(silent)}"] if silent else [])])

    def read(self) -> RobotState | None:
        """The newest consistent state (the last one when nothing new fits); None before any.

        `stamp_s` is that of its oldest part, so that the state never looks newer than it is.
        """
        for _ in range(LOOKS):
            self._poll()
            parts = newest_consistent(self._tracks, self._tolerance_s)
            if parts is not None:
                self._state = _assemble(parts)
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


def _in(frame: str, read: Callable[[Any], object]) -> Callable[[Any], object]:
    """`read` for messages in `frame` only: limits in another frame guard another place.

    Raises:
        LinkError: when called with a message in another frame.
    """

    def checked(msg: Any) -> object:
        if msg.header.frame_id != frame:
            raise LinkError(
                f"a {type(msg).__name__} in another frame",
                expected=f"frame_id '{frame}', in which the limits are",
                got=repr(msg.header.frame_id),
                fix="have the driver publish in that frame, or set base_frame in the robot's file "
                "to the frame in which its limits are meant",
            )
        return read(msg)

    return checked


def _assemble(parts: dict[str, Stamped[Any]]) -> RobotState:
    position, velocity, width_m = parts["joints"].value
    return RobotState(
        stamp_s=min(part.stamp_s for part in parts.values()),
        joint_position_rad=position,
        joint_velocity_rad_s=velocity,
        tcp_in_base=parts["pose"].value,
        tcp_twist_in_base=parts["twist"].value,
        wrench_in_tcp=parts["wrench"].value,
        gripper_width_m=width_m,
        objects={k.removeprefix(OBJECT): p.value for k, p in parts.items() if OBJECT in k},
    )


def tracked_objects(shell: Shell, task: Task) -> tuple[str, ...]:
    """Names of the objects whose poses a state must have, in a fixed order.

    Those that the task places; on a real arm, where tracking is hard, only if the task needs them.
    """
    simulated = bool(shell.node.get_parameter("use_sim_time").value)
    if not simulated and not getattr(task, "needs_objects", True):
        return ()
    return tuple(sorted(task.sample_reset(np.random.default_rng(0)).objects))
