"""The USD stage of a scene: what each engine reads in it, and that it is MuJoCo's scene."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from pxr import Gf, Usd, UsdGeom, UsdPhysics, UsdShade, UsdValidation

from robot_rl.cli.main import main
from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError, SetupError
from robot_rl.observe.cameras import CameraConfig
from robot_rl.ports import ResetPlan
from robot_rl.robots import Robot
from robot_rl.run import parity
from robot_rl.run.experiment import Experiment
from robot_rl.tasks import ReachTask
from robot_rl.tasks.common import FRONT, CameraView, Joint, Part, Primitive, SimTask, upright
from robot_rl_sim.builder import drive, drive_gains
from robot_rl_sim.parity import Check, Mechanism, stage_checks, static_checks
from robot_rl_sim.physx import PhysxRobot
from robot_rl_sim.robot import MujocoRobot
from robot_rl_sim.usd import (
    JOINTS,
    PARTS,
    ROBOT,
    ROOM,
    SURFACES,
    body_path,
    build_stage,
    camera_path,
    optics,
    usd_name,
    write_stage,
)
from tests.robots.test_urdf import ARMS, arm_of

TASKS = ("reach", "peg_insert", "lift", "pick_insert")
ROBOTS = ("fr3", "ur5e")


class Scene:
    """A scene at the start of an episode, in MuJoCo and as a stage."""

    def __init__(self, task: str = "lift", robot: str = "fr3", **cameras: CameraConfig) -> None:
        self.robot: Robot = resolve("robot", {"name": robot})
        self.task: SimTask = resolve("task", {"name": task}).with_robot(self.robot)
        simulated = MujocoRobot(self.task, self.robot)
        simulated.reset(self.task.sample_reset(np.random.default_rng(3)))
        self.model, self.data = simulated.model, simulated.data
        self.stage = build_stage(self.task, self.robot, self.model, self.data, cameras)

    def attribute(self, path: str, name: str) -> Any:
        return self.stage.GetPrimAtPath(path).GetAttribute(name).Get()


@pytest.fixture(scope="module")
def lift() -> Scene:
    return Scene()


def joint_paths(scene: Scene) -> list[tuple[str, str]]:
    """(path, joint's name) of the arm's joints."""
    return [(f"{JOINTS}/{name}", name) for name in scene.robot.joint_names]


# --- the whole scene ------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "robot"), [*itertools.product(TASKS, ROBOTS)])
def test_masses_joints_kinematics_and_dynamics_are_those_of_mujoco(task: str, robot: str) -> None:
    scene = resolve("robot", {"name": robot})
    checks = static_checks(resolve("task", {"name": task}).with_robot(scene), scene)
    assert [check for check in checks if not check.passed] == []
    assert len(checks) == 17


@pytest.mark.parametrize(("task", "robot"), [*itertools.product(TASKS, ROBOTS)])
def test_openusd_finds_nothing_wrong(task: str, robot: str) -> None:
    validators = UsdValidation.ValidationRegistry().GetOrLoadAllValidators()
    errors = UsdValidation.ValidationContext(validators).Validate(Scene(task, robot).stage)
    assert [error.GetMessage() for error in errors] == []


def test_everything_stands_where_mujoco_has_it(lift: Scene) -> None:
    cache = UsdGeom.XformCache()
    for number in range(1, lift.model.nbody):
        prim = lift.stage.GetPrimAtPath(body_path(lift.model, lift.robot, number))
        if not prim:
            continue  # the target of the impedance is no thing
        place = cache.GetLocalToWorldTransform(prim)
        assert np.allclose(place.ExtractTranslation(), lift.data.xpos[number], atol=1e-9)
        turn = np.array(place.ExtractRotationMatrix()).T  # Gf has row vectors
        assert np.allclose(turn, lift.data.xmat[number].reshape(3, 3), atol=1e-9)


def test_a_file_opens_again_with_its_cube(tmp_path: Path) -> None:
    robot = resolve("robot", {"name": "fr3"})
    task = resolve("task", {"name": "lift"}).with_robot(robot)
    for ending in ("usda", "usdc"):
        write_stage(task, robot, tmp_path / f"stage.{ending}", seed=1)
        stage = Usd.Stage.Open(str(tmp_path / f"stage.{ending}"))
        assert stage.GetDefaultPrim().GetPath() == "/World"
        assert UsdGeom.GetStageMetersPerUnit(stage) == 1.0
        assert UsdGeom.GetStageUpAxis(stage) == UsdGeom.Tokens.z
        cube = UsdGeom.XformCache().GetLocalToWorldTransform(
            stage.GetPrimAtPath("/World/parts/cube")
        )
        want = task.sample_reset(np.random.default_rng(1)).objects["cube"].position_m
        assert np.allclose(cube.ExtractTranslation(), want)


@pytest.mark.parametrize("arm", [name for name in ARMS if name != "so101"])
def test_an_arm_from_a_urdf_has_its_stage(arm: str) -> None:
    """Six of the seven: the SO-101 does not reach the box of this task."""
    robot = arm_of(arm)
    checks = static_checks(ReachTask().with_robot(robot), robot)
    assert [check for check in checks if not check.passed] == []


def test_a_tool_without_mass_is_not_filled_with_water() -> None:
    robot = arm_of("ur10e")
    task = ReachTask().with_robot(robot)
    simulated = MujocoRobot(task, robot)
    assert simulated.model.body("hand").mass[0] == 0.0
    stage = build_stage(task, robot, simulated.model, simulated.data)
    hand = UsdPhysics.MassAPI(stage.GetPrimAtPath(f"{ROBOT}/hand"))
    assert 0.0 < hand.GetMassAttr().Get() < 1e-5
    assert min(hand.GetDiagonalInertiaAttr().Get()) > 0.0


# --- the traps between engines --------------------------------------------------------------------


def test_gains_are_per_degree_and_include_the_joints_own_damping(lift: Scene) -> None:
    gains = drive_gains(lift.model, lift.robot)
    for (path, name), (stiffness, damping) in zip(joint_paths(lift), gains, strict=True):
        own = float(lift.model.dof_damping[lift.model.joint(name).dofadr[0]])
        assert own > 0.0
        read = lift.attribute(path, "drive:angular:physics:stiffness")
        assert read == pytest.approx(stiffness * math.pi / 180.0)
        read = lift.attribute(path, "drive:angular:physics:damping")
        assert read == pytest.approx((damping + own) * math.pi / 180.0)


def test_drawn_gains_are_those_of_the_nominal_inertia(tmp_path: Path) -> None:
    """As in MuJoCo, whose drives are tuned before anything is drawn."""
    stiffness = []
    robot = resolve("robot", {"name": "fr3"})
    for ranges in ({}, {"armature": [2.0, 2.0]}, {"armature": [2.0, 2.0], "gains": [1.2, 1.2]}):
        task = resolve("task", {"name": "lift", "ranges": ranges}).with_robot(robot)
        write_stage(task, robot, tmp_path / "stage.usda")
        stage = Usd.Stage.CreateInMemory()
        stage.GetRootLayer().ImportFromString((tmp_path / "stage.usda").read_text())
        joint = stage.GetPrimAtPath(f"{JOINTS}/fr3_joint7")
        stiffness.append(joint.GetAttribute("drive:angular:physics:stiffness").Get())
    nominal = stiffness[0]
    assert stiffness == pytest.approx([nominal, nominal, 1.2 * nominal])


def test_a_drive_answers_a_step_as_the_guide_says() -> None:
    """The gains are for joints at 0, and nobody may think that they are critical elsewhere."""
    scene = Scene("peg_insert")
    arm = Mechanism(scene.stage)
    names = [joint.name for joint in arm.moving]
    mass, _ = arm.dynamics(dict(zip(names, scene.data.qpos[:7].tolist(), strict=True)))
    inertia = np.diag(mass)
    stiffness = np.array([joint.stiffness for joint in arm.moving])
    damping = np.array([joint.damping for joint in arm.moving])
    frequency, ratio = np.sqrt(stiffness / inertia), damping / 2 / np.sqrt(stiffness * inertia)
    assert frequency == pytest.approx((25, 78, 25, 49, 64, 60, 60), abs=1.0)
    assert ratio == pytest.approx((0.44, 1.31, 0.43, 0.83, 1.13, 1.06, 1.08), abs=0.02)

    simulated = MujocoRobot(scene.task, scene.robot, joint_control=True)
    simulated.reset(scene.task.sample_reset(np.random.default_rng(3)))
    model, data = simulated.model, simulated.data
    start, step = float(data.qpos[0]), math.radians(10.0)
    data.ctrl[model.actuator(drive("fr3_joint1")).id] = start + step
    way = np.zeros(500)
    for index in range(len(way)):
        mujoco.mj_step(model, data)
        way[index] = (data.qpos[0] - start) / step
    assert way.max() == pytest.approx(1.17, abs=0.02)
    late_s = model.opt.timestep * (np.flatnonzero(np.abs(way - 1.0) > 0.02)[-1] + 1)
    assert late_s == pytest.approx(0.58, abs=0.02)


def test_armature_and_velocity_are_written_for_every_engine(lift: Scene) -> None:
    for (path, name), joint in zip(joint_paths(lift), lift.robot.joints, strict=True):
        prim = lift.stage.GetPrimAtPath(path)
        armature = float(lift.model.dof_armature[lift.model.joint(name).dofadr[0]])
        for spelling in ("physxJointAxis:angular", "physxJoint", "newton"):
            assert lift.attribute(path, f"{spelling}:armature") == pytest.approx(armature)
        speed = math.degrees(joint.velocity_rad_s)
        for spelling in (
            "physxJointAxis:angular:maxJointVelocity",
            "physxJoint:maxJointVelocity",
            "newton:velocityLimit",
        ):
            assert lift.attribute(path, spelling) == pytest.approx(speed)
        schemas = set(prim.GetMetadata("apiSchemas").GetAppliedItems())
        assert {"PhysxJointAxisAPI:angular", "PhysxJointAPI", "NewtonJointAPI"} <= schemas


def test_the_root_is_above_the_links_and_the_foot_is_held_by_the_world(lift: Scene) -> None:
    roots = [p for p in lift.stage.Traverse() if p.HasAPI(UsdPhysics.ArticulationRootAPI)]
    assert [str(p.GetPath()) for p in roots] == [ROBOT]
    assert not roots[0].HasAPI(UsdPhysics.RigidBodyAPI)
    foot = UsdPhysics.Joint(lift.stage.GetPrimAtPath(f"{JOINTS}/fr3_link0_fixed"))
    assert foot.GetBody0Rel().GetTargets() == []
    assert [str(t) for t in foot.GetBody1Rel().GetTargets()] == [f"{ROBOT}/fr3_link0"]


def test_no_link_is_inside_another(lift: Scene) -> None:
    bodies = [p for p in lift.stage.Traverse() if p.HasAPI(UsdPhysics.RigidBodyAPI)]
    assert len(bodies) == 12  # foot, seven links, hand, two fingers, cube
    for body in bodies:
        parent = body.GetParent()
        while parent:
            assert not parent.HasAPI(UsdPhysics.RigidBodyAPI)
            parent = parent.GetParent()


def test_bodies_are_not_damped_and_only_the_arm_is_weightless(lift: Scene) -> None:
    for prim in lift.stage.Traverse():
        if not prim.HasAPI(UsdPhysics.RigidBodyAPI):
            continue
        path = str(prim.GetPath())
        assert lift.attribute(path, "physxRigidBody:linearDamping") == 0.0
        assert lift.attribute(path, "physxRigidBody:angularDamping") == 0.0
        arm = path.startswith(ROBOT)
        assert lift.attribute(path, "physxRigidBody:disableGravity") is arm


@pytest.mark.parametrize("task", TASKS)
def test_what_collides_has_friction_and_the_greater_of_two_counts(task: str) -> None:
    scene = Scene(task)
    solid = [p for p in scene.stage.Traverse() if p.HasAPI(UsdPhysics.CollisionAPI)]
    assert len(solid) == int((scene.model.geom_contype != 0).sum())
    for prim in solid:
        surface, _ = UsdShade.MaterialBindingAPI(prim).ComputeBoundMaterial("physics")
        friction = UsdPhysics.MaterialAPI(surface.GetPrim())
        geom = scene.model.geom(prim.GetName())
        assert friction.GetStaticFrictionAttr().Get() == pytest.approx(geom.friction[0])
        assert friction.GetDynamicFrictionAttr().Get() == pytest.approx(geom.friction[0])
        combine = surface.GetPrim().GetAttribute("physxMaterial:frictionCombineMode").Get()
        assert combine == "max"


def test_a_fixture_is_kinematic_and_a_marker_is_only_seen() -> None:
    insert, reach = Scene("peg_insert"), Scene("reach")  # a prim ends with its stage
    assert insert.attribute("/World/parts/hole", "physics:kinematicEnabled") is True
    target = reach.stage.GetPrimAtPath("/World/parts/target")
    assert target and not target.HasAPI(UsdPhysics.RigidBodyAPI)


@pytest.mark.parametrize("size", [(640, 480), (1280, 720)])
def test_a_camera_sees_through_its_principal_point(size: tuple[int, int]) -> None:
    """Points of the scene fall on the pixels that OpenCV's pinhole says.

    size: that is asked of the camera now; its intrinsics are those of 640 x 480.
    """
    k, width, height = (600.0, 590.0, 333.0, 229.0), *size
    where = (0.9, 0.0, 0.4, 1.0, 0.0, 0.0, 0.0)
    distortion = (0.1, -0.2, 0.001, 0.002, 0.03)
    config = CameraConfig(
        width=width,
        height=height,
        k=k,
        k_size=(640, 480),
        distortion=distortion,
        mount="beside",
        pose=where,
    )
    scene = Scene("lift", front=config)
    prim = scene.stage.GetPrimAtPath("/World/room/camera_front")
    camera = UsdGeom.Camera(prim).GetCamera()
    view = camera.frustum.ComputeViewMatrix() * camera.frustum.ComputeProjectionMatrix()
    to_camera = camera.transform.GetInverse()
    fx, fy, cx, cy = k
    for local in ((0.0, 0.0, -0.5), (0.1, 0.05, -0.6), (-0.2, 0.1, -0.8)):
        point = camera.transform.Transform(Gf.Vec3d(*local))
        x, y, z = to_camera.Transform(point)
        pinhole = (fx * x / -z + cx, fy * -y / -z + cy)
        u, v, _ = view.Transform(point)
        assert ((u + 1) / 2 * 640, (1 - v) / 2 * 480) == pytest.approx(pinhole, abs=1e-3)
    lens = "omni:lensdistortion"
    assert prim.GetAttribute(f"{lens}:model").Get() == "opencvPinhole"
    read = [prim.GetAttribute(f"{lens}:opencvPinhole:{n}").Get() for n in ("fx", "fy", "cx", "cy")]
    assert read == pytest.approx(k)
    names = ("k1", "k2", "p1", "p2", "k3")
    read = [prim.GetAttribute(f"{lens}:opencvPinhole:{name}").Get() for name in names]
    assert read == pytest.approx(distortion)
    assert tuple(prim.GetAttribute(f"{lens}:opencvPinhole:imageSize").Get()) == (640, 480)


def test_a_camera_without_calibration_is_that_of_the_picture(lift: Scene) -> None:
    prim = lift.stage.GetPrimAtPath(f"{ROBOT}/hand/camera_wrist")
    camera = UsdGeom.Camera(prim).GetCamera()
    tall = camera.verticalAperture / camera.focalLength
    fovy = float(lift.model.cam("wrist").fovy[0])
    assert math.degrees(2 * math.atan(tall / 2)) == pytest.approx(fovy, rel=1e-6)
    assert (camera.horizontalApertureOffset, camera.verticalApertureOffset) == (0.0, 0.0)


def test_pixels_that_are_not_square_have_one_focal_length() -> None:
    found = optics((100, 200), (50.0, 25.0, 100.0, 50.0))
    wide, tall = found.aperture
    assert wide / found.focal == pytest.approx(200 / 50.0)
    assert tall / found.focal == pytest.approx(100 / 25.0)


def test_names_that_usd_does_not_know_are_spelt_otherwise() -> None:
    assert usd_name("arm-joint.1") == "arm_joint_1"
    assert usd_name("fr3_joint1") == "fr3_joint1"
    assert usd_name("1") == "_1"
    assert usd_name("_1") == "_1"


def arm_with(names: Sequence[str]) -> tuple[ReachTask, Robot]:
    """An arm of six joints that are called so, and a task for it."""
    arm = arm_of("ur10e")
    joints = [replace(joint, name=name) for joint, name in zip(arm.joints, names, strict=True)]
    robot = replace(arm, joints=tuple(joints))
    return ReachTask().with_robot(robot), robot


@pytest.mark.parametrize("name", ["{}", "joint-{}", "\u5173\u8282{}"])
def test_every_joint_is_there_whatever_it_is_called(name: str) -> None:
    task, robot = arm_with([name.format(number) for number in range(1, 7)])
    simulated = MujocoRobot(task, robot)
    stage = build_stage(task, robot, simulated.model, simulated.data)
    joints = stage.GetPrimAtPath(JOINTS).GetChildren()
    assert sum(joint.IsA(UsdPhysics.RevoluteJoint) for joint in joints) == 6
    assert all(check.passed for check in stage_checks(stage, simulated.model, robot))


def test_two_names_that_are_one_in_usd_are_refused() -> None:
    with pytest.raises(ConfigError, match="'a-b' and 'a_b' are one name in USD"):
        static_checks(*arm_with(("a-b", "a_b", "c", "d", "e", "f")))


CUBE = Primitive("box", (0.02, 0.02, 0.02))


class OddNames(ReachTask):
    """A part and a camera with names that USD does not know, and hardly any friction."""

    def parts(self) -> tuple[Part, ...]:
        shapes = (CUBE, Primitive("sphere", (0.02,)), Primitive("capsule", (0.005, 0.03)))
        return (Part("my-block", "fixture", shapes, friction=5e-5), *super().parts())

    def cameras(self) -> dict[str, CameraView]:
        return {**super().cameras(), "top-left": FRONT}

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        plan, there = super().sample_reset(rng), upright(np.array((0.5, 0.2, 0.02)))
        return replace(plan, objects=plan.objects | {"my-block": there})


def test_parts_cameras_and_surfaces_have_names_that_usd_allows() -> None:
    task = OddNames()
    simulated = MujocoRobot(task)
    stage = build_stage(task, simulated.robot, simulated.model, simulated.data)
    assert stage.GetPrimAtPath(f"{PARTS}/my_block/my_block_0")
    camera = camera_path(simulated.model, simulated.robot, "top-left")
    assert camera == f"{ROOM}/camera_top_left" and stage.GetPrimAtPath(camera)
    checks = stage_checks(stage, simulated.model, simulated.robot)
    assert [check for check in checks if not check.passed] == []


# --- a stage that is wrong is found ---------------------------------------------------------------

FINGER = f"{JOINTS}/fr3_finger_joint1"
WRONG = [
    ("gains of the drives", f"{JOINTS}/fr3_joint1", "drive:angular:physics:stiffness", 57.3),
    ("gains of the drives", FINGER, "drive:linear:physics:stiffness", 1 / 57.3),
    ("limits of the drives", f"{JOINTS}/fr3_joint5", "drive:angular:physics:maxForce", 1.1),
    ("limits of the drives", FINGER, "drive:linear:physics:maxForce", 10.0),
    ("mass", f"{ROBOT}/fr3_link3", "physics:mass", 1.01),
    ("mass", f"{PARTS}/cube", "physics:mass", 3.0),
    ("inertia", f"{ROBOT}/fr3_link2", "physics:diagonalInertia", 1.1),
    ("inertia", f"{ROBOT}/finger1", "physics:diagonalInertia", 1.1),
    ("inertia", f"{PARTS}/cube", "physics:diagonalInertia", 30.0),
    ("centre of mass", f"{ROBOT}/fr3_link4", "physics:centerOfMass", 1.1),
    ("weightless where compensated", f"{ROBOT}/hand", "physxRigidBody:disableGravity", 0),
    ("joint ranges", f"{JOINTS}/fr3_joint2", "physics:upperLimit", 1.001),
    ("armature, three spellings", f"{JOINTS}/fr3_joint4", "newton:armature", 2.0),
    *(
        ("greatest velocities, three spellings", f"{JOINTS}/fr3_joint1", name, 1 / 57.3)
        for name in ("physxJointAxis:angular:maxJointVelocity", "physxJoint:maxJointVelocity")
    ),
    ("greatest velocities, three spellings", f"{JOINTS}/fr3_joint7", "newton:velocityLimit", 2.0),
    ("size and place of shapes", f"{PARTS}/cube/cube_0", "size", 1.2),
    ("size and place of shapes", f"{ROOM}/table_top", "xformOp:translate", 1.1),
    ("friction", f"{SURFACES}/friction0", "physics:dynamicFriction", 0.01),
    ("kinematics, place", f"{JOINTS}/fr3_joint3", "physics:localPos0", 1.01),
    ("torques of gravity", "/World/physics", "physics:gravityDirection", -1.0),
    ("torques of gravity", "/World/physics", "physics:gravityMagnitude", 0.0),
]


@pytest.mark.parametrize(("gate", "path", "name", "factor"), WRONG)
def test_a_wrong_number_misses_its_gate(
    gate: str, path: str, name: str, factor: float, lift: Scene
) -> None:
    attribute = lift.stage.GetPrimAtPath(path).GetAttribute(name)
    right = attribute.Get()
    attribute.Set(right * factor)
    checks = checks_of(lift)
    attribute.Set(right)
    assert not checks[gate].passed


def checks_of(scene: Scene) -> dict[str, Check]:
    """By their names."""
    return {c.name: c for c in stage_checks(scene.stage, scene.model, scene.robot)}


def test_a_spelling_that_is_missing_is_found() -> None:
    scene = Scene()
    joint = scene.stage.GetPrimAtPath(f"{JOINTS}/fr3_joint1")
    assert joint.RemoveProperty("newton:velocityLimit")
    assert not checks_of(scene)["greatest velocities, three spellings"].passed


def test_a_shape_that_touches_nothing_or_has_no_surface_is_found() -> None:
    scene = Scene()
    pad = scene.stage.GetPrimAtPath(f"{ROBOT}/finger1/pad1")
    UsdShade.MaterialBindingAPI(pad).UnbindAllBindings()
    assert not checks_of(scene)["friction"].passed
    pad.RemoveAPI(UsdPhysics.CollisionAPI)
    assert not checks_of(scene)["size and place of shapes"].passed
    scene.stage.RemovePrim(pad.GetPath())
    assert "finger1/pad1" in checks_of(scene)["shapes"].note


def test_a_link_that_is_missing_is_found() -> None:
    scene = Scene()
    scene.stage.GetPrimAtPath(f"{ROBOT}/finger2").RemoveAPI(UsdPhysics.RigidBodyAPI)
    checks = checks_of(scene)
    assert "finger2" in checks["bodies"].note and not checks["bodies"].passed


# --- the verbs ------------------------------------------------------------------------------------


def test_usd_writes_the_start_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "stage.usda"
    assert main(["usd", "lift_pixels", "robot=ur5e", "seed=5", "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    stage = Usd.Stage.Open(str(out))
    assert stage.GetPrimAtPath(f"{ROBOT}/ur5e_link0")
    image = stage.GetPrimAtPath(f"{ROBOT}/hand/camera_wrist")
    size = image.GetAttribute("omni:lensdistortion:opencvPinhole:imageSize").Get()
    assert tuple(size) == (64, 64)  # what the policy sees


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["usd", "lift", "--out", "stage.obj"], "not the name of a USD file"),
        (["usd", "gym"], "has no simulated arm"),
        (["usd", "lifd"], "did you mean 'lift'"),
        (["parity", "lift", "reach"], "one scene at a time"),
        (["parity", "lift", "--engine", "bullet"], "'bullet'"),
    ],
)
def test_what_cannot_be_done_is_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("out", ["", ".", "folder.usda", "/proc/stage.usda", "file/stage.usda"])
@pytest.mark.parametrize("verb", ["usd", "parity"])
def test_a_file_that_cannot_be_written_is_told_first(
    verb: str,
    out: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parity, "measure", lambda *_: pytest.fail("it was measured before"))
    Path("folder.usda").mkdir()
    Path("file").touch()
    assert main([verb, "reach", "--out", out]) == 2
    said = capsys.readouterr().err
    assert "expected:" in said and "got:" in said and "fix:      --out" in said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.usda"]


def test_the_scene_that_is_compared_is_not_randomised(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SimTask] = []

    def checks(task: SimTask, _robot: Robot) -> list[Check]:
        seen.append(task)
        return []

    monkeypatch.setattr("robot_rl_sim.parity.static_checks", checks)
    words = ["task=lift", "task.randomize=real", "task.ranges={armature: [2, 2]}"]
    parity.measure(Experiment.compose(words))
    assert seen[0].drawn_ranges == {}


def test_parity_tells_every_gate_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "parity.html", tmp_path / "parity.json"
    assert main(["parity", "reach", "--out", str(out), "--json", str(figures)]) == 0
    said = capsys.readouterr().out
    assert "ok    mass matrix" in said and "FAIL" not in said
    page = out.read_text()
    assert "torques of gravity" in page and "all gates met" in page
    assert '"passed": true' in figures.read_text()


def test_without_openusd_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("reach")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pxr"]:
        monkeypatch.setitem(sys.modules, name, None)  # `import` then raises
    with pytest.raises(SetupError) as error:
        build_stage(scene.task, scene.robot, scene.model, scene.data)
    assert "robot-rl[usd]" in error.value.fix


RAIL = upright(np.array((0.5, 0.1, 0.05)), yaw_rad=0.4)


@dataclass(frozen=True, kw_only=True)
class Drawer(ReachTask):
    """A part that moves in a fixture."""

    joint: Joint

    def parts(self) -> tuple[Part, ...]:
        cart = Part("cart", "jointed", (CUBE,), mass_kg=0.5, joint=self.joint)
        return (cart, Part("rail", "fixture", (CUBE,)), *super().parts())

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        plan, cart = super().sample_reset(rng), self.joint.part_in_base(RAIL, 0.03)
        return replace(plan, objects=plan.objects | {"rail": RAIL, "cart": cart})


@pytest.mark.parametrize("kind", ["slide", "hinge"])
def test_a_part_that_moves_in_a_fixture_has_its_joint(kind: str) -> None:
    joint = Joint(
        *(kind, "rail", 0.0, 0.1, (0.0, 1.0, 0.0)), damping=2.0, spring=300.0, spring_at=0.08
    )
    task = Drawer(joint=joint)
    simulated = MujocoRobot(task)
    simulated.reset(task.sample_reset(np.random.default_rng(0)))
    stage = build_stage(task, simulated.robot, simulated.model, simulated.data)
    prim = stage.GetPrimAtPath(f"{PARTS}/cart/cart_joint")
    targets = UsdPhysics.Joint(prim).GetBody0Rel().GetTargets()
    assert [str(target) for target in targets] == [f"{PARTS}/rail"]
    axis, unit = ("linear", 1.0) if kind == "slide" else ("angular", math.degrees(1.0))
    assert prim.GetAttribute("physics:upperLimit").Get() == pytest.approx(0.1 * unit)
    names = ("stiffness", "damping", "targetPosition")
    read = [prim.GetAttribute(f"drive:{axis}:physics:{name}").Get() for name in names]
    assert read == pytest.approx((300.0 / unit, 2.0 / unit, 0.08 * unit))
    with pytest.raises(ConfigError, match="cart"):
        PhysxRobot(task)
