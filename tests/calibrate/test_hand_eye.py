"""Cameras of the simulator are found again from rendered pictures of a board."""

from __future__ import annotations

import dataclasses
import logging
import math

import numpy as np
import pytest

from robot_rl.calibrate.board import Board
from robot_rl.calibrate.hand_eye import Result, hand_eye, turns
from robot_rl.calibrate.refine import Sample
from robot_rl.errors import ConfigError
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply
from tests.support.boards import SIZE, Scene, apart

log = logging.getLogger(__name__)

pytestmark = pytest.mark.gl
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]


def solved(scene: Scene, samples: list[Sample], *, known: bool = True) -> Result:
    return hand_eye(samples, scene.board, scene.mount, scene.lens if known else None, SIZE)


@pytest.mark.parametrize("mount", ["hand", "beside"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_camera_is_found_within_a_millimetre_and_a_tenth_of_a_degree(
    mount: str, seed: int
) -> None:
    """640 x 480, 15 pictures, the camera somewhere else in each seed."""
    scene = Scene(mount, seed)
    try:
        result = solved(scene, scene.samples(15))
    finally:
        scene.close()
    off_m, off_rad = apart(result.camera_in_mount, scene.truth)
    log.info("%s %d: off by %.3f mm, %.4f degrees", mount, seed, 1e3 * off_m, math.degrees(off_rad))
    assert off_m < 0.001 and math.degrees(off_rad) < 0.1
    assert result.rms_px < 0.3 and result.spread_m < 0.001
    assert abs(result.scale - 1.0) < 0.003


@pytest.fixture(scope="module")
def hand() -> tuple[Scene, list[Sample]]:
    """One camera at the hand, with 16 good pictures."""
    scene = Scene("hand", 7)
    samples = scene.samples(16)
    scene.close()
    return scene, samples


def test_intrinsics_are_found_from_the_same_pictures(hand: tuple[Scene, list[Sample]]) -> None:
    scene, samples = hand
    result = solved(scene, samples, known=False)
    assert np.allclose(result.lens.k, scene.lens.k, rtol=0.01)
    off_m, off_rad = apart(result.camera_in_mount, scene.truth)
    assert off_m < 0.001 and math.degrees(off_rad) < 0.1


def test_a_picture_of_another_moment_is_left_out(hand: tuple[Scene, list[Sample]]) -> None:
    scene, samples = hand
    wrong = samples[3].tcp_in_base
    turn = quat_multiply(quat_from_rotvec((0.0, 0.1, 0.0)), wrong.quaternion_xyzw)
    late = dataclasses.replace(samples[3], tcp_in_base=pose(wrong.position_m + 0.02, turn))
    result = solved(scene, [*samples[:3], late, *samples[4:]])
    assert 3 in result.dropped and "picture" in result.warnings[-1]
    off_m, _ = apart(result.camera_in_mount, scene.truth)
    assert off_m < 0.001


def test_a_slip_without_a_turn_is_left_out_as_well(hand: tuple[Scene, list[Sample]]) -> None:
    scene, samples = hand
    slipped = pose(samples[5].tcp_in_base.position_m + 0.01, samples[5].tcp_in_base.quaternion_xyzw)
    moved = dataclasses.replace(samples[5], tcp_in_base=slipped)
    result = solved(scene, [*samples[:5], moved, *samples[6:]])
    assert 5 in result.dropped
    assert apart(result.camera_in_mount, scene.truth)[0] < 0.001


def test_turning_about_one_axis_is_refused(hand: tuple[Scene, list[Sample]]) -> None:
    scene, _ = hand
    scene = Scene("hand", 3)
    try:
        first = next(scene.poses(5.0))
        yaws = np.linspace(-0.4, 0.4, 10)
        turned = [
            pose(
                first.position_m, quat_multiply(quat_from_rotvec((0, 0, a)), first.quaternion_xyzw)
            )
            for a in yaws
        ]
        samples = [scene.at(p) for p in turned]
    finally:
        scene.close()
    assert turns("hand", [s.tcp_in_base for s in samples])[1] < 0.01
    with pytest.raises(ConfigError, match="about one axis only"):
        solved(scene, samples)


def test_the_wrong_mount_is_refused(hand: tuple[Scene, list[Sample]]) -> None:
    scene, samples = hand
    with pytest.raises(ConfigError, match="contradict each other") as error:
        hand_eye(samples, scene.board, "beside", scene.lens, SIZE)
    assert "--mount" in error.value.fix


def test_a_board_printed_at_another_size_is_noticed(hand: tuple[Scene, list[Sample]]) -> None:
    scene, samples = hand
    said = Board(square_m=0.0306, marker_m=0.02244)  # 2 % larger than what is in the scene
    result = hand_eye(samples, said, "hand", scene.lens, SIZE)
    assert result.scale == pytest.approx(1 / 1.02, abs=0.003)
    assert any("measure the printed bar" in w for w in result.warnings)


def test_too_few_pictures_are_refused(hand: tuple[Scene, list[Sample]]) -> None:
    scene, samples = hand
    with pytest.raises(ConfigError, match="too few pictures"):
        solved(scene, samples[:5])


def test_little_turning_is_said(hand: tuple[Scene, list[Sample]]) -> None:
    scene = Scene("hand", 4)
    try:
        result = solved(scene, scene.samples(12, tilt_deg=9.0))
    finally:
        scene.close()
    assert any("turned little" in w for w in result.warnings)
