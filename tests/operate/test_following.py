"""The tool follows a hand: no jump at a takeover, leash, clutch, trigger; leaders that match."""

from __future__ import annotations

import json

import numpy as np
import pytest

from robot_rl.errors import ConfigError, LinkError
from robot_rl.geometry import compose, pose, quat_from_rotvec, rotation_error
from robot_rl.operate.following import FollowConfig, Following
from robot_rl.operate.handset import DeviceReading, Handset, HandsetConfig
from robot_rl.operate.held import HeldDevice
from robot_rl.operate.leader import Joints, LeaderSource, Leading, led_by
from robot_rl.operate.remote import parse
from robot_rl.ports import OperatorInput
from robot_rl.robots import Fr3, Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.tasks import PegInsertTask
from robot_rl.types import Pose, RobotState

TASK = PegInsertTask()
ACTION = TASK.spec.pose_action
TICK_S = 0.02
LIMIT_M, LIMIT_RAD = 0.001, np.radians(0.5)
ROBOT = Fr3()
CHAIN = Chain(ROBOT)
HOME = np.array(ROBOT.home_rad)


class World:
    """A robot that does what the action says within a control tick, and a person with a hand."""

    def __init__(self, absolute: bool = False, config: FollowConfig | None = None) -> None:
        self.now_s = 100.0
        self.tcp, self.twist = CHAIN.tcp_in_base(HOME), np.zeros(6)
        self.hand = self.tcp if absolute else pose((1.0, 2.0, 3.0))
        self.held: frozenset[str] = frozenset()
        self.trigger: float | None = None
        following = Following(self, ACTION, config or FollowConfig(), absolute=absolute)
        handset = Handset(HandsetConfig(), 7)
        self.device = HeldDevice(handset, following, "hand", lambda: self.now_s)
        self.device.begin_episode(0, "train")

    def read(self, state: RobotState | None) -> DeviceReading:
        return DeviceReading(
            self.now_s, np.zeros(6), self.held, hand=self.hand, trigger=self.trigger
        )

    def state(self) -> RobotState:
        return RobotState(self.now_s, HOME, np.zeros(7), self.tcp, self.twist, np.zeros(6), 0.04)

    def poll(self, seconds: float = TICK_S, held: str = "", follow: bool = False) -> OperatorInput:
        """What is said at the end; with `follow` the robot goes where it is asked, at 10 Hz."""
        self.held = frozenset(held.split())
        for k in range(max(1, round(seconds / TICK_S))):
            self.now_s += TICK_S
            said = self.device.poll(self.state())
            if follow and said.driving and k % 5 == 4:
                self.tcp = ACTION.target(said.action, self.tcp)
        return said

    def take(self, seconds: float = 0.3) -> OperatorInput:
        """Rest, then press and wait until the anchor stands."""
        self.poll(0.4)
        return self.poll(seconds, "drive")


def moved(hand: Pose, way_m: tuple[float, ...], turn_rad: tuple[float, ...] = (0, 0, 0)) -> Pose:
    turned = compose(
        pose((0, 0, 0), quat_from_rotvec(turn_rad)), pose((0, 0, 0), hand.quaternion_xyzw)
    )
    return pose(hand.position_m + way_m, turned.quaternion_xyzw)


def still(said: OperatorInput) -> bool:
    return bool(np.abs(said.action).max() < 1e-6)


def jump(said: OperatorInput, tcp: Pose) -> tuple[float, float]:
    """How far a command is from the measured pose: m, rad."""
    target = ACTION.target(said.action, tcp)
    away = float(np.linalg.norm(target.position_m - tcp.position_m))
    return away, float(np.linalg.norm(rotation_error(target, tcp)))


@pytest.mark.parametrize("absolute", [False, True])
def test_the_first_command_is_the_measured_pose_wherever_the_hand_is(absolute: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        world = World(absolute)
        off = (0.02, 0.1) if absolute else (0.5, 2.0)  # matched: what 0.1 rad in the joints allow
        world.hand = moved(
            world.hand, rng.uniform(-off[0], off[0], 3), rng.uniform(-off[1], off[1], 3)
        )
        world.poll(0.4)
        for _ in range(12):  # the whole time from the press until the anchor stands
            said = world.poll(held="drive")
            away_m, turned_rad = jump(said, world.tcp)
            assert said.driving and away_m < LIMIT_M and turned_rad < LIMIT_RAD


def test_a_robot_that_still_moves_after_the_press_is_waited_for() -> None:
    world = World()
    world.poll(0.4)
    world.twist = np.array((0.1, 0.0, 0.0, 0.0, 0.0, 0.0))
    world.poll(0.5, "drive")
    world.tcp = moved(world.tcp, (0.03, 0.0, 0.0))  # it coasts: no pulling back to where it was
    world.twist = np.zeros(6)
    for _ in range(10):
        assert jump(world.poll(held="drive"), world.tcp)[0] < LIMIT_M


def test_the_tool_goes_where_the_hand_goes_and_turns_as_it_turns() -> None:
    world = World(config=FollowConfig(yaw_rad=np.pi / 2, scale=0.5))
    world.take()
    before = world.tcp
    world.hand = moved(world.hand, (0.06, 0.0, 0.02), (0.0, 0.0, 0.2))
    world.poll(4.0, "drive", follow=True)
    assert world.tcp.position_m - before.position_m == pytest.approx((0.0, 0.03, 0.01), abs=1e-4)
    assert rotation_error(world.tcp, before) == pytest.approx((0.0, 0.0, 0.2), abs=1e-3)


def test_a_matched_leader_and_the_robot_end_up_in_one_pose_slowly() -> None:
    world = World(absolute=True)
    world.hand = moved(world.tcp, (0.01, -0.01, 0.0), (0.05, 0.0, 0.0))
    world.take()
    target_before = world.tcp
    world.poll(0.1, "drive", follow=True)
    assert np.linalg.norm(world.tcp.position_m - target_before.position_m) < 0.004
    world.poll(3.0, "drive", follow=True)
    assert world.tcp.position_m == pytest.approx(world.hand.position_m, abs=1e-4)
    assert np.linalg.norm(rotation_error(world.tcp, world.hand)) < 1e-3


def test_what_a_fast_hand_is_ahead_beyond_the_leash_is_forgotten() -> None:
    world = World(config=FollowConfig(leash_m=0.05))
    world.take()
    before = world.tcp
    world.hand = moved(world.hand, (1.0, 0.0, 0.0))
    world.poll(10.0, "drive", follow=True)
    assert world.tcp.position_m[0] - before.position_m[0] == pytest.approx(0.05, abs=1e-3)


def test_the_clutch_lets_the_hand_go_elsewhere_while_the_robot_stands() -> None:
    world = World()
    world.take()
    before = world.tcp
    world.hand = moved(world.hand, (0.3, 0.0, 0.0))
    assert still(world.poll(0.5, "drive clutch", follow=True))
    assert still(world.poll(0.5, "drive", follow=True))
    assert world.tcp.position_m == pytest.approx(before.position_m)


def test_slow_is_a_smaller_scale_and_no_jump() -> None:
    world = World()
    world.take()
    world.hand = moved(world.hand, (0.02, 0.0, 0.0))
    world.poll(2.0, "drive", follow=True)
    before = world.tcp
    assert jump(world.poll(0.1, "drive slow"), world.tcp)[0] < LIMIT_M
    world.hand = moved(world.hand, (0.02, 0.0, 0.0))
    world.poll(2.0, "drive slow", follow=True)
    assert world.tcp.position_m[0] - before.position_m[0] == pytest.approx(0.006, abs=2e-4)


def test_the_gripper_stays_at_a_takeover_and_follows_a_change_of_the_trigger() -> None:
    world = World()
    world.trigger = 1.0  # pulled when the person takes over: the robot does not let go of its part
    world.take()
    assert world.poll(0.2, "drive").action[6] == 0.0
    world.trigger = 0.0
    assert world.poll(0.1, "drive").action[6] == 1.0
    assert world.poll(1.0, "drive").action[6] == 0.0
    world.trigger = 0.55  # inside the hysteresis
    assert world.poll(0.1, "drive").action[6] == 0.0
    world.trigger = 0.9
    assert world.poll(0.1, "drive").action[6] == -1.0


def test_letting_go_and_pressing_again_begins_anew() -> None:
    world = World()
    world.take()
    world.hand = moved(world.hand, (0.1, 0.1, 0.1))
    assert world.poll(0.1, "drive").action.any()
    assert not world.poll(0.1).driving
    world.poll(0.3)
    assert still(world.poll(0.3, "drive"))


def test_numbers_that_are_no_hand_are_refused() -> None:
    good = {"axes": [0] * 6, "held": ["drive"], "hand": [0, 0, 0, 0, 0, 0, 1], "trigger": 0.5}
    reading = parse(json.dumps(good).encode(), 1.0)
    assert reading.hand is not None and reading.trigger == 0.5
    for change in (
        {"hand": [0] * 6},
        {"hand": [0] * 7},
        {"hand": [1e9, 0, 0, 0, 0, 0, 1]},
        {"hand": ["x"] * 7},
        {"trigger": 2},
        {"trigger": "x"},
    ):
        with pytest.raises(LinkError, match="malformed input") as told:
            parse(json.dumps(good | change).encode(), 1.0)
        assert told.value.expected and told.value.got and told.value.fix


# --- leaders -------------------------------------------------------------------------------------


class Arm:
    """A leader, its buttons, and the robot that follows."""

    def __init__(self, match: bool = True) -> None:
        self.world = World(absolute=match)
        self.q = HOME.copy()
        self.gone = ""
        self.pressed: frozenset[str] | None = frozenset()
        self.button_s = 0.0
        buttons = type("Buttons", (), {"read": lambda _, state: self.buttons()})()
        leader = type("Leader", (), {"read": lambda _: self.leader()})()
        names = (ROBOT.joint_names, 0.1) if match else None
        source = LeaderSource(leader, buttons, CHAIN, names, 0.1)
        following = Following(source, ACTION, FollowConfig(), absolute=match)
        handset = Handset(HandsetConfig(), 7)
        self.device = HeldDevice(handset, following, "leader", lambda: self.world.now_s)
        self.device.begin_episode(0, "train")

    def leader(self) -> Joints | None:
        if self.gone:
            raise LinkError(self.gone, expected="answers", got="none", fix="plug it in")
        return Joints(self.world.now_s, self.q)

    def buttons(self) -> DeviceReading | None:
        if self.pressed is None:
            return None
        return DeviceReading(self.button_s or self.world.now_s, np.zeros(6), self.pressed)

    def poll(self, seconds: float = TICK_S, held: str = "") -> OperatorInput:
        self.pressed = frozenset(held.split())
        for _ in range(max(1, round(seconds / TICK_S))):
            self.world.now_s += TICK_S
            said = self.device.poll(self.world.state())
        return said


def test_a_leader_that_is_elsewhere_is_refused_and_says_which_joint_by_how_much() -> None:
    arm = Arm()
    arm.q[3] += 0.3
    arm.q[5] -= 0.2
    arm.poll(0.5)
    assert not any(arm.poll(held="drive").driving for _ in range(50))
    name = ROBOT.joint_names
    assert f"move {name[3]} by -17 deg, {name[5]} by +11 deg" in arm.device.problem
    arm.q = HOME.copy()
    said = [arm.poll(held="drive") for _ in range(50)]
    assert not any(s.driving for s in said)  # brought there with the key held: it must be let go of
    arm.poll(0.4)
    assert arm.device.problem == "" and arm.poll(0.3, "drive").driving


def test_whole_turns_that_a_servo_forgot_do_not_count() -> None:
    turns = 2 * np.pi * np.array((1, -1, 0, 2, 0, -3, 1))
    arm = Arm()
    arm.q += turns
    arm.poll(0.4)
    said = arm.poll(0.3, "drive")
    assert said.driving and arm.device.problem == "" and jump(said, arm.world.tcp)[0] < LIMIT_M
    arm = Arm()
    arm.q += turns
    arm.q[3] += 0.3  # beside the turns it is elsewhere
    arm.poll(0.5)
    assert not arm.poll(held="drive").driving
    assert f"move {ROBOT.joint_names[3]} by -17 deg" in arm.device.problem


def test_a_person_may_say_how_it_went_while_the_leader_is_elsewhere() -> None:
    arm = Arm()
    arm.q[3] += 0.3
    arm.poll(0.5)
    said = arm.poll(held="success")
    assert said.success is True and not said.driving and arm.device.problem


def test_a_matched_leader_takes_over_without_a_jump() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        arm = Arm()
        arm.q += rng.uniform(-0.09, 0.09, 7)
        arm.poll(0.5)
        for _ in range(12):
            said = arm.poll(held="drive")
            assert said.driving and jump(said, arm.world.tcp)[0] < LIMIT_M


def test_once_it_leads_it_may_be_ahead_of_the_robot_by_more_than_the_tolerance() -> None:
    arm = Arm()
    arm.poll(0.5)
    arm.poll(0.3, "drive")
    arm.q[0] += 0.3
    assert arm.poll(0.2, "drive").driving and arm.device.problem == ""


def test_a_leader_that_is_unplugged_in_mid_takeover_is_silence_and_one_error() -> None:
    arm = Arm()
    arm.poll(0.5)
    stamp_s = arm.poll(0.3, "drive").stamp_s
    arm.gone = "the leader is gone"
    said = [arm.poll(held="drive") for _ in range(20)]
    assert not any(s.driving for s in said) and {s.stamp_s for s in said} == {stamp_s}
    assert "plug it in" in arm.device.problem
    arm.gone = ""
    assert not any(arm.poll(held="drive").driving for _ in range(30))  # back, but still held
    arm.poll(0.5)
    assert arm.poll(0.3, "drive").driving


def test_buttons_that_fall_silent_while_they_are_held_are_silence() -> None:
    arm = Arm()
    arm.poll(0.5)
    stamp_s = arm.poll(0.3, "drive").stamp_s
    arm.button_s = arm.world.now_s
    said = [arm.poll(held="drive") for _ in range(20)]
    assert not any(s.driving for s in said[8:]) and {s.stamp_s for s in said[8:]} == {
        said[8].stamp_s
    }
    assert said[8].stamp_s == pytest.approx(stamp_s, abs=0.03)


def test_without_anybody_at_the_buttons_it_says_so() -> None:
    arm = Arm()
    for _ in range(20):
        arm.world.now_s += TICK_S
        arm.pressed = None
        assert not arm.device.poll(arm.world.state()).driving
    assert "take the seat" in arm.device.problem and "robot-rl keyboard" in arm.device.problem


def test_a_leader_of_another_kind_cannot_be_matched() -> None:
    arm = Arm()
    with pytest.raises(ConfigError, match="cannot stand like the robot") as told:
        led_by(TASK, Leading(), arm, arm, "x", robot=Ur5e(), chain=CHAIN)  # type: ignore[arg-type]
    assert "match_rad=null" in told.value.fix
    with pytest.raises(ValueError, match="scale 1"):
        Leading(follow=FollowConfig(scale=0.5))
