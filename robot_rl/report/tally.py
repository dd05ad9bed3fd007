"""What a deployment has come to: success, cycle time, autonomy, and why it stopped.

Everything is counted from the stores, never beside them: whatever is killed, the figures are those
of what is recorded. `Ledger` reads as little as it can again after each episode.
"""

from __future__ import annotations

import copy
import time
from array import array
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.control.statistics import wilson
from robot_rl.store.cycles import Cycle, read_cycles
from robot_rl.store.daily import day_files
from robot_rl.store.labels import FOLDED
from robot_rl.store.store import Store

LAST_FAILURES = 6  # that page and report show
OPEN_DAYS = 2  # whose episodes stay in memory: labels come late, also for yesterday's


@dataclass(slots=True)
class Tally:
    """Counts of the episodes that were added, in their order. Aborted ones are only counted."""

    episodes: int = 0  # that came to an end of their own
    successes: int = 0
    failures: int = 0
    unlabelled: int = 0  # nobody has said whether it succeeded: no failure
    unaided: int = 0  # successes without a step of a person
    alone: int = 0  # episodes without a step of a person
    steps: int = 0  # of all episodes, aborted ones included
    human_steps: int = 0
    driven_s: float = 0.0
    takeovers: int = 0
    failures_in_a_row: int = 0
    since_ns: int = 0
    until_ns: int = 0
    cycle_times_s: array[float] = field(default_factory=lambda: array("d"))  # of the successes
    stops: Counter[str] = field(default_factory=Counter)  # why episodes were aborted
    hours: dict[str, list[int]] = field(default_factory=dict)  # UTC hour -> [successes, labelled]
    failed: deque[Cycle] = field(default_factory=lambda: deque(maxlen=LAST_FAILURES))

    def add(self, cycle: Cycle) -> None:
        """Count one more episode; one that still runs is left out."""
        if cycle.ending is None:
            return
        self.since_ns = self.since_ns or cycle.stamp_ns
        self.until_ns = max(self.until_ns, cycle.stamp_ns)
        self.steps += cycle.steps
        self.human_steps += cycle.human_steps
        self.driven_s += cycle.lasted_s
        self.takeovers += cycle.takeovers
        if cycle.counts:
            self._count(cycle)
        else:
            self.stops[cycle.reason.partition(":")[0] or str(cycle.ending)] += 1
        if cycle.continued:
            self.failures_in_a_row = 0

    def _count(self, cycle: Cycle) -> None:
        self.episodes += 1
        self.alone += cycle.human_steps == 0
        if cycle.success is None:
            self.unlabelled += 1
            return
        hour = time.strftime("%Y-%m-%dT%H", time.gmtime(cycle.stamp_ns // 10**9))
        counted = self.hours.setdefault(hour, [0, 0])
        counted[0] += cycle.success
        counted[1] += 1
        if cycle.success:
            self.successes += 1
            self.unaided += cycle.human_steps == 0
            self.cycle_times_s.append(cycle.lasted_s)
            self.failures_in_a_row = 0
        else:
            self.failures += 1
            self.failures_in_a_row += 1
            self.failed.append(cycle)

    def figures(self) -> dict[str, Any]:
        """Everything as plain data; a figure that nothing has been measured for is None.

        Intervals are Wilson's, 95 %, over the labelled episodes. mtbi_s: driven time per takeover.
        """
        labelled = self.successes + self.failures
        low, high = wilson(self.successes, labelled)
        alone_low, alone_high = wilson(self.unaided, labelled)
        times = np.asarray(self.cycle_times_s)
        return {
            "since": _iso(self.since_ns),
            "until": _iso(self.until_ns),
            "episodes": self.episodes,
            "labelled": labelled,
            "unlabelled": self.unlabelled,
            "successes": self.successes,
            "failures": self.failures,
            "success": _share(self.successes, labelled),
            "success_low": low,
            "success_high": high,
            "unaided": self.unaided,
            "unaided_success": _share(self.unaided, labelled),
            "unaided_low": alone_low,
            "unaided_high": alone_high,
            "cycle_time_s_median": float(np.median(times)) if times.size else None,
            "cycle_time_s_p90": float(np.percentile(times, 90)) if times.size else None,
            "driven_s": round(self.driven_s, 3),
            "interventions": self.takeovers,
            "mtbi_s": self.driven_s / self.takeovers if self.takeovers else None,
            "autonomy_steps": _share(self.steps - self.human_steps, self.steps),
            "autonomy_episodes": _share(self.alone, self.episodes),
            "failures_in_a_row": self.failures_in_a_row,
            "stops": dict(self.stops.most_common()),
            "hours": self.hours,
            "failed": [
                {"episode": c.episode, "at": _iso(c.stamp_ns), "steps": c.steps,
                 "reason": c.reason or str(c.ending)}
                for c in reversed(self.failed)
            ],
        }  # fmt: skip


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _iso(stamp_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stamp_ns // 10**9)) if stamp_ns else ""


class _Day:
    """The episodes of one file, and how far it has been read."""

    def __init__(self, path: Path, run: str, actor: str) -> None:
        self.path, self._run, self._actor = path, run, actor
        self._store = Store(path)
        self._seq = 0
        self.cycles: dict[int, Cycle] = {}

    def read(self) -> None:
        """Take in new episodes, and old ones of which something new was said."""
        last = self._store.last_seq()
        if last == self._seq:
            return
        said = {x.id.episode for x in self._store.all_labels(FOLDED, self._seq)}
        going = {n for n, c in self.cycles.items() if c.ending is None}
        since = min(said | going | {max(self.cycles, default=-1)})
        for cycle in read_cycles(self._store, self._run, self._actor, max(since, 0)):
            self.cycles[cycle.episode] = cycle
        self._seq = last

    def close(self) -> None:
        self._store.close()


class Ledger:
    """All episodes of a folder of daily stores; memory and open files do not grow with the days."""

    def __init__(self, folder: Path, run: str, actor: str) -> None:
        self._folder, self._run, self._actor = folder, run, actor
        self._before = Tally()  # days that are closed
        self._closed: set[str] = set()
        self._days: list[_Day] = []

    def read(self) -> Tally:
        """The tally of what is committed now.

        Raises:
            StoreError: a file is damaged.
        """
        known = self._closed | {day.path.name for day in self._days}
        for path in day_files(self._folder):
            if path.name not in known:
                self._days.append(_Day(path, self._run, self._actor))
                self._close_old()
        tally = copy.deepcopy(self._before)
        for day in self._days:
            day.read()
            _add(tally, day)
        return tally

    def cycles(self) -> list[Cycle]:
        """The episodes of all days in their order. Raises as `read`."""
        found = []
        for path in day_files(self._folder):
            with Store(path) as store:
                found += read_cycles(store, self._run, self._actor)
        return found

    def close(self) -> None:
        """Close the files."""
        for day in self._days:
            day.close()

    def _close_old(self) -> None:
        while len(self._days) > OPEN_DAYS:
            day = self._days.pop(0)
            day.read()
            _add(self._before, day)
            self._closed.add(day.path.name)
            day.close()


def _add(tally: Tally, day: _Day) -> None:
    for number in sorted(day.cycles):
        tally.add(day.cycles[number])
