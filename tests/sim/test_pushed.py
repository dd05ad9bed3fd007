"""A person pushes the simulated arm: it yields while guided, and nothing jumps at the release."""

from __future__ import annotations

import numpy as np
import pytest

from robot_rl.geometry import rotation_error
from robot_rl.safety import gate as rules
from robot_rl.safety.limits import Limits
from robot_rl.tasks import ReachTask
from robot_rl.types import Command, Driver, Outcome
from robot_rl_sim.robot import MujocoRobot

TASK = ReachTask()
TICK_S = 0.1
FORCE_N = (12.0, -8.0, 6.0)


class Guided:
    """The arm behind the gate; every tick asks it to stay where it is, or where it was."""

    def __init__(self) -> None:
        self.robot = MujocoRobot(TASK)
        self.robot.reset(TASK.sample_reset(np.random.default_rng(0)))
        self.limits = Limits.of(self.robot.robot).narrow_to(TASK)
        self.gate, refused = rules.arm(
            self.limits, rules.initial(self.limits), "a", self.robot.read(), self.robot.now_s()
        )
        assert refused == ""
        self._count = 0
        self.outcomes: list[Outcome] = []
        self.here = self.robot.read().tcp_in_base

    def tick(self, *, guided: bool) -> None:
        state, now_s = self.robot.read(), self.robot.now_s()
        target = state.tcp_in_base if guided else self.here
        self.here = target
        self._count += 1
        self.gate = rules.heartbeat(self.gate, now_s, guided)
        driver = Driver.DEMO if guided else Driver.POLICY
        command = Command(self._count, now_s, driver, "a", target, None)
        self.gate, verdict = rules.judge(self.limits, self.gate, command, state, now_s)
        self.outcomes.append(verdict.outcome)
        self.robot.apply(verdict.command)
        self.robot.advance(TICK_S)

    def moved_m(self, ticks: int, *, guided: bool) -> float:
        before = self.robot.read().tcp_in_base.position_m
        for _ in range(ticks):
            self.tick(guided=guided)
        return float(np.linalg.norm(self.robot.read().tcp_in_base.position_m - before))


def test_a_guided_arm_yields_and_one_that_is_not_comes_back() -> None:
    arm = Guided()
    arm.moved_m(5, guided=False)
    arm.robot.push(FORCE_N)
    held_m = arm.moved_m(10, guided=False)
    arm.robot.push((0.0, 0.0, 0.0))
    arm.moved_m(10, guided=False)
    arm.robot.push(FORCE_N)
    guided_m = arm.moved_m(10, guided=True)
    assert held_m < 0.012 and guided_m > 3 * held_m
    assert Outcome.HOLD not in arm.outcomes


def test_nothing_jumps_when_the_person_lets_go() -> None:
    arm = Guided()
    arm.robot.push(FORCE_N)
    arm.moved_m(10, guided=True)
    arm.robot.push((0.0, 0.0, 0.0))
    arm.moved_m(5, guided=True)
    before = arm.robot.read().tcp_in_base
    arm.moved_m(20, guided=False)
    after = arm.robot.read().tcp_in_base
    assert after.position_m == pytest.approx(before.position_m, abs=0.001)
    assert np.linalg.norm(rotation_error(after, before)) < np.radians(0.5)


def test_a_guided_arm_that_nobody_pushes_stays_where_it_is() -> None:
    assert Guided().moved_m(100, guided=True) < 0.003  # ten seconds
