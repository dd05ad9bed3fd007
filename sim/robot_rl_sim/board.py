"""A calibration board in the simulated scene: only seen, it touches nothing and weighs nothing."""

from __future__ import annotations

import mujoco
import numpy as np

from robot_rl.calibrate.board import Board
from robot_rl.geometry import compose, pose
from robot_rl.robots import Robot
from robot_rl.tasks.common import TOOL_DOWN_XYZW, SimTask
from robot_rl.types import Pose
from robot_rl_sim.arm import HAND

DOTS_PER_MM = 6.0
MARGIN = 1.0  # white paper around it, in squares
ON_TABLE_M = 0.002  # above the mat, against flicker
HELD_M = (0.11, 0.0, 0.0)  # its middle in the TCP: before the hand, towards the camera opposite
HELD_XYZW = (0.5, -0.5, -0.5, 0.5)  # its x to the TCP's -y, its y (down) to the TCP's z


def board_pose(board: Board, mount: str, task: SimTask) -> Pose:
    """Where it is: in the base on the table (mount hand), in the TCP (mount beside)."""
    width, height = board.size_m
    corner = pose((-width / 2, -height / 2, 0.0))
    if mount == "beside":
        return compose(pose(HELD_M, HELD_XYZW), corner)
    middle = (np.array(task.workspace_min_m) + np.array(task.workspace_max_m)) / 2
    return compose(pose((*middle[:2], ON_TABLE_M), TOOL_DOWN_XYZW), corner)


def add_board(spec: mujoco.MjSpec, board: Board, mount: str, task: SimTask, robot: Robot) -> None:
    """Lay it on the table, or hang it at the hand; see `board_pose`."""
    border = round(MARGIN * board.square_m * 1e3 * DOTS_PER_MM)
    dots = np.pad(board.picture(DOTS_PER_MM), border, constant_values=255)
    height, width = dots.shape
    texture = spec.add_texture(
        name="board", type=mujoco.mjtTexture.mjTEXTURE_2D, width=width, height=height, nchannel=3
    )
    texture.data = np.repeat(dots[::-1, :, None], 3, axis=2).tobytes()  # OpenGL begins below
    material = spec.add_material(name="board", specular=0.0, emission=0.3)
    textures = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = "board"
    material.textures = textures
    edge = MARGIN * board.square_m
    right, low = (side + edge for side in board.size_m)
    corners = ((-edge, -edge), (right, -edge), (right, low), (-edge, low))
    spec.add_mesh(
        name="board",
        uservert=[v for x, y in corners for v in (x, y, 0.0)],
        usertexcoord=[0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
        userface=[0, 2, 1, 0, 3, 2],  # its face is seen from -z
        userfacetexcoord=[0, 2, 1, 0, 3, 2],
        inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
    )
    where = board_pose(board, mount, task)
    body = spec.worldbody
    if mount == "beside":
        body = spec.body(HAND)
        where = compose(pose((0.0, 0.0, robot.gripper.tcp_m)), where)
    x, y, z, w = where.quaternion_xyzw.tolist()
    geom = body.add_geom(
        name="board",
        type=mujoco.mjtGeom.mjGEOM_MESH,
        meshname="board",
        material="board",
        pos=where.position_m,
        quat=(w, x, y, z),
        contype=0,
        conaffinity=0,
        group=1,
    )
    geom.mass = 0.0
