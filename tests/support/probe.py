"""A listener in the test's own process: records topics with their arrival time, calls services."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robot_rl.errors import LinkError
from robot_rl.geometry import pose
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import publisher, subscribe
from robot_rl.ros.runtime import prepare_environment
from robot_rl.ros.topics import Service, Topic
from robot_rl.types import Command, Driver, Pose
from tests.support.ros import wait_for

WATCHED = (
    topics.CURRENT_POSE,
    topics.TARGET_POSE,
    topics.TARGET_JOINTS,
    topics.CONTROLLER_STOPPED,
    topics.WATCHDOG_PROBLEM,
    topics.ARM_PROBLEM,
    topics.GATE_STATE,
    topics.GATE_REQUEST,
    topics.GATE_VERDICT,
    topics.GATE_HEARTBEAT,
    topics.CLOCK,
    topics.CLOCK_PACE,
    topics.DIAGNOSTICS,
    topics.JOINT_STATES,
)

TARGETS = (topics.TARGET_POSE, topics.TARGET_JOINTS)  # a gate sends one of the two
ON_DEMAND = ("gate/request", "gate/verdict", "arm/problem", *(t.name for t in TARGETS))
SELDOM = ("/diagnostics", "clock/pace")  # told once a second
SIMULATED = ("/clock", "controller/stopped")  # said at once in simulation only


class Probe:
    """One node in its own context; `heard[topic]` is a list of (wall_s, message)."""

    def __init__(self, domain_id: int, remaps: Mapping[str, str] | None = None) -> None:
        """remaps: our name -> the driver's."""
        prepare_environment()
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain_id)
        words = [w for ours, theirs in (remaps or {}).items() for w in ("-r", f"{ours}:={theirs}")]
        self.node = Node("probe", context=self._context, cli_args=["--ros-args", *words])
        self.heard: dict[str, list[tuple[float, Any]]] = {t.name: [] for t in WATCHED}
        for topic in WATCHED:
            subscribe(self.node, topic, self._recorder(topic.name))
        self.requests = publisher(self.node, topics.GATE_REQUEST)
        self._clients = {s.name: self.node.create_client(Trigger, s.name) for s in topics.SERVICES}
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._closing = False
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _recorder(self, name: str) -> Any:
        return lambda msg: self.heard[name].append((time.monotonic(), msg))

    def _spin(self) -> None:
        while not self._closing:
            try:
                self._executor.spin_once(timeout_sec=0.05)
            except Exception as error:  # a deaf probe would look like a dead graph
                self.failures.append(repr(error))

    def close(self) -> None:
        """Stop listening."""
        self._closing = True
        self._executor.wake()
        self._thread.join()
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)

    def newest(self, topic: Topic) -> Any:
        """Last message of a topic, or None."""
        heard = self.heard[topic.name]
        return heard[-1][1] if heard else None

    def report(self) -> wire.GateReport | None:
        """Newest gate/state."""
        msg = self.newest(topics.GATE_STATE)
        return wire.decode_report(msg.data) if msg else None

    def reports(self) -> list[tuple[float, wire.GateReport]]:
        """Every gate/state so far."""
        return [(t, wire.decode_report(m.data)) for t, m in list(self.heard["gate/state"])]

    def moves(self) -> list[Command]:
        """Every well-formed command on gate/request so far."""
        out = []
        for _, msg in list(self.heard["gate/request"]):
            try:
                request = wire.decode_request(msg.data)
            except LinkError:
                continue
            if isinstance(request, Command):
                out.append(request)
        return out

    def tcp(self) -> Pose:
        """Newest measured pose."""
        return convert.pose_from(self.newest(topics.CURRENT_POSE))

    def now_s(self) -> float:
        """Newest /clock; system time where there is none."""
        clock = self.newest(topics.CLOCK)
        return time.time() if clock is None else convert.from_stamp(clock.clock)

    def stopped(self) -> bool:
        """Newest controller/stopped."""
        msg = self.newest(topics.CONTROLLER_STOPPED)
        return bool(msg and msg.data)

    def problem(self) -> str:
        """Newest watchdog/problem."""
        msg = self.newest(topics.WATCHDOG_PROBLEM)
        return "the watchdog has said nothing" if msg is None else msg.data

    def diagnostics(self, node: str) -> dict[str, str]:
        """Newest key-values of a node on /diagnostics, and its message."""
        for _, msg in reversed(list(self.heard["/diagnostics"])):
            if msg.status[0].name == node:
                return {kv.key: kv.value for kv in msg.status[0].values} | {
                    "message": msg.status[0].message
                }
        return {}

    def wait_state(self, *, simulated: bool = True) -> None:
        """The graph is up: state, clock, gate; and at rest. simulated: there is a /clock."""
        without = (*ON_DEMAND, *SELDOM, *(() if simulated else SIMULATED))
        needed = [t for t in WATCHED if t.name not in without]

        def up() -> bool:
            return all(map(self.newest, needed)) and any(map(self.newest, TARGETS))

        silent = lambda: [t.name for t in (*needed, *TARGETS) if not self.newest(t)]  # noqa: E731
        wait_for(up, 30.0, lambda: f"the graph is up; nothing on {', '.join(silent())}")
        self.settle()

    def settle(self) -> None:
        """As a person before work: undo what a machine busy with starting has had stopped."""
        wait_for(self.tend, 40.0, lambda: f"a graph at rest; gate: {self.report()}")

    def tend(self) -> bool:
        """One step of what a person does at a stopped arm; True when nothing is left to do."""
        report = self.report()
        if self.stopped():
            self.call(topics.CONTROLLER_RESUME)
        elif report is None or report.mode == "protective_stop":
            self.call(topics.GATE_ACKNOWLEDGE)
        else:
            return True
        time.sleep(0.2)  # what the answer says has to arrive
        return False

    def wait_mode(self, mode: str, timeout_s: float = 5.0) -> wire.GateReport:
        """Wait until the gate reports `mode`."""
        found = wait_for(
            lambda: (r := self.report()) is not None and r.mode == mode and r,
            timeout_s,
            f"gate in mode {mode}; it is {self.report()}",
        )
        return found

    def call(self, service: Service, timeout_s: float = 10.0) -> Trigger.Response:
        """Call a Trigger service and wait for the answer."""
        client = self._clients[service.name]
        wait_for(client.service_is_ready, timeout_s, f"service {service.name}")
        future = client.call_async(Trigger.Request())
        wait_for(future.done, timeout_s, f"answer of {service.name}")
        return future.result()

    def send(self, request: Command | wire.ArmRequest) -> None:
        """Publish a well-formed request."""
        self.requests.publish(String(data=wire.encode_request(request)))

    def answers(self, lease: str, timeout_s: float) -> list[wire.ArmAnswer]:
        """Answers to arm requests of `lease`; waits for the next one."""
        count, deadline_s = len(self.heard["gate/verdict"]), time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and len(self.heard["gate/verdict"]) == count:
            time.sleep(0.005)
        got = [wire.decode_answer(m.data) for _, m in list(self.heard["gate/verdict"])]
        return [a for a in got if isinstance(a, wire.ArmAnswer) and a.lease == lease]

    def arm(self, lease: str, timeout_s: float = 8.0) -> wire.ArmAnswer:
        """Arm, asking again until granted or until it was refused for `timeout_s`.

        A gate that has just started may not know this probe yet: the first answer is waited for
        longer than that.
        """
        deadline_s, answer, answered = time.monotonic() + max(timeout_s, 15.0), None, False
        while time.monotonic() < deadline_s:
            count = len(self.heard["gate/verdict"])
            self.send(wire.ArmRequest(lease, self.now_s()))
            wait_until_s = time.monotonic() + 0.3
            while time.monotonic() < wait_until_s:
                for _, msg in list(self.heard["gate/verdict"])[count:]:
                    got = wire.decode_answer(msg.data)
                    if isinstance(got, wire.ArmAnswer) and got.lease == lease:
                        answer = got
                if answer is not None:
                    break
                time.sleep(0.005)
            if answer is not None and not answered:
                answered, deadline_s = True, time.monotonic() + timeout_s
            if answer is not None and answer.granted:
                return answer
        assert answer is not None, "the gate never answered"
        return answer

    def command(self, lease: str, sequence: int, dx_m: float) -> Command:
        """A command that moves `dx_m` along base x from where the arm is."""
        here = self.tcp()
        there = pose(here.position_m + np.array((dx_m, 0.0, 0.0)), here.quaternion_xyzw)
        return Command(sequence, self.now_s(), Driver.POLICY, lease, there)
