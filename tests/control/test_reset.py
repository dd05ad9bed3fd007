"""Reset motion: out of what the tool is in, then the objects, then the start; in that order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from robot_rl.control.reset import ResetMotion
from robot_rl.errors import RobotRLError
from robot_rl.geometry import pose
from robot_rl.ports import ResetPlan
from robot_rl.types import Command, Outcome, RobotState, Verdict
from tests.support.fakes import TASK, FakeGate, make_loop


class Stuck(FakeGate):
    """Holds whatever asks to move up: the part is jammed, and the force limit says so."""

    def request(self, command: Command, state: RobotState) -> Verdict:
        verdict = super().request(command, state)
        held = dataclasses.replace(
            verdict,
            outcome=Outcome.HOLD,
            reason="force: contact beyond the limit",
            command=dataclasses.replace(command, tcp_target_in_base=state.tcp_in_base),
        )
        self._last = held
        return held

    def verdict(self, sequence: int) -> Verdict | None:
        return self._last


def plan_above(state: RobotState) -> ResetPlan:
    """A start 5 cm higher and 3 cm to the side."""
    here = state.tcp_in_base
    there = pose(here.position_m + np.array((0.03, 0.0, 0.05)), here.quaternion_xyzw)
    plan = TASK.sample_reset(np.random.default_rng(0))
    return dataclasses.replace(plan, tcp_in_base=there)


def test_the_objects_are_placed_once_the_tool_is_up() -> None:
    loop, robot, _ = make_loop()
    heights: list[float] = []
    plan = plan_above(robot.read())
    motion = ResetMotion(loop, lambda _: heights.append(robot.read().tcp_in_base.position_m[2]))
    motion(plan)
    assert heights == [pytest.approx(plan.tcp_in_base.position_m[2], abs=0.0015)]
    off = robot.read().tcp_in_base.position_m - plan.tcp_in_base.position_m
    assert float(np.linalg.norm(off)) < 0.0015


def test_nothing_is_moved_under_a_tool_that_is_caught() -> None:
    """A block that was placed anew with the peg in its hole threw the arm 14 cm, out of the
    workspace, from where the gate lets nobody drive it back."""
    loop, robot, _ = make_loop(gate=Stuck())
    placed: list[ResetPlan] = []
    plan = plan_above(robot.read())
    with pytest.raises(RobotRLError, match="does not come up") as error:
        ResetMotion(loop, placed.append)(plan)
    assert not placed
    assert "50 mm" in str(error.value) and "force" in str(error.value)
