"""Moves a camera's and a board's pose until all corners fall where they were seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.board import Board, Corners
from robot_rl.geometry import (
    compose,
    inverse,
    pose,
    quat_from_rotvec,
    quat_to_rotvec,
    rotation_error,
)
from robot_rl.observe.cameras import Calibration
from robot_rl.types import Pose

LENSES = 6  # fx, fy, cx, cy, k1, k2

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture at rest: where the TCP was, and where the corners were seen."""

    tcp_in_base: Pose
    corners: Corners


def moved(mount: str, tcp_in_base: Pose) -> Pose:
    """What the arm does, as the camera and the board feel it: M of `hand_eye`."""
    return inverse(tcp_in_base) if mount == "hand" else tcp_in_base


@dataclass(frozen=True, slots=True)
class Solution:
    """x: camera in mount; y: board where it is fixed; scale: true size of the board over said."""

    x: Pose
    y: Pose
    lens: Calibration
    scale: float = 1.0

    def stepped(self, step: F64, *, lens: bool, scale: bool) -> Solution:
        """Moved by (x: m, rad; y: m, rad; lens: px and its coefficients; scale)."""
        k, distortion = self.lens.k, self.lens.distortion
        if lens:
            fx, fy, cx, cy, k1, k2 = step[12 : 12 + LENSES].tolist()
            k = k + np.array(((fx, 0, cx), (0, fy, cy), (0, 0, 0.0)))
            distortion = (distortion[0] + k1, distortion[1] + k2, *distortion[2:])
        return Solution(
            nudged(self.x, step[:6]),
            nudged(self.y, step[6:12]),
            Calibration(k, distortion, self.lens.model),
            self.scale + (float(step[-1]) if scale else 0.0),
        )


def nudged(value: Pose, step: F64) -> Pose:
    """Moved by [6] metres and radians in its own frame."""
    return compose(value, pose(step[:3], quat_from_rotvec(step[3:6])))


class Problem:
    """Reprojection error over all pictures as a function of X, Y and perhaps the lens."""

    def __init__(self, board: Board, mount: str, free_lens: bool) -> None:
        self._places, self._mount, self._free = board.corners_m, mount, free_lens

    def _seen(self, s: Solution, sample: Sample) -> Pose:
        """The board in the camera."""
        fixed = compose(moved(self._mount, sample.tcp_in_base), s.y)
        return compose(inverse(s.x), fixed)

    def _misses(self, s: Solution, sample: Sample) -> F64:
        """Projected minus seen corners [2 N] px."""
        places = s.scale * self._places[sample.corners.ids]
        points = project(places, self._seen(s, sample), s.lens)
        return (points - sample.corners.points_px).ravel()

    def each(self, s: Solution, samples: Sequence[Sample]) -> F64:
        """Root mean square distance [px] in each picture."""
        return np.array([math.sqrt(2 * np.mean(self._misses(s, one) ** 2)) for one in samples])

    def solve(
        self,
        samples: Sequence[Sample],
        x: Pose,
        y: Pose,
        lens: Calibration,
        *,
        rounds: int = 30,
        scale: bool = False,
    ) -> Solution:
        """Levenberg-Marquardt (Marquardt, 1963), derivatives by differences."""
        free = self._free and not scale
        units = np.concatenate((np.full(12, 1e-6), _lens_units(free), [1e-6] if scale else []))
        at, damping = Solution(x, y, lens), 1e-4

        def misses(s: Solution) -> F64:
            return np.concatenate([self._misses(s, one) for one in samples])

        def moved_by(step: F64) -> Solution:
            return at.stepped(step, lens=free, scale=scale)

        now = misses(at)
        for _ in range(rounds):
            columns = [(misses(moved_by(e * u)) - now) / u for e, u in zip(np.eye(len(units)),
                       units, strict=True)]  # fmt: skip
            j = np.stack(columns, axis=1)
            normal, slope = j.T @ j, j.T @ now
            before = float(now @ now)
            while damping < 1e8:
                step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), slope)
                there = moved_by(np.asarray(step, np.float64))
                then = misses(there)
                if float(then @ then) <= before:
                    break
                damping *= 10.0
            else:
                return at
            at, now, damping = there, then, damping / 10.0
            if before - float(now @ now) < 1e-9 * before:
                break
        return at

    def spread(self, samples: Sequence[Sample], s: Solution) -> tuple[float, float]:
        """Jackknife (Quenouille, Tukey): solved again without each of the pictures."""
        n = len(samples)
        without = [
            self.solve([*samples[:i], *samples[i + 1 :]], s.x, s.y, s.lens, rounds=3)
            for i in range(n)
        ]
        where = np.array([w.x.position_m for w in without])
        turn = np.array([rotation_error(w.x, s.x) for w in without])

        def deviation(values: F64) -> float:
            return math.sqrt((n - 1) * float(np.var(values, axis=0).sum()))

        return deviation(where), deviation(turn)

    def scale(self, samples: Sequence[Sample], s: Solution) -> float:
        """Size of the board as the arm's way measures it, relative to what was said."""
        return self.solve(samples, s.x, s.y, s.lens, rounds=10, scale=True).scale

    def mm_per_px(self, samples: Sequence[Sample], s: Solution) -> float:
        """How much a pixel is at the distance of the board, on average."""
        far_m = np.mean([self._seen(s, one).position_m[2] for one in samples])
        return 1e3 * float(far_m) / float(s.lens.k[0, 0])


def _lens_units(free: bool) -> list[float]:
    return [1e-4, 1e-4, 1e-4, 1e-4, 1e-7, 1e-7] if free else []


def project(points_m: F64, frame_in_camera: Pose, lens: Calibration) -> F64:
    """Pixels [N, 2] of points [N, 3] of a frame."""
    import cv2

    turn = quat_to_rotvec(frame_in_camera.quaternion_xyzw)
    distortion: Any = np.array(lens.distortion) if lens.distortion else None
    seen, _ = cv2.projectPoints(points_m, turn, frame_in_camera.position_m, lens.k, distortion)
    return np.asarray(seen, np.float64).reshape(-1, 2)
