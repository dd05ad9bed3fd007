"""Cases of the people: stuck keys, two browsers, hidden pages, unplugged gamepads."""

from __future__ import annotations

from robot_rl.bench.faults.case import Case

CASES: tuple[Case, ...] = ()
