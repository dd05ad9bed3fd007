"""The system's clock is set while somebody sleeps to a deadline: nobody sleeps for an hour."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.ros import new_domain

pytestmark = pytest.mark.ros


@pytest.mark.parametrize("set_s", [-3600.0, 3600.0])
def test_a_sleep_ends_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch, set_s: float) -> None:
    from robot_rl.ros.ports import RosClock
    from robot_rl.ros.runtime import node_shell

    monkeypatch.setenv("ROS_DOMAIN_ID", str(new_domain()))
    ahead = [0.0]
    with node_shell("view", ["--ros-args"]) as shell:
        own = shell.now_s
        monkeypatch.setattr(shell, "now_s", lambda: own() + ahead[0])
        clock = RosClock(shell, "actor")
        clock.has_reached(clock.now_s())  # the clock as it was
        began_s = time.monotonic()
        threading.Timer(0.1, lambda: ahead.__setitem__(0, set_s)).start()
        clock.sleep_until_s(clock.now_s() + 5.0)
        assert time.monotonic() - began_s < 3.0
        began_s = time.monotonic()  # and then deadlines mean what they say
        clock.sleep_until_s(clock.now_s() + 0.3)
        assert 0.25 < time.monotonic() - began_s < 3.0


def test_a_sleeper_tells_that_who_it_waits_for_is_at_work() -> None:
    from robot_rl.ros.ports import RosClock

    told: list[tuple[str, float]] = []
    clock: Any = RosClock.__new__(RosClock)
    clock._simulated, clock._moved = True, threading.Condition()
    clock._shell = SimpleNamespace(running=True, now_s=lambda: 1.0 + (len(told) >= 4))
    clock._horizon = SimpleNamespace(tell=lambda who, until_s: told.append((who, until_s)))
    clock._waits, clock._at_work = {"actor": lambda: True}, {}
    answers = iter([True, False, True, False])  # updates have become more, not, more, not
    clock.wait_for("learner", lambda: len(told) >= 3, lambda: next(answers))
    clock.sleep_until_s(1.5)
    assert told == [("actor", 1.5), ("learner", 1.0), ("learner", 1.0), ("learner", 1.5)]
