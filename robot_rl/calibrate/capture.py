"""Which pictures to take: the arm at rest, the board readable, another pose than before.

`Capture` looks at what a person does with the arm and takes the pictures by itself; `moves`
proposes poses where the arm is to go through the gate.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.board import Board, UnreadableError
from robot_rl.calibrate.hand_eye import GOOD_TURN_RAD, turns
from robot_rl.calibrate.refine import Sample
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply, rotate, rotation_error
from robot_rl.types import Pose

STILL_S = 0.5  # at rest for so long: whatever the latency, the picture shows the arm there
STILL_M = 0.0005
STILL_RAD = 0.002
NEW_RAD = math.radians(6.0)
NEW_M = 0.04
SPAN_RAD = math.radians(25.0)  # about each axis of the hand, from one end to the other
AXES = ("x", "y", "z")

F64 = NDArray[np.float64]


class Capture:
    """Takes a picture whenever the arm has come to rest in a new pose.

    Args:
        wanted: so many pictures, and turns enough about two axes, are enough.
    """

    def __init__(self, board: Board, mount: str, wanted: int = 15) -> None:
        self.board, self.mount, self._wanted = board, mount, wanted
        self._recent: deque[tuple[float, Pose]] = deque()
        self._refused_s = -math.inf
        self.samples: list[Sample] = []
        self.pictures: list[NDArray[np.uint8]] = []
        self.problem: UnreadableError | None = None  # why the newest look has read no board

    def saw(self, stamp_s: float, tcp_in_base: Pose) -> None:
        """Take in where the TCP is."""
        self._recent.append((stamp_s, tcp_in_base))
        while stamp_s - self._recent[0][0] > 2 * STILL_S:
            self._recent.popleft()

    def is_still(self, until_s: float) -> bool:
        """Whether the arm has rested for `STILL_S` before this time, and not moved since."""
        since = [p for s, p in self._recent if s >= until_s - STILL_S]
        if len(since) < 4 or self._recent[0][0] > until_s - STILL_S + 0.05:
            return False
        last = since[-1]
        far_m = max(float(np.abs(p.position_m - last.position_m).max()) for p in since)
        turned = max(float(np.abs(rotation_error(p, last)).max()) for p in since)
        return far_m < STILL_M and turned < STILL_RAD

    def is_new(self, tcp_in_base: Pose) -> bool:
        """Whether no picture shows about the same."""
        for sample in self.samples:
            there = sample.tcp_in_base
            turned = float(np.linalg.norm(rotation_error(tcp_in_base, there)))
            moved_m = float(np.linalg.norm(tcp_in_base.position_m - there.position_m))
            if turned / NEW_RAD + moved_m / NEW_M < 1.0:
                return False
        return True

    def offer(self, stamp_s: float, rgb: NDArray[np.uint8]) -> bool:
        """Look at a picture; True when it was taken."""
        if not self._recent or not self.is_still(stamp_s):
            return False
        tcp = self._recent[-1][1]
        if not self.is_new(tcp) or stamp_s - self._refused_s < STILL_S:
            return False
        try:
            corners = self.board.find(rgb)
        except UnreadableError as error:  # looked at again in a moment
            self.problem, self._refused_s = error, stamp_s
            return False
        self.samples.append(Sample(tcp, corners))
        self.pictures.append(rgb)
        self.problem = None
        return True

    @property
    def is_done(self) -> bool:
        """Whether there are pictures enough, turned about two axes."""
        enough = len(self.samples) >= self._wanted
        return enough and turns(self.mount, self._poses)[1] >= GOOD_TURN_RAD

    @property
    def _poses(self) -> list[Pose]:
        return [s.tcp_in_base for s in self.samples]

    def spans_rad(self) -> tuple[float, float, float]:
        """How far the hand was turned about each axis of its own, from one end to the other."""
        if not self.samples:
            return 0.0, 0.0, 0.0
        first = self.samples[0].tcp_in_base
        away = [rotation_error(p, first) for p in self._poses]
        x, y, z = np.ptp([rotate(_back(first), v) for v in away], axis=0).tolist()
        return x, y, z

    def words(self) -> str:
        """How far it is, and what is missing, on one line."""
        spans = self.spans_rad()
        turned = ", ".join(
            f"{axis} {math.degrees(span):.0f}" for axis, span in zip(AXES, spans, strict=True)
        )
        said = f"{len(self.samples)} of {self._wanted} pictures; turned about the hand's {turned} "
        said += f"of {math.degrees(SPAN_RAD):.0f} degrees"
        least = int(np.argmin(spans))
        if spans[least] < SPAN_RAD:
            said += f": turn about {AXES[least]} next"
        return said


def _back(frame: Pose) -> F64:
    return frame.quaternion_xyzw * (-1.0, -1.0, -1.0, 1.0)


def moves(
    start: Pose,
    mount: str,
    distance_m: float,
    box_m: tuple[Sequence[float], Sequence[float]],
    tilt_rad: float = math.radians(18.0),
) -> Iterator[Pose]:
    """Poses around `start` from which the board should still be seen.

    Args:
        distance_m: from the camera to the board. A camera at the hand swings half-way around the
            board when it tilts; a hand that holds the board turns on the spot.
        box_m: (lowest, highest) corner of the workspace; poses outside it are left out.
    """
    tilts = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    tilts += [(a, b, c) for a, b, c in itertools.product((-0.7, 0.7), repeat=3)]
    shifts = itertools.cycle([(0, 0, 0), (0.02, 0.01, 0.02), (-0.02, 0.02, -0.02)])
    pivot = rotate(start.quaternion_xyzw, np.array((0.0, 0.0, 0.5 * distance_m)))
    pivot *= float(mount == "hand")
    low, high = (np.array(corner, np.float64) for corner in box_m)
    for tilt, shift in zip(tilts, shifts):  # noqa: B905  # shifts never end
        turn = quat_from_rotvec(rotate(start.quaternion_xyzw, tilt_rad * np.array(tilt)))
        swung = pivot - rotate(turn, pivot)
        where = start.position_m + swung + np.array(shift)
        if (where > low).all() and (where < high).all():
            yield pose(where, quat_multiply(turn, start.quaternion_xyzw))


def wiggle(start: Pose, at_s: float, size_m: float, axis: Any = (0.0, 1.0, 0.3)) -> Pose:
    """Where the TCP shall be `at_s` after the start: two sines that do not repeat for long.

    size_m: largest way from `start`. It begins at rest.
    """
    swing = 0.5 * math.sin(2 * math.pi * 0.5 * at_s) + 0.5 * math.sin(2 * math.pi * 0.83 * at_s)
    fade = min(at_s, 1.0)
    direction = np.array(axis) / np.linalg.norm(axis)
    return pose(start.position_m + size_m * fade * swing * direction, start.quaternion_xyzw)
