"""A gripper from a URDF: two fingers that slide against each other behind the tip of the arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError
from robot_rl.geometry import compose, inverse, pose, quat_from_matrix, rotate
from robot_rl.robots.bodies import HERE, Parts, inertial_of
from robot_rl.robots.enclose import capsules_of
from robot_rl.robots.fr3 import Fr3
from robot_rl.robots.robot import Capsule, Gripper, Inertial, Robot, box
from robot_rl.robots.ur5e import Ur5e
from robot_rl.robots.urdf import Shape, Urdf, UrdfJoint
from robot_rl.types import Pose

F64 = NDArray[np.float64]

SHIPPED: Mapping[str, type[Robot]] = MappingProxyType({"franka_hand": Fr3, "robotiq_2f85": Ur5e})
"""Kind of gripper -> a robot that we ship with it."""

KINDS: Mapping[str, Gripper] = MappingProxyType(
    {kind: robot.gripper for kind, robot in SHIPPED.items()}
)
"""Grippers that can be mounted on any arm (`--gripper`)."""

STRAIGHT = 0.99  # cosine: the fingers slide this straight against each other, and across the tool
PAD_HALF_M = (0.009, 0.005, 0.010)
FINGER_M = 0.045  # from a finger's frame to between the fingertips, where no link says it
FORCE_N, SPEED_M_S = 40.0, 0.1  # where the URDF says nothing
LIGHT = Inertial(0.02, (0.0, 0.0, 0.0), (4e-6, 4e-6, 1e-6, 0.0, 0.0, 0.0))
LIGHT_HAND = Inertial(0.3, (0.0, 0.0, 0.03), (4e-4, 4e-4, 2e-4, 0.0, 0.0, 0.0))
NO_HAND = Inertial(0.0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0))


@dataclass(frozen=True, slots=True)
class Fingers:
    """Two sliding joints, and the link that carries both."""

    mount: str
    joints: tuple[UrdfJoint, UrdfJoint]


def fingers_of(urdf: Urdf) -> list[Fingers]:
    """Every pair of joints that slide in opposite directions on one link."""
    found = []
    for link, carried in urdf.children.items():
        sliding = [j for j in carried if j.kind == "prismatic"]
        if len(sliding) == 2:
            one, other = (rotate(j.origin.quaternion_xyzw, j.axis) for j in sliding)
            if float(one @ other) < -STRAIGHT:
                found.append(Fingers(link, (sliding[0], sliding[1])))
    return found


def mounted(gripper: Gripper, link: int) -> list[Capsule]:
    """Capsules of a gripper of `KINDS`, as on the robot that we ship with it; none for others."""
    robot = next((robot for robot in SHIPPED.values() if robot.gripper == gripper), None)
    if robot is None:
        return []
    return [replace(c, link=link) for c in robot.capsules if c.link > len(robot.joints)]


def hull_of(gripper: Gripper, link: int) -> list[Capsule]:
    """The capsule around the box that stands for a gripper or tool."""
    half_m, centre_m = gripper.hull
    shape = Shape("box", pose(centre_m), tuple(2 * half for half in half_m))
    return capsules_of([(HERE, shape)], link, lambda _: None)[0]


def gripper_of(
    urdf: Urdf, tip: str, fingers: Fingers, tcp: str, remarks: list[str]
) -> tuple[Gripper, Pose]:
    """(gripper, pose of its hand in the tip): z out of the tool, y along the first finger's way.

    The mass of the hand is a guess. tcp: the link between the fingertips, "" = guess it.

    Raises:
        ConfigError: the fingers slide along the tool, have no stroke, or the TCP is not in front.
    """
    at = _poses(urdf, tip)
    one, other = fingers.joints
    mount = compose(at[fingers.mount], one.origin)
    y = rotate(mount.quaternion_xyzw, one.axis)
    z = np.array((0.0, 0.0, 1.0))
    if abs(float(y @ z)) > 1.0 - STRAIGHT:
        raise _wrong(fingers, "sliding across z of the tip", "they slide along it", "--tip LINK")
    y -= float(y @ z) * z
    y /= np.linalg.norm(y)
    hand = Pose(
        at[fingers.mount].position_m, quat_from_matrix(np.column_stack((np.cross(y, z), y, z)))
    )
    strokes = [(j.upper or 0.0) - (j.lower or 0.0) for j in fingers.joints]
    if min(strokes) <= 0.0 or (one.lower or 0.0) < 0.0:
        got = ", ".join(f"{j.name}: {j.lower} to {j.upper} m" for j in fingers.joints)
        raise _wrong(fingers, "limits from 0 (closed) to open, in m", got, "--gripper none")
    seen = {name: compose(inverse(hand), place) for name, place in at.items()}
    mount_m = float(compose(inverse(hand), mount).position_m[2])
    if tcp:
        urdf.link(tcp, "--tcp")
    tcp_m = _tcp_m(seen, fingers, tcp, mount_m, remarks)
    closed = Pose(seen[one.child].position_m, HERE.quaternion_xyzw)
    moving: Parts = [(compose(inverse(closed), seen[n]), n) for n in urdf.behind(one.child)]
    top_m = max(mount_m, 0.02)
    half = (0.03, max(strokes) + 0.03, top_m / 2)
    name = f"gripper of {urdf.name}"
    remarks.append(f"gripper: fingers {one.name}, {other.name}, {1e3 * sum(strokes):.0f} mm")
    return (
        Gripper(
            name=name,
            yaw_rad=0.0,
            tcp_m=round(tcp_m, 6),
            stroke_m=round(sum(strokes), 6),
            force_n=float(one.effort or FORCE_N),
            speed_m_s=sum(j.velocity or 0.0 for j in fingers.joints) or SPEED_M_S,
            fingers=(one.name, other.name),
            hand=LIGHT_HAND,
            finger=inertial_of(moving, urdf, remarks) or LIGHT,
            finger_mount_m=round(mount_m, 6),
            pad_half_m=PAD_HALF_M,
            pad_m=(0.0, PAD_HALF_M[1], round(tcp_m - mount_m, 6)),
            hull=(half, (0.0, 0.0, top_m / 2)),
            covers=(box(half, (0.0, 0.0, top_m / 2), "dark"),),
            finger_covers=(
                box(
                    (0.010, 0.008, (tcp_m - mount_m) / 2),
                    (0, 0.010, (tcp_m - mount_m) / 2),
                    "joint",
                ),
                box(PAD_HALF_M, (0, PAD_HALF_M[1], tcp_m - mount_m), "dark"),
            ),
            wrist_camera=((0.07, 0.0, 0.04), (0.016, 0.0, tcp_m + 0.04)),
        ),
        hand,
    )


def _poses(urdf: Urdf, tip: str) -> dict[str, Pose]:
    """Pose in the tip of every link behind it, all joints at 0: fingers closed."""
    found = {tip: HERE}
    for name in urdf.behind(tip):
        for joint in urdf.children[name]:
            found[joint.child] = compose(found[name], joint.origin)
    return found


def _tcp_m(
    seen: Mapping[str, Pose], fingers: Fingers, tcp: str, mount_m: float, remarks: list[str]
) -> float:
    """Where between the fingertips the TCP is, along z of the hand."""
    names = [tcp] if tcp else [name for name in seen if "tcp" in name.lower()]
    if tcp and tcp not in seen:
        raise _wrong(fingers, "a TCP behind the tip", tcp, "--tcp one of: " + ", ".join(seen))
    if len(names) != 1:
        found = mount_m + FINGER_M
        remarks.append(f"tcp: {found:.4f} m in front of {fingers.mount}, a guess (--tcp)")
        return found
    at = seen[names[0]].position_m
    if at[2] <= 0.0 or float(np.abs(at[:2]).max()) > 0.002:
        got = f"{names[0]} at {at.round(4).tolist()} m of the hand"
        raise _wrong(fingers, "a TCP in front of the hand, on its z axis", got, "--tcp LINK")
    if not tcp:
        remarks.append(f"tcp: {names[0]} (--tcp)")
    return float(at[2])


def _wrong(fingers: Fingers, expected: str, got: str, fix: str) -> ConfigError:
    names = " and ".join(joint.name for joint in fingers.joints)
    return ConfigError(f"the fingers {names} are no gripper", expected=expected, got=got, fix=fix)
