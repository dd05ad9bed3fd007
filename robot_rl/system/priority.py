"""Nodes with deadlines run before everything that has none, where the system lets them, and the
learner elsewhere.

Measured on two busy cores (`robot-rl bench console --only hand`): the time that a press takes to
the gate is halved, its p99 is a third. The scheduling is round robin, also for threads that start
later; the kernel keeps 5 % of the time for everybody else, whatever happens.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

LINUX = hasattr(os, "sched_setscheduler")
PROC = Path("/proc")
PRIORITIES = {"gate": 40, "watchdog": 40, "ik": 40, "operator": 30, "actor": 30, "console": 20}
"""Process -> real-time priority, below a kernel's own threads (50)."""
LEARNER = "learner"
APART = {"ROBOT_RL_APART": "1"}  # in the environment of processes that share the cores
PATIENCE = 6  # times that a session's share is asked for
LOOK_S = 1.0  # between two looks at what the learner does
LEARNS = 0.25  # share of a core above which the learner counts as learning


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
    nodes = _of_nodes(cores)
    if name == LEARNER and nodes:
        os.sched_setaffinity(0, cores[-max(len(cores) - len(nodes), threads) :])
    elif _gives_way(name) and nodes:
        os.sched_setaffinity(0, nodes)


class Cores:
    """Gives the nodes all cores while the learner rests, and their half again when it learns.

    In demonstrations, exams and evaluations the learner has nothing to do. Measured on two cores:
    simulated time then is 1.2 times as fast as with the nodes on one of them.

    Args:
        names: label -> name of the processes that keep apart.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._cores = sorted(os.sched_getaffinity(0)) if LINUX else []
        self._looked_s, self._used_s = time.monotonic(), 0.0

    def look(self, pids: Mapping[str, int]) -> None:
        """Move the nodes if the learner began or ceased to learn. pids: label -> process.

        Call it often; it looks once in `LOOK_S`, at processor time.
        """
        now_s, before_s = time.monotonic(), self._used_s
        nodes = _of_nodes(self._cores)
        if not nodes or now_s < self._looked_s + LOOK_S:
            return
        labels = [label for label, name in self._names.items() if label in pids]
        used_s = sum(_used_s(pids[k]) for k in labels if self._names[k] == LEARNER)
        learns = used_s - before_s > LEARNS * (now_s - self._looked_s)
        self._looked_s, self._used_s = now_s, used_s
        cores = set(nodes if learns else self._cores)
        for label in labels:
            if _gives_way(self._names[label]):
                _move(pids[label], cores)


def _of_nodes(cores: list[int]) -> list[int]:
    """Where the nodes are while the learner learns: half of the cores, none of a single one."""
    return cores[: len(cores) // 2]


def _gives_way(name: str) -> bool:
    return name in (*PRIORITIES, "view")


def _used_s(pid: int) -> float:
    """Processor time of a process; 0 when there is none."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _move(pid: int, cores: set[int]) -> None:
    """Let all threads of a process run on these cores only."""
    with suppress(OSError):  # it has ended
        if os.sched_getaffinity(pid) == cores:
            return
        for thread in _threads(pid):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores)


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
    before = set(_threads(os.getpid()))
    try:
        yield
    finally:
        for thread in {threading.get_native_id()} | (set(_threads(os.getpid())) - before):
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setscheduler(thread, policy, param)


def give_way(pid: int, nice: int) -> None:
    """Let a process that leads a session give way to those of others, too.

    Linux shares the processors among sessions first (autogroup, sched(7)), and `nice` counts within
    one only. Where the kernel does not do so, nothing happens.
    """
    for _ in range(PATIENCE):
        try:
            (PROC / str(pid) / "autogroup").write_text(str(nice))
        except BlockingIOError:  # an ordinary user may set ten a second
            time.sleep(0.05)
        except OSError:  # no such kernel, or the process has ended
            return
        else:
            return
    log.debug("the session of process %d did not give way: others were changed", pid)


def _threads(pid: int) -> Iterator[int]:
    return (int(task.name) for task in (PROC / str(pid) / "task").iterdir())


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
