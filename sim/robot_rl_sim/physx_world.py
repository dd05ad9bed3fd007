"""One scene in PhysX 5 on the CPU: USD in, joint torques in, positions and contacts out.

PhysX has no threads here: one arm is too little work to share (0.2 ms a step; with one worker, on a
busy machine, 10 ms and more).

`ovphysx` 0.7 calls its tensor bindings deprecated. They are used all the same, and the extra is
pinned to 0.7: the sessions that take their place need a dozen calls for each array.
"""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import SetupError
from robot_rl.robots import Robot
from robot_rl.tasks.common import SimTask
from robot_rl_sim.arm import HAND
from robot_rl_sim.kinematics import matrix
from robot_rl_sim.usd import ROBOT, ROOM, body_path, build_stage, collides, need_usd, usd_name

F64 = NDArray[np.float64]
COUPLING = 5000.0, 40.0  # N/m and Ns/m between the two fingers
CONTACTS = 256  # points of contact that are read of one step
SCHEMAS = ("PhysxSchema", "OmniUsdPhysicsDeformableSchema")
DOF = (
    *("POSITION", "VELOCITY", "ACTUATION_FORCE", "POSITION_TARGET", "VELOCITY_TARGET"),
    *("STIFFNESS", "DAMPING"),
)


class World:
    """The scene of a MuJoCo model, whose `data` takes PhysX's positions and velocities.

    There is one at a time: a new one closes the one before.

    driven: the joints' drives act, as the stage has them (`drive_to`). Otherwise only the joints'
    damping does, and a spring between the fingers; torques are the caller's.

    Attributes:
        closed: another world has taken its place.
        joint_names: of the articulation, in PhysX's order.

    Raises:
        SetupError: PhysX is not installed.
    """

    def __init__(
        self,
        task: SimTask,
        robot: Robot,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        *,
        driven: bool = False,
    ) -> None:
        self._model, self._data, self._robot = model, data, robot
        self._physx = engine()
        for other in [*_open]:
            other.close()
        self._stage = self._attach(task)
        self.closed, self._bindings = False, []
        _open.append(self)
        self._types = importlib.import_module("ovphysx.types").TensorType
        self._dof = {name: self.bind(f"ARTICULATION_DOF_{name}") for name in DOF}
        known = {usd_name(model.joint(i).name): model.joint(i) for i in range(model.njnt)}
        joints = [known[name] for name in self._dof["POSITION"].dof_names]
        self.joint_names = [joint.name for joint in joints]
        self._qpos = np.array([int(joint.qposadr[0]) for joint in joints])
        self._dofs = np.array([int(joint.dofadr[0]) for joint in joints])
        shape = (1, len(joints))
        self._q, self._v, self._torque = (np.zeros(shape, np.float32) for _ in range(3))
        self._goal, self._pace = (np.zeros(shape, np.float32) for _ in range(2))  # of the drives
        coupled = robot.gripper.fingers if task.uses_gripper and not driven else ()
        self._fingers = [self.joint_names.index(name) for name in coupled]
        self._free = [self._free_body(p.name) for p in task.parts() if p.role == "free"]
        self._touch = self._feel()
        self._physx.warmup()
        self._start(driven)

    def _attach(self, task: SimTask) -> Any:
        """The stage of the scene, in PhysX."""
        ovstage = importlib.import_module("ovstage")
        stage = ovstage.Stage("robot_rl")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "stage.usdc"
            scene = build_stage(task, self._robot, self._model, self._data)
            scene.GetRootLayer().Export(str(path))
            everything = ovstage.PopulationDomain.ALL
            ovstage.population.open_usd(stage, str(path), ordinal=1, domains=everything)
        stage.advance_write_floor(ordinal=1).wait()
        self._physx.wait_task(self._physx.attach_ovstage(stage, read_ordinal=1))
        return stage

    def bind(self, kind: str, path: str = ROBOT) -> Any:
        """A view of PhysX's numbers, by the name of a `TensorType`; it ends with the world."""
        with _quiet():
            found = self._physx.create_tensor_binding(
                prim_paths=[path], tensor_type=getattr(self._types, kind)
            )
        self._bindings.append(found)
        return found

    def read(self, kind: str) -> NDArray[np.float32]:
        """All numbers of a `TensorType` of the articulation."""
        binding = self.bind(kind)
        found = np.zeros(binding.shape, np.float32)
        binding.read(found)
        return found[0]

    def _free_body(self, name: str) -> _Free:
        model = self._model
        path = body_path(model, self._robot, model.body(name).id)
        poses = self.bind("RIGID_BODY_POSE", path)
        return _Free(model, name, poses, self.bind("RIGID_BODY_VELOCITY", path))

    def _feel(self) -> _Touch | None:
        """Of hand, fingers and held part against what they can touch; None = there is nothing."""
        model = self._model
        hand = model.body(HAND).id
        solid = [number for number in range(1, model.nbody) if collides(model, number)]
        arm = model.body_rootid[hand]
        own = [n for n in solid if n >= hand and model.body_rootid[n] == arm]
        others = [self._path(n) for n in solid if n not in own]
        others += [f"{ROOM}/table_top"] if model.geom("table_top").contype[0] else []
        if not own or not others:
            return None
        with _quiet():
            binding = self._physx.create_contact_binding(
                sensor_patterns=[self._path(n) for n in own],
                filter_patterns=others * len(own),
                filters_per_sensor=len(others),
                max_contact_data_count=CONTACTS,
            )
        self._bindings.append(binding)
        return _Touch(binding, len(own), len(others))

    def _path(self, number: int) -> str:
        return body_path(self._model, self._robot, number)

    def _start(self, driven: bool) -> None:
        """Positions and velocities as MuJoCo has them (the stage's are in degrees and rounded)."""
        data, dof = self._data, self._dof
        self._q[0], self._v[0] = data.qpos[self._qpos], data.qvel[self._dofs]
        dof["POSITION"].write(self._q)
        dof["VELOCITY"].write(self._v)
        for free in self._free:
            free.write(data)
        if driven:
            return
        stiffness = np.zeros_like(self._q)
        damping = self._model.dof_damping[self._dofs][None].astype(np.float32)
        stiffness[0, self._fingers] += COUPLING[0]
        damping[0, self._fingers] += COUPLING[1]
        dof["STIFFNESS"].write(stiffness)
        dof["DAMPING"].write(damping)

    def drive_to(self, goal: dict[str, float]) -> None:
        """Set the goals of the drives by the names of their joints (rad, m)."""
        self._goal[0] = [goal[name] for name in self.joint_names]
        self._dof["POSITION_TARGET"].write(self._goal)

    def step(self, torques: F64) -> F64:
        """One physics step with joint torques (of the model's dofs).

        Returns:
            Force [3], torque [3] and where they act [3]: what the hand does to the world, in base,
            as MuJoCo's sensor tells it.
        """
        data, dof = self._data, self._dof
        self._torque[0] = torques[self._dofs]
        dof["ACTUATION_FORCE"].write(self._torque)
        if self._fingers:  # each is drawn to where the other one is
            other = self._fingers[::-1]
            self._goal[0, self._fingers] = self._q[0, other]
            self._pace[0, self._fingers] = self._v[0, other]
            dof["POSITION_TARGET"].write(self._goal)
            dof["VELOCITY_TARGET"].write(self._pace)  # of the arm 0, or it would not be damped
        self._physx.step_sync(self._model.opt.timestep)
        dof["POSITION"].read(self._q)
        dof["VELOCITY"].read(self._v)
        data.qpos[self._qpos], data.qvel[self._dofs] = self._q[0], self._v[0]
        for free in self._free:
            free.read(data)
        return np.zeros(9) if self._touch is None else self._touch.read()

    def refresh(self) -> None:
        """Bring the links to where the joints have been put, without a step."""
        self._physx.update_articulations_kinematic()

    def close(self) -> None:
        """Take the scene out of the engine."""
        if self.closed:
            return
        self.closed = True
        _open.remove(self)
        for binding in self._bindings:
            binding.destroy()
        self._physx.wait_task(self._physx.detach_ovstage())
        self._stage.destroy()


class _Free:
    """A free body: pose and velocity, there and back.

    MuJoCo's velocity is of the body's origin, and its turning in the body's frame; PhysX's are of
    the centre of mass, and in the world.
    """

    def __init__(self, model: mujoco.MjModel, name: str, poses: Any, twists: Any) -> None:
        its, body = model.joint(f"{name}_free"), model.body(name)
        self._qpos, self._dof = int(its.qposadr[0]), int(its.dofadr[0])
        self._centre_m = np.array(body.ipos)
        self._poses, self._twists = poses, twists
        self._pose, self._twist = np.zeros((1, 7), np.float32), np.zeros((1, 6), np.float32)

    def write(self, data: mujoco.MjData) -> None:
        """From MuJoCo to PhysX."""
        x, y, z, w, i, j, k = data.qpos[self._qpos :][:7].tolist()
        rotation = matrix(data.qpos[self._qpos + 3 :][:4])
        velocity = data.qvel[self._dof :][:6]
        turning = rotation @ velocity[3:]
        self._pose[0] = x, y, z, i, j, k, w
        self._twist[0, :3] = velocity[:3] + np.cross(turning, rotation @ self._centre_m)
        self._twist[0, 3:] = turning
        self._poses.write(self._pose)
        self._twists.write(self._twist)

    def read(self, data: mujoco.MjData) -> None:
        """From PhysX to MuJoCo."""
        self._poses.read(self._pose)
        self._twists.read(self._twist)
        x, y, z, i, j, k, w = self._pose[0].tolist()
        data.qpos[self._qpos :][:7] = x, y, z, w, i, j, k
        rotation = matrix(data.qpos[self._qpos + 3 :][:4])
        turning = self._twist[0, 3:].astype(float)
        data.qvel[self._dof :][:3] = self._twist[0, :3] - np.cross(
            turning, rotation @ self._centre_m
        )
        data.qvel[self._dof + 3 :][:3] = rotation.T @ turning


class _Touch:
    """Forces at the points of contact between some bodies and others."""

    def __init__(self, binding: Any, sensors: int, filters: int) -> None:
        self._binding = binding
        self._net = np.zeros((sensors, 3), np.float32)
        self._force, self._gap = (np.zeros((CONTACTS, 1), np.float32) for _ in range(2))
        self._point, self._normal = (np.zeros((CONTACTS, 3), np.float32) for _ in range(2))
        self._rub, self._rub_point = (np.zeros((CONTACTS, 3), np.float32) for _ in range(2))
        self._counts, self._starts = (np.zeros((sensors, filters), np.int32) for _ in range(2))

    def read(self) -> F64:
        """Force [3] on the others, its torque [3] about the base's origin, and that origin [3]."""
        binding, found = self._binding, np.zeros(9)
        binding.read_net_normal_forces(self._net)
        if not self._net.any():
            return found
        binding.read_normal_contact_data(
            *(self._force, self._point, self._normal, self._gap, self._counts, self._starts)
        )
        rows = self._rows()
        forces, points = self._force[rows] * self._normal[rows], self._point[rows]
        binding.read_friction_contact_data(self._rub, self._rub_point, self._counts, self._starts)
        rows = self._rows()
        forces = np.concatenate((forces, self._rub[rows])).astype(float)
        points = np.concatenate((points, self._rub_point[rows])).astype(float)
        found[:3] = -forces.sum(0)
        found[3:6] = -np.cross(points, forces).sum(0)
        return found

    def _rows(self) -> NDArray[np.intp]:
        """The rows of the buffers that hold something."""
        pairs = zip(self._starts.ravel().tolist(), self._counts.ravel().tolist(), strict=True)
        some = [np.arange(start, start + count) for start, count in pairs if count]
        return np.concatenate(some) if some else np.zeros(0, np.intp)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


_running: list[Any] = []
_open: list[World] = []


def engine() -> Any:
    """PhysX, started once per process.

    Raises:
        SetupError: it is not installed.
    """
    if _running:
        return _running[0]
    need_usd()
    try:
        ovphysx, ovstage = map(importlib.import_module, ("ovphysx", "ovstage"))
        types = importlib.import_module("ovphysx.types")
        schemas = _schemas(ovphysx)
    except (ImportError, FileNotFoundError) as error:
        raise SetupError(
            "PhysX is not installed",
            expected="the packages ovphysx, physx-usd-schemas and newton-usd-schemas",
            got=str(error),
            fix="read NVIDIA's terms (docs/isaac.md), then pip install 'robot-rl[physx]'",
        ) from error
    ovphysx.set_global_config(types.GlobalConfigKey.CPU_ONLY, True)
    ovphysx.set_global_config(types.GlobalConfigKey.NUM_THREADS, 0)
    ovphysx.set_log_level(types.LogLevel.ERROR)
    ovstage.population.register_usd_schemas(schemas)
    _running.append(ovphysx.PhysX())
    return _running[0]


def _schemas(ovphysx: Any) -> Sequence[str]:
    """Folders of the schemas that PhysX reads. Raises `ImportError`, `FileNotFoundError`."""
    folder = Path(str(metadata.distribution("physx-usd-schemas").locate_file("physx_usd_schemas")))
    return [
        *(str(folder / name / "resources") for name in SCHEMAS),
        str(ovphysx.newton_schema_root()),
    ]
