"""The in-process gate: implements the port, arms deliberately, feeds the heartbeat itself."""

from __future__ import annotations

import dataclasses

import numpy as np

from robot_rl.geometry import pose
from robot_rl.ports import Gate
from robot_rl.safety.limits import Limits
from robot_rl.safety.local import LocalGate
from robot_rl.safety.states import Mode
from robot_rl.types import Command, Driver, Outcome, RobotState, Verdict
from tests.support.clock import ManualClock

DOWN = (1.0, 0.0, 0.0, 0.0)


class Bench:
    """A robot at rest and a numbered driver."""

    def __init__(self) -> None:
        self.clock, self.sequence = ManualClock(5.0), 0
        self.gate = LocalGate(Limits(), self.clock)
        self.wrench = np.zeros(6)

    def request(self, driver: Driver = Driver.POLICY, dx_m: float = 0.005) -> Verdict:
        """One control tick."""
        self.sequence += 1
        now_s = self.clock.now_s()
        target = pose((0.5 + dx_m, 0.0, 0.3), DOWN)
        command = Command(self.sequence, now_s, driver, "loop", target)
        verdict = self.gate.request(command, self.state())
        self.clock.sleep_until_s(now_s + 0.1)
        return verdict

    def state(self) -> RobotState:
        """The robot now."""
        joints = np.array((0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785))
        tcp, zero = pose((0.5, 0.0, 0.3), DOWN), np.zeros(6)
        return RobotState(self.clock.now_s(), joints, np.zeros(7), tcp, zero, self.wrench, 0.04)


def test_it_implements_the_port_and_remembers_the_last_verdict() -> None:
    bench = Bench()
    assert isinstance(bench.gate, Gate)
    assert bench.gate.arm("loop")
    verdict = bench.request()
    assert verdict.outcome is Outcome.PASS and bench.gate.mode is Mode.RUN
    assert bench.gate.verdict(verdict.sequence) is verdict
    assert bench.gate.verdict(verdict.sequence + 1) is None


def test_nothing_moves_before_arming_or_under_another_lease() -> None:
    bench = Bench()
    assert bench.request().outcome is Outcome.HOLD
    bench.gate.arm("somebody else")
    assert bench.request().reason.startswith("lease")
    assert not bench.gate.arm("")


def test_a_scripted_person_drives_and_hands_back_without_a_device() -> None:
    bench = Bench()
    bench.gate.arm("loop")
    drivers = [Driver.RESET, Driver.DEMO, Driver.DEMO, Driver.POLICY, Driver.CORRECTION]
    assert [bench.request(d).outcome for d in drivers] == [Outcome.PASS] * 5
    assert bench.gate.arm("loop")  # the next episode, straight after a person drove
    assert bench.request(Driver.POLICY).outcome is Outcome.PASS


def test_a_long_pause_between_episodes_needs_no_new_arm() -> None:
    bench = Bench()
    bench.gate.arm("loop")
    bench.request()
    bench.clock.sleep_until_s(1_000.0)
    assert bench.request().outcome is Outcome.PASS


def test_a_force_spike_stops_until_acknowledged_and_armed() -> None:
    bench = Bench()
    bench.gate.arm("loop")
    bench.request()
    bench.wrench = np.array((0.0, 0.0, -90.0, 0.0, 0.0, 0.0))
    assert bench.request().reason.startswith("force")
    assert bench.gate.mode is Mode.PROTECTIVE_STOP and bench.gate.reason.startswith("force")
    assert not bench.gate.arm("loop")
    assert bench.gate.acknowledge() and not bench.gate.acknowledge()
    assert bench.gate.arm("loop")
    assert bench.request().outcome is Outcome.HOLD  # still pressing: arming failed
    bench.wrench = np.zeros(6)
    assert bench.request().outcome is Outcome.HOLD  # and is not retried by itself
    assert bench.gate.arm("loop")
    assert bench.request().outcome is Outcome.PASS


def test_a_spike_between_two_commands_is_seen() -> None:
    bench = Bench()
    bench.gate.arm("loop")
    bench.request(Driver.DEMO)
    assert bench.gate.watch(bench.state()) is None
    bench.wrench = np.array((0.0, 0.0, -90.0, 0.0, 0.0, 0.0))
    held = bench.gate.watch(bench.state())
    assert held is not None and held.outcome is Outcome.HOLD
    bench.wrench = np.zeros(6)
    assert bench.request().reason.startswith("force")  # who drove is told why nothing moves


def test_hold_and_stop_take_the_lease_away() -> None:
    bench = Bench()
    for halt in (bench.gate.hold, bench.gate.stop):
        bench.gate.acknowledge()
        bench.gate.arm("loop")
        assert bench.request().outcome is Outcome.PASS
        halt("person: enough")
        assert bench.gate.reason == "person: enough"
        assert bench.request().outcome is Outcome.HOLD


def test_a_rebuilt_simulation_starts_over_disarmed_even_if_time_went_back() -> None:
    bench = Bench()
    bench.gate.arm("loop")
    bench.request()
    bench.gate.reset()
    bench.clock = bench.gate._clock = ManualClock(0.0)
    assert bench.request().outcome is Outcome.HOLD
    bench.gate.arm("loop")
    assert bench.request().outcome is Outcome.PASS


def test_the_limits_in_force_are_the_ones_given() -> None:
    tight = dataclasses.replace(Limits(), max_speed_m_s=0.02)
    bench = Bench()
    bench.gate = LocalGate(tight, bench.clock)
    bench.gate.arm("loop")
    verdict = bench.request()
    assert bench.gate.limits is tight
    assert verdict.outcome is Outcome.CLIPPED and verdict.reason == "speed"
