"""A gate node in this process beside a driver that the test plays: its clock can be set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import Bool, UInt64
from std_srvs.srv import Trigger

from robot_rl.bench.faults.gate_bench import DOWN, HOME, JOINTS
from robot_rl.geometry import pose
from robot_rl.ports import OperatorInput
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Newest, publisher
from robot_rl.ros.gate_node import GateNode
from robot_rl.ros.reader import StateReader
from robot_rl.ros.runtime import Shell, node_shell
from robot_rl.ros.topics import Service, Topic
from robot_rl.safety.limits import Limits
from robot_rl.safety.states import Mode
from robot_rl.types import Command, Driver, Outcome, Verdict
from tests.support.ros import new_domain

LOOK_S = 0.01  # wall; how often the gate is given its turn
TELL_S = 0.02  # wall; the driver and the person's device speak this often
SAID = (
    topics.JOINT_STATES, topics.CURRENT_POSE, topics.CURRENT_TWIST, topics.WRENCH,
    topics.OPERATOR_JOY, topics.WATCHDOG_PROBLEM, topics.CONTROLLER_STOPPED, topics.GATE_REQUEST,
)  # fmt: skip


@contextmanager
def peer(domain_id: int, name: str) -> Iterator[Node]:
    """A node in a context of its own."""
    context = Context()
    rclpy.init(context=context, domain_id=domain_id)
    node = Node(name, context=context)
    try:
        yield node
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)


class Alone:
    """The gate, and all that it hears: nothing goes on by itself, `run` lets time pass."""

    problem = ""  # of the watchdog

    def __init__(self, shell: Shell, node: Node, domain_id: int) -> None:
        self.shell, self.node, self.domain_id = shell, node, domain_id
        self.set_s = 0.0  # by how much the system's clock was set
        shell.now_s = self.now_s  # type: ignore[method-assign]
        self.gate = GateNode(shell, Limits(), StateReader(shell))
        self.says = {topic.name: publisher(node, topic) for topic in SAID}
        self.frame, self.driving, self.speaks = "base", False, True
        self.ahead_s: dict[str, float] = {}  # topic -> the stamps of its messages are wrong by this
        self._verdicts = Newest(node, topics.GATE_VERDICT)
        self.verdicts: list[Verdict | wire.ArmAnswer] = []
        self._told_s = self._watched_s = 0.0
        self._sequence = 0
        self._clients = {s.name: node.create_client(Trigger, s.name) for s in topics.SERVICES}
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)

    def now_s(self) -> float:
        """The system's clock, as everybody on this machine reads it."""
        return time.time() + self.set_s

    @property
    def mode(self) -> Mode:
        """Of the gate."""
        return self.gate.gate.mode

    @property
    def reason(self) -> str:
        """Why the gate stands."""
        return self.gate.gate.reason

    def tell(self, topic: Topic, message: Any) -> None:
        """Publish one message."""
        self.says[topic.name].publish(message)

    def state_messages(self) -> dict[Topic, Any]:
        """One reading of the arm, at rest."""
        names = [*self.shell.params["joint_names"], *self.shell.params["finger_joint_names"]]
        values = [*JOINTS.tolist(), 0.02, 0.02]
        at = lambda topic: self.now_s() + self.ahead_s.get(topic.name, 0.0)  # noqa: E731
        return {
            topics.JOINT_STATES: convert.joints_to(
                names, values, [0.0] * len(names), at(topics.JOINT_STATES)
            ),
            topics.CURRENT_POSE: convert.pose_to(
                pose(HOME, DOWN), at(topics.CURRENT_POSE), self.frame
            ),
            topics.CURRENT_TWIST: convert.twist_to(np.zeros(6), at(topics.CURRENT_TWIST), "base"),
            topics.WRENCH: convert.wrench_to(np.zeros(6), at(topics.WRENCH), "tcp"),
        }

    def _speak(self) -> None:
        """What the driver and the person's device say now and then."""
        if time.monotonic() > self._watched_s:
            self._watched_s = time.monotonic() + 0.5
            self.tell(topics.WATCHDOG_PROBLEM, convert.text_to(self.problem))
        if time.monotonic() < self._told_s or not self.speaks:
            return
        self._told_s = time.monotonic() + TELL_S
        for topic, message in self.state_messages().items():
            self.tell(topic, message)
        self.beat()

    def beat(self, ahead_s: float | None = None) -> None:
        """One heartbeat of the person's device."""
        ahead = self.ahead_s.get(topics.OPERATOR_JOY.name, 0.0) if ahead_s is None else ahead_s
        said = OperatorInput(self.driving, np.zeros(7, np.float32), stamp_s=self.now_s() + ahead)
        self.tell(topics.OPERATOR_JOY, convert.joy_to(said, 0))

    def turn(self) -> None:
        """Everybody's turn, once."""
        self._speak()
        self.shell.spin(LOOK_S)
        self.gate.turn()
        self._executor.spin_once(timeout_sec=0.0)
        for msg in self._verdicts.arrived():
            self.verdicts.append(wire.decode_answer(msg.data))

    def run(self, until: Callable[[], Any] | float, within_s: float = 5.0) -> Any:
        """Let time pass: so many seconds, or until something is true."""
        wait_s = until if isinstance(until, float) else within_s
        deadline_s = time.monotonic() + wait_s
        while time.monotonic() < deadline_s:
            self.turn()
            if callable(until) and (found := until()):
                return found
        if callable(until):
            pytest.fail(f"not within {within_s} s; {self.mode}: {self.reason}")
        return None

    def arm(self, lease: str = "actor", within_s: float = 5.0) -> str:
        """Ask for the right to drive until it is granted; why not, if it never is within that."""
        deadline_s, refusal = time.monotonic() + within_s, "no answer"
        while time.monotonic() < deadline_s:
            count = len(self.verdicts)
            self._send(wire.ArmRequest(lease, self.now_s()))
            ends_s = time.monotonic() + 0.1
            while time.monotonic() < ends_s and len(self.verdicts) == count:
                self.turn()
            for answer in self.verdicts[count:]:
                if isinstance(answer, wire.ArmAnswer):
                    if answer.granted:
                        return ""
                    refusal = answer.reason
        return refusal

    def move(self, lease: str = "actor", driver: Driver = Driver.POLICY) -> None:
        """Ask for a small motion; the answer comes into `verdicts`."""
        self._sequence += 1
        there = pose(HOME + np.array((0.002, 0.0, 0.0)), DOWN)
        self._send(Command(self._sequence, self.now_s(), driver, lease, there))

    def drive(self, for_s: float, driver: Driver = Driver.POLICY) -> list[Verdict]:
        """Ask for motion ten times a second; the verdicts meanwhile."""
        count, ends_s = len(self.verdicts), time.monotonic() + for_s
        while time.monotonic() < ends_s:
            self.move(driver=driver)
            self.run(0.1)
        return [v for v in self.verdicts[count:] if isinstance(v, Verdict)]

    def _send(self, request: Command | wire.ArmRequest) -> None:
        self.tell(topics.GATE_REQUEST, convert.text_to(wire.encode_request(request)))

    def call(self, service: Service) -> Trigger.Response:
        """Call a service of the gate; its answer."""
        client = self._clients[service.name]
        self.run(client.service_is_ready)
        future = client.call_async(Trigger.Request())
        self.run(future.done)
        return future.result()

    def calm(self) -> None:
        """As a person: a gate that holds, and whom anybody may arm."""
        self.set_s, self.frame, self.driving, self.speaks = 0.0, "base", False, True
        self.problem = ""
        self.ahead_s.clear()
        self.tell(topics.CONTROLLER_STOPPED, Bool(data=False))
        self.run(0.3)
        if self.mode is Mode.PROTECTIVE_STOP:
            assert self.call(topics.GATE_ACKNOWLEDGE).success
        self.call(topics.GATE_HOLD)
        self.call(topics.GATE_RESUME)
        self.run(0.25)  # what is asked sooner after a hold counts as asked before it


def passed(verdicts: Sequence[Verdict]) -> int:
    """How many let the robot move."""
    return sum(v.outcome is not Outcome.HOLD for v in verdicts)


@contextmanager
def gate_alone(words: Sequence[str] = ()) -> Iterator[Alone]:
    """A gate that has a state and a watchdog."""
    import os

    domain_id = new_domain()
    before = os.environ.get("ROS_DOMAIN_ID")
    os.environ["ROS_DOMAIN_ID"] = str(domain_id)
    try:
        with node_shell("gate", ["--ros-args", *words]) as shell, peer(domain_id, "driver") as node:
            alone = Alone(shell, node, domain_id)
            alone.run(lambda: not alone.gate._blind, 10.0)
            yield alone
    finally:
        os.environ.pop("ROS_DOMAIN_ID")
        if before is not None:
            os.environ["ROS_DOMAIN_ID"] = before


def heartbeat() -> UInt64:
    """One beat of somebody else."""
    return UInt64(data=1)
