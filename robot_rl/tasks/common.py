"""What every simulated task shares: engine-neutral parts, controller numbers, the common state.

Frames: base = world, z up, origin in the robot's foot at the height of the table top. TCP: z out of
the fingers; at `TOOL_DOWN` its x is base x and its y is minus base y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.geometry import (
    AXIAL,
    POLAR,
    compose,
    pose,
    quat_conjugate,
    quat_from_rotvec,
    quat_multiply,
    quat_to_matrix,
    quat_to_rotvec,
    rotate_inverse,
)
from robot_rl.ports import Expert, ResetPlan, TaskProgress
from robot_rl.robots import Robot
from robot_rl.spec import PRIVILEGED, ActionSpec, JointActionSpec, Spec, TensorSpec
from robot_rl.tasks.randomize import Asked, Range, drawn_once, ranges_of
from robot_rl.types import Observation, Pose, RobotState

TOOL_DOWN_XYZW = np.array((1.0, 0.0, 0.0, 0.0))
"""Fingers point at the table: half a turn about base x."""

WRIST = "wrist"
"""The camera that every simulated robot has; a task says which others its scene has."""
VIEWS = OVERVIEW, AT_WRIST, ALONG_TOOL = "video", "video_wrist", "video_tool"
"""Views of a simulated scene that are drawn for the person, at the size of a screen."""

TWIST_SCALE = np.repeat((10.0, 2.0), 3)
"""1 / (0.1 m/s, 0.5 rad/s): about the fastest the impedance controller moves."""

WRENCH_SCALE = np.repeat((0.1, 2.0), 3)
"""1 / (10 N, 0.5 Nm): stiffness x reference clip, so contact reads about 1."""

ACTIONS = {
    "tcp": "an action moves the TCP (translation_m, rotation_rad)",
    "joint": "an action moves the joints (joint_rad)",
}
"""Words for `SimTask.action`."""

HIDDEN = PRIVILEGED + "state"
"""The entry of the observation that only critics see (`SimTask.asymmetric`)."""

JOINT_SCALE = 1.0 / 0.3
"""1 / 0.3 rad: about as far as a joint goes from home within a task's box."""

WRENCH_CLIP = 2.0
"""Largest scaled entry: an impact of 100 N tells a policy no more than one of 20 N."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """One shape of a part, in the part's frame.

    shape: box | capsule | cylinder | sphere; size_m: box half extents; capsule and cylinder
    radius, half length (axis z); sphere radius. material: a name of `scene.MATERIALS`;
    collides=False: picture only.
    """

    shape: str
    size_m: tuple[float, ...]
    position_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quaternion_xyzw: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)
    material: str = "steel"
    collides: bool = True


@dataclass(frozen=True, slots=True)
class Joint:
    """How a part moves in the fixture that it is mounted on: a drawer, a lid, a switch.

    Quantities of a slide are in m and N, those of a hinge in rad and Nm. The two parts do not
    collide with each other.

    kind: "slide" | "hinge"; mount: name of the fixture; position_m: the part's origin in the
    fixture's frame when the joint stands at 0 (the part is then turned like the fixture); axis: in
    the fixture's frame; a hinge turns about the part's origin. low, high: ends of its range.
    friction: dry; damping: per m/s or rad/s; spring: stiffness towards spring_at. catch: a detent,
    which adds this much dry friction within catch_width of catch_at.
    """

    kind: str
    mount: str
    low: float
    high: float
    axis: tuple[float, float, float] = (1.0, 0.0, 0.0)
    position_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    friction: float = 0.0
    damping: float = 0.0
    spring: float = 0.0
    spring_at: float = 0.0
    catch: float = 0.0
    catch_at: float = 0.0
    catch_width: float = 0.0

    def __post_init__(self) -> None:
        """Check kind, axis and signs."""
        if self.kind not in ("slide", "hinge"):
            raise ValueError(f"a joint's kind must be slide or hinge, got {self.kind!r}")
        if abs(float(np.linalg.norm(self.axis)) - 1.0) > 1e-6:
            raise ValueError(f"a joint's axis must be a unit vector, got {self.axis}")
        if not self.low < self.high:
            raise ValueError(f"a joint needs low < high, got {self.low} and {self.high}")
        if self.kind == "hinge" and max(-self.low, self.high) > np.pi:
            raise ValueError("a hinge turns by at most pi to either side")
        numbers = (self.friction, self.damping, self.spring, self.catch, self.catch_width)
        if min(numbers) < 0.0:
            raise ValueError("friction, damping, spring, catch, catch_width must not be negative")

    def part_in_base(self, mount_in_base: Pose, position: float) -> Pose:
        """Pose of the part when the joint stands at `position`, as a `ResetPlan` needs it."""
        slid, turned = (position, 0.0) if self.kind == "slide" else (0.0, position)
        axis = np.array(self.axis)
        place = pose(np.array(self.position_m) + slid * axis, quat_from_rotvec(turned * axis))
        return compose(mount_in_base, place)

    def position(self, mount_in_base: Pose, part_in_base: Pose) -> float:
        """Where the joint stands (m or rad): the inverse of `part_in_base`."""
        axis, mount = np.array(self.axis), mount_in_base
        if self.kind == "slide":
            way = part_in_base.position_m - mount.position_m
            way = rotate_inverse(mount.quaternion_xyzw, way) - self.position_m
            return float(way @ axis)
        back = quat_conjugate(mount.quaternion_xyzw)
        return float(quat_to_rotvec(quat_multiply(back, part_in_base.quaternion_xyzw)) @ axis)


@dataclass(frozen=True, slots=True)
class Part:
    """A thing in the scene. Its name is its key in `ResetPlan.objects` and `RobotState.objects`.

    role: "held" (clamped in the hand, posed by `ResetPlan.held_in_tcp`), "fixture" (bolted down,
    moved only between episodes), "jointed" (moves in a fixture as `joint` says), "free" (six
    degrees of freedom) or "marker" (picture only).
    """

    name: str
    role: str
    primitives: tuple[Primitive, ...]
    mass_kg: float = 0.0  # held, jointed and free parts
    friction: float = 0.5  # sliding, Coulomb
    joint: Joint | None = None  # of a jointed part


@dataclass(frozen=True, slots=True)
class CameraView:
    """A simulated camera that stands still, in base. fovy_deg: vertical angle of view."""

    position_m: tuple[float, float, float]
    look_at_m: tuple[float, float, float]
    fovy_deg: float = 42.0


FRONT = CameraView((0.94, 0.0, 0.36), (0.49, 0.0, 0.09))
"""View from opposite the robot, over the table."""


@dataclass(frozen=True, kw_only=True)
class ImpedanceConfig:
    """Cartesian impedance with reference clipping, the controller of SERL / HIL-SERL.

    force = stiffness * clip(target - tcp, +-clip) - damping * twist, all in the target's frame;
    stiffness * clip is therefore the largest contact force at rest.
    """

    stiffness_n_m: float = 2000.0  # SERL and HIL-SERL, every task but one
    stiffness_nm_rad: float = 150.0
    damping_ns_m: float = 89.0
    damping_nms_rad: float = 7.0
    clip_m: tuple[float, float, float] = (0.02, 0.02, 0.02)  # free motion: 40 N, 0.45 m/s
    clip_rad: tuple[float, float, float] = (0.1, 0.1, 0.1)
    filter_s: float = 0.02  # time constant of the target filter: 99 % within one 10 Hz period

    def __post_init__(self) -> None:
        """Check signs."""
        numbers = (self.stiffness_n_m, self.stiffness_nm_rad, *self.clip_m, *self.clip_rad)
        if min(numbers) <= 0 or min(self.damping_ns_m, self.damping_nms_rad, self.filter_s) < 0:
            raise ValueError("stiffness and clip must be positive, damping and filter_s >= 0")


@dataclass(frozen=True, kw_only=True)
class SimTask(ABC):
    """Fields and methods common to the tasks; a subclass says what is to be done.

    The state vector is the subclass's own entries (`own_state`), then TCP twist and `wrench`.
    Without `privileged` it holds only what a real robot knows: TCP pose and gripper width take the
    place of the subclass's entries, which tell where the objects are; `asymmetric` shows these to
    the critics alone (asymmetric actor critic, arXiv 1710.06542). Where the actions move the
    joints, their angles come last.
    """

    max_steps: int = 100  # SERL and HIL-SERL insertion tasks: 10 s
    control_hz: float = 10.0  # SERL and HIL-SERL policies
    translation_m: float = 0.01  # of one action unit
    rotation_rad: float = 0.06
    action: str = "tcp"  # what an action moves: tcp | joint (`ACTIONS`)
    joint_rad: float = 0.02  # of one action unit, each joint
    images: tuple[str, ...] = ()  # cameras in the observation; () = state only
    privileged: bool = True  # object poses in the observation; False = the cameras must find them
    asymmetric: bool = False  # critics see the object poses that the policy does not
    wrench: bool = True  # force and torque are observed; false where nothing measures them
    image_size: int | tuple[int, int] = 128  # pixels: a square's side (SERL, HIL-SERL), or [H, W]
    timestep_s: float = 0.002  # physics and impedance at 500 Hz
    workspace_min_m: tuple[float, float, float] = (0.35, -0.25, 0.01)  # of the TCP
    workspace_max_m: tuple[float, float, float] = (0.65, 0.25, 0.40)
    max_tilt_rad: float = 0.3  # HIL-SERL bounds roll, pitch and yaw of every task, too
    max_yaw_rad: float = 1.0  # joint 7 has 2.1 rad of room on its short side
    impedance: ImpedanceConfig = field(default_factory=ImpedanceConfig)
    gripper_open_m: float = 0.08  # of the robot (`with_robot`): what the action "open" asks for
    joints: dict[str, float] = field(default_factory=dict[str, float])  # its joints -> home (rad)
    randomize: str = "none"  # what differs between episodes: none | light | real | cameras
    ranges: dict[str, Asked] = field(default_factory=dict[str, Asked])  # by how much, how long

    @property
    @abstractmethod
    def name(self) -> str:
        """Registered name."""

    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """What the scene holds beside robot and table."""

    def cameras(self) -> dict[str, CameraView]:
        """Cameras of the scene beside the robot's own at the wrist; `images` chooses among them."""
        return {"front": FRONT}

    @abstractmethod
    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        """Draw how the next episode starts."""

    @abstractmethod
    def success(self, state: RobotState) -> bool | None:
        """Honest success predicate on ground truth (instantaneous); see `ports.Task`."""

    @abstractmethod
    def failure(self, state: RobotState) -> bool:
        """True when the episode is lost for good."""

    @abstractmethod
    def progress(self, state: RobotState) -> TaskProgress:
        """How far the task has come."""

    @abstractmethod
    def expert(self, skill: float) -> Expert:
        """The scripted expert; `skill` in [0, 1]."""

    @abstractmethod
    def own_layout(self) -> tuple[tuple[str, int, str], ...]:
        """(name, size, unit) of the task's own state entries."""

    def own_mirror(self) -> tuple[tuple[int, ...], ...]:
        """Signs of the task's own state entries in a mirror, left <-> right."""
        return ()

    @property
    def mirror(self) -> dict[str, tuple[int, ...]] | None:
        """Signs of each part of the state in the mirror y -> -y of the base (`learn.mirror`).

        None without privileged state, and where the actions move joints: arms are not symmetric.
        """
        own = self.own_mirror()
        if not own or not self.privileged or self.moves_joints:
            return None
        names = [name for name, _, _ in (*self.own_layout(), *self._felt_layout)]
        felt = (POLAR, AXIAL, POLAR, AXIAL)[: len(self._felt_layout)]
        return dict(zip(names, (*own, *felt), strict=True))

    @abstractmethod
    def own_state(self, state: RobotState) -> NDArray[np.float64]:
        """The task's own state entries, as `own_layout` says."""

    def __post_init__(self) -> None:
        """Check ranges; subclasses add theirs."""
        known = (WRIST, *self.cameras())
        unknown = set(self.images) - set(known)
        if unknown:
            raise ValueError(f"images must be among {known}, got {sorted(unknown)}")
        if self.asymmetric and self.privileged:
            raise ValueError(
                "asymmetric=true, but nothing is hidden from the policy: set privileged=false, "
                "with images"
            )
        if self.is_blind:
            raise ValueError("without privileged state the task needs images, e.g. [wrist, front]")
        if self.action not in ACTIONS:
            words = "; ".join(f"{word}: {meaning}" for word, meaning in ACTIONS.items())
            hint = did_you_mean(self.action, ACTIONS)
            raise ValueError(f"action must be one of {words}; got {self.action!r} ({hint})")
        ranges_of(self.randomize, self.ranges, self.images)
        if not 0.0 < self.joint_rad <= 0.5:
            raise ValueError(f"joint_rad must lie in (0, 0.5], got {self.joint_rad}")
        if min(self.max_steps, *self._picture_size) < 1:
            raise ValueError("max_steps and image_size must be at least 1")
        if not 0 < self.timestep_s <= 0.002:
            raise ValueError("timestep_s must lie in (0, 0.002]: the impedance law needs 500 Hz")
        if not 1.0 <= self.control_hz <= 50.0:
            raise ValueError("control_hz must lie in [1, 50]")
        if min(self.translation_m, self.rotation_rad, self.max_tilt_rad, self.max_yaw_rad) <= 0:
            raise ValueError("translation_m, rotation_rad and the pose box must be positive")
        if not all(a < b for a, b in zip(self.workspace_min_m, self.workspace_max_m, strict=True)):
            raise ValueError("workspace_min_m must lie below workspace_max_m")

    @cached_property
    def spec(self) -> Spec:
        """Observation, action, control rate of this task."""
        own = self.own_layout() if self.privileged else self._arm_layout()
        layout = (*own, *self._felt_layout)
        if self.moves_joints:
            layout = (*layout, ("joint_position", len(self.joints), "0.3 rad from home"))
        image = TensorSpec((*self._picture_size, 3), "uint8")
        own_size = sum(size for _, size, _ in self.own_layout())
        return Spec(
            task=self.name,
            control_hz=self.control_hz,
            observation={
                "state": TensorSpec((sum(size for _, size, _ in layout),), "float32"),
                **{f"image/{camera}": image for camera in self.images},
                **({HIDDEN: TensorSpec((own_size,), "float32")} if self.asymmetric else {}),
            },
            action=self._action_spec(),
            state_layout=layout,
        )

    def _action_spec(self) -> ActionSpec | JointActionSpec:
        """Raises `ConfigError` when the actions move joints, and no robot has told its own."""
        hand = ActionSpec(
            self.translation_m,
            self.rotation_rad,
            gripper=self.uses_gripper,
            gripper_open_m=self.gripper_open_m,
        )
        if not self.moves_joints:
            return hand
        if not self.joints:
            raise ConfigError(
                f"the actions of task {self.name} move joints, and no robot has told which",
                expected="a task of a robot",
                got="joints: {}",
                fix="task.with_robot(robot)",
            )
        return JointActionSpec(tuple(self.joints), self.joint_rad, hand)

    @property
    def drawn_ranges(self) -> dict[str, Range]:
        """What differs between episodes in simulation (`tasks.randomize`); {} = nothing.

        In a task that was not told its run (`of_run`), as in a run with seed 0.
        """
        return ranges_of(self.randomize, self.of_run(0).ranges, self.images)

    def of_run(self, seed: int) -> Self:
        """The same task in the run with this seed, which decides all that is drawn once per run."""
        ranges = drawn_once(self.randomize, self.ranges, self.images, seed)
        return self if ranges == self.ranges else replace(self, ranges=ranges)

    @property
    def moves_joints(self) -> bool:
        """Whether the actions move the joints, not the TCP."""
        return self.action == "joint"

    @property
    def _felt_layout(self) -> tuple[tuple[str, int, str], ...]:
        """Of the state: what the arm itself feels."""
        return FELT_LAYOUT if self.wrench else FELT_LAYOUT[:2]

    @property
    def _picture_size(self) -> tuple[int, int]:
        """(height, width) of every camera's picture in the observation."""
        size = self.image_size
        return (size, size) if isinstance(size, int) else size

    def with_robot(self, robot: Robot) -> Self:
        """The same task for `robot`: its gripper decides what the action "open" asks for.

        Raises:
            ConfigError: the task grasps, and the robot has a tool without fingers.
        """
        if self.uses_gripper and not robot.gripper.fingers:
            raise ConfigError(
                f"the task {self.name} grasps, and {robot.title} has no fingers",
                expected="a robot with a gripper",
                got=f"gripper: {robot.gripper.name}",
                fix="robot-rl robot new URDF --gripper robotiq_2f85 (or franka_hand), or a task "
                "that does not grasp: reach, peg_insert",
            )
        home = dict(zip(robot.joint_names, robot.home_rad, strict=True))
        return replace(
            self,
            gripper_open_m=robot.gripper.stroke_m,
            joints=home if self.moves_joints else {},
        )

    @property
    def uses_gripper(self) -> bool:
        """Whether the action has a gripper entry; otherwise the fingers do not move."""
        return False

    @property
    def needs_objects(self) -> bool:
        """Whether poses of objects have to be known on a real arm, too."""
        return True

    @property
    def is_blind(self) -> bool:
        """Whether nothing in the observation says where the objects are."""
        return not self.privileged and not self.images

    @property
    def gripper_start_m(self) -> float:
        """Gripper width at the start of an episode."""
        return 0.0

    def observe(self, state: RobotState, images: dict[str, NDArray[np.uint8]]) -> Observation:
        """Build the policy's observation: task entries, then TCP twist and wrench, plus images."""
        to_base = quat_to_matrix(state.tcp_in_base.quaternion_xyzw)
        twist = (state.tcp_twist_in_base.reshape(2, 3) @ to_base).ravel() * TWIST_SCALE
        wrench = (state.wrench_in_tcp * WRENCH_SCALE).clip(-WRENCH_CLIP, WRENCH_CLIP)
        felt = (twist, wrench) if self.wrench else (twist,)
        own = self.own_state(state) if self.privileged else self._arm_state(state)
        home_rad = np.array(tuple(self.joints.values()))  # empty unless the actions move joints
        away = (state.joint_position_rad[: len(home_rad)] - home_rad) * JOINT_SCALE
        vector = np.concatenate((own, *felt, away)).astype(np.float32)
        seen = {"state": vector} | {f"image/{name}": images[name] for name in self.images}
        if self.asymmetric:
            seen[HIDDEN] = self.own_state(state).astype(np.float32)
        return seen

    def _arm_layout(self) -> tuple[tuple[str, int, str], ...]:
        gripper = (("gripper_width", 1, "0.04 m"),) if self.uses_gripper else ()
        return (
            ("tcp_in_workspace", 3, "0.1 m from its middle"),
            ("tcp_rotation", 3, "0.1 rad from tool down"),
            *gripper,
        )

    def _arm_state(self, state: RobotState) -> NDArray[np.float64]:
        tcp = state.tcp_in_base
        middle = (np.array(self.workspace_min_m) + np.array(self.workspace_max_m)) / 2
        turn = quat_multiply(quat_conjugate(TOOL_DOWN_XYZW), tcp.quaternion_xyzw)
        gripper = [state.gripper_width_m / 0.04] if self.uses_gripper else []
        return np.concatenate(
            ((tcp.position_m - middle) / 0.1, quat_to_rotvec(turn) / 0.1, gripper)
        )


FELT_LAYOUT = (
    ("tcp_linear_velocity_in_tcp", 3, "0.1 m/s"),
    ("tcp_angular_velocity_in_tcp", 3, "0.5 rad/s"),
    ("force_in_tcp", 3, "10 N, clipped at 2"),
    ("torque_in_tcp", 3, "0.5 Nm, clipped at 2"),
)


def tool_down(position_m: NDArray[np.float64], yaw_rad: float = 0.0) -> Pose:
    """TCP pose with the fingers down, turned by `yaw_rad` about base z."""
    turn = quat_from_rotvec((0.0, 0.0, yaw_rad))
    return pose(position_m, quat_multiply(turn, TOOL_DOWN_XYZW))


def upright(position_m: NDArray[np.float64], yaw_rad: float = 0.0) -> Pose:
    """Object pose with z up, turned by `yaw_rad`."""
    return pose(position_m, quat_from_rotvec((0.0, 0.0, yaw_rad)))
