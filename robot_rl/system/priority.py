"""Nodes with deadlines run before everything that has none, where the system lets them.

Measured on two busy cores (`robot-rl bench console --only hand`): the time that a press takes to
the gate is halved, its p99 is a third. The scheduling is round robin, also for threads that start
later; the kernel keeps 5 % of the time for everybody else, whatever happens.
"""

from __future__ import annotations

import os

LINUX = hasattr(os, "sched_setscheduler")
PRIORITIES = {"gate": 40, "watchdog": 40, "operator": 30, "actor": 30, "console": 20}
"""Process -> real-time priority, below a kernel's own threads (50)."""


def prefer(name: str) -> bool:
    """Give the calling process its priority; False when it has none, or the system gives none.

    An ordinary user needs `rtprio` in limits.conf (`robot-rl doctor` says so). Without it
    everything works, but later when the machine is busy.
    """
    priority = PRIORITIES.get(name, 0)
    return LINUX and bool(priority) and _set(os.SCHED_RR, priority)


def step_back() -> None:
    """Take the priority from the calling thread again: it draws, or computes for long."""
    if LINUX:
        _set(os.SCHED_OTHER, 0)


def allowed() -> bool:
    """Whether this user may have the highest of `PRIORITIES`."""
    if not LINUX:
        return False
    before, param = os.sched_getscheduler(0), os.sched_getparam(0)
    may = _set(os.SCHED_RR, max(PRIORITIES.values()))
    if may:
        os.sched_setscheduler(0, before, param)
    return may


def _set(policy: int, priority: int) -> bool:
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except PermissionError:
        return False
    return True
