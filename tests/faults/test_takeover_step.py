"""The command must not jump when driving changes hands: thousands of takeovers and releases.

What decides is the real thing: arbiter, task, pose action, gate with the task's limits. Two arms
follow the commands: a stand-in with a first-order lag, for numbers, and the simulated one. Within a
phase a driver asks for one and the same action, so an ordinary tick never jumps by itself; what
happens in a tick in which the driver changes is the change's doing.

Drivers stay near the middle of the workspace, well above the block: a clip at the edge, or a
contact, says nothing about hands.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from robot_rl.control.loop import Policy
from robot_rl.control.takeover import GENTLE, MOTION
from robot_rl.geometry import compose, pose, quat_from_rotvec, quat_to_rotvec, relative
from robot_rl.ports import OperatorInput, ResetPlan
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import LEASE, make_rig
from robot_rl.safety.limits import Limits
from robot_rl.safety.local import LocalGate
from robot_rl.types import Command, Outcome, Pose, RobotState
from tests.support.clock import ManualClock

ARMS = {
    "lag": {"spread": 1000, "full": 1500},
    "mujoco": {"spread": 200, "full": 200},
    "long lag": {"spread": 4000, "full": 6000},  # make soak: the figures of docs/results.md
}
"""arm -> how actions are drawn -> takeovers. full: each axis at an end; spread: over its range."""

LONGEST = {
    "lag": 2,
    "mujoco": 3,
    "long lag": 2,
}  # ticks of a phase: the stand-in remembers one, the mass more
LAG = (0.15, 0.75)  # share of the way gone in a tick; the simulated arm: from rest, at speed
MIDDLE = pose((0.50, 0.0, 0.11), (1.0, 0.0, 0.0, 0.0))  # tool down, its tip 40 mm above the block
ROOM_M, ROOM_RAD = 0.015, 0.02  # further off than this a driver points back
EXPERT_EVERY = 4  # every fourth person is the task's scripted expert
CHANGES = ("takeover", "release")

Reach = tuple[float, float]
"""Metres and radians."""


class Nobody(Policy):
    """`Policy` of a loop that is not run: the test draws the actions."""

    version = -1

    def act(self, observation: object, deterministic: bool) -> np.ndarray:
        raise AssertionError("the test drives")


class LagArm:
    """`RobotPort` and `Clock`: in each tick it goes the share `lag` of the way to its target."""

    def __init__(self, limits: Limits) -> None:
        self.lag, self._clock = 1.0, ManualClock()
        self._joints = (np.array(limits.joint_min_rad) + np.array(limits.joint_max_rad)) / 2
        self._zero, self._zeros = np.zeros(6), np.zeros(7)

    def reset(self, plan: ResetPlan) -> None:
        self._tcp = self._goal = plan.tcp_in_base
        self._objects = plan.objects

    def read(self) -> RobotState:
        arm = (self._joints, self._zeros, self._tcp, self._zero, self._zero)
        return RobotState(self.now_s(), *arm, 0.0, self._objects)

    def apply(self, command: Command) -> None:
        self._goal = command.tcp_target_in_base

    def now_s(self) -> float:
        return self._clock.now_s()

    def sleep_until_s(self, deadline_s: float) -> None:
        self._clock.sleep_until_s(deadline_s)
        here, goal, lag = self._tcp, self._goal, self.lag
        q, to = here.quaternion_xyzw, goal.quaternion_xyzw
        to = to if q @ to > 0.0 else -to
        position = here.position_m + lag * (goal.position_m - here.position_m)
        self._tcp = pose(position, q + lag * (to - q))


@dataclass(frozen=True, slots=True)
class Tick:
    """What was asked of the gate in one tick, and what it said.

    change: "takeover", "release" or "" (the driver is who it was); step: of the command against the
    one sent before; lead: against the measured pose; asked: lead of the driver's whole action.
    """

    change: str
    step: Reach
    lead: Reach
    asked: Reach
    weight: float
    outcome: Outcome
    reason: str


class Script:
    """Random takeovers on the lockstep bench of the demo's task, or on one with a `LagArm`."""

    def __init__(self, arm: str, draw: str) -> None:
        self.takeovers, self.longest, self.draw = ARMS[arm][draw], LONGEST[arm], draw
        # as with a person's device; a script hands over as the learning results were measured
        gentle = [f"arbiter.{name}={value}" for name, value in GENTLE.items()]
        experiment = Experiment.compose(["experiment=peg_insert", *gentle])
        bench: Any = make_rig(experiment, Nobody(), record=lambda _rows: None)
        self.loop, self.robot, self.gate = bench.loop, bench.robot, bench.gate
        if arm != "mujoco":
            self.robot = self.loop.robot = self.loop.clock = LagArm(experiment.limits)
            self.gate = self.loop.gate = LocalGate(experiment.limits, self.robot)
        self.task, self.limits = self.loop.task, experiment.limits
        self.rng = np.random.default_rng(0)
        self.plan, self.expert = self.task.sample_reset(self.rng), self.task.expert(1.0)

    def ticks(self) -> Iterator[Tick]:
        """All of them."""
        for number in range(self.takeovers):
            yield from self._takeover(number % EXPERT_EVERY == 0)

    def _takeover(self, expert: bool) -> Iterator[Tick]:
        """From a random pose: the policy drives, a person takes over, and lets go again."""
        loop, rng = self.loop, self.rng
        turn = quat_from_rotvec(rng.uniform(-ROOM_RAD, ROOM_RAD, 3))
        tcp = compose(MIDDLE, pose(rng.uniform(-ROOM_M, ROOM_M, 3), turn))
        self.robot.reset(replace(self.plan, tcp_in_base=tcp))
        self.gate.reset()  # as a rig does: an arm that jumps is believed nothing otherwise
        self.robot.lag = rng.uniform(*LAG)
        assert self.gate.arm(LEASE)
        loop.arbiter.begin_episode()
        before: Pose | None = None
        for driving in (False, True, False):
            action = self._action()
            for _ in range(rng.integers(1, self.longest + 1)):
                if driving and expert:
                    action = self.expert.act(self.robot.read())
                tick, before = self._tick(action, driving, before)
                if tick is not None:
                    yield tick

    def _action(self) -> np.ndarray:
        """A random one, off the middle back to it."""
        off = relative(self.robot.read().tcp_in_base, MIDDLE)
        turn = quat_to_rotvec(off.quaternion_xyzw)
        away = np.concatenate((off.position_m / ROOM_M, turn / ROOM_RAD))
        side = 2 * self.rng.integers(2, size=MOTION) - 1
        size = 1.0 if self.draw == "full" else self.rng.uniform(size=MOTION)
        return (size * np.where(np.abs(away) > 1.0, -np.sign(away), side)).astype(np.float32)

    def _tick(
        self, action: np.ndarray, driving: bool, before: Pose | None
    ) -> tuple[Tick | None, Pose]:
        """As `ControlLoop` does it; None in the first tick, which follows no command."""
        loop, state, now_s = self.loop, self.robot.read(), self.loop.clock.now_s()
        human = OperatorInput(driving, action, stamp_s=state.stamp_s)
        decision = loop.arbiter.decide(action, human, state, now_s)
        command = loop.next_command(decision.action, decision.driver, state)
        verdict = self.gate.request(command, state)
        self.robot.apply(verdict.command)
        loop.clock.sleep_until_s(now_s + self.limits.period_s)
        sent, want = verdict.command.tcp_target_in_base, command.tcp_target_in_base
        if before is None:
            return None, sent
        spec = self.task.spec.pose_action
        shift, turn = math.hypot(*action[:3].tolist()), math.hypot(*action[3:].tolist())
        return Tick(
            change=decision.events[0][0] if decision.events else "",
            step=apart(want, before),
            lead=apart(want, state.tcp_in_base),
            asked=(spec.translation_m * shift, spec.rotation_rad * turn),
            weight=decision.weight,
            outcome=verdict.outcome,
            reason=verdict.reason,
        ), sent


def apart(a: Pose, b: Pose) -> Reach:
    """How far two poses are from each other."""
    turn = 2.0 * math.acos(min(abs(float(a.quaternion_xyzw @ b.quaternion_xyzw)), 1.0))
    return math.dist(a.position_m.tolist(), b.position_m.tolist()), turn


@dataclass(frozen=True, slots=True)
class Record:
    """All ticks of many takeovers, by their change."""

    limits: Limits
    ticks: dict[str, list[Tick]]

    def __str__(self) -> str:
        limits = self.limits
        a_tick_m = limits.max_speed_m_s * limits.period_s
        a_tick_rad = limits.max_rotation_speed_rad_s * limits.period_s
        lines = [
            f"the gate's step: {_mm((limits.max_step_m, limits.max_step_rad))}; its speed,"
            f" per tick: {_mm((a_tick_m, a_tick_rad))}"
        ]
        for change, ticks in self.ticks.items():
            step, lead = (_largest([getattr(t, x) for t in ticks]) for x in ("step", "lead"))
            said = Counter(f"{t.outcome} {t.reason}".strip() for t in ticks)
            lines.append(
                f"{change or 'otherwise':<10}{len(ticks):>6} ticks, step at most {_mm(step)}, lead"
                f" {_mm(lead)}: " + ", ".join(f"{n} {what}" for what, n in said.items())
            )
        return "\n".join(lines)


def _mm(reach: Reach) -> str:
    return f"{1e3 * reach[0]:.1f} mm {reach[1]:.3f} rad"


def _largest(reaches: list[Reach]) -> Reach:
    return max(m for m, _ in reaches), max(rad for _, rad in reaches)


@cache
def recorded(arm: str, draw: str) -> Record:
    """The takeovers and releases of one of the arms; -s shows the figures."""
    script = Script(arm, draw)
    made = Record(script.limits, {change: [] for change in (*CHANGES, "")})
    for tick in script.ticks():
        made.ticks[tick.change].append(tick)
    sys.stdout.write(f"\n{arm}, {draw}: {made}\n")
    assert [len(made.ticks[x]) for x in CHANGES] == 2 * [script.takeovers]
    return made


each_record = pytest.mark.parametrize(
    ("arm", "draw"),
    [
        pytest.param(arm, draw, marks=[pytest.mark.slow] if arm == "long lag" else [])
        for arm in ARMS
        for draw in ARMS[arm]
    ],
)


@each_record
def test_while_the_driver_stays_the_same_nothing_is_clipped(arm: str, draw: str) -> None:
    """What the other tests stand on: what they find, the change of hands has brought about."""
    assert all(t.outcome is Outcome.PASS for t in recorded(arm, draw).ticks[""])


@each_record
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_hands_stays_below_the_gates_step(arm: str, draw: str, change: str) -> None:
    record = recorded(arm, draw)
    limits, ticks = record.limits, record.ticks[change]
    for reach in (_largest([t.step for t in ticks]), _largest([t.lead for t in ticks])):
        assert reach[0] < limits.max_step_m and reach[1] < limits.max_step_rad
    assert not any(t.outcome is Outcome.HOLD for t in ticks)


@each_record
def test_a_person_starts_from_the_measured_pose_with_a_part_of_the_action(
    arm: str, draw: str
) -> None:
    for tick in recorded(arm, draw).ticks["takeover"]:
        assert 0.0 < tick.weight < 1.0
        part = (tick.weight * tick.asked[0], tick.weight * tick.asked[1])
        assert tick.lead == pytest.approx(part, rel=1e-5, abs=1e-6)


@each_record
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_hands_is_not_clipped(arm: str, draw: str, change: str) -> None:
    assert [t for t in recorded(arm, draw).ticks[change] if t.outcome is not Outcome.PASS] == []
