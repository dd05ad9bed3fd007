"""The one scene of the stand-in: a MuJoCo model, and what a stage says of it."""

import functools
import os

import mujoco
import numpy as np
from pxr import Usd, UsdGeom, UsdPhysics

from robot_rl.run.experiment import Experiment
from robot_rl_sim.builder import build_model
from robot_rl_sim.usd import JOINTS, body_path, usd_name

FREE = mujoco.mjtJoint.mjJNT_FREE


class Array:
    """A Warp array, as far as it is asked for."""

    def __init__(self, values):
        self._values = np.asarray(values)
        self.shape = self._values.shape

    def numpy(self):
        """As NumPy knows it."""
        return self._values


@functools.cache
def experiment():
    """What the words in the environment say."""
    return Experiment.compose(os.environ["FAKE_ISAAC"].split())


class World:
    """The model, its state, and its joints in the order of the articulation."""

    def __init__(self, path):
        self.robot = experiment().robot
        self.model = model = build_model(experiment().task, self.robot)
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
        self.data = mujoco.MjData(model)
        self.stage = Usd.Stage.Open(path)
        self.ready, self.playing, self.drawn = False, False, 0
        moved = [model.joint(i) for i in range(model.njnt) if model.jnt_type[i] != FREE]
        self.joints = moved[::-1]  # engines do not agree on an order
        self.qpos = np.array([int(joint.qposadr[0]) for joint in self.joints])
        self.dofs = np.array([int(joint.dofadr[0]) for joint in self.joints])
        self.bodies = {body_path(model, self.robot, i): i for i in range(1, model.nbody)}
        self.stiffness, self.damping, self.goal, self.pace, self.effort = np.zeros((5, len(moved)))
        self._place()

    def _place(self):
        """Parts that stand, and what the hand holds, where the stage has them."""
        model = self.model
        for path, body in self.bodies.items():
            prim = self.stage.GetPrimAtPath(path)
            if model.body_mocapid[body] >= 0 and prim:
                where = UsdGeom.Xformable(prim).GetLocalTransformation()
                turn = where.ExtractRotationQuat()
                number = model.body_mocapid[body]
                self.data.mocap_pos[number] = where.ExtractTranslation()
                self.data.mocap_quat[number] = turn.GetReal(), *turn.GetImaginary()
            fixed = self.stage.GetPrimAtPath(f"{JOINTS}/{usd_name(model.body(body).name)}_fixed")
            if fixed:
                joint = UsdPhysics.FixedJoint(fixed)
                turn = joint.GetLocalRot0Attr().Get()
                model.body_pos[body] = joint.GetLocalPos0Attr().Get()
                model.body_quat[body] = turn.GetReal(), *turn.GetImaginary()

    def step(self):
        """Efforts and drives for one step."""
        model, data, q, v = self.model, self.data, self.qpos, self.dofs
        drives = self.stiffness > 0.0
        model.dof_damping[v] = np.where(drives, 0.0, self.damping)
        pull = self.stiffness * (self.goal - data.qpos[q])
        pull += np.where(drives, self.damping * (self.pace - data.qvel[v]), 0.0)
        data.qfrc_applied[v] = self.effort + pull
        mujoco.mj_step(model, data)
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_comVel(model, data)


world = None


def opened():
    """The scene that is open, its physics running."""
    assert world is not None and world.ready, "physics before play"
    return world


def rows(values, count, width):
    """An argument as Isaac Sim takes it: it broadcasts to [count, width]."""
    return np.broadcast_to(np.asarray(values, np.float32), (count, width))
