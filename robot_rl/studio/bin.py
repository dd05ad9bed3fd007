"""Runs that were put away: renamed into `FOLDER/.bin`, and back. Nothing is ever deleted."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import read_facts
from robot_rl.errors import ConfigError, RobotRLError, did_you_mean
from robot_rl.studio.catalogue import is_run
from robot_rl.studio.run import disk_bytes
from robot_rl.system.files import replace_json

FOLDER = ".bin"
FACTS = "bin.json"  # beside the run's own folder in the bin
RUN = "run"


class Bin:
    """The bin of a folder of runs: one folder for each run that was put away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / FOLDER
        self._bytes: dict[str, int] = {}  # nothing grows in the bin

    def all(self) -> list[dict[str, Any]]:
        """What is in the bin, newest first: id, name, when it was put away, size."""
        found = []
        for path in sorted(self._bin.glob(f"*/{FACTS}"), reverse=True):
            with suppress(RobotRLError):
                facts, id_ = read_facts(path), path.parent.name
                if is_run(path.parent / RUN):
                    if id_ not in self._bytes:
                        self._bytes[id_] = disk_bytes(path.parent)
                    name, away_s = str(facts.get("name")), float(facts.get("away_s") or 0.0)
                    size = {"bytes": self._bytes[id_]}
                    found.append({"id": id_, "name": name, "away_s": away_s, **size})
        return found

    def put(self, name: str, run: Path) -> str:
        """Move a run into the bin; returns its id there. Raises `ConfigError` if that fails."""
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}"
        place = self._bin / stamp
        try:
            place.mkdir(parents=True)
            replace_json(place / FACTS, {"name": name, "away_s": time.time()})
            run.rename(place / RUN)
        except OSError as error:
            raise _not_moved(name, error) from error
        return stamp

    def restore(self, id_: str) -> str:
        """Move a run back to where it was; returns its name.

        Raises:
            ConfigError: it is not in the bin, or its place is taken.
        """
        known = {item["id"]: item["name"] for item in self.all()}
        if id_ not in known:
            raise ConfigError(
                "no such run in the bin",
                expected="a run that was put away",
                got=id_[:80],
                fix=did_you_mean(id_[:80], known),
            )
        name = known[id_]
        back = (self.folder / name).resolve()
        if not back.is_relative_to(self.folder.resolve()) or back.exists():
            raise ConfigError(
                f"{name} cannot go back",
                expected="a free place below the folder of runs",
                got="there is another of this name" if back.exists() else "a place outside",
                fix="rename that one first",
            )
        place = self._bin / id_
        try:
            back.parent.mkdir(parents=True, exist_ok=True)
            (place / RUN).rename(back)
            (place / FACTS).unlink()
            place.rmdir()
        except OSError as error:
            raise _not_moved(name, error) from error
        return name


def _not_moved(name: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"{name} was not moved",
        expected="a rename within one disk",
        got=str(error)[:200],
        fix="look at who may write there; the run is where it was",
    )
