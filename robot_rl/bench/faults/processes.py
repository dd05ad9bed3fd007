"""Cases of the processes: each is asked to end."""

from __future__ import annotations

from robot_rl.bench.faults.case import Case

CASES: tuple[Case, ...] = ()
