"""Joysticks and twists of other nodes: layouts, frames, deadman, nonsense; silence at the node."""

from __future__ import annotations

import array
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

import rclpy
from geometry_msgs.msg import TwistStamped
from rclpy.context import Context
from rclpy.node import Node
from sensor_msgs.msg import JointState, Joy
from std_msgs.msg import Bool

from robot_rl.errors import ConfigError, LinkError, RobotRLError, SpecError
from robot_rl.geometry import pose
from robot_rl.operate.handset import AXES, DeviceReading
from robot_rl.ports import OperatorInput
from robot_rl.ros import operator_node, wire
from robot_rl.ros.input_config import JoyConfig, LeaderConfig, TwistConfig
from robot_rl.ros.input_devices import JointStateSource, JoySource, TwistSource
from robot_rl.ros.runtime import node_shell, prepare_environment
from robot_rl.run.experiment import Experiment
from robot_rl.tasks import PegInsertTask
from robot_rl.types import RobotState
from tests.support.ros import new_domain, write_run

pytestmark = pytest.mark.ros

TASK = PegInsertTask()
FULL_M_S = TASK.spec.action.translation_m * TASK.spec.control_hz
FULL_RAD_S = TASK.spec.action.rotation_rad * TASK.spec.control_hz
DOWN_XYZW = (1.0, 0.0, 0.0, 0.0)  # fingers down: x stays, y and z turn round


@pytest.fixture
def node() -> Iterator[Node]:
    """A node in a domain of its own."""
    prepare_environment()
    context = Context()
    rclpy.init(context=context, domain_id=new_domain())
    node = Node("operator", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


def state(quaternion_xyzw: tuple[float, ...] = DOWN_XYZW) -> RobotState:
    zero, joints = np.zeros(6), np.zeros(7)
    tcp = pose((0.4, 0.0, 0.3), quaternion_xyzw)
    return RobotState(1.0, joints, joints, tcp, zero, zero, 0.0)


def after(send: Callable[[], None], read: Callable[[], Any], want: Callable[[Any], bool]) -> Any:
    """Send again and again until what is read is what is wanted; fail after 10 s."""
    deadline_s = time.monotonic() + 10.0
    while time.monotonic() < deadline_s:
        send()
        time.sleep(0.01)
        if want(value := read()):
            return value
    pytest.fail("nothing like it within 10 s")


def out(reading: DeviceReading) -> dict[str, float]:
    values = zip(AXES, np.array(reading.axes).tolist(), strict=True)
    return {name: round(v, 3) for name, v in values if v}


# --- Joy -----------------------------------------------------------------------------------------


def joy(axes: list[float], *pressed: int, buttons: int = 11) -> Joy:
    down = [int(i in pressed) for i in range(buttons)]
    return Joy(axes=array.array("f", axes), buttons=array.array("i", down))


REST = {"joy": [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0], "game_controller": [0.0] * 6}


@pytest.mark.parametrize(
    ("layout", "moved", "pressed", "felt"),
    [
        ("joy", {1: 1.0, 0: 1.0}, (5,), ({"tx": 1.0, "ty": -1.0}, {"drive"})),
        ("joy", {4: -0.5, 3: -1.0}, (5, 4), ({"tz": 0.5, "rz": 1.0}, {"drive", "slow"})),
        ("joy", {6: 1.0, 7: 1.0}, (), ({"rx": 1.0, "ry": 1.0}, set())),
        ("joy", {2: -1.0}, (3,), ({}, {"close", "success"})),
        ("joy", {5: -1.0}, (0, 1), ({}, {"open", "failure", "hold"})),
        ("game_controller", {1: 1.0, 0: -1.0}, (10,), ({"tx": 1.0, "ty": 1.0}, {"drive"})),
        ("game_controller", {3: -1.0, 2: 1.0}, (9,), ({"tz": 1.0, "rz": -1.0}, {"slow"})),
        ("game_controller", {4: -1.0}, (2, 4), ({}, {"close", "redo", "rewind"})),
    ],
)
def test_a_joystick_is_read_in_the_order_of_its_node(
    node: Node, layout: str, moved: dict, pressed: tuple, felt: tuple[dict, set]
) -> None:
    config = JoyConfig(layout=layout)
    source = JoySource(node, config.topic, config.inputs)
    sender = node.create_publisher(Joy, config.topic, 10)
    axes = list(REST[layout])
    for i, value in moved.items():
        axes[i] = value
    message = joy(axes, *pressed, buttons=21 if layout == "game_controller" else 11)
    reading = after(lambda: sender.publish(message), source.read, lambda r: r is not None)
    assert (out(reading), reading.held) == felt
    assert 0.0 <= time.monotonic() - reading.stamp_s < 5.0
    time.sleep(0.2)
    source.read()  # what was still on its way
    stamp_s = source.read().stamp_s
    assert source.read().stamp_s == stamp_s  # exactly: one message, one stamp


def test_a_layout_that_does_not_fit_names_what_is_missing(node: Node) -> None:
    config = JoyConfig()
    source = JoySource(node, config.topic, config.inputs)
    sender = node.create_publisher(Joy, config.topic, 10)

    def read() -> str:
        try:
            source.read()
        except ConfigError as error:
            assert error.expected and error.got and error.fix
            return str(error)
        return ""

    text = after(lambda: sender.publish(joy([0.0] * 4, buttons=4)), read, bool)
    assert "'joy' has no 'axis4'" in text


def test_a_joystick_that_says_nonsense_is_refused(node: Node) -> None:
    config = JoyConfig()
    source = JoySource(node, config.topic, config.inputs)
    sender = node.create_publisher(Joy, config.topic, 10)

    def read() -> bool:
        try:
            source.read()
        except SpecError:
            return True
        return False

    after(lambda: sender.publish(joy([float("nan")] * 8)), read, bool)


# --- twist ---------------------------------------------------------------------------------------


class Teleop:
    """A teleoperation node with a deadman."""

    def __init__(self, node: Node, config: TwistConfig) -> None:
        frames = (config.base_frame, config.tcp_frame)
        self.source = TwistSource(node, TASK, config.topic, config.enable_topic, frames)
        self._twist = node.create_publisher(TwistStamped, config.topic, 10)
        self._enable = node.create_publisher(Bool, config.enable_topic, 10)

    def send(self, linear: tuple, angular: tuple, frame: str, enable: bool | None = True) -> None:
        message = TwistStamped()
        message.header.frame_id = frame
        v, w = message.twist.linear, message.twist.angular
        v.x, v.y, v.z = linear
        w.x, w.y, w.z = angular
        self._twist.publish(message)
        if enable is not None:
            self._enable.publish(Bool(data=enable))

    def felt(self, linear: tuple, angular: tuple, frame: str, **more: Any) -> DeviceReading:
        return after(
            lambda: self.send(linear, angular, frame, **more),
            lambda: self.source.read(state()),
            lambda r: r is not None and (out(r) or not any((*linear, *angular))),
        )


STILL = (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("frame", "linear", "angular", "tool"),
    [
        ("tcp", (FULL_M_S, 0.0, 0.0), STILL, {"tx": 1.0}),
        ("tcp", (0.0, 0.0, -FULL_M_S / 2), STILL, {"tz": -0.5}),
        ("tcp", STILL, (0.0, FULL_RAD_S / 4, 0.0), {"ry": 0.25}),
        ("base", (FULL_M_S / 2, 0.0, 0.0), STILL, {"tx": 0.5}),
        ("base", (0.0, FULL_M_S / 2, 0.0), STILL, {"ty": -0.5}),
        ("base", (0.0, 0.0, FULL_M_S / 2), (0.0, 0.0, FULL_RAD_S), {"tz": -0.5, "rz": -1.0}),
        # too fast: shortened, so that the direction stays
        ("tcp", (4 * FULL_M_S, 2 * FULL_M_S, 0.0), STILL, {"tx": 1.0, "ty": 0.5}),
    ],
)
def test_a_twist_is_turned_into_the_tool_frame_and_scaled_by_the_task(
    node: Node, frame: str, linear: tuple, angular: tuple, tool: dict
) -> None:
    reading = Teleop(node, TwistConfig()).felt(linear, angular, frame)
    assert out(reading) == pytest.approx(tool) and reading.held == {"drive"}


def test_a_twist_without_its_deadman_does_not_drive(node: Node) -> None:
    teleop = Teleop(node, TwistConfig())
    for _ in range(20):
        teleop.send((FULL_M_S, 0.0, 0.0), STILL, "tcp", enable=None)
        time.sleep(0.01)
        assert teleop.source.read(state()) is None  # never heard of it
    reading = teleop.felt((FULL_M_S, 0.0, 0.0), STILL, "tcp", enable=False)
    assert reading.held == frozenset()
    teleop.felt((FULL_M_S, 0.0, 0.0), STILL, "tcp")
    time.sleep(0.2)
    stamps = []
    for _ in range(40):  # the deadman has fallen silent, the twist goes on
        teleop.send((FULL_M_S, 0.0, 0.0), STILL, "tcp", enable=None)
        time.sleep(0.01)
        stamps.append(teleop.source.read(state()).stamp_s)
    assert len(set(stamps[-20:])) == 1


@pytest.mark.parametrize(
    ("frame", "linear", "words"),
    [
        ("camera", (0.1, 0.0, 0.0), "in frame 'camera'"),
        ("", (0.1, 0.0, 0.0), "frame_id base or tcp"),
        ("tcp", (float("nan"), 0.0, 0.0), "NaN"),
        ("tcp", (0.0, float("inf"), 0.0), "NaN or infinity"),
    ],
)
def test_a_twist_that_makes_no_sense_is_refused(
    node: Node, frame: str, linear: tuple, words: str
) -> None:
    teleop = Teleop(node, TwistConfig())

    def read() -> str:
        try:
            teleop.source.read(state())
        except LinkError as error:
            assert error.expected and error.got and error.fix
            return str(error)
        return ""

    assert words in after(lambda: teleop.send(linear, STILL, frame), read, bool)


# --- the operator node ---------------------------------------------------------------------------


class Scenario:
    """An `InputDevice` that says what the test says; the robot's state comes with it."""

    def __init__(self) -> None:
        self.value = OperatorInput(False, np.zeros(6, np.float32))

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Nothing to forget."""

    def poll(self, state: RobotState) -> OperatorInput:
        return self.value


@pytest.fixture
def polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An operator node without a graph: what it publishes lands in `sent`."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(new_domain()))
    run = write_run(tmp_path / "run")
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    with node_shell("operator", ["--ros-args", "-p", f"run_dir:={run}"]) as shell:
        device, sent = Scenario(), []
        reader: Any = SimpleNamespace(read=state)
        node = operator_node.OperatorNode(shell, TASK, device, reader)
        node._call = wire.EpisodeCall(7, 0, "train", active=True)
        monkeypatch.setattr(node, "_joy", SimpleNamespace(publish=sent.append))
        yield SimpleNamespace(node=node, device=device, sent=sent, shell=shell)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def says(polled: Any, driving: bool, stamp_s: float) -> int:
    """Messages that go out when the device says this; the state is stamped 1.0."""
    polled.sent.clear()
    polled.device.value = OperatorInput(driving, np.zeros(6, np.float32), stamp_s=stamp_s)
    polled.node.turn()
    return len(polled.sent)


def test_silence_of_a_held_device_is_passed_on_as_silence_not_as_a_release(polled: Any) -> None:
    assert says(polled, False, 0.90) == 1
    assert says(polled, False, 0.90) == 1  # not held: a late reading is no harm
    assert says(polled, True, 0.92) == 1
    assert [says(polled, False, 0.92) for _ in range(5)] == [0] * 5  # gone, nobody let go
    assert says(polled, False, 0.99) == 1  # back: now it is let go of
    assert polled.sent[0].buttons[0] == 0
    assert says(polled, True, 0.995) == 1 and polled.sent[0].buttons[0] == 1
    assert says(polled, False, 0.998) == 1  # an ordinary release


def test_the_age_of_a_reading_goes_out_with_it(polled: Any) -> None:
    from robot_rl.ros.convert import from_stamp

    says(polled, True, 1.0 - 0.25)
    age_s = polled.shell.now_s() - from_stamp(polled.sent[0].header.stamp)
    assert 0.25 <= age_s < 2.0


def test_a_reading_that_is_seen_again_is_of_the_same_moment(
    polled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a state that is some milliseconds older or newer it would seem older than it is."""
    from robot_rl.ros.convert import from_stamp

    now_s, beside = [100.0], SimpleNamespace(s=100.0)
    monkeypatch.setattr(polled.node._clock, "now_s", lambda: now_s[0])
    arm = polled.node._reader.read()
    monkeypatch.setattr(
        polled.node, "_reader", SimpleNamespace(read=lambda: replace(arm, stamp_s=beside.s))
    )

    def told(stamp_s: float) -> float:
        assert says(polled, True, stamp_s) == 1
        return from_stamp(polled.sent[0].header.stamp)

    assert told(99.98) == pytest.approx(99.98)
    now_s[0], beside.s = 100.02, 99.99  # a state that is 30 ms old
    assert told(99.98) == pytest.approx(99.98)
    now_s[0], beside.s = 100.04, 100.04
    assert told(99.98) == pytest.approx(99.98)
    assert told(100.03) == pytest.approx(100.03)
    now_s[0], beside.s = 3700.0, 3700.0  # all clocks are set; the reading is one of before
    assert told(100.03) == pytest.approx(100.03)
    now_s[0], beside.s = 3700.02, 3700.02
    assert told(3700.01) == pytest.approx(3700.01)


@pytest.mark.parametrize(
    ("simulated", "present", "waits"),
    [(True, True, "device"), (True, False, "clock"), (False, False, "device")],
)
def test_a_pause_sleeps_on_the_device_unless_simulated_time_may_hurry(
    polled: Any, monkeypatch: pytest.MonkeyPatch, simulated: bool, present: bool, waits: str
) -> None:
    """A key is passed on when it comes, and not when somebody looks next."""
    now_s, slept = [1.0], list[tuple[str, float]]()

    def sleep(who: str, timeout_s: float) -> bool:
        if timeout_s:
            slept.append((who, round(timeout_s, 6)))
        now_s[0] += timeout_s
        return False

    clock = SimpleNamespace(
        is_simulated=simulated,
        give_until_s=lambda _: None,
        now_s=lambda: now_s[0],
        has_reached=lambda until_s: now_s[0] >= until_s - 1e-9,
        doze=lambda timeout_s: sleep("clock", timeout_s),
    )
    hand = SimpleNamespace(present=present, wait=lambda timeout_s: sleep("device", timeout_s))
    monkeypatch.setattr(polled.node, "_clock", clock)
    monkeypatch.setattr(polled.node, "_hand", hand)
    assert not polled.node._pause(1.015)
    whole = {"device": [("device", 0.015)], "clock": [("clock", 0.001)] * 15}
    assert slept == whole[waits]
    hand.wait = lambda _: True
    assert polled.node._pause(now_s[0] + 0.015)


def test_an_operator_that_cannot_be_opened_ends_the_node_with_the_reason(
    polled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robot_rl_hardware import gamepad

    connect = gamepad.connect
    monkeypatch.setattr(gamepad, "connect", lambda config: connect(config, list))
    experiment = Experiment.load(write_run(tmp_path / "other", operator="gamepad"))
    shell = SimpleNamespace(params={}, node=polled.shell.node)
    with pytest.raises(RobotRLError, match="no gamepad found"):
        operator_node.run_operator(shell, experiment.operator, experiment.task, None)  # type: ignore[arg-type]


# --- leader --------------------------------------------------------------------------------------


class Leader:
    """A node that publishes the joints of a leader arm, and its trigger."""

    JOINTS = ("a", "b")

    def __init__(self, node: Node) -> None:
        self.source = JointStateSource(node, "leader/joint_states", self.JOINTS, ("t", 0.2, -0.6))
        self._sender = node.create_publisher(JointState, "leader/joint_states", 10)

    def send(self, **joints: float) -> None:
        self._sender.publish(JointState(name=list(joints), position=list(joints.values())))

    def told(self, **joints: float) -> str:
        """What is wrong with such a message; "" as long as nothing is."""
        self.send(**joints)
        try:
            self.source.read()
        except LinkError as error:
            assert error.expected and error.got and error.fix
            return str(error)
        return ""


def test_the_joints_of_a_leader_are_read_by_name(node: Node) -> None:
    leader = Leader(node)
    found = after(
        lambda: leader.send(t=-0.2, other=9.0, b=2.0, a=1.0), leader.source.read, lambda r: r
    )
    assert found.position_rad.tolist() == [1.0, 2.0] and found.trigger == pytest.approx(0.5)
    assert 0.0 <= time.monotonic() - found.stamp_s < 5.0


@pytest.mark.parametrize(
    "joints", [{"a": 1.0, "t": 0.0}, {"a": 1.0, "b": float("nan"), "t": 0.0}, {"a": 1.0, "b": 2.0}]
)
def test_a_leader_without_one_of_its_joints_is_refused(node: Node, joints: dict) -> None:
    leader = Leader(node)
    text = after(lambda: None, lambda: leader.told(**joints), bool)
    assert "does not tell joint" in text and "operator.joints" in text


def test_names_that_are_not_as_many_as_the_joints_are_refused(node: Node, tmp_path: Path) -> None:
    node.declare_parameter("run_dir", str(tmp_path))
    (tmp_path / "config.yaml").write_text("robot: {name: fr3}")
    with pytest.raises(ConfigError, match="not the joints of the leader") as told:
        LeaderConfig(joints=("a", "b")).open(TASK, node)
    assert "operator.arm" in told.value.fix
    with pytest.raises(ConfigError, match="cannot stand like the robot"):
        LeaderConfig(arm="ur5e", enable_topic="e").open(TASK, node)
