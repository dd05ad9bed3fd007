"""What a robot is: joints, masses, gripper, home, workspace, and how it looks.

One file of this folder is one robot. Everything else derives from it: the gate's limits and the
YAML file that a person signs (`safety.sheet`), the simulator's model, the ROS parameters.

Frames: base has z up and x forward, its origin in the robot's foot at the height of the table top.
The flange is where the gripper is mounted, z out of the arm; the TCP lies between the fingertips,
z out of the fingers, and the fingers close along its y.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from robot_rl.geometry import compose, pose, quat_from_rotvec
from robot_rl.types import Pose

Vec3 = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]  # xyzw
Inertia = tuple[float, float, float, float, float, float]  # xx yy zz xy xz yz

UPRIGHT: Quaternion = (0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Inertial:
    """Mass, centre of mass and inertia about that centre, in the frame of the link."""

    mass_kg: float
    centre_m: Vec3
    inertia_kg_m2: Inertia


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint that turns about the z axis of its own frame, and the link behind it.

    name: as the driver publishes it. position_m, quaternion_xyzw: of the joint's frame in the link
    before it. torque_nm: the most that the motor holds.
    """

    name: str
    position_m: Vec3
    quaternion_xyzw: Quaternion
    range_rad: tuple[float, float]
    velocity_rad_s: float
    torque_nm: float
    link: Inertial


@dataclass(frozen=True, slots=True)
class Cover:
    """A shape that is only seen, in the frame of a link (0 = foot) or of the hand.

    shape: rod (capsule) or drum (cylinder) from `start_m` to `end_m`, or box around `start_m` with
    half extents `end_m`. look: a material of the simulator's scene.
    """

    shape: str
    start_m: Vec3
    end_m: Vec3
    radius_m: float
    look: str


def rod(start_m: Vec3, end_m: Vec3, radius_m: float, look: str) -> Cover:
    """A capsule between two points."""
    return Cover("rod", start_m, end_m, radius_m, look)


def drum(start_m: Vec3, end_m: Vec3, radius_m: float, look: str) -> Cover:
    """A cylinder between two points."""
    return Cover("drum", start_m, end_m, radius_m, look)


def box(half_m: Vec3, centre_m: Vec3, look: str) -> Cover:
    """A cover in the shape of a box."""
    return Cover("box", centre_m, half_m, 0.0, look)


def axle(centre_m: Vec3, axis: Vec3, radius_m: float, half_m: float) -> tuple[Cover, ...]:
    """A joint seen from its side: a drum with a dark cap on either end."""
    c, n = np.array(centre_m), np.array(axis)
    found = [drum(_at(c - half_m * n), _at(c + half_m * n), radius_m, "cover")]
    for side in (-1, 1):
        inner, outer = c + side * (half_m - 0.002) * n, c + side * (half_m + 0.004) * n
        found.append(drum(_at(inner), _at(outer), 0.86 * radius_m, "joint"))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a frame is in another one."""

    position_m: Vec3 = (0.0, 0.0, 0.0)
    quaternion_xyzw: Quaternion = UPRIGHT


@dataclass(frozen=True, slots=True)
class Capsule:
    """A capsule that encloses part of a link, for the gate's collision check.

    link: 0 = foot, 1 = behind the first joint, number of joints + 1 = hand; the ends are in that
    link's frame.
    """

    link: int
    start_m: Vec3
    end_m: Vec3
    radius_m: float


def _at(point: np.ndarray) -> Vec3:
    x, y, z = point.tolist()
    return (x, y, z)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gripper:
    """Two parallel fingers that close along the y axis of the hand, or a tool without fingers.

    yaw_rad: of the hand on the flange. tcp_m: from the mounting face to between the fingertips.
    stroke_m: largest distance between the fingers. fingers: names of the two finger joints as the
    driver publishes them; the width is their sum; () = a tool, whose stroke is 0. finger_mount_m:
    from the mounting face to the finger's frame; the pad is a box in that frame, its face at y = 0.
    hull: half extents and centre of the box that collides. wrist_camera: where it is and what it
    looks at, in the hand's frame.

    Raises:
        ValueError: a stroke without fingers, or another number of fingers than two.
    """

    name: str
    yaw_rad: float
    tcp_m: float
    stroke_m: float
    force_n: float
    speed_m_s: float  # of the width
    fingers: tuple[str, ...]
    hand: Inertial
    finger: Inertial
    finger_mount_m: float
    pad_half_m: Vec3
    pad_m: Vec3
    hull: tuple[Vec3, Vec3]
    covers: tuple[Cover, ...] = ()
    finger_covers: tuple[Cover, ...] = ()
    wrist_camera: tuple[Vec3, Vec3]

    def __post_init__(self) -> None:
        """Refuse fingers that do not fit the stroke."""
        if len(self.fingers) not in (0, 2) or bool(self.fingers) != (self.stroke_m > 0.0):
            raise ValueError(
                "a gripper has two fingers and a stroke above 0, a tool has no fingers and stroke "
                f"0; got fingers {self.fingers} and stroke_m {self.stroke_m}"
            )


class Robot:
    """Base of every robot; a subclass sets the attributes and is registered by its name.

    A robot with a file of its own sets them for its class; one from YAML has them as fields.

    foot: inertial of the link that is bolted down. flange_m: from the frame of the last joint along
    its z. home_rad: a pose from which the workspace is reached with the fingers down.
    workspace_*_m: box of the TCP in base. base_frame: poses in another frame are refused. covers:
    link -> shapes.
    """

    name: str
    title: str  # for people
    joints: tuple[Joint, ...]
    foot: Inertial
    flange_m: float
    home_rad: tuple[float, ...]
    gripper: Gripper
    armature_kg_m2: float = 0.1  # reflected rotor inertia
    damping_nms: float = 1.0  # what is left of friction after compensation
    workspace_min_m: Vec3
    workspace_max_m: Vec3
    max_force_n: float = 50.0  # ISO Class I; normal contact: stiffness x clip, about 20 N
    max_torque_nm: float = 10.0  # 150 Nm/rad x 25 mrad is 4 Nm in normal contact
    base_frame: str = "base"  # as the driver calls it in the messages of its poses
    capsules: tuple[Capsule, ...] = ()  # what the gate keeps clear; () = no check
    neighbours: tuple[tuple[int, int], ...] = ()  # links not compared with each other
    covers: Mapping[int, tuple[Cover, ...]] = MappingProxyType({})
    notes: str = ""  # for the person who signs the limits

    @property
    def flange_in_last(self) -> Pose:
        """Where gripper or tool is mounted, in the frame of the last joint."""
        return pose((0.0, 0.0, self.flange_m))

    @property
    def hand_in_last(self) -> Pose:
        """The frame of gripper or tool in that of the last joint."""
        turn = quat_from_rotvec((0.0, 0.0, self.gripper.yaw_rad))
        return compose(self.flange_in_last, pose((0.0, 0.0, 0.0), turn))

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints, in the order that `RobotState` uses."""
        return tuple(joint.name for joint in self.joints)

    @property
    def joint_min_rad(self) -> tuple[float, ...]:
        """Lower end of each joint's range."""
        return tuple(joint.range_rad[0] for joint in self.joints)

    @property
    def joint_max_rad(self) -> tuple[float, ...]:
        """Upper end of each joint's range."""
        return tuple(joint.range_rad[1] for joint in self.joints)

    def box_within(self, low_m: Vec3, high_m: Vec3) -> tuple[Vec3, Vec3]:
        """A box (two corners) moved into the workspace, and cut where it does not fit."""
        spans = zip(low_m, high_m, self.workspace_min_m, self.workspace_max_m, strict=True)
        x, y, z = (_within(*span) for span in spans)
        return (x[0], y[0], z[0]), (x[1], y[1], z[1])


def _within(low: float, high: float, least: float, most: float) -> tuple[float, float]:
    shift = max(least - low, 0.0) or min(most - high, 0.0)
    return max(low + shift, least), min(high + shift, most)
