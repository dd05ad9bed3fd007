"""Peg insertion: a square peg clamped in the hand goes 25 mm into a square hole.

Peg: a square bar whose four long edges and tip corners are rounded (radius = width / 8, 1 mm on the
8 mm peg; dowel pins have chamfers of about that size). Collision: four capsules, one per long edge.
In a hole with flat walls a square bar can touch only along those edges, so nothing is lost there;
outside, the flat end face could also rest on the hole's rim between two edges, which would need a
tilt of 0.1 rad that the impedance controller does not allow. The hole is four boxes and a floor.

Held-part frame `peg`: origin in the middle of the tip, z along the insertion (out of the hand).
`hole` frame: origin in the middle of the mouth, z up (out of the hole).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.geometry import (
    AXIAL,
    POLAR,
    compose,
    pose,
    quat_conjugate,
    quat_multiply,
    quat_to_rotvec,
    rotate_inverse,
)
from robot_rl.ports import Expert, ResetPlan, TaskProgress
from robot_rl.tasks.common import (
    TOOL_DOWN_XYZW,
    ImpedanceConfig,
    Part,
    Primitive,
    SimTask,
    tool_down,
    upright,
)
from robot_rl.tasks.goals import Goal
from robot_rl.tasks.hand import LOOK_AHEAD_S, Hand, Ticks
from robot_rl.types import Pose, RobotState

VARIANTS = {"easy": (0.016, 0.002), "std": (0.008, 0.0005), "hard": (0.008, 0.0001)}
"""variant -> (peg width, clearance = hole width - peg width), m."""

DEPTH_M = 0.025  # of the hole
SUCCESS_DEPTH_M = 0.023
PROTRUSION_M = 0.040  # of the peg beyond the TCP: 25 mm go in, the fingertips stay outside
PEG_LENGTH_M = 0.050  # Factory's peg
FIXTURE_M = (0.030, 0.030, 0.015)  # half extents: a 60 x 60 x 30 mm block
HOLE_XY_M = np.array((0.50, 0.0))
MOUTH_Z_M = 2 * FIXTURE_M[2]


@dataclass(frozen=True, kw_only=True)
class PegImpedance(ImpedanceConfig):
    """SERL's peg: at most 6 N sideways, 20 N down, 3 Nm."""

    clip_m: tuple[float, float, float] = (0.003, 0.003, 0.010)
    clip_rad: tuple[float, float, float] = (0.02, 0.02, 0.02)


@register("task", "peg_insert")
@dataclass(frozen=True, kw_only=True)
class PegInsertTask(SimTask):
    """HIL-SERL's RAM insertion numbers on a peg: see `ImpedanceConfig` and the fields below."""

    variant: str = "std"  # easy | std | hard: 2 / 0.5 / 0.1 mm clearance
    start_height_m: float = 0.05  # tip above the mouth (RAM: 5 cm)
    start_xy_m: float = 0.02  # half range of the tip around the hole (RAM: +-2 cm)
    start_yaw_rad: float = 0.1  # half range (RAM: 0.05, USB: 0.1)
    hole_xy_m: float = 0.01  # half range of the hole, so that only the relative pose can be learned
    hole_yaw_rad: float = 0.0
    in_hand_m: float = 0.0  # half range of an unseen shift of the peg in the hand (Factory: 3 mm)
    friction: float = 0.3  # steel on steel, lightly oiled
    timestep_s: float = 0.002  # the hard variant halves it: penetration scales with its square
    workspace_min_m: tuple[float, float, float] = (0.44, -0.06, 0.03)
    workspace_max_m: tuple[float, float, float] = (0.56, 0.06, 0.16)
    max_tilt_rad: float = 0.2
    max_yaw_rad: float = 0.4  # RAM
    impedance: PegImpedance = field(default_factory=PegImpedance)

    def __post_init__(self) -> None:
        """Check the variant; the hard one gets a finer time step."""
        if self.variant not in VARIANTS:
            raise ValueError(f"variant must be one of {sorted(VARIANTS)}, got {self.variant!r}")
        if self.variant == "hard":
            object.__setattr__(self, "timestep_s", min(self.timestep_s, 0.001))
        if not 0 < self.start_height_m <= 0.1 or min(self.start_xy_m, self.friction) < 0:
            raise ValueError("start_height_m must lie in (0, 0.1]; ranges must not be negative")
        super().__post_init__()

    @property
    def name(self) -> str:
        """Registered name."""
        return "peg_insert"

    @property
    def peg_width_m(self) -> float:
        """Side of the square peg."""
        return VARIANTS[self.variant][0]

    @property
    def hole_width_m(self) -> float:
        """Side of the square hole."""
        return sum(VARIANTS[self.variant])

    @property
    def gripper_start_m(self) -> float:
        """Closed on the peg."""
        return self.peg_width_m

    @property
    def nominal_held_in_tcp(self) -> Pose:
        """Where the peg is believed to be in the hand."""
        return pose((0.0, 0.0, PROTRUSION_M))

    def parts(self) -> tuple[Part, ...]:
        """The peg and the block with the hole."""
        mass_kg = self.peg_width_m**2 * PEG_LENGTH_M * 7850  # steel
        return (
            Part("peg", "held", _peg(self.peg_width_m), mass_kg, self.friction),
            Part("hole", "fixture", _fixture(self.hole_width_m), friction=self.friction),
        )

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        """Hole near its nominal place; tip `start_height_m` above it, off to the side, turned."""
        hole_xy = HOLE_XY_M + rng.uniform(-1, 1, 2) * self.hole_xy_m
        hole = upright(np.array((*hole_xy, MOUTH_Z_M)), rng.uniform(-1, 1) * self.hole_yaw_rad)
        tip_xy = hole_xy + rng.uniform(-1, 1, 2) * self.start_xy_m
        height = MOUTH_Z_M + self.start_height_m + PROTRUSION_M
        yaw = rng.uniform(-1, 1) * self.start_yaw_rad
        shift = rng.uniform(-1, 1, 3) * (self.in_hand_m, 0.0, self.in_hand_m)
        return ResetPlan(
            tcp_in_base=tool_down(np.array((*tip_xy, height)), yaw),
            objects={"hole": hole},
            gripper_width_m=self.gripper_start_m,
            held_in_tcp=compose(pose(shift), self.nominal_held_in_tcp),
        )

    def tip_in_hole(self, state: RobotState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Tip position [3] m in the hole frame, and rotation vector [3] rad that is 0 when aligned.

        Uses the nominal pose in the hand, as a policy on a real arm must.
        """
        return self.pose_error(state.tcp_in_base, state.objects["hole"])

    def pose_error(self, tcp: Pose, hole: Pose) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`tip_in_hole` of any TCP and hole pose."""
        tip = compose(tcp, self.nominal_held_in_tcp)
        position = rotate_inverse(hole.quaternion_xyzw, tip.position_m - hole.position_m)
        aligned = quat_multiply(hole.quaternion_xyzw, TOOL_DOWN_XYZW)
        error = quat_multiply(quat_conjugate(aligned), tip.quaternion_xyzw)
        return position, quat_to_rotvec(error)

    def own_layout(self) -> tuple[tuple[str, int, str], ...]:
        return (
            ("tip_in_hole", 3, "50 mm"),
            ("tip_in_hole_fine", 3, "tanh of 2 mm"),
            ("rotation_peg_vs_hole", 3, "0.1 rad"),
        )

    def own_mirror(self) -> tuple[tuple[int, ...], ...]:
        return POLAR, POLAR, AXIAL

    def own_state(self, state: RobotState) -> NDArray[np.float64]:
        position, rotation = self.tip_in_hole(state)
        return np.concatenate((position / 0.05, np.tanh(position / 0.002), rotation / 0.1))

    def success(self, state: RobotState) -> bool:
        """Whether the tip is 23 of 25 mm deep, inside the hole."""
        (x, y, z), _ = self.tip_in_hole(state)
        inside = max(abs(x), abs(y)) < self.hole_width_m / 2
        return bool(inside and z <= -SUCCESS_DEPTH_M)

    def failure(self, state: RobotState) -> bool:
        """False: the peg is clamped, so every mistake can be undone."""
        return False

    def progress(self, state: RobotState) -> TaskProgress:
        """Way left = sideways + down; corridor = the hole's axis up to the start height."""
        (x, y, z), _ = self.tip_in_hole(state)
        aside = float(np.hypot(x, y))
        above = max(float(z) - self.start_height_m, 0.0)
        remaining = aside + max(float(z) + SUCCESS_DEPTH_M, 0.0)
        return TaskProgress(
            0.0 if self.success(state) else remaining, float(np.hypot(aside, above))
        )

    def goal(self, state: RobotState) -> Goal:
        """The mouth of the hole, for the tip of the peg as it is believed to be in the hand."""
        tip, half = compose(state.tcp_in_base, self.nominal_held_in_tcp), self.hole_width_m / 2
        play = (self.hole_width_m - self.peg_width_m) / 2
        return Goal(state.objects["hole"], tip, (half, half), play)

    def expert(self, skill: float) -> Expert:
        """Align above the mouth, go down, search in a spiral when it does not go in."""
        return PegInsertExpert(self, skill)


def _peg(width_m: float) -> tuple[Primitive, ...]:
    """Four capsules that collide, and slabs between them that are only seen."""
    radius = width_m / 8
    corner = width_m / 2 - radius
    # origin at the tip, z along the insertion: the body of the peg is at negative z
    middle = -PEG_LENGTH_M / 2
    edges = tuple(
        Primitive(
            "capsule",
            (radius, PEG_LENGTH_M / 2 - radius),
            (sx * corner, sy * corner, middle),
            material="brass",
        )
        for sx in (-1, 1)
        for sy in (-1, 1)
    )
    half, inner = PEG_LENGTH_M / 2, width_m / 2 - radius

    def bar(x: float, y: float, shorter: float) -> Primitive:
        centre = (0.0, 0.0, middle - shorter / 2)
        return Primitive(
            "box", (x, y, half - shorter / 2), centre, material="brass", collides=False
        )

    # a cross of two slabs fills the space between the rounded edges
    slabs = (
        bar(width_m / 2, inner, radius),
        bar(inner, width_m / 2, radius),
        bar(inner, inner, 0.0),
    )
    return edges + slabs


def _fixture(hole_m: float) -> tuple[Primitive, ...]:
    """A block with a square hole: four walls, a floor, and a thin bright frame around the mouth."""
    x, y, _ = FIXTURE_M
    h = hole_m / 2
    wall_x, wall_y, half_depth = (x - h) / 2, (y - h) / 2, DEPTH_M / 2
    walls = (
        Primitive("box", (wall_x, y, half_depth), (h + wall_x, 0.0, -half_depth), material="block"),
        Primitive(
            "box", (wall_x, y, half_depth), (-h - wall_x, 0.0, -half_depth), material="block"
        ),
        Primitive("box", (h, wall_y, half_depth), (0.0, h + wall_y, -half_depth), material="block"),
        Primitive(
            "box", (h, wall_y, half_depth), (0.0, -h - wall_y, -half_depth), material="block"
        ),
    )
    base = (MOUTH_Z_M - DEPTH_M) / 2
    floor = Primitive("box", (x, y, base), (0.0, 0.0, -DEPTH_M - base), material="dark")
    frame = 0.003
    rim = tuple(
        Primitive("box", (sx, sy, 0.0001), (px, py, 0.0001), material="rim", collides=False)
        for sx, sy, px, py in (
            (frame / 2, h + frame, h + frame / 2, 0.0),
            (frame / 2, h + frame, -h - frame / 2, 0.0),
            (h, frame / 2, 0.0, h + frame / 2),
            (h, frame / 2, 0.0, -h - frame / 2),
        )
    )
    return (*walls, floor, *rim)


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
        if z < -0.001:  # in the hole: go down; sideways the walls guide the peg
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
