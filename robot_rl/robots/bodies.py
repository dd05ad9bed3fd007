"""What a URDF's links become when fixed joints are folded away: frames, masses, capsules.

The frame of a joint is turned so that the joint turns about its z. Whatever moves together is one
link, with one inertial (parallel axes) and all the collision shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError
from robot_rl.geometry import compose, inverse, pose, quat_to_matrix
from robot_rl.robots.enclose import capsules_of
from robot_rl.robots.robot import Capsule, Inertial, Joint, Quaternion, Vec3
from robot_rl.robots.urdf import Mass, Urdf, UrdfJoint
from robot_rl.types import Pose

F64 = NDArray[np.float64]
Parts = Sequence[tuple[Pose, str]]
"""URDF links, each with its pose in the link of ours to which it belongs."""

HERE = pose((0.0, 0.0, 0.0))
ROUND_RAD = 2 * math.pi  # of a continuous joint, to either side
EFFORT_NM = 50.0  # where the URDF says none; only the simulated arm uses it
SHARE = 0.05  # of the arm's length: radius of a link without a shape
MOST_RADIUS_M = 0.06
BALL_M = 0.05  # radius of a ball that stands in for an inertia that no body has


class Frames:
    """Where the arm's frames are.

    Attributes:
        places: URDF link -> (number of our link, its pose in that); all that hangs from the base.
        tip: pose of the tip in the frame of the last joint.
    """

    def __init__(self, urdf: Urdf, base: str, path: Sequence[UrdfJoint]) -> None:
        self._found: list[tuple[UrdfJoint, Pose]] = []
        self.places: dict[str, tuple[int, Pose]] = {base: (0, HERE)}
        here = HERE
        for joint in path:
            here = compose(here, joint.origin)
            if joint.moves:
                turn = pose((0.0, 0.0, 0.0), _z_to(joint.axis))
                self._found.append((joint, compose(here, turn)))
                here = inverse(turn)
            self.places[joint.child] = (len(self._found), here)
        self.tip = here
        for link in urdf.behind(base):
            number, at = self.places[link]
            for joint in urdf.children[link]:
                self.places.setdefault(joint.child, (number, compose(at, joint.origin)))

    def parts(self, but: Sequence[str]) -> dict[int, list[tuple[Pose, str]]]:
        """Number of our link -> the URDF links that are part of it; without those of the tool."""
        found: dict[int, list[tuple[Pose, str]]] = {}
        for name, (number, at) in self.places.items():
            if name not in but:
                found.setdefault(number, []).append((at, name))
        return found

    @property
    def reach_m(self) -> float:
        """Length of the arm from the first joint's frame to the tip."""
        places = [at.position_m for _, at in self._found[1:]] + [self.tip.position_m]
        return float(sum(np.linalg.norm(place) for place in places))

    def axes(self) -> list[F64]:
        """Where the next joint's frame, or the tip, is in each of our links [3]."""
        return [*(at.position_m for _, at in self._found), self.tip.position_m]

    def joints(self, link: Callable[[int, UrdfJoint], Inertial]) -> tuple[Joint, ...]:
        """Our joints; link: number and URDF joint -> inertial of the link behind it."""
        return tuple(
            Joint(
                joint.name,
                vec(at.position_m),
                quaternion(at.quaternion_xyzw),
                _range(joint),
                float(joint.velocity or 0.0),
                float(joint.effort or EFFORT_NM),
                link(number, joint),
            )
            for number, (joint, at) in enumerate(self._found, start=1)
        )


def _range(joint: UrdfJoint) -> tuple[float, float]:
    if joint.kind == "continuous":
        return (-ROUND_RAD, ROUND_RAD)
    return (float(joint.lower or 0.0), float(joint.upper or 0.0))


def _z_to(axis: F64) -> F64:
    """The shortest turn that brings z to `axis`; half a turn about x where it is -z."""
    x, y, z = axis.tolist()
    if z < -1.0 + 1e-9:
        return np.array((1.0, 0.0, 0.0, 0.0))
    q = np.array((-y, x, 0.0, 1.0 + z))
    return q / np.linalg.norm(q)


def inertial_of(parts: Parts, urdf: Urdf, remarks: list[str]) -> Inertial | None:
    """One inertial of URDF links that move together; None without mass."""
    bodies = [
        (compose(at, mass.pose), _sound(name, mass, remarks))
        for at, name in parts
        if (mass := urdf.links[name].mass) is not None and mass.kg > 0.0
    ]
    if not bodies:
        return None
    kg = sum(mass.kg for _, mass in bodies)
    centre = sum((mass.kg * at.position_m for at, mass in bodies), np.zeros(3)) / kg
    total = np.zeros((3, 3))
    for at, mass in bodies:
        turn, away = quat_to_matrix(at.quaternion_xyzw), at.position_m - centre
        total += turn @ mass.inertia_kg_m2 @ turn.T
        total += mass.kg * (float(away @ away) * np.eye(3) - np.outer(away, away))
    t = total.tolist()
    inertia = (t[0][0], t[1][1], t[2][2], t[0][1], t[0][2], t[1][2])
    x, y, z = (round(v, 9) + 0.0 for v in centre.tolist())
    xx, yy, zz, xy, xz, yz = (round(v, 10) + 0.0 for v in inertia)
    return Inertial(round(kg, 6), (x, y, z), (xx, yy, zz, xy, xz, yz))


def _sound(name: str, mass: Mass, remarks: list[str]) -> Mass:
    """The mass, with an inertia that a body can have."""
    own = np.linalg.eigvalsh(mass.inertia_kg_m2)
    if own[0] > 0.0 and own[0] + own[1] >= own[2] * (1.0 - 1e-3):
        return mass
    remarks.append(f"link {name}: no body has its inertia; it gets that of a ball of 5 cm radius")
    return Mass(mass.kg, mass.pose, 0.4 * mass.kg * BALL_M**2 * np.eye(3))


def massive(parts: Parts, urdf: Urdf, joint: UrdfJoint, remarks: list[str]) -> Inertial:
    """`inertial_of` the link behind a joint. Raises `ConfigError` when it has no mass."""
    found = inertial_of(parts, urdf, remarks)
    if found is None:
        raise ConfigError(
            f"link '{joint.child}' has no mass",
            expected="<inertial> with a mass above 0 behind each joint of the arm",
            got="none",
            fix="write what the data sheet says; a guess within a factor of two does no harm",
        )
    return found


def capsules(
    urdf: Urdf,
    frames: Frames,
    parts: Mapping[int, Parts],
    find: Callable[[str], Path | None],
    remarks: list[str],
) -> list[Capsule]:
    """Around the shapes of each of our links; a link without any gets one along its length.

    parts: number of our link -> its URDF links; the tool is number joints + 1.
    """
    found: list[Capsule] = []
    ends = frames.axes()
    thin_m = max(min(SHARE * frames.reach_m, MOST_RADIUS_M), 0.01)
    for number, links in sorted(parts.items()):
        shapes = [(at, shape) for at, name in links for shape in urdf.links[name].shapes]
        own, missing = capsules_of(shapes, number, find)
        if missing:
            names = ", ".join(sorted({Path(name).name for name in missing}))
            remarks.append(f"meshes not found: {names} (--package NAME=FOLDER)")
        if not own and number < len(ends) and (far := float(np.linalg.norm(ends[number]))) > thin_m:
            own = [Capsule(number, (0.0, 0.0, 0.0), vec(ends[number].round(4)), round(thin_m, 4))]
            remarks.append(
                f"link {links[0][1] if links else number}: no shape, a capsule along its "
                f"{far:.3f} m of {thin_m:.3f} m radius instead: check it"
            )
        found += own
    return found


def vec(place: F64) -> Vec3:
    """Three plain numbers; what is less than a nanometre is 0."""
    x, y, z = (place.round(9) + 0.0).tolist()
    return (x, y, z)


def quaternion(turn: F64) -> Quaternion:
    """Four plain numbers, normalised."""
    x, y, z, w = (turn / np.linalg.norm(turn) + 0.0).tolist()
    return (x, y, z, w)
