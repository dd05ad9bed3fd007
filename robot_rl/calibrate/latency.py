"""How late one signal is behind another: pictures behind the arm, the arm behind its commands.

The arm wiggles. For pictures the whole geometry is known from `hand_eye`, but for the board's own
place: that and the lateness are found together, so that the corners of all pictures fall where they
were seen. Poses are interpolated between states; the answer lies between pictures, because many of
them see the same motion at different moments. (Fitting any linear function of the pose instead
needs no geometry, but a soft arm also turns a little, in step with its speed, and a speed is what
lateness looks like: errors of 20 ms.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.board import Board, Corners
from robot_rl.calibrate.hand_eye import board_in_camera
from robot_rl.calibrate.refine import moved, nudged, project
from robot_rl.errors import ConfigError
from robot_rl.geometry import (
    compose,
    inverse,
    pose,
    quat_from_rotvec,
    quat_multiply,
    rotation_error,
)
from robot_rl.observe.cameras import Calibration
from robot_rl.types import Pose

MOST_S = 0.5  # a later picture is of no use to anybody
LEAST_S = -0.2  # stamps may say a later time than is true, when clocks differ
GUESSES_S = (0.0, 0.1, 0.2, 0.3, 0.4, -0.1)  # the wiggle takes more than a second
STEP_S = 0.002
PARTS = 4  # of a recording, each judged alone: they tell how sure the whole is
STUDENT = 3.18  # 95 % of Student's t with `PARTS` - 1 degrees of freedom
MIN_SAMPLES = 40
MIN_MOTION_M = 0.003
MIN_EXPLAINED = 0.9  # of the motion: less is not the same motion

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lateness:
    """latency_s: how late; sure_s: plus or minus, about 95 %; explained: share of the motion."""

    latency_s: float
    sure_s: float
    explained: float
    samples: int


class PoseTrack:
    """Poses over time, between them by interpolation; they may turn by less than half a turn.

    Args:
        stamps_s: increasing.
    """

    def __init__(self, stamps_s: Sequence[float], poses: Sequence[Pose]) -> None:
        self.stamps_s, self._first = np.array(stamps_s), poses[0]
        self.where_m = np.array([p.position_m for p in poses])
        self._turned = np.array([rotation_error(p, poses[0]) for p in poses])

    def at(self, stamp_s: float) -> Pose:
        """The pose at a time."""
        both = np.hstack((self.where_m, self._turned))
        x = [np.interp(stamp_s, self.stamps_s, column) for column in both.T]
        return pose(x[:3], quat_multiply(quat_from_rotvec(x[3:]), self._first.quaternion_xyzw))

    def covers(self, stamps_s: F64) -> NDArray[np.bool_]:
        """Whether each time lies in the track, however late it may be found to be."""
        return (stamps_s - MOST_S >= self.stamps_s[0]) & (stamps_s - LEAST_S <= self.stamps_s[-1])

    def need_motion(self) -> None:
        """Raise `ConfigError` when nothing has moved."""
        moved_m = float(self.where_m.std(0).max())
        if moved_m < MIN_MOTION_M:
            raise ConfigError(
                "the arm has hardly moved",
                expected=f"a wiggle of {1e3 * MIN_MOTION_M:g} mm (standard deviation) or more",
                got=f"{1e3 * moved_m:.1f} mm",
                fix="move it to and fro by 2 cm, about once in two seconds, while it is filmed",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What is known of a camera when its lateness is asked for; see `hand_eye.Result`."""

    board: Board
    mount: str
    camera_in_mount: Pose
    lens: Calibration


def camera_lateness(
    track: PoseTrack, taken_s: Sequence[float], corners: Sequence[Corners], known: Geometry
) -> Lateness:
    """How late the stamps of pictures are behind those of the arm's states.

    Args:
        track: of the TCP in base. taken_s: stamps of the pictures in which corners were found.

    Raises:
        ConfigError: too few pictures, nothing moved, or the board does not move with the arm.
    """
    inside = np.flatnonzero(track.covers(np.array(taken_s))).tolist()
    _need(len(inside), "the board")
    track.need_motion()
    film = _Film(track, [taken_s[i] for i in inside], [corners[i] for i in inside], known)
    everything = range(len(inside))
    guesses = [film.fitted(everything, film.guess(late_s), rounds=3) for late_s in GUESSES_S]
    best = film.fitted(everything, min(guesses, key=lambda g: g.left).at, rounds=20)
    explained = 1.0 - best.left / max(film.motion(), 1e-12)
    _need_explained(explained, "the board")
    edges = _edges(len(inside))
    parts = [film.fitted(range(a, b), best.at, rounds=10).at[1] for a, b in pairwise(edges)]
    return Lateness(best.at[1], _sure(parts), explained, len(inside))


_At = tuple[Pose, float]  # the board where it is fixed; lateness


@dataclass(frozen=True, slots=True)
class _Fit:
    at: _At
    left: float  # sum of squares [px^2]


class _Film:
    """Pictures of the board while the arm moves."""

    def __init__(
        self,
        track: PoseTrack,
        taken_s: Sequence[float],
        corners: Sequence[Corners],
        known: Geometry,
    ) -> None:
        self._track, self._taken_s, self._corners, self._known = track, taken_s, corners, known
        self._places = known.board.corners_m

    def guess(self, late_s: float) -> _At:
        """The board's place from the first picture, if it is so late."""
        known = self._known
        seen = compose(known.camera_in_mount, board_in_camera(self._corners[0], known.board,
                       known.lens))  # fmt: skip
        m = moved(known.mount, self._track.at(self._taken_s[0] - late_s))
        return compose(inverse(m), seen), late_s

    def _misses(self, which: Sequence[int], at: _At) -> F64:
        known, (board, late_s) = self._known, at
        out = []
        for i in which:
            m = moved(known.mount, self._track.at(self._taken_s[i] - late_s))
            seen = compose(inverse(known.camera_in_mount), compose(m, board))
            points = project(self._places[self._corners[i].ids], seen, known.lens)
            out.append((points - self._corners[i].points_px).ravel())
        return np.concatenate(out)

    def fitted(self, which: Sequence[int], at: _At, rounds: int) -> _Fit:
        """Gauss-Newton over the board's place and the lateness."""
        unit = np.array((*[1e-6] * 6, 1e-4))
        now = self._misses(which, at)
        for _ in range(rounds):
            tried = [self._misses(which, _stepped(at, e * u)) for e, u in zip(np.eye(7), unit,
                     strict=True)]  # fmt: skip
            j = np.stack([(t - now) / u for t, u in zip(tried, unit, strict=True)], axis=1)
            step = np.asarray(np.linalg.lstsq(j, -now, rcond=None)[0], np.float64)
            step[6] = np.clip(step[6], -0.1, 0.1)
            there = _stepped(at, step)
            then = self._misses(which, there)
            if float(then @ then) >= float(now @ now):
                break
            at, now = there, then
        return _Fit(at, float(now @ now))

    def motion(self) -> float:
        """Sum of squares [px^2] of the corners about their mean places."""
        ids = np.concatenate([c.ids for c in self._corners])
        points = np.concatenate([c.points_px for c in self._corners])
        return sum(
            float(np.square(points[ids == i] - points[ids == i].mean(0)).sum()) for i in set(ids)
        )


def _stepped(at: _At, step: F64) -> _At:
    return nudged(at[0], step[:6]), float(np.clip(at[1] + step[6], LEAST_S, MOST_S))


def command_lateness(targets: PoseTrack, states: PoseTrack) -> Lateness:
    """How late the TCP follows its targets, along the direction in which these move most.

    At the wiggle's own frequency: an impedance controller has no single delay.

    Raises:
        ConfigError: too few states, nothing moved, or the arm does not follow.
    """
    inside = targets.covers(states.stamps_s)
    _need(int(inside.sum()), "the arm's states")
    targets.need_motion()
    centred = targets.where_m - targets.where_m.mean(0)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    lead, late = centred @ direction, states.where_m[inside] @ direction
    late_s = states.stamps_s[inside]

    def left(shift_s: float, part: slice) -> float:
        then = np.interp(late_s[part] - shift_s, targets.stamps_s, lead)
        known = np.stack((then, np.ones_like(then)), axis=1)
        factors, *_ = np.linalg.lstsq(known, late[part], rcond=None)
        return float(np.square(late[part] - known @ factors).sum())

    found, rest = _least(lambda shift_s: left(shift_s, slice(None)))
    explained = 1.0 - rest / max(float(np.square(late - late.mean()).sum()), 1e-12)
    _need_explained(explained, "the arm")
    edges = _edges(len(late_s))
    parts = [_least(lambda shift_s, p=slice(a, b): left(shift_s, p))[0] for a, b in pairwise(edges)]
    return Lateness(found, _sure(parts), explained, len(late_s))


def _least(left: Callable[[float], float]) -> tuple[float, float]:
    """(where, how much): the least of a grid, then of a parabola through it."""
    grid = np.arange(LEAST_S, MOST_S + STEP_S / 2, STEP_S)
    values = np.array([left(shift) for shift in grid])
    i = int(np.clip(np.argmin(values), 1, len(grid) - 2))
    before, at, after = values[i - 1 : i + 2].tolist()
    bend = before - 2 * at + after
    offset = 0.5 * (before - after) / bend if bend > 0 else 0.0
    return float(grid[i] + STEP_S * offset), at


def _edges(count: int) -> list[int]:
    """Of `PARTS` equal parts."""
    return [round(x) for x in np.linspace(0, count, PARTS + 1).tolist()]


def _sure(parts: Sequence[float]) -> float:
    return STUDENT * float(np.std(parts, ddof=1)) / math.sqrt(len(parts))


def _need(count: int, what: str) -> None:
    if count < MIN_SAMPLES:
        raise ConfigError(
            f"too little was seen of {what}",
            expected=f"{MIN_SAMPLES} times while the arm moves",
            got=str(count),
            fix="keep the board in the picture while the arm moves; film for longer (--seconds)",
        )


def _need_explained(explained: float, what: str) -> None:
    if explained < MIN_EXPLAINED:
        raise ConfigError(
            f"{what} does not move as it should",
            expected=f"{100 * MIN_EXPLAINED:g} % of its motion explained by where the arm was",
            got=f"{100 * max(explained, 0.0):.0f} %",
            fix="fix camera and board; if the camera was moved, robot-rl calibrate camera first",
        )
