"""A task without code: poses of the arm in a YAML file say what is to be done, on any robot.

Start, goal, box and success are poses of the TCP in base, so it needs no tracked objects. What the
arm works on stands at a fixed place, or the cameras find it. `scene` names a simulated task with
the same things on the table, which stands in for the real one; a real arm ignores it.

`robot-rl task new` writes such a file (docs/tasks.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import register, resolve
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.geometry import (
    pose,
    quat_from_rotvec,
    quat_multiply,
    quat_to_rotvec,
    relative,
    rotate,
)
from robot_rl.ports import Expert, ResetPlan, TaskProgress
from robot_rl.robots import Robot
from robot_rl.tasks.common import FRONT, TOOL_DOWN_XYZW, WRIST, CameraView, Part, SimTask
from robot_rl.tasks.goals import Goal
from robot_rl.tasks.hand import LOOK_AHEAD_S, Hand
from robot_rl.types import Pose, RobotState

Vec3 = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]  # xyzw

TOOL_DOWN: Quaternion = (1.0, 0.0, 0.0, 0.0)
JUDGES = {
    "tcp_pose": "the TCP is within the tolerance of the goal",
    "person": "a person, with the success button",
    "topic": "another program, on the topic task/success (std_msgs/Bool)",
    "reward": "a model: reward=classifier or reward=vlm",
}
"""Who may say that the task has succeeded."""

RESETS = {
    "above": "straight up, across, down to the start; nobody is asked",
    "ask": "the same, and above the scene a person is asked to prepare it",
    "scripted": "through a list of poses, then to the start; nobody is asked",
}
COARSE_M, FINE_M, COARSE_RAD = 0.05, 0.002, 0.1  # units of the state, as in `peg_insert`
EPISODE_S = (1.0, 300.0)  # shorter is a typo, longer is not one episode
UNIT = 1e-3  # a norm further from 1 is no quaternion


@dataclass(frozen=True, kw_only=True)
class TcpPose:
    """A pose of the TCP in base, as `ros2 topic echo current_pose` shows it."""

    position_m: Vec3
    quaternion_xyzw: Quaternion = TOOL_DOWN  # fingers down, no yaw

    @cached_property
    def pose(self) -> Pose:
        """As the rest of the program has it."""
        return pose(self.position_m, self.quaternion_xyzw)


@dataclass(frozen=True, kw_only=True)
class ResetConfig:
    """How the arm gets to the start of the next episode."""

    by: str = "above"  # above | ask | scripted (`RESETS`)
    clear_z_m: float | None = None  # above, ask: go across at least this high; None = the start's z
    ask: str = ""  # ask: what the person has to prepare
    via_in_base: tuple[TcpPose, ...] = ()  # scripted: go through these, in this order


@register("task", "described")
@dataclass(frozen=True, kw_only=True)
class DescribedTask(SimTask):
    """Horizon, rate, action scale, cameras and box are the fields of every task (`SimTask`).

    Raises:
        ConfigError: a value that makes no sense; what depends on the robot is checked with it
            (`robot_rl.run.check_described`).
    """

    title: str = "described"  # the task's name in specs, records and reports
    instruction: str = ""  # in words, for people, and for models that read
    starts_in_base: tuple[TcpPose, ...]  # one of them is drawn for each episode
    start_spread_m: Vec3 = (0.0, 0.0, 0.0)  # half ranges along base x, y, z
    start_spread_rad: float = 0.0  # half range of the turn about base z
    goal_in_base: TcpPose | None = None  # None: positions are told from the first start
    tolerance_m: float = 0.002  # of the goal; together with reward.hold_steps
    tolerance_rad: float = 0.1
    judge: str = "tcp_pose"  # tcp_pose | person | topic | reward (`JUDGES`)
    workspace_min_m: Vec3 = field()  # the box of the TCP; no default fits a table of yours
    workspace_max_m: Vec3 = field()
    reset: ResetConfig = field(default_factory=ResetConfig)
    gripper: bool = False  # the policy opens and closes it
    gripper_width_m: float = 0.0  # at the start; 0 = closed, also on a part
    privileged: bool = False  # object poses are never observed
    scene: dict[str, Any] = field(default_factory=dict)  # a simulated task's section

    def __post_init__(self) -> None:
        """Check everything that does not depend on the robot."""
        if self.privileged:
            raise _wrong("privileged", "false: the poses of objects are unknown", True, "delete it")
        if self.asymmetric:
            raise _wrong(
                "asymmetric", "false: nobody knows more than the policy", True, "delete it"
            )
        self._check_words()
        self._check_poses()
        if self.scene:
            self._take_scene()
        super().__post_init__()
        low_s, high_s = EPISODE_S
        if not low_s <= self.max_steps / self.control_hz <= high_s:
            raise _wrong(
                "max_steps",
                f"an episode of {low_s:g} to {high_s:g} s",
                f"{self.max_steps} steps at {self.control_hz:g} Hz",
                "max_steps = seconds x control_hz",
            )

    @property
    def name(self) -> str:
        """The task's own title; all described tasks are registered as `described`."""
        return self.title

    # --- checks ----------------------------------------------------------------------------------

    def _check_words(self) -> None:
        reset = self.reset
        for key, value, known in (("judge", self.judge, JUDGES), ("reset.by", reset.by, RESETS)):
            if value not in known:
                words = "; ".join(f"{word}: {meaning}" for word, meaning in known.items())
                raise _wrong(key, words, value, did_you_mean(value, known))
        if not self.title.strip():
            raise _wrong("title", "a name", repr(self.title), "e.g. title: my_insert")
        if self.judge == "tcp_pose" and self.goal_in_base is None:
            fix = "give goal_in_base, or another judge: " + ", ".join(JUDGES)
            raise _wrong("goal_in_base", "a pose, because judge is tcp_pose", "none", fix)
        if bool(reset.ask.strip()) != (reset.by == "ask"):
            fix = "reset: {by: ask, ask: put the part back into the hand}"
            raise _wrong("reset.ask", "words if and only if reset.by is ask", repr(reset.ask), fix)
        if bool(reset.via_in_base) != (reset.by == "scripted"):
            got = f"{len(reset.via_in_base)} poses with reset.by {reset.by}"
            fix = "reset: {by: scripted, via_in_base: [{position_m: [x, y, z]}, ...]}"
            raise _wrong("reset.via_in_base", "poses if and only if it is scripted", got, fix)
        if reset.clear_z_m is not None and reset.by == "scripted":
            fix = "put that height into the poses of via_in_base"
            raise _wrong("reset.clear_z_m", "none where the way is scripted", reset.clear_z_m, fix)

    def _check_poses(self) -> None:
        low, high = self.workspace_min_m, self.workspace_max_m
        if not all(a < b for a, b in zip(low, high, strict=True)):
            fix = "the lower corner first: x, y, z in base"
            raise _wrong("workspace_min_m", f"each below workspace_max_m {high}", low, fix)
        if not self.starts_in_base:
            fix = "starts_in_base: [{position_m: [0.5, 0.0, 0.2]}]"
            raise _wrong("starts_in_base", "at least one pose", "none", fix)
        numbers = (*self.start_spread_m, self.start_spread_rad, self.gripper_width_m)
        if not all(0.0 <= number < math.inf for number in numbers):
            fix = "give half ranges, in m and rad"
            names = "start_spread_m, start_spread_rad, gripper_width_m"
            raise _wrong(names, "numbers of at least 0", numbers, fix)
        if not (0.0 < self.tolerance_m < math.inf and 0.0 < self.tolerance_rad <= math.pi):
            got = f"{self.tolerance_m} m, {self.tolerance_rad} rad"
            fix = "the defaults are 0.002 m and 0.1 rad"
            raise _wrong("tolerance_m, tolerance_rad", "above 0, at most pi rad", got, fix)
        for where, given in self.named_poses():
            _check_quaternion(where, given.quaternion_xyzw)
            spread = self.start_spread_m if where.startswith("starts") else (0.0, 0.0, 0.0)
            self._check_inside(where, given.position_m, spread)
        self._check_start_is_no_success()
        if self.reset.clear_z_m is not None:
            x, y, _ = self.starts_in_base[0].position_m
            self._check_inside("reset.clear_z_m", (x, y, self.reset.clear_z_m), (0.0, 0.0, 0.0))

    def _check_inside(self, where: str, at_m: Vec3, spread_m: Vec3) -> None:
        """Raise `ConfigError` unless the box holds a position with its spread."""
        low, high = self.workspace_min_m, self.workspace_max_m
        rows = zip("xyz", low, high, at_m, spread_m, strict=True)
        out = [
            f"{axis} {at:g}{f' +- {s:g}' if s else ''}, not within {a:g} to {b:g}"
            for axis, a, b, at, s in rows
            if not a <= at - s <= at + s <= b
        ]
        if out:
            fix = "widen workspace_min_m / workspace_max_m, or move the pose (metres, base)"
            if any(spread_m):
                fix += ", or lessen start_spread_m"
            raise _wrong(where, "a pose inside the box", "; ".join(out), fix)

    def _check_start_is_no_success(self) -> None:
        if self.judge != "tcp_pose" or self.goal_in_base is None:
            return
        for where, given in self.named_poses():
            away_m = math.dist(given.position_m, self.goal_in_base.position_m)
            if where.startswith("starts") and away_m <= self.tolerance_m:
                expected = f"more than tolerance_m ({self.tolerance_m:g} m) away from goal_in_base"
                raise _wrong(where, expected, f"{away_m:g} m", "move one of the two")

    def named_poses(self) -> list[tuple[str, TcpPose]]:
        """(key, pose) of every pose of the file."""
        goal = [] if self.goal_in_base is None else [("goal_in_base", self.goal_in_base)]
        starts = [(f"starts_in_base[{i}]", p) for i, p in enumerate(self.starts_in_base)]
        via = [(f"reset.via_in_base[{i}]", p) for i, p in enumerate(self.reset.via_in_base)]
        return [*starts, *goal, *via]

    # --- the simulated scene ---------------------------------------------------------------------

    @cached_property
    def staged(self) -> SimTask | None:
        """The simulated task that `scene` names, with this task's actions; None without a scene."""
        if not self.scene:
            return None
        task = resolve("task", self.scene)
        if not isinstance(task, SimTask) or isinstance(task, DescribedTask):
            fix = "scene: {name: peg_insert, variant: easy, hole_xy_m: 0.0}"
            raise _wrong("scene", "a simulated task with a scene", self.scene.get("name"), fix)
        names = ("max_steps", "control_hz", "translation_m", "rotation_rad", "gripper_open_m")
        names += ("action", "joint_rad", "joints")
        return replace(task, **{name: getattr(self, name) for name in names})

    def _take_scene(self) -> None:
        """Take over what the simulator needs to know of the scene beside its parts."""
        staged = self.staged
        assert staged is not None
        if staged.uses_gripper != self.gripper:
            fix = f"gripper: {str(staged.uses_gripper).lower()}, or another scene"
            raise _wrong("gripper", f"as in the scene {staged.name}", self.gripper, fix)
        object.__setattr__(self, "impedance", staged.impedance)
        object.__setattr__(self, "timestep_s", staged.timestep_s)

    def parts(self) -> tuple[Part, ...]:
        """The scene's; without one, the arm is alone."""
        return self.staged.parts() if self.staged else ()

    def cameras(self) -> dict[str, CameraView]:
        """The scene's; a camera that only the real robot has shows the front in simulation."""
        known = self.staged.cameras() if self.staged else super().cameras()
        return {**dict.fromkeys((n for n in self.images if n != WRIST), FRONT), **known}

    @property
    def uses_gripper(self) -> bool:
        return self.gripper

    @property
    def gripper_start_m(self) -> float:
        return self.gripper_width_m

    def truth(self, state: RobotState) -> bool | None:
        """What the scene's own rule says; None where there is no scene, or objects are unknown."""
        if self.staged is None or not state.objects:
            return None
        return self.staged.success(state)

    # --- start, observation, success -------------------------------------------------------------

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        """One of the starts with its spread; the scene's objects, where there is one."""
        given = self.starts_in_base[rng.integers(len(self.starts_in_base))].pose
        at = given.position_m + rng.uniform(-1.0, 1.0, 3) * self.start_spread_m
        turn = quat_from_rotvec((0.0, 0.0, rng.uniform(-1.0, 1.0) * self.start_spread_rad))
        staged = self.staged.sample_reset(rng) if self.staged else None
        return ResetPlan(
            tcp_in_base=pose(at, quat_multiply(turn, given.quaternion_xyzw)),
            objects=staged.objects if staged else {},
            gripper_width_m=self.gripper_width_m,
            held_in_tcp=staged.held_in_tcp if staged else None,
            clear_z_m=self.reset.clear_z_m,
            via=tuple(p.pose for p in self.reset.via_in_base),
            ask=self.reset.ask,
        )

    @property
    def needs_objects(self) -> bool:
        return False

    @property
    def is_blind(self) -> bool:
        return False

    @property
    def origin(self) -> Pose:
        """What positions are told from: the goal, or the first start."""
        return (self.goal_in_base or self.starts_in_base[0]).pose

    def own_layout(self) -> tuple[tuple[str, int, str], ...]:
        origin = "goal" if self.goal_in_base else "start"
        gripper = (("gripper_width", 1, "0.04 m"),) if self.gripper else ()
        return (
            (f"tcp_in_{origin}", 3, "50 mm"),
            (f"tcp_in_{origin}_fine", 3, "tanh of 2 mm"),
            (f"rotation_tcp_vs_{origin}", 3, "0.1 rad"),
            *gripper,
        )

    def own_state(self, state: RobotState) -> NDArray[np.float64]:
        away, turn = self._away(state.tcp_in_base)
        gripper = [state.gripper_width_m / 0.04] if self.gripper else []
        return np.concatenate((away / COARSE_M, np.tanh(away / FINE_M), turn / COARSE_RAD, gripper))

    _arm_layout, _arm_state = own_layout, own_state  # nothing of it is privileged

    def _away(self, tcp: Pose) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Position [3] m and rotation vector [3] rad of the TCP in the frame of `origin`."""
        there = relative(tcp, self.origin)
        return there.position_m, quat_to_rotvec(there.quaternion_xyzw)

    def tcp_position_m(self, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """Position [3] m of the TCP in base, from a recorded state vector of this task."""
        origin, away = self.origin, vector[:3].astype(np.float64) * COARSE_M
        return origin.position_m + rotate(origin.quaternion_xyzw, away)

    def success(self, state: RobotState) -> bool | None:
        """Whether the task has succeeded; None where the state cannot tell, and somebody else must.

        In a simulated scene, its own rule stands in for a person or a model.
        """
        if self.judge == "tcp_pose":
            away, turn = self._away(state.tcp_in_base)
            near = float(np.linalg.norm(away)) <= self.tolerance_m
            return near and float(np.linalg.norm(turn)) <= self.tolerance_rad
        if self.judge == "topic" and state.told_success is not None:
            return state.told_success
        return self.truth(state)

    def failure(self, state: RobotState) -> bool:
        """Whether the scene says that all is lost; on a real arm a person says it."""
        return self.staged.failure(state) if self.staged and state.objects else False

    def progress(self, state: RobotState) -> TaskProgress:
        """As the scene says; without one, the distance to the goal, where there is one."""
        if self.staged and state.objects:
            return self.staged.progress(state)
        if self.goal_in_base is None:
            return TaskProgress(0.0, 0.0)
        away, _ = self._away(state.tcp_in_base)
        return TaskProgress(max(float(np.linalg.norm(away)) - self.tolerance_m, 0.0), 0.0)

    def goal(self, state: RobotState) -> Goal | None:
        """The taught goal, for the TCP, with or without a scene; its z is against the tool's."""
        if self.goal_in_base is None:
            return None
        there = self.goal_in_base.pose
        back = Pose(there.position_m, quat_multiply(there.quaternion_xyzw, TOOL_DOWN_XYZW))
        return Goal(back, state.tcp_in_base, tolerance_m=self.tolerance_m)

    def expert(self, skill: float) -> Expert:
        """The scene's; without one, straight to the goal. In simulation only.

        Raises:
            ConfigError: there is neither a scene nor a goal.
        """
        if self.staged:
            return self.staged.expert(skill)
        if self.goal_in_base is None:
            raise ConfigError(
                f"nobody can show the task '{self.title}' by a script",
                expected="goal_in_base, or a scene whose expert knows the way",
                got="neither",
                fix="operator=gamepad, spacemouse or console: a person shows it",
            )
        return GoalExpert(self, skill)

    def with_robot(self, robot: Robot) -> Self:
        """See `SimTask`; refuses a gripper width that the robot's gripper does not have."""
        if self.gripper_width_m > robot.gripper.stroke_m:
            most = f"at most {robot.gripper.stroke_m} m, the stroke of the {robot.gripper.name}"
            raise _wrong("gripper_width_m", most, self.gripper_width_m, "0 = closed on the part")
        return super().with_robot(robot)


class GoalExpert:
    """Straight to the goal, braking in time."""

    def __init__(self, task: DescribedTask, skill: float) -> None:
        self._task, self._hand = task, Hand(skill)

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode."""
        self._hand.reset(rng)

    def act(self, state: RobotState) -> NDArray[np.float32]:
        """Action [A] towards the goal."""
        goal, brake_m = self._task.origin, LOOK_AHEAD_S * state.tcp_twist_in_base[:3]
        aim = np.array((*self._hand.offset_m, 0.0))
        target = Pose(goal.position_m + aim - brake_m, goal.quaternion_xyzw)
        return self._hand.move(self._task.spec.pose_action, state.tcp_in_base, target)


def _check_quaternion(where: str, xyzw: Quaternion) -> None:
    norm = math.sqrt(sum(number * number for number in xyzw))
    if not abs(norm - 1.0) <= UNIT:
        fix = f"x, y, z, w as ros2 topic echo current_pose shows them; fingers down: {TOOL_DOWN}"
        raise _wrong(f"{where}.quaternion_xyzw", "a unit quaternion", f"norm {norm:g}", fix)


def _wrong(key: str, expected: str, got: object, fix: str) -> ConfigError:
    names = ", ".join(f"task.{name}" for name in key.split(", "))
    return ConfigError(f"wrong value for {names}", expected=expected, got=str(got), fix=fix)
