"""Every `InputDevice` keeps the promises of the port: nobody, a script, a hand, Joy, a twist, a
leader arm, an arm that is pushed."""

from __future__ import annotations

import array
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from robot_rl.errors import ConfigError
from robot_rl.operate.devices import make_operator
from robot_rl.operate.handset import DeviceReading, Handset, HandsetConfig
from robot_rl.operate.held import HeldDevice
from robot_rl.operate.kinesthetic import Guided, KinestheticConfig
from robot_rl.operate.leader import Joints, Leading, led_by
from robot_rl.operate.mapping import InputMap
from robot_rl.operate.scripted import NoOperatorConfig, ScriptedOperatorConfig
from robot_rl.ports import InputDevice, OperatorInput
from robot_rl.robots import Fr3
from robot_rl.ros.graph import free_domain
from robot_rl.ros.input_config import JoyConfig, LeaderConfig, TwistConfig
from robot_rl.tasks import PegInsertTask
from robot_rl.types import Driver, RobotState
from robot_rl_hardware.leader import GelloConfig, So101Config
from robot_rl_hardware.reader import Reader

TASK = PegInsertTask()
PERIOD_S = 0.02
PATIENT = HandsetConfig(input_timeout_s=0.5)  # busy machines hiccup for longer than the default
PLAN = TASK.sample_reset(np.random.default_rng(0))


class Rig(Protocol):
    """A device, a person who holds it or lets go, and a cable."""

    device: InputDevice

    def turn(self, held: bool, plugged: bool = True) -> OperatorInput:
        """20 ms later: what the device says to a person who holds it, or does not."""
        ...


def state_at(stamp_s: float) -> RobotState:
    """The robot waits at the start of an episode."""
    zero, joints = np.zeros(6), np.zeros(7)
    return RobotState(stamp_s, joints, joints, PLAN.tcp_in_base, zero, zero, 0.008, PLAN.objects)


class Script:
    """Nobody, or the scripted person, who holds the device when the robot is stuck."""

    def __init__(self, config: object) -> None:
        self.device = make_operator(config, TASK)
        self._now_s = 1000.0

    def turn(self, held: bool, plugged: bool = True) -> OperatorInput:
        self._now_s += PERIOD_S
        return self.device.poll(state_at(self._now_s))


class Held:
    """A handset on a source that is a person."""

    def __init__(self) -> None:
        self._now_s, self._reading = 5.0, DeviceReading(0.0, np.zeros(6))
        handset = Handset(HandsetConfig(), TASK.spec.action.size)
        self.device = HeldDevice(handset, self, "held", lambda: self._now_s)
        self._missing = False

    def read(self, state: RobotState | None) -> DeviceReading | None:
        return None if self._missing else self._reading

    def turn(self, held: bool, plugged: bool = True) -> OperatorInput:
        self._now_s += PERIOD_S
        self._missing = not plugged
        self._reading = DeviceReading(
            self._now_s - 0.001, [0.5 * held] * 6, frozenset({"drive"} if held else ())
        )
        return self.device.poll(state_at(self._now_s + 1000.0))


class Pushed(Held):
    """A person who pushes the arm itself, and holds a button."""

    def __init__(self) -> None:
        super().__init__()
        self.device = Guided(TASK, HandsetConfig(), self)
        self.device._held._now_s = lambda: self._now_s


class Led(Held):
    """A person who moves a leader arm, and holds a button."""

    def __init__(self) -> None:
        super().__init__()
        self._q = np.array(Fr3().home_rad)
        leader = type("Leader", (), {"read": lambda _: self._joints()})()
        config = Leading(match_rad=None)
        self.device = led_by(TASK, config, leader, self, "leader", robot=Fr3())
        self.device._now_s = lambda: self._now_s

    def _joints(self) -> Joints | None:
        return None if self._missing else Joints(self._now_s - 0.001, self._q)

    def turn(self, held: bool, plugged: bool = True) -> OperatorInput:
        self._q = self._q + 0.002 * held
        return super().turn(held, plugged)


class Cable:
    """The thread that gamepad and SpaceMouse are read by, around a handle of ours."""

    name, quiet_s = "handle", float("inf")
    inputs = InputMap(axes=("x", "", "", "", "", ""), buttons={"b": "drive"})

    def __init__(self) -> None:
        self._values, self._plugged = {"x": 0.0, "b": 0.0}, True
        self._reader = Reader(self._connect)
        handset = Handset(PATIENT, TASK.spec.action.size)
        self.device = HeldDevice(handset, self._reader, "handle")

    def _connect(self) -> Cable:
        if not self._plugged:
            raise OSError("No such device")
        return self

    def read(self) -> tuple[dict[str, float], bool]:
        time.sleep(0.005)
        self._connect()
        return self._values, True

    def turn(self, held: bool, plugged: bool = True) -> OperatorInput:
        self._values, self._plugged = {"x": 0.5 * held, "b": float(held)}, plugged
        time.sleep(PERIOD_S)
        return self.device.poll(state_at(time.monotonic() + 1000.0))

    def close(self) -> None:
        if threading.current_thread() is threading.main_thread():  # else the reader gives us back
            self._reader.close()


class Topic:
    """A device that another ROS 2 node publishes, in this process: real rclpy, real messages."""

    def __init__(self, config: JoyConfig | TwistConfig | LeaderConfig) -> None:
        import rclpy
        from geometry_msgs.msg import TwistStamped
        from rclpy.context import Context
        from rclpy.node import Node
        from sensor_msgs.msg import Joy
        from std_msgs.msg import Bool

        from robot_rl.ros.runtime import prepare_environment

        prepare_environment()
        self._context = Context()
        rclpy.init(context=self._context, domain_id=free_domain())
        self._node = Node("operator", context=self._context)
        self._node.declare_parameter("run_dir", str(self._run_dir()))
        self._q = np.array(Fr3().home_rad)
        self.device = make_operator(config, TASK, self._node)
        self._senders: list[tuple[Any, Callable[[bool], Any]]] = []
        if isinstance(config, JoyConfig):
            self._senders = [(self._publisher(Joy, config.topic), self._joy)]
        elif isinstance(config, LeaderConfig):
            from sensor_msgs.msg import JointState

            self._senders = [
                (self._publisher(JointState, config.topic), self._joints),
                (self._publisher(Bool, config.enable_topic), lambda held: Bool(data=held)),
            ]
        else:
            self._senders = [
                (self._publisher(TwistStamped, config.topic), self._twist),
                (self._publisher(Bool, config.enable_topic), lambda held: Bool(data=held)),
            ]

    def _publisher(self, kind: Any, topic: str) -> Any:
        return self._node.create_publisher(kind, topic, 10)

    def _run_dir(self) -> Path:
        """A run's folder, from which a leader's config takes the robot."""
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name)
        (path / "config.yaml").write_text("robot: {name: fr3}")
        return path

    def _joints(self, held: bool) -> Any:
        from sensor_msgs.msg import JointState

        self._q = self._q + 0.002 * held
        return JointState(name=list(Fr3().joint_names), position=self._q.tolist())

    @staticmethod
    def _joy(held: bool) -> Any:
        from sensor_msgs.msg import Joy

        axes = [0.5 * held, 0.5 * held, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
        buttons = [0] * 11
        buttons[5] = int(held)
        return Joy(axes=array.array("f", axes), buttons=array.array("i", buttons))

    @staticmethod
    def _twist(held: bool) -> Any:
        from geometry_msgs.msg import TwistStamped

        message = TwistStamped()
        message.header.frame_id = "tcp"
        message.twist.linear.x = 0.05 * held
        return message

    def turn(self, held: bool, plugged: bool = True) -> OperatorInput:
        for publisher, message in self._senders if plugged else ():
            publisher.publish(message(held))
        time.sleep(PERIOD_S)
        return self.device.poll(state_at(time.monotonic() + 1000.0))

    def close(self) -> None:
        import rclpy

        self._node.destroy_node()
        rclpy.shutdown(context=self._context)
        self._folder.cleanup()


RIGS: dict[str, Callable[[], Any]] = {
    "none": lambda: Script(NoOperatorConfig()),
    "scripted": lambda: Script(ScriptedOperatorConfig(stuck_s=0.2)),
    "held": Held,
    "cable": Cable,
    "pushed": Pushed,
    "led": Led,
    "joy": lambda: Topic(JoyConfig(handset=PATIENT)),
    "twist": lambda: Topic(TwistConfig(handset=PATIENT)),
    "leader": lambda: Topic(
        LeaderConfig(handset=PATIENT, match_rad=None, enable_topic="leader/enable")
    ),
}
ROS = ("joy", "twist", "leader")
CABLES = ("held", "cable", "pushed", "led", "joy", "twist", "leader")  # that can be pulled
PEOPLE = ("scripted", *CABLES)  # somebody is there


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A fresh device that has been left alone for a while."""
    if request.param in ROS:
        pytest.importorskip("rclpy", reason="pip install 'robot-rl[ros]'")
    rig = RIGS[request.param]()
    yield rig
    if hasattr(rig, "close"):
        rig.close()


def every(*names: str) -> Any:
    marked = [pytest.param(n, marks=pytest.mark.ros if n in ROS else ()) for n in names]
    return pytest.mark.parametrize("rig", marked, indirect=True)


def begin(rig: Rig, purpose: str) -> None:
    """Start an episode; the person sits with the hands off, then is ready."""
    rig.device.begin_episode(0, purpose)
    for _ in range(15 if isinstance(rig, Script | Held) else 40):
        rig.turn(False)


def until_driving(rig: Rig, plugged: bool = True) -> OperatorInput:
    """The person holds the device until it drives (the scripted one: until it is fed up)."""
    for _ in range(200):
        value = rig.turn(True, plugged)
        if value.driving:
            return value
    raise AssertionError("never drove")


def check(value: OperatorInput) -> None:
    """What holds for every reading."""
    assert value.action.shape == (TASK.spec.action.size,) and value.action.dtype == np.float32
    assert np.isfinite(value.action).all() and (np.abs(value.action) <= 1.0).all()
    assert np.isfinite(value.stamp_s) and value.stamp_s >= 0.0
    assert value.driver.is_human and value.success in (None, True, False)
    if not value.driving:
        assert not value.action.any()


@every(*RIGS)
def test_it_is_an_input_device_that_works_from_the_first_moment(rig: Rig) -> None:
    assert isinstance(rig.device, InputDevice)
    value = rig.turn(False)
    check(value)
    assert not value.driving


@every(*RIGS)
def test_every_reading_has_the_documented_shape_range_and_stamp(rig: Rig) -> None:
    for purpose in ("train", "demo", "eval"):
        begin(rig, purpose)
        stamps = []
        for k in range(30):
            value = rig.turn(k % 10 < 5)
            check(value)
            stamps.append(value.stamp_s)
        assert stamps == sorted(stamps) and stamps[-1] > stamps[0]


@every(*RIGS)
def test_nobody_drives_in_an_evaluation(rig: Rig) -> None:
    begin(rig, "eval")
    assert not any(rig.turn(True).driving for _ in range(40))


@every(*PEOPLE)
def test_a_person_corrects_in_practice_and_demonstrates_in_a_demo(rig: Rig) -> None:
    for purpose, driver in (("train", Driver.CORRECTION), ("demo", Driver.DEMO)):
        begin(rig, purpose)
        value = until_driving(rig)
        for _ in range(40):  # a leader's motion counts from when the robot has come to rest
            value = value if value.action.any() or value.guided else rig.turn(True)
        assert value.driver is driver and (value.action.any() or value.guided)


@every(*CABLES)
def test_letting_go_ends_it_at_once(rig: Rig) -> None:
    begin(rig, "train")
    until_driving(rig)
    turns = 1 if isinstance(rig, Held) else 10  # a message takes its time
    assert not [rig.turn(False) for _ in range(turns)][-1].driving


@every(*CABLES)
def test_a_new_episode_does_not_inherit_a_held_device(rig: Rig) -> None:
    begin(rig, "train")
    until_driving(rig)
    rig.device.begin_episode(1, "train")
    assert not any(rig.turn(True).driving for _ in range(40))
    begin(rig, "train")
    until_driving(rig)


@every(*CABLES)
def test_a_device_that_is_pulled_out_while_held_lets_go_and_its_stamp_stops(rig: Rig) -> None:
    begin(rig, "train")
    until_driving(rig)
    values = [rig.turn(True, plugged=False) for _ in range(70)]
    assert not any(v.driving for v in values[-20:])
    assert len({v.stamp_s for v in values[-20:]}) == 1
    assert not any(rig.turn(True).driving for _ in range(40))  # plugged in again, still held
    for _ in range(80):
        rig.turn(False)
    until_driving(rig)


@every(*RIGS)
def test_reading_it_does_not_wait(rig: Rig) -> None:
    begin(rig, "train")
    took = []
    for _ in range(50):
        began_s = time.perf_counter()
        rig.device.poll(state_at(2000.0 + began_s))
        took.append(time.perf_counter() - began_s)
    assert np.median(took) < 0.005  # the rest is how busy this machine is


@pytest.mark.parametrize(
    "config",
    [JoyConfig(), TwistConfig(), LeaderConfig(), KinestheticConfig(), GelloConfig(), So101Config()],
)
def test_a_device_of_people_needs_a_node(config: object) -> None:
    with pytest.raises(ConfigError, match="needs real time"):
        make_operator(config, TASK)
