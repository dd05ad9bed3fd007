"""All runs below a folder: found, looked at, and told row by row as they change."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from robot_rl.config.run_folder import RUN
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.studio.run import Run

DEPTH = 4  # folders below the studio's in which runs are looked for
MAX_RUNS = 5000
LOOK_S = 0.25  # of reading in one look; what is left is read at the next
PERIOD_S = 0.5  # looks are not closer together than this, however many pages ask
SCAN_S = 2.0  # between two searches for new folders


def is_run(folder: Path) -> bool:
    """Whether a folder is one that a run was begun in."""
    return (folder / "config.yaml").is_file() and (folder / RUN).is_file()


def runs_below(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Run folders below a folder. Links, hidden folders and what is inside a run are left out."""
    with suppress(OSError), os.scandir(folder) as entries:
        inner = [
            Path(e.path)
            for e in entries
            if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)
        ]
        for path in sorted(inner):
            if is_run(path):
                yield path
            elif depth > 1:
                yield from runs_below(path, depth - 1)


class Catalogue:
    """The runs of a folder. Any thread may ask; whoever asks has them looked at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[str, Run] = {}
        self._rows: dict[str, tuple[int, str]] = {}  # name -> version at which it changed, JSON
        self._version = self._members = 1
        self._id = secrets.token_hex(8)  # versions are of this object
        self._lock = threading.Lock()
        self._looked_s = self._scanned_s = -1e9

    def look(self) -> None:
        """Find new runs and take in what is new of all, for about `LOOK_S` at most."""
        with self._lock:
            now_s = time.monotonic()
            waiting = any(run.unread for run in self._runs.values())
            if now_s - self._looked_s < PERIOD_S and not waiting:
                return
            if now_s - self._scanned_s > SCAN_S:
                self._scan()
                self._scanned_s = now_s
            self._look_at_all(now_s + LOOK_S)
            self._looked_s = time.monotonic()

    def _scan(self) -> None:
        found = {}
        for path in runs_below(self.folder):
            found[path.relative_to(self.folder).as_posix()] = path
            if len(found) == MAX_RUNS:
                break
        if found.keys() != self._runs.keys():
            self._version += 1
            self._members = self._version
        for name in self._runs.keys() - found.keys():
            del self._runs[name], self._rows[name]
        for name in found.keys() - self._runs.keys():
            self._runs[name] = Run(found[name], name)
            self._rows[name] = (self._version, "")

    def _look_at_all(self, until_s: float) -> None:
        for run in self._runs.values():
            if run.unread and time.monotonic() > until_s:
                continue
            run.look(until_s)
            if not run.changed:
                continue
            run.changed, row = False, json.dumps(run.row())
            if row != self._rows[run.name][1]:
                self._version += 1
                self._rows[run.name] = (self._version, row)

    def told(self, since: int) -> dict[str, Any]:
        """What has changed since a version: rows, and all names if there are others now."""
        self.look()
        with self._lock:
            rows = [json.loads(r) for version, r in self._rows.values() if version > since and r]
            answer = {
                "server": self._id,
                "version": self._version,
                "rows": rows,
                "unread": sum(run.unread for run in self._runs.values()),
                "free_bytes": shutil.disk_usage(self.folder).free,
            }
            if self._members > since:
                answer["names"] = list(self._runs)
            return answer

    def run(self, name: str) -> Run:
        """The run of this name, looked at in this moment: who works on it is true now.

        No name is ever joined to a path: it is looked up.

        Raises:
            ConfigError: there is none.
        """
        with self._lock:
            if name not in self._runs:
                self._scan()
            if name not in self._runs:
                raise ConfigError(
                    f"no run '{name[:200]}'",
                    expected=f"a run below {self.folder}",
                    got="none of this name",
                    fix=did_you_mean(name[:200], list(self._runs)[-20:]),
                )
            self._runs[name].look(time.monotonic() + LOOK_S)
            return self._runs[name]

    @property
    def names(self) -> set[str]:
        """Names of the runs that are known."""
        with self._lock:
            return set(self._runs)

    def forget(self) -> None:
        """Folders were moved: look for them at once."""
        with self._lock:
            self._scan()
            self._looked_s = -1e9
