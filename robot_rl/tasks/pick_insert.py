"""Pick and insert: grasp a cube, carry it over, put it into a square pocket and let go.

The longest task: four parts in a row, each of which can fail, and one reward at the end. The pocket
is a frame of four low walls on the table; the fingers stay above it.

With `post_m` a post stands loosely between the two, in the way of a cube that comes straight: who
carries it no higher goes around, on one side or the other. Pushing the post over ends the episode.
It stands in one place before the pocket: whoever observes the pocket knows where.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.geometry import POLAR, quat_from_rotvec, quat_multiply, quat_to_matrix, rotate_inverse
from robot_rl.ports import Expert, ResetPlan, TaskProgress
from robot_rl.tasks.common import Part, Primitive, upright
from robot_rl.tasks.goals import Goal
from robot_rl.tasks.hand import LOOK_AHEAD_S, level
from robot_rl.tasks.lift import LiftExpert, LiftTask
from robot_rl.types import Pose, RobotState

POCKET_XY_M = np.array((0.50, 0.09))
CUBE_XY_M = np.array((0.50, -0.06))
WALL_M, WALL_HEIGHT_M = 0.008, 0.012
CARRY_M = 0.05  # height of the cube's bottom above the table while it is carried
POST_HALF_M, POST_AWAY_M = (0.012, 0.006), 0.065  # across and along the way; from the pocket
POST_MOST_M = 0.05  # a higher one would hit the hand while the cube goes down
POST_KG, POST_MOVED_M = 0.05, 0.01  # moved by so much, it was pushed
POST_SPREAD_M = 0.03  # of cube and pocket together: otherwise open fingers may start on the post
SUNK_M = 0.004  # a cube this little above the table is in the pocket, not on its walls


@register("task", "pick_insert")
@dataclass(frozen=True, kw_only=True)
class PickInsertTask(LiftTask):
    """The cube and controller of `lift`; success = cube in the pocket, fingers open."""

    max_steps: int = 150  # the expert needs 60
    clearance_m: float = 0.006  # pocket width - cube width
    cube_xy_m: float = 0.04  # half range around its side of the table
    cube_yaw_rad: float = 0.3
    pocket_xy_m: float = 0.02  # half range
    post_m: float = 0.0  # height of the post; 0 = there is none

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.clearance_m <= 0.0:
            raise ValueError("clearance_m must be positive")
        if not 0.0 <= self.post_m <= POST_MOST_M:
            raise ValueError(f"post_m must lie in [0, {POST_MOST_M}]: the hand passes above it")
        if self.post_m and self.cube_xy_m + self.pocket_xy_m > POST_SPREAD_M:
            raise ValueError(f"with a post, cube_xy_m + pocket_xy_m must be <= {POST_SPREAD_M}")

    @property
    def name(self) -> str:
        """Registered name."""
        return "pick_insert"

    def parts(self) -> tuple[Part, ...]:
        """The cube, the pocket, and the post."""
        inner = (self.cube_m + self.clearance_m) / 2
        middle, z = inner + WALL_M / 2, WALL_HEIGHT_M / 2
        long, short = inner + WALL_M, WALL_M / 2
        walls = tuple(
            Primitive("box", size, centre, material="block")
            for size, centre in (
                ((short, long, z), (middle, 0.0, z)),
                ((short, long, z), (-middle, 0.0, z)),
                ((inner, short, z), (0.0, middle, z)),
                ((inner, short, z), (0.0, -middle, z)),
            )
        )
        pocket, half = Part("pocket", "fixture", walls), (*POST_HALF_M, self.post_m / 2)
        post = Part("post", "free", (Primitive("box", half),), POST_KG)
        return (*super().parts(), pocket, *((post,) if self.post_m else ()))

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        """Cube on one side of the table, pocket on the other, open hand above the middle."""
        plan = super().sample_reset(rng)
        cube_xy = CUBE_XY_M + rng.uniform(-self.cube_xy_m, self.cube_xy_m, 2)
        pocket_xy = POCKET_XY_M + rng.uniform(-self.pocket_xy_m, self.pocket_xy_m, 2)
        yaw = rng.uniform(-self.cube_yaw_rad, self.cube_yaw_rad)
        objects = {
            "cube": upright(np.array((*cube_xy, self.cube_m / 2)), yaw),
            "pocket": upright(np.array((*pocket_xy, 0.0))),
        }
        if self.post_m:
            objects["post"] = upright(self.post_place_m(objects["pocket"]))
        return ResetPlan(plan.tcp_in_base, objects, plan.gripper_width_m)

    def post_place_m(self, pocket: Pose) -> NDArray[np.float64]:
        """Where the post's centre [3] stands, in base."""
        return pocket.position_m + np.array((0.0, -POST_AWAY_M, self.post_m / 2))

    def failure(self, state: RobotState) -> bool:
        """Whether the cube is out of reach, or the post was pushed."""
        if not self.post_m:
            return super().failure(state)
        away = state.objects["post"].position_m - self.post_place_m(state.objects["pocket"])
        return super().failure(state) or float(np.linalg.norm(away)) > POST_MOVED_M

    def cube_to_pocket(self, state: RobotState) -> NDArray[np.float64]:
        """Vector [3] m from the cube's centre to where it has to be, in base."""
        resting = np.array((0.0, 0.0, self.cube_m / 2))
        return state.objects["pocket"].position_m + resting - state.objects["cube"].position_m

    def pocket_yaw_rad(self, state: RobotState) -> float:
        """Turn about base z that squares the cube with the pocket, in [-pi/4, pi/4]."""
        x = [quat_to_matrix(state.objects[k].quaternion_xyzw)[:, 0] for k in ("pocket", "cube")]
        turn = math.atan2(x[0][1], x[0][0]) - math.atan2(x[1][1], x[1][0])
        quarter = math.pi / 2
        return turn - quarter * round(turn / quarter)

    def own_layout(self) -> tuple[tuple[str, int, str], ...]:
        return (
            *super().own_layout(),
            ("cube_to_pocket", 3, "100 mm, in the TCP"),
            ("cube_to_pocket_fine", 3, "tanh of 5 mm"),
            ("cube_yaw_vs_pocket", 2, "sin and cos of 4 x angle"),
        )

    def own_mirror(self) -> tuple[tuple[int, ...], ...]:
        return (*super().own_mirror(), POLAR, POLAR, (-1, 1))

    def own_state(self, state: RobotState) -> NDArray[np.float64]:
        way = rotate_inverse(state.tcp_in_base.quaternion_xyzw, self.cube_to_pocket(state))
        yaw = 4.0 * self.pocket_yaw_rad(state)
        more = (*(way / 0.1), *np.tanh(way / 0.005), math.sin(yaw), math.cos(yaw))
        return np.concatenate((super().own_state(state), more))

    def in_pocket(self, state: RobotState) -> bool:
        """Whether the cube is within the walls and all the way down."""
        x, y, z = self.cube_to_pocket(state)
        return max(abs(x), abs(y)) < self.clearance_m / 2 + 0.002 and abs(z) < SUNK_M

    def success(self, state: RobotState) -> bool:
        """Whether the cube is in the pocket and the fingers no longer hold it."""
        return self.in_pocket(state) and state.gripper_width_m > self.cube_m + 0.005

    def progress(self, state: RobotState) -> TaskProgress:
        """Way left = hand to cube, up, across, down; corridor = a funnel above the cube."""
        away = float(np.linalg.norm(self.cube_in_tcp(state)))
        across = float(np.hypot(*self.cube_to_pocket(state)[:2]))
        raised = max(self.raised_m(state), 0.0)
        down = raised
        if across > self.clearance_m:
            down = across + max(CARRY_M - raised, 0.0) + CARRY_M
        above = state.tcp_in_base.position_m - state.objects["cube"].position_m
        outside = math.hypot(above[0], above[1]) - max(float(above[2]) - 0.02, 0.0)
        held = self.in_pocket(state)  # afterwards the hand may go where it likes
        remaining = down if held else away + down
        return TaskProgress(
            0.0 if self.success(state) else remaining + 1e-3, 0.0 if held else max(outside, 0.0)
        )

    def goal(self, state: RobotState) -> Goal:
        """The cube, for the open hand; once it is held, its place in the pocket."""
        if not (self.holds_cube(state) or self.in_pocket(state)):
            return super().goal(state)
        cube, half = state.objects["cube"], ((self.cube_m + self.clearance_m) / 2,) * 2
        at_m, turn = cube.position_m + self.cube_to_pocket(state), state.objects["pocket"]
        return Goal(Pose(at_m, turn.quaternion_xyzw), cube, half, self.clearance_m / 2)

    def expert(self, skill: float) -> Expert:
        """As for `lift`, then across, square with the pocket, down, open."""
        return PickInsertExpert(self, skill)


class PickInsertExpert:
    """Grasps as `LiftExpert`, then: up, across and square with the pocket, down, open."""

    CARRY_M = 0.05  # height of the cube's bottom above the table on the way across
    ALIGNED_M = 0.002  # before the cube goes down; on the way down twice this is enough
    DOWN_M = 0.015  # per step
    RELEASE_M = 0.005  # height of the cube's bottom above the table when the fingers open

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
        inside = float(np.hypot(*way[:2])) < task.clearance_m
        self._released = inside and (self._released or raised < self.RELEASE_M)
        if not self._released and not (task.holds_cube(state) and raised > self.RELEASE_M / 2):
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
        return hand.move(task.spec.pose_action, tcp, Pose(goal, level(turn)), gripper)
