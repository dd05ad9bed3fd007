"""Calibration in the simulator: pictures of a board from known cameras, at known poses."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np

from robot_rl.calibrate.board import Board
from robot_rl.calibrate.refine import Sample
from robot_rl.errors import RobotRLError
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply, quat_to_rotvec, relative
from robot_rl.observe.cameras import Calibration
from robot_rl.robots import Fr3, Robot
from robot_rl.tasks.common import TOOL_DOWN_XYZW
from robot_rl.tasks.reach import ReachTask
from robot_rl.types import Pose
from robot_rl_sim.builder import build_model
from robot_rl_sim.camera import MujocoCamera
from robot_rl_sim.kinematics import xyzw
from robot_rl_sim.robot import MujocoRobot

SIZE = (480, 640)
CAMERAS = {"hand": "wrist", "beside": "front"}
MIDDLE_M = {"hand": (0.45, 0.0, 0.28), "beside": (0.42, 0.0, 0.24)}


class Scene:
    """An arm, a board, and a camera whose pose is known.

    Args:
        seed: of the camera's pose around the one that the scene has, and of the arm's poses.
    """

    def __init__(self, mount: str, seed: int, board: Board | None = None) -> None:
        self.board, self.mount = board or Board(), mount
        self.rng = np.random.default_rng(seed)
        robot: Robot = Fr3()
        model = build_model(ReachTask(), robot, board=(self.board, mount))
        self.camera = CAMERAS[mount]
        number = model.camera(self.camera).id
        self.robot = MujocoRobot(ReachTask(), robot, model)
        model.cam_pos[number] += self.rng.uniform(-0.01, 0.01, 3)
        turn = quat_from_rotvec(self.rng.uniform(-0.05, 0.05, 3))
        x, y, z, w = quat_multiply(xyzw(model.cam_quat[number]), turn)
        model.cam_quat[number] = (w, x, y, z)
        self.eye = MujocoCamera(self.robot, self.camera, SIZE)
        self.eye.read()
        self.truth = camera_in_mount(self.robot, self.camera, mount)
        focal = SIZE[0] / 2 / np.tan(self.eye.fovy_rad / 2)
        middle = (SIZE[1] - 1) / 2, (SIZE[0] - 1) / 2
        k = np.array(((focal, 0, middle[0]), (0, focal, middle[1]), (0, 0, 1.0)))
        self.lens = Calibration(k, (0.0,) * 5)

    def poses(self, tilt_deg: float = 22.0) -> Iterator[Pose]:
        """Poses of the TCP around the middle, turned about all axes."""
        while True:
            turn = quat_from_rotvec(self.rng.uniform(-1, 1, 3) * np.radians(tilt_deg))
            where = np.array(MIDDLE_M[self.mount]) + self.rng.uniform(-0.06, 0.06, 3)
            yield pose(where, quat_multiply(turn, TOOL_DOWN_XYZW))

    def at(self, tcp: Pose) -> Sample:
        """A picture with the TCP there. Raises `RobotRLError` out of reach, or without a board."""
        self.robot._place_arm(self.robot._chain.solve(tcp, np.array(self.robot.robot.home_rad)))
        return Sample(self.robot.read().tcp_in_base, self.board.find(self.eye.read()[1]))

    def samples(self, count: int, tilt_deg: float = 22.0) -> list[Sample]:
        """So many pictures in which the board is seen."""
        found: list[Sample] = []
        for tcp in self.poses(tilt_deg):
            try:
                found.append(self.at(tcp))
            except RobotRLError:
                continue
            if len(found) == count:
                return found
        raise AssertionError

    def close(self) -> None:
        """Free the OpenGL context."""
        self.eye.close()


def camera_in_mount(robot: MujocoRobot, camera: str, mount: str) -> Pose:
    """True pose of the optical frame, in the TCP or in the base."""
    number = robot.model.camera(camera).id
    mujoco.mj_camlight(robot.model, robot.data)  # the kinematics are up to date, cameras not
    optical = robot.data.cam_xmat[number].reshape(3, 3) @ np.diag((1.0, -1.0, -1.0))
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, optical.ravel())
    found = pose(robot.data.cam_xpos[number].copy(), xyzw(quat))
    return relative(found, robot.read().tcp_in_base) if mount == "hand" else found


def apart(found: Pose, true: Pose) -> tuple[float, float]:
    """Distance [m] and angle [rad] between two poses."""
    off = relative(found, true)
    angle = float(np.linalg.norm(quat_to_rotvec(off.quaternion_xyzw)))
    return float(np.linalg.norm(off.position_m)), angle
