"""What the executor promises, with real endpoints in one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.ros import new_domain

pytest.importorskip("rclpy")
import rclpy
from rclpy.context import Context
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from std_msgs.msg import String, UInt64
from std_srvs.srv import Trigger

from robot_rl.ros import executor as executor_module
from robot_rl.ros.endpoints import publisher, subscribe
from robot_rl.ros.executor import Executor
from robot_rl.ros.topics import GATE_HEARTBEAT

pytestmark = pytest.mark.ros
DEPTH = 10


class World:
    """Two nodes: one that speaks, one with the executor; what failed in it is kept."""

    def __init__(self, context: Context) -> None:
        self.talker = Node("talker", context=context)
        self.node = Node("listener", context=context)
        self.failed: list[BaseException] = []
        self.stop = threading.Event()
        self.executor = Executor(self.node, self.stop.is_set, self.failed.append)
        self.context = context

    def hear(self, name: str, callback: Callable[..., None]) -> Callable[[str], None]:
        """Subscribe; returns what publishes to it, once the two have found each other."""
        self.node.create_subscription(String, name, callback, DEPTH)
        publisher = self.talker.create_publisher(String, name, DEPTH)
        self.until(lambda: publisher.get_subscription_count() > 0)
        return lambda text: publisher.publish(String(data=text))

    def until(self, done: Callable[[], bool]) -> None:
        """Spin until it is so."""
        end_s = time.monotonic() + 10.0
        while not done():
            assert time.monotonic() < end_s
            assert self.executor.spin(0.02)


@pytest.fixture
def world() -> Iterator[World]:
    context = Context()
    rclpy.init(context=context, domain_id=new_domain())
    made = World(context)
    yield made
    made.talker.destroy_node()
    made.node.destroy_node()
    context.try_shutdown()


def test_every_message_in_order_and_with_its_info(world: World) -> None:
    heard: list[str] = []
    infos: list[object] = []
    say = world.hear("plain", lambda msg: heard.append(msg.data))
    say_too = world.hear("informed", lambda msg, info: infos.append((msg.data, info)))
    for i in range(8):
        say(str(i))
    say_too("a")
    world.until(lambda: len(heard) == 8 and len(infos) == 1)
    assert heard == [str(i) for i in range(8)]
    ((text, info),) = infos
    assert text == "a" and info["source_timestamp"] > 0


def test_one_spin_drains_what_has_arrived(world: World) -> None:
    heard: list[str] = []
    say = world.hear("burst", lambda msg: heard.append(msg.data))
    for i in range(DEPTH):
        say(str(i))
    time.sleep(1.0)
    world.executor.spin(0.5)
    assert len(heard) == DEPTH


def test_what_a_callback_raises_is_told_and_the_next_one_runs(world: World) -> None:
    heard: list[str] = []

    def fail(msg: String) -> None:
        heard.append(msg.data)
        raise ValueError(msg.data)

    say = world.hear("bad", fail)
    say("a")
    say("b")
    world.until(lambda: len(heard) == 2)
    assert [str(e) for e in world.failed] == ["a", "b"]


def test_endpoints_made_later_are_served_too(world: World) -> None:
    world.executor.spin(0.01)
    heard: list[str] = []
    world.hear("late", lambda msg: heard.append(msg.data))("here")
    world.until(lambda: heard == ["here"])


def test_an_endpoint_made_by_another_thread_ends_the_wait(world: World) -> None:
    world.executor.spin(0.01)
    threading.Timer(0.2, lambda: world.node.create_subscription(String, "x", print, 1)).start()
    began_s = time.monotonic()
    world.executor.spin(5.0)
    assert time.monotonic() - began_s < 3.0


def test_a_qos_event_is_taken_and_ends_one_wait_not_all(world: World) -> None:
    """The watchdog listens to such events: the gate has come, or was killed."""
    alive: list[int] = []
    events = SubscriptionEventCallbacks(liveliness=lambda event: alive.append(event.alive_count))
    subscribe(world.node, GATE_HEARTBEAT, print, events)
    world.executor.spin(0.01)
    publisher(world.talker, GATE_HEARTBEAT).publish(UInt64())
    end_s, waits = time.monotonic() + 2.0, 0
    while time.monotonic() < end_s:
        assert world.executor.spin(0.1)
        waits += 1
    assert alive[:1] == [1] and waits < 50


def test_services_clients_and_timers(world: World) -> None:
    def answer(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = True, "yes"
        return response

    fired: list[float] = []
    world.node.create_service(Trigger, "ask", answer)
    world.node.create_timer(0.05, lambda: fired.append(time.monotonic()))
    client = world.node.create_client(Trigger, "ask")
    world.until(client.service_is_ready)
    future = client.call_async(Trigger.Request())
    world.until(lambda: future.done() and len(fired) >= 3)
    assert future.result().message == "yes"


def test_a_service_that_fails_is_told_and_others_go_on(world: World) -> None:
    def fail(_: Trigger.Request, __: Trigger.Response) -> Trigger.Response:
        raise ValueError("broken")

    world.node.create_service(Trigger, "broken", fail)
    client = world.node.create_client(Trigger, "broken")
    world.until(client.service_is_ready)
    client.call_async(Trigger.Request())
    world.until(lambda: bool(world.failed))
    heard: list[str] = []
    world.hear("after", lambda msg: heard.append(msg.data))("on")
    world.until(lambda: heard == ["on"])


def test_a_flood_does_not_hold_the_owner_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "DRAIN_LIMIT", 5)
    heard: list[str] = []

    def again(msg: String) -> None:
        heard.append(msg.data)
        say("more")

    say = world.hear("flood", again)
    say("first")
    world.until(lambda: len(heard) > 20)  # each spin returned


def test_wake_ends_a_wait_of_another_thread(world: World) -> None:
    world.executor.spin(0.01)
    threading.Timer(0.2, world.executor.wake).start()
    began_s = time.monotonic()
    assert world.executor.spin(5.0)
    assert time.monotonic() - began_s < 3.0


def test_it_says_when_ros_is_shut_down(world: World) -> None:
    world.executor.spin(0.01)
    world.context.try_shutdown()
    assert not world.executor.spin(0.1)


def test_a_shut_down_ends_the_wait(world: World) -> None:
    world.executor.spin(0.01)
    threading.Timer(0.2, world.context.try_shutdown).start()
    began_s = time.monotonic()
    assert not world.executor.spin(5.0)
    assert time.monotonic() - began_s < 3.0
