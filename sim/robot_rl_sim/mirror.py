"""A second scene that shows what another process simulates, or what a real arm does.

The console's pictures come from here: drawing happens beside the physics, not inside its deadlines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.observe.cameras import CameraConfig
from robot_rl.observe.places import Place, place
from robot_rl.robots import Robot
from robot_rl.tasks.common import ALONG_TOOL, AT_WRIST, OVERVIEW, WRIST, SimTask
from robot_rl.types import RobotState
from robot_rl_sim.arm import HAND
from robot_rl_sim.camera import make_renderer, opened, place_cameras
from robot_rl_sim.robot import MujocoRobot

SCENE_CAMERAS = {OVERVIEW: "video", AT_WRIST: WRIST}
NO_CAMERAS: Mapping[str, CameraConfig] = MappingProxyType({})
ALONG_M = 0.25  # from the TCP up to the eye of the view along the tool


class Mirror:
    """The scene of a task, posed by states instead of physics.

    Args:
        view: what `picture` shows unless it is asked for another: one of `tasks.common.VIEWS`, or a
            camera of the scene. height, width: pixels. cameras: calibrations, by which the scene's
            cameras stand.

    Raises:
        SetupError: no OpenGL on this machine.
    """

    def __init__(
        self,
        task: SimTask,
        robot: Robot | None = None,
        view: str = OVERVIEW,
        height: int = 480,
        width: int = 640,
        *,
        cameras: Mapping[str, CameraConfig] = NO_CAMERAS,
    ) -> None:
        self._robot = MujocoRobot(replace(task, randomize="none", ranges={}), robot)
        self._view = view
        model = self._robot.model
        place_cameras(model, cameras, self._robot.robot)
        self._renderer: mujoco.Renderer | None = make_renderer(model, height, width)
        self._above = mujoco.MjvCamera()
        self._above.type = mujoco.mjtCamera.mjCAMERA_FREE
        self._above.distance, self._above.elevation = ALONG_M, -90.0
        self._arm = np.isin(model.geom_bodyid, self._bodies_of_arm())

    def picture(self, state: RobotState, view: str = "") -> NDArray[np.uint8]:
        """RGB uint8 [H, W, 3] of the arm and the objects as `state` says."""
        self._robot.show(state)
        view = view or self._view
        model, data, renderer = self._robot.model, self._robot.data, opened(self._renderer)
        mujoco.mj_camlight(model, data)
        if view != ALONG_TOOL:
            renderer.update_scene(data, camera=SCENE_CAMERAS.get(view, view))
            return renderer.render()
        tool = data.site("tcp")
        forward = tool.xmat.reshape(3, 3)[:, 0]
        self._above.lookat[:] = tool.xpos
        self._above.azimuth = math.degrees(math.atan2(forward[1], forward[0]))
        renderer.update_scene(data, camera=self._above)
        for geom in renderer.scene.geoms[: renderer.scene.ngeom]:
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and self._arm[geom.objid]:
                geom.type = mujoco.mjtGeom.mjGEOM_NONE  # the arm is in the way
        return renderer.render()

    def places(self) -> dict[str, Place]:
        """Where each view is, and each camera of the task; see `observe.places`."""
        model, data = self._robot.model, self._robot.data
        mujoco.mj_camlight(model, data)
        tool = data.site("tcp")
        turn = tool.xmat.reshape(3, 3)
        found: dict[str, Place] = {}
        for view in (OVERVIEW, AT_WRIST, *self._robot.task.images):
            camera = data.camera(SCENE_CAMERAS.get(view, view))
            position_m, rotation = camera.xpos, camera.xmat.reshape(3, 3)
            at_hand = model.cam_bodyid[camera.id] == model.body(HAND).id
            if at_hand:
                position_m, rotation = turn.T @ (position_m - tool.xpos), turn.T @ rotation
            fovy_deg = float(model.cam_fovy[camera.id])
            found[view] = place("tool" if at_hand else "base", position_m, rotation, fovy_deg)
        seen = np.column_stack(((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, -1.0)))
        fovy_deg = float(model.vis.global_.fovy)
        found[ALONG_TOOL] = place("tool", np.array((0.0, 0.0, -ALONG_M)), seen, fovy_deg)
        return found

    def close(self) -> None:
        """Free the OpenGL context."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _bodies_of_arm(self) -> list[int]:
        """Bodies from the hand to the foot; fingers, and what is held, can be seen."""
        model = self._robot.model
        body, arm = model.body(HAND).id, list[int]()
        while body:
            arm.append(int(body))
            body = model.body_parentid[body]
        return arm
