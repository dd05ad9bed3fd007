"""Kinematic stand-ins for the ports: the arm is wherever it was last sent, time jumps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.arbiter import Arbiter, ArbiterConfig
from robot_rl.control.loop import ControlLoop, Policy
from robot_rl.ports import Gate, InputDevice, OperatorInput, ResetPlan
from robot_rl.reward.predicate import PredicateReward
from robot_rl.tasks import ReachTask
from robot_rl.types import (
    Command,
    EpisodeId,
    EpisodeStart,
    Observation,
    Outcome,
    RobotState,
    Row,
    Verdict,
)
from tests.support.clock import ManualClock

TASK = ReachTask()


class FakeRobot:
    """Arrives at once; counts what it was sent."""

    def __init__(self, clock: ManualClock, plan: ResetPlan) -> None:
        self.clock, self.tcp, self.objects = clock, plan.tcp_in_base, plan.objects
        self.applied: list[Command] = []

    def read(self) -> RobotState:
        zero = np.zeros(6)
        joints = np.zeros(7)
        stamp_s = self.clock.now_s()
        return RobotState(stamp_s, joints, joints, self.tcp, zero, zero, 0.0, self.objects)

    def apply(self, command: Command) -> None:
        self.applied.append(command)
        self.tcp = command.tcp_target_in_base


class FakeGate:
    """Passes everything, unless `judge` says otherwise; `silent` = another process that is gone."""

    def __init__(self, judge: Callable[[Command], Verdict] | None = None) -> None:
        self.judge, self.silent = judge, False
        self.reason = ""

    def arm(self, lease: str) -> bool:
        return True

    def request(self, command: Command, state: RobotState) -> Verdict | None:
        if self.silent:
            return None
        if self.judge:
            return self.judge(command)
        return Verdict(command.sequence, Outcome.PASS, "", command, command.stamp_s)

    def verdict(self, sequence: int) -> Verdict | None:
        return None


class FakePolicy(Policy):
    """Always the same action."""

    version = 3

    def __init__(self, action: NDArray[np.float32]) -> None:
        self.action = action

    def act(self, observation: Observation, deterministic: bool) -> NDArray[np.float32]:
        return self.action


class FakeOperator:
    """Drives in the ticks that `driving` names, with its own action."""

    def __init__(self, driving: Callable[[int], bool], action: NDArray[np.float32]) -> None:
        self.driving, self.action, self.tick = driving, action, -1

    def begin_episode(self, seed: int, purpose: str) -> None:
        self.tick = -1

    def poll(self, state: RobotState) -> OperatorInput:
        self.tick += 1
        return OperatorInput(self.driving(self.tick), self.action, stamp_s=state.stamp_s)


def start(purpose: str = "train") -> EpisodeStart:
    """Header of episode 0."""
    return EpisodeStart(EpisodeId("r", "a", 0), purpose, "reach", TASK.spec.hash, "", 0, 0)


def make_loop(
    *,
    action: NDArray[np.float32] | None = None,
    gate: Gate | None = None,
    operator: InputDevice | None = None,
    clock: ManualClock | None = None,
) -> tuple[ControlLoop, FakeRobot, list[Row]]:
    """A loop over fakes, and the rows it records."""
    clock = clock or ManualClock()
    still = np.zeros(TASK.spec.action.size, np.float32)
    robot = FakeRobot(clock, TASK.sample_reset(np.random.default_rng(0)))
    rows: list[Row] = []
    loop = ControlLoop(
        task=TASK,
        robot=robot,
        cameras=[],
        gate=gate or FakeGate(),
        clock=clock,
        policy=FakePolicy(still if action is None else action),
        operator=operator or FakeOperator(lambda _tick: False, still),
        arbiter=Arbiter(ArbiterConfig(), TASK.spec.action.size),
        reward=PredicateReward(TASK),
        record=rows.extend,
        lease="test",
    )
    return loop, robot, rows
