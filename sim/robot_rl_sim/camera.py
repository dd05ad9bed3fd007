"""Offscreen cameras of the simulated scene.

EGL is asked for unless `MUJOCO_GL` says otherwise; it must be chosen before MuJoCo is imported, so
the package's `__init__` does it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import RobotRLError, SetupError
from robot_rl.geometry import compose, pose, quat_multiply
from robot_rl.observe.cameras import CameraConfig
from robot_rl.ports import Camera
from robot_rl.robots import Robot
from robot_rl.tasks.common import SimTask
from robot_rl_sim.arm import HAND
from robot_rl_sim.builder import build_model
from robot_rl_sim.randomize import Randomizer

ROOM = 0.95  # share of the picture that `VideoCamera.step_back` fills


class Simulated(Protocol):
    """What is drawn: a `MujocoRobot`."""

    task: SimTask
    robot: Robot
    model: mujoco.MjModel
    data: mujoco.MjData
    randomizer: Randomizer | None

    @property
    def painted(self) -> int:
        """How often the scene's textures have changed."""
        ...

    def now_s(self) -> float:
        """Simulated seconds."""
        ...


def place_cameras(model: mujoco.MjModel, cameras: Mapping[str, CameraConfig], robot: Robot) -> None:
    """Put the scene's cameras where a calibration says that the real ones are."""
    for name, config in cameras.items():
        where = config.calibrated_pose
        if where is None:
            continue
        number, in_hand = model.camera(name).id, config.mount == "hand"
        if in_hand:
            where = compose(pose((0.0, 0.0, robot.gripper.tcp_m)), where)
        x, y, z, w = quat_multiply(where.quaternion_xyzw, np.array((1.0, 0.0, 0.0, 0.0))).tolist()
        model.cam_bodyid[number] = model.body(HAND).id if in_hand else 0
        model.cam_pos[number], model.cam_quat[number] = where.position_m, (w, x, y, z)
        if config.k:  # MuJoCo's cameras look through the middle of their pictures
            model.cam_fovy[number] = math.degrees(config.fovy_rad)


class SceneCamera(Camera, Protocol):
    """A camera of a simulated scene."""

    fovy_rad: float  # vertical angle of view


class SceneCopy:
    """A robot's scene as it was at the last `renew`: drawn by one thread while another goes on."""

    def __init__(self, source: Simulated) -> None:
        self._source = source
        self.task, self.robot, self.model = source.task, source.robot, source.model
        self.data = mujoco.MjData(source.model)
        self.randomizer: Randomizer | None = None  # it is the arm's; pictures are not spoilt here
        self._now_s = 0.0
        self.renew()

    def renew(self) -> None:
        """Copy the scene as it is now."""
        mujoco.mj_copyData(self.data, self.model, self._source.data)
        self._now_s = self._source.now_s()

    @property
    def painted(self) -> int:
        """How often the scene's textures have changed."""
        return self._source.painted

    def now_s(self) -> float:
        """Simulated seconds at the last `renew`."""
        return self._now_s

    def camera(self, name: str, size: tuple[int, int]) -> MujocoCamera:
        """A camera of the scene; needs OpenGL."""
        return MujocoCamera(self, name, size)


def make_renderer(model: mujoco.MjModel, height: int, width: int) -> mujoco.Renderer:
    """Open an offscreen renderer; the caller closes it.

    Raises:
        SetupError: no OpenGL on this machine; the message names the package to install.
    """
    with suppress(
        ImportError
    ):  # Mesa brings an LLVM: triton (of torch with CUDA) imported after it
        importlib.import_module("triton")  # ends the process with a segmentation fault
    try:
        return mujoco.Renderer(model, height, width)
    except Exception as error:  # GL loaders raise AttributeError, ImportError, GLError, ...
        raise SetupError(
            "cannot open an offscreen OpenGL context for the cameras",
            expected="EGL (MUJOCO_GL=egl) with Mesa or a GPU driver",
            got=f"{type(error).__name__}: {error}",
            fix="sudo apt-get install -y libegl1 libgl1-mesa-dri libgl1 (and import robot_rl_sim "
            "before mujoco, or export MUJOCO_GL=egl)",
        ) from error


def show_textures(renderer: Any, model: mujoco.MjModel) -> None:
    """Give an open renderer the model's textures as they are now; it copied them when it opened."""
    renderer._gl_context.make_current()  # what MuJoCo's own `Renderer` has no method for
    for number in range(model.ntex):
        mujoco.mjr_uploadTexture(model, renderer._mjr_context, number)


def opened(renderer: mujoco.Renderer | None) -> mujoco.Renderer:
    """The renderer, unless `close` came first."""
    if renderer is None:
        raise RobotRLError(
            "this camera was closed",
            expected="read() before close()",
            got="read() after close()",
            fix="make a new camera",
        )
    return renderer


class MujocoCamera:
    """`Camera` port over one camera of a `MujocoRobot`'s scene.

    Args:
        name: "wrist", "front" or "video".
        size: pixels; one number for a square image, or (height, width).

    Attributes:
        fovy_rad: vertical angle of view.

    Raises:
        SetupError: no OpenGL on this machine.
    """

    def __init__(self, robot: Simulated, name: str, size: int | tuple[int, int]) -> None:
        self.name = name
        self._robot = robot
        height, width = (size, size) if isinstance(size, int) else size
        self.fovy_rad = math.radians(robot.model.camera(name).fovy[0])
        self._painted = robot.painted
        self._renderer: mujoco.Renderer | None = make_renderer(robot.model, height, width)

    def read(self) -> tuple[float, NDArray[np.uint8]]:
        """(stamp_s, RGB uint8 [H, W, 3]) of the scene as it is now."""
        robot, renderer = self._robot, opened(self._renderer)
        spoilt_by = robot.randomizer if self.name in robot.task.images else None
        data = robot.data if spoilt_by is None else spoilt_by.seen(robot.now_s(), robot.data)
        mujoco.mj_camlight(robot.model, data)  # the kinematics are up to date, cameras not
        renderer.update_scene(data, camera=self.name)
        if self._painted != robot.painted:
            self._painted = robot.painted
            show_textures(renderer, robot.model)
        rgb, now_s = renderer.render(), robot.now_s()
        rgb = rgb if spoilt_by is None else spoilt_by.picture(rgb)
        rgb[0, :2] ^= _lowest_bits(now_s)
        return now_s, rgb

    def close(self) -> None:
        """Free the OpenGL context; must be called, destructors come too late."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def _lowest_bits(now_s: float) -> NDArray[np.uint8]:
    """What noise is to a sensor: no two pictures are the same, here in two pixels [2, 3].

    A camera that does not see the arm would otherwise be taken for frozen (`observe.frozen`) as
    soon as the arm has moved. A function of the time, so that equal runs have equal pictures.
    """
    tick = round(100.0 * now_s)  # 7 and 5: equal after 0.35 s at the soonest
    return np.array([[n & 1, n >> 1 & 1, n >> 2 & 1] for n in (tick % 7, tick % 5)], np.uint8)


def place_that_sees(
    points: NDArray[np.float64], axes: NDArray[np.float64], slopes: tuple[float, float]
) -> NDArray[np.float64]:
    """The nearest place [3] from which a camera with these axes has all points in its picture.

    Args:
        points: [N, 3] in the world, m.
        axes: [3, 3], the columns are right, up and back in the world.
        slopes: tangents of half the angle of view, horizontally and vertically.
    """
    local = points @ axes
    place, back = np.zeros(3), -np.inf
    for axis, slope in enumerate(slopes):  # |p - place| <= slope * (back - p_back) for every point
        least, most = (np.max(sign * local[:, axis] + slope * local[:, 2]) for sign in (-1.0, 1.0))
        place[axis] = (most - least) / 2
        back = max(back, (most + least) / (2 * slope))
    place[2] = back
    return axes @ place


class VideoCamera:
    """Pictures to show people: the same state drawn with shadows and smooth edges.

    Args:
        robot: whose state is drawn; its own model stays in the "fast" appearance.
        height, width: pixels.

    Raises:
        SetupError: no OpenGL on this machine.
    """

    def __init__(self, robot: Simulated, height: int = 480, width: int = 640) -> None:
        self._robot = robot
        self._model = build_model(robot.task, robot.robot, "video")
        self._data = mujoco.MjData(self._model)
        self._size = (height, width)
        self._renderer: mujoco.Renderer | None = make_renderer(self._model, height, width)

    def step_back(self, points_in_base: NDArray[np.float64]) -> None:
        """Move the camera "video", without turning it, so that it sees all points [N, 3] (m)."""
        camera = self._model.camera("video")
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, camera.quat)
        slope = ROOM * math.tan(math.radians(float(camera.fovy[0])) / 2)
        wide = self._size[1] / self._size[0]
        camera.pos[:] = place_that_sees(points_in_base, turn.reshape(3, 3), (wide * slope, slope))

    def render_video_frame(self, camera: str = "video") -> NDArray[np.uint8]:
        """RGB uint8 [H, W, 3] of the robot's scene as it is now."""
        source, data, renderer = self._robot, self._data, opened(self._renderer)
        data.qpos[:] = source.data.qpos
        data.mocap_pos[:], data.mocap_quat[:] = source.data.mocap_pos, source.data.mocap_quat
        self._model.body_pos[:], self._model.body_quat[:] = (
            source.model.body_pos,
            source.model.body_quat,
        )
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_comPos(self._model, data)
        mujoco.mj_camlight(self._model, data)
        renderer.update_scene(data, camera=camera)
        return renderer.render()

    def close(self) -> None:
        """Free the OpenGL context."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
