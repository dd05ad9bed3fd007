"""The console's robot side in the whole graph: what it sees, what it may stop, who drives."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

import cv2
import numpy as np
import zmq

from robot_rl.errors import LinkError
from robot_rl.link.panel import STAMP, Answer, Panel, socket_address
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import publisher, serve, subscribe
from robot_rl.ros.graph import SimGraphConfig, sim_graph
from robot_rl.safety.advice import AT_THE_END
from robot_rl.tasks.common import VIEWS
from robot_rl.tasks.peg_insert import MOUTH_Z_M, PROTRUSION_M
from robot_rl.types import Driver
from tests.support.ros import World, wait_for, write_run

pytestmark = [pytest.mark.ros, pytest.mark.alone, pytest.mark.waits]
LEASE = "test"


class Page:
    """Plays the console's server, and the actor."""

    def __init__(self, world: World, run: Path) -> None:
        self.world, self._run, self._sequence = world, run, 0
        self._control = zmq.Context.instance().socket(zmq.PUSH)
        self._control.setsockopt(zmq.LINGER, 0)
        self._control.connect(socket_address(run, "control"))
        self._episode = publisher(world.probe.node, topics.OPERATOR_EPISODE)
        self.heard: list[tuple[float, bool]] = []
        subscribe(world.probe.node, topics.OPERATOR_JOY, self._on_joy)

    def _on_joy(self, msg: Any) -> None:
        self.heard.append((time.monotonic(), convert.joy_from(msg, 6)[0].driving))

    def ask(self, want: str, **details: Any) -> Answer:
        async def once() -> Answer:
            panel = Panel(socket_address(self._run, "view"))
            try:
                return await panel.ask(want, timeout_s=3.0, **details)
            finally:
                await panel.close()

        with ThreadPoolExecutor(1) as apart:  # a browser test may have left a loop in this thread
            return apart.submit(lambda: asyncio.run(once())).result()

    def picture(self, camera: str) -> Answer:
        """The newest picture, as soon as there is one."""
        found: list[Answer] = []

        def asked() -> int:
            found.append(self.ask("picture", camera=camera, after=-1))
            return len(found[-1][1])

        wait_for(asked, 15.0, f"a picture of {camera}")
        return found[-1]

    def begin(self) -> None:
        call = wire.EpisodeCall(1, 0, "train", active=True)
        self._episode.publish(convert.text_to(wire.encode_episode(call)))

    def say(self, *held: str) -> None:
        said = json.dumps({"axes": [0] * 6, "held": list(held)}).encode()
        self._control.send_multipart([STAMP.pack(time.monotonic()), said])

    def until(
        self, condition: Callable[[], Any], what: str, *held: str, silent: bool = False
    ) -> None:
        """Speak as a page with these keys (or not at all) and as an actor, until `condition`."""
        command_s = time.monotonic()

        def turn() -> Any:
            nonlocal command_s
            if not silent:
                self.say(*held)
            if time.monotonic() >= command_s:
                command_s += 0.1
                self._sequence += 1
                command = self.world.probe.command(LEASE, self._sequence, 0.0)
                driver = Driver.CORRECTION if "drive" in held else Driver.POLICY
                self.world.probe.send(replace(command, driver=driver))
            time.sleep(0.01)
            return condition()

        wait_for(turn, 15.0, lambda: f"{what}; gate: {self.world.probe.report()}")

    def take_over(self) -> None:
        """As a person does: everything at rest first; let go and press again if nothing happens.

        A machine that stalls us for 0.2 s has the key lost, which takes a new press, as it must.
        """
        for _ in range(5):
            rested_s = time.monotonic() + 0.6
            self.until(lambda t=rested_s: time.monotonic() > t and not self.driving(), "at rest")
            given_up_s = time.monotonic() + 2.0
            self.until(
                lambda t=given_up_s: self.driving() or time.monotonic() > t, "a key", "drive"
            )
            if self.driving():
                return
        pytest.fail(f"the key does not reach the graph; gate: {self.world.probe.report()}")

    def next_number(self) -> int:
        """For a command of the test's own."""
        self._sequence += 1
        return self._sequence

    def driving(self) -> bool:
        return bool(self.heard) and self.heard[-1][1]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Sim, gate, watchdog, operator=console, view; we are the actor and the console."""
    run = write_run(tmp_path_factory.mktemp("run"), operator="console", ros={"name": "sim"})
    config = SimGraphConfig(
        real_time_factor=1.0, with_actor=False, unattended=False, with_view=True
    )
    world = World(sim_graph(config, str(run)), run)
    try:
        made = Page(world, run)
        world.probe.wait_state()

        def answers() -> bool:
            try:
                view, _ = made.ask("view")
                return bool(view["gate"]) and "force_n" in view
            except LinkError:
                return False

        wait_for(answers, 30.0, "the view node answers")
        world.probe.settle()
        yield made
    finally:
        world.close()


def test_the_view_says_what_the_graph_does_and_draws_the_scene(page: Page) -> None:
    view, _ = page.ask("view")
    assert view["gate"]["mode"] == "hold" and view["stopped"] is False
    assert view["force_n"] >= 0.0 and view["speed_mm_s"] < 50.0
    head, raw = page.picture("video")
    rgb = cv2.imdecode(np.frombuffer(raw, np.uint8), cv2.IMREAD_COLOR)
    assert rgb.shape == (head["height"], head["width"], 3)
    assert rgb.shape == (480, 640, 3) and rgb.std() > 10.0  # a scene, not a grey wall
    drawn = [page.picture(view)[1] for view in VIEWS]
    assert len({bytes(picture) for picture in drawn}) == 3  # three views of it
    view, _ = page.ask("view")
    assert view["places"].keys() >= set(VIEWS) and len(view["tcp_in_base"]) == 7
    tip, hole = (np.array(view["goal"][key]) for key in ("tip_m", "position_m"))
    assert tip == pytest.approx(np.array(view["tcp_in_base"][:3]) - (0, 0, PROTRUSION_M), abs=1e-3)
    assert hole[2] == pytest.approx(MOUTH_Z_M, abs=1e-4) and tip[2] > hole[2]
    again, _ = page.ask("picture", camera="video", after=head["number"])
    assert again["number"] >= head["number"]
    for want, details in (("picture", {"camera": "sofa"}), ("fly", {}), ("command", {"verb": "x"})):
        with pytest.raises(LinkError):
            page.ask(want, **details)


def test_a_key_takes_over_and_a_page_that_dies_leaves_a_hold_that_waits(page: Page) -> None:
    probe = page.world.probe
    assert probe.arm(LEASE).granted
    page.begin()
    page.take_over()
    page.until(lambda: probe.report().mode == "run", "a person drives", "drive")
    assert page.ask("view")[0]["driving"] is True
    page.until(lambda: probe.report().waits, "the gate notices the silence", silent=True)
    assert probe.report().mode in ("pause", "hold")
    assert not probe.arm(LEASE, timeout_s=1.0).granted
    page.until(lambda: not page.driving(), "the key was let go")
    assert "arm" in page.ask("command", verb="go")[0]["said"]
    wait_for(lambda: not probe.report().waits, 15.0, "a person lets it go on")


def test_the_view_tells_that_the_tool_may_go_no_further(page: Page) -> None:
    probe = page.world.probe
    rested_s = time.monotonic() + 0.6
    page.until(lambda: time.monotonic() > rested_s, "hands off")
    assert probe.arm(LEASE).granted
    assert page.ask("view")[0]["clipped"] == ""
    sequence = page.next_number()
    probe.send(probe.command(LEASE, sequence, 1.0))  # a metre: out of the box, in one step
    wait_for(lambda: page.ask("view")[0]["clipped"] == AT_THE_END, 5.0, "the limit is told")
    page.ask("command", verb="hold")
    page.ask("command", verb="go")
    wait_for(lambda: not page.ask("view")[0]["clipped"], 5.0, "and is not told for ever")


def test_the_pads_own_hold_button_holds(page: Page) -> None:
    probe = page.world.probe
    rested_s = time.monotonic() + 0.6
    page.until(lambda: time.monotonic() > rested_s, "hands off")
    assert probe.arm(LEASE).granted
    page.until(lambda: probe.report().waits, "the gate holds", "hold")
    assert probe.report().mode == "hold"
    page.until(lambda: not page.driving(), "let go")
    page.ask("command", verb="go")
    wait_for(lambda: not probe.report().waits, 15.0, "goes on")


def test_hold_from_the_page_lasts_until_go(page: Page) -> None:
    probe = page.world.probe
    page.until(lambda: not page.driving(), "hands off")
    assert probe.arm(LEASE).granted
    assert page.ask("command", verb="hold")[0]["said"].startswith("hold")
    wait_for(lambda: probe.report().mode == "hold" and probe.report().waits, 15.0, "holds")
    assert page.ask("view")[0]["gate"]["waits"] == "person"
    page.ask("command", verb="go")
    wait_for(lambda: not probe.report().waits, 15.0, "goes on")
    assert probe.report().mode == "hold"


def test_what_the_robot_asks_and_the_answer_travel_between_page_and_actor(page: Page) -> None:
    node, answers = page.world.probe.node, []

    def go() -> str:
        answers.append("go")
        return "the robot goes to its start"

    asks = publisher(node, topics.ACTOR_ASKS)
    service = serve(node, topics.ACTOR_READY, go)
    try:
        for text in ("place the peg in the fixture", ""):
            asks.publish(convert.text_to(text))
            wait_for(lambda t=text: page.ask("view")[0]["asks"] == t, 15.0, f"asks '{text}'")
        assert "start" in page.ask("command", verb="ready")[0]["said"]
        assert answers == ["go"]
    finally:
        node.destroy_service(service)
        node.destroy_publisher(asks)


def test_the_page_hears_why_its_keys_do_not_drive(page: Page) -> None:
    def problem() -> str:
        return page.ask("view")[0]["device_problem"]

    page.until(lambda: page.heard, "somebody listens", "drive")
    page.begin()  # with a key down
    page.until(lambda: "let go of everything" in problem(), "a key is down", "drive")
    page.until(lambda: problem() == "", "nothing is held")
