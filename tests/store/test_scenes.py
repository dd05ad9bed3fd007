"""Scenes kept for the review page: what is read is what was seen, whatever happens to the file."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robot_rl.geometry import pose
from robot_rl.run.parts import scene_log
from robot_rl.store.scenes import SCENES, SceneLog, Scenes
from robot_rl.types import EpisodeId, Frame, RobotState


def state_at(x_m: float) -> RobotState:
    return RobotState(
        stamp_s=1.0,
        joint_position_rad=np.linspace(0.0, x_m, 7),
        joint_velocity_rad_s=np.zeros(7),
        tcp_in_base=pose((x_m, 0.0, 0.3)),
        tcp_twist_in_base=np.zeros(6),
        wrench_in_tcp=np.zeros(6),
        gripper_width_m=0.04,
        objects={"pocket": pose((0.5, x_m, 0.0)), "cube": pose((0.4, 0.0, x_m))},
    )


def frame(episode: int, number: int) -> Frame:
    return Frame(EpisodeId("run", "actor-0", episode), number, 0, {})


def written(path: Path, episode: int, frames: int = 3) -> None:
    scenes = SceneLog(path)
    for k in range(frames):
        scenes.saw(frame(episode, k), state_at(episode + 0.1 * k))
    scenes.flush()


def test_what_is_read_is_what_was_seen(tmp_path: Path) -> None:
    path = tmp_path / SCENES
    scenes, log = Scenes(path), SceneLog(path)
    assert not scenes.has(2) and scenes.state(2, 0) is None
    log.saw(frame(2, 5), state_at(0.25))
    assert not scenes.has(2)  # nothing touches the disk in a tick
    log.flush()
    found, seen = scenes.state(2, 5), state_at(0.25)
    assert found is not None
    np.testing.assert_allclose(found.joint_position_rad, seen.joint_position_rad, atol=1e-6)
    assert found.gripper_width_m == pytest.approx(0.04)
    for name, where in (seen.objects | {"tcp": seen.tcp_in_base}).items():
        read = found.tcp_in_base if name == "tcp" else found.objects[name]
        np.testing.assert_allclose(read.position_m, where.position_m, atol=1e-6)
        np.testing.assert_allclose(read.quaternion_xyzw, where.quaternion_xyzw, atol=1e-6)
    assert scenes.has(2) and scenes.state(2, 6) is None and not scenes.has(1)


def test_a_reader_follows_a_log_that_grows(tmp_path: Path) -> None:
    scenes = Scenes(tmp_path / SCENES)
    written(tmp_path / SCENES, 0)
    assert scenes.has(0) and not scenes.has(1)
    written(tmp_path / SCENES, 1)
    assert scenes.has(0) and scenes.has(1)


def test_a_torn_record_costs_one_picture_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / SCENES
    written(path, 0)
    path.write_bytes(path.read_bytes()[:-7])
    assert Scenes(path).state(0, 1) is not None and Scenes(path).state(0, 2) is None
    written(path, 1)
    assert Scenes(path).state(0, 1) is not None and Scenes(path).state(1, 2) is not None


def test_after_a_disk_that_was_full_for_a_while_the_records_fit_again(tmp_path: Path) -> None:
    path = tmp_path / SCENES
    log = SceneLog(path)
    log.saw(frame(0, 0), state_at(0.1))
    log.flush()
    whole = path.read_bytes()
    log.saw(frame(0, 1), state_at(0.2))
    path.unlink()
    path.mkdir()  # nothing can be written now
    log.flush()
    path.rmdir()
    path.write_bytes(whole + b"half a record")
    log.saw(frame(0, 2), state_at(0.3))
    log.flush()
    scenes = Scenes(path)
    assert [scenes.state(0, k) is not None for k in range(3)] == [True, False, True]


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b'{"joints": 3, "objects": []}\n', b"[]\n"])
def test_what_is_not_a_log_of_this_scene_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / SCENES
    path.write_bytes(content)
    assert not Scenes(path).has(0)
    written(path, 0)
    assert Scenes(path).state(0, 2) is not None


def test_a_disk_that_refuses_costs_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scenes = SceneLog(tmp_path / "no" / "folder" / SCENES)
    scenes.saw(frame(0, 0), state_at(0.1))
    with caplog.at_level(logging.WARNING):
        scenes.flush()
    assert "no pictures" in caplog.text


@pytest.mark.parametrize("is_simulated", [True, False])
def test_a_simulated_run_keeps_its_scenes(tmp_path: Path, is_simulated: bool) -> None:
    run: Any = SimpleNamespace(is_simulated=is_simulated, run_dir=tmp_path, task=None)
    scenes = scene_log(run)
    scenes.saw(frame(0, 0), state_at(0.1))
    scenes.flush()
    assert (tmp_path / SCENES).exists() == is_simulated
