"""Inverse kinematics of a start pose, and the quaternion order of MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import RobotRLError
from robot_rl.geometry import rotation_error
from robot_rl.types import Pose
from robot_rl_sim.arm import HAND

F64 = NDArray[np.float64]

TOLERANCE = 1e-7  # m and rad
LIMIT_MARGIN_RAD = 1e-3
DAMPING = 1e-6  # of the normal equations: the workspace has no singular pose, this is for safety


def wxyz(quaternion_xyzw: F64) -> F64:
    """Our order to MuJoCo's."""
    x, y, z, w = quaternion_xyzw.tolist()
    return np.array((w, x, y, z))


def xyzw(quaternion_wxyz: F64) -> F64:
    """MuJoCo's order to ours."""
    w, x, y, z = quaternion_wxyz.tolist()
    return np.array((x, y, z, w))


def solve_ik(model: mujoco.MjModel, goal: Pose, start_rad: F64) -> F64:
    """Joint angles [J] that put the `tcp` site at `goal`, by damped Gauss-Newton from `start_rad`.

    Raises:
        RobotRLError: no convergence inside the joint limits.
    """
    data, jacobian = mujoco.MjData(model), np.zeros((6, model.nv))
    tcp, hand = model.site("tcp").id, model.body(HAND).id
    joints = len(start_rad)
    low, high = model.jnt_range[:joints].T + np.array([[LIMIT_MARGIN_RAD], [-LIMIT_MARGIN_RAD]])
    q = start_rad.copy()
    for _ in range(100):
        data.qpos[:joints] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        here = Pose(data.site_xpos[tcp], xyzw(data.xquat[hand]))
        error = np.concatenate((goal.position_m - here.position_m, rotation_error(goal, here)))
        if float(np.abs(error).max()) < TOLERANCE:
            return q
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], tcp)
        j = jacobian[:, :joints]
        step = j.T @ np.linalg.solve(j @ j.T + DAMPING * np.eye(6), error)
        q = np.clip(q + np.clip(step, -0.3, 0.3), low, high)
    raise RobotRLError(
        "the start pose is out of the arm's reach",
        expected="a pose inside the joint limits",
        got=f"position {goal.position_m.round(3).tolist()} m",
        fix="move the reset range or the workspace box of the task",
    )
