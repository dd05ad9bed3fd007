"""A joystick through the whole graph: takes over, is pulled out while held, and the gate holds."""

from __future__ import annotations

import array
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from sensor_msgs.msg import Joy

from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import publisher, subscribe
from robot_rl.ros.graph import SimGraphConfig, sim_graph
from robot_rl.types import Driver
from tests.support.ros import World, wait_for, write_run

pytestmark = [pytest.mark.ros, pytest.mark.alone]

DRIVE, PERIOD_S = 5, 0.01
PRESSES = 10
REST = (0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
LEASE = "test"


class Pad:
    """What joy_node would publish, and what the operator node makes of it."""

    def __init__(self, world: World) -> None:
        self.world, self._sequence = world, 0
        self._joy = world.probe.node.create_publisher(Joy, "joy", 10)
        self._episode = publisher(world.probe.node, topics.OPERATOR_EPISODE)
        self.heard: list[tuple[float, bool]] = []
        subscribe(world.probe.node, topics.OPERATOR_JOY, self._on_joy)

    def _on_joy(self, msg: Joy) -> None:
        self.heard.append((time.monotonic(), convert.joy_from(msg, 6)[0].driving))

    def begin(self) -> None:
        call = wire.EpisodeCall(1, 0, "train", active=True)
        self._episode.publish(convert.text_to(wire.encode_episode(call)))

    def until(self, condition: Callable[[], Any], held: bool | None, what: str) -> float:
        """Send the pad's state at 100 Hz (None = pulled out) and a person's command at 10 Hz until
        `condition`; wall seconds that it took."""
        buttons = [0] * 11
        buttons[DRIVE] = int(bool(held))
        message = Joy(axes=array.array("f", REST), buttons=array.array("i", buttons))
        began_s = command_s = time.monotonic()

        def turn() -> Any:
            nonlocal command_s
            if held is not None:
                self._joy.publish(message)
            if time.monotonic() >= command_s:
                command_s += 0.1
                self._sequence += 1
                command = self.world.probe.command(LEASE, self._sequence, 0.0)
                driver = Driver.POLICY if held is False else Driver.CORRECTION
                self.world.probe.send(replace(command, driver=driver))
            time.sleep(PERIOD_S)
            return condition()

        wait_for(turn, 15.0, lambda: f"{what}; gate: {self.world.probe.report()}")
        return time.monotonic() - began_s

    def keep(self, held: bool, what: str) -> None:
        """Half a second of the same."""
        until_s = time.monotonic() + 0.5
        self.until(lambda: time.monotonic() > until_s, held, what)

    def press(self, what: str) -> None:
        """Press until the gate lets the person drive for half a second.

        A test machine that stalls this stream for 0.1 s has pulled the pad out: then let go and
        press again, as a person would.
        """
        for _ in range(PRESSES):
            self.until(lambda: bool(self.heard and self.heard[-1][1]), True, what)
            self.keep(True, what)
            if self.world.probe.report().mode == "run":
                return
            self.keep(False, "rest")
        pytest.fail(f"{what}: not after {PRESSES} presses; gate: {self.world.probe.report()}")


@pytest.fixture(scope="module")
def pad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pad]:
    """Sim, gate, watchdog, operator=joy; we are the actor and the joystick driver."""
    run = write_run(tmp_path_factory.mktemp("run"), operator="joy")
    config = SimGraphConfig(real_time_factor=1.0, with_actor=False, unattended=False)
    world = World(sim_graph(config, str(run)), run)
    try:
        world.probe.wait_state()
        yield Pad(world)
    finally:
        codes = world.close()
        assert all(code == 0 for code in codes.values()), codes


def test_a_pad_that_is_pulled_out_while_it_is_held_makes_the_gate_hold(
    pad: Pad, tmp_path: Path
) -> None:
    probe = pad.world.probe

    def driving() -> bool:
        return bool(pad.heard and pad.heard[-1][1])

    pad.begin()
    assert probe.arm(LEASE).granted
    pad.keep(False, "rest")
    assert not any(d for _, d in pad.heard)
    pad.press("the person drives")

    count = len(pad.heard)
    silent = lambda: probe.report().reason.startswith("operator_silent")  # noqa: E731
    took_s = pad.until(silent, None, "the gate notices")
    assert took_s < 1.0  # 0.1 s for the handset, 0.1 s for the gate; the rest is this machine
    time.sleep(0.3)
    assert all(d for _, d in pad.heard[count:])  # nobody ever said that the device was let go of

    pad.keep(True, "plugged in again, still held")
    assert probe.report().mode != "run"
    pad.until(lambda: not driving(), False, "let go of")
    pad.keep(False, "rest")
    pad.press("pressed again: drives")
