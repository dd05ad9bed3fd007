"""Reset motion: out of what the tool is in, then the objects, then the start; in that order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from robot_rl.control.reset import ResetMotion
from robot_rl.errors import RobotRLError
from robot_rl.geometry import pose
from robot_rl.ports import ResetPlan
from robot_rl.types import Command, Outcome, Pose, RobotState, Verdict
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


def path_of(plan: ResetPlan) -> tuple[list[Pose], int]:
    """Where the arm was sent by a reset, and how many targets came before the objects."""
    loop, robot, _ = make_loop()
    before: list[int] = []
    ResetMotion(loop, lambda _: before.append(len(robot.applied)))(plan)
    (placed,) = before
    return [command.tcp_target_in_base for command in robot.applied], placed


def test_the_arm_crosses_at_the_clear_height() -> None:
    _, robot, _ = make_loop()
    here, plan = robot.read().tcp_in_base.position_m, plan_above(robot.read())
    there = plan.tcp_in_base.position_m
    clear_m = float(there[2]) + 0.04
    path, placed = path_of(dataclasses.replace(plan, clear_z_m=clear_m))
    across = [p.position_m for p in path if 0.001 < abs(p.position_m[0] - here[0]) < 0.028]
    assert across and min(at[2] for at in across) > clear_m - 0.0015
    assert placed and path[placed - 1].position_m[2] == pytest.approx(clear_m, abs=0.0015)
    low, high = np.minimum(here, there), np.maximum(here, (*there[:2], clear_m))
    at = np.array([p.position_m for p in path])
    assert (at >= low - 1e-6).all() and (at <= high + 1e-6).all()  # nowhere else
    assert path[-1].position_m == pytest.approx(there, abs=0.0015)


def test_a_scripted_way_goes_through_its_poses_and_does_not_rise() -> None:
    _, robot, _ = make_loop()
    here = robot.read().tcp_in_base
    start = pose(here.position_m + np.array((0.0, 0.06, 0.0)), here.quaternion_xyzw)
    via = [
        pose(here.position_m + np.array((-0.04, y, 0.0)), here.quaternion_xyzw) for y in (0, 0.06)
    ]
    plan = dataclasses.replace(plan_above(robot.read()), tcp_in_base=start, via=tuple(via))
    path, placed = path_of(plan)
    at = np.array([p.position_m for p in path])
    assert np.ptp(at[:, 2]) < 1e-9
    for goal in via:
        assert np.linalg.norm(at - goal.position_m, axis=1).min() < 0.0015
    assert 0 < placed < len(path)  # the objects are placed when the tool has left the scene


def test_a_scripted_way_that_is_blocked_is_said() -> None:
    loop, robot, _ = make_loop(gate=Stuck())
    here = robot.read().tcp_in_base
    via = (pose(here.position_m - np.array((0.04, 0.0, 0.0)), here.quaternion_xyzw),)
    placed: list[ResetPlan] = []
    with pytest.raises(RobotRLError, match="did not reach pose 0 of its scripted reset"):
        ResetMotion(loop, placed.append)(dataclasses.replace(plan_above(robot.read()), via=via))
    assert not placed
