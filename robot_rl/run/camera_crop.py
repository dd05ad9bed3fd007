"""Keeps a crop that a person has drawn: in their own YAML file, and as words to type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robot_rl.errors import ConfigError
from robot_rl.observe.cameras import CameraConfig
from robot_rl.run.cameras import Eyes, too_small, with_crop
from robot_rl.run.experiment import Experiment
from robot_rl.run.keep import as_words, place_of, write


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

        Width and height in an older file also tell in which pictures `k` was found; where they
        change, `k_size` keeps that.

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
        before = self._eyes.configs[name]
        values: dict[str, Any] = {
            "crop": None if crop is None else list(crop),
            "width": columns,
            "height": rows,
        }
        after = with_crop(before, crop, (rows, columns))
        if before.k and before.lens_size != after.lens_size:
            # an older file: only its width and height tell in which pictures k was found
            after = replace(after, k_size=(before.width, before.height))
            values["k_size"] = list(after.k_size)
        section = ("cameras", name)
        if self.path is not None:
            write(
                self.path, section, values, self._words, self._config_dir, in_force=_in_force(name)
            )
        self._eyes.configs[name] = after
        warning = too_small(view, view.part(rows, columns))
        return Kept(as_words(section, values), self.path, warning)


def _in_force(name: str) -> Callable[[Experiment], dict[str, Any]]:
    return lambda experiment: in_words(experiment.cameras[name])


def in_words(config: CameraConfig) -> dict[str, Any]:
    """Crop and sizes as in a file."""
    crop = None if config.crop is None else list(config.crop)
    sizes = {"width": config.width, "height": config.height, "k_size": list(config.k_size)}
    return {"crop": crop, **sizes}
