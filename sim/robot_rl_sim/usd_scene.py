"""What an engine that has read the stage of `usd.py` must know to move it for a MuJoCo model."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.robots import Robot
from robot_rl.tasks.common import SimTask
from robot_rl_sim.arm import HAND
from robot_rl_sim.kinematics import matrix
from robot_rl_sim.usd import ROOM, body_path, collides, usd_name

F64 = NDArray[np.float64]
COUPLING = 5000.0, 40.0  # N/m and Ns/m between the two fingers


def joints_of(
    model: mujoco.MjModel, usd_names: Sequence[str]
) -> tuple[list[str], NDArray[np.intp], NDArray[np.intp]]:
    """An articulation's joints in the model: names, places in `qpos`, and in `qvel`."""
    arm = model.body_rootid[model.body(HAND).id]
    its = [model.joint(i) for i in np.flatnonzero(model.body_rootid[model.jnt_bodyid] == arm)]
    known = {usd_name(joint.name): joint for joint in its}
    joints = [known[name] for name in usd_names]
    qpos = np.array([int(joint.qposadr[0]) for joint in joints], np.intp)
    dofs = np.array([int(joint.dofadr[0]) for joint in joints], np.intp)
    return [joint.name for joint in joints], qpos, dofs


def coupled(task: SimTask, robot: Robot) -> tuple[str, ...]:
    """The joints of two fingers that a spring keeps together; none without a gripper."""
    return tuple(robot.gripper.fingers) if task.uses_gripper else ()


def feelers(model: mujoco.MjModel, robot: Robot) -> tuple[list[str], list[str]]:
    """Paths of hand, fingers and held part, and of all that they can touch."""
    hand = model.body(HAND).id
    solid = [number for number in range(1, model.nbody) if collides(model, number)]
    arm = model.body_rootid[hand]
    own = [n for n in solid if n >= hand and model.body_rootid[n] == arm]
    others = [body_path(model, robot, n) for n in solid if n not in own]
    others += [f"{ROOM}/table_top"] if model.geom("table_top").contype[0] else []
    return [body_path(model, robot, n) for n in own], others


def free_bodies(task: SimTask, robot: Robot, model: mujoco.MjModel) -> list[FreeBody]:
    """The task's free parts."""
    return [FreeBody(model, robot, part.name) for part in task.parts() if part.role == "free"]


class FreeBody:
    """A free body, as MuJoCo and as PhysX tell its motion.

    MuJoCo's velocity is of the body's origin, and its turning in the body's frame; PhysX's are of
    the centre of mass, and in the world.

    Attributes:
        path: in the stage.
    """

    def __init__(self, model: mujoco.MjModel, robot: Robot, name: str) -> None:
        its, body = model.joint(f"{name}_free"), model.body(name)
        self.path = body_path(model, robot, body.id)
        self._qpos, self._dof = int(its.qposadr[0]), int(its.dofadr[0])
        self._centre_m = np.array(body.ipos)

    def told(self, data: mujoco.MjData) -> tuple[F64, F64, F64]:
        """Position [3], quaternion wxyz [4], and twist [6] as PhysX tells it."""
        quaternion = data.qpos[self._qpos + 3 :][:4].copy()
        rotation, velocity = matrix(quaternion), data.qvel[self._dof :][:6]
        turning = rotation @ velocity[3:]
        moving = velocity[:3] + np.cross(turning, rotation @ self._centre_m)
        position = data.qpos[self._qpos :][:3].copy()
        return position, quaternion, np.concatenate((moving, turning))

    def take(self, data: mujoco.MjData, position: F64, quaternion: F64, twist: F64) -> None:
        """Write what an engine has told, in the same units."""
        data.qpos[self._qpos :][:7] = *position, *quaternion
        rotation, turning = matrix(data.qpos[self._qpos + 3 :][:4]), twist[3:]
        data.qvel[self._dof :][:3] = twist[:3] - np.cross(turning, rotation @ self._centre_m)
        data.qvel[self._dof + 3 :][:3] = rotation.T @ turning
