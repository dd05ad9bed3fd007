"""Before each start a person may have to put things in place: asked, waited for, answered."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.errors import RobotRLError
from robot_rl.geometry import pose
from robot_rl.ports import ResetPlan
from robot_rl.ros import topics
from robot_rl.ros.endpoints import subscribe
from robot_rl.ros.ports import RosReset
from robot_rl.ros.runtime import node_shell
from tests.support.probe import Probe
from tests.support.ros import new_domain, wait_for

pytestmark = pytest.mark.ros
HOLE = pose(np.array((0.5, 0.0, 0.0)))
PLAN = ResetPlan(pose(np.array((0.5, 0.0, 0.2))), {"hole": HOLE}, 0.01, held_in_tcp=HOLE)


class Waiting:
    """An actor's reset in a thread of its own, and the person's side of it."""

    def __init__(self, probe: Probe, shell: Any) -> None:
        self.probe, self.shell = probe, shell
        self.asked: list[str] = []
        subscribe(probe.node, topics.ACTOR_ASKS, lambda msg: self.asked.append(msg.data))
        self.reset = RosReset(shell)
        shell.spin_in_background()
        self.error: RobotRLError | None = None

    def begin(self, plan: ResetPlan = PLAN) -> threading.Thread:
        def work() -> None:
            try:
                self.reset(plan)
            except RobotRLError as error:
                self.error = error

        thread = threading.Thread(target=work)
        thread.start()
        wait_for(lambda: self.asked and self.asked[-1], 15.0, "the actor asks")
        return thread


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    domain = new_domain()
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    args = ["--ros-args", "-p", "sim_name:=''", "-p", "ask_reset:=true"]
    with node_shell("actor", args) as shell:
        probe = Probe(domain)
        yield Waiting(probe, shell)
        probe.close()
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_the_actor_says_what_is_missing_and_waits_for_a_persons_word(waiting: Waiting) -> None:
    early = waiting.probe.call(topics.ACTOR_READY)
    assert not early.success and "nothing was asked" in early.message
    thread = waiting.begin()
    assert waiting.asked[-1] == "the part in the gripper\nhole in its place\nhands out of the way"
    thread.join(0.5)
    assert thread.is_alive()  # nobody has said anything
    assert waiting.probe.call(topics.ACTOR_READY).success
    thread.join(3.0)
    assert not thread.is_alive() and waiting.error is None
    wait_for(lambda: waiting.asked[-1] == "", 15.0, "the question is taken back")
    assert not waiting.probe.call(topics.ACTOR_READY).success  # one word, one start


def test_a_run_that_ends_does_not_wait_for_anybody(waiting: Waiting) -> None:
    thread = waiting.begin()
    waiting.shell.stop()
    thread.join(3.0)
    assert not thread.is_alive() and waiting.error is not None


def test_a_task_may_say_itself_what_is_to_be_prepared(waiting: Waiting) -> None:
    thread = waiting.begin(replace(PLAN, ask="the nut back on its bolt"))
    assert waiting.asked[-1] == "the nut back on its bolt\nhands out of the way"
    assert waiting.probe.call(topics.ACTOR_READY).success
    thread.join(3.0)
    assert not thread.is_alive() and waiting.error is None


def test_with_nothing_to_prepare_a_person_is_asked_before_the_first_start_only(
    waiting: Waiting,
) -> None:
    plan = replace(PLAN, ask="")
    thread = waiting.begin(plan)
    assert waiting.asked[-1] == "hands out of the way"
    assert waiting.probe.call(topics.ACTOR_READY).success
    thread.join(15.0)
    assert not thread.is_alive()
    waiting.reset(plan)  # at once
    assert waiting.error is None
