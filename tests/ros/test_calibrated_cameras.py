"""A simulated arm's cameras stand where a calibration says, over ROS as in lockstep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.observe.places import place_of
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import Newest
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of
from robot_rl.run.lockstep import make_rig
from robot_rl.run.parts import forget, policy_of
from tests.support.ros import World, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.gl]
WORDS = [
    *("experiment=lift", "task.images=[wrist]", "task.image_size=48", "operator=none"),
    *("cameras.wrist.mount=hand", "cameras.wrist.pose=[0.09,0.01,-0.08,-0.15,-0.17,0.687,0.69]"),
    *("cameras.wrist.k=[700,700,319.5,239.5]", "cameras.wrist.k_size=[640,480]"),
]


def test_a_policy_over_ros_and_in_lockstep_sees_from_one_place(tmp_path: Path) -> None:
    experiment = Experiment.compose([*WORDS, "runtime=ros", f"run_dir={tmp_path / 'run'}"])
    experiment.save()
    world = World(tuple(s for s in graph_of(experiment) if s.name == "sim"), tmp_path / "run")
    try:
        pictures = Newest(world.probe.node, topics.CAMERA_IMAGE.named(camera="wrist"))
        seen = convert.picture_from(wait_for(pictures.read, 40.0, "a picture"))
    finally:
        world.close()
    rig: Any = make_rig(Experiment.compose(WORDS), policy_of(experiment), record=forget)
    task: Any = experiment.task
    rig.robot.reset(task.sample_reset(np.random.default_rng(experiment.draws_seed)))
    (camera,) = rig.loop.cameras
    drawn = camera.read()[1]
    camera.close()
    assert np.abs(seen.astype(int) - drawn)[1:].mean() < 2.0  # nothing moves but what falls


def test_the_page_knows_that_place() -> None:
    experiment = Experiment.compose(WORDS)
    mirror = experiment.mirror()
    drawn: Any = mirror.places()["wrist"]
    mirror.close()
    measured: Any = place_of(experiment.cameras["wrist"], (480, 640))
    assert drawn["frame"] == measured["frame"] == "tool"
    assert drawn["position_m"] == pytest.approx(measured["position_m"], abs=1e-4)
    assert np.allclose(drawn["rotation"], measured["rotation"], atol=1e-3)


def test_the_page_draws_through_no_lens_of_another_size() -> None:
    camera = Experiment.compose(WORDS).cameras["wrist"]
    known: Any = place_of(camera, (480, 640))
    other: Any = place_of(replace(camera, width=1280, height=960), (960, 1280))
    assert known["fovy_deg"] > 0.0 and other["fovy_deg"] == 0.0
