"""Cases of the link between actor and learner: delays, partitions, flipped bits, intruders."""

from __future__ import annotations

from robot_rl.bench.faults.case import Case

CASES: tuple[Case, ...] = ()
