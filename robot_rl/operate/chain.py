"""Forward kinematics of an arm in numpy: joint angles -> pose of the tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from robot_rl.errors import SpecError
from robot_rl.geometry import compose, pose, quat_from_rotvec
from robot_rl.robots import Robot
from robot_rl.types import Pose


@dataclass(frozen=True, slots=True)
class Chain:
    """Joints in a row, each turning about the z axis of its own frame.

    links: frame of each joint in the link before it, at zero angle; tool: of the TCP in the last
    link.
    """

    links: tuple[Pose, ...]
    tool: Pose

    def tcp(self, joints_rad: ArrayLike) -> Pose:
        """Pose of the tool in the foot of the arm.

        Args:
            joints_rad: [n], one angle for each of `links`.

        Raises:
            SpecError: another number of angles.
        """
        angles = np.asarray(joints_rad, np.float64)
        if angles.shape != (len(self.links),):
            raise SpecError(
                "these are not the joints of this arm",
                expected=f"{len(self.links)} angles",
                got=str(angles.shape),
                fix="name the joints of the arm, in their order from the foot to the tool",
            )
        found = pose((0.0, 0.0, 0.0))
        for link, angle in zip(self.links, angles.tolist(), strict=True):
            turned = pose((0.0, 0.0, 0.0), quat_from_rotvec((0.0, 0.0, angle)))
            found = compose(compose(found, link), turned)
        return compose(found, self.tool)


def chain_of(robot: Robot) -> Chain:
    """The kinematics of a robot with its gripper, in the frame `base`."""
    links = tuple(pose(j.position_m, j.quaternion_xyzw) for j in robot.joints)
    hand = pose((0.0, 0.0, robot.flange_m), quat_from_rotvec((0.0, 0.0, robot.gripper.yaw_rad)))
    return Chain(links, compose(hand, pose((0.0, 0.0, robot.gripper.tcp_m))))


def chain_from(rows: Sequence[tuple[ArrayLike, ArrayLike]], tool: Pose, foot: Pose) -> Chain:
    """A chain from URDF rows: (xyz in metres, rpy in radians) of each joint's origin.

    foot: of the URDF's root in a frame that has z up and x forward.
    """
    first, *others = (pose(xyz, quat_from_rpy(rpy)) for xyz, rpy in rows)
    return Chain((compose(foot, first), *others), tool)


def quat_from_rpy(rpy_rad: ArrayLike) -> np.ndarray:
    """Quaternion xyzw of URDF's roll, pitch, yaw: turns about the fixed axes x, y, z in turn."""
    half = np.asarray(rpy_rad, np.float64) / 2.0
    (sr, sp, sy), (cr, cp, cy) = np.sin(half), np.cos(half)
    return np.array(
        (
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
            cr * cp * cy + sr * sp * sy,
        )
    )
