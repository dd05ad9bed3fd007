"""Time at work on a run, and how long its practice still takes: told alike by terminal and studio.

A line of metrics.jsonl says when an episode ended. Nobody worked from the last line of a process to
the first one of the next, and the pace is that of practice alone: what was learned between
demonstrations and practice, or examined, says nothing about the next episode.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_rl.control.statistics import work_s

PRACTICE, EXAM = "practice", "exam"
BUDGETED = (PRACTICE, EXAM)  # states in which the budget of practice is used up
BEGAN = "began_s"  # key of the first line of a process: when it began
RUNS = ("train", "record")  # verbs that write these lines
FEWEST = 4  # episodes of practice, after another one, that tell a pace
MOST = 40  # that it is taken over


@dataclass(slots=True)
class Work:
    """What the lines of a run come to, taken in one by one; one that is older adds no time."""

    worked_s: float = 0.0
    newest_s: float = 0.0  # time of the newest line, in seconds since 1970
    state: str = ""
    progress: float | None = None  # of the practice budget, from 0 to 1
    time_left_s: float | None = None  # until practice must end, whatever its steps
    begun: set[float] = field(default_factory=set)  # when processes began to work on the run
    _pace: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST))

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in a line with its `time_s`; others are left out."""
        if (now_s := number(line.get("time_s"))) is None:
            return
        if (began_s := number(line.get(BEGAN))) is not None:
            self.begun.add(began_s)
        gap_s = work_s(self.newest_s, now_s, self.begun) if self.newest_s else 0.0
        self.worked_s += gap_s
        self.newest_s = max(self.newest_s, now_s)
        before, progressed = self.state, self.progress
        if isinstance(state := line.get("state"), str):
            self.state = state
        if (left_s := number(line.get("time_left_s"))) is not None:
            self.time_left_s = left_s
        if (progress := number(line.get("progress"))) is None:
            return
        self.progress = progress
        if progressed is None or progress < progressed:  # it goes on with a larger budget
            self._pace.clear()
        elif gap_s and before == self.state == PRACTICE:
            self._pace.append((gap_s, progress - progressed))

    @property
    def left_s(self) -> float | None:
        """Seconds until practice ends, at its pace; None = not known yet, or there is none now.

        Its steps and its minutes are a budget each, and the one that is used up first ends it.
        """
        if self.state not in BUDGETED or len(self._pace) < FEWEST:
            return None
        if self.progress is None or self.time_left_s is None:
            return None
        took_s, used = (sum(values) for values in zip(*self._pace, strict=True))
        if used <= 0.0:
            return self.time_left_s
        return min(self.time_left_s, (1.0 - self.progress) * took_s / used)


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if type(value) not in (int, float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None
