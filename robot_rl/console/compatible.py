"""How far people agree with the base demonstrations: in each episode, and at this moment.

Of the episodes `robot-rl filter --compatible` says it, in a file of the run. Of this moment an
ensemble says it that the command has kept there; it is asked here, beside the page, about the
newest steps in the store, so that neither control loop nor gate waits for it.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.config.run_folder import COMPATIBLE, COMPATIBLE_EPISODES, read_facts
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.reward.compatible import Ensemble
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId

log = logging.getLogger(__name__)

LARGEST_BYTES = 64 << 20
NEWEST = 5  # steps that are judged at once: half a second


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

    def curves(self, id_: EpisodeId) -> list[dict[str, Any]]:
        """The compatibility of an episode's steps, in the form of the models' scores."""
        _, points = self.read().get(id_, (None, []))
        return [{"author": COMPATIBLE, "kind": COMPATIBLE, "points": points}] if points else []


class Agreement:
    """Whether the person who drives now does what the base would do; None without an ensemble."""

    def __init__(self, run_dir: Path) -> None:
        self._folder, self._written = run_dir / COMPATIBLE, 0
        self._ensemble: Ensemble | None = None

    def read(self, store: Store) -> dict[str, Any] | None:
        """{"driving": whether a person drives, "value": compatibility of their newest steps}.

        The value is None in states that the base does not know. Raises `StoreError`.
        """
        ensemble = self._newest(store)
        if ensemble is None:
            return None
        steps = [s for s in store.newest_steps(NEWEST) if s.driver.is_human]
        seen = [(store.frame(s.id, s.frame), s.action) for s in steps]
        there = [(frame.observation, action) for frame, action in seen if frame is not None]
        if not there:
            return {"driving": False, "value": None}
        state = ensemble.state({k: np.stack([o[k] for o, _ in there]) for k in ensemble.inputs})
        value, sure = ensemble.judge(state, np.stack([action for _, action in there]))
        return {"driving": True, "value": float(value[sure].mean()) if sure.any() else None}

    def _newest(self, store: Store) -> Ensemble | None:
        """The ensemble in the run's folder; read again when another was kept there."""
        written = Ensemble.written_ns(self._folder)
        if written != self._written and store.spec is not None:
            self._written, self._ensemble = written, None
            try:
                self._ensemble = Ensemble.load(self._folder, store.spec) if written else None
            except (RobotRLError, ImportError) as error:
                log.warning("no bar for agreement: %s", error)
        return self._ensemble


def _episode(row: Any) -> tuple[EpisodeId, tuple[float, list[tuple[int, float]]]]:
    id_ = EpisodeId(str(row["run"]), str(row["actor"]), int(row["episode"]))
    value, steps = float(row["compatible"]), [(int(n), float(x)) for n, x in row["steps"]]
    if not all(map(math.isfinite, (value, *(x for _, x in steps)))):
        raise ValueError("a figure that is not finite")
    return id_, (value, steps)
