"""The pictures of the simulated arm come as often as they are asked for."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from types import SimpleNamespace
from typing import Any

from robot_rl.ros.sim_node import _Cameras

TICK_S = 0.02  # of the physics, between two looks


@pytest.mark.parametrize("hz", [5.0, 10.0, 15.0, 20.0, 30.0, 50.0])
def test_no_rate_is_rounded_down_to_the_ticks_of_the_physics(hz: float) -> None:
    drawn: list[float] = []
    camera = SimpleNamespace(draw=drawn.append, send=lambda _now_s, _delay_s: None)
    cameras: Any = object.__new__(_Cameras)
    cameras._cameras, cameras.frozen, cameras.delay_s = [camera], False, 0.0
    cameras._period_s, cameras._due_s = 1.0 / hz, 0.0
    for tick in range(1, 501):
        cameras.publish(tick * TICK_S)
    assert len(drawn) == pytest.approx(10.0 * hz, abs=2)
