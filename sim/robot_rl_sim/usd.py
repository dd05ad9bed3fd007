"""The scene of a task as a USD stage, for Isaac Sim, Isaac Lab and PhysX.

It is written from the compiled MuJoCo model, so that all engines have the same scene: the numbers
of `robots/` and `tasks/` have been turned into bodies, joints and shapes once.
`robot_rl_sim.parity` reads the stage back and compares it with that model.

Layout: `/World/robot` is the articulation, with its links side by side (not inside each other, or
a link would be simulated twice) and its joints in `/World/robot/joints`; `/World/parts` holds what
the task brings, `/World/room` what stands still, `/World/looks` and `/World/surfaces` materials for
the eye and for friction.

Conventions that USD and the engines do not share with MuJoCo, each held by a test:

* angles are in degrees, the gains of a rotary drive per degree;
* a drive's damping includes the joint's own, which has no place of its own in PhysX;
* armature and the greatest velocity of a joint have three names: PhysX 110 (Isaac Sim 6), PhysX
  before it (Isaac Sim 5), and Newton; each engine reads one of them;
* the articulation's root is the prim above the links: on the foot itself the base would float;
* damping of bodies in the air is 0.05 unless it is said to be 0; two frictions are averaged unless
  the greater is asked for, as MuJoCo takes it;
* a body without mass, as a tool may be, has a very small one;
* gravity is compensated by the robot's controller, so its links have none.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, SetupError
from robot_rl.observe.cameras import CameraConfig
from robot_rl.robots import Robot
from robot_rl.system.files import replace_file
from robot_rl.tasks.common import SimTask
from robot_rl_sim.arm import link
from robot_rl_sim.builder import FINGER_GAINS, TARGET_BODY, drive_gains
from robot_rl_sim.camera import place_cameras
from robot_rl_sim.robot import MujocoRobot

if TYPE_CHECKING:
    from pxr import Usd

WORLD, ROBOT = "/World", "/World/robot"
JOINTS, PARTS, ROOM = f"{ROBOT}/joints", f"{WORLD}/parts", f"{WORLD}/room"
LOOKS, SURFACES = f"{WORLD}/looks", f"{WORLD}/surfaces"
LEAST_KG, LEAST_KG_M2 = 1e-6, 1e-9  # 0 means "not said", and PhysX then fills the shapes with water
CONTACT_M = 0.002  # contacts are looked for within this: a step at 0.5 m/s is 1 mm long
ITERATIONS = 32  # of PhysX's solver, for positions: a peg in a tight hole touches in many places
APERTURE = 0.20955  # width of a camera's sensor, tenths of a metre; only ratios to it count
DRAWN = (480, 640)  # size of the picture of a camera that no policy sees: height, width
LENS = "omni:lensdistortion"
PINHOLE, DISTORTION = ("fx", "fy", "cx", "cy"), ("k1", "k2", "p1", "p2", "k3")
LAMP, SKY = 1500.0, 400.0  # intensities of the lamp and of the light from everywhere
SHAPES = {
    mujoco.mjtGeom.mjGEOM_BOX: "Cube",
    mujoco.mjtGeom.mjGEOM_CAPSULE: "Capsule",
    mujoco.mjtGeom.mjGEOM_CYLINDER: "Cylinder",
    mujoco.mjtGeom.mjGEOM_SPHERE: "Sphere",
}
NO_CAMERAS: Mapping[str, CameraConfig] = MappingProxyType({})
F64 = NDArray[np.float64]


def need_usd() -> None:
    """Raises `SetupError` where OpenUSD is not installed."""
    try:
        import pxr.Usd  # noqa: F401
    except ImportError as error:
        raise SetupError(
            "OpenUSD is not installed",
            expected="the package usd-core",
            got=str(error),
            fix="pip install 'robot-rl[usd]'",
        ) from error


def write_stage(
    task: SimTask,
    robot: Robot,
    path: Path,
    seed: int = 0,
    cameras: Mapping[str, CameraConfig] = NO_CAMERAS,
) -> None:
    """Write the scene at the start of an episode; `path` ends with .usda, .usdc or .usd.

    Raises:
        SetupError: OpenUSD is not installed.
        ConfigError: see `build_stage`.
        OSError: the file cannot be written.
    """
    need_usd()
    simulated = MujocoRobot(task, robot)
    place_cameras(simulated.model, cameras, robot)
    gains = np.array(drive_gains(simulated.model, robot))  # they do not follow drawn inertias
    simulated.reset(task.sample_reset(np.random.default_rng(seed)))
    if simulated.randomizer is not None:
        gains *= simulated.randomizer.drawn.get("gains", 1.0)
    stage = build_stage(task, robot, simulated.model, simulated.data, cameras, gains=gains.tolist())
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:  # USD's own error would leave its half here
        whole = Path(folder) / f"stage{path.suffix}"
        stage.GetRootLayer().Export(str(whole))
        replace_file(path, whole.read_bytes())


def build_stage(
    task: SimTask,
    robot: Robot,
    model: mujoco.MjModel,
    data: mujoco.MjData,
    cameras: Mapping[str, CameraConfig] = NO_CAMERAS,
    *,
    gains: Sequence[tuple[float, float]] = (),
) -> Usd.Stage:
    """The scene as it is in `data` (positions must be up to date), in memory.

    Keep the stage while its layer is used: the layer ends with it.

    Args:
        cameras: calibrations, whose poses are in the model already (`camera.place_cameras`).
        gains: of the arm's drives, as `builder.drive_gains` has them; () = those of this model.

    Raises:
        SetupError: OpenUSD is not installed.
        ConfigError: two names of the scene are one in USD.
    """
    need_usd()
    return _Writer(task, robot, model, data, cameras, gains=gains).stage


def body_path(model: mujoco.MjModel, robot: Robot, number: int) -> str:
    """Where a body of the model is in the stage; 0 is the room, what stands in the world."""
    if number == 0:
        return ROOM
    folder = ROBOT if _is_arm(model, robot, number) else PARTS
    return f"{folder}/{usd_name(model.body(number).name)}"


def shape_path(model: mujoco.MjModel, robot: Robot, number: int) -> str:
    """Where a geom of the model is in the stage; most have no name."""
    body = int(model.geom_bodyid[number])
    name = model.geom(number).name or f"shape{number - int(model.body_geomadr[body])}"
    return f"{body_path(model, robot, body)}/{usd_name(name)}"


def camera_path(model: mujoco.MjModel, robot: Robot, name: str) -> str:
    """Where a camera of the model is in the stage."""
    body = int(model.cam(name).bodyid[0])
    return f"{body_path(model, robot, body)}/{usd_name(f'camera_{name}')}"


def collides(model: mujoco.MjModel, number: int) -> bool:
    """Whether a body can be touched."""
    begin, count = int(model.body_geomadr[number]), int(model.body_geomnum[number])
    return bool(model.geom_contype[begin : begin + count].any())


def usd_name(name: str) -> str:
    """A name as USD allows it: a URDF may have other characters than letters, digits and _.

    Two names may become one; `build_stage` refuses both in one place.
    """
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{word}" if word[:1].isdigit() else word


def _is_arm(model: mujoco.MjModel, robot: Robot, number: int) -> bool:
    """Whether a body hangs on the robot's foot."""
    return model.body_rootid[number] == model.body(link(robot, 0)).id


class Optics(NamedTuple):
    """A pinhole camera for a picture of `width` x `height` pixels, as USD tells it.

    Lengths are in tenths of the stage's unit, so of 1 m; a pixel is `aperture / width` of them.
    """

    aperture: tuple[float, float]
    offset: tuple[float, float]
    focal: float
    k: tuple[float, float, float, float]
    size: tuple[int, int]
    distortion: tuple[float, ...]


def optics(
    size: tuple[int, int], k: tuple[float, ...], distortion: tuple[float, ...] = ()
) -> Optics:
    """From the picture's (height, width), and OpenCV's fx, fy, cx, cy (pixels), k1, k2, p1, p2, k3.

    USD's sensor is moved the other way than the principal point; y is up there, down in OpenCV.
    """
    (height, width), (fx, fy, cx, cy) = size, k
    pixel = APERTURE / width
    return Optics(
        (APERTURE, height * pixel * fx / fy),  # one focal length: pixels that are not square
        ((width / 2 - cx) * pixel, (cy - height / 2) * pixel * fx / fy),
        fx * pixel,
        (fx, fy, cx, cy),
        (width, height),
        distortion or (0.0,) * len(DISTORTION),
    )


class _Writer:
    """One stage while it is written."""

    def __init__(
        self,
        task: SimTask,
        robot: Robot,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        cameras: Mapping[str, CameraConfig],
        *,
        gains: Sequence[tuple[float, float]],
    ) -> None:
        from pxr import Usd, UsdGeom, UsdPhysics

        self.task, self.robot, self.model, self.data = task, robot, model, data
        self.cameras = cameras
        self._names: dict[str, str] = {}
        self.stage = stage = Usd.Stage.CreateInMemory()
        UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.z)
        UsdGeom.SetStageMetersPerUnit(stage, 1.0)
        UsdPhysics.SetStageKilogramsPerUnit(stage, 1.0)
        stage.SetDefaultPrim(UsdGeom.Xform.Define(stage, WORLD).GetPrim())
        for path in (ROBOT, JOINTS, PARTS, ROOM):
            self._define(UsdGeom.Xform, path, Path(path).name)
        for path in (LOOKS, SURFACES):
            UsdGeom.Scope.Define(stage, path)
        self._add_physics()
        self._looks = [self._look(i) for i in range(model.nmat)]
        self._surfaces: dict[float, Any] = {}
        gains = gains or drive_gains(model, robot)
        self._gains = dict(zip(robot.joint_names, gains, strict=True))
        for finger in robot.gripper.fingers:
            self._gains[finger] = FINGER_GAINS
        self._speeds = {joint.name: joint.velocity_rad_s for joint in robot.joints}
        for number in self._bodies():
            self._add_body(number)
        for number in self._bodies():
            self._add_joints(number)
        self._add_shapes(0)
        self._add_articulation()
        for number in range(model.ncam):
            self._add_camera(number)
        self._add_lights()

    # --- the whole -------------------------------------------------------------------------------

    def _define(self, kind: Any, path: str, name: str) -> Any:
        """A new prim. name: what the model calls it. Raises `ConfigError`: the path is taken."""
        if path in self._names:
            raise ConfigError(
                f"'{self._names[path]}' and '{name}' are one name in USD",
                expected="names that differ in letters or digits; all else becomes _",
                got=f"{path}, twice",
                fix="rename one of them, in the robot's URDF or in the task",
            )
        self._names[path] = name
        return kind.Define(self.stage, path)

    def _bodies(self) -> Iterator[int]:
        for number in range(1, self.model.nbody):
            if self.model.body(number).name != TARGET_BODY:
                yield number

    def _add_physics(self) -> None:
        from pxr import Gf, UsdPhysics

        scene = UsdPhysics.Scene.Define(self.stage, f"{WORLD}/physics")
        gravity = self.model.opt.gravity
        size = float(np.linalg.norm(gravity))
        scene.CreateGravityDirectionAttr(Gf.Vec3f(*(gravity / size).tolist()))
        scene.CreateGravityMagnitudeAttr(size)
        prim = scene.GetPrim()
        prim.AddAppliedSchema("PhysxSceneAPI")
        _set(prim, "physxScene:timeStepsPerSecond", "UInt", round(1 / self.model.opt.timestep))
        _set(prim, "physxScene:solverType", "Token", "TGS")
        _set(prim, "physxScene:enableGPUDynamics", "Bool", False)
        _set(prim, "physxScene:broadphaseType", "Token", "SAP")
        _set(prim, "physxScene:bounceThreshold", "Float", 0.2)

    def _add_articulation(self) -> None:
        from pxr import UsdPhysics

        prim = self.stage.GetPrimAtPath(ROBOT)
        UsdPhysics.ArticulationRootAPI.Apply(prim)
        prim.AddAppliedSchema("PhysxArticulationAPI")
        _set(prim, "physxArticulation:enabledSelfCollisions", "Bool", False)
        _set(prim, "physxArticulation:solverPositionIterationCount", "Int", ITERATIONS)
        _set(prim, "physxArticulation:solverVelocityIterationCount", "Int", 1)
        _set(prim, "physxArticulation:sleepThreshold", "Float", 0.0)

    # --- bodies and joints -----------------------------------------------------------------------

    def _add_body(self, number: int) -> None:
        from pxr import Gf, UsdGeom, UsdPhysics

        model = self.model
        path = body_path(model, self.robot, number)
        prim = self._define(UsdGeom.Xform, path, model.body(number).name).GetPrim()
        _place(prim, self.data.xpos[number], self.data.xquat[number])
        solid = collides(model, number)
        self._add_shapes(number)
        stands = model.body_mocapid[number] >= 0
        if stands and not solid:
            return  # a marker: only seen
        body = UsdPhysics.RigidBodyAPI.Apply(prim)
        if stands:
            body.CreateKinematicEnabledAttr(True)
            return
        mass = UsdPhysics.MassAPI.Apply(prim)
        inertia = np.maximum(model.body_inertia[number], LEAST_KG_M2)
        mass.CreateMassAttr(max(float(model.body_mass[number]), LEAST_KG))
        mass.CreateCenterOfMassAttr(Gf.Vec3f(*model.body_ipos[number].tolist()))
        mass.CreateDiagonalInertiaAttr(Gf.Vec3f(*inertia.tolist()))
        mass.CreatePrincipalAxesAttr(_quatf(model.body_iquat[number]))
        prim.AddAppliedSchema("PhysxRigidBodyAPI")
        _set(prim, "physxRigidBody:disableGravity", "Bool", bool(model.body_gravcomp[number] == 1))
        _set(prim, "physxRigidBody:linearDamping", "Float", 0.0)
        _set(prim, "physxRigidBody:angularDamping", "Float", 0.0)
        _set(prim, "physxRigidBody:sleepThreshold", "Float", 0.0)
        _set(prim, "physxRigidBody:solverPositionIterationCount", "Int", ITERATIONS)
        if solid and _is_arm(model, self.robot, number):
            prim.AddAppliedSchema("PhysxContactReportAPI")
            _set(prim, "physxContactReport:threshold", "Float", 0.0)

    def _add_joints(self, number: int) -> None:
        """What holds a body: its joint, or a fixed one. A free body has none."""
        model = self.model
        first, count = int(model.body_jntadr[number]), int(model.body_jntnum[number])
        if model.body_mocapid[number] >= 0:
            return
        if count == 0:
            self._add_fixed(number)
        elif model.jnt_type[first] != mujoco.mjtJoint.mjJNT_FREE:
            self._add_joint(number, first)

    def _connect(self, joint: Any, number: int, turn: F64) -> None:
        """Set bodies and frames of a joint; turn: from the joint's frame to the body's, wxyz."""
        from pxr import Gf

        model = self.model
        parent = int(model.body_parentid[number])
        if parent != 0:
            joint.CreateBody0Rel().SetTargets([body_path(model, self.robot, parent)])
        joint.CreateBody1Rel().SetTargets([body_path(model, self.robot, number)])
        before = np.empty(4)
        mujoco.mju_mulQuat(before, model.body_quat[number], turn)
        joint.CreateLocalPos0Attr(Gf.Vec3f(*model.body_pos[number].tolist()))
        joint.CreateLocalRot0Attr(_quatf(before))
        joint.CreateLocalPos1Attr(Gf.Vec3f(0.0))
        joint.CreateLocalRot1Attr(_quatf(turn))

    def _add_fixed(self, number: int) -> None:
        from pxr import UsdPhysics

        name = f"{self.model.body(number).name}_fixed"
        joint = self._define(UsdPhysics.FixedJoint, f"{JOINTS}/{usd_name(name)}", name)
        self._connect(joint, number, np.array((1.0, 0, 0, 0)))

    def _add_joint(self, number: int, index: int) -> None:
        """A joint about or along the z axis of its own frame, with limits and drive."""
        from pxr import UsdPhysics

        model, its = self.model, self.model.joint(index)
        slides = model.jnt_type[index] == mujoco.mjtJoint.mjJNT_SLIDE
        kind = UsdPhysics.PrismaticJoint if slides else UsdPhysics.RevoluteJoint
        folder = JOINTS
        if not _is_arm(model, self.robot, number):
            folder = body_path(model, self.robot, number)
        joint = self._define(kind, f"{folder}/{usd_name(its.name)}", its.name)
        turn = np.empty(4)
        mujoco.mju_quatZ2Vec(turn, model.jnt_axis[index])
        self._connect(joint, number, turn)
        unit = 1.0 if slides else math.degrees(1.0)
        joint.CreateAxisAttr("Z")
        low, high = (unit * its.range).tolist()
        joint.CreateLowerLimitAttr(low)
        joint.CreateUpperLimitAttr(high)
        prim, axis = joint.GetPrim(), "linear" if slides else "angular"
        position = float(self.data.qpos[its.qposadr[0]]) * unit
        prim.AddAppliedSchema(f"PhysicsJointStateAPI:{axis}")
        _set(prim, f"state:{axis}:physics:position", "Float", position)
        _set(prim, f"state:{axis}:physics:velocity", "Float", 0.0)
        self._add_axis(prim, index, axis)
        self._add_drive(prim, index, position)

    def _add_axis(self, prim: Any, index: int, axis: str) -> None:
        """Armature and greatest velocity, in three spellings."""
        its = self.model.joint(index)
        armature = float(self.model.dof_armature[its.dofadr[0]])
        for schema in (f"PhysxJointAxisAPI:{axis}", "PhysxJointAPI", "NewtonJointAPI"):
            prim.AddAppliedSchema(schema)
        _set(prim, f"physxJointAxis:{axis}:armature", "Float", armature)
        _set(prim, "physxJoint:armature", "Float", armature)
        _set(prim, "newton:armature", "Float", armature)
        if its.name in self._speeds:
            speed = math.degrees(self._speeds[its.name])
            _set(prim, f"physxJointAxis:{axis}:maxJointVelocity", "Float", speed)
            _set(prim, "physxJoint:maxJointVelocity", "Float", speed)
            _set(prim, "newton:velocityLimit", "Float", speed)

    def _add_drive(self, prim: Any, index: int, position: float) -> None:
        """A position servo, as the arm has below its joint controllers; else spring and damping."""
        from pxr import UsdPhysics

        its = self.model.joint(index)
        per = 1.0 if self.model.jnt_type[index] == mujoco.mjtJoint.mjJNT_SLIDE else math.radians(1)
        stiffness, damping = self._gains.get(its.name, (0.0, 0.0))
        damping += float(self.model.dof_damping[its.dofadr[0]])
        spring = float(self.model.jnt_stiffness[index])
        if spring > 0.0:  # of a part: the arm's joints have none
            stiffness = spring
            position = float(self.model.qpos_spring[its.qposadr[0]]) / per
        drive = UsdPhysics.DriveAPI.Apply(prim, "linear" if per == 1.0 else "angular")
        drive.CreateTypeAttr("force")
        drive.CreateStiffnessAttr(stiffness * per)
        drive.CreateDampingAttr(damping * per)
        drive.CreateTargetPositionAttr(position)
        most = self.robot.gripper.force_n
        if its.name not in self.robot.gripper.fingers:
            most = float(self.model.jnt_actfrcrange[index, 1]) or math.inf
        if math.isfinite(most):
            drive.CreateMaxForceAttr(most)

    # --- shapes and looks ------------------------------------------------------------------------

    def _add_shapes(self, number: int) -> None:
        model = self.model
        begin = int(model.body_geomadr[number])
        for geom in range(begin, begin + int(model.body_geomnum[number])):
            self._add_shape(geom)

    def _add_shape(self, geom: int) -> None:
        from pxr import Gf, UsdGeom, UsdPhysics, UsdShade

        model = self.model
        kind = SHAPES.get(mujoco.mjtGeom(int(model.geom_type[geom])))
        if kind is None:
            return  # the endless floor of films
        size = model.geom_size[geom].tolist()
        path = shape_path(model, self.robot, geom)
        shape = self._define(getattr(UsdGeom, kind), path, model.geom(geom).name)
        prim = shape.GetPrim()
        _place(prim, model.geom_pos[geom], model.geom_quat[geom])
        if kind == "Cube":
            shape.CreateSizeAttr(2.0)
            UsdGeom.Xformable(prim).AddScaleOp().Set(Gf.Vec3f(*size))
            shape.CreateExtentAttr([Gf.Vec3f(-1), Gf.Vec3f(1)])
        else:
            radius, half = size[0], size[1] if kind != "Sphere" else 0.0
            shape.CreateRadiusAttr(radius)
            if kind != "Sphere":
                shape.CreateAxisAttr("Z")
                shape.CreateHeightAttr(2 * half)
            tall = half + (radius if kind != "Cylinder" else 0.0)
            shape.CreateExtentAttr(
                [Gf.Vec3f(-radius, -radius, -tall), Gf.Vec3f(radius, radius, tall)]
            )
        if model.geom_group[geom] == 3:
            shape.CreatePurposeAttr(UsdGeom.Tokens.guide)
        if model.geom_matid[geom] >= 0:
            binding = UsdShade.MaterialBindingAPI.Apply(prim)
            binding.Bind(self._looks[model.geom_matid[geom]])
        if not model.geom_contype[geom]:
            return
        UsdPhysics.CollisionAPI.Apply(prim)
        prim.AddAppliedSchema("PhysxCollisionAPI")
        _set(prim, "physxCollision:contactOffset", "Float", CONTACT_M)
        _set(prim, "physxCollision:restOffset", "Float", 0.0)
        UsdShade.MaterialBindingAPI.Apply(prim).Bind(
            self._surface(float(model.geom_friction[geom, 0])), materialPurpose="physics"
        )

    def _surface(self, friction: float) -> Any:
        """The material of everything with this coefficient of friction."""
        from pxr import UsdPhysics, UsdShade

        found = self._surfaces.get(friction)
        if found is None:
            path = f"{SURFACES}/friction{len(self._surfaces)}"
            found = UsdShade.Material.Define(self.stage, path)
            prim = found.GetPrim()
            surface = UsdPhysics.MaterialAPI.Apply(prim)
            surface.CreateStaticFrictionAttr(friction)
            surface.CreateDynamicFrictionAttr(friction)
            surface.CreateRestitutionAttr(0.0)
            prim.AddAppliedSchema("PhysxMaterialAPI")
            _set(prim, "physxMaterial:frictionCombineMode", "Token", "max")
            _set(prim, "physxMaterial:restitutionCombineMode", "Token", "min")
            self._surfaces[friction] = found
        return found

    def _look(self, number: int) -> Any:
        """A material of the scene for the eye."""
        from pxr import Gf, Sdf, UsdShade

        its = self.model.mat(number)
        path = f"{LOOKS}/{usd_name(its.name)}"
        look = self._define(UsdShade.Material, path, its.name)
        shader = UsdShade.Shader.Define(self.stage, f"{path}/surface")
        shader.CreateIdAttr("UsdPreviewSurface")
        red, green, blue, alpha = its.rgba.tolist()
        colour = Gf.Vec3f(red, green, blue)
        types = Sdf.ValueTypeNames
        shader.CreateInput("diffuseColor", types.Color3f).Set(colour)
        shader.CreateInput("opacity", types.Float).Set(alpha)
        shader.CreateInput("roughness", types.Float).Set(1.0 - float(its.shininess[0]))
        if its.emission[0] > 0.0:
            shader.CreateInput("emissiveColor", types.Color3f).Set(colour * float(its.emission[0]))
        look.CreateSurfaceOutput().ConnectToSource(shader.ConnectableAPI(), "surface")
        return look

    def _add_camera(self, number: int) -> None:
        """A camera of the scene; USD's look along -z with y up, as MuJoCo's do."""
        from pxr import Gf, UsdGeom

        model, its = self.model, self.model.cam(number)
        camera = self._define(UsdGeom.Camera, camera_path(model, self.robot, its.name), its.name)
        prim = camera.GetPrim()
        _place(prim, its.pos, its.quat)
        found = self._optics(number)
        camera.CreateHorizontalApertureAttr(found.aperture[0])
        camera.CreateVerticalApertureAttr(found.aperture[1])
        camera.CreateHorizontalApertureOffsetAttr(found.offset[0])
        camera.CreateVerticalApertureOffsetAttr(found.offset[1])
        camera.CreateFocalLengthAttr(found.focal)
        camera.CreateClippingRangeAttr(Gf.Vec2f(0.01, 30.0))
        # Isaac Sim's own CameraInfo ignores the offsets and believes these
        prim.AddAppliedSchema("OmniLensDistortionOpenCvPinholeAPI")
        _set(prim, f"{LENS}:model", "Token", "opencvPinhole")
        _set(prim, f"{LENS}:opencvPinhole:imageSize", "Int2", Gf.Vec2i(*found.size))
        numbers = (*found.k, *found.distortion)
        for name, value in zip((*PINHOLE, *DISTORTION), numbers, strict=True):
            _set(prim, f"{LENS}:opencvPinhole:{name}", "Float", value)

    def _optics(self, number: int) -> Optics:
        """As a calibration says, or as MuJoCo draws: through the middle, with square pixels."""
        its = self.model.cam(number)
        config = self.cameras.get(its.name)
        if config is not None and config.k:
            return optics(config.lens_size, config.k, config.distortion)
        height, width = DRAWN
        if its.name in self.task.images:
            height, width = self.task.spec.picture_size(its.name)
        focal = height / 2 / math.tan(math.radians(float(its.fovy[0])) / 2)
        return optics((height, width), (focal, focal, width / 2, height / 2))

    def _add_lights(self) -> None:
        from pxr import UsdLux

        for number in range(self.model.nlight):
            its = self.model.light(number)
            path = f"{WORLD}/lights/{usd_name(its.name)}"
            lamp = self._define(UsdLux.DistantLight, path, its.name)
            lamp.CreateIntensityAttr(LAMP)
            turn = np.empty(4)
            mujoco.mju_quatZ2Vec(turn, -np.asarray(its.dir))  # it shines along its -z
            _place(lamp.GetPrim(), its.pos, turn)
        UsdLux.DomeLight.Define(self.stage, f"{WORLD}/lights/sky").CreateIntensityAttr(SKY)


def _set(prim: Any, name: str, kind: str, value: Any) -> None:
    """An attribute of a schema that usd-core does not know."""
    from pxr import Sdf

    prim.CreateAttribute(name, getattr(Sdf.ValueTypeNames, kind), custom=False).Set(value)


def _place(prim: Any, position_m: F64, quaternion_wxyz: F64) -> None:
    from pxr import Gf, UsdGeom

    xform = UsdGeom.Xformable(prim)
    w, x, y, z = quaternion_wxyz.tolist()
    xform.AddTranslateOp().Set(Gf.Vec3d(*position_m.tolist()))
    xform.AddOrientOp(UsdGeom.XformOp.PrecisionDouble).Set(Gf.Quatd(w, x, y, z))


def _quatf(quaternion_wxyz: F64) -> Any:
    from pxr import Gf

    w, x, y, z = quaternion_wxyz.tolist()
    return Gf.Quatf(w, x, y, z)
