"""What a simulated scene looked like, kept beside the store to be drawn again, also altered.

    scenes = SceneLog(run_dir / SCENES)                      # a line of JSON, then fixed records
    scenes.saw(frame, state)                                 # in a tick: only to memory
    scenes.flush()                                           # beside the loop, or between episodes
    Scenes(run_dir / SCENES).state(episode=3, frame=5)       # for the mirror to draw

Review draws runs that recorded no pictures, `reward eval` draws successes without their objects.
Nothing is learned from the scenes, and they never leave the robot's machine.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.system import plain_json
from robot_rl.types import Frame, Pose, RobotState

log = logging.getLogger(__name__)

SCENES = "scenes.bin"
MOST = 256  # joints, and objects, of a scene that somebody else recorded
MAX_HEAD_BYTES = 65_536
POSE = 7  # position m, quaternion xyzw


def _layout(joints: int, objects: int) -> np.dtype[np.void]:
    """One record: joint angles, gripper width, TCP and objects in base."""
    numbers = joints + 1 + POSE * (1 + objects)
    return np.dtype([("episode", "<i4"), ("frame", "<i4"), ("values", "<f4", (numbers,))])


def _head(line: bytes) -> tuple[int, list[str]]:
    """(number of joints, names of objects) of the first line. Raises ValueError and others."""
    head = plain_json.loads(line)
    joints, objects = head["joints"], head["objects"]
    fits = type(joints) is int and 0 <= joints <= MOST and len(objects) <= MOST
    if not fits or not all(isinstance(name, str) for name in objects):
        raise ValueError("no head of a log of scenes")
    return joints, list(objects)


class SceneLog:
    """Appends scenes to a file. If that fails, they are dropped with one line in the log: only
    pictures are lost.

    `saw` and `flush` may be called by two threads.

    Args:
        path: None = nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._waiting: deque[bytes] = deque()
        self._layout: np.dtype[np.void] | None = None
        self._head, self._begun = b"", False

    def saw(self, frame: Frame, state: RobotState) -> None:
        """Keep the scene of a frame in memory until `flush`."""
        if self._path is None:
            return
        names = sorted(state.objects)
        if self._layout is None:
            joints = len(state.joint_position_rad)
            self._head = json.dumps({"joints": joints, "objects": names}).encode() + b"\n"
            self._layout = _layout(joints, len(names))
        row = np.zeros((), self._layout)
        poses = [state.tcp_in_base, *(state.objects[name] for name in names)]
        row["episode"], row["frame"] = frame.id.episode, frame.frame
        row["values"] = np.concatenate(
            [state.joint_position_rad, [state.gripper_width_m]]
            + [part for p in poses for part in (p.position_m, p.quaternion_xyzw)]
        )
        self._waiting.append(row.tobytes())

    def flush(self) -> None:
        """Write the scenes that wait."""
        if self._path is None or not self._waiting:
            return
        rows = b"".join(self._waiting.popleft() for _ in range(len(self._waiting)))
        try:
            if not self._begun:
                self._begin(self._path)
            with self._path.open("ab") as file:
                file.write(rows)
        except OSError as error:
            log.warning("no pictures for the review of this episode: %s", error)
            self._begun = False  # a torn record may stand at the end

    def _begin(self, path: Path) -> None:
        """Go on with a log of the same scene, without a torn record at its end; else begin anew."""
        assert self._layout is not None
        with path.open("a+b") as file:
            file.seek(0)
            if file.readline() == self._head:
                size = path.stat().st_size
                file.truncate(size - (size - len(self._head)) % self._layout.itemsize)
            else:
                file.truncate(0)
                file.write(self._head)
        self._begun = True


class Scenes:
    """Reads a log that may still grow, or not be there."""

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, -1
        self._objects: list[str] = []
        self._joints = 0
        self._rows: NDArray[np.void] = np.empty(0, _layout(0, 0))

    def has(self, episode: int) -> bool:
        """Whether there is anything of this episode."""
        return bool((self._read()["episode"] == episode).any())

    def state(self, episode: int, frame: int) -> RobotState | None:
        """The scene of one frame: what a mirror draws; speeds and forces are 0. None = unknown."""
        rows = self._read()
        found = rows[(rows["episode"] == episode) & (rows["frame"] == frame)]
        if not len(found):
            return None
        values = found[-1]["values"].astype(np.float64)  # the last: an episode made again
        joints, width_m, rest = np.split(values, (self._joints, self._joints + 1))
        poses = [Pose(p[:3], p[3:]) for p in rest.reshape(-1, POSE)]
        return RobotState(
            stamp_s=0.0,
            joint_position_rad=joints,
            joint_velocity_rad_s=np.zeros_like(joints),
            tcp_in_base=poses[0],
            tcp_twist_in_base=np.zeros(6),
            wrench_in_tcp=np.zeros(6),
            gripper_width_m=float(width_m[0]),
            objects=dict(zip(self._objects, poses[1:], strict=True)),
        )

    def _read(self) -> NDArray[np.void]:
        """Everything, read again when the file has grown."""
        try:
            size = self._path.stat().st_size
            if size != self._size:
                with self._path.open("rb") as file:
                    joints, objects = _head(file.readline(MAX_HEAD_BYTES))
                    layout = _layout(joints, len(objects))
                    count = (size - file.tell()) // layout.itemsize
                    self._rows = np.fromfile(file, layout, count)
                self._objects, self._joints, self._size = objects, joints, size
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            OverflowError,
        ):  # none, or none of ours: no pictures
            self._rows, self._size = np.empty(0, _layout(0, 0)), -1
        return self._rows
