"""How far episodes agree with the base demonstrations, as `robot-rl filter --compatible` found."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import COMPATIBLE, COMPATIBLE_EPISODES, read_facts
from robot_rl.errors import ConfigError
from robot_rl.types import EpisodeId

log = logging.getLogger(__name__)

LARGEST_BYTES = 64 << 20


class Compatible:
    """The figures in a run folder; read again when the command has written others."""

    def __init__(self, run_dir: Path) -> None:
        self._path, self._written = run_dir / COMPATIBLE / COMPATIBLE_EPISODES, 0
        self._known: dict[EpisodeId, tuple[float, list[tuple[int, float]]]] = {}

    def read(self) -> dict[EpisodeId, tuple[float, list[tuple[int, float]]]]:
        """Episode -> its compatibility, and that of its steps as (step, compatibility)."""
        try:
            about = self._path.stat()
        except OSError:
            return {}
        if about.st_mtime_ns != self._written and about.st_size <= LARGEST_BYTES:
            self._written, self._known = about.st_mtime_ns, {}
            try:
                self._known = dict(map(_episode, read_facts(self._path)["episodes"]))
            except (ConfigError, LookupError, TypeError, ValueError) as error:
                log.warning("%s is damaged: %s", self._path, error)
        return self._known


def _episode(row: Any) -> tuple[EpisodeId, tuple[float, list[tuple[int, float]]]]:
    id_ = EpisodeId(str(row["run"]), str(row["actor"]), int(row["episode"]))
    value, steps = float(row["compatible"]), [(int(n), float(x)) for n, x in row["steps"]]
    if not all(map(math.isfinite, (value, *(x for _, x in steps)))):
        raise ValueError("a figure that is not finite")
    return id_, (value, steps)
