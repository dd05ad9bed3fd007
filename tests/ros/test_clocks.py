"""Stamps of a person's device that are wrong: one costs one heartbeat, never the takeover."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from robot_rl.ports import OperatorInput
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import publisher
from robot_rl.ros.graph import SimGraphConfig, sim_graph
from robot_rl.types import Driver
from tests.support.ros import World, wait_for, write_run

pytestmark = [pytest.mark.ros, pytest.mark.alone, pytest.mark.waits]


class Device:
    """We are the operator node: a device that beats at 50 Hz, with stamps as we like."""

    def __init__(self, world: World) -> None:
        self.world, self.held, self.ahead_s = world, False, 0.0
        self._topic = publisher(world.probe.node, topics.OPERATOR_JOY)
        self._closing = False
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._closing:
            stamp_s = self.world.probe.now_s() + self.ahead_s
            value = OperatorInput(
                self.held, np.zeros(6, np.float32), driver=Driver.CORRECTION, stamp_s=stamp_s
            )
            self._topic.publish(convert.joy_to(value, 1))
            time.sleep(0.02)

    def close(self) -> None:
        """Fall silent."""
        self._closing = True
        self._thread.join()


@pytest.fixture
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """Sim, gate and watchdog; the operator is this test."""
    run = write_run(tmp_path_factory.mktemp("run"))
    config = SimGraphConfig(real_time_factor=1.0, with_actor=False, unattended=False)
    graph = tuple(s for s in sim_graph(config, str(run)) if s.kind != "operator")
    world = World(graph, run)
    made = None
    try:
        world.probe.wait_state()
        made = Device(world)
        yield made
    finally:
        if made is not None:
            made.close()
        world.close()


@pytest.mark.parametrize("ahead_s", [3600.0])
def test_stamps_from_another_hour_do_not_take_the_takeover_away(
    device: Device, ahead_s: float
) -> None:
    probe = device.world.probe
    device.held = True
    wait_for(
        lambda: not probe.arm("a", timeout_s=0.1).granted, 10.0, "the gate sees that it is held"
    )
    device.ahead_s = ahead_s
    time.sleep(0.2)
    warned = lambda: "ahead" in str(probe.diagnostics("/gate"))  # noqa: E731
    wait_for(warned, 10.0, "the gate says that the stamps are wrong")
    device.ahead_s, device.held = 0.0, False
    time.sleep(0.2)
    assert probe.call(topics.GATE_RESUME).success  # a device that was held had fallen silent
    assert probe.arm("b", timeout_s=5.0).granted  # the release was heard, an hour too early
    device.ahead_s = -ahead_s
    time.sleep(0.3)
    device.ahead_s, device.held = 0.0, True
    wait_for(lambda: not probe.arm("c", timeout_s=0.1).granted, 10.0, "and so is the next press")
