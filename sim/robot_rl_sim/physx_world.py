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
from robot_rl_sim.kinematics import wxyz, xyzw
from robot_rl_sim.usd import ROBOT, build_stage, need_usd
from robot_rl_sim.usd_scene import COUPLING, FreeBody, coupled, feelers, free_bodies, joints_of

F64 = NDArray[np.float64]
CONTACTS = 256  # points of contact that are read of one step
SCHEMAS = ("PhysxSchema", "OmniUsdPhysicsDeformableSchema")
DOF = (
    *("POSITION", "VELOCITY", "ACTUATION_FORCE", "POSITION_TARGET", "VELOCITY_TARGET"),
    *("STIFFNESS", "DAMPING"),
)


class PhysxWorld:
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
        self.joint_names, self._qpos, self._dofs = joints_of(model, self._dof["POSITION"].dof_names)
        shape = (1, len(self.joint_names))
        self._q, self._v, self._torque = (np.zeros(shape, np.float32) for _ in range(3))
        self._goal, self._pace = (np.zeros(shape, np.float32) for _ in range(2))  # of the drives
        fingers = () if driven else coupled(task, robot)
        self._fingers = [self.joint_names.index(name) for name in fingers]
        self._free = [self._bind_free(body) for body in free_bodies(task, robot, model)]
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

    def _bind_free(self, body: FreeBody) -> _Free:
        poses = self.bind("RIGID_BODY_POSE", body.path)
        return _Free(body, poses, self.bind("RIGID_BODY_VELOCITY", body.path))

    def _feel(self) -> _Touch | None:
        """Of hand, fingers and held part against what they can touch; None = there is nothing."""
        own, others = feelers(self._model, self._robot)
        if not own or not others:
            return None
        with _quiet():
            binding = self._physx.create_contact_binding(
                sensor_patterns=own,
                filter_patterns=others * len(own),
                filters_per_sensor=len(others),
                max_contact_data_count=CONTACTS,
            )
        self._bindings.append(binding)
        return _Touch(binding, len(own), len(others))

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
    """A free body in PhysX: pose and velocity, there and back."""

    def __init__(self, body: FreeBody, poses: Any, twists: Any) -> None:
        self._body, self._poses, self._twists = body, poses, twists
        self._pose, self._twist = np.zeros((1, 7), np.float32), np.zeros((1, 6), np.float32)

    def write(self, data: mujoco.MjData) -> None:
        """From MuJoCo to PhysX."""
        position, quaternion, twist = self._body.told(data)
        self._pose[0] = *position, *xyzw(quaternion)
        self._twist[0] = twist
        self._poses.write(self._pose)
        self._twists.write(self._twist)

    def read(self, data: mujoco.MjData) -> None:
        """From PhysX to MuJoCo."""
        self._poses.read(self._pose)
        self._twists.read(self._twist)
        pose = self._pose[0].astype(float)
        self._body.take(data, pose[:3], wxyz(pose[3:]), self._twist[0].astype(float))


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
_open: list[PhysxWorld] = []


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
