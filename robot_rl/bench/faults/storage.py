"""Cases of what is on the disk: full disks, power cuts, damaged checkpoints."""

from __future__ import annotations

from robot_rl.bench.faults.case import Case

CASES: tuple[Case, ...] = ()
