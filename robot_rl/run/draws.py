"""Pictures of a randomised scene: what its cameras see at the starts of some episodes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robot_rl.errors import ConfigError
from robot_rl.run.scene import scene_of
from robot_rl.system.files import write_picture

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

EDGE = 4  # pixels between two pictures


def draw_picture(experiment: Experiment, path: Path, count: int = 16) -> Path:
    """Write a sheet of `count` starts, one picture for each camera of the task (PNG).

    Raises:
        ConfigError: the task has no scene or no cameras, or the file is no PNG.
        SetupError: no OpenGL.
    """
    from robot_rl_sim.camera import MujocoCamera, place_cameras
    from robot_rl_sim.robot import MujocoRobot

    task = scene_of(experiment)
    if not task.images:
        raise ConfigError(
            f"task '{task.name}' has no cameras here, so there is nothing to see",
            expected="a task with images",
            got="task.images=[]",
            fix="add 'task.images=[wrist,front]', or take an experiment from cameras: lift_pixels",
        )
    if path.suffix != ".png":
        raise ConfigError(
            f"'{path.name}' is not the name of a picture",
            expected="NAME.png",
            got=path.suffix or "no ending",
            fix=f"--out {path.stem or 'draws'}.png",
        )
    robot = MujocoRobot(task, experiment.robot)
    place_cameras(robot.model, experiment.cameras, experiment.robot)
    cameras = [MujocoCamera(robot, name, task.spec.picture_size(name)) for name in task.images]
    try:
        rows = []
        for seed in range(count):
            robot.reset(task.sample_reset(np.random.default_rng((experiment.seed, seed))))
            robot.advance(0.1)  # late pictures have a past
            rows.append(np.hstack([camera.read()[1] for camera in cameras]))
    finally:
        for camera in cameras:
            camera.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_picture(path, _sheet(rows)[..., ::-1])
    return path


def _sheet(pictures: list[np.ndarray]) -> np.ndarray:
    """Pictures of one size beside and below each other, with white edges."""
    height, width = pictures[0].shape[:2]
    count = len(pictures)
    square = math.sqrt(count * height / width)  # so many across make the sheet about a square
    fits = (n for n in range(1, count) if count % n == 0 and n >= square - 1e-9)
    across = next(fits, count)
    down = count // across
    size = down * (height + EDGE) - EDGE, across * (width + EDGE) - EDGE, 3
    sheet = np.full(size, 255, np.uint8)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, across)
        top, left = row * (height + EDGE), column * (width + EDGE)
        sheet[top : top + height, left : left + width] = picture
    return sheet
