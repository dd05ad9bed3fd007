"""A picture of an arm in its home pose, on an empty table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robot_rl.geometry import pose
from robot_rl.ports import ResetPlan
from robot_rl.robots import Robot
from robot_rl.robots.chain import Chain
from robot_rl.system.files import write_picture
from robot_rl.tasks.reach import ReachTask

AROUND_M = 0.1  # how far the arm goes beside its joints


def save_picture(robot: Robot, path: Path) -> None:
    """Draw the arm and write a PNG. Raises `RobotRLError` when its home is out of reach."""
    from robot_rl_sim.camera import VideoCamera
    from robot_rl_sim.robot import MujocoRobot

    home = Chain(robot).tcp_in_base(np.array(robot.home_rad))
    arm = MujocoRobot(ReachTask().with_robot(robot), robot)
    arm.reset(ResetPlan(home, {"target": pose(home.position_m)}, 0.0))
    view = VideoCamera(arm)
    places = Chain(robot).frames(np.array(robot.home_rad))[:, :3, 3]
    edges = [(0.0, 0.0, 0.0), *places, (*robot.workspace_min_m[:2], 0.0), robot.workspace_max_m]
    around = np.vstack([np.array(edges) + AROUND_M * corner for corner in (-1.0, 1.0)])
    view.step_back(around)
    try:
        picture = view.render_video_frame()
    finally:
        view.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_picture(path, picture[..., ::-1])
