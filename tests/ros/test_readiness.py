"""The readiness list of a running graph, on a double: what fails, what a person accepts of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from robot_rl.config.run_folder import PREFLIGHT
from robot_rl.errors import LinkError
from robot_rl.link.panel import Panel, socket_address
from robot_rl.ros import topics, wire
from robot_rl.ros.endpoints import subscribe
from robot_rl.ros.readiness import Item
from tests.support.rehearsal import rehearsal
from tests.support.ros import World, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.gl, pytest.mark.alone]

ENABLING = "enabling_device/pressed"  # held half-way: True; let go, or pressed hard: False
WORDS = [
    "task=reach",
    "task.images=[wrist]",
    "task.image_size=32",
    "cameras.wrist.width=64",
    "cameras.wrist.height=64",
    "ros.with_view=true",
    "ros.accept=[wrench]",
    f"driver.ready=[{{topic: {ENABLING}, type: std_msgs/msg/Bool}}]",
]
AT_START = [
    {"name": "wrench", "status": "fail", "text": "wrench at 40 Hz", "fix": "raise its rate"},
    {"name": "disk", "status": "warn", "text": "3 GiB free", "fix": "a day needs 20 GiB"},
    {"name": "units", "status": "ok", "text": "metres", "fix": ""},
]


class Graph:
    """A rehearsal with one camera and an enabling device, after a preflight with findings."""

    def __init__(self, world: World) -> None:
        self.world, self.probe = world, world.probe
        self._heard: list[Any] = []
        self._clients = {
            name: self.probe.node.create_client(SetParameters, f"{name}/set_parameters")
            for name in ("sim", "arm")
        }
        subscribe(self.probe.node, topics.ARM_READINESS, self._heard.append)

    def listed(self) -> wire.ReadinessReport:
        """The newest list."""
        return wire.decode_readiness(self._heard[-1].data)

    def items(self) -> dict[str, Item]:
        return {item.name: item for item in self.listed().items} if self._heard else {}

    def until(self, name: str, status: str) -> Item:
        """Wait until an item has this status."""
        return wait_for(
            lambda: (i := self.items().get(name)) is not None and i.status == status and i,
            30.0,
            lambda: f"{name} {status}; {self.items()}",
        )

    def green(self) -> dict[str, Item]:
        """As a person at the robot: resume, acknowledge, until nothing is left that fails."""

        def found() -> dict[str, Item]:
            items = self.items() if self.probe.tend() else {}
            return {} if any(i.status == "fail" for i in items.values()) else items

        return wait_for(found, 60.0, lambda: f"a green list; {self.items()}, {self.probe.report()}")

    def set(self, node: str, name: str, value: Any) -> str:
        """Set a parameter; returns why it was refused."""
        request = SetParameters.Request()
        request.parameters = [Parameter(name, value=value).to_parameter_msg()]
        client = self._clients[node]
        wait_for(client.service_is_ready, 20.0, f"the parameters of {node}")
        future = client.call_async(request)
        wait_for(future.done, 10.0, f"{node} answers")
        answer = future.result()
        assert answer is not None
        return "" if answer.results[0].successful else answer.results[0].reason

    def accept(self, *names: str) -> str:
        """As `ros2 param set /arm accept ...` does."""
        return self.set("arm", "accept", list(names) or [""])

    def fault(self, **faults: Any) -> None:
        assert self.set("sim", "fault", json.dumps(faults) if faults else "") == ""

    def arms(self, lease: str) -> None:
        """A person does what is needed, then it arms."""

        def armed() -> bool:
            self.probe.settle()
            return self.probe.arm(lease, timeout_s=1.0).granted

        wait_for(armed, 40.0, lambda: f"it arms; {self.probe.report()}, {self.items()}")

    def refused(self, lease: str) -> str:
        """Why it does not arm; "granted" when it does."""
        answer = self.probe.arm(lease, timeout_s=0.5)
        return "granted" if answer.granted else answer.reason

    def until_refused(self, lease: str, why: str) -> None:
        """Wait until it is refused for this reason, and a person sees to any other."""

        def refused() -> bool:
            self.probe.tend()
            return why in self.refused(lease)

        wait_for(refused, 20.0, lambda: f"refused: {why}; {self.items()}")

    def page(self, want: str, **details: Any) -> Any:
        """Ask as the console does."""

        async def once() -> Any:
            panel = Panel(socket_address(self.world.run_dir, "view"))
            try:
                return (await panel.ask(want, timeout_s=5.0, **details))[0]
            finally:
                await panel.close()

        with ThreadPoolExecutor(1) as apart:
            return apart.submit(lambda: asyncio.run(once())).result()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    run = tmp_path_factory.mktemp("run")
    (run / PREFLIGHT).write_text(json.dumps(AT_START))
    with rehearsal(run, "ur5e_fzi", *WORDS) as world:
        world.probe.wait_state(simulated=False)
        yield Graph(world)


@pytest.fixture
def graph(running: Graph) -> Iterator[Graph]:
    """Green, and nobody drives."""
    running.fault()
    running.accept("wrench")
    running.green()
    running.probe.call(topics.GATE_RESUME)
    yield running
    running.probe.call(topics.GATE_HOLD)


def test_a_green_list_names_everything_that_is_looked_at(graph: Graph) -> None:
    found = graph.green()
    assert {ENABLING, "controllers", "gripper", "stop", "state", "camera wrist"} <= set(found)
    assert {i.status for i in found.values()} == {"ok", "accepted", "warn"}
    assert (found["wrench"].status, found["wrench"].text) == ("accepted", "wrench at 40 Hz")
    assert found["wrench"].fix.startswith("raise its rate; found before the start")
    assert found["disk"].status == "warn" and "units" not in found
    assert graph.listed().accept == ("wrench",)
    assert "accepted from the start (ros.accept): wrench" in audit(graph)
    graph.arms("green")


def audit(graph: Graph) -> str:
    return (graph.world.run_dir / "audit.log").read_text()


def test_it_does_not_arm_until_a_finding_of_the_start_is_accepted_again(graph: Graph) -> None:
    assert graph.accept() == ""
    graph.until("wrench", "fail")
    graph.until_refused("red", "wrench at 40 Hz")
    assert "no longer accepted: wrench" in audit(graph)
    assert graph.accept("wrench") == ""
    graph.until("wrench", "accepted")
    graph.arms("green again")


def test_a_dead_camera_is_named_and_a_person_accepts_it_at_the_page(graph: Graph) -> None:
    graph.arms("seeing")
    graph.fault(frozen_cameras=True)
    item = graph.until("camera wrist", "fail")
    assert "silent" in item.text and item.fix and not item.never
    graph.probe.wait_mode("protective_stop", 20.0)
    refused = graph.probe.call(topics.GATE_ACKNOWLEDGE)
    assert not refused.success and "camera wrist" in refused.message
    shown = wait_for(lambda: graph.page("view")["ready"], 20.0, "the page has the list")
    assert {"name": "camera wrist", "status": "fail"}.items() <= next(
        i for i in shown["items"] if i["name"] == "camera wrist"
    ).items()
    assert graph.page("accept", name="camera wrist", on=True)["said"] == "accepted: camera wrist"
    graph.until("camera wrist", "accepted")
    assert set(graph.listed().accept) == {"wrench", "camera wrist"}
    assert "while the graph runs (parameter accept): camera wrist, although:" in audit(graph)
    graph.arms("blind on one eye")
    graph.page("accept", name="camera wrist", on=False)
    graph.probe.wait_mode("protective_stop", 20.0)
    graph.fault()
    graph.until("camera wrist", "ok")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("stop", "nobody could stop the arm"),
        ("controllers", "moved and stopped"),
        ("state", "does not see"),
        (ENABLING, "own word"),
        ("camera wirst", "did you mean 'camera wrist'"),
    ],
)
def test_what_nobody_may_accept_is_refused_with_the_reason(
    graph: Graph, name: str, why: str
) -> None:
    before = graph.listed().accept
    assert why in graph.accept("wrench", name)
    with pytest.raises(LinkError, match=why):
        graph.page("accept", name=name, on=True)
    assert graph.listed().accept == before


def test_letting_go_of_the_enabling_device_is_a_protective_stop(graph: Graph) -> None:
    graph.arms("enabled")
    graph.fault(ready={ENABLING: False})
    item = graph.until(ENABLING, "fail")
    assert item.text == f"{ENABLING} says False"
    graph.probe.wait_mode("protective_stop", 20.0)
    assert "says False" in graph.probe.call(topics.GATE_ACKNOWLEDGE).message
    graph.fault()
    graph.until(ENABLING, "ok")
    assert graph.probe.report().mode == "protective_stop"  # type: ignore[union-attr]
    assert graph.refused("unasked") != "granted"
    graph.arms("enabled again")


def test_an_arm_that_the_gate_does_not_see_is_on_the_list(graph: Graph) -> None:
    graph.fault(drop=["wrench"])
    item = graph.until("state", "fail")
    assert "silent: wrench" in item.text and item.never
    graph.fault()
    graph.until("state", "ok")


def stopped(graph: Graph, change: Callable[[], object], status: str, says: str) -> None:
    change()
    assert says in graph.until("stop", status).text


def test_a_watchdog_that_says_nothing_is_a_stop_that_nobody_could_make(graph: Graph) -> None:
    graph.arms("watched")
    pid = graph.world.supervisor.pids()["watchdog"]
    try:
        stopped(graph, lambda: os.kill(pid, signal.SIGSTOP), "fail", "watchdog is silent")
        graph.probe.wait_mode("protective_stop", 20.0)
    finally:
        os.kill(pid, signal.SIGCONT)
    stopped(graph, lambda: None, "ok", "can stop the arm")
    graph.arms("watched again")


def test_controllers_that_are_switched_off_cannot_be_accepted(graph: Graph) -> None:
    graph.fault(inactive=["joint_state_broadcaster"])
    item = graph.until("controllers", "fail")
    assert "joint_state_broadcaster is inactive" in item.text and item.never
    assert "moved and stopped" in graph.accept("wrench", "controllers")
    graph.until_refused("no controllers", "is inactive")
