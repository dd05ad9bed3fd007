"""Pictures are taken when the arm rests in a new pose; proposed poses stay in the workspace."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robot_rl.calibrate.board import Board
from robot_rl.calibrate.capture import Capture, moves, wiggle
from robot_rl.calibrate.hand_eye import GOOD_TURN_RAD, turns
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply
from robot_rl.observe.cameras import Calibration, TopicCameraConfig
from robot_rl.run.calibrate_camera import CameraFound, known_lens, transform_words
from robot_rl.run.experiment import Experiment
from robot_rl.tasks.common import tool_down
from robot_rl.types import Pose
from tests.support.paper import seen

START = tool_down(np.array((0.5, 0.0, 0.25)))
BOX = (0.3, -0.2, 0.1), (0.7, 0.2, 0.4)


class Day:
    """Time that passes in front of a camera."""

    def __init__(self, wanted: int = 4) -> None:
        self.capture = Capture(Board(), "hand", wanted)
        self.picture = seen(Board())
        self.now_s = 0.0

    def rest(self, where: Pose, seconds: float = 1.2) -> int:
        """The arm stays there, filmed ten times a second; how many pictures were taken."""
        before = len(self.capture.samples)
        for _ in range(round(20 * seconds)):
            self.now_s += 0.05
            self.capture.saw(self.now_s, where)
            self.capture.offer(self.now_s - 0.02, self.picture)
        return len(self.capture.samples) - before


def turned(x_deg: float, y_deg: float = 0.0, z_deg: float = 0.0) -> Pose:
    turn = quat_from_rotvec(np.radians((x_deg, y_deg, z_deg)))
    return pose(START.position_m, quat_multiply(turn, START.quaternion_xyzw))


def test_one_picture_of_each_pose() -> None:
    day = Day()
    assert day.rest(START) == 1
    assert day.rest(START) == 0  # the same again
    assert day.rest(turned(2.0)) == 0  # about the same
    assert day.rest(turned(15.0)) == 1
    assert day.rest(pose(START.position_m + 0.05, START.quaternion_xyzw)) == 1


def test_none_while_the_arm_moves() -> None:
    day = Day()
    for i in range(60):
        assert day.rest(pose(START.position_m + 0.001 * i, START.quaternion_xyzw), 0.05) == 0


def test_none_before_it_has_rested_for_long() -> None:
    day = Day()
    assert day.rest(START, 0.4) == 0 and day.rest(START, 0.4) == 1


def test_a_board_that_is_not_read_is_said_and_tried_again() -> None:
    day = Day()
    picture, day.picture = day.picture, np.full_like(day.picture, 200)
    assert day.rest(START) == 0 and day.capture.problem is not None
    day.picture = picture
    assert day.rest(START) == 1 and day.capture.problem is None


def test_it_is_done_after_turns_about_two_axes_only() -> None:
    day = Day(wanted=3)
    for angle in (0.0, 15.0, 30.0, -15.0, -30.0):
        day.rest(turned(angle))
    assert not day.capture.is_done
    assert "turn about y next" in day.capture.words() or "turn about z" in day.capture.words()
    for angle in (20.0, -20.0, 30.0, -30.0):
        day.rest(turned(0.0, angle))
    assert day.capture.is_done


def test_proposed_poses_turn_about_all_axes_inside_the_box() -> None:
    for mount in ("hand", "beside"):
        found = list(moves(START, mount, 0.25, BOX))
        assert len(found) >= 10
        for goal in found:
            assert (goal.position_m > BOX[0]).all() and (goal.position_m < BOX[1]).all()
        assert turns(mount, [START, *found])[1] > GOOD_TURN_RAD
    tight = (0.45, -0.02, 0.2), (0.55, 0.02, 0.3)
    assert all((g.position_m > tight[0]).all() for g in moves(START, "hand", 0.25, tight))


def test_a_wiggle_begins_at_rest_and_stays_small() -> None:
    path = [wiggle(START, 0.01 * i, 0.02).position_m for i in range(1000)]
    assert np.array_equal(path[0], START.position_m)
    assert np.linalg.norm(path[1] - path[0]) < 1e-5
    speeds = [np.linalg.norm(b - a) / 0.01 for a, b in itertools.pairwise(path)]
    assert max(speeds) < 0.1
    assert max(np.linalg.norm(p - START.position_m) for p in path) <= 0.02 + 1e-9
    assert not math.isclose(path[240][1], path[40][1], abs_tol=1e-4)


@pytest.mark.parametrize(
    ("profile", "mount", "frame"),
    [
        ("fr3_crisp", "hand", "fr3_hand_tcp"),
        ("ur5e_fzi", "hand", "gripper_tcp"),
        ("ur5e_forward", "hand", "gripper_tcp"),
        ("ur5e_forward driver.tcp_frame=tcp", "hand", "YOUR_TCP_FRAME"),  # as `robot new` writes it
        ("ur5e_forward", "beside", "base_link"),
    ],
)
def test_the_transform_for_other_programs_names_the_frame_it_is_in(
    profile: str, mount: str, frame: str
) -> None:
    words = ["task=reach", "task.images=[wrist]", *f"robot={profile}".split()]
    experiment = Experiment.compose(words)
    result = SimpleNamespace(mount=mount, camera_in_mount=pose((0.1, 0.0, 0.0)))
    said = transform_words(experiment, "wrist", SimpleNamespace(result=result))  # type: ignore[arg-type]
    assert f"--frame-id {frame} " in said


@pytest.mark.parametrize(
    ("k_size", "size", "known"),
    [
        ((640, 480), (480, 640), "the file's"),
        ((640, 480), (960, 1280), ""),  # found anew, whatever the driver says
        ((), (960, 1280), "the driver's"),  # an older file, whose k is of width x height
    ],
)
def test_intrinsics_of_another_size_are_found_anew_and_kept_with_theirs(
    k_size: tuple[int, ...], size: tuple[int, int], known: str
) -> None:
    config = TopicCameraConfig(k=(600.0, 601.0, 319.5, 239.5), k_size=k_size)

    def calibration(rows: int, columns: int) -> Any:
        return "the driver's" if config.calibration_at(rows, columns) is None else "the file's"

    camera: Any = SimpleNamespace(config=config, calibration=calibration)
    lens = known_lens(camera, size)
    assert lens == (known or None)
    found: Any = Calibration(np.array(((900.0, 0, 640.0), (0, 901.0, 480.0), (0, 0, 1.0))))
    result: Any = SimpleNamespace(mount="hand", camera_in_mount=pose((0.1, 0.0, 0.0)), lens=found)
    picture = np.zeros((*size, 3), np.uint8)
    values = CameraFound(result=result, lens_found=lens is None, size=size, picture=picture).values
    assert values.get("k_size") == (None if known else [1280, 960])
    if not known:
        again = TopicCameraConfig(**{**values, "pose": tuple(values["pose"])})
        assert again.calibration is not None and again.calibration.k[0, 0] == 900.0
