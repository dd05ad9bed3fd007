"""Cameras: real pictures, from the right place, and one clear error without OpenGL."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from robot_rl.bench.env import bench_env
from robot_rl.control.loop import MAX_PICTURE_AGE_S
from robot_rl.errors import RobotRLError, SetupError
from robot_rl.geometry import pose
from robot_rl.observe.frozen import Frozen
from robot_rl.ports import Camera
from robot_rl.tasks import LiftTask, PegInsertTask
from robot_rl_sim import camera as camera_module
from robot_rl_sim.camera import MujocoCamera, VideoCamera, place_that_sees
from robot_rl_sim.robot import MujocoRobot

pytestmark = pytest.mark.gl


@pytest.fixture(scope="module")
def robot() -> Iterator[MujocoRobot]:
    """Robot above a cube; skips without OpenGL, unless REQUIRE_GL is set."""
    task = LiftTask(cube_xy_m=0.0)
    robot = MujocoRobot(task)
    robot.reset(task.sample_reset(np.random.default_rng(0)))
    try:
        MujocoCamera(robot, "front", 16).close()
    except SetupError as error:
        if os.environ.get("REQUIRE_GL"):
            raise
        pytest.skip(f"no OpenGL here: {error}")
    yield robot


def orange(picture: np.ndarray) -> np.ndarray:
    """Mask of the cube's colour."""
    red, green, blue = (picture[..., i].astype(int) for i in range(3))
    return (red > 120) & (green < 0.6 * red) & (blue < 0.4 * red)


@pytest.mark.parametrize("name", ["wrist", "front"])
def test_picture_has_the_asked_shape_and_shows_the_cube(robot: MujocoRobot, name: str) -> None:
    camera = MujocoCamera(robot, name, 128)
    assert isinstance(camera, Camera)
    try:
        stamp_s, picture = camera.read()
    finally:
        camera.close()
    assert stamp_s == robot.now_s()
    assert picture.shape == (128, 128, 3)
    assert picture.dtype == np.uint8
    assert 15 < orange(picture).sum() < 4000


def test_picture_follows_the_object(robot: MujocoRobot) -> None:
    camera = MujocoCamera(robot, "front", 128)
    try:
        columns = []
        for y in (-0.06, 0.06):
            plan = robot.task.sample_reset(np.random.default_rng(0))
            plan.objects["cube"].position_m[:2] = (0.5, y)
            robot.reset(plan)
            columns.append(np.nonzero(orange(camera.read()[1]))[1].mean())
    finally:
        camera.close()
    # the camera faces the robot: base y grows to its right
    assert columns[1] > columns[0] + 15


def test_fast_pictures_are_repeatable(robot: MujocoRobot) -> None:
    camera = MujocoCamera(robot, "wrist", 64)
    try:
        assert np.array_equal(camera.read()[1], camera.read()[1])
    finally:
        camera.close()


def test_reading_a_closed_camera_is_an_error(robot: MujocoRobot) -> None:
    camera = MujocoCamera(robot, "wrist", 16)
    camera.close()
    camera.close()  # twice is fine
    with pytest.raises(RobotRLError, match="closed"):
        camera.read()


def test_video_frame_draws_the_same_scene_with_shadows(robot: MujocoRobot) -> None:
    video = VideoCamera(robot, 120, 160)
    try:
        frame = video.render_video_frame()
    finally:
        video.close()
    assert frame.shape == (120, 160, 3)
    assert orange(frame).any()


def test_a_camera_steps_back_until_it_sees_all_points_and_no_further() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        points, slopes = rng.normal(size=(50, 3)), (0.6, 0.4)
        seen = (points - place_that_sees(points, axes, slopes)) @ axes
        edge = np.abs(seen[:, :2]) / -seen[:, 2:] / slopes
        assert (seen[:, 2] < 0).all() and edge.max() == pytest.approx(1.0)


def test_missing_opengl_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ImportError("libEGL.so.1: cannot open shared object file")

    monkeypatch.setattr(camera_module.mujoco, "Renderer", broken)
    with pytest.raises(SetupError, match="apt-get install -y libegl1 libgl1-mesa-dri libgl1"):
        MujocoCamera(MujocoRobot(PegInsertTask()), "wrist", 16)


def test_bench_reports_both_kinds_of_speed(robot: MujocoRobot) -> None:
    for images in (False, True):
        figures = bench_env(PegInsertTask(), images, 0.3)
        assert figures["steps"] >= 1  # a picture may take 0.3 s on a busy machine
        assert 0 < figures["env_steps_per_s"] < 1e5
        assert figures["env_steps_per_cpu_s"] > 0


@pytest.mark.parametrize("control_hz", [5, 10, 12.5, 14, 15, 20, 25, 30, 50])
def test_a_camera_that_does_not_see_the_arm_is_not_taken_for_frozen(
    robot: MujocoRobot, monkeypatch: pytest.MonkeyPatch, control_hz: float
) -> None:
    """Nothing in the picture moves, and the arm does: it was said to be as old as its first."""
    now_s, frozen = 0.0, Frozen()
    monkeypatch.setattr(robot, "now_s", lambda: now_s)
    camera, taken = MujocoCamera(robot, "front", 16), []
    try:
        for tick in range(40):
            now_s = round(tick / control_hz, 2)
            stamp_s, rgb = camera.read()
            tcp = pose((0.02 * tick, 0.0, 0.3), (1.0, 0.0, 0.0, 0.0))
            assert frozen.new_s("front", stamp_s, rgb, tcp) > now_s - MAX_PICTURE_AGE_S
            assert np.array_equal(rgb, camera.read()[1])  # at the same time the same picture
            taken.append(rgb)
    finally:
        camera.close()
    changed = np.abs(np.diff(np.array(taken, int), axis=0))
    assert changed.max() == 1 and not changed[:, 1:].any() and not changed[:, :, 2:].any()
