"""How busy the machine was with other programs while something was measured."""

from __future__ import annotations

import math
import os
from pathlib import Path

TICKS_HZ = os.sysconf("SC_CLK_TCK")


class Watch:
    """From its making on; `others` is the share that programs used which we did not start.

    root: whose processes are ours; None = this one and what it started.
    """

    def __init__(self, root: int | None = None) -> None:
        self._root = root or os.getpid()
        self._busy, self._all = _machine()
        self._own = family_ticks(self._root)

    def others(self) -> float:
        """Share of the machine's processor time, 0 to 1; NaN where the system does not tell."""
        busy, all_ = _machine()
        passed = all_ - self._all
        if not passed > 0.0:
            return math.nan
        own = family_ticks(self._root) - self._own
        return min(max((busy - self._busy - own) / passed, 0.0), 1.0)


def _machine() -> tuple[float, float]:
    """Ticks of all cores: busy, and altogether."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except (OSError, IndexError):
        return math.nan, math.nan
    ticks = [float(field) for field in fields]  # user nice system idle iowait irq softirq steal
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def family_ticks(root: int) -> float:
    """Ticks of a process and all that it started, those that have ended included."""
    parents: dict[int, int] = {}
    ticks: dict[int, float] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = sum(float(field) for field in fields[11:15])
    family = {root}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return sum(ticks.get(pid, 0.0) for pid in family)
