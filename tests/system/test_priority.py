"""Real-time priority: for who has deadlines, and nothing breaks where it is not given."""

from __future__ import annotations

import os

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
