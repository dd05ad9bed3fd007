"""A gamepad that is not there: what a joystick's driver would publish, until it is unplugged."""

from __future__ import annotations

import array
import threading
import time
from collections.abc import Callable
from typing import Self

from robot_rl.bench.faults.worlds import ArmWorld
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import message_type, publisher
from robot_rl.ros.topics import Topic

JOY = Topic(
    "joy",
    "sensor_msgs/msg/Joy",
    "stream",
    "joy_node",
    ("operator",),
    100,
    "-",
    "sticks and buttons",
)  # fmt: skip
DRIVE, BUTTONS = 5, 11  # the button that lets a person drive, as `operator=joy` maps it
REST = (0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0)  # triggers rest at 1
PERIOD_S = 0.01
REST_S = 0.5  # wall; at rest before a press counts


class Pad:
    """Publishes its state in a thread until it is unplugged.

    pause_s: seconds until the next message; it is asked each time.
    sent_s: when each message was sent (monotonic).
    """

    def __init__(self, world: ArmWorld, pause_s: Callable[[], float] = lambda: PERIOD_S) -> None:
        self._world, self._pause_s = world, pause_s
        self.held = self._gone = False
        self.sent_s: list[float] = []
        self._done = threading.Event()
        self._joy = publisher(world.person.node, JOY)
        self._episodes = publisher(world.person.node, topics.OPERATOR_EPISODE)
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        due_s = time.monotonic()
        while not self._done.is_set():
            if not self._gone:
                buttons = [0] * BUTTONS
                buttons[DRIVE] = int(self.held)
                axes = array.array("f", REST)
                self._joy.publish(
                    message_type(JOY.type)(axes=axes, buttons=array.array("i", buttons))
                )
                self.sent_s.append(time.monotonic())
            due_s = max(due_s + self._pause_s(), time.monotonic())
            time.sleep(max(due_s - time.monotonic(), 0.0))

    def __enter__(self) -> Self:
        """Plug it in, and begin an episode in which a person may drive."""
        self._thread.start()
        call = wire.EpisodeCall(time.monotonic_ns() & 0xFFFF, 0, "train", active=True)
        self._episodes.publish(convert.text_to(wire.encode_episode(call)))
        time.sleep(REST_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._gone = False  # plugged in again, and put down: the next one may arm
        self.let_go()
        self._done.set()
        self._thread.join()
        node = self._world.person.node
        node.destroy_publisher(self._joy)
        node.destroy_publisher(self._episodes)

    def let_go(self) -> None:
        """Let go of everything, long enough that a press counts afterwards."""
        self.held = False
        time.sleep(REST_S)

    def unplug(self) -> float:
        """Say nothing more from now on; returns now (monotonic)."""
        self._gone = True
        return time.monotonic()
