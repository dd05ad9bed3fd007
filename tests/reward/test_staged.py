"""Successes drawn again without their objects: who takes one for a success is found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robot_rl.reward.success.train import Footage
from robot_rl.run.experiment import Experiment
from robot_rl.run.parts import scene_log
from robot_rl.types import EpisodeId, Frame

pytest.importorskip("robot_rl_sim")

T, PX = 4, 32


def recorded(run: Path) -> list[Footage]:
    """A run of two episodes, one of them a success, whose pictures are the scene's own."""
    from robot_rl_sim.robot import MujocoRobot

    experiment = Experiment.compose(
        ["experiment=lift_pixels", f"task.image_size={PX}", f"run_dir={run}"]
    )
    experiment.save()
    robot, rng = MujocoRobot(experiment.task), np.random.default_rng(0)  # type: ignore[arg-type]
    log, found = scene_log(experiment), []
    mirror = experiment.mirror("front", PX, PX)
    for number, success in enumerate((True, False)):
        id_, pictures = EpisodeId("run", "actor", number), []
        for t in range(T):
            robot.reset(experiment.task.sample_reset(rng))
            log.saw(Frame(id_, t, 0, {}), robot.read())
            pictures.append(mirror.picture(robot.read()))
        shows = np.full(T, success, np.int8)
        images = {"image/front": np.stack(pictures)}
        found.append(Footage(id_, images, success, shows, np.full(T, np.nan)))
    mirror.close()
    log.flush()
    return found


def orange(pictures: np.ndarray) -> np.ndarray:
    """Pixels [T] of the cube's colour."""
    red, green, blue = np.moveaxis(pictures.astype(int), -1, 0)
    return ((red > 120) & (green < red * 0.7) & (blue < red * 0.4)).sum((1, 2))


def test_only_the_objects_are_gone(tmp_path: Path) -> None:
    from robot_rl.reward.success.staged import without_objects

    good, poor = recorded(tmp_path)
    (empty,) = without_objects(tmp_path, [good, poor], Experiment.load(tmp_path).mirror)
    assert empty.id == good.id and not empty.success and not empty.shows.any()
    before, after = good.images["image/front"], empty.images["image/front"]
    assert after.shape == before.shape
    assert (orange(before) > 0).all() and not orange(after).any()
    assert (before == after).mean() > 0.9  # the arm stands as it stood


def test_a_run_without_scenes_has_none(tmp_path: Path) -> None:
    from robot_rl.reward.success.staged import without_objects

    films = recorded(tmp_path)
    (tmp_path / "scenes.bin").unlink()
    assert without_objects(tmp_path, films, Experiment.load(tmp_path).mirror) == []
