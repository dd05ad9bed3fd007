"""The simulated scene of an experiment: which task has one, and what of it may be changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from robot_rl.config.yaml_file import parse_yaml
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.run.experiment import Experiment
from robot_rl.run.parts import simulated_task
from robot_rl.tasks.common import SimTask

SCENE = ("task.randomize", "task.ranges")


def scene_of(experiment: Experiment) -> SimTask:
    """The experiment's task, one whose scene other engines can build.

    Raises:
        ConfigError: it has no scene, or a simulator of its own.
    """
    task = simulated_task(experiment)
    if isinstance(task, SimTask):
        return task
    raise ConfigError(
        f"task '{task.name}' has a simulator of its own, and no scene",
        expected="a task of robot_rl.tasks, or your own robot_rl.tasks.common.SimTask",
        got=type(task).__name__,
        fix="docs/tasks.md shows how a task describes its scene",
    )


def in_scene(experiment: Experiment, words: Sequence[str]) -> Experiment:
    """The experiment with `task.randomize` and `task.ranges` as some words say.

    Raises:
        ConfigError: another key, or a value that the task refuses.
    """
    changed: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in SCENE:
            raise ConfigError(
                f"an evaluation cannot change '{key}'",
                expected=f"one of: {', '.join(SCENE)}; all else is the run's",
                got=word,
                fix=did_you_mean(key, SCENE),
            )
        try:
            changed[key.partition(".")[2]] = parse_yaml(text, key)
        except yaml.YAMLError as error:
            raise ConfigError(
                f"{key} cannot be read",
                expected="task.randomize=real or 'task.ranges={friction: [0.5, 0.5]}'",
                got=word,
                fix="put the word in quotes, with a blank after each colon",
            ) from error
    if not changed:
        return experiment
    config = dict(experiment.config)
    config["task"] = dict(config.get("task") or {}) | changed
    return Experiment.from_dict(config | {"run_dir": str(experiment.run_dir)})
