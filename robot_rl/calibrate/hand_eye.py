"""Where a camera is: hand-eye calibration from pictures of a board and the poses of the TCP.

Two mounts. `hand`: the camera is at the hand and the board stands still; wanted is the camera in
the TCP. `beside`: the camera stands still and the arm holds the board; wanted is the camera in the
base. With M = base_in_tcp (hand) or tcp_in_base (beside), X the wanted pose, Y the board where it
is fixed, and C the board in the camera, every picture says M Y = X C; two pictures say A X = X B.

A closed form begins (Park and Martin, IEEE T-RO 10(5), 1994: rotations by matching rotation
vectors, then translations by linear least squares), because OpenCV 5.0 for Python does not offer
its own (`calibrateHandEye`, issue 29565). A joint refinement then moves X and Y until the corners
fall where they were seen in all pictures together (Levenberg-Marquardt on the reprojection error),
which uses that a board is seen more exactly across the view than along it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.board import Board, Corners
from robot_rl.calibrate.refine import Problem, Sample, moved
from robot_rl.errors import ConfigError
from robot_rl.geometry import (
    compose,
    inverse,
    quat_from_rotvec,
    quat_to_matrix,
    quat_to_rotvec,
    rotation_error,
)
from robot_rl.observe.cameras import Calibration
from robot_rl.types import Pose

MOUNTS = ("hand", "beside")
MIN_PICTURES = 8
MAX_DROPPED = 0.34  # of the pictures
OUTLIER = 3.0  # times the usual residual of a picture
SLACK_PX = 0.3  # nothing is an outlier that fits better than this
APART_RAD = math.radians(1.0)  # the same turn, measured by the arm and seen, may differ by this
LEAST_TURN_RAD = math.radians(4.0)  # about a second axis (root mean square): less fixes no position
GOOD_TURN_RAD = math.radians(8.0)
MOST_RMS = 0.01  # of the picture's width: more is another geometry, not noise

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Result:
    """A calibrated camera.

    Attributes:
        camera_in_mount: optical frame in the TCP (`hand`) or in the base (`beside`).
        board: where the board is: in the base (`hand`) or in the TCP (`beside`).
        lens: intrinsics that were used or found.
        residuals_px: root mean square of each picture used; used: their numbers.
        dropped: numbers of the pictures that do not fit the others.
        spread_m, spread_rad: how far the result would move with other pictures of this kind
            (jackknife, one standard deviation; length of the vector).
        turn_rad: root mean square turns [3] of the mount about its principal axes, largest first.
        scale: size of the board, as the arm measures it, over what was said of it.
        warnings: what makes the result doubtful; () = nothing.
    """

    mount: str
    camera_in_mount: Pose
    board: Pose
    lens: Calibration
    residuals_px: tuple[float, ...]
    used: tuple[int, ...]
    dropped: tuple[int, ...]
    spread_m: float
    spread_rad: float
    turn_rad: tuple[float, float, float]
    scale: float
    warnings: tuple[str, ...] = field(default=())

    @property
    def rms_px(self) -> float:
        """Reprojection error over all pictures used."""
        return float(np.sqrt(np.mean(np.square(self.residuals_px))))

    def camera_in_base(self, tcp_in_base: Pose) -> Pose:
        """Where the camera is while the TCP is there."""
        if self.mount == "beside":
            return self.camera_in_mount
        return compose(tcp_in_base, self.camera_in_mount)


def turns(mount: str, poses: Sequence[Pose]) -> tuple[float, float, float]:
    """Root mean square turns [rad] about the principal axes of what moves, largest first."""
    m = [moved(mount, p) for p in poses]
    if len(m) < 2:
        return 0.0, 0.0, 0.0
    vectors = np.array([rotation_error(a, m[0]) for a in m])
    vectors -= vectors.mean(0)
    found = np.linalg.svd(vectors, compute_uv=False) / math.sqrt(len(m))
    a, b, c = [*found.tolist(), 0.0, 0.0][:3]
    return a, b, c


def hand_eye(
    samples: Sequence[Sample],
    board: Board,
    mount: str,
    lens: Calibration | None,
    size: tuple[int, int],
) -> Result:
    """Calibrate a camera.

    Args:
        samples: at least `MIN_PICTURES`, the arm at rest in each and turned about two axes.
        mount: "hand" or "beside".
        lens: intrinsics of the whole picture; None = found from the same pictures.
        size: height, width of the pictures.

    Raises:
        ConfigError: too few pictures, too little turning, or pictures that contradict each other.
    """
    if mount not in MOUNTS:
        raise ConfigError(
            "a camera is not mounted so",
            expected=" or ".join(MOUNTS),
            got=mount,
            fix="--mount hand",
        )
    if len(samples) < MIN_PICTURES:
        raise ConfigError(
            "too few pictures to calibrate with",
            expected=f"at least {MIN_PICTURES}, better 15, each from another side",
            got=str(len(samples)),
            fix="show the board from more sides, turned about different axes",
        )
    turned = turns(mount, [s.tcp_in_base for s in samples])
    if turned[1] < LEAST_TURN_RAD:
        raise ConfigError(
            "the arm has turned about one axis only: the camera's place along it is unknown",
            expected=f"turns about two axes, {math.degrees(LEAST_TURN_RAD):g} degrees or more",
            got=f"{', '.join(f'{math.degrees(t):.1f}' for t in turned)} degrees (root mean square "
            "about the three principal axes)",
            fix="tilt the hand forwards and sideways as well, by 15 to 30 degrees",
        )
    free = lens is None
    lens = lens or _first_lens(samples, board, size)
    x, y, fits = _closed_form(samples, board, mount, lens)
    used = [i for i, ok in enumerate(fits) if ok]
    problem = Problem(board, mount, free)
    while True:
        solution = problem.solve([samples[i] for i in used], x, y, lens)
        worst = problem.each(solution, [samples[i] for i in used])
        usual = float(np.median(worst))
        bad = {used[i] for i in np.flatnonzero(worst > max(OUTLIER * usual, usual + SLACK_PX))}
        used = [i for i in used if i not in bad]
        if len(used) < max((1 - MAX_DROPPED) * len(samples), MIN_PICTURES - 2):
            raise _contradictory(len(samples), len(samples) - len(used))
        if not bad:
            break
    if math.sqrt(float(np.mean(np.square(worst)))) > MOST_RMS * size[1]:
        raise _contradictory(len(samples), len(samples))
    kept = [samples[i] for i in used]
    spread_m, spread_rad = problem.spread(kept, solution)
    scale = problem.scale(kept, solution)
    result = Result(
        mount=mount,
        camera_in_mount=solution.x,
        board=solution.y,
        lens=solution.lens,
        residuals_px=tuple(worst.tolist()),
        used=tuple(used),
        dropped=tuple(i for i in range(len(samples)) if i not in used),
        spread_m=spread_m,
        spread_rad=spread_rad,
        turn_rad=turned,
        scale=scale,
    )
    return replace(result, warnings=tuple(_warnings(result, problem.mm_per_px(kept, solution))))


def _contradictory(count: int, bad: int) -> ConfigError:
    return ConfigError(
        "the pictures contradict each other",
        expected="a board that stands still (mount hand), or that the hand holds (mount beside)",
        got=f"{bad} of {count} pictures do not fit the rest",
        fix="is it the right --mount? Fix board and camera, let the arm come to rest, and take "
        "the pictures again",
    )


def _warnings(result: Result, mm_per_px: float) -> list[str]:
    said = []
    if result.turn_rad[1] < GOOD_TURN_RAD:
        said.append(
            f"the arm turned little about its second axis ({math.degrees(result.turn_rad[1]):.1f} "
            f"degrees rms, better {math.degrees(GOOD_TURN_RAD):g} or more): tilt the hand further"
        )
    if result.spread_m > 0.001 or result.spread_rad > math.radians(0.2):
        said.append(
            f"other pictures would move the camera by {1e3 * result.spread_m:.1f} mm and "
            f"{math.degrees(result.spread_rad):.2f} degrees: take more, closer and more tilted"
        )
    if result.rms_px > 1.0:
        said.append(
            f"corners are missed by {result.rms_px:.1f} px, {result.rms_px * mm_per_px:.1f} mm at "
            "the board: is it flat and fixed, are the intrinsics those of this picture size?"
        )
    if abs(result.scale - 1.0) > 0.01:
        said.append(
            f"the arm measures squares of {100 * result.scale:.1f} % of what --board says: measure "
            "the printed bar with a ruler, print at 100 %, or say the true size"
        )
    if result.dropped:
        numbers = ", ".join(str(i + 1) for i in result.dropped)
        said.append(f"left out because they do not fit the others: picture {numbers}")
    return said


# --- beginning ------------------------------------------------------------------------------------


def _first_lens(samples: Sequence[Sample], board: Board, size: tuple[int, int]) -> Calibration:
    """Intrinsics from the same pictures (Zhang, 2000, as in OpenCV), refined later."""
    import cv2

    places = board.corners_m.astype(np.float32)
    height, width = size
    flags = cv2.CALIB_FIX_K3 | cv2.CALIB_ZERO_TANGENT_DIST
    guess = np.array(((width, 0, width / 2), (0, width, height / 2), (0, 0, 1.0)))
    _, k, distortion, _, _ = cv2.calibrateCamera(
        [places[s.corners.ids] for s in samples],
        [s.corners.points_px.astype(np.float32) for s in samples],
        (width, height),
        guess,
        np.zeros(5),
        flags=flags | cv2.CALIB_USE_INTRINSIC_GUESS,
    )
    return Calibration(np.asarray(k, np.float64), tuple(np.ravel(distortion)[:5].tolist()))


def board_in_camera(corners: Corners, board: Board, lens: Calibration) -> Pose:
    """Where the board is, from one picture."""
    import cv2

    places, distortion = board.corners_m[corners.ids], np.array(lens.distortion)
    flags = cv2.SOLVEPNP_IPPE
    _, turn, where = cv2.solvePnP(places, corners.points_px, lens.k, distortion, flags=flags)
    turn, where = cv2.solvePnPRefineLM(places, corners.points_px, lens.k, distortion, turn, where)
    return Pose(np.ravel(where).astype(np.float64), quat_from_rotvec(np.ravel(turn)))


def _closed_form(
    samples: Sequence[Sample], board: Board, mount: str, lens: Calibration
) -> tuple[Pose, Pose, list[bool]]:
    """X and Y by Park and Martin, and which pictures agree with most others.

    A turn has the same angle whoever measures it: a picture whose angles to the others differ
    was blurred, seen from the wrong side, or taken while the board or the arm moved.
    """
    m = [moved(mount, s.tcp_in_base) for s in samples]
    c = [board_in_camera(s.corners, board, lens) for s in samples]
    n = len(samples)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    a = {ij: compose(m[ij[0]], inverse(m[ij[1]])) for ij in pairs}
    b = {ij: compose(c[ij[0]], inverse(c[ij[1]])) for ij in pairs}
    turn_a = {ij: quat_to_rotvec(a[ij].quaternion_xyzw) for ij in pairs}
    turn_b = {ij: quat_to_rotvec(b[ij].quaternion_xyzw) for ij in pairs}
    apart = np.zeros((n, n))
    for i, j in pairs:
        apart[i, j] = apart[j, i] = abs(np.linalg.norm(turn_a[i, j]) - np.linalg.norm(turn_b[i, j]))
    fits = [float(np.median(np.delete(row, i))) < APART_RAD for i, row in enumerate(apart)]
    good = [(i, j) for i, j in pairs if fits[i] and fits[j]]
    if sum(fits) < max((1 - MAX_DROPPED) * n, MIN_PICTURES - 2):
        raise _contradictory(n, n - sum(fits))
    u, _, vt = np.linalg.svd(sum(np.outer(turn_a[ij], turn_b[ij]) for ij in good))
    rotation = u @ np.diag((1.0, 1.0, np.linalg.det(u @ vt))) @ vt
    rows = [quat_to_matrix(a[ij].quaternion_xyzw) - np.eye(3) for ij in good]
    right = [rotation @ b[ij].position_m - a[ij].position_m for ij in good]
    where, *_ = np.linalg.lstsq(np.concatenate(rows), np.concatenate(right), rcond=None)
    x = Pose(np.asarray(where, np.float64), _quaternion(rotation))
    i = fits.index(True)
    return x, compose(inverse(m[i]), compose(x, c[i])), fits


def _quaternion(rotation: F64) -> F64:
    import cv2

    return quat_from_rotvec(np.ravel(cv2.Rodrigues(rotation)[0]))
