"""One wrong pose never becomes the one that is sent: whoever tells it, and in whatever mode."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.bench.faults.gate_bench import HOME, JOINTS, GateBench, robot_state, turned
from robot_rl.geometry import pose
from robot_rl.robots import Fr3
from robot_rl.safety import gate as rules
from robot_rl.safety.limits import Limits
from robot_rl.safety.readings import GAP_S, SETTLES_S
from robot_rl.safety.states import Mode
from robot_rl.types import Outcome, RobotState

TICK_S = 0.02
FOREIGN = HOME + np.array((0.0, 0.4, 0.1))


class Watched(GateBench):
    """A gate that looks at 50 Hz. Its arm is where it is; what is said of it may differ."""

    def __init__(self, armed: bool = True) -> None:
        super().__init__(armed=armed)
        if not armed:
            self.says(HOME)

    def says(self, position_m: np.ndarray, count: int = 1) -> None:
        """The next readings say that the arm is there."""
        for _ in range(count):
            self.now_s += TICK_S
            self.state = robot_state(self.now_s, position_m)
            self.tick()

    @property
    def held_m(self) -> np.ndarray:
        """The position that is sent while nobody drives."""
        assert self.gate.target is not None
        return np.array(self.gate.target.position)


def stopped(bench: GateBench) -> None:
    bench.gate = rules.stop(bench.gate, "person: stop")


def paused(bench: GateBench) -> None:
    while bench.gate.mode is Mode.RUN:
        bench.wait(TICK_S)
        bench.tick()


MODES = {
    "hold": lambda bench: setattr(bench, "gate", rules.hold(bench.gate, "person: hold")),
    "pause": paused,
    "protective stop": stopped,
    "run": lambda bench: bench.judge((0.0, 0.0, 0.0)),
}


@pytest.mark.parametrize("mode", MODES)
def test_one_wrong_pose_is_never_held_at(mode: str) -> None:
    bench = Watched()
    MODES[mode](bench)
    for said_m in (FOREIGN, HOME, HOME):
        bench.says(said_m)
        np.testing.assert_array_equal(bench.held_m, HOME)


def test_a_wrong_pose_stops_whoever_drives_where_the_arm_is() -> None:
    bench = Watched()
    assert bench.judge().outcome is Outcome.PASS
    bench.now_s += 0.1
    bench.state = robot_state(bench.now_s, FOREIGN)
    verdict = bench.judge((0.0, 0.0, 0.0))
    assert bench.gate.mode is Mode.PROTECTIVE_STOP and verdict.reason.startswith("state: the pose")
    np.testing.assert_array_equal(verdict.command.tcp_target_in_base.position_m, HOME)


def test_of_two_sources_that_take_turns_the_first_is_believed() -> None:
    bench = Watched(armed=False)
    for _ in range(200):
        bench.says(FOREIGN)
        np.testing.assert_array_equal(bench.held_m, HOME)
        bench.says(HOME)
        np.testing.assert_array_equal(bench.held_m, HOME)


def test_a_wrong_orientation_is_as_odd_as_a_wrong_place() -> None:
    bench = Watched(armed=False)
    bench.now_s += TICK_S
    there = pose(HOME, turned((0.0, 0.0, 1.0)))
    bench.state = dataclasses.replace(robot_state(bench.now_s), tcp_in_base=there)
    bench.tick()
    assert bench.gate.odd is not None and bench.gate.target == bench.gate.measured


def test_after_a_jump_that_lasts_the_arm_is_held_where_it_is() -> None:
    bench = Watched(armed=False)
    bench.says(FOREIGN, math.floor(SETTLES_S / TICK_S))
    np.testing.assert_array_equal(bench.held_m, HOME)
    assert bench.arm().startswith("state: the pose jumped")
    bench.says(FOREIGN, 2)
    np.testing.assert_array_equal(bench.held_m, FOREIGN)
    assert bench.arm() == ""


@pytest.mark.parametrize(("hz", "timeout_s"), [(4.0, 0.5), (5.0, 0.25), (10.0, 0.15), (50.0, 0.1)])
def test_a_driver_that_tells_states_rarely_is_believed_too(hz: float, timeout_s: float) -> None:
    limits = dataclasses.replace(Limits.of(Fr3()), state_timeout_s=timeout_s)
    gate = rules.initial(limits, doubts=True)
    for number in range(1, 1 + math.ceil((SETTLES_S + timeout_s) * hz) + 1):
        now_s = number / hz
        gate, _ = rules.tick(limits, gate, robot_state(now_s, HOME), now_s)
    assert rules.arm(limits, gate, "lease", robot_state(now_s, HOME), now_s)[1] == ""


def test_readings_with_a_gap_between_them_confirm_nothing() -> None:
    """A driver that starts again tells a wrong pose each time, and nothing between."""
    bench = Watched(armed=False)
    for _ in range(20):
        bench.now_s += GAP_S
        bench.says(FOREIGN)
    np.testing.assert_array_equal(bench.held_m, HOME)


def test_after_a_silence_the_arm_may_be_elsewhere_but_one_pose_does_not_say_so() -> None:
    bench = Watched(armed=False)
    bench.now_s += 60.0
    bench.says(FOREIGN)
    np.testing.assert_array_equal(bench.held_m, HOME)


@pytest.mark.parametrize("set_s", [-3600.0, 3600.0])
def test_a_clock_that_was_set_makes_no_pose_credible_nor_an_arm_at_rest_odd(set_s: float) -> None:
    bench = Watched(armed=False)
    bench.says(FOREIGN)
    bench.now_s += set_s
    bench.says(FOREIGN)
    np.testing.assert_array_equal(bench.held_m, HOME)
    bench.says(HOME)
    assert bench.gate.odd is None
    bench.says(FOREIGN, 20)
    np.testing.assert_array_equal(bench.held_m, FOREIGN)


@pytest.mark.parametrize("speed_m_s", [0.1, 1.0, 2.0])
def test_an_arm_that_is_guided_by_hand_is_followed_all_the_way(speed_m_s: float) -> None:
    bench = Watched(armed=False)
    way_m = 0.0
    while way_m < 0.5:
        way_m += speed_m_s * TICK_S
        there_m = HOME - np.array((0.0, way_m, 0.0))
        bench.says(there_m)
        assert np.linalg.norm(bench.held_m - there_m) <= bench.limits.max_step_m + 1e-9


@pytest.mark.parametrize("call", [rules.stand, rules.follow])
def test_the_pose_that_follows_the_arm_follows_no_single_wrong_one(
    call: Callable[..., rules.GateState],
) -> None:
    """While the controller is stopped, or the driver moves the arm itself (`arm/home`)."""
    bench = Watched(armed=False)
    for x_m, said_m in ((0.01, None), (0.02, FOREIGN), (0.03, None)):
        bench.now_s += TICK_S
        there_m = HOME + np.array((x_m, 0.0, 0.0))
        bench.state = robot_state(bench.now_s, there_m if said_m is None else said_m)
        before_m = bench.held_m
        bench.gate = call(bench.limits, bench.gate, bench.state, bench.now_s)
        np.testing.assert_array_equal(bench.held_m, there_m if said_m is None else before_m)


def test_a_gate_that_doubts_holds_at_no_first_pose_before_it_has_lasted() -> None:
    """A driver that starts: the kinematics of joints that are all zero, then the true ones."""
    bench = GateBench(armed=False)
    bench.gate = rules.initial(bench.limits, doubts=True)
    for said_m in (FOREIGN, *(HOME,) * 15):
        bench.now_s += TICK_S
        bench.state = robot_state(bench.now_s, said_m)
        assert bench.tick() is None
        assert bench.arm().startswith("state")
    bench.wait(2 * TICK_S)
    held = bench.tick()
    assert held is not None
    np.testing.assert_array_equal(held.command.tcp_target_in_base.position_m, HOME)
    assert bench.arm() == ""


def test_wrong_joints_are_not_held_at_where_joints_are_commanded() -> None:
    limits = Limits.of(Fr3()).of_joints(Fr3())
    bench = GateBench(limits, armed=False)
    bench.tick()
    bench.wait(TICK_S)
    zeros = np.zeros(7)
    bench.state = dataclasses.replace(bench.state, joint_position_rad=zeros)
    bench.tick()
    np.testing.assert_array_equal(np.array(bench.gate.target_rad), JOINTS)
    bench.state = dataclasses.replace(bench.state, joint_position_rad=JOINTS)
    bench.wait(TICK_S)
    bench.tick()
    np.testing.assert_array_equal(np.array(bench.gate.target_rad), JOINTS)


def test_a_command_without_any_state_is_answered_with_the_last_pose() -> None:
    bench = Watched()
    command = bench.command()
    bench.gate, verdict = rules.judge(bench.limits, bench.gate, command, None, bench.now_s)
    assert bench.gate.mode is Mode.PROTECTIVE_STOP and verdict.reason.startswith("state: stale")
    np.testing.assert_array_equal(verdict.command.tcp_target_in_base.position_m, HOME)


EVENTS = ("true", "true", "wrong", "command", "arm", "hold", "stop", "acknowledge", "follow")


@settings(max_examples=300)
@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_in_every_order_what_is_held_is_within_a_step_of_the_arm(events: list[str]) -> None:
    """The arm stands. Between two wrong poses there is a true one, as with a second source."""
    bench = Watched()
    for event in events:
        if event in ("true", "wrong"):
            bench.says(FOREIGN if event == "wrong" else HOME)
            bench.state = wrong_is_over(bench)
        elif event == "command":
            bench.now_s += TICK_S
            bench.state = robot_state(bench.now_s)
            bench.judge()
        elif event == "arm":
            bench.arm()
        elif event == "acknowledge":
            bench.gate, _ = rules.acknowledge(bench.gate)
        elif event == "follow":
            bench.gate = rules.follow(bench.limits, bench.gate, bench.state, bench.now_s)
        else:
            bench.gate = (rules.hold if event == "hold" else rules.stop)(bench.gate, "person: x")
        assert np.linalg.norm(bench.held_m - HOME) <= bench.limits.max_step_m, event


def wrong_is_over(bench: GateBench) -> RobotState:
    """The next reading, which nobody has looked at yet: a true one."""
    bench.now_s += TICK_S
    return robot_state(bench.now_s)
