"""Command lines that run beside each other: on this machine, or on a cluster (`run.on_ray`)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Job(Protocol):
    """One command line that runs, or has ended."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        ...


class Jobs(Protocol):
    """Who starts jobs."""

    def start(self, words: Sequence[str], folder: Path, needs: Sequence[Path] = ()) -> Job:
        """Start a command line: interpreter, then its arguments.

        folder: what it writes; its output goes beside, to `folder.log`. needs: folders it reads.
        """
        ...


class LocalJobs:
    """Subprocesses of this one."""

    def start(self, words: Sequence[str], folder: Path, needs: Sequence[Path] = ()) -> Job:
        """See `Jobs.start`; every folder is where the command line says."""
        with folder.with_suffix(".log").open("wb") as output:
            return subprocess.Popen(list(words), stdout=output, stderr=subprocess.STDOUT)
