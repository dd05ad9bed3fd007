"""The box of a described task from its demonstrations: where people went, and a margin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.edit import flow, with_values
from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE, STORE
from robot_rl.errors import ConfigError
from robot_rl.run.experiment import Experiment
from robot_rl.run.task_file import box_of
from robot_rl.store.dataset import find_store, open_store
from robot_rl.system.files import rewrite_text
from robot_rl.tasks.described import DescribedTask

CORNERS = ("workspace_min_m", "workspace_max_m")


def box_from(
    name: str,
    run: Path,
    margin_m: float,
    config_dir: Path,
    *,
    write: bool,
    tell: Callable[[str], object],
) -> None:
    """Print the box around a run's demonstrations and the task's own poses.

    write: change the two lines in the file of the experiment `name`.

    Raises:
        ConfigError: there is no such file, or nobody has shown the task in that run.
    """
    path = config_dir / "experiment" / f"{name}.yaml"
    if not path.is_file():
        raise ConfigError(
            f"no task '{name}'",
            expected=str(path),
            got="no such file",
            fix="--config-dir DIR names the folder of your YAML files",
        )
    experiment = Experiment.compose([f"experiment={name}"], config_dir)
    task, robot = experiment.task, experiment.robot_limits
    if not isinstance(task, DescribedTask):
        raise ConfigError(
            f"'{name}' is no described task",
            expected="a file that robot-rl task new has written",
            got=f"task {task.name}",
            fix="its box is in its own class: workspace_min_m, workspace_max_m",
        )
    shown_m = demonstrated_m(run)
    points_m = np.concatenate((shown_m, _own_points_m(task)))
    low_m, high_m = box_of(points_m, margin_m, robot.workspace_min_m, robot.workspace_max_m)
    tell(
        f"{len(shown_m)} positions of demonstrations, the task's own poses, {margin_m:g} m margin:"
    )
    text = path.read_text()
    for key, corner in zip(CORNERS, (low_m, high_m), strict=True):
        before = ", ".join(f"{x:g}" for x in getattr(task, key))
        tell(f"  {key}: {flow(corner)} # before: {before}")
    if write:
        corners: dict[str, Any] = dict(zip(CORNERS, (low_m, high_m), strict=True))
        rewrite_text(path, with_values(text, ("task",), corners))
        tell(f"changed in {path}")


def demonstrated_m(run: Path) -> NDArray[np.float64]:
    """Positions [N, 3] m of the TCP in base in the successful demonstrations of a run.

    Raises:
        ConfigError: no run there, not one of a described task, or without demonstrations.
    """
    task = Experiment.load(run).task
    path = find_store(run, (ACTOR_STORE, STORE, LEARNER_STORE))
    if not isinstance(task, DescribedTask) or path is None:
        raise ConfigError(
            f"{run} does not tell where the arm was",
            expected="a run of a described task, with its store",
            got=f"task {task.name}" if path else "no store",
            fix="robot-rl record experiment=NAME --demos 10",
        )
    with open_store(path) as store:
        shown = [e.id for e in store.episode_summaries() if e.purpose == "demo" and e.success]
        vectors = [frame.observation["state"] for id in shown for frame in store.frames(id)]
    if not vectors:
        raise ConfigError(
            f"nobody has shown the task in {run}",
            expected="successful demonstrations",
            got="none",
            fix="robot-rl record experiment=NAME --demos 10",
        )
    return np.array([task.tcp_position_m(vector) for vector in vectors])


def _own_points_m(task: DescribedTask) -> NDArray[np.float64]:
    """Starts with their spread, goal, and where the arm goes between episodes [N, 3] m."""
    points = [np.array(given.position_m) for _, given in task.named_poses()]
    spread = np.array(task.start_spread_m)
    for start in task.starts_in_base:
        at = np.array(start.position_m)
        points += [at - spread, at + spread]
        if task.reset.clear_z_m is not None:
            points.append(np.array((*at[:2], task.reset.clear_z_m)))
    return np.array(points)
