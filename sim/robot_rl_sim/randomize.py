"""`tasks.randomize` applied to a MuJoCo scene: to model, commands, sensors and pictures."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import cache
from typing import Any

import cv2
import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import compose, pose, quat_from_rotvec, quat_multiply
from robot_rl.ports import ResetPlan
from robot_rl.robots import Robot
from robot_rl.tasks.common import SimTask
from robot_rl.tasks.randomize import PATTERN, Range, draw, seed_of
from robot_rl.types import Command, Pose, RobotState
from robot_rl_sim.builder import TICK_S
from robot_rl_sim.kinematics import wxyz, xyzw
from robot_rl_sim.patterns import paint
from robot_rl_sim.scene import PATTERNED

F64 = NDArray[np.float64]
WRENCH = np.repeat((1.0, 0.02), 3)  # noise and bias of torques: 20 mm times those of forces
FRAME_S = 1.0 / 30.0  # of a camera: how much older a picture is when one was lost
CHANGED = (
    *("geom_size", "geom_pos", "geom_rbound", "geom_aabb", "geom_friction", "bvh_aabb"),
    *("body_mass", "body_inertia", "body_ipos", "dof_damping", "dof_frictionloss", "dof_armature"),
    *("actuator_gainprm", "actuator_biasprm", "actuator_forcerange"),
    *("cam_pos", "cam_quat", "cam_fovy", "light_dir", "light_diffuse", "mat_rgba"),
)


@cache
def _grain_of_film() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(1 << 20, np.float32)


class Randomizer:
    """The draws of one scene.

    Attributes:
        ranges: quantity -> range, from the next episode on.
        drawn: name -> value, of the episode that goes on.
        painted: how often the model's textures have changed, which an open renderer has copies of.
    """

    def __init__(self, model: mujoco.MjModel, task: SimTask, robot: Robot) -> None:
        self._model, self._task, self._robot = model, task, robot
        self.ranges: dict[str, Range] = task.drawn_ranges
        self._nominal: dict[str, NDArray] = {}
        self.drawn: dict[str, float] = {}
        self.painted, self._is_painted = 0, False
        names = [model.texture(number).name for number in range(model.ntex)]
        self._textures = range(model.ntex) if {*PATTERNED} & {*names} else range(0)
        self._bias, self._noise = np.zeros(6), np.zeros(0)
        self._seed(())
        self._orders: deque[tuple[float, Command]] = deque()
        self._grips: deque[tuple[float, float]] = deque()
        self._past: deque[tuple[float, F64, F64, F64]] = deque()
        self._scratch: mujoco.MjData | None = None

    def renew(self, plan: ResetPlan) -> None:
        """Draw anew, for an episode that begins with `plan`, and change the model."""
        if not self._nominal:  # not before: a calibration may move cameras after the scene is made
            changed = (*CHANGED, *(["tex_data"] if self._textures else []))
            self._nominal = {name: getattr(self._model, name).copy() for name in changed}
        self.drawn = draw(self.ranges, plan, self._task.images)
        self._seed(seed_of(plan))
        self._bias = WRENCH * np.tile(self._axes("wrench_bias_n"), 2)
        self.forget()
        for name, nominal in self._nominal.items():
            getattr(self._model, name)[:] = nominal
        self._change_physics()
        self._change_looks()
        self._paint()
        mujoco.mj_setConst(self._model, mujoco.MjData(self._model))  # what follows from masses

    def forget(self) -> None:
        """Drop commands and pictures that are on their way."""
        for kept in (self._orders, self._grips, self._past):
            kept.clear()

    def _seed(self, seed: tuple[int, ...]) -> None:
        """A generator for each use: a replay, which draws no pictures, has the same noise."""
        self._looks, self._commands, self._sensors, self._pictures, self._patterns = (
            np.random.default_rng((number, *seed)) for number in range(5)
        )
        self._sensed_s = -1.0

    def _factor(self, name: str) -> float:
        return self.drawn.get(name, 1.0)

    def _amount(self, name: str) -> float:
        return self.drawn.get(name, 0.0)

    def _axes(self, name: str, axes: str = "xyz", whose: str = "") -> F64:
        return np.array([self.drawn.get(f"{name}_{axis}{whose}", 0.0) for axis in axes])

    # --- the model -------------------------------------------------------------------------------

    def _change_physics(self) -> None:
        model, task = self._model, self._task
        for part in task.parts():
            body = model.body(part.name).id
            if part.role in ("free", "held"):
                model.body_mass[body] *= self._factor("object_mass")
                model.body_inertia[body] *= self._factor("object_mass")
            if part.role == "free":
                size = self._factor("object_size")
                geoms = np.flatnonzero(model.geom_bodyid == body)
                for name in ("geom_size", "geom_pos", "geom_rbound", "geom_aabb"):
                    getattr(model, name)[geoms] *= size
                first, count = model.body_bvhadr[body], model.body_bvhnum[body]
                model.bvh_aabb[first : first + count] *= size
                model.body_ipos[body] *= size
                model.body_inertia[body] *= size**2  # the mass has a draw of its own
        model.geom_friction[:, 0] *= self._factor("friction")
        joints = [int(model.joint(name).dofadr[0]) for name in self._robot.joint_names]
        model.dof_damping[joints] *= self._factor("joint_damping")
        torque_nm = np.array([joint.torque_nm for joint in self._robot.joints])
        model.dof_frictionloss[joints] += torque_nm * self._amount("joint_friction")
        model.dof_armature[joints] *= self._factor("armature")
        for number in range(model.nu):
            if model.actuator(number).name != "gripper":
                for name in ("gainprm", "biasprm", "forcerange"):
                    getattr(model, f"actuator_{name}")[number] *= self._factor("gains")

    def _change_looks(self) -> None:
        model = self._model
        for camera in self._task.images:
            number, whose = model.cam(camera).id, f"/{camera}"
            model.cam_pos[number] += self._axes("camera_place_m", whose=whose)
            turn = quat_from_rotvec(self._axes("camera_turn_rad", whose=whose))
            model.cam_quat[number] = wxyz(quat_multiply(xyzw(model.cam_quat[number]), turn))
            slope = np.tan(np.radians(model.cam_fovy[number]) / 2)
            slope /= self._factor(f"camera_focal{whose}")
            model.cam_fovy[number] = np.degrees(2 * np.arctan(slope))
        lean = np.append(self._axes("light_turn_rad", "xy"), 0.0)
        for number in range(model.nlight):
            leaning = pose((0.0, 0.0, 0.0), quat_from_rotvec(lean))
            model.light_dir[number] = compose(leaning, pose(model.light_dir[number])).position_m
            model.light_diffuse[number] *= self._factor("light")
        most = self._amount("colour")
        if most:
            change = self._decided("colour", self._looks).uniform(-most, most, (model.nmat, 3))
            model.mat_rgba[:, :3] = np.clip(model.mat_rgba[:, :3] + change, 0.0, 1.0)

    def _paint(self) -> None:
        """Another pattern on each texture of the scene."""
        model, contrast = self._model, self._amount("texture")
        was, self._is_painted = self._is_painted, bool(self._textures) and contrast > 0.0
        self.painted += was or self._is_painted
        rng = self._decided("texture", self._patterns)
        for number in self._textures if self._is_painted else ():
            height, width = int(model.tex_height[number]), int(model.tex_width[number])
            begin = int(model.tex_adr[number])
            texels = model.tex_data[begin : begin + 3 * height * width]
            paint(texels.reshape(height, width, 3), contrast, rng)

    def _decided(self, name: str, otherwise: np.random.Generator) -> np.random.Generator:
        """What decides the patterns of a quantity: a draw, if there is one of that name."""
        decided = self.drawn.get(f"{name}{PATTERN}")
        return otherwise if decided is None else np.random.default_rng(int(decided * 2**53))

    # --- commands, sensors, pictures -------------------------------------------------------------

    def order(self, command: Command, now_s: float) -> None:
        """Keep a command that will act later; `due` gives it back. None overtakes another."""
        due_s = now_s + self._amount("action_delay_s")
        due_s += self._commands.uniform() * self._amount("action_jitter_s")
        if self._orders:
            due_s = max(due_s, self._orders[-1][0])
        self._orders.append((due_s, replace(command, gripper_width_m=None)))
        if command.gripper_width_m is not None:
            grip_s = due_s + self._amount("gripper_latency_s")
            self._grips.append((grip_s, command.gripper_width_m))

    def due(self, now_s: float) -> tuple[Command | None, float | None]:
        """The newest command, and the newest gripper width, whose time is nearest to this tick."""
        command, width_m = None, None
        until_s = now_s + 0.5 * TICK_S
        while self._orders and self._orders[0][0] <= until_s:
            _, command = self._orders.popleft()
        while self._grips and self._grips[0][0] <= until_s:
            _, width_m = self._grips.popleft()
        return command, width_m

    def sense(self, state: RobotState, jacobian: F64) -> RobotState:
        """The state as the sensors of the episode tell it; objects stay where they are.

        One moment has one reading, however often it is asked for.
        """
        if state.stamp_s != self._sensed_s:
            self._sensed_s = state.stamp_s
            self._noise = self._sensors.standard_normal(len(state.joint_position_rad) + 6)
        noise_rad, noise_n = self._amount("encoder_noise_rad"), self._amount("wrench_noise_n")
        changed: dict[str, Any] = {}
        if noise_rad:
            off = noise_rad * self._noise[6:]
            moved = jacobian[:, : len(off)] @ off
            tcp = state.tcp_in_base
            changed["joint_position_rad"] = state.joint_position_rad + off
            changed["tcp_in_base"] = Pose(
                tcp.position_m + moved[:3],
                quat_multiply(quat_from_rotvec(moved[3:]), tcp.quaternion_xyzw),
            )
        if noise_n or self._bias.any():
            noise = WRENCH * (noise_n * self._noise[:6])
            changed["wrench_in_tcp"] = state.wrench_in_tcp + self._bias + noise
        return replace(state, **changed) if changed else state

    def _grain(self, count: int) -> NDArray[np.float32]:
        """Normal noise: a random piece of what was drawn once, or drawing would take 1 ms."""
        grain = _grain_of_film()
        if count >= len(grain):
            return self._pictures.standard_normal(count, np.float32)
        begin = int(self._pictures.integers(len(grain) - count))
        return grain[begin : begin + count]

    def remember(self, now_s: float, data: mujoco.MjData) -> None:
        """Keep where everything is, for pictures that come late."""
        if not self._is_late:
            return
        self._past.append((now_s, data.qpos.copy(), data.mocap_pos.copy(), data.mocap_quat.copy()))
        oldest_s = self._amount("image_delay_s") + FRAME_S + TICK_S
        while self._past[0][0] < now_s - oldest_s:
            self._past.popleft()

    @property
    def _is_late(self) -> bool:
        late = self._amount("image_delay_s") > 0.0 or self._amount("dropped_frames") > 0.0
        return late and bool(self._task.images)

    def seen(self, now_s: float, data: mujoco.MjData) -> mujoco.MjData:
        """The scene that a picture of now shows."""
        if not self._is_late or not self._past:
            return data
        lost = self._pictures.uniform() < self._amount("dropped_frames")
        shown_s = now_s - self._amount("image_delay_s") - FRAME_S * lost
        if now_s - shown_s < 0.5 * TICK_S:
            return data
        _, qpos, position, quaternion = min(self._past, key=lambda entry: abs(entry[0] - shown_s))
        scratch = self._scratch = self._scratch or mujoco.MjData(self._model)
        scratch.qpos[:], scratch.mocap_pos[:], scratch.mocap_quat[:] = qpos, position, quaternion
        mujoco.mj_kinematics(self._model, scratch)
        return scratch

    def picture(self, rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A picture as the camera of the episode takes it."""
        brightness, noise = self._factor("brightness"), self._amount("image_noise")
        if brightness != 1.0 or noise:
            bright = np.multiply(rgb, brightness, dtype=np.float32)
            bright += 0.5 + noise * self._grain(rgb.size).reshape(rgb.shape)  # 0.5: rounds
            rgb = np.clip(bright, 0.0, 255.0, out=bright).astype(np.uint8)
        loss = round(self._amount("jpeg_loss"))
        if loss:
            quality = [cv2.IMWRITE_JPEG_QUALITY, 100 - loss]
            _, packed = cv2.imencode(".jpg", rgb[..., ::-1], quality)
            found = cv2.imdecode(packed, cv2.IMREAD_COLOR)
            assert found is not None, "what was packed here unpacks here"
            rgb = np.ascontiguousarray(found[..., ::-1], dtype=np.uint8)
        return rgb
