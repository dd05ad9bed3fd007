"""Command lines that run beside each other: on this machine, or on a cluster (`run.on_ray`)."""

from __future__ import annotations

import os
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
    """Subprocesses of this one, which share its cores.

    at_once: how many run beside each other.
    """

    def __init__(self, at_once: int = 1) -> None:
        threads = max(1, len(os.sched_getaffinity(0)) // at_once)
        self._env = {"OMP_NUM_THREADS": str(threads)} | os.environ

    def start(self, words: Sequence[str], folder: Path, needs: Sequence[Path] = ()) -> Job:
        """See `Jobs.start`; every folder is where the command line says."""
        with folder.with_suffix(".log").open("wb") as output:
            return subprocess.Popen(
                list(words), stdout=output, stderr=subprocess.STDOUT, env=self._env
            )
