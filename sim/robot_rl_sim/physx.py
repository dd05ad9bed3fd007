"""PhysxRobot: the simulated arm on PhysX 5, the physics engine of Isaac Sim.

A second opinion: the policy, the gate and the controller stay what they are, and only what happens
to masses, joints and contacts is computed by somebody else. MuJoCo's model goes on being the
*controller's* model, as a real arm's controller has one of its own: at every physics step it
computes, from PhysX's joint state, the torques of the Cartesian impedance (or of the joints'
drives) and of the gripper. It draws the pictures, too.

Deviations from the MuJoCo engine: contacts are rigid where MuJoCo's give way by some micrometres,
and so are the ends of the joints' ranges; the two fingers are coupled by a spring instead of a
constraint; a restored snapshot forgets the contacts' history, so what follows is close to the
original, not equal. Parts that move in a fixture (`Part.joint`) are refused.
"""

from __future__ import annotations

from typing import Protocol

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError
from robot_rl.ports import ResetPlan
from robot_rl.robots import Robot
from robot_rl.tasks.common import SimTask
from robot_rl.types import Pose
from robot_rl_sim.physx_world import PhysxWorld, engine
from robot_rl_sim.robot import MujocoRobot, Snapshot

F64 = NDArray[np.float64]


class World(Protocol):
    """A scene in another engine, whose positions and velocities go into MuJoCo's `data`."""

    closed: bool

    def step(self, torques: F64) -> F64:
        """One physics step with the torques of all dofs [nv].

        Returns force [3], torque [3] and where they act [3]: what the hand does to the world.
        """
        ...

    def close(self) -> None:
        """Take the scene out of the engine."""
        ...


class PhysxRobot(MujocoRobot):
    """A `MujocoRobot` whose physics is PhysX's; see the module docstring. Not thread-safe.

    Raises:
        SetupError: PhysX is not installed.
        ConfigError: the scene has parts that this engine cannot build.
    """

    engine = "PhysX"

    def __init__(
        self,
        task: SimTask,
        robot: Robot | None = None,
        model: mujoco.MjModel | None = None,
        *,
        joint_control: bool = False,
    ) -> None:
        jointed = [part.name for part in task.parts() if part.joint is not None]
        if jointed:
            raise ConfigError(
                f"{self.engine} cannot build this scene yet",
                expected="parts that are held, fixed or free",
                got=f"parts that move in a fixture: {', '.join(jointed)}",
                fix="use the engine mujoco for this task",
            )
        self._start_engine()
        self._world: World | None = None
        super().__init__(task, robot, model, joint_control=joint_control)
        self._samples = np.zeros((self._substeps, 9))
        self._sample = 0

    # --- whoever moves things by hand makes PhysX build the scene again (50 ms) ------------------

    def place_objects(self, plan: ResetPlan) -> None:
        """See `MujocoRobot`."""
        super().place_objects(plan)
        self._forget()

    def move_object(self, name: str, where: Pose | None, twist: F64 | None) -> None:
        """See `MujocoRobot`."""
        super().move_object(name, where, twist)
        self._forget()

    def restore(self, snapshot: Snapshot) -> None:
        """See `MujocoRobot`; the contacts' history is not part of a snapshot."""
        super().restore(snapshot)
        self._forget()

    def _place_arm(self, joints_rad: F64) -> None:
        super()._place_arm(joints_rad)
        self._forget()

    def _forget(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None
            self._samples[:] = 0.0

    # --- physics ---------------------------------------------------------------------------------

    def _start_engine(self) -> None:
        """Start it before the first episode, or what is missing would be told late."""
        engine()

    def _build(self) -> World:
        """The scene as it is in `data`, in the engine."""
        return PhysxWorld(self.task, self.robot, self.model, self.data)

    @property
    def world(self) -> World:
        """The scene in the engine; built when something has been moved by hand."""
        if self._world is None or self._world.closed:
            self._world = self._build()
        return self._world

    def _step(self, count: int) -> None:
        world = self.world
        for _ in range(count):
            self._sample = (self._sample + 1) % self._substeps
            self._samples[self._sample] = world.step(self._torques())
            self.data.time += self.model.opt.timestep

    def _torques(self) -> F64:
        """Of all joints: controller and gripper, posture, and who pushes the hand."""
        model, data = self.model, self.data
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_tendon(model, data)
        mujoco.mj_transmission(model, data)
        mujoco.mj_fwdVelocity(model, data)
        mujoco.mj_fwdActuation(model, data)
        torques = data.qfrc_actuator + data.qfrc_applied
        push = data.xfrc_applied[self._hand]
        if push.any():
            where = data.xipos[self._hand]
            mujoco.mj_applyFT(model, data, push[:3], push[3:], where, self._hand, torques)
        return torques

    def _touches(self) -> F64:
        return self._samples
