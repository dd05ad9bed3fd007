"""`robot-rl calibrate`: starts the graph of a real arm, or of its double, in the actor's place.

Three ways to move the arm. A person drives with their device (`operator=...`), or guides it by hand
(`operator=none`), or says yes to each motion that is proposed (`auto`). Nobody but a person sets a
real arm in motion; beside a double nobody needs to be asked (`unasked`).
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.board import Board, Corners, UnreadableError
from robot_rl.calibrate.capture import Capture, moves, wiggle
from robot_rl.calibrate.ends import Ends, at_rest, judged, short_of
from robot_rl.calibrate.hand_eye import Result, board_in_camera, hand_eye
from robot_rl.calibrate.latency import (
    Geometry,
    Lateness,
    PoseTrack,
    camera_lateness,
    command_lateness,
)
from robot_rl.calibrate.overlay import draw_frame
from robot_rl.errors import ConfigError, RobotRLError, SafetyError, SetupError
from robot_rl.geometry import compose, relative
from robot_rl.observe.cameras import Calibration
from robot_rl.ros.calibrating import Ask, Place, Station, station
from robot_rl.ros.graph import RealGraphConfig
from robot_rl.ros.supervise import Supervisor
from robot_rl.run.cameras import known_camera, png
from robot_rl.run.graph import graph_of, last_words, need_ros
from robot_rl.run.preflight import keep_findings, refuse_unready
from robot_rl.types import Pose, RobotState

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

FOLDER = "calibration"  # of a run folder
SETTLE_S = 4.0  # after a motion: the arm comes to rest, and a picture is taken
WIGGLE_M = 0.02
GRIP_S = 6.0  # fingers are at their end within this time
GRIPS = 3
ENOUGH = "enough pictures"
NOBODY: Ask = lambda _question: ""  # noqa: E731  # beside a double: everything is agreed to

Tell = Callable[[str], object]


@dataclass(frozen=True, kw_only=True)
class How:
    """How a calibration goes about it.

    auto: motions are proposed, each for the person to agree to; unasked: they are all agreed to
    (doubles only). ask, tell: the person's terminal.
    """

    ask: Ask
    tell: Tell
    auto: bool = False
    unasked: bool = False

    @property
    def agree(self) -> Ask:
        """Asks, unless all is agreed to."""
        return NOBODY if self.unasked else self.ask


def check(experiment: Experiment, how: How) -> RealGraphConfig:
    """The graph's configuration. Raises `ConfigError`, `SafetyError` for what cannot be done."""
    ros = experiment.ros
    if experiment.runtime != "ros" or not isinstance(ros, RealGraphConfig):
        raise ConfigError(
            "there is no arm to calibrate",
            expected="a real arm's profile (docs/robots.md), or its double: double=true",
            got=f"ros={(experiment.config.get('ros') or {}).get('name')}, "
            f"runtime={experiment.runtime}",
            fix="robot=ur5e_fzi double=true; a simulated arm without a driver needs no calibration",
        )
    if how.unasked and not ros.double:
        raise SafetyError(
            "a real arm moves only when a person says so",
            expected="--yes beside a double (double=true)",
            got="--yes with a real arm",
            fix="leave --yes out: each motion then waits for your Enter, with a hand at the stop",
        )
    return ros


@contextmanager
def at_the_arm(
    experiment: Experiment, how: How, camera: str = "", board: str = ""
) -> Iterator[Station]:
    """The graph of the experiment, running, with us in the actor's place.

    Args:
        camera: the one that is looked at. board: parameter `board` of a double.

    Raises:
        ConfigError, SafetyError: see `check`. SetupError: ROS 2 is missing, the driver is not
            ready, somebody else's graph runs in this domain, or no state or picture comes.
    """
    ros = check(experiment, how)
    need_ros()
    keep_findings(refuse_unready(experiment), experiment.save())
    nodes = {kind: dict(values) for kind, values in ros.nodes.items()}
    if ros.double and board:
        nodes["sim"] = {**nodes.get("sim", {}), "board": board}
    graph = graph_of(experiment, with_actor=False, nodes=nodes)
    cameras = {}
    if camera:
        config = experiment.cameras[camera]
        cameras[camera] = replace(config, latency_s=0.0)
    place = Place(
        run_dir=experiment.run_dir,
        domain_id=ros.domain_id,
        namespace=ros.namespace,
        remaps={**experiment.driver.topics, **ros.remaps},
        task=_blind(experiment, camera),
        robot=experiment.robot,
        driver=experiment.spoken_driver,
        cameras=cameras,
        arbiter=experiment.arbiter,
    )
    how.tell(
        f"starting {', '.join(spec.name for spec in graph)}; logs in {experiment.run_dir}/logs"
    )
    with Supervisor(graph, experiment.run_dir, ros.domain_id) as supervisor, station(place) as made:
        made.beats = lambda: _alive(supervisor, experiment)
        yield made


def _alive(supervisor: Supervisor, experiment: Experiment) -> None:
    for death in supervisor.poll():
        if death.fatal:
            raise RobotRLError(
                f"the {death.name} process cannot be kept alive",
                expected="a running process",
                got=last_words(death, experiment.run_dir),
                fix="robot-rl doctor with the same words looks at arm and machine",
            )
        log.warning("%s ended with code %d; it is started again", death.name, death.code)


def _blind(experiment: Experiment, camera: str) -> Any:
    """The task; its loop observes only the camera that is calibrated."""
    task = experiment.task
    images = (camera,) if camera else ()
    return replace(task, images=images) if tuple(task.spec.cameras) != images else task


# --- camera ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CameraFound:
    """A calibrated camera, and what shows it: a picture with the TCP drawn into it."""

    result: Result
    lens_found: bool  # intrinsics are of these pictures: nobody had said them
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
                "distortion": [round(v, 6) for v in (*self.result.lens.distortion, *[0.0] * 5)[:5]],
            }
        return out


def _numbers(where: Pose) -> list[float]:
    return [round(float(v), 6) for v in (*where.position_m, *where.quaternion_xyzw)]


def calibrate_camera(
    experiment: Experiment, name: str, mount: str, board: Board, how: How, wanted: int = 15
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
        size = _first_picture(arm)
        assert arm.camera is not None
        lens = arm.camera.calibration(*size)
        if how.auto:
            _visit(arm, capture, experiment, how, lens, size)
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
    _keep_json(experiment, name, {**found.values, **figures(result)})
    return found


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


def _keep_json(experiment: Experiment, name: str, found: Mapping[str, Any]) -> None:
    folder = experiment.run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")


def _first_picture(arm: Station) -> tuple[int, int]:
    arm.watch(3.0, lambda: arm.camera is not None and arm.camera.whole is not None)
    whole = None if arm.camera is None else arm.camera.whole
    if whole is None:
        raise SetupError(
            "the camera sends no picture",
            expected="a whole picture within 3 s",
            got="nothing",
            fix="robot-rl camera show with the same words says why",
        )
    return whole.rgb.shape[0], whole.rgb.shape[1]


def _shown(arm: Station, capture: Capture, experiment: Experiment, how: How) -> None:
    """The person moves the arm; pictures are taken whenever it rests."""
    by_hand = experiment.config["operator"]["name"] == "none"
    how.tell(
        f"{'guide the arm by hand' if by_hand else 'drive with your device'} to a new pose, turned "
        "another way, and let it rest for a second: a picture is taken by itself"
        + ("" if by_hand else "; your device's success button ends it early")
    )
    begun_s = [time.monotonic()]

    def stopping() -> str:
        if capture.problem is not None and time.monotonic() - begun_s[0] > 3.0:
            how.tell(f"  {capture.problem.summary}: {capture.problem.got}; {capture.problem.fix}")
            begun_s[0] = time.monotonic()
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


# --- time -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TimeFound:
    """camera: pictures behind states; arm: the TCP behind its targets, None when nobody sent any."""

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
    states: list[tuple[float, Pose]] = []
    film: list[tuple[float, NDArray[np.uint8]]] = []
    with at_the_arm(experiment, how, name, f"{config.mount}:{board.words}") as arm:
        assert arm.camera is not None
        lens = arm.camera.calibration(*_first_picture(arm))
        if lens is None:
            raise ConfigError(
                f"nobody has said the intrinsics of camera {name}",
                expected=f"a CameraInfo beside its pictures, or cameras.{name}.k",
                got="neither",
                fix=f"robot-rl calibrate camera {name} finds them as well",
            )

        def saw(state: RobotState) -> None:
            states.append((state.stamp_s, state.tcp_in_base))

        if how.auto:
            how.agree(
                f"the arm swings by {1e3 * WIGGLE_M:.0f} mm to either side for {seconds:.0f} s; "
                "Enter = go: "
            )
            arm.arm(how.agree)
        else:
            how.tell(f"filming for {seconds:.0f} s: swing the arm by 2 cm, once in 2 s, all along")
        arm.on_state, arm.on_picture = saw, lambda stamp_s, rgb: film.append((stamp_s, rgb))
        arm.targets.clear()
        end_s = arm.clock.now_s() + seconds
        start = arm.tcp_in_base
        if how.auto:
            arm.follow(lambda at_s: (wiggle(start, at_s, WIGGLE_M), None), seconds)
        elif experiment.config["operator"]["name"] == "none":
            arm.watch(seconds)
        else:
            arm.let_drive(lambda: "filmed" if arm.clock.now_s() > end_s else "", how.agree)
    taken_s, corners, problem = _found(film, board)
    if not corners and problem is not None:
        raise problem
    known = Geometry(board=board, mount=config.mount, camera_in_mount=where, lens=lens)
    track = _track(states, "states of the arm")
    camera = camera_lateness(track, taken_s, corners, known)
    followed = None
    if how.auto and len(arm.targets) > 1:
        followed = command_lateness(_track(arm.targets, "targets"), track)
    found = TimeFound(camera=camera, arm=followed)
    _keep_json(experiment, f"{name}_time", {
        "latency_s": camera.latency_s, "sure_s": camera.sure_s, "explained": camera.explained,
        "pictures": camera.samples,
        "arm_behind_targets_s": None if followed is None else followed.latency_s,
    })  # fmt: skip
    return found


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


# --- gripper --------------------------------------------------------------------------------------


def calibrate_gripper(experiment: Experiment, how: How) -> Ends:
    """Open and close some times; where the fingers come to rest are the ends.

    Raises:
        ConfigError: no gripper, or ends that cannot be right. SetupError, SafetyError: see
            `at_the_arm`.
    """
    gripper = experiment.driver.gripper
    if gripper.kind == "none":
        raise ConfigError(
            "this arm has no gripper",
            expected="driver.gripper.kind other than none",
            got="none",
            fix="name the gripper's driver in the profile (docs/robot.md)",
        )
    ends: dict[bool, list[float]] = {True: [], False: []}
    with at_the_arm(experiment, how) as arm:
        how.agree(
            f"the gripper opens and closes {GRIPS} times. Nothing between the fingers, hands off; "
            "Enter = go: "
        )
        arm.arm(how.agree)
        here = arm.tcp_in_base
        for number in range(2 * GRIPS):
            opening = number % 2 == 0
            value = _gripped(arm, here, experiment.robot.gripper.stroke_m if opening else 0.0,
                             gripper.opened_joints - gripper.closed_joints)  # fmt: skip
            ends[opening].append(value)
            how.tell(f"  {'open' if opening else 'closed'}: {value:.5g}")
    found = judged(ends[True], ends[False], gripper)
    _keep_json(experiment, "gripper", {
        "opened_joints": found.opened_joints, "closed_joints": found.closed_joints,
        "opened": ends[True], "closed": ends[False],
    })  # fmt: skip
    doubt = short_of(found, gripper)
    if doubt and how.agree(f"{doubt}. Was nothing between the fingers? [yes]: ").strip() not in (
        "", "y", "yes",
    ):  # fmt: skip
        raise ConfigError(
            "the ends are not those of the gripper",
            expected="fingers that close until they meet",
            got=doubt,
            fix="take away what is between them, then calibrate again; nothing was written",
        )
    return found


def _gripped(arm: Station, here: Pose, width_m: float, span: float) -> float:
    """Ask for a finger distance, and wait until the fingers rest. Raises `SetupError`."""
    readings: list[tuple[float, float]] = []
    begun_s = arm.clock.now_s()

    def read(_: RobotState) -> None:
        value, now_s = arm.finger_joints(), arm.clock.now_s()
        if value is not None and now_s - begun_s > 0.5:  # they have begun to move
            readings.append((now_s, value))

    arm.on_state = read
    arm.follow(lambda _: (here, width_m), GRIP_S, lambda: at_rest(readings, span) is not None)
    arm.on_state = lambda _state: None
    found = at_rest(readings, span)
    if found is None:
        raise SetupError(
            "the fingers do not come to rest"
            if readings
            else "the fingers do not say where they are",
            expected=f"{', '.join(arm.finger_names)} at rest within {GRIP_S:.0f} s",
            got=f"{len(readings)} readings"
            + (f", the last {readings[-1][1]:.5g}" if readings else ""),
            fix="check driver.gripper.state_topic and joints; is the gripper activated?",
        )
    return found


def transform_words(experiment: Experiment, name: str, found: CameraFound) -> str:
    """A command that publishes the camera's place for other programs of ROS 2."""
    x = found.result.camera_in_mount
    parent = experiment.robot.base_frame
    if found.result.mount == "hand":
        parent = experiment.driver.tcp_frame
    p, q = x.position_m, x.quaternion_xyzw
    return (
        "ros2 run tf2_ros static_transform_publisher "
        + " ".join(f"--{axis} {v:.6f}" for axis, v in zip("xyz", p, strict=True))
        + " "
        + " ".join(f"--q{axis} {v:.6f}" for axis, v in zip("xyzw", q, strict=True))
        + f" --frame-id {parent} --child-frame-id {name}_color_optical_frame"
    )
