"""Patterns on the surfaces of a scene: absent unless asked for, drawn per episode, seen by all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError
from robot_rl_sim.camera import MujocoCamera, SceneCopy, VideoCamera
from robot_rl_sim.mirror import Mirror
from robot_rl_sim.patterns import PATTERNS, paint
from robot_rl_sim.robot import MujocoRobot

FULL = {"texture": [0.6, 0.6]}
Picture = np.ndarray


def made(ranges: Any = None, images: Any = ("wrist", "front"), **fields: Any) -> MujocoRobot:
    words = {"name": "lift", "images": list(images), "image_size": 64, "ranges": ranges or {}}
    task: Any = resolve("task", words | fields)
    return MujocoRobot(task)


def begin(robot: MujocoRobot, seed: int) -> None:
    robot.reset(robot.task.sample_reset(np.random.default_rng(seed)))


def apart(one: Picture, other: Picture) -> float:
    return float(np.abs(one.astype(int) - other.astype(int)).mean())


def moved_edges(one: Picture, other: Picture) -> float:
    """Share of pixels that differ: a box with a texture has its edges a hair aside."""
    return float((np.abs(one.astype(int) - other.astype(int)).max(-1) > 1).mean())


# --- patterns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 64), (384, 64), (768, 128)])
def test_a_pattern_only_darkens_by_at_most_its_contrast_and_is_the_same_again(shape: Any) -> None:
    white = np.full((*shape, 3), 255, np.uint8)
    seen = set[bytes]()
    for seed in range(20):
        one, again = white.copy(), white.copy()
        paint(one, 0.4, np.random.default_rng(seed))
        paint(again, 0.4, np.random.default_rng(seed))
        assert np.array_equal(one, again)
        assert one.min() >= 0.6 * 255 - 1 and one.min() < 255
        faces = one.reshape(-1, shape[1], shape[1], 3)
        assert all(np.array_equal(face, faces[0]) for face in faces)
        seen.add(one.tobytes())
    assert len(seen) == 20


def test_the_family_has_four_members_that_look_different() -> None:
    shades = [pattern(64, np.random.default_rng(0)) for pattern in PATTERNS]
    levels = [len(np.unique(shade)) for shade in shades]
    assert len(shades) == 4 and levels[:2] == [1, 2] and min(levels[2:]) > 100
    assert all(shade.shape == (64, 64) and 0 <= shade.min() <= shade.max() <= 1 for shade in shades)


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["none", "light", "real"])
def test_nobody_pays_for_textures_that_were_not_asked_for(preset: str) -> None:
    robot = made(randomize=preset)
    begin(robot, 0)
    assert robot.model.ntex == 2 and robot.painted == 0  # sky and floor
    blind = made(images=(), randomize="cameras")
    begin(blind, 0)
    assert blind.model.ntex == 2 and blind.painted == 0


def test_a_scene_is_painted_anew_for_each_episode_and_put_back() -> None:
    robot = made(FULL)
    nominal = robot.model.tex_data.copy()
    names = {robot.model.texture(n).name for n in range(robot.model.ntex)}
    assert names == {"sky", "floor", "table", "mat", "orange"}  # no more than lift shows
    painted = []
    for seed in (0, 1, 0):
        begin(robot, seed)
        painted.append(robot.model.tex_data.copy())
    assert not np.array_equal(painted[0], nominal) and not np.array_equal(painted[0], painted[1])
    assert np.array_equal(painted[0], painted[2])  # it never piles up
    for number in range(robot.model.ntex):
        begins = int(robot.model.tex_adr[number])
        assert not np.array_equal(painted[0][begins : begins + 999], nominal[begins:][:999])
    robot.vary({})
    begin(robot, 0)
    assert np.array_equal(robot.model.tex_data, nominal)


def test_textures_change_no_other_draw() -> None:
    plain, textured = made({"colour": [0.1, 0.1]}), made(FULL | {"colour": [0.1, 0.1]})
    for robot in (plain, textured):
        begin(robot, 0)
    for name in ("table", "orange", "cover"):
        assert np.array_equal(plain.model.mat(name).rgba, textured.model.mat(name).rgba)


def test_a_pattern_may_hold_for_a_whole_run() -> None:
    def painted(seed: int, start: int) -> Picture:
        task: Any = made({"texture": [0.6, 0.6, "run"]}).task
        robot = MujocoRobot(task.of_run(seed))
        begin(robot, start)
        return robot.model.tex_data.copy()

    assert np.array_equal(painted(1, 0), painted(1, 5))
    assert not np.array_equal(painted(1, 0), painted(2, 0))


def test_a_contrast_is_a_share() -> None:
    with pytest.raises(ConfigError, match="at most 1"):
        made({"texture": [0.0, 1.5]})


# --- pictures -------------------------------------------------------------------------------------


@pytest.fixture
def cameras() -> Any:
    opened: list[Any] = []
    yield lambda camera: opened.append(camera) or camera
    for camera in opened:
        camera.close()


@pytest.mark.gl
def test_every_open_camera_shows_what_was_painted(cameras: Any) -> None:
    robot, plain = made(FULL), made()
    eyes = [cameras(MujocoCamera(robot, name, 64)) for name in ("wrist", "front")]
    plain_eyes = [cameras(MujocoCamera(plain, name, 64)) for name in ("wrist", "front")]
    for eye, plain_eye in zip(eyes, plain_eyes, strict=True):  # before the first episode: white
        assert moved_edges(eye.read()[1], plain_eye.read()[1]) < 0.01
    seen: list[list[Picture]] = []
    for seed in (0, 1, 0):
        begin(robot, seed)
        begin(plain, seed)
        seen.append([eye.read()[1] for eye in eyes])
        for picture, eye in zip(seen[-1], plain_eyes, strict=True):
            assert apart(picture, eye.read()[1]) > 3.0
    for one, other, again in zip(*seen, strict=True):
        assert np.array_equal(one, again) and apart(one, other) > 3.0
    late = cameras(MujocoCamera(robot, "front", 64))  # opened after the start
    assert np.array_equal(late.read()[1], seen[2][1])


@pytest.mark.gl
def test_a_second_renderer_on_a_copy_shows_the_same(cameras: Any) -> None:
    robot = made(FULL)
    copy = SceneCopy(robot)
    own, theirs = (cameras(MujocoCamera(which, "front", 64)) for which in (robot, copy))
    for seed in (0, 1):
        begin(robot, seed)
        copy.renew()
        assert np.array_equal(own.read()[1], theirs.read()[1])


@pytest.mark.gl
def test_films_and_the_mirror_show_the_scene_as_it_is(cameras: Any) -> None:
    films, shown = [], []
    for ranges in (FULL, None):
        robot = made(ranges)
        begin(robot, 0)
        films.append(cameras(VideoCamera(robot, 64, 64)).render_video_frame())
        mirror = cameras(Mirror(robot.task, height=64, width=64))
        shown.append([mirror.picture(robot.read(), view) for view in ("", "front")])
    assert np.array_equal(*films)
    for one, other in zip(*shown, strict=True):
        assert np.array_equal(one, other)
