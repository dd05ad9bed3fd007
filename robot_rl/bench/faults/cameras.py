"""Cases of the cameras: frozen, unplugged, slow."""

from __future__ import annotations

from robot_rl.bench.faults.case import Case

CASES: tuple[Case, ...] = ()
