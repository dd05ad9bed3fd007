"""Real-time priority: for who has deadlines, and nothing breaks where it is not given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from robot_rl.system import priority


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(policy, priority) of each request; nothing is changed."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda _, policy, p: found.append((policy, p.sched_priority))
    )
    return found


def test_who_has_deadlines_asks_and_the_gate_comes_first(asked: list[tuple[int, int]]) -> None:
    assert all(priority.prefer(name) for name in ("gate", "operator", "console"))
    policies, numbers = zip(*asked, strict=True)
    assert set(policies) == {os.SCHED_RR}
    assert list(numbers) == sorted(numbers, reverse=True)
    assert len(set(numbers)) == 3 and max(numbers) < 50


@pytest.mark.parametrize("name", ["view", "sim", "learner"])
def test_who_has_none_does_not_ask(name: str, asked: list[tuple[int, int]]) -> None:
    assert not priority.prefer(name)
    assert asked == []


def test_without_permission_it_goes_on_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    before = os.sched_getscheduler(0)
    assert not priority.prefer("gate")
    assert not priority.allowed()
    assert os.sched_getscheduler(0) == before


def test_asking_whether_it_is_allowed_changes_nothing() -> None:
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    priority.allowed()
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority) == before


@pytest.mark.parametrize(
    ("name", "threads", "cores", "kept"),
    [
        ("learner", 0, [0, 1], [1]),
        ("learner", 1, [2, 3, 4, 5], [4, 5]),
        ("learner", 3, [2, 3, 4, 5], [3, 4, 5]),
        ("learner", 8, [0, 1], [0, 1]),
        ("gate", 1, [0, 1], [0]),
        ("actor", 1, [2, 3, 4], [2]),
        ("learner", 1, [3], None),
        ("gate", 1, [3], None),
        ("view", 1, [0, 1], [0]),
        ("sim", 1, [0, 1], None),
    ],
)
def test_the_learner_is_not_interrupted_by_who_has_deadlines(
    name: str,
    threads: int,
    cores: list[int],
    kept: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[list[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, some: given.append(list(some)))
    monkeypatch.delenv("ROBOT_RL_APART", raising=False)
    priority.keep_apart(name, threads)  # in real time: whichever core is free
    monkeypatch.setenv("ROBOT_RL_APART", "1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cores))
    priority.keep_apart(name, threads)
    assert given == ([kept] if kept else [])


def test_who_gives_way_does_so_to_other_sessions() -> None:
    """On one core: `nice` alone would share it evenly among two sessions."""
    core = {min(os.sched_getaffinity(0))}
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    both = [
        subprocess.Popen([*nice, *command], stdout=subprocess.PIPE, start_new_session=True)
        for nice in ([], ["nice", "-n", "10"])
    ]
    try:
        for process in both:
            assert process.stdout is not None and process.stdout.readline()
            os.sched_setaffinity(process.pid, core)
            usual = os.sched_param(0)  # a node in this process may have asked for real time
            os.sched_setscheduler(process.pid, os.SCHED_OTHER, usual)
        priority.give_way(both[1].pid, 10)
        before_s = [priority._used_s(process.pid) for process in both]
        time.sleep(2.0)
        first, second = (priority._used_s(p.pid) - s for p, s in zip(both, before_s, strict=True))
        assert second < 0.4 * first  # a tenth
    finally:
        for process in both:
            process.kill()
            process.communicate()


def test_a_process_that_has_ended_gives_way_to_nobody() -> None:
    priority.give_way(2**22 + 1, 10)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """A learner that computes, and a gate with a second thread; label -> pid."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core")
    monkeypatch.setattr(priority, "LOOK_S", 0.2)
    computes = "while True: pass"
    two = "import threading; threading.Timer(60, print).start(); print(flush=True); input()"
    learner = subprocess.Popen([sys.executable, "-c", computes])
    gate = subprocess.Popen(
        [sys.executable, "-c", two], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert gate.stdout is not None and gate.stdout.readline()
    yield {"learner": learner.pid, "left-gate": gate.pid}
    for process in (learner, gate):
        process.kill()
        process.communicate()


@pytest.mark.alone  # beside others a learner may look as if it rested
def test_nodes_have_all_cores_while_the_learner_rests(processes: dict[str, int]) -> None:
    everywhere = os.sched_getaffinity(0)
    half = set(sorted(everywhere)[: len(everywhere) // 2])
    learner, gate = processes["learner"], processes["left-gate"]
    threads = [int(task.name) for task in Path(f"/proc/{gate}/task").iterdir()]
    assert len(threads) == 2
    cores = priority.Cores({"learner": "learner", "left-gate": "gate", "gone": "actor"})

    def look() -> list[set[int]]:
        time.sleep(1.5 * priority.LOOK_S)
        cores.look(processes)
        return [os.sched_getaffinity(thread) for thread in threads]

    assert look() == [half] * 2
    os.kill(learner, signal.SIGSTOP)  # it computes nothing
    look()
    assert look() == [everywhere] * 2
    os.kill(learner, signal.SIGCONT)
    look()
    assert look() == [half] * 2
    assert os.sched_getaffinity(learner) == everywhere  # its half is its own affair
    del processes["learner"]  # it is being started again
    assert look() == [everywhere] * 2
