"""Where a simulated camera has to be for the recorded pictures to come out of it.

The arm is put where it was when the pictures were taken, the scene is drawn, and the camera is
moved (`camera_place_m`, `camera_turn_rad`: 3 numbers each) until the drawn pictures are the
recorded ones: least squares over grey levels, from blurred pictures to sharp ones, so that
a camera that is two centimetres away is found. Brightness and contrast do not count.

It compares grey levels, so the scene must look as the recorded one does. That is so for another
simulation; for a real camera `robot-rl calibrate camera` measures its pose with a board.

What is found is an offset from where the run's scene has the camera: from its calibrated pose
(`cameras.NAME.pose`) where the run has one, so that a twin with the same calibration counts the
difference once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, StoreError
from robot_rl.run.lockstep import Rig
from robot_rl.run.replay import Recording, states_of
from robot_rl.spec import IMAGE
from robot_rl.types import RobotState

F64 = NDArray[np.float64]
NAMES = tuple(f"camera_{what}_{axis}" for what in ("place_m", "turn_rad") for axis in "xyz")
LOOKS = ((4.0, 0.012), (2.0, 0.006), (1.0, 0.004))
"""Coarse to fine: blur [pixels], and the step for the derivatives [m and rad], which must be longer
than what the edges of drawn pictures, which jump from pixel to pixel, do not notice."""
PICTURES = 40  # that are compared; more take longer and say little more
FEWEST = 8


@dataclass(frozen=True, slots=True)
class FoundCamera:
    """Offset from where the run's scene has a camera, with 95 % intervals (half widths).

    calibrated: that is where `cameras.NAME.pose` says, not where the task does. place_m: in the
    frame of what the camera is mounted on; turn_rad: about its own axes. The intervals come from
    the curvature of the fit: they know of noise, not of how pictures are drawn. before, after: how
    different recorded and drawn pictures are (RMS, standard deviations).
    """

    name: str
    place_m: tuple[float, float, float]
    turn_rad: tuple[float, float, float]
    place_half_m: tuple[float, float, float]
    turn_half_rad: tuple[float, float, float]
    before: float
    after: float
    calibrated: bool

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

    def ranges(self) -> dict[str, list[float]]:
        """As `task.ranges` takes them."""
        values = (*self.place_m, *self.turn_rad)
        return {f"{n}/{self.name}": [round(v, 5)] * 2 for n, v in zip(NAMES, values, strict=True)}


def find_cameras(
    rig: Rig,
    recordings: Sequence[Recording],
    measured: Sequence[Sequence[RobotState]],
    run_seed: int,
    *,
    values: Mapping[str, float],
    tell: Callable[[str], None],
) -> tuple[FoundCamera, ...]:
    """The pose of each camera of the task.

    measured: then, at each frame of each recording; empty where not all of it was kept: the arm
        then drifts from where it was, and with it a camera at the hand.
    values: what has been found of the arm, so that it is where it was.

    Raises:
        ConfigError: the task has no cameras.
        StoreError: too few pictures were recorded.
        SetupError: no OpenGL.
    """
    spec = rig.loop.task.spec
    if not spec.cameras:
        raise ConfigError(
            "the run's task has no cameras",
            expected="a task with images",
            got=f"task.images = {list(spec.cameras)}",
            fix="leave --cameras out",
        )
    robot: Any = rig.robot
    robot.vary({name: (value, value) for name, value in values.items()})
    every = max(1, sum(len(r.frames) for r in recordings) // PICTURES)
    samples, count = [], 0
    for recording, then in zip(recordings, measured, strict=True):
        played = states_of(rig, recording, run_seed, then)
        for frame, _ in zip(recording.frames, played, strict=True):
            if count % every == 0:
                samples.append((robot.snapshot(), frame.observation))
            count += 1
    if len(samples) < FEWEST:
        raise StoreError(
            "too few pictures were recorded",
            expected=f"at least {FEWEST}",
            got=str(len(samples)),
            fix="robot-rl record ... --demos 10",
        )
    found = []
    for name in spec.cameras:
        view = _View(robot, name, spec.picture_size(name), samples, values)
        calibrated = name in rig.calibrated
        try:
            found.append(view.fit(calibrated=calibrated))
        finally:
            view.close()
        off_mm = 1e3 * float(np.linalg.norm(found[-1].place_m))
        off_deg = float(np.degrees(np.linalg.norm(found[-1].turn_rad)))
        who = f"cameras.{name}.pose" if calibrated else "the task"
        tell(f"camera {name}: {off_mm:.1f} mm and {off_deg:.2f} degrees from where {who} has it")
    return tuple(found)


class _View:
    """Pictures of one camera, as a function of where it is."""

    def __init__(
        self,
        robot: Any,
        name: str,
        size: tuple[int, int],
        samples: Sequence[tuple[Any, Mapping[str, Any]]],
        values: Mapping[str, float],
    ) -> None:
        self._robot, self._name, self._values = robot, name, values
        self._snapshots = [snapshot for snapshot, _ in samples]
        self._recorded = [np.asarray(seen[IMAGE + name]) for _, seen in samples]
        self._plan = robot.task.sample_reset(np.random.default_rng(0))  # nothing is random here
        self._camera = robot.camera(name, size)

    def close(self) -> None:
        """Free the OpenGL context."""
        self._camera.close()

    def fit(self, *, calibrated: bool) -> FoundCamera:
        """From coarse to fine."""
        from scipy.optimize import least_squares

        finest, offset = LOOKS[-1], np.zeros(6)
        before = _rms(self._off(offset, *finest))
        for look in LOOKS:
            found = least_squares(
                self._off,
                offset,
                jac=self._slopes,  # type: ignore[arg-type]  # scipy's stubs know no function here
                args=look,
                x_scale=0.01,
                xtol=1e-4,
                ftol=1e-5,
                max_nfev=40,
            )
            offset = found.x
        off, slopes = self._off(offset, *finest), self._slopes(offset, *finest)
        variance = float(off @ off) / max(len(off) - 6, 1)
        half = 1.96 * np.sqrt(np.diag(variance * np.linalg.pinv(slopes.T @ slopes)))
        place_m, turn_rad = offset[:3].tolist(), offset[3:].tolist()
        return FoundCamera(
            self._name,
            tuple(place_m),
            tuple(turn_rad),
            tuple(half[:3].tolist()),
            tuple(half[3:].tolist()),
            before,
            _rms(off),
            calibrated,
        )

    def _off(self, offset: F64, blur_px: float, _step: float) -> F64:
        """Drawn minus recorded, of all pictures."""
        moved = {f"{n}/{self._name}": v for n, v in zip(NAMES, offset.tolist(), strict=True)}
        values = dict(self._values) | moved
        self._robot.vary({name: (value, value) for name, value in values.items()})
        self._robot.randomizer.renew(self._plan)
        off = []
        for snapshot, recorded in zip(self._snapshots, self._recorded, strict=True):
            self._robot.restore(snapshot)
            off.append(_look(self._camera.read()[1], blur_px) - _look(recorded, blur_px))
        return np.concatenate(off)

    def _slopes(self, offset: F64, blur_px: float, step: float) -> F64:
        """Derivatives [pixels, 6], from both sides."""
        columns = []
        for axis in np.eye(6):
            ends = (self._off(offset + s * step * axis, blur_px, step) for s in (1.0, -1.0))
            ahead, behind = ends
            columns.append((ahead - behind) / (2 * step))
        return np.array(columns).T


def _look(rgb: NDArray[np.uint8], blur_px: float) -> F64:
    """A picture as one row: blurred, without its brightness and contrast."""
    import cv2

    blurred = cv2.GaussianBlur(rgb.astype(np.float32), (0, 0), blur_px)
    step = max(1, int(blur_px))  # a blurred picture says as much with fewer pixels
    few = blurred[::step, ::step].astype(np.float64)
    return ((few - few.mean()) / max(float(few.std()), 1e-6)).ravel()


def _rms(off: F64) -> float:
    return float(np.sqrt(np.mean(off**2)))
