"""Writes values that a person has measured or drawn into their own YAML file, and makes sure.

A section such as `cameras` stands at the top of the composed configuration. A file can set it only
if it speaks for the whole configuration, which the line `# @package _global_` says: an experiment,
a robot's profile, or a task that is written so. They are composed in the order task, robot,
experiment, and the last one wins. So values go into the experiment that the words name, else into
the robot's profile, else into the task; and only into a file of --config-dir.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.config.edit import flow, with_values
from robot_rl.errors import ConfigError
from robot_rl.run.experiment import Experiment
from robot_rl.system.files import rewrite_text

GROUPS = ("experiment", "robot", "task")  # whose files may hold a section; the best place first
GLOBAL = "# @package _global_"

InForce = Callable[[Experiment], Mapping[str, Any]]
"""The values of a section as they are in a composed experiment."""


def place_of(
    words: Sequence[str], config_dir: Path | None, groups: Sequence[str] = GROUPS
) -> Path | None:
    """The person's own file for such a section; None when the words name none."""
    if config_dir is None:
        return None
    chosen = dict(word.split("=", 1) for word in words if "=" in word)
    for group in groups:
        path = config_dir / group / f"{chosen.get(group, '')}.yaml"
        if group in chosen and path.is_file() and GLOBAL in path.read_text().splitlines()[:1]:
            return path
    return None


def as_words(section: Sequence[str], values: Mapping[str, Any]) -> str:
    """The same values as words for the command line, quoted for a shell."""
    said = [f"{'.'.join((*section, key))}={_word(value)}" for key, value in values.items()]
    return " ".join(f"'{word}'" if "[" in word else word for word in said)


def _word(value: Any) -> str:
    return flow(value).replace(" ", "")


def write(
    path: Path,
    section: Sequence[str],
    values: Mapping[str, Any],
    words: Sequence[str],
    config_dir: Path | None,
    *,
    in_force: InForce,
) -> None:
    """Change values of one section of a file, and look whether the change is in force.

    Args:
        words: what the person typed; those that set these values do not count.

    Raises:
        ConfigError: the file cannot be changed, or another decides; then it is as it was.
    """
    before = path.read_text()
    after = with_values(before, section, values)
    rewrite_text(path, after)
    try:
        own = tuple(f"{'.'.join((*section, key))}=" for key in values)
        others = [word for word in words if not word.lstrip("+").startswith(own)]
        found = in_force(Experiment.compose(others, config_dir))
        if {key: found.get(key) for key in values} != dict(values):
            name = ".".join(section)
            raise ConfigError(
                f"{path} does not decide about {name}",
                expected=f"{name} as written there",
                got=f"{dict(found)}: another file, which is composed later, says so",
                fix=f"put {name} into that file: {dict(values)}",
            )
    except BaseException:  # also Ctrl-C, while the experiment is composed
        rewrite_text(path, before)
        raise
