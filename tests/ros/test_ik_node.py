"""The node `ik` alone, beside a driver, a gate and a clock that this test plays: what it sends."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from std_msgs.msg import Bool, String

from robot_rl.geometry import pose
from robot_rl.robots import Ur5e
from robot_rl.robots.driver import ArmDriver, JointDriver
from robot_rl.robots.ik import JointStep
from robot_rl.ros import convert, ik_node, topics
from robot_rl.ros.census import UNKNOWN
from robot_rl.ros.joint_motion import STEADY_S
from robot_rl.ros.watches import Joints

pytestmark = pytest.mark.ros

ROBOT = Ur5e()
HOME = np.array(ROBOT.home_rad)
ZERO = np.zeros(6)
SPEED = 0.3  # rad/s of the pretended solver
PERIOD_S = 0.008
TARGET = topics.JOINT_TARGET.name


class Turning:
    """Turns the first joint at `SPEED`, or towards a joint target; brakes within five steps."""

    def forward(self, position_rad: Any, velocity_rad_s: Any) -> Any:
        """A TCP that tells the first joint."""
        return pose((position_rad[0], 0.0, 0.0)), np.zeros(6)

    def step(self, position_rad: Any, velocity_rad_s: Any, target: Any, dt_s: float) -> JointStep:
        """At `SPEED`."""
        way = target - position_rad if isinstance(target, np.ndarray) else np.eye(6)[0]
        speed = np.clip(way / dt_s, -SPEED, SPEED)
        return JointStep(position_rad + dt_s * speed, speed, 1.0, 0.0, "")

    def brake(self, position_rad: Any, velocity_rad_s: Any, dt_s: float) -> JointStep:
        """A fifth slower."""
        slower = np.sign(velocity_rad_s) * np.maximum(np.abs(velocity_rad_s) - SPEED / 5, 0.0)
        return JointStep(position_rad + dt_s * slower, slower, 0.0, 0.0, "")


class Inbox:
    """Stands in for `Newest`."""

    def __init__(self, topic: Any, waiting: list[Any]) -> None:
        self.topic, self._waiting, self.value = topic, waiting, None

    def arrived(self) -> Any:
        """What the test has put there."""
        while self._waiting:
            self.value = self._waiting.pop(0)
            yield self.value

    def read(self) -> Any:
        """The newest of it."""
        for _ in self.arrived():
            pass
        return self.value


class Bench:
    """An `IkNode` whose topics are lists and whose time is ours.

    follows: whether the arm goes where it is commanded.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, kind: str, *, vendor: bool = False, of_joints: bool = False
    ) -> None:
        self.now_s = 100.0
        self.waiting: dict[str, list[Any]] = defaultdict(list)
        self.sent: dict[str, list[Any]] = defaultdict(list)
        self.q, self.follows = HOME.copy(), True
        self.publishers: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        self._replace(patch)
        node = SimpleNamespace(
            get_name=lambda: "ik",
            resolve_topic_name=lambda name: f"/{name}",
            get_publishers_info_by_topic=lambda name: [
                SimpleNamespace(node_name=who, endpoint_gid=list(gid))
                for who, gid in self.publishers[name]
            ],
        )
        source = SimpleNamespace(saw=lambda *_: None)
        told = SimpleNamespace(
            source=lambda _: source, set=lambda *_: None, warn=lambda _: None, error=lambda _: None
        )
        shell: Any = SimpleNamespace(
            params={"base_frame": "base"}, node=node, diagnostics=told, now_s=lambda: self.now_s
        )
        driver = ArmDriver(title="a vendor's" if vendor else "", joints=JointDriver(kind=kind))
        self.kind, self.of_joints = kind, of_joints
        self.ik = ik_node.IkNode(shell, ROBOT, driver, Turning(), of_joints=of_joints)
        if vendor:
            self.arm_says("")

    def _replace(self, patch: pytest.MonkeyPatch) -> None:
        """Topics and time of the node's module."""
        waiting, sent = self.waiting, self.sent
        clock = {"monotonic": lambda: self.now_s, "perf_counter": lambda: 0.0}
        clock["process_time"] = clock["perf_counter"]
        patch.setattr(ik_node, "time", SimpleNamespace(**clock))
        patch.setattr(ik_node, "Newest", lambda _, topic: Inbox(topic, waiting[topic.name]))
        patch.setattr(
            ik_node,
            "publisher",
            lambda _, topic: SimpleNamespace(publish=sent[topic.name].append),
        )

    # --- what it hears ---------------------------------------------------------------------------

    def joints(self, position_rad: Any) -> None:
        """Somebody tells the joints."""
        message = convert.joints_to(ROBOT.joint_names, position_rad, ZERO.tolist(), self.now_s)
        self.waiting["joint_states"].append(message)

    def target(self, joints_rad: Any = None) -> None:
        """The gate's target."""
        if self.of_joints:
            message = convert.joints_to(ROBOT.joint_names, joints_rad, (), self.now_s)
            self.waiting["target_joints"].append(message)
        else:
            away = convert.pose_to(pose((1.0, 0.0, 0.0)), self.now_s, "base")
            self.waiting["target_pose"].append(away)

    def arm_says(self, problem: str) -> None:
        """The arm node's problem."""
        self.waiting["arm/problem"].append(String(data=problem))

    # --- what it sends ---------------------------------------------------------------------------

    @property
    def commands(self) -> list[np.ndarray]:
        """Joint targets so far."""
        if self.kind == "trajectory":
            return [convert.trajectory_from(m, ROBOT.joint_names)[0] for m in self.sent[TARGET]]
        return [convert.values_from(m, 6) for m in self.sent[TARGET]]

    @property
    def problem(self) -> str:
        """Newest `ik/problem`."""
        return self.sent["ik/problem"][-1].data

    # --- time ------------------------------------------------------------------------------------

    def turn(self, says: Callable[[], Any] | None = None) -> list[np.ndarray]:
        """One period with a reading of the arm (says: with what is told instead); what was sent."""
        self.now_s += PERIOD_S
        self.joints(self.q) if says is None else says()
        count = len(self.commands)
        self.ik.tick()
        new = self.commands[count:]
        if new and self.follows:
            self.q = self.q + new[-1] * PERIOD_S if self.kind == "velocity" else new[-1].copy()
        return new

    def settle(self, seconds: float = 2 * STEADY_S) -> None:
        """Turns without a target."""
        for _ in range(round(seconds / PERIOD_S)):
            self.turn()

    def moving(self) -> None:
        """It follows the gate's target."""
        self.settle()
        for _ in range(20):
            self.target()
            self.turn()
        assert self.problem == ""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """bench("position") makes one."""
    return partial(Bench, monkeypatch)


@pytest.mark.parametrize("kind", ["position", "velocity", "trajectory"])
def test_joint_state_publisher_brakes_the_arm_and_moves_it_nowhere(bench: Any, kind: str) -> None:
    """It says zero, with the same names and fresh stamps, ten times a second."""
    b = bench(kind)
    b.moving()
    before = b.q.copy()
    poses = len(b.sent["current_pose"])
    for i in range(125):
        b.target()
        b.turn((lambda: b.joints(ZERO)) if i % 12 == 0 else None)
        if i == 1:
            assert "jumped" in b.problem and "joint_states" in b.problem
        assert np.abs(b.q - before).max() < 0.02, "it braked from where it was commanded"
    assert len(b.commands[-1]) == 6 and "jumped" in b.problem
    told_m = [message.pose.position.x for message in b.sent["current_pose"][poses:]]
    assert max(abs(x - before[0]) for x in told_m) < 0.02, "nobody is told a pose at zero, either"
    b.settle()
    b.target()
    b.turn()
    assert b.problem == "" and np.abs(b.q - before).max() < 0.02


def test_a_gate_that_comes_back_without_its_name_is_the_gate(bench: Any) -> None:
    """So DDS has it after the process stood still for longer than the lease."""
    b = bench("position")
    targets = b.publishers["/target_pose"]
    targets[:] = [("gate", b"gate's")]
    b.moving()
    targets[:] = [(UNKNOWN, b"gate's")]
    b.settle()
    b.moving()
    for stranger in ([(UNKNOWN, b"another's")], [("gate", b"gate's"), (UNKNOWN, b"another's")]):
        targets[:] = stranger
        b.settle()
        assert b.problem == f"{UNKNOWN} publishes target_pose, too"
    targets[:] = [("script", b"gate's")]
    b.settle()
    assert b.problem == "script publishes target_pose, too"


@pytest.mark.parametrize("kind", ["position", "velocity"])
def test_the_last_command_of_a_node_that_ends_is_to_stay(bench: Any, kind: str) -> None:
    """It hangs behind, so that what was sent last holds a correction; then it is told to end."""
    b = bench(kind)
    b.settle()
    b.follows = False
    for _ in range(20):
        b.target()
        b.turn()
    b.ik._motion._velocity_rad_s = np.zeros(6)  # at the target: nothing to brake
    b.ik.come_to_rest(SimpleNamespace(sleep=lambda: None))
    if kind == "velocity":
        assert (b.commands[-1] == 0.0).all() and (b.commands[-2] != 0.0).any()
    else:
        np.testing.assert_array_equal(b.commands[-1], b.ik._motion._position_rad)


def test_to_stay_is_sent_at_once_and_then_now_and_then(bench: Any) -> None:
    b = bench("velocity")
    b.moving()
    count = len(b.commands)
    b.settle(1.0)
    assert (b.commands[-1] == 0.0).all()
    assert len(b.commands) - count < 60  # of 125 turns


def test_a_problem_of_ours_that_comes_back_is_no_reason_to_believe_new_readings(
    bench: Any,
) -> None:
    """Beside a vendor's driver `ik/problem` makes an `arm/problem`, which means: off."""
    b = bench("position", vendor=True)
    b.moving()
    before = b.q.copy()
    for _ in range(500):  # somebody says zero, alone
        b.turn(lambda: b.joints(ZERO))
        b.arm_says(f"ik: {b.problem}; home failed: long ago" if b.problem else "")
        b.target()
    assert "jumped" in b.problem
    assert np.abs(b.commands[-1] - before).max() < 0.02
    b.arm_says("controller scaled_joint_trajectory_controller is inactive")
    b.q = HOME + 0.5  # a person has moved the arm by hand
    b.settle()
    assert b.problem == ""
    b.arm_says("")
    b.target()
    assert np.abs(b.turn()[-1] - b.q).max() < 0.02


def test_the_arm_node_passes_our_problem_on_with_our_name_before_it() -> None:
    """What the test before takes for granted of `watches.Joints`."""
    item = Joints.__new__(Joints)
    said: Any = SimpleNamespace(read=lambda: String(data="the joints jumped"), silent_s=0.0)
    item._problem = said
    assert item.finding().text.startswith(ik_node.OURS)


def test_a_stop_of_the_controller_makes_it_look_where_the_arm_is(bench: Any) -> None:
    b = bench("position")
    b.moving()
    b.waiting["controller/stopped"].append(Bool(data=True))
    b.settle(0.5)
    b.q = HOME + 0.5
    b.settle()
    b.waiting["controller/stopped"].append(Bool(data=False))
    b.target()
    assert np.abs(b.turn()[-1] - b.q).max() < 0.02 and b.problem == ""


def at_pi(by_rad: float = 0.0) -> np.ndarray:
    """Home with the last joint beside pi, as a driver says it that tells within (-pi, pi]."""
    q = HOME.copy()
    q[5] = math.remainder(math.pi + by_rad, math.tau)
    return q


@pytest.mark.parametrize("kind", ["position", "trajectory"])
def test_a_driver_of_positions_is_sent_nothing_where_a_joint_changes_its_turn(
    bench: Any, kind: str
) -> None:
    b = bench(kind)
    b.q, b.follows = at_pi(-0.001), False
    b.moving()
    for i in range(125):
        b.target()
        sent = b.turn(lambda i=i: b.joints(at_pi(0.001 * (-1) ** i)))
        assert not sent or np.abs(sent[-1] - at_pi(-0.001)).max() < 0.1
        assert i < 2 or not sent
    assert "wrist_3_joint jumped from" in b.problem and "a whole turn" in b.problem
    b.q = at_pi(0.1)  # moved away by other means
    b.settle()
    b.target()
    sent = b.turn()
    assert b.problem == "" and np.abs(sent[-1] - b.q).max() < 0.02, "in the driver's turn"


def test_velocities_go_on_where_a_joint_changes_its_turn(bench: Any) -> None:
    b = bench("velocity", of_joints=True)
    b.follows, where = False, -0.05
    b.q = at_pi(where)
    b.settle()
    for _ in range(60):
        b.target(at_pi(where + 0.1))  # the gate's targets are in the driver's turn
        sent = b.turn()
        assert 0.0 < sent[-1][5] <= SPEED + 0.1 and np.abs(sent[-1][:5]).max() < 1e-9
        where += float(sent[-1][5]) * PERIOD_S
        b.q = at_pi(where)
        assert b.problem == ""
    assert where > 0.05 and b.q[5] < 0.0


def test_an_old_joint_target_of_the_turn_before_is_not_gone_to_all_the_way_round(
    bench: Any,
) -> None:
    """The gate has latched 3.141 rad; the driver says -3.141 now, as at its start."""
    b = bench("position", of_joints=True)
    b.q = at_pi(0.01)
    b.settle()
    for _ in range(100):
        b.target(at_pi(-0.01))
        b.turn()
        assert np.abs(b.q - at_pi(0.01)).max() < 0.03
