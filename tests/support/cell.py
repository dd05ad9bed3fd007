"""A robot in its cell for the collision tests: MuJoCo's own kinematics and contacts.

Nothing here uses `robot_rl.safety`: what the gate lets through is moved by another controller and
checked by another program on other shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import quat_from_rotvec, quat_multiply, rotation_error
from robot_rl.robots import Robot
from robot_rl.safety.obstacles import Obstacle
from robot_rl.types import Pose, RobotState
from robot_rl_sim.arm import HAND, add_arm, add_hand, link
from robot_rl_sim.kinematics import xyzw
from robot_rl_sim.scene import dress

F64 = NDArray[np.float64]

COVER, CAPSULE, BOX = 1, 2, 4  # contact bits
LOOKS = ("dark", "joint", "cover", "light_ring")


class Found(NamedTuple):
    """What touches on a way, and how near the capsules come.

    contacts: two links that touch, once for each configuration in which covers of theirs do.
    covers_m, capsules_m: least distance of each, as far as `Cell.see_m`; inf beyond.
    """

    contacts: tuple[str, ...]
    covers_m: float
    capsules_m: float


class Cell:
    """The arm with two sets of shapes: the covers that are drawn, and the robot's capsules.

    Links next to each other and the robot's `neighbours` are not compared, nor is the foot or the
    first link with boxes: as in the gate. Contacts are found up to `see_m` before they touch.
    """

    def __init__(self, robot: Robot, obstacles: Mapping[str, Obstacle], see_m: float) -> None:
        self.robot, self.see_m = robot, see_m
        self.model = model_of(robot, obstacles, see_m)
        self.data = mujoco.MjData(self.model)
        self._tcp, self._hand = self.model.site("tcp").id, self.model.body(HAND).id
        self._jacobian = np.zeros((6, self.model.nv))
        self._is_cover = self.model.geom_contype == COVER

    def place(self, q: F64) -> None:
        """Put the joints [J] at `q` (rad)."""
        self.data.qpos[:] = q
        mujoco.mj_kinematics(self.model, self.data)

    @property
    def tcp_in_base(self) -> Pose:
        """Where the tool is."""
        return Pose(self.data.site_xpos[self._tcp].copy(), xyzw(self.data.xquat[self._hand]))

    def at_rest(self, q: F64) -> RobotState:
        """The state of an arm that stands at `q` [J] (rad), at 0 s."""
        self.place(q)
        zeros = np.zeros(len(q))
        return RobotState(0.0, q, zeros, self.tcp_in_base, np.zeros(6), np.zeros(6), 0.04)

    def look(self) -> Found:
        """Contacts where the joints are."""
        mujoco.mj_collision(self.model, self.data)
        if not self.data.ncon:
            return Found((), math.inf, math.inf)
        dist = self.data.contact.dist
        covers = self._is_cover[self.data.contact.geom].any(1)
        covers_m = float(np.min(dist, where=covers, initial=math.inf))
        capsules_m = float(np.min(dist, where=~covers, initial=math.inf))
        touch = self.data.contact.geom[covers & (dist < 0.0)]
        return Found(
            tuple(" and ".join(map(self._part, two)) for two in touch), covers_m, capsules_m
        )

    def _part(self, geom: int) -> str:
        return self.model.body(self.model.geom_bodyid[geom]).name

    def go(self, target: Pose, pieces: int) -> Iterator[F64]:
        """Joints [J] (rad) on the way to `target` on a straight line, by resolved rates.

        The tool is moved by MuJoCo's Jacobian in small pieces, each of the least motion of the
        joints: what an ideal Cartesian controller does.
        """
        here = self.tcp_in_base
        way, turn = target.position_m - here.position_m, rotation_error(target, here)
        q = self.data.qpos.copy()
        for piece in range(1, pieces + 1):
            share = piece / pieces
            spin = quat_multiply(quat_from_rotvec(share * turn), here.quaternion_xyzw)
            goal, now = Pose(here.position_m + share * way, spin), self.tcp_in_base
            left = np.concatenate((goal.position_m - now.position_m, rotation_error(goal, now)))
            mujoco.mj_comPos(self.model, self.data)
            j = self._jacobian
            mujoco.mj_jacSite(self.model, self.data, j[:3], j[3:], self._tcp)
            q = q + j.T @ np.linalg.solve(j @ j.T + 1e-8 * np.eye(6), left)
            self.place(q)
            yield q

    def travel(self, target: Pose, pieces: int) -> tuple[F64, Found]:
        """Go to `target`; where the joints are then, and the least of what was found."""
        q, found = self.data.qpos.copy(), self.look()
        for q in self.go(target, pieces):  # noqa: B007 - the last one is returned
            now = self.look()
            found = Found(found.contacts + now.contacts, *map(min, found[1:], now[1:]))
        return q, found


def model_of(robot: Robot, obstacles: Mapping[str, Obstacle], see_m: float) -> mujoco.MjModel:
    """The arm with covers and capsules as geoms that collide, and boxes."""
    spec = mujoco.MjSpec()
    add_hand(add_arm(spec.worldbody, robot), robot, moving=False, width_m=0.04, friction=1.0)
    for name in LOOKS:
        spec.add_material(name=name)
    dress(spec, robot)
    for geom in spec.geoms:
        drawn = geom.contype == 0 and not geom.parent.name.startswith("finger")
        geom.contype, geom.conaffinity = (COVER, COVER | BOX) if drawn else (0, 0)
    names = [link(robot, i) for i in range(len(robot.joints) + 1)] + [HAND]
    for c in robot.capsules:
        ends = (*c.start_m, *c.end_m)
        spec.body(names[c.link]).add_geom(
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            fromto=ends,
            size=(c.radius_m, 0, 0),
            contype=CAPSULE,
            conaffinity=CAPSULE | BOX,
            mass=0,
        )
    for i, one in enumerate(names):
        for k, other in enumerate(names):
            if k - i == 1 or (i, k) in robot.neighbours:
                spec.add_exclude(bodyname1=one, bodyname2=other)
    for name, obstacle in obstacles.items():
        half_rad = obstacle.yaw_rad / 2
        body = spec.worldbody.add_body(
            name=name,
            pos=obstacle.centre_in_base_m,
            quat=(math.cos(half_rad), 0, 0, math.sin(half_rad)),
        )
        half_m = [edge / 2 for edge in obstacle.size_m]
        body.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=half_m,
            contype=BOX,
            conaffinity=COVER | CAPSULE,
        )
        for one in names[:2]:
            spec.add_exclude(bodyname1=one, bodyname2=name)
    for geom in spec.geoms:
        geom.margin = see_m
    return spec.compile()
