"""A person at a double, as a program: for benchmarks and rehearsals, never at a real arm.

It does what a person does at an arm that waits (resume, acknowledge, prepare the scene), holds a
twist device, or drives the arm itself as an actor would. It reaches the arm through the topics and
services of the graph only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from robot_rl.control.actions import JointActions
from robot_rl.errors import LinkError, RobotRLError
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Caller, Newest, message_type, publisher
from robot_rl.ros.topics import Service, Topic
from robot_rl.types import Command, Driver, Pose, RobotState

F64 = NDArray[np.float64]

ANSWER_S = 0.5  # wall; between two things that the person does
LETS_GO_S = 0.3  # after the start of an episode: a device that is held before does not drive
GAIN_1_S, FASTEST_M_S = 3.0, 0.2  # of the hand that steers
TWIST = Topic(
    "teleop/twist", "geometry_msgs/msg/TwistStamped", "stream", "person", ("operator",), 50, "base",
    "what the hand asks for",
)  # fmt: skip
ENABLE = Topic(
    "teleop/enable", "std_msgs/msg/Bool", "stream", "person", ("operator",), 50, "-",
    "whether the device is held",
)  # fmt: skip
HEARD = (
    topics.CURRENT_POSE,
    topics.JOINT_STATES,
    topics.GATE_STATE,
    topics.CONTROLLER_STOPPED,
    topics.ARM_PROBLEM,
    topics.WATCHDOG_PROBLEM,
    topics.ACTOR_ASKS,
    topics.OPERATOR_EPISODE,
)


def target_of(node: Node) -> Callable[[], F64 | None]:
    """Where the double's object `target` is, as a goal of a `Person`: its truth, which is tracked
    for the person only."""
    newest = Newest(node, topics.OBJECT.named(object="target"))

    def where() -> F64 | None:
        message = newest.read()
        return None if message is None else convert.pose_from(message).position_m

    return where


def look_after(
    callers: Mapping[Service, Caller],
    report: wire.GateReport | None,
    *,
    stopped: bool,
    asked: bool,
) -> None:
    """Do what a person does at an arm that waits: resume, acknowledge, prepare the scene.

    What a real person has stopped, only a real person acknowledges.

    Args:
        report: the gate's newest, None before the first.
        stopped: the controller is; asked: the actor asks whether the scene is in order.
    """
    if stopped:
        callers[topics.CONTROLLER_RESUME].poll()
    elif report is not None and report.mode == "protective_stop":
        callers[topics.GATE_CLEAR].poll()
    elif report is not None and report.waits:
        callers[topics.GATE_RESUME].poll()
    if asked:
        callers[topics.ACTOR_READY].poll()


class Person:
    """Call `turn` about 50 times a second. One thread.

    Args:
        goal: where the hand steers to, in base; None = nowhere.
        actions: of the run, when it drives the arm as an actor would; None = they move the TCP.
        now_s: the time of day, for stamps.
    """

    def __init__(
        self,
        node: Node,
        goal: Callable[[], F64 | None] = lambda: None,
        actions: JointActions | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.node, self._goal, self._actions, self._now_s = node, goal, actions, now_s
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._newest = {topic.name: Newest(node, topic) for topic in HEARD}
        self._callers = {s: Caller(node, s.name, 1.0) for s in topics.SERVICES}
        self._requests = publisher(node, topics.GATE_REQUEST)
        self._verdicts = Newest(node, topics.GATE_VERDICT)
        self._twist, self._enable = publisher(node, TWIST), publisher(node, ENABLE)
        self._sequence = 0
        self._answer_s = 0.0
        self._begun_s = time.monotonic()

    # --- what the person sees --------------------------------------------------------------------

    def newest(self, topic: Topic) -> Any:
        """The newest message of a topic, or None."""
        return self._newest[topic.name].read()

    def tcp(self) -> Pose:
        """Measured pose of the TCP. Raises `LinkError` before the first."""
        message = self.newest(topics.CURRENT_POSE)
        if message is None:
            raise LinkError("nobody tells the pose of the TCP")
        return convert.pose_from(message)

    def joint_speed_rad_s(self, joints: int) -> float:
        """Of the fastest of the first `joints` joints, as the driver tells it."""
        message = self.newest(topics.JOINT_STATES)
        return max(abs(value) for value in message.velocity[:joints])

    def mode(self) -> str:
        """The gate's mode, "" before the first report."""
        message = self.newest(topics.GATE_STATE)
        return "" if message is None else wire.decode_report(message.data).mode

    def why_not(self) -> str:
        """What keeps the arm from moving, as the nodes tell it; "" when nothing does."""
        for topic in (topics.ARM_PROBLEM, topics.WATCHDOG_PROBLEM):
            message = self.newest(topic)
            if message is None:
                return f"{topic.name} is silent"
            if message.data:
                return str(message.data)
        stopped = self.newest(topics.CONTROLLER_STOPPED)
        if stopped is not None and stopped.data:
            return "the controller is stopped"
        return "" if self.mode() not in ("", "protective_stop") else f"gate: {self.mode()}"

    # --- what the person does --------------------------------------------------------------------

    def turn(self, wait_s: float = 0.0) -> None:
        """Hear answers of services, look after the arm, steer."""
        self._executor.spin_once(timeout_sec=wait_s)
        wall_s = time.monotonic()
        if wall_s > self._answer_s:
            self._answer_s = wall_s + ANSWER_S
            self._look_after()
        self._steer(wall_s)

    def _look_after(self) -> None:
        """What a person does at an arm that waits."""
        message = self.newest(topics.GATE_STATE)
        report = wire.decode_report(message.data) if message is not None else None
        stopped, asks = self.newest(topics.CONTROLLER_STOPPED), self.newest(topics.ACTOR_ASKS)
        look_after(
            self._callers,
            report,
            stopped=stopped is not None and stopped.data,
            asked=asks is not None and bool(asks.data),
        )

    def _steer(self, wall_s: float) -> None:
        """Hold the device during an episode, and push towards the goal."""
        call = self.newest(topics.OPERATOR_EPISODE)
        begun = call is not None and wire.decode_episode(call.data).active
        self._begun_s = self._begun_s if begun else wall_s
        active, goal_m = wall_s > self._begun_s + LETS_GO_S, self._goal()
        speed_m_s = np.zeros(3)
        if active and goal_m is not None and self.newest(topics.CURRENT_POSE) is not None:
            way_m = goal_m - self.tcp().position_m
            speed_m_s = np.clip(GAIN_1_S * way_m, -FASTEST_M_S, FASTEST_M_S)
        self._enable.publish(message_type(ENABLE.type)(data=active))
        twist = np.concatenate((speed_m_s, np.zeros(3)))
        self._twist.publish(convert.twist_to(twist, self._now_s(), TWIST.frame))

    def wait_until(self, done: Callable[[], Any], timeout_s: float, what: str) -> None:
        """Do what a person does until `done()`.

        Raises:
            RobotRLError: not within the time.
        """
        give_up_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > give_up_s:
                raise RobotRLError(
                    f"{what}: not within {timeout_s:.0f} s",
                    expected=what,
                    got=self.why_not() or f"gate: {self.mode()}",
                    fix="logs/*.log in the run folder",
                )
            self.turn(0.02)

    # --- as an actor would -----------------------------------------------------------------------

    def arm(self, lease: str, timeout_s: float = 20.0) -> None:
        """Ask for the right to drive until it is granted. Raises `RobotRLError`."""
        again_s = [0.0]

        def granted() -> bool:
            if time.monotonic() >= again_s[0]:
                again_s[0] = time.monotonic() + 0.3
                self._send(wire.ArmRequest(lease, self._now_s()))
            answers = [wire.decode_answer(m.data) for m in self._verdicts.arrived()]
            mine = [a for a in answers if isinstance(a, wire.ArmAnswer) and a.lease == lease]
            return any(answer.granted for answer in mine)

        self.wait_until(granted, timeout_s, f"the gate arms {lease}")

    def ask(self, lease: str, target: Pose, driver: Driver = Driver.POLICY) -> None:
        """Ask for one motion of the TCP, with the joints where the run's actions move these."""
        self._sequence += 1
        joints_rad = self._joints_at(target) if self._actions is not None else None
        who = (self._sequence, self._now_s(), driver, lease)
        self._send(Command(*who, target, None, joints_rad))

    def _joints_at(self, target: Pose) -> F64 | None:
        """Where the joints go so that the TCP goes there, one step ahead."""
        assert self._actions is not None
        message, names = self.newest(topics.JOINT_STATES), self._actions.joint_names
        q, zero = convert.positions_from(message, names), np.zeros(6)
        state = RobotState(self._now_s(), q, 0.0 * q, self.tcp(), zero, zero, 0.0)
        return self._actions.towards(target, state).joints_rad

    def _send(self, request: Command | wire.ArmRequest) -> None:
        self._requests.publish(convert.text_to(wire.encode_request(request)))
