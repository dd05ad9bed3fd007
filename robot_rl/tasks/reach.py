"""Reach: bring the TCP to a point in the air. The smallest task there is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.geometry import POLAR, rotate_inverse
from robot_rl.ports import Expert, ResetPlan, TaskProgress
from robot_rl.robots import Robot
from robot_rl.tasks.common import (
    TOOL_DOWN_XYZW,
    Part,
    Primitive,
    SimTask,
    tool_down,
    upright,
)
from robot_rl.tasks.goals import Goal
from robot_rl.tasks.hand import LOOK_AHEAD_S, Hand
from robot_rl.types import Pose, RobotState

EDGE_M = 0.02  # start and goal keep away from the edge of the box by this
ROOMY = 2 / 3  # ... or, in a small box, stay within this share of it


@register("task", "reach")
@dataclass(frozen=True, kw_only=True)
class ReachTask(SimTask):
    """Step size and 10 cm ranges of the lift task, without the cube."""

    max_steps: int = 50  # the straight way takes 5 to 15
    translation_m: float = 0.03  # 0.3 m/s at 10 Hz
    rotation_rad: float = 0.1
    joint_rad: float = 0.05  # 0.03 m with an arm that is 0.6 m out
    range_m: float = 0.10  # half range of start and goal, each axis
    tolerance_m: float = 0.01
    workspace_min_m: tuple[float, float, float] = (0.35, -0.15, 0.05)
    workspace_max_m: tuple[float, float, float] = (0.65, 0.15, 0.35)

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0 < self.tolerance_m < self.range_m <= 0.13:
            raise ValueError("0 < tolerance_m < range_m <= 0.13 (the workspace) must hold")
        super().__post_init__()

    @property
    def name(self) -> str:
        """Registered name."""
        return "reach"

    def parts(self) -> tuple[Part, ...]:
        """A see-through ball that marks the goal."""
        ball = Primitive("sphere", (self.tolerance_m,), material="goal", collides=False)
        return (Part("target", "marker", (ball,)),)

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        """Start and goal within `range_m` of the middle of the box, apart from each other."""
        low, high = np.array(self.workspace_min_m), np.array(self.workspace_max_m)
        half = (high - low) / 2
        most = np.minimum(self.range_m, np.maximum(half - EDGE_M, ROOMY * half))
        while True:
            start, goal = (low + high) / 2 + rng.uniform(-1.0, 1.0, (2, 3)) * most
            if np.linalg.norm(goal - start) > 2 * self.tolerance_m:
                return ResetPlan(tool_down(start), {"target": upright(goal)}, self.gripper_start_m)

    def with_robot(self, robot: Robot) -> Self:
        """See `SimTask`; the box moves into the workspace of a robot that does not reach it."""
        low, high = robot.box_within(self.workspace_min_m, self.workspace_max_m)
        return replace(super().with_robot(robot), workspace_min_m=low, workspace_max_m=high)

    def goal_in_tcp(self, state: RobotState) -> NDArray[np.float64]:
        """Goal position [3] m seen from the TCP."""
        tcp = state.tcp_in_base
        away = state.objects["target"].position_m - tcp.position_m
        return rotate_inverse(tcp.quaternion_xyzw, away)

    def own_layout(self) -> tuple[tuple[str, int, str], ...]:
        return (("goal_in_tcp", 3, "100 mm"), ("goal_in_tcp_fine", 3, "tanh of 10 mm"))

    def own_mirror(self) -> tuple[tuple[int, ...], ...]:
        return POLAR, POLAR

    def own_state(self, state: RobotState) -> NDArray[np.float64]:
        goal = self.goal_in_tcp(state)
        return np.concatenate((goal / 0.1, np.tanh(goal / 0.01)))

    def success(self, state: RobotState) -> bool:
        """Whether the TCP is within `tolerance_m` of the goal."""
        return float(np.linalg.norm(self.goal_in_tcp(state))) < self.tolerance_m

    def failure(self, state: RobotState) -> bool:
        """False: nothing can break."""
        return False

    def progress(self, state: RobotState) -> TaskProgress:
        """Distance to the goal beyond the tolerance; in free air every way is a safe way."""
        away = float(np.linalg.norm(self.goal_in_tcp(state)))
        return TaskProgress(max(away - self.tolerance_m, 0.0), 0.0)

    def goal(self, state: RobotState) -> Goal:
        """The point in the air."""
        there = state.objects["target"]
        return Goal(there, state.tcp_in_base, tolerance_m=self.tolerance_m)

    def expert(self, skill: float) -> Expert:
        """Straight to the goal."""
        return ReachExpert(self, skill)


class ReachExpert:
    """Straight to the goal, braking in time."""

    def __init__(self, task: ReachTask, skill: float) -> None:
        self._task, self._hand = task, Hand(skill)

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode."""
        self._hand.reset(rng)

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """Action [6] towards the goal."""
        goal = state.objects["target"].position_m.copy()
        goal[:2] += self._hand.offset_m
        brake = LOOK_AHEAD_S * state.tcp_twist_in_base[:3]
        target = Pose(goal - brake, TOOL_DOWN_XYZW)
        return self._hand.move(self._task.spec.pose_action, state.tcp_in_base, target)
