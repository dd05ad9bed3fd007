"""The system's clock is set while somebody sleeps to a deadline: nobody sleeps for an hour."""

from __future__ import annotations

import threading
import time

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
