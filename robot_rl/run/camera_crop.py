"""Keeps a crop that a person has drawn: in their own YAML file, and as words for the command line.

The section `cameras` stands at the top of the composed configuration. A file can set it only if it
speaks for the whole configuration, which the line `# @package _global_` says: an experiment, a
robot's profile, or a task that is written so. They are composed in the order task, robot,
experiment, and the last one wins. So the crop goes into the experiment that the words name, else
into the robot's profile, else into the task; and only into a file of --config-dir.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.config.edit import flow, with_values
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.observe.cameras import CameraConfig
from robot_rl.run.cameras import Eyes, too_small, with_crop
from robot_rl.run.experiment import Experiment

GROUPS = ("experiment", "robot", "task")  # whose files may hold the section; the best place first
GLOBAL = "# @package _global_"
KEYS = ("crop", "width", "height")


def place_of(words: Sequence[str], config_dir: Path | None) -> Path | None:
    """The person's own file for the section `cameras`; None when the words name none."""
    if config_dir is None:
        return None
    chosen = dict(word.split("=", 1) for word in words if "=" in word)
    for group in GROUPS:
        path = config_dir / group / f"{chosen.get(group, '')}.yaml"
        if group in chosen and path.is_file() and GLOBAL in path.read_text().splitlines()[:1]:
            return path
    return None


@dataclass(frozen=True)
class Kept:
    """A crop that was kept. path: None when there was no file for it; warning: "" when none."""

    words: str
    path: Path | None
    warning: str


class CropKeeper:
    """Writes the crops of a page to where the next run finds them.

    Args:
        words: what the person typed, key=value each.
        config_dir: the folder of their YAML files.
    """

    def __init__(self, eyes: Eyes, words: Sequence[str], config_dir: Path | None) -> None:
        self._eyes, self._words, self._config_dir = eyes, list(words), config_dir
        self.path = place_of(words, config_dir)

    def keep(self, name: str, crop: Any) -> Kept:
        """Keep a crop of a camera, with the size of the pictures in which it was drawn.

        Args:
            crop: left, top, width, height in pixels; None = the whole picture.

        Raises:
            ConfigError: there is no such camera, it has sent no picture, the crop leaves it, or the
                file cannot be changed; then it is as it was.
        """
        self._eyes.number(name)
        sight = self._eyes.watches[name].sight()
        if sight.rgb is None:
            raise ConfigError(
                f"camera {name} has sent no picture",
                expected="a picture in which the crop is drawn",
                got=sight.problem.summary if sight.problem else "none yet",
                fix="wait until the page shows one",
            )
        rows, columns = sight.rgb.shape[:2]
        view = self._eyes.view(name, {"crop": crop}, (rows, columns))
        values = {
            "crop": None if crop is None else list(crop),
            "width": columns,
            "height": rows,
        }
        if self.path is not None:
            self._write(self.path, name, values)
        before = self._eyes.configs[name]
        self._eyes.configs[name] = with_crop(before, crop, (rows, columns))
        said = [f"cameras.{name}.{key}={_word(value)}" for key, value in values.items()]
        said = [f"'{word}'" if "[" in word else word for word in said]  # shells read brackets
        return Kept(" ".join(said), self.path, too_small(view, view.part(rows, columns)))

    def _write(self, path: Path, name: str, values: dict[str, Any]) -> None:
        """Change the file, and look whether the change is in force."""
        before = path.read_text()
        path.write_text(with_values(before, ("cameras", name), values))
        try:
            self._check(path, name, values)
        except RobotRLError:
            path.write_text(before)
            raise

    def _check(self, path: Path, name: str, values: dict[str, Any]) -> None:
        own = [f"cameras.{name}.{key}=" for key in KEYS]
        others = [w for w in self._words if not w.lstrip("+").startswith(tuple(own))]
        config = Experiment.compose(others, self._config_dir).cameras[name]
        if in_words(config) != values:
            raise ConfigError(
                f"{path} does not decide about camera {name}",
                expected=f"cameras.{name} as written there",
                got=f"{in_words(config)}: another file, which is composed later, says so",
                fix=f"put cameras.{name} into that file: {values}",
            )


def _word(value: Any) -> str:
    return flow(value).replace(" ", "")


def in_words(config: CameraConfig) -> dict[str, Any]:
    """Crop, width and height as in a file."""
    crop = None if config.crop is None else list(config.crop)
    return {"crop": crop, "width": config.width, "height": config.height}
