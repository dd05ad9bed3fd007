"""Cases of the learner: killed, restarted, NaN losses, no memory, a reward service that is slow."""

from __future__ import annotations

from robot_rl.bench.faults.case import Case

CASES: tuple[Case, ...] = ()
