"""A robot as data: what a file of this folder says of an arm, in YAML (`robot-rl robot new`).

A run stores the whole of it in its `config.yaml`, so the run folder explains itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError
from robot_rl.geometry import pose
from robot_rl.robots.robot import (
    Capsule,
    Cover,
    Gripper,
    Inertial,
    Joint,
    Placement,
    Robot,
    Vec3,
    rod,
)
from robot_rl.types import Pose

FEWEST, MOST = 5, 7
"""Joints of an arm: fewer cannot point a tool, and no controller of ours resolves more."""

UNIT = 1e-3  # a norm further from 1 is no quaternion
NO_FINGERS = "tool"


def bare_tool(length_m: float = 0.0, mass_kg: float = 0.0) -> Gripper:
    """A tool without fingers: a rod of 20 mm along z of the flange, the TCP at its end.

    Where the URDF ends at the TCP, the length is 0.
    """
    half_m = max(length_m / 2, 0.005)
    about = mass_kg * (half_m**2 / 3 + 0.0001)
    return Gripper(
        name=NO_FINGERS,
        yaw_rad=0.0,
        tcp_m=length_m,
        stroke_m=0.0,
        force_n=0.0,
        speed_m_s=0.0,
        fingers=(),
        hand=Inertial(mass_kg, (0.0, 0.0, length_m / 2), (about, about, about, 0.0, 0.0, 0.0)),
        finger=Inertial(0.0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        finger_mount_m=0.0,
        pad_half_m=(0.005, 0.005, 0.005),
        pad_m=(0.0, 0.0, 0.0),
        hull=((0.01, 0.01, half_m), (0.0, 0.0, length_m - half_m)),
        covers=(rod((0, 0, min(length_m - 0.02, 0.0)), (0, 0, length_m - 0.01), 0.01, "dark"),),
        wrist_camera=((0.07, 0.0, -0.02), (0.01, 0.0, length_m + 0.04)),
    )


@register("robot", "described")
@dataclass(frozen=True, kw_only=True)
class Described(Robot):
    """An arm of 5 to 7 turning joints, as its YAML file says it.

    called: its name in limits, records and reports. flange: where gripper or tool is mounted, in
    the frame of the last joint; the tool points along its z. The rest as in `Robot`. In pictures it
    looks like its capsules.

    Raises:
        ConfigError: a value that makes no sense, with its key.
    """

    called: str
    title: str
    joints: tuple[Joint, ...]
    foot: Inertial
    flange: Placement = field(default_factory=Placement)
    home_rad: tuple[float, ...]
    gripper: Gripper = field(default_factory=bare_tool)
    armature_kg_m2: float = 0.1
    damping_nms: float = 1.0
    workspace_min_m: Vec3
    workspace_max_m: Vec3
    max_force_n: float = 50.0
    max_torque_nm: float = 10.0
    base_frame: str = "base"
    capsules: tuple[Capsule, ...] = ()
    neighbours: tuple[tuple[int, int], ...] = ()
    notes: str = ""

    def __post_init__(self) -> None:
        """Check the values; take the name, and draw the covers."""
        self._check_joints()
        self._check_places()
        drawn: dict[int, tuple[Cover, ...]] = {}
        for c in self.capsules:
            if c.link <= len(self.joints):
                cover = rod(c.start_m, c.end_m, c.radius_m, "cover" if c.link % 2 else "joint")
                drawn[c.link] = (*drawn.get(c.link, ()), cover)
        object.__setattr__(self, "name", self.called)
        object.__setattr__(self, "covers", MappingProxyType(drawn))

    @property
    def flange_in_last(self) -> Pose:
        """See `Robot`."""
        return pose(self.flange.position_m, self.flange.quaternion_xyzw)

    def _check_joints(self) -> None:
        names = self.joint_names
        if not FEWEST <= len(names) <= MOST:
            fix = "robot-rl robot new URDF --base LINK --tip LINK takes a part of a longer chain"
            raise _wrong("joints", f"{FEWEST} to {MOST} joints", len(names), fix)
        if len(set(names)) < len(names):
            raise _wrong("joints", "a name of its own for each joint", ", ".join(names), "rename")
        for i, joint in enumerate(self.joints):
            low, high = joint.range_rad
            if not -math.inf < low < high < math.inf:
                fix = "the lower end first, in rad"
                raise _wrong(f"joints[{i}].range_rad", "low < high", joint.range_rad, fix)
            for key, value in (
                ("velocity_rad_s", joint.velocity_rad_s),
                ("torque_nm", joint.torque_nm),
            ):
                if not 0.0 < value < math.inf:
                    fix = f"what the data sheet says of {joint.name}"
                    raise _wrong(f"joints[{i}].{key}", "a number above 0", value, fix)
            _check_quaternion(f"joints[{i}].quaternion_xyzw", joint.quaternion_xyzw)
            if not joint.link.mass_kg > 0.0:
                fix = "the mass of the link behind the joint, in kg"
                raise _wrong(f"joints[{i}].link.mass_kg", "above 0", joint.link.mass_kg, fix)

    def _check_places(self) -> None:
        if not self.called.isidentifier():
            raise _wrong("called", "letters, digits and _", repr(self.called), "e.g. my_arm")
        _check_quaternion("flange.quaternion_xyzw", self.flange.quaternion_xyzw)
        if len(self.home_rad) != len(self.joints):
            fix = "one angle in rad per joint, in the order of joints"
            raise _wrong("home_rad", f"{len(self.joints)} angles", len(self.home_rad), fix)
        for joint, angle in zip(self.joints, self.home_rad, strict=True):
            low, high = joint.range_rad
            if not low <= angle <= high:
                fix = "a pose within the joint ranges (rad)"
                raise _wrong("home_rad", f"{joint.name} in [{low:g}, {high:g}]", angle, fix)
        corners = zip(self.workspace_min_m, self.workspace_max_m, strict=True)
        if not all(-math.inf < a < b < math.inf for a, b in corners):
            fix = "the lower corner first: x, y, z in base (m)"
            raise _wrong(
                "workspace_min_m", f"below {self.workspace_max_m}", self.workspace_min_m, fix
            )
        for i, c in enumerate(self.capsules):
            if not (0 <= c.link <= len(self.joints) + 1 and c.radius_m > 0.0):
                fix = "link 0 = foot, 1 = behind the first joint ...; radius in m"
                expected = f"link 0 to {len(self.joints) + 1} and a radius above 0"
                raise _wrong(f"capsules[{i}]", expected, f"link {c.link}, {c.radius_m} m", fix)


def _check_quaternion(where: str, xyzw: tuple[float, float, float, float]) -> None:
    norm = math.hypot(*xyzw)
    if not abs(norm - 1.0) <= UNIT:
        raise _wrong(where, "a unit quaternion x, y, z, w", f"norm {norm:g}", "no turn: 0, 0, 0, 1")


def _wrong(key: str, expected: str, got: object, fix: str) -> ConfigError:
    return ConfigError(f"wrong value for robot.{key}", expected=expected, got=str(got), fix=fix)
