"""Lateness is found between pictures: of simulated cameras, and of an arm behind its targets."""

from __future__ import annotations

import dataclasses
import logging
from functools import cache

import numpy as np
import pytest

from robot_rl.calibrate.board import Corners, UnreadableError
from robot_rl.calibrate.capture import wiggle
from robot_rl.calibrate.latency import Geometry, PoseTrack, camera_lateness, command_lateness
from robot_rl.errors import ConfigError
from robot_rl.geometry import pose, quat_multiply
from robot_rl.tasks.common import tool_down
from robot_rl.types import Command, Driver
from tests.support.boards import MIDDLE_M, Scene

log = logging.getLogger(__name__)

SECONDS, STATE_HZ, CAMERA_HZ = 4.6, 100, 15
Film = tuple[PoseTrack, tuple[float, ...], tuple[Corners, ...], Geometry]


@cache
def filmed(mount: str, seed: int = 1) -> Film:
    """An arm that wiggles through its controller, and what a camera has seen of the board."""
    scene = Scene(mount, seed)
    try:
        robot = scene.robot
        scene.at(tool_down(np.array(MIDDLE_M[mount])))
        start, began_s = robot.read().tcp_in_base, robot.now_s()
        states, taken_s, corners = [], [], []
        for i in range(int(SECONDS * STATE_HZ)):
            now_s = robot.now_s()
            states.append((now_s, robot.read().tcp_in_base))
            if i % (STATE_HZ // CAMERA_HZ) == 0:
                try:
                    corners.append(scene.board.find(scene.eye.read()[1]))
                    taken_s.append(now_s)
                except UnreadableError:
                    pass
            if i % 10 == 0:
                goal = wiggle(start, now_s - began_s, 0.02)
                robot.apply(Command(i, now_s, Driver.RESET, "", goal))
            robot.sleep_until_s(began_s + (i + 1) / STATE_HZ)
    finally:
        scene.close()
    known = Geometry(board=scene.board, mount=mount, camera_in_mount=scene.truth, lens=scene.lens)
    return PoseTrack(*zip(*states, strict=True)), tuple(taken_s), tuple(corners), known


@pytest.mark.gl
@pytest.mark.parametrize("mount", ["hand", "beside"])
@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.08, -0.02])
def test_a_late_camera_is_found_within_five_milliseconds(mount: str, delay_s: float) -> None:
    """16 pictures a second, 60 ms apart; stamps that are `delay_s` late."""
    track, taken_s, corners, known = filmed(mount)
    found = camera_lateness(track, [s + delay_s for s in taken_s], corners, known)
    off_ms = 1e3 * (found.latency_s - delay_s)
    log.info("%s, %.0f ms: off by %.2f ms, sure %.2f ms", mount, 1e3 * delay_s, off_ms,
             1e3 * found.sure_s)  # fmt: skip
    assert abs(found.latency_s - delay_s) < 0.005
    assert found.sure_s < 0.005 and found.explained > 0.99


@pytest.mark.gl
def test_a_camera_that_was_calibrated_elsewhere_is_refused() -> None:
    track, taken_s, corners, known = filmed("hand")
    x = known.camera_in_mount
    turned = pose(x.position_m, quat_multiply(x.quaternion_xyzw, np.array((0.0, 0.0, 0.6, 0.8))))
    wrong = dataclasses.replace(known, camera_in_mount=turned)
    with pytest.raises(ConfigError, match="does not move as it should") as error:
        camera_lateness(track, taken_s, corners, wrong)
    assert "calibrate camera" in error.value.fix


@pytest.mark.gl
def test_too_few_pictures_are_refused() -> None:
    track, taken_s, corners, known = filmed("hand")
    with pytest.raises(ConfigError, match="too little was seen of the board"):
        camera_lateness(track, taken_s[:30], corners[:30], known)


def swung(size_m: float, delay_s: float = 0.0, noise_m: float = 0.0) -> PoseTrack:
    """A target, or an arm that follows it late."""
    rng, stamps_s = np.random.default_rng(0), np.arange(0.0, 8.0, 0.01)
    start = tool_down(np.array((0.5, 0.0, 0.2)))
    poses = [wiggle(start, max(s - delay_s, 0.0), size_m) for s in stamps_s]
    noisy = [pose(p.position_m + rng.normal(0, noise_m, 3), p.quaternion_xyzw) for p in poses]
    return PoseTrack(stamps_s.tolist(), noisy)


def test_how_late_the_arm_follows_its_targets() -> None:
    quiet = command_lateness(swung(0.02), swung(0.02, 0.07, 1e-5))
    loud = command_lateness(swung(0.02), swung(0.02, 0.07, 2e-3))
    assert abs(quiet.latency_s - 0.07) < 0.001 and abs(loud.latency_s - 0.07) < 0.01
    assert quiet.sure_s < loud.sure_s


def test_an_arm_that_stands_is_refused() -> None:
    with pytest.raises(ConfigError, match="hardly moved"):
        command_lateness(swung(0.0005), swung(0.0005))


def test_an_arm_that_does_not_follow_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not move as it should"):
        command_lateness(swung(0.02), swung(0.0, 0.0, 0.003))
