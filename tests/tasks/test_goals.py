"""Goals of the built-in tasks: where the tip has to get, from the state alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robot_rl.config.registry import resolve
from robot_rl.geometry import quat_from_rotvec, quat_multiply, quat_to_matrix
from robot_rl.tasks import LiftTask, PegInsertTask, PickInsertTask, ReachTask
from robot_rl.tasks.common import TOOL_DOWN_XYZW, tool_down, upright
from robot_rl.tasks.described import DescribedTask, TcpPose
from robot_rl.tasks.goals import Goal, Goals, goal_words
from robot_rl.types import Pose
from tests.tasks.test_sim_tasks import TASKS, state_of, with_tip_at

CLOSED_M = 0.04


def away(goal: Goal) -> np.ndarray:
    """Tip from goal, in base [3] m."""
    return goal.tip_in_base.position_m - goal.in_base.position_m


@pytest.mark.parametrize("name", TASKS)
def test_every_built_in_task_knows_its_goal_at_every_start(name: str) -> None:
    task: Any = resolve("task", {"name": name})
    rng = np.random.default_rng(5)
    for _ in range(10):
        plan = task.sample_reset(rng)
        goal = task.goal(state_of(task, plan.tcp_in_base, plan.objects))
        assert Goals(task).words(state_of(task, plan.tcp_in_base, plan.objects)) == goal_words(goal)
        there = [place.position_m.tolist() for place in plan.objects.values()]
        assert goal is not None and goal.in_base.position_m.tolist() in there
        assert quat_to_matrix(goal.in_base.quaternion_xyzw)[2, 2] == pytest.approx(1.0)


def test_the_tip_of_the_peg_goes_to_the_mouth_of_the_hole() -> None:
    task = PegInsertTask(variant="std")
    state = with_tip_at(task, (0.003, -0.002, 0.02), yaw=0.1)
    goal = task.goal(state)
    assert goal.in_base is state.objects["hole"]
    assert goal.half_m == pytest.approx((0.00425, 0.00425))
    assert goal.tolerance_m == pytest.approx(0.00025)  # half of what the hole is wider than the peg
    words = goal_words(goal)
    tip, _ = task.tip_in_hole(state)
    assert words["tip_m"][2] - words["position_m"][2] == pytest.approx(0.02, abs=1e-5)
    assert np.hypot(*away(goal)[:2]) == pytest.approx(np.hypot(*tip[:2]), abs=1e-9)
    assert words["tip_yaw_rad"] - words["yaw_rad"] == pytest.approx(0.1, abs=1e-3)


def test_the_hand_goes_to_the_cube_and_the_cube_to_its_height() -> None:
    task = LiftTask()
    cube = upright(np.array((0.5, 0.02, task.cube_m / 2)), 0.3)
    apart = state_of(task, tool_down(np.array((0.45, 0.02, 0.18))), {"cube": cube})
    goal = task.goal(apart)
    assert away(goal) == pytest.approx((-0.05, 0.0, 0.16)) and goal.tip_in_base is apart.tcp_in_base
    assert goal_words(goal)["yaw_rad"] == pytest.approx(0.3, abs=1e-4)
    held = state_of(task, tool_down(cube.position_m), {"cube": cube}, width=CLOSED_M)
    goal = task.goal(held)
    assert goal.tip_in_base is cube
    assert away(goal) == pytest.approx((0.0, 0.0, -task.lift_m))
    risen = upright(np.array((0.5, 0.02, task.cube_m / 2 + task.lift_m)), 0.3)
    goal = task.goal(state_of(task, tool_down(risen.position_m), {"cube": risen}, width=CLOSED_M))
    assert away(goal) == pytest.approx(np.zeros(3), abs=1e-12)


def test_the_held_cube_goes_into_the_pocket_and_stays_the_tip_when_let_go_there() -> None:
    task = PickInsertTask()
    pocket = upright(np.array((0.5, 0.09, 0.0)))
    cube = upright(np.array((0.48, 0.0, task.cube_m / 2)), 0.2)
    objects = {"cube": cube, "pocket": pocket}
    over = tool_down(cube.position_m)
    assert away(task.goal(state_of(task, over, objects))) == pytest.approx(np.zeros(3))  # open
    goal = task.goal(state_of(task, over, objects, width=CLOSED_M))
    assert goal.tip_in_base is cube and goal.tolerance_m == task.clearance_m / 2
    assert away(goal) == pytest.approx((-0.02, -0.09, 0.0))
    objects["cube"] = upright(np.array((0.5, 0.09, task.cube_m / 2)))
    goal = task.goal(state_of(task, tool_down(np.array((0.5, 0.09, 0.2))), objects))
    assert goal.tip_in_base is objects["cube"]
    assert away(goal) == pytest.approx(np.zeros(3), abs=1e-12)


def test_reach_tells_its_tolerance() -> None:
    task = ReachTask(tolerance_m=0.008)
    state = state_of(task, tool_down(np.array((0.5, 0.0, 0.2))), {"target": upright(np.ones(3))})
    goal = task.goal(state)
    assert (goal.tolerance_m, goal.half_m) == (0.008, ())
    assert goal.in_base.position_m.tolist() == [1.0, 1.0, 1.0]


def described(**fields: Any) -> DescribedTask:
    start = TcpPose(position_m=(0.5, 0.0, 0.2))
    box = {"workspace_min_m": (0.3, -0.2, 0.0), "workspace_max_m": (0.7, 0.2, 0.4)}
    return DescribedTask(starts_in_base=(start,), **box, **fields)


def test_a_taught_goal_is_known_on_a_real_arm_where_nothing_is_tracked() -> None:
    task = described(goal_in_base=TcpPose(position_m=(0.5, 0.05, 0.1)), tolerance_m=0.004)
    goal = task.goal(state_of(task, tool_down(np.array((0.51, 0.05, 0.13)), 0.2), {}))
    assert goal is not None and away(goal) == pytest.approx((0.01, 0.0, 0.03))
    words = goal_words(goal)
    assert words["axis"] == pytest.approx([0.0, 0.0, 1.0]) and words["tolerance_m"] == 0.004
    assert (words["yaw_rad"], words["tip_yaw_rad"]) == pytest.approx((0.0, 0.2))
    sideways = quat_multiply(
        quat_from_rotvec((0.0, np.pi / 2, 0.0)), np.array((0.0, 0.0, 0.0, 1.0))
    )
    wall = TcpPose(position_m=(0.5, 0.05, 0.1), quaternion_xyzw=tuple(sideways.tolist()))
    task = described(goal_in_base=wall)
    goal = task.goal(state_of(task, Pose(np.array((0.47, 0.05, 0.1)), sideways), {}))
    assert goal is not None  # the tool points along x: the tip is 30 mm before the goal
    assert goal_words(goal)["axis"] == pytest.approx([-1.0, 0.0, 0.0], abs=1e-4)
    assert np.dot(away(goal), goal_words(goal)["axis"]) == pytest.approx(0.03)


def test_a_described_task_without_a_goal_has_none() -> None:
    task = described(judge="person")
    assert task.goal(state_of(task, Pose(np.zeros(3), TOOL_DOWN_XYZW), {})) is None


def test_a_goal_that_fails_is_not_asked_for_again_and_takes_nothing_with_it(caplog: Any) -> None:
    class Broken(ReachTask):
        asked = 0

        def goal(self, state: Any) -> Goal:
            Broken.asked += 1
            return super().goal(state)

    goals = Goals(Broken())
    empty = state_of(ReachTask(), tool_down(np.array((0.5, 0.0, 0.2))), {})
    assert [goals.words(empty) for _ in range(3)] == [None] * 3
    assert Broken.asked == 1 and "goal() of the task fails" in caplog.text
    assert Goals(object()).words(empty) is None  # a task that knows no goal
