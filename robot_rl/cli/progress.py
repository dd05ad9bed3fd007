"""Progress of a long job: a bar on a terminal, a line per tenth elsewhere."""

from __future__ import annotations

import sys
from typing import Any, Self

from robot_rl.cli.common import say

LINES = 10  # in a log file


class ProgressBar:
    """A context manager, called with (done, total). what: what is counted, "episodes exported"."""

    def __init__(self, what: str) -> None:
        self._what, self._said = what, -1
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` items are done."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
            return
        tenth = done * LINES // total
        if tenth != self._said:
            self._said = tenth
            say(f"{done} of {total} {self._what}")

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(TextColumn("{task.description}"), *columns)
            self._bar.add_task(self._what, total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
