"""IsaacRobot: the simulated arm in Isaac Sim: PhysX's physics, RTX's pictures.

Isaac Sim has a Python of its own, and must not share a process with rclpy or torch. So a second
program, `sim/isaac/worker.py`, holds the scene, started with the interpreter that the environment
variable `ROBOT_RL_ISAAC_PYTHON` names; a pair of sockets connects the two, and when either end
dies the other one sees it. The worker steps, measures contacts and draws. Everything else - gate,
topics, controller, gripper, randomisation - is that of the other engines (`robot_rl_sim.physx`).

`robot-rl` accepts no licence: the variable with which Isaac Sim asks for that is yours to set.

This has never met a real Isaac Sim (docs/isaac.md). The worker's calls are compared with the
vendor's own sources, and the whole runs against a stand-in for them that moves with MuJoCo.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.config.compose import shipped
from robot_rl.errors import RobotRLError, SetupError
from robot_rl.types import RobotState
from robot_rl_sim.builder import TARGET_BODY
from robot_rl_sim.physx import F64, PhysxRobot
from robot_rl_sim.usd import ROBOT, build_stage, camera_path, need_usd, usd_name
from robot_rl_sim.usd_scene import COUPLING, coupled, feelers, free_bodies, joints_of

log = logging.getLogger(__name__)

PYTHON_VARIABLE, WINDOW_VARIABLE = "ROBOT_RL_ISAAC_PYTHON", "ROBOT_RL_ISAAC_WINDOW"
PROGRAM = "worker.py"
START_S = 600.0  # the first start compiles shaders
ANSWER_S = 120.0  # for everything else; opening a stage takes seconds
TAIL = 12  # lines of the worker's own output that an error shows
LICENCE = "EULA"
SAME_M = 1e-4  # a fixture that a tracker sees trembles; the stage need not be opened anew for that


class Worker:
    """Isaac Sim in a process of its own.

    Raises:
        SetupError: no interpreter is named, or Isaac Sim does not start there.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        python = environment.get(PYTHON_VARIABLE, "")
        if not python:
            raise SetupError(
                "nothing says where Isaac Sim is",
                expected=f"{PYTHON_VARIABLE}=PATH, the Python that has Isaac Sim 6",
                got=f"no {PYTHON_VARIABLE}",
                fix=f"export {PYTHON_VARIABLE}=/path/to/isaac-sim/python.sh   (docs/isaac.md)",
            )
        program = shipped("sim/isaac", PROGRAM) / PROGRAM
        ours, theirs = socket.socketpair()
        window = ["--window"] if environment.get(WINDOW_VARIABLE) else []
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        command = [python, str(program), str(theirs.fileno()), *window]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,  # Isaac Sim would ask whether its licence is accepted
                stdout=self._said,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # python.sh is a shell around the interpreter
                env=dict(environment),
            )
        except OSError as error:
            ours.close()
            raise SetupError(
                "Isaac Sim's Python cannot be started",
                expected=f"{PYTHON_VARIABLE}: an interpreter",
                got=str(error),
                fix=f"export {PYTHON_VARIABLE}=/path/to/isaac-sim/python.sh",
            ) from error
        finally:
            theirs.close()
        self._connection = Connection(ours.detach())
        self._folder = tempfile.TemporaryDirectory(prefix="robot-rl-isaac-")
        self._stages = 0
        weakref.finalize(self, _end, self._connection, self.process)
        log.info("starting Isaac Sim; the first time takes minutes")
        try:
            self._receive(START_S)
        except RobotRLError as error:
            raise self._not_started(error) from error

    def open(self, stage: Any, said: dict[str, Any]) -> list[str]:
        """Open a stage, which is at rest until it is stepped; returns the joints' USD names.

        said: what the worker's `Scene` takes, without `stage`.
        """
        self._stages += 1  # USD does not read a file again that it knows by name
        path = Path(self._folder.name) / f"stage{self._stages}.usda"
        stage.GetRootLayer().Export(str(path))
        joints = json.loads(self._ask(b"o", json.dumps(said | {"stage": str(path)}).encode()))
        path.with_stem(f"stage{self._stages - 1}").unlink(missing_ok=True)
        return joints

    def move(self, said: dict[str, Any]) -> None:
        """Put joints and free bodies elsewhere: `position`, `velocity` and `free` of a scene."""
        self._ask(b"m", json.dumps(said).encode())

    def step(self, torques: F64) -> F64:
        """One physics step; the numbers are those of the worker's `Scene.step`."""
        return np.frombuffer(self._ask(b"s", torques.tobytes()))

    def picture(self, path: str, size: tuple[int, int]) -> NDArray[np.uint8]:
        """What a camera of the stage sees, RGB uint8 [height, width, 3]."""
        found = self._ask(b"p", json.dumps((path, size)).encode())
        return np.frombuffer(found, np.uint8).reshape(*size, 3)

    def close(self) -> None:
        """End the process."""
        _end(self._connection, self.process)

    def _ask(self, kind: bytes, content: bytes) -> bytes:
        try:
            self._connection.send_bytes(kind + content)
        except OSError as error:
            raise self._gone(str(error)) from error
        return self._receive(ANSWER_S)

    def _receive(self, timeout_s: float) -> bytes:
        try:
            if not self._connection.poll(timeout_s):
                _kill(self.process)
                raise self._gone(f"no answer within {timeout_s:g} s")
            answer = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._gone(f"its process has ended{self._code()}") from error
        if answer[:1] == b"!":
            raise RobotRLError(
                "Isaac Sim could not do what it was asked",
                expected="the scene to be built, moved and drawn",
                got=answer[1:].decode(errors="replace"),
                fix="robot-rl parity TASK --engine physx tells whether the stage is sound",
            )
        return answer[1:]

    def _code(self) -> str:
        try:
            return f" (exit code {self.process.wait(5.0)})"
        except subprocess.TimeoutExpired:
            return ""

    def _gone(self, why: str) -> RobotRLError:
        return RobotRLError(
            "Isaac Sim is gone",
            expected="it goes on while its scene is used",
            got="\n            ".join([why, *self._tail()]),
            fix="read what it said last; robot-rl up starts it again by itself",
        )

    def _not_started(self, error: RobotRLError) -> SetupError:
        if LICENCE in "".join(self._tail()):
            return SetupError(
                "Isaac Sim's licence has not been accepted",
                expected="you have read NVIDIA's terms, and said so to Isaac Sim",
                got=self._tail()[-1],
                fix="start Isaac Sim once by hand, or set the variable that it names in your shell",
            )
        return SetupError(
            "Isaac Sim does not start",
            expected=f"Isaac Sim 6 in the Python that {PYTHON_VARIABLE} names",
            got=error.got,
            fix="docs/isaac.md says which Isaac Sim, and how to try it alone",
        )

    def _tail(self) -> list[str]:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()][-TAIL:]


def _end(connection: Connection, process: subprocess.Popen[bytes]) -> None:
    """Hang up, upon which the worker ends; kill it if it does not."""
    connection.close()
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class IsaacWorld:
    """The scene of a MuJoCo model in Isaac Sim; a `robot_rl_sim.physx.World`."""

    def __init__(self, worker: Worker, robot: IsaacRobot) -> None:
        model, data, task = robot.model, robot.data, robot.task
        self._worker, self._data, self.closed = worker, data, False
        target = int(model.body(TARGET_BODY).mocapid[0])  # of the controller, in no stage
        self._standing = [i for i in range(model.nmocap) if i != target]
        self._fixtures = self._poses()
        self._free = free_bodies(task, robot.robot, model)
        hand, others = feelers(model, robot.robot)
        stage = build_stage(task, robot.robot, model, data)
        free = mujoco.mjtJoint.mjJNT_FREE
        moved = [model.joint(i).name for i in range(model.njnt) if model.jnt_type[i] != free]
        usd = [usd_name(name) for name in moved]
        _, self._qpos, self._dofs = joints_of(model, usd)
        self._joints = usd
        said = self._motion() | {
            "arm": ROBOT,
            "step_s": model.opt.timestep,
            "damping": dict(zip(usd, model.dof_damping[self._dofs].tolist(), strict=True)),
            "coupled": [usd_name(name) for name in coupled(task, robot.robot)],
            "coupling": COUPLING,
            "hand": hand,
            "others": others,
            "pictures": robot.draws,
        }
        self._joints = worker.open(stage, said)  # in an order of its own
        _, self._qpos, self._dofs = joints_of(model, self._joints)

    def _motion(self) -> dict[str, Any]:
        """Where joints and free bodies are in the model, and how fast."""
        position = self._data.qpos[self._qpos].tolist()
        velocity = self._data.qvel[self._dofs].tolist()
        return {
            "position": dict(zip(self._joints, position, strict=True)),
            "velocity": dict(zip(self._joints, velocity, strict=True)),
            "free": {body.path: _plain(body.told(self._data)) for body in self._free},
        }

    def _poses(self) -> F64:
        """Of fixtures and markers, which are where the stage has them."""
        poses = np.hstack((self._data.mocap_pos, self._data.mocap_quat))
        return poses[self._standing]

    def move(self) -> bool:
        """Take over what moves from the model; False where something else would have to move."""
        if not np.allclose(self._poses(), self._fixtures, atol=SAME_M):
            return False
        self._worker.move(self._motion())
        return True

    def step(self, torques: F64) -> F64:
        """See `robot_rl_sim.physx.World`."""
        count = len(self._qpos)
        found = self._worker.step(np.ascontiguousarray(torques[self._dofs]))
        self._data.qpos[self._qpos], self._data.qvel[self._dofs] = np.split(found[: 2 * count], 2)
        rows = found[2 * count : -9].reshape(-1, 13)
        for body, row in zip(self._free, rows, strict=True):
            body.take(self._data, row[:3], row[3:7], row[7:])
        return found[-9:]

    def close(self) -> None:
        """The worker opens the next stage in the place of this one."""
        self.closed = True


def _plain(told: tuple[F64, F64, F64]) -> list[list[float]]:
    position, quaternion, twist = told
    return [position.tolist(), quaternion.tolist(), twist[:3].tolist(), twist[3:].tolist()]


class IsaacRobot(PhysxRobot):
    """A `PhysxRobot` whose scene is in Isaac Sim; see the module docstring. Not thread-safe.

    Each start of an episode opens its stage anew.

    Attributes:
        draws: whether Isaac Sim draws pictures of this scene.

    Raises:
        SetupError: OpenUSD or Isaac Sim is not there, or does not start.
        ConfigError: the scene has parts that this engine cannot build.
    """

    engine = "Isaac Sim"

    def _start_engine(self) -> None:
        need_usd()
        self.draws = False
        self.worker = Worker()

    def _build(self) -> IsaacWorld:
        return IsaacWorld(self.worker, self)

    def show(self, state: RobotState) -> None:
        """See `MujocoRobot`; the stage is opened anew only where a fixture has moved."""
        world = self._world
        super().show(state)
        if isinstance(world, IsaacWorld) and world.move():
            self._world, world.closed = world, False

    def close(self) -> None:
        """End Isaac Sim."""
        self.worker.close()

    def camera(self, name: str, size: tuple[int, int]) -> IsaacCamera:
        """A camera of the scene; what randomisation delays is not delayed in its pictures."""
        self.draws = True
        self._forget()
        return IsaacCamera(self, name, size)


class IsaacCamera:
    """`Camera` port over a camera of an `IsaacRobot`'s scene.

    Attributes:
        fovy_rad: vertical angle of view.
    """

    def __init__(self, robot: IsaacRobot, name: str, size: tuple[int, int]) -> None:
        its = robot.model.camera(name)
        self.name, self.fovy_rad = name, math.radians(float(its.fovy[0]))
        self._robot, self._size = robot, size
        self._path = camera_path(robot.model, robot.robot, name)

    def read(self) -> tuple[float, NDArray[np.uint8]]:
        """(stamp_s, RGB uint8 [H, W, 3]) of the scene as it is now."""
        robot = self._robot
        spoilt_by = robot.randomizer if self.name in robot.task.images else None
        robot.world  # noqa: B018 - built if it is not there
        rgb = robot.worker.picture(self._path, self._size)
        return robot.now_s(), rgb if spoilt_by is None else spoilt_by.picture(rgb)

    def close(self) -> None:
        """The stage's cameras end with it."""
