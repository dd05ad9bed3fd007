"""Lift: grasp a 40 mm cube on the table and raise it by 10 cm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.geometry import POLAR, quat_from_rotvec, quat_multiply, quat_to_matrix, rotate_inverse
from robot_rl.ports import Expert, ResetPlan, TaskProgress
from robot_rl.tasks.common import (
    Part,
    Primitive,
    SimTask,
    tool_down,
    upright,
)
from robot_rl.tasks.goals import Goal
from robot_rl.tasks.hand import LOOK_AHEAD_S, Hand, Ticks, level
from robot_rl.types import Pose, RobotState

CENTRE_XY_M = np.array((0.50, 0.0))
START_HEIGHT_M = 0.18
LOST_M = 0.25  # the cube is this far from the centre: off the mat, out of the workspace


@register("task", "lift")
@dataclass(frozen=True, kw_only=True)
class LiftTask(SimTask):
    """gym-hil's PickCube numbers: 40 mm, 0.1 kg, +-10 cm, 10 cm up, 10 Hz, 100 steps."""

    translation_m: float = 0.03  # gym-hil moves 25 mm per step, SERL's bin task 50 mm
    rotation_rad: float = 0.15
    joint_rad: float = 0.05
    cube_m: float = 0.04
    cube_kg: float = 0.1
    cube_friction: float = 0.8
    cube_xy_m: float = 0.10  # half range around the centre
    cube_yaw_rad: float = math.pi / 4  # half range; a cube looks the same after a quarter turn
    start_xy_m: float = 0.05  # half range of the TCP
    lift_m: float = 0.10
    workspace_min_m: tuple[float, float, float] = (0.36, -0.14, 0.012)
    workspace_max_m: tuple[float, float, float] = (0.64, 0.14, 0.30)

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0.01 <= self.cube_m <= 0.07:
            raise ValueError("cube_m must lie in [0.01, 0.07]: the gripper opens 80 mm")
        if min(self.cube_kg, self.cube_friction, self.lift_m) <= 0:
            raise ValueError("cube_kg, cube_friction and lift_m must be positive")
        super().__post_init__()

    @property
    def name(self) -> str:
        """Registered name."""
        return "lift"

    @property
    def uses_gripper(self) -> bool:
        """True: it is the action's seventh entry."""
        return True

    @property
    def gripper_start_m(self) -> float:
        """The gripper begins open."""
        return self.spec.pose_action.gripper_open_m

    def parts(self) -> tuple[Part, ...]:
        """A cube that can be grasped."""
        half = self.cube_m / 2
        cube = Primitive("box", (half, half, half), material="orange")
        return (Part("cube", "free", (cube,), self.cube_kg, self.cube_friction),)

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        """Cube on the table, open hand above the middle."""
        cube_xy = CENTRE_XY_M + rng.uniform(-self.cube_xy_m, self.cube_xy_m, 2)
        yaw = rng.uniform(-self.cube_yaw_rad, self.cube_yaw_rad)
        tcp_xy = CENTRE_XY_M + rng.uniform(-self.start_xy_m, self.start_xy_m, 2)
        return ResetPlan(
            tcp_in_base=tool_down(np.array((*tcp_xy, START_HEIGHT_M))),
            objects={"cube": upright(np.array((*cube_xy, self.cube_m / 2)), yaw)},
            gripper_width_m=self.gripper_start_m,
        )

    def cube_in_tcp(self, state: RobotState) -> NDArray[np.float64]:
        """Cube centre [3] m seen from the TCP."""
        tcp = state.tcp_in_base
        return rotate_inverse(
            tcp.quaternion_xyzw, state.objects["cube"].position_m - tcp.position_m
        )

    def yaw_error_rad(self, state: RobotState) -> float:
        """Turn about base z that squares the fingers with the cube, in [-pi/4, pi/4]."""
        cube_x = quat_to_matrix(state.objects["cube"].quaternion_xyzw)[:, 0]
        tcp_x = quat_to_matrix(state.tcp_in_base.quaternion_xyzw)[:, 0]
        turn = math.atan2(cube_x[1], cube_x[0]) - math.atan2(tcp_x[1], tcp_x[0])
        quarter = math.pi / 2
        return turn - quarter * round(turn / quarter)

    def raised_m(self, state: RobotState) -> float:
        """Height of the cube above where it rests on the table."""
        return float(state.objects["cube"].position_m[2]) - self.cube_m / 2

    def holds_cube(self, state: RobotState) -> bool:
        """Whether the cube is between the closed fingers."""
        near = float(np.linalg.norm(self.cube_in_tcp(state))) < self.cube_m / 2
        return near and state.gripper_width_m < self.cube_m + 0.004

    def own_layout(self) -> tuple[tuple[str, int, str], ...]:
        return (
            ("cube_in_tcp", 3, "100 mm"),
            ("cube_in_tcp_fine", 3, "tanh of 10 mm"),
            ("cube_yaw_vs_tcp", 2, "sin and cos of 4 x angle"),
            ("cube_raised", 1, "100 mm"),
            ("tcp_height", 1, "100 mm, from 150 mm"),
            ("tcp_tilt", 2, "base x and y of the TCP's z axis, 0.1"),
            ("gripper_width", 1, "40 mm, from 40 mm"),
        )

    def own_mirror(self) -> tuple[tuple[int, ...], ...]:
        return POLAR, POLAR, (-1, 1), (1,), (1,), (1, -1), (1,)

    def own_state(self, state: RobotState) -> NDArray[np.float64]:
        cube, yaw = self.cube_in_tcp(state), 4.0 * self.yaw_error_rad(state)
        tool_z = quat_to_matrix(state.tcp_in_base.quaternion_xyzw)[:, 2]
        rest = (
            math.sin(yaw),
            math.cos(yaw),
            self.raised_m(state) / 0.1,
            (float(state.tcp_in_base.position_m[2]) - 0.15) / 0.1,
            tool_z[0] / 0.1,
            tool_z[1] / 0.1,
            (state.gripper_width_m - 0.04) / 0.04,
        )
        return np.concatenate((cube / 0.1, np.tanh(cube / 0.01), rest))

    def success(self, state: RobotState) -> bool:
        """Whether the cube is `lift_m` up, between the fingers."""
        near = float(np.linalg.norm(self.cube_in_tcp(state))) < self.cube_m
        return near and self.raised_m(state) > self.lift_m

    def failure(self, state: RobotState) -> bool:
        """Whether the cube is out of reach: off the table or far from the middle."""
        x, y, z = state.objects["cube"].position_m - (*CENTRE_XY_M, 0.0)
        return bool(z < -0.02 or math.hypot(x, y) > LOST_M)

    def progress(self, state: RobotState) -> TaskProgress:
        """Way left = hand to cube, then cube up; corridor = a funnel above the cube."""
        away = float(np.linalg.norm(self.cube_in_tcp(state)))
        above = state.tcp_in_base.position_m - state.objects["cube"].position_m
        outside = math.hypot(above[0], above[1]) - max(float(above[2]) - 0.02, 0.0)
        remaining = away + max(self.lift_m - self.raised_m(state), 0.0)
        return TaskProgress(0.0 if self.success(state) else remaining, max(outside, 0.0))

    def goal(self, state: RobotState) -> Goal:
        """The cube, for the open hand; once it is held, the height to which it has to come."""
        cube, half = state.objects["cube"], (self.cube_m / 2,) * 2
        x = quat_to_matrix(cube.quaternion_xyzw)[:, 0]
        yaw = math.atan2(
            x[1], x[0]
        )  # heights are told along the vertical, also of a cube that lies
        if not self.holds_cube(state):
            return Goal(upright(cube.position_m, yaw), state.tcp_in_base, half)
        up = np.array((0.0, 0.0, self.lift_m - self.raised_m(state)))
        return Goal(upright(cube.position_m + up, yaw), cube, half)

    def expert(self, skill: float) -> Expert:
        """Over the cube, square with it, down, close, up."""
        return LiftExpert(self, skill)


class LiftExpert:
    """Over the cube, square with it, down, close, up; the state tells which of these is next."""

    HOVER_M = 0.06  # above the cube's centre while moving sideways
    ALIGNED_M = 0.006
    ALIGNED_RAD = 0.1
    CLOSING_STEPS = 6  # 40 mm at 100 mm/s, and the grip builds up

    def __init__(self, task: LiftTask, skill: float) -> None:
        self._task, self._hand = task, Hand(skill)
        self.reset(np.random.default_rng(0))

    @property
    def hand(self) -> Hand:
        """The hand whose imperfections this expert has."""
        return self._hand

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode."""
        self._hand.reset(rng)
        self._ticks, self._closing = Ticks(self._task.control_hz), 0

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """Action [7]; the last entry closes (-1) or opens (+1) the gripper."""
        task, tcp, cube = self._task, state.tcp_in_base, state.objects["cube"].position_m
        off = cube[:2] + self._hand.offset_m - tcp.position_m[:2]
        aside, yaw = float(np.hypot(*off)), task.yaw_error_rad(state)
        above = float(tcp.position_m[2] - cube[2])
        square = aside < self.ALIGNED_M and abs(yaw) < self.ALIGNED_RAD
        between = aside < task.cube_m / 3 and abs(above) < task.cube_m / 4
        open_wide = state.gripper_width_m > task.cube_m + 0.02
        goal = np.array((*(tcp.position_m[:2] + off), float(tcp.position_m[2])))
        gripper = 1.0
        new = self._ticks.new(state.stamp_s)
        if between and (square or self._closing):
            self._closing += new or not self._closing
        else:
            self._closing = 0
        if self._closing:
            gripper = -1.0
            if self._closing > self.CLOSING_STEPS:
                goal[2] += task.translation_m  # the lift itself
        elif square and open_wide:
            goal[2] = cube[2]
        elif aside > 2 * self.ALIGNED_M or not open_wide:
            goal[2] = max(cube[2] + self.HOVER_M, 0.0)
        if not self._closing:  # brake
            goal -= LOOK_AHEAD_S * state.tcp_twist_in_base[:3]
        turn = quat_multiply(quat_from_rotvec((0.0, 0.0, yaw)), tcp.quaternion_xyzw)
        target = Pose(goal, level(turn))
        return self._hand.move(task.spec.pose_action, tcp, target, gripper)
