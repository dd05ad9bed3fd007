"""A camera node: a film in place of the camera, killed, silent for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")
pytest.importorskip("cv2", reason="OpenCV is not installed")

import cv2

from robot_rl.observe.cameras import TopicCameraConfig
from robot_rl.ros import convert
from robot_rl.ros.cameras import image_topic, info_topic
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.graph import EXIT_SETUP, RealGraphConfig, real_graph
from tests.support.ros import World, wait_for, write_run

pytestmark = pytest.mark.ros


@contextmanager
def camera_node(folder: Path, device: str) -> Iterator[World]:
    """The node of the camera `wrist` of a run, alone."""
    given = {"name": "uvc", "device": device, "width": 64, "height": 48, "k": [60, 61, 31.5, 23.5]}
    task = {"name": "reach", "images": ["wrist"]}
    run = write_run(folder, task=task, cameras={"wrist": given})
    graph = real_graph(RealGraphConfig(with_actor=False), str(run), devices=["wrist"])
    alone = [
        replace(spec, params={**spec.params, "start_s": 1.0})
        for spec in graph
        if spec.kind == "camera"
    ]
    assert [spec.name for spec in alone] == ["camera_wrist"]
    world = World(tuple(alone), run)
    try:
        yield world
    finally:
        codes = world.close()
        assert all(code in (0, EXIT_SETUP) for code in codes.values()), codes


def test_a_film_becomes_pictures_with_intrinsics_and_comes_back_after_kill_9(
    tmp_path: Path,
) -> None:
    film = tmp_path / "film.avi"
    writer = cv2.VideoWriter(str(film), cv2.VideoWriter.fourcc(*"MJPG"), 30, (64, 48))
    for _ in range(15):  # half a second: the film ends, and the node opens it again
        writer.write(np.full((48, 64, 3), (0, 0, 200), np.uint8))
    writer.release()
    with camera_node(tmp_path / "run", str(film)) as world:
        node, config = world.probe.node, TopicCameraConfig()
        images = Newest(node, image_topic("wrist", config))
        infos = Newest(node, info_topic("wrist", config))

        def fresh(after_s: float) -> Any:
            msg = images.read()
            return msg if msg and convert.from_stamp(msg.header.stamp) > after_s else None

        began_s = time.time()
        msg = wait_for(lambda: fresh(began_s), 20.0, "a picture")
        rgb = convert.picture_from(msg)
        assert rgb.shape == (48, 64, 3)
        assert rgb.mean((0, 1)) == pytest.approx((200, 0, 0), abs=6)
        info = wait_for(infos.read, 5.0, "its intrinsics")
        assert (info.width, info.height) == (64, 48)
        assert convert.intrinsics_from(info)[0].tolist() == [60.0, 0.0, 31.5]
        wait_for(lambda: fresh(began_s + 2.0), 20.0, "pictures after the film's end")

        os.kill(world.supervisor.pids()["camera_wrist"], signal.SIGKILL)
        killed_s = time.time()
        wait_for(lambda: fresh(killed_s + 1.0), 20.0, "pictures after the node was killed")
    log = (world.run_dir / "logs" / "camera_wrist.log").read_text()
    assert "camera wrist is lost: film.avi sends no pictures any more" in log


def test_a_camera_that_was_never_there_ends_the_node_with_the_reason(tmp_path: Path) -> None:
    with camera_node(tmp_path / "run", "no-such-camera") as world:
        wait_for(lambda: world.exits, 20.0, "the node gives up")
    (ended,) = world.exits
    assert (ended.code, ended.restart_in_s, ended.fatal) == (EXIT_SETUP, None, True)
    log = (world.run_dir / "logs" / "camera_wrist.log").read_text()
    assert "UVC camera" in log and "fix:" in log
