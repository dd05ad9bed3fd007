"""`robot-rl calibrate camera`: pictures of a board from many poses, and where the camera is."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.board import Board, UnreadableError
from robot_rl.calibrate.capture import Capture, moves
from robot_rl.calibrate.hand_eye import Result, board_in_camera, hand_eye
from robot_rl.calibrate.overlay import draw_frame
from robot_rl.errors import RobotRLError
from robot_rl.geometry import compose, relative
from robot_rl.observe.cameras import Calibration
from robot_rl.robots.driver import ArmDriver
from robot_rl.run.at_the_arm import FOLDER, How, at_the_arm, first_picture, keep_json
from robot_rl.run.cameras import known_camera, png
from robot_rl.types import Pose

if TYPE_CHECKING:
    from robot_rl.ros.calibrating import Station
    from robot_rl.ros.cameras import RosCamera
    from robot_rl.run.experiment import Experiment

SETTLE_S = 4.0  # after a motion: the arm comes to rest, and a picture is taken
AGAIN_S = 3.0  # between two words about a board that is not read
ENOUGH = "enough pictures"


@dataclass(frozen=True, kw_only=True)
class CameraFound:
    """A calibrated camera, and what shows it: a picture with the TCP drawn into it."""

    result: Result
    lens_found: bool  # intrinsics are of these pictures: nobody had said them, or of another size
    size: tuple[int, int]  # height, width
    picture: NDArray[np.uint8]

    @property
    def values(self) -> dict[str, Any]:
        """Keys of `cameras.NAME`."""
        x = self.result.camera_in_mount
        out: dict[str, Any] = {"mount": self.result.mount, "pose": _numbers(x)}
        if self.lens_found:
            k, height, width = self.result.lens.k, *self.size
            out |= {
                "width": width,
                "height": height,
                "k": [round(float(v), 3) for v in (k[0, 0], k[1, 1], k[0, 2], k[1, 2])],
                "k_size": [width, height],
                "distortion": [round(v, 6) for v in (*self.result.lens.distortion, *[0.0] * 5)[:5]],
            }
        return out


def _numbers(where: Pose) -> list[float]:
    return [round(float(v), 6) for v in (*where.position_m, *where.quaternion_xyzw)]


def calibrate_camera(
    experiment: Experiment, name: str, mount: str, board: Board, how: How, *, wanted: int = 15
) -> CameraFound:
    """Take pictures of a board from many poses, and find where the camera is.

    Raises:
        ConfigError: no such camera, or the pictures do not fix its pose. SetupError, SafetyError:
            see `at_the_arm`.
    """
    known_camera(name, experiment.cameras)
    with at_the_arm(experiment, how, name, f"{mount}:{board.words}") as arm:
        capture = Capture(board, mount, wanted)

        def looked(stamp_s: float, rgb: NDArray[np.uint8]) -> None:
            if capture.offer(stamp_s, rgb):
                how.tell(f"  {capture.words()}")

        arm.on_state = lambda state: capture.saw(arm.clock.now_s(), state.tcp_in_base)
        arm.on_picture = looked
        size = first_picture(arm)
        assert arm.camera is not None
        lens = known_lens(arm.camera, size)
        if how.auto:
            _visit(arm, capture, experiment, how, lens=lens, size=size)
        else:
            _shown(arm, capture, experiment, how)
        result = hand_eye(capture.samples, board, mount, lens, size)
        picture = _proof(capture, result)
    found = CameraFound(result=result, lens_found=lens is None, size=size, picture=picture)
    folder = experiment.run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    for i, rgb in enumerate(capture.pictures, start=1):
        (folder / f"{name}_{i:02d}.png").write_bytes(png(rgb))
    (folder / f"{name}_tcp.png").write_bytes(png(picture))
    keep_json(experiment, name, {**found.values, **figures(result)})
    return found


def known_lens(camera: RosCamera, size: tuple[int, int]) -> Calibration | None:
    """Intrinsics of whole pictures of `size` (height, width); None = they have to be found.

    Also where the driver says some, but the person's file has some of another size: these would
    stay in the file, of no use.
    """
    config = camera.config
    is_of_another = bool(config.k and config.k_size) and config.lens_size != size
    return None if is_of_another else camera.calibration(*size)


def figures(result: Result) -> dict[str, Any]:
    """What is known of how good a calibration is, as JSON."""
    return {
        "rms_px": result.rms_px,
        "residuals_px": list(result.residuals_px),
        "used": [i + 1 for i in result.used],
        "dropped": [i + 1 for i in result.dropped],
        "spread_mm": 1e3 * result.spread_m,
        "spread_deg": math.degrees(result.spread_rad),
        "turned_deg": [math.degrees(t) for t in result.turn_rad],
        "scale": result.scale,
        "warnings": list(result.warnings),
    }


def _shown(arm: Station, capture: Capture, experiment: Experiment, how: How) -> None:
    """The person moves the arm; pictures are taken whenever it rests."""
    by_hand = experiment.config["operator"]["name"] == "none"
    how.tell(
        f"{'guide the arm by hand' if by_hand else 'drive with your device'} to a new pose, turned "
        "another way, and let it rest for a second: a picture is taken by itself"
        + ("" if by_hand else "; your device's success button ends it early")
    )
    told_s = [time.monotonic()]

    def stopping() -> str:
        if capture.problem is not None and time.monotonic() - told_s[0] > AGAIN_S:
            how.tell(f"  {capture.problem.summary}: {capture.problem.got}; {capture.problem.fix}")
            told_s[0] = time.monotonic()
        return ENOUGH if capture.is_done else ""

    if by_hand:
        arm.watch(math.inf, lambda: bool(stopping()))
    else:
        arm.let_drive(stopping, how.agree)


def _visit(
    arm: Station,
    capture: Capture,
    experiment: Experiment,
    how: How,
    *,
    lens: Calibration | None,
    size: tuple[int, int],
) -> None:
    """The arm goes from pose to pose; the person agrees to each."""
    arm.watch(SETTLE_S, lambda: bool(capture.samples))
    if not capture.samples:
        raise capture.problem or UnreadableError(
            "the board is not read",
            expected="an arm at rest with the board in the picture",
            got="an arm that moves",
            fix="let it come to rest, then begin again",
        )
    first = capture.samples[0]
    height, width = size
    guess = np.array(((width, 0, width / 2), (0, width, height / 2), (0, 0, 1.0)))
    seen = board_in_camera(first.corners, capture.board, lens or Calibration(guess))
    limits, start = experiment.limits, first.tcp_in_base
    box = limits.workspace_min_m, limits.workspace_max_m
    goals = list(moves(start, capture.mount, float(seen.position_m[2]), box))
    for number, goal in enumerate(goals, start=1):
        if capture.is_done:
            break
        away = relative(goal, arm.tcp_in_base)
        turn = 2 * math.degrees(math.acos(min(abs(float(away.quaternion_xyzw[3])), 1.0)))
        far = 1e3 * float(np.linalg.norm(away.position_m))
        word = how.agree(
            f"move {number} of {len(goals)}: {far:.0f} mm and {turn:.0f} degrees; Enter = move, "
            "s = skip, q = enough: "
        ).strip()
        if word == "q":
            break
        if word:
            continue
        _try(arm, goal, how)
        count = len(capture.samples)
        arm.watch(SETTLE_S, lambda n=count: len(capture.samples) > n)
        if len(capture.samples) == count and capture.problem is not None:
            how.tell(f"  no picture here: {capture.problem.got}")
    if not how.agree("back to where it began; Enter = move, anything else = stay: "):
        _try(arm, start, how)


def _try(arm: Station, goal: Pose, how: How) -> None:
    """Go there; a pose that cannot be reached is left out."""
    arm.arm(how.agree)
    try:
        arm.go(goal)
    except RobotRLError as error:
        how.tell(f"  not reached: {error.got}")


def _proof(capture: Capture, result: Result) -> NDArray[np.uint8]:
    """The picture that fits best, with the axes of TCP and board drawn into it."""
    best = result.used[int(np.argmin(result.residuals_px))]
    tcp = capture.samples[best].tcp_in_base
    camera = result.camera_in_base(tcp)
    board = result.board if result.mount == "hand" else compose(tcp, result.board)
    picture = draw_frame(capture.pictures[best], relative(board, camera), result.lens)
    return draw_frame(picture, relative(tcp, camera), result.lens)


def transform_words(experiment: Experiment, name: str, found: CameraFound) -> str:
    """A command that publishes the camera's place for other programs of ROS 2."""
    x = found.result.camera_in_mount
    parent = experiment.robot.base_frame
    if found.result.mount == "hand":
        driver = experiment.driver
        parent = driver.tcp_frame
        if driver.joints.is_used and parent == ArmDriver().tcp_frame:
            parent = "YOUR_TCP_FRAME"  # the driver has none, and the profile names none
    p, q = x.position_m, x.quaternion_xyzw
    return (
        "ros2 run tf2_ros static_transform_publisher "
        + " ".join(f"--{axis} {v:.6f}" for axis, v in zip("xyz", p, strict=True))
        + " "
        + " ".join(f"--q{axis} {v:.6f}" for axis, v in zip("xyzw", q, strict=True))
        + f" --frame-id {parent} --child-frame-id {name}_color_optical_frame"
    )
