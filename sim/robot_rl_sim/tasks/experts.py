"""Scripted experts: they solve the tasks from `RobotState`, through the same actions as a policy.

They stand in for a person: `skill` below 1 adds what people have - a hand that is off by a
millimetre, that shakes, that is slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import compose, pose, quat_from_rotvec, quat_multiply, rotate_inverse
from robot_rl.spec import ActionSpec
from robot_rl.types import Pose, RobotState
from robot_rl_sim.tasks.common import TOOL_DOWN_XYZW

if TYPE_CHECKING:
    from robot_rl_sim.tasks.lift import LiftTask
    from robot_rl_sim.tasks.peg_insert import PegInsertTask
    from robot_rl_sim.tasks.pick_insert import PickInsertTask
    from robot_rl_sim.tasks.reach import ReachTask


GAIN, LOOK_AHEAD_S = 0.8, 0.022
"""Deadbeat at 10 Hz for the arm under its impedance law: apparent mass 7 kg, 2000 N/m, damping
ratio 0.4, so w T = 1.7. Each step asks for `GAIN` of the way left after `LOOK_AHEAD_S` of coasting;
a gain of 1 with 0.06 s rings, with 0.1 s it oscillates for good."""


PARALLAX_M = np.array((0.002, 0.0))
"""Misjudgement that stays the same: whoever looks from one side always errs to that side."""


class Hand:
    """The imperfections of whoever drives: misjudgement, tremor, slowness.

    At skill 0 the hand aims 2 mm to one side, always, and 2 mm to any side, anew each time; the
    tremor is 0.5 action units, the speed down to half. Cloning averages out what is drawn anew;
    what stays the same it learns.
    """

    def __init__(self, skill: float) -> None:
        if not 0.0 <= skill <= 1.0:
            raise ValueError(f"skill must lie in [0, 1], got {skill}")
        self._clumsy = 1.0 - skill
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """Draw this episode's misjudgement."""
        self._rng = rng
        self.offset_m = (PARALLAX_M + rng.normal(0.0, 0.002, 2)) * self._clumsy
        self.speed = 1.0 - 0.5 * self._clumsy * rng.random()

    def move(
        self, action: ActionSpec, tcp: Pose, target: Pose, gripper: float = 0.0
    ) -> NDArray[np.float32]:
        """Action [A] towards `target`, as well as this hand can."""
        a = action.action(target, tcp, gripper)
        a[:6] = np.clip(a[:6] * self.speed * GAIN, -1.0, 1.0)
        if self._clumsy:
            a[:6] += self._rng.normal(0.0, 0.5 * self._clumsy, 6)
        return np.clip(a, -1.0, 1.0).astype(np.float32)


class Ticks:
    """Counts control periods, however often a device asks its expert (50 Hz over ROS 2)."""

    def __init__(self, control_hz: float) -> None:
        self._least_s, self._last_s = 0.9 / control_hz, -np.inf

    def new(self, stamp_s: float) -> bool:
        """True when a control period has passed since this was last true (or the clock jumped)."""
        if abs(stamp_s - self._last_s) < self._least_s:
            return False
        self._last_s = stamp_s
        return True


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


class LiftExpert:
    """Over the cube, square with it, down, close, up. Which of these follows from what it sees."""

    HOVER_M = 0.06  # above the cube's centre while moving sideways
    ALIGNED_M = 0.006
    ALIGNED_RAD = 0.1
    CLOSING_STEPS = 6  # 40 mm at 100 mm/s, and the grip builds up

    def __init__(self, task: LiftTask, skill: float) -> None:
        self._task, self._hand = task, Hand(skill)
        self.reset(np.random.default_rng(0))

    @property
    def hand(self) -> Hand:
        """Whose imperfections it has."""
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
        target = Pose(goal, _level(turn))
        return self._hand.move(task.spec.pose_action, tcp, target, gripper)


class PickInsertExpert:
    """Grasps as `LiftExpert`, then: up, across and square with the pocket, down, open."""

    CARRY_M = 0.05  # the cube's bottom above the table on the way across
    ALIGNED_M = 0.002  # before it goes down; on the way down twice that will do
    DOWN_M = 0.015  # per step
    RELEASE_M = 0.005  # the cube's bottom above the table when the fingers open

    def __init__(self, task: PickInsertTask, skill: float) -> None:
        self._task, self._pick = task, LiftExpert(task, skill)

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode."""
        self._pick.reset(rng)
        self._released = False

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """Action [7]; the last entry closes (-1) or opens (+1) the gripper."""
        task, tcp = self._task, state.tcp_in_base
        raised, way = task.raised_m(state), task.cube_to_pocket(state)
        grip = float(np.linalg.norm(task.cube_in_tcp(state)))
        held = grip < task.cube_m / 2 and state.gripper_width_m < task.cube_m + 0.004
        inside = float(np.hypot(*way[:2])) < task.clearance_m
        self._released = inside and (self._released or raised < self.RELEASE_M)
        if not self._released and not (held and raised > self.RELEASE_M / 2):
            return self._pick.act(state)
        hand, goal, gripper = self._pick.hand, tcp.position_m.copy(), -1.0
        yaw = task.pocket_yaw_rad(state)
        if self._released:
            gripper = 1.0
        else:
            ahead = LOOK_AHEAD_S * state.tcp_twist_in_base[:3]
            goal[:2] += way[:2] + hand.offset_m - ahead[:2]
            aside = float(np.hypot(*(way[:2] + hand.offset_m)))
            lowering = raised < self.CARRY_M - self.DOWN_M / 2 and inside
            aligned = aside < (2.0 if lowering else 1.0) * self.ALIGNED_M
            if aligned and abs(yaw) < LiftExpert.ALIGNED_RAD:
                goal[2] -= min(raised, self.DOWN_M)
            elif lowering:
                goal[2] -= ahead[2]  # wait until it is over the pocket again
            else:
                goal[2] += self.CARRY_M - raised - ahead[2]
            if raised < self.CARRY_M / 2 and not inside:
                goal[:2] = tcp.position_m[:2]  # up, before it goes across
        turn = quat_multiply(quat_from_rotvec((0.0, 0.0, yaw)), tcp.quaternion_xyzw)
        return hand.move(task.spec.pose_action, tcp, Pose(goal, _level(turn)), gripper)


def _level(quaternion_xyzw: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest rotation with the fingers straight down: keep only the yaw."""
    x, y, _, _ = quaternion_xyzw  # tool down, turned by yaw: (cos, sin, 0, 0) of half the yaw
    q = np.array((x, y, 0.0, 0.0))
    return q / float(np.linalg.norm(q))


class PegInsertExpert:
    """Align above the mouth, go down as far as aligned, search in a spiral when it rests."""

    HOVER_M = 0.003  # aligned at this height before going in
    GLIDE = 2.0  # height kept above the hover per metre of misalignment
    ALIGNED_M = 0.0008  # no descent below the hover beyond this, full descent at 0
    PUSH_M = 0.006  # per step into the hole: 12 N against a stop
    RESTING_STEPS = 3  # without descent, before the search begins
    SPIRAL_M = 0.00008  # radius gained per step of searching
    SPIRAL_MAX_M = 0.0015
    SPIRAL_RAD = 1.2

    def __init__(self, task: PegInsertTask, skill: float) -> None:
        self._task, self._hand = task, Hand(skill)
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode."""
        self._hand.reset(rng)
        self._ticks = Ticks(self._task.control_hz)
        self._last_z_m, self._resting, self._searched = np.inf, 0, 0

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """Action [6] towards the next place of the tip."""
        task, hole = self._task, state.objects["hole"]
        position, _ = task.tip_in_hole(state)
        velocity = rotate_inverse(hole.quaternion_xyzw, state.tcp_twist_in_base[:3])
        ahead = position + LOOK_AHEAD_S * velocity
        if self._ticks.new(state.stamp_s):
            self._watch(position, ahead)
        goal = self._goal(position, ahead)
        here = compose(hole, pose(position, TOOL_DOWN_XYZW))
        there = compose(hole, pose(goal + position - ahead, TOOL_DOWN_XYZW))
        step = pose(there.position_m - here.position_m + state.tcp_in_base.position_m)
        target = Pose(step.position_m, there.quaternion_xyzw)
        return self._hand.move(task.spec.pose_action, state.tcp_in_base, target)

    def _goal(self, tip: NDArray[np.float64], ahead: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where the tip should be at the end of this step, in the hole frame [3] m."""
        aim, z = self._hand.offset_m, float(tip[2])
        aside = float(np.hypot(*(ahead[:2] - aim)))
        if z < -0.001:  # in: go down, sideways the hole knows better
            return np.array((*ahead[:2], z - self.PUSH_M))
        if self._searched:
            radius = min(self.SPIRAL_M * self._searched, self.SPIRAL_MAX_M)
            angle = self.SPIRAL_RAD * self._searched
            circle = radius * np.array((np.cos(angle), np.sin(angle)))
            return np.array((*(aim + circle), z - self.PUSH_M / 2))
        if z > self.HOVER_M + 0.002 or aside > 3 * self.ALIGNED_M:
            height = self.HOVER_M + self.GLIDE * max(aside - self.ALIGNED_M, 0.0)
            return np.array((*aim, min(height, max(z, self.HOVER_M))))
        trust = max(1.0 - aside / self.ALIGNED_M, 0.0)
        return np.array((*aim, z - trust * self.PUSH_M))

    def _watch(self, tip: NDArray[np.float64], ahead: NDArray[np.float64]) -> None:
        """Count the steps in which the tip, believed to be aligned, does not descend."""
        z, aside = float(tip[2]), float(np.hypot(*(ahead[:2] - self._hand.offset_m)))
        near = -0.001 < z < 0.002 and aside < 2 * self.ALIGNED_M
        self._resting = self._resting + 1 if near and z > self._last_z_m - 0.0002 else 0
        self._last_z_m = z
        if self._resting >= self.RESTING_STEPS or self._searched:
            self._searched += 1
        if z < -0.002:
            self._searched = 0
