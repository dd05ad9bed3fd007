"""A second scene that shows what another process simulates, or what a real arm does.

The console's pictures come from here: drawing happens beside the physics, not inside its deadlines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_rl.robots import Robot
from robot_rl.tasks.common import SimTask
from robot_rl.types import RobotState
from robot_rl_sim.camera import MujocoCamera
from robot_rl_sim.robot import MujocoRobot


class Mirror:
    """The scene of a task, posed by states instead of physics.

    Args:
        camera: of the scene. height, width: pixels.

    Raises:
        SetupError: no OpenGL on this machine.
    """

    def __init__(
        self,
        task: SimTask,
        robot: Robot | None = None,
        camera: str = "video",
        height: int = 480,
        width: int = 640,
    ) -> None:
        self._robot = MujocoRobot(task, robot)
        self._camera = MujocoCamera(self._robot, camera, (height, width))

    def picture(self, state: RobotState) -> NDArray[np.uint8]:
        """RGB uint8 [H, W, 3] of the arm and the objects as `state` says."""
        self._robot.show(state)
        return self._camera.read()[1]

    def close(self) -> None:
        """Free the OpenGL context."""
        self._camera.close()
