"""Nodes with deadlines run before everything that has none, where the system lets them, and the
learner elsewhere.

Measured on two busy cores (`robot-rl bench console --only hand`): the time that a press takes to
the gate is halved, its p99 is a third. The scheduling is round robin, also for threads that start
later; the kernel keeps 5 % of the time for everybody else, whatever happens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LINUX = hasattr(os, "sched_setscheduler")
TASKS = Path("/proc/self/task")  # of the threads of this process
PRIORITIES = {"gate": 40, "watchdog": 40, "ik": 40, "operator": 30, "actor": 30, "console": 20}
"""Process -> real-time priority, below a kernel's own threads (50)."""
LEARNER = "learner"
APART = {"ROBOT_RL_APART": "1"}  # in the environment of processes that share the cores


def prefer(name: str) -> bool:
    """Give the calling process its priority; False when it has none, or the system gives none.

    An ordinary user needs `rtprio` in limits.conf (`robot-rl doctor` says so). Without it
    everything works, but later when the machine is busy.
    """
    priority = PRIORITIES.get(name, 0)
    return LINUX and bool(priority) and _set(os.SCHED_RR, priority)


def keep_apart(name: str, threads: int = 1) -> None:
    """Give the learner one half of the cores, and its nodes the other, where `APART` says so.

    That is in released time, in which nobody can be late. The simulator, which works in turn with
    the others, may run on all cores. A node with real-time priority that wakes up interrupts
    whoever runs on its core, although another is idle. Measured on two cores: a learner among the
    nodes was interrupted 1,400 times a second and waited for a third of the time. On a core of its
    own it did twice the updates.

    threads: that the learner computes with; it gets at least as many cores, if there are.
    """
    if not LINUX or not APART.items() <= os.environ.items():
        return
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    if name == LEARNER and half:
        os.sched_setaffinity(0, cores[-max(len(cores) - half, threads) :])
    elif name in (*PRIORITIES, "view") and half:
        os.sched_setaffinity(0, cores[:half])


def step_back() -> None:
    """Take the priority from the calling thread again: it draws, or computes for long."""
    if LINUX:
        _set(os.SCHED_OTHER, 0)


@contextmanager
def kept() -> Iterator[None]:
    """Give every thread the caller's scheduling again, whatever a library made of it inside.

    SVT-AV1 asks for the highest real-time priority for its threads and for the thread that opens
    it, and as root it gets it: pictures would then be encoded before any command is judged.
    """
    if not LINUX:
        yield
        return
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    before = set(_threads())
    try:
        yield
    finally:
        for thread in {threading.get_native_id()} | (set(_threads()) - before):
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setscheduler(thread, policy, param)


def _threads() -> Iterator[int]:
    return (int(task.name) for task in TASKS.iterdir())


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
