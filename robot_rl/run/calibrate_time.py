"""`robot-rl calibrate time`: how late pictures are, from a film of a board while the arm swings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.board import Board, Corners, UnreadableError
from robot_rl.calibrate.capture import wiggle
from robot_rl.calibrate.latency import (
    Geometry,
    Lateness,
    PoseTrack,
    camera_lateness,
    command_lateness,
)
from robot_rl.errors import ConfigError, SetupError
from robot_rl.run.at_the_arm import How, at_the_arm, first_picture, keep_json
from robot_rl.run.cameras import known_camera
from robot_rl.types import Pose

if TYPE_CHECKING:
    from robot_rl.ros.calibrating import Station
    from robot_rl.run.experiment import Experiment

WIGGLE_M = 0.02
TRIES = 4  # a driver or a camera may be silent for a moment


@dataclass(frozen=True, kw_only=True)
class TimeFound:
    """camera: pictures behind states; arm: the TCP behind its targets, None without targets."""

    camera: Lateness
    arm: Lateness | None


def calibrate_time(
    experiment: Experiment, name: str, board: Board, how: How, seconds: float = 10.0
) -> TimeFound:
    """Film the board while the arm wiggles, and find how late pictures and arm are.

    Raises:
        ConfigError: no such camera, it has no pose yet, or too little was seen. SetupError,
            SafetyError: see `at_the_arm`.
    """
    known_camera(name, experiment.cameras)
    config = experiment.cameras[name]
    where = config.calibrated_pose
    if where is None:
        raise ConfigError(
            f"nobody has said where camera {name} is",
            expected=f"cameras.{name}.mount and pose",
            got="neither",
            fix=f"first: robot-rl calibrate camera {name}, with the same words",
        )
    recording = _Recording()
    with at_the_arm(experiment, how, name, f"{config.mount}:{board.words}") as arm:
        assert arm.camera is not None
        lens = arm.camera.calibration(*first_picture(arm))
        if lens is None:
            raise ConfigError(
                f"nobody has said the intrinsics of camera {name}",
                expected=f"a CameraInfo beside its pictures, or cameras.{name}.k",
                got="neither",
                fix=f"robot-rl calibrate camera {name} finds them as well",
            )

        if how.auto:
            _swing(arm, how, recording, seconds)
        elif experiment.config["operator"]["name"] == "none":
            how.tell(_swing_it(seconds))
            recording.begin(arm)
            arm.watch(seconds)
        else:
            arm.arm(how.agree)
            how.tell(_swing_it(seconds))
            recording.begin(arm)
            end_s = arm.clock.now_s() + seconds
            arm.let_drive(lambda: "filmed" if arm.clock.now_s() > end_s else "", how.agree)
    taken_s, corners, problem = _found(recording.film, board)
    if not corners and problem is not None:
        raise problem
    known = Geometry(board=board, mount=config.mount, camera_in_mount=where, lens=lens)
    track = _track(recording.states, "states of the arm")
    camera = camera_lateness(track, taken_s, corners, known)
    followed = None
    if how.auto and len(arm.targets) > 1:
        followed = command_lateness(_track(arm.targets, "targets"), track)
    found = TimeFound(camera=camera, arm=followed)
    keep_json(experiment, f"{name}_time", {
        "latency_s": camera.latency_s, "sure_s": camera.sure_s, "explained": camera.explained,
        "pictures": camera.samples,
        "arm_behind_targets_s": None if followed is None else followed.latency_s,
    })  # fmt: skip
    return found


class _Recording:
    """What is seen while the arm swings: (stamp_s, TCP in base), (stamp_s, picture)."""

    def __init__(self) -> None:
        self.states: list[tuple[float, Pose]] = []
        self.film: list[tuple[float, NDArray[np.uint8]]] = []

    def begin(self, arm: Station) -> None:
        """Forget what there is, and record from now on."""
        self.states.clear()
        self.film.clear()
        arm.targets.clear()
        arm.on_state = lambda state: self.states.append((state.stamp_s, state.tcp_in_base))
        arm.on_picture = lambda stamp_s, rgb: self.film.append((stamp_s, rgb))


def _swing_it(seconds: float) -> str:
    return f"filming for {seconds:.0f} s: swing the arm by 2 cm, once in 2 s, all along"


def _swing(arm: Station, how: How, recording: _Recording, seconds: float) -> None:
    """The arm swings, once the person has agreed; again, if the gate has held it meanwhile."""
    from robot_rl.ros.calibrating import HeldError

    words = f"the arm swings by {1e3 * WIGGLE_M:.0f} mm to either side for {seconds:.0f} s"
    for left in reversed(range(TRIES)):
        how.agree(f"{words}; Enter = go: ")
        arm.arm(how.agree)
        recording.begin(arm)
        start = arm.tcp_in_base
        try:
            arm.follow(lambda at_s, start=start: (wiggle(start, at_s, WIGGLE_M), None), seconds)
            return
        except HeldError as error:
            if not left:
                raise
            how.tell(f"  {error.summary}: {error.got}; once more")


def _track(stamped: list[tuple[float, Pose]], what: str) -> PoseTrack:
    kept = [item for i, item in enumerate(stamped) if not i or item[0] > stamped[i - 1][0]]
    if len(kept) < 2:
        raise SetupError(
            f"no {what} came", expected="a stream of them", got=str(len(kept)),
            fix="look at the logs of the driver and of the gate",
        )  # fmt: skip
    stamps_s, poses = zip(*kept, strict=True)
    return PoseTrack(stamps_s, poses)


def _found(
    film: list[tuple[float, NDArray[np.uint8]]], board: Board
) -> tuple[list[float], list[Corners], UnreadableError | None]:
    taken_s, corners, problem = [], [], None
    for stamp_s, rgb in film:
        try:
            corners.append(board.find(rgb))
            taken_s.append(stamp_s)
        except UnreadableError as error:
            problem = error
    return taken_s, corners, problem
