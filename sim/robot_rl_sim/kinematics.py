"""The quaternion order of MuJoCo; the arm's kinematics are in `robot_rl.robots.chain`."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def wxyz(quaternion_xyzw: F64) -> F64:
    """Our order to MuJoCo's."""
    x, y, z, w = quaternion_xyzw.tolist()
    return np.array((w, x, y, z))


def xyzw(quaternion_wxyz: F64) -> F64:
    """MuJoCo's order to ours."""
    w, x, y, z = quaternion_wxyz.tolist()
    return np.array((x, y, z, w))


def matrix(quaternion_wxyz: F64) -> F64:
    """The rotation [3, 3] of a unit quaternion in MuJoCo's order."""
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, quaternion_wxyz)
    return turn.reshape(3, 3)
