"""Is the USD stage the MuJoCo model? Read back with plain `usd-core`, and compared in numbers.

The reader knows the stage only: it walks links, joints and shapes as a physics engine would, turns
degrees into radians, and computes forward kinematics, the joint-space mass matrix and the torques
of gravity by itself. `parity_physx` asks the engine for the same, and for motion and contact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.robots import Robot
from robot_rl.tasks.common import SimTask
from robot_rl_sim.builder import FINGER_GAINS, drive_gains
from robot_rl_sim.kinematics import matrix
from robot_rl_sim.robot import MujocoRobot
from robot_rl_sim.usd import (
    JOINTS,
    LEAST_KG_M2,
    ROBOT,
    SHAPES,
    WORLD,
    body_path,
    build_stage,
    shape_path,
)
from robot_rl_sim.usd_scene import joints_of

if TYPE_CHECKING:
    from pxr import Usd

F64 = NDArray[np.float64]
POSES = 50
SEED = 0
ARMATURES = ("physxJointAxis:{}:armature", "physxJoint:armature", "newton:armature")
SPEEDS = (
    "physxJointAxis:{}:maxJointVelocity",
    "physxJoint:maxJointVelocity",
    "newton:velocityLimit",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: the largest difference, what it may be, and its unit."""

    name: str
    difference: float
    gate: float
    unit: str
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the difference is within the gate; NaN is not."""
        return self.difference <= self.gate


@dataclass(frozen=True, slots=True)
class Trace:
    """The same quantity over time in both engines, to look at."""

    name: str
    unit: str
    time_s: F64
    mujoco: F64
    physx: F64


@dataclass(frozen=True, slots=True)
class Link:
    """A rigid body of the articulation, in its own frame."""

    mass_kg: float
    centre_m: F64
    inertia_kg_m2: F64


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of a body. size_m: as `geom_size` of MuJoCo; pose [4, 4]: in the body.

    friction: static and dynamic; () = it touches nothing.
    """

    kind: str
    size_m: F64
    pose: F64
    friction: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StageJoint:
    """A joint about or along the z axis of its frame; before, after: that frame in both bodies.

    name: as USD spells it. Numbers that the stage does not have are NaN.
    """

    name: str
    parent: str
    child: str
    before: F64
    after: F64
    kind: str
    range: tuple[float, float]
    armature: tuple[float, ...] = ()
    speed: tuple[float, ...] = ()
    stiffness: float = 0.0
    damping: float = 0.0
    torque: float = 0.0

    @property
    def moves(self) -> bool:
        """False: it is fixed."""
        return self.kind != "fixed"


class Mechanism:
    """The articulation of a stage, as numpy.

    Attributes:
        links: path -> link. joints: in the order of the tree, from the world outwards. gravity:
            [3], m/s2.
    """

    def __init__(self, stage: Usd.Stage) -> None:
        self.gravity = _gravity(stage)
        robot = stage.GetPrimAtPath(ROBOT)
        self.links = {
            str(prim.GetPath()): _link(prim)
            for prim in robot.GetChildren()
            if prim.HasAPI("PhysicsRigidBodyAPI")
        }
        left = [_joint(prim) for prim in stage.GetPrimAtPath(JOINTS).GetChildren()]
        self.joints: list[StageJoint] = []
        known = {""}
        while left:
            ready = [joint for joint in left if joint.parent in known]
            if not ready:
                raise ValueError(f"these joints hang on nothing: {[j.name for j in left]}")
            self.joints += ready
            known |= {joint.child for joint in ready}
            left = [joint for joint in left if joint.parent not in known or joint not in ready]
        self.moving = [joint for joint in self.joints if joint.moves]

    def frames(self, q: Mapping[str, float]) -> tuple[dict[str, F64], dict[str, F64]]:
        """Poses [4, 4] in the world of links (by path) and of moving joints (by name)."""
        links: dict[str, F64] = {"": np.eye(4)}
        joints: dict[str, F64] = {}
        for joint in self.joints:
            frame = links[joint.parent] @ joint.before
            if joint.moves:
                joints[joint.name] = frame
                frame = frame @ _motion(joint.kind, q[joint.name])
            links[joint.child] = frame @ np.linalg.inv(joint.after)
        return links, joints

    def dynamics(self, q: Mapping[str, float]) -> tuple[F64, F64]:
        """Mass matrix [J, J] with armature, and torques [J] that hold against gravity."""
        links, joints = self.frames(q)
        order = [joint.name for joint in self.moving]
        above = self._above()
        mass = np.diag([joint.armature[0] for joint in self.moving])
        torque = np.zeros(len(order))
        for path, link in self.links.items():
            pose = links[path]
            centre = pose[:3, 3] + pose[:3, :3] @ link.centre_m
            linear, angular = np.zeros((3, len(order))), np.zeros((3, len(order)))
            for i, joint in enumerate(self.moving):
                if joint.name in above[path]:
                    axis, origin = joints[joint.name][:3, 2], joints[joint.name][:3, 3]
                    slides = joint.kind == "prismatic"
                    linear[:, i] = axis if slides else np.cross(axis, centre - origin)
                    angular[:, i] = 0.0 if slides else axis
            inertia = pose[:3, :3] @ link.inertia_kg_m2 @ pose[:3, :3].T
            mass = mass + link.mass_kg * linear.T @ linear + angular.T @ inertia @ angular
            torque -= link.mass_kg * linear.T @ self.gravity
        return mass, torque

    def _above(self) -> dict[str, set[str]]:
        """Path of a link -> names of the joints between it and the world."""
        found: dict[str, set[str]] = {"": set()}
        for joint in self.joints:
            found[joint.child] = found[joint.parent] | ({joint.name} if joint.moves else set())
        return found


def static_checks(task: SimTask, robot: Robot) -> list[Check]:
    """Masses, joints, drives, shapes, kinematics and dynamics of the stage against the model.

    Raises:
        SetupError: OpenUSD is not installed.
        ConfigError: two names of the scene are one in USD.
    """
    simulated = MujocoRobot(task, robot)
    stage = build_stage(task, robot, simulated.model, simulated.data)
    return stage_checks(stage, simulated.model, robot)


def stage_checks(stage: Usd.Stage, model: mujoco.MjModel, robot: Robot) -> list[Check]:
    """The same for a stage that is there."""
    found = Mechanism(stage)
    names, _, _ = joints_of(model, [joint.name for joint in found.moving])
    return [
        *_bodies(model, robot, stage),
        *_joints(model, robot, found, names),
        *_shapes(model, robot, stage),
        *_poses(model, robot, found, names),
    ]


def arm_bodies(model: mujoco.MjModel, robot: Robot) -> dict[str, int]:
    """Path in the stage -> number of the body, of everything that hangs on the robot's foot."""
    paths = {body_path(model, robot, n): n for n in range(1, model.nbody)}
    return {path: n for path, n in paths.items() if path.startswith(f"{ROBOT}/")}


def random_poses(model: mujoco.MjModel, names: list[str], count: int = POSES) -> Iterator[F64]:
    """Positions [J] of some joints, anywhere within their ranges."""
    rng = np.random.default_rng(SEED)
    low, high = np.array([model.joint(name).range for name in names]).T
    for _ in range(count):
        yield rng.uniform(low, high)


def model_dynamics(model: mujoco.MjModel, names: list[str], q: F64) -> tuple[F64, F64, Any]:
    """Mass matrix [J, J], torques [J] against gravity, and the data, with gravity on all bodies."""
    data = mujoco.MjData(model)
    adr = [int(model.joint(name).qposadr[0]) for name in names]
    dofs = [int(model.joint(name).dofadr[0]) for name in names]
    data.qpos[adr] = q
    mujoco.mj_forward(model, data)
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return full[np.ix_(dofs, dofs)], data.qfrc_bias[dofs].copy(), data


def worst(differences: list[float]) -> float:
    """The largest; NaN when there is none or one is NaN, so that nothing passes unseen."""
    return float(np.max(differences)) if differences else math.nan


# --- the parts of the static comparison -----------------------------------------------------------


def _bodies(model: mujoco.MjModel, robot: Robot, stage: Usd.Stage) -> list[Check]:
    """What can move, of the arm and of the task: inertia, and whether gravity pulls at it."""
    bodies = {
        body_path(model, robot, n): n for n in range(1, model.nbody) if model.body_mocapid[n] < 0
    }
    found = {str(prim.GetPath()): prim for prim in stage.Traverse() if _is_movable(prim)}
    there = _same_things("bodies", bodies, found)
    if not there.passed:
        return [there]
    mass: list[float] = []
    centre: list[float] = []
    inertia: list[float] = []
    pulled = 0
    for path, n in bodies.items():
        link, rotation = _link(found[path]), matrix(model.body_iquat[n])
        whole = rotation @ np.diag(np.maximum(model.body_inertia[n], LEAST_KG_M2)) @ rotation.T
        mass.append(abs(link.mass_kg - float(model.body_mass[n])))
        centre.append(float(np.abs(link.centre_m - model.body_ipos[n]).max()))
        inertia.append(float(np.abs(link.inertia_kg_m2 - whole).max() / np.abs(whole).max()))
        weightless = found[path].GetAttribute("physxRigidBody:disableGravity").Get()
        pulled += weightless != bool(model.body_gravcomp[n] == 1)
    return [
        there,
        Check("mass", worst(mass), 1e-5, "kg"),
        Check("centre of mass", worst(centre), 1e-5, "m"),
        Check("inertia", worst(inertia), 1e-5, "of the inertia"),
        Check("weightless where compensated", pulled, 0, "bodies"),
    ]


def _same_things(name: str, model: Mapping[str, Any], stage: Mapping[str, Any]) -> Check:
    """Whether both have something at the same paths."""
    odd = sorted(model.keys() ^ stage.keys())
    note = f"in one of the two only: {', '.join(odd)}" if odd else f"{len(model)} {name}"
    return Check(name, len(odd), 0, "", note)


def _joints(model: mujoco.MjModel, robot: Robot, found: Mechanism, names: list[str]) -> list[Check]:
    """Ranges, armature and drives of arm and fingers. names: of `found.moving`, in the model."""
    gains = dict(zip(robot.joint_names, drive_gains(model, robot), strict=True))
    gains |= dict.fromkeys(robot.gripper.fingers, FINGER_GAINS)
    most = dict.fromkeys(robot.gripper.fingers, robot.gripper.force_n)
    speeds = {joint.name: joint.velocity_rad_s for joint in robot.joints}
    ranges: list[float] = []
    armature: list[float] = []
    drives: list[float] = []
    torque: list[float] = []
    speed: list[float] = []
    for name, joint in zip(names, found.moving, strict=True):
        its = model.joint(name)
        dof = int(its.dofadr[0])
        ranges.append(float(np.abs(np.array(joint.range) - its.range).max()))
        armature += [abs(a - float(model.dof_armature[dof])) for a in joint.armature]
        stiffness, damping = gains[name]
        damping += float(model.dof_damping[dof])
        drives += [abs(joint.stiffness / stiffness - 1), abs(joint.damping / damping - 1)]
        torque.append(abs(joint.torque - most.get(name, float(model.jnt_actfrcrange[its.id, 1]))))
        if name in speeds:
            speed += [abs(v - speeds[name]) for v in joint.speed]
    return [
        Check("joint ranges", worst(ranges), 1e-5, "rad or m"),
        Check("armature, three spellings", worst(armature), 1e-6, "kg m2 or kg"),
        Check("gains of the drives", worst(drives), 1e-5, "of the gain"),
        Check("limits of the drives", worst(torque), 1e-4, "Nm or N"),
        Check("greatest velocities, three spellings", worst(speed), 1e-5, "rad/s"),
    ]


def _shapes(model: mujoco.MjModel, robot: Robot, stage: Usd.Stage) -> list[Check]:
    """Type, size, place and turn of every shape, whether it touches anything, and its friction."""
    kinds = [SHAPES.get(mujoco.mjtGeom(kind)) for kind in model.geom_type.tolist()]
    geoms = {shape_path(model, robot, n): n for n, kind in enumerate(kinds) if kind}
    prims = {str(prim.GetPath()): prim for prim in stage.Traverse() if prim.IsA("Gprim")}
    there = _same_things("shapes", geoms, prims)
    if not there.passed:
        return [there]
    shapes: list[float] = []
    friction: list[float] = []
    for path, n in geoms.items():
        shape, touches = _shape(prims[path]), bool(model.geom_contype[n])
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = matrix(model.geom_quat[n]), model.geom_pos[n]
        size = model.geom_size[n][: len(shape.size_m)]
        same = shape.kind == kinds[n] and bool(shape.friction) == touches
        off = np.concatenate((shape.size_m - size, (shape.pose - pose).ravel()))
        shapes.append(float(np.abs(off).max()) if same else math.inf)
        friction += [abs(mu - float(model.geom_friction[n, 0])) for mu in shape.friction]
    return [
        there,
        Check("size and place of shapes", worst(shapes), 1e-6, "m or rad"),
        Check("friction", worst(friction), 1e-6, ""),
    ]


def _poses(model: mujoco.MjModel, robot: Robot, found: Mechanism, names: list[str]) -> list[Check]:
    """Kinematics, mass matrix and gravity at random poses. names: see `_joints`."""
    bodies = arm_bodies(model, robot)
    compensated = model.body_gravcomp.copy()
    model.body_gravcomp[:] = 0.0
    place: list[float] = []
    turn: list[float] = []
    mass: list[float] = []
    torque: list[float] = []
    for q in random_poses(model, names):
        state = {joint.name: float(at) for joint, at in zip(found.moving, q, strict=True)}
        frames, _ = found.frames(state)
        full, bias, data = model_dynamics(model, names, q)
        for path in found.links:
            body = bodies[path]
            place.append(float(np.abs(frames[path][:3, 3] - data.xpos[body]).max()))
            turn.append(angle(frames[path][:3, :3], data.xmat[body].reshape(3, 3)))
        own_mass, own_torque = found.dynamics(state)
        mass.append(float(np.abs(own_mass - full).max()))
        torque.append(float(np.abs(own_torque - bias).max()))
    model.body_gravcomp[:] = compensated
    note = f"{POSES} poses"
    return [
        Check("kinematics, place", worst(place), 1e-5, "m", note),
        Check("kinematics, turn", worst(turn), 1e-5, "rad", note),
        Check("mass matrix", worst(mass), 1e-4, "kg m2", note),
        Check("torques of gravity", worst(torque), 1e-3, "Nm", note),
    ]


def angle(one: F64, other: F64) -> float:
    """Of the rotation between two matrices, exact for small ones: |R - R'| = sqrt(8) sin(a / 2)."""
    return 2.0 * math.asin(min(float(np.linalg.norm(one - other)) / math.sqrt(8.0), 1.0))


# --- reading a stage ------------------------------------------------------------------------------


def _gravity(stage: Usd.Stage) -> F64:
    from pxr import UsdPhysics

    scene = UsdPhysics.Scene(stage.GetPrimAtPath(f"{WORLD}/physics"))
    direction = np.array(scene.GetGravityDirectionAttr().Get(), float)
    return scene.GetGravityMagnitudeAttr().Get() * direction


def _is_movable(prim: Any) -> bool:
    stands = prim.GetAttribute("physics:kinematicEnabled").Get()
    return prim.HasAPI("PhysicsRigidBodyAPI") and not stands


def _link(prim: Any) -> Link:
    from pxr import UsdPhysics

    mass = UsdPhysics.MassAPI(prim)
    axes = matrix(_wxyz(mass.GetPrincipalAxesAttr().Get()))
    return Link(
        mass.GetMassAttr().Get(),
        np.array(mass.GetCenterOfMassAttr().Get(), float),
        axes @ np.diag(np.array(mass.GetDiagonalInertiaAttr().Get(), float)) @ axes.T,
    )


def _joint(prim: Any) -> StageJoint:
    from pxr import UsdPhysics

    joint = UsdPhysics.Joint(prim)
    kind = {
        "PhysicsFixedJoint": "fixed",
        "PhysicsRevoluteJoint": "revolute",
        "PhysicsPrismaticJoint": "prismatic",
    }[str(prim.GetTypeName())]
    frames = (
        _pose(joint.GetLocalPos0Attr().Get(), joint.GetLocalRot0Attr().Get()),
        _pose(joint.GetLocalPos1Attr().Get(), joint.GetLocalRot1Attr().Get()),
    )
    ends = [rel.GetTargets() for rel in (joint.GetBody0Rel(), joint.GetBody1Rel())]
    parent, child = (str(targets[0]) if targets else "" for targets in ends)
    if kind == "fixed":
        return StageJoint(prim.GetName(), parent, child, *frames, kind, (0.0, 0.0))
    axis = "linear" if kind == "prismatic" else "angular"
    unit = 1.0 if kind == "prismatic" else math.radians(1.0)
    drive = UsdPhysics.DriveAPI(prim, axis)

    def get(name: str) -> float:
        found = prim.GetAttribute(name.format(axis)).Get()
        return math.nan if found is None else found

    return StageJoint(
        prim.GetName(),
        parent,
        child,
        *frames,
        kind,
        (unit * get("physics:lowerLimit"), unit * get("physics:upperLimit")),
        tuple(get(name) for name in ARMATURES),
        tuple(unit * get(name) for name in SPEEDS),
        drive.GetStiffnessAttr().Get() / unit,
        drive.GetDampingAttr().Get() / unit,
        drive.GetMaxForceAttr().Get(),
    )


def _shape(prim: Any) -> Shape:
    from pxr import UsdGeom, UsdPhysics, UsdShade

    kind = str(prim.GetTypeName())
    frame = np.array(UsdGeom.Xformable(prim).GetLocalTransformation()).T  # Gf has row vectors
    scale = np.linalg.norm(frame[:3, :3], axis=0)
    frame[:3, :3] /= scale
    if kind == "Cube":
        size = prim.GetAttribute("size").Get() / 2 * scale
    else:
        tall = prim.GetAttribute("height").Get() or 0.0  # a sphere has none
        size = np.array((prim.GetAttribute("radius").Get(), tall / 2)) * scale[[0, 2]]
    if not prim.HasAPI("PhysicsCollisionAPI"):
        return Shape(kind, size, frame, ())
    bound, _ = UsdShade.MaterialBindingAPI(prim).ComputeBoundMaterial("physics")
    if not bound:
        return Shape(kind, size, frame, (math.nan,))
    surface = UsdPhysics.MaterialAPI(bound.GetPrim())
    friction = surface.GetStaticFrictionAttr().Get(), surface.GetDynamicFrictionAttr().Get()
    return Shape(kind, size, frame, friction)


def _motion(kind: str, q: float) -> F64:
    frame = np.eye(4)
    if kind == "prismatic":
        frame[2, 3] = q
    else:
        c, s = math.cos(q), math.sin(q)
        frame[:2, :2] = (c, -s), (s, c)
    return frame


def _pose(position: Any, rotation: Any) -> F64:
    frame = np.eye(4)
    frame[:3, :3] = matrix(_wxyz(rotation))
    frame[:3, 3] = position
    return frame


def _wxyz(rotation: Any) -> F64:
    found = np.array((rotation.GetReal(), *rotation.GetImaginary()), float)
    return found / np.linalg.norm(found)  # it was rounded to single precision
