"""Build a task's MuJoCo model: robot, controller, parts, table, lights, cameras.

The Cartesian impedance law runs inside MuJoCo, at every physics step, without Python: six stiffness
actuators act between the `tcp` site and the site of a mocap body, the target (transmission with a
reference site: the length is the pose difference in the target's frame), and six damping actuators
act against the TCP's velocity. The stiffness actuators' force range *is* the reference clipping:
clamp(-k * difference, +-k * clip) = -k * clip(difference).
"""

from __future__ import annotations

import mujoco
import numpy as np

from robot_rl.calibrate.board import Board
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.robots import Robot
from robot_rl.robots.robot import Gripper
from robot_rl.tasks.common import Joint, Part, Primitive, SimTask
from robot_rl_sim.arm import FIXED, FREE, HAND, ROBOT, TOUCHES, add_arm, add_hand
from robot_rl_sim.board import add_board
from robot_rl_sim.scene import MATERIALS, TABLE, add_materials, add_scene, dress

PAD_FRICTION = 1.0  # rubber on plastic
TICK_S = 0.010  # period of the target filter and of the wrench filter
TARGET_BODY = "impedance_target"
DRIVE_RAD_S = 60.0  # a joint lags 33 ms; for servoj of a UR, 30 to 100 ms are told
GRIPPER_GAINS = 2000.0, 20.0  # N/m and Ns/m of width: the force limit is reached at 35 mm
FINGER_GAINS = 2.0 * GRIPPER_GAINS[0], 2.0 * GRIPPER_GAINS[1]
"""Of each finger by itself, when both move alike: the width is twice a finger's way."""
SHAPES = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
}


ROLES = {"held": ROBOT, "fixture": FIXED, "jointed": FREE, "free": FREE, "marker": 0}
"""role of a part -> contact bit of its solids; 0 = they touch nothing."""


def build_model(
    task: SimTask,
    robot: Robot,
    appearance: str = "fast",
    board: tuple[Board, str] | None = None,
    *,
    joint_control: bool = False,
) -> mujoco.MjModel:
    """Compile the model of a task with a robot.

    Args:
        joint_control: a drive in each joint takes the place of the Cartesian impedance.
        appearance: "fast" (no shadows, no MSAA: 1.5 to 2 ms per 128 x 128 image) or "video" (both).
        board: a board to calibrate cameras with, and which camera: at the "hand" or "beside".

    Raises:
        ValueError: unknown appearance.
    """
    spec = mujoco.MjSpec()
    spec.modelname = task.name
    spec.compiler.degree = False
    spec.compiler.balanceinertia = True
    _set_options(spec, task)
    add_materials(spec, appearance, patterned=_patterned(task) if appearance == "fast" else ())
    add_scene(spec, appearance, task.cameras())
    hand = add_hand(
        add_arm(spec.worldbody, robot),
        robot,
        moving=task.uses_gripper,
        width_m=task.gripper_start_m,
        friction=PAD_FRICTION,
    )
    dress(spec, robot)
    _add_table_contact(spec)
    for part in sorted(task.parts(), key=lambda part: part.joint is not None):  # fixtures first
        _add_part(spec, hand, part, task, robot)
    if board is not None:
        add_board(spec, *board, task, robot)
    _add_target(spec)
    if not joint_control:
        _add_impedance(spec, task)
    if task.uses_gripper:
        _add_gripper(spec, robot.gripper)
    if joint_control:
        _add_drives(spec, robot)
    _add_contact_sensor(spec, task)
    model = spec.compile()
    if joint_control:
        _tune_drives(model, robot)
    return model


def _patterned(task: SimTask) -> set[str]:
    """Materials that get another pattern in each episode, if there is a camera to see them."""
    if not task.images or "texture" not in task.drawn_ranges:
        return set()
    return {*TABLE, *(p.material for part in task.parts() for p in part.primitives)}


def _set_options(spec: mujoco.MjSpec, task: SimTask) -> None:
    option = spec.option
    option.timestep = task.timestep_s
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST  # damping terms implicitly
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 1.0  # a larger one makes a pressed peg chatter: 20 N became 0 ... 350 N
    option.iterations = 20
    option.ls_iterations = 10


def _add_table_contact(spec: mujoco.MjSpec) -> None:
    """The table top that things rest on, z = 0; only for contact, `scene` draws the table."""
    spec.worldbody.add_geom(
        name="table_top",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=(0.35, 0.5, 0.05),
        pos=(0.55, 0, -0.05),
        contype=FIXED,
        conaffinity=TOUCHES[FIXED],
        friction=(0.6, 0.005, 0.0001),
        group=3,
    )


def _add_part(
    spec: mujoco.MjSpec, hand: mujoco.MjsBody, part: Part, task: SimTask, robot: Robot
) -> None:
    """One part of the task; "marker" parts are seen, never touched."""
    _check_part(part)
    if part.role == "held":
        body = hand.add_body(name=part.name, pos=(0, 0, robot.gripper.tcp_m), gravcomp=1.0)
    elif part.joint is not None:
        body = _add_jointed(spec, part, part.joint, task.timestep_s)
    else:
        moved = part.role in ("fixture", "marker")
        body = spec.worldbody.add_body(name=part.name, mocap=moved)
    if part.role == "free":
        body.add_freejoint(name=f"{part.name}_free")
    bit = ROLES[part.role]
    solids = [p for p in part.primitives if p.collides and bit]
    for index, primitive in enumerate(part.primitives):
        geom = _add_primitive(body, primitive, f"{part.name}_{index}")
        if primitive in solids:
            geom.contype, geom.conaffinity = bit, TOUCHES[bit]
            geom.friction = (part.friction, 0.005, 0.0001)
            # as stiff as the time step allows: 20 N dent the block by 1 um; the price is an impact
            # that lasts one step, which the wrench filter spreads
            geom.solref = (2.0 * task.timestep_s, 1.0)
            geom.solimp = (0.95, 0.99, 0.0005, 0.5, 2.0)
            geom.mass = part.mass_kg / len(solids) if bit != FIXED else 0.0


def _add_jointed(
    spec: mujoco.MjSpec, part: Part, joint: Joint, timestep_s: float
) -> mujoco.MjsBody:
    """The body of a part that slides or turns in its fixture."""
    mount = spec.body(joint.mount)
    if mount is None:
        fixtures = [b.name for b in spec.bodies if b.mocap and b.name != TARGET_BODY]
        raise ConfigError(
            f"part '{part.name}' is mounted on a part that is not there",
            expected="the name of a part whose role is fixture",
            got=repr(joint.mount),
            fix=did_you_mean(joint.mount, fixtures),
        )
    body = mount.add_body(name=part.name, pos=joint.position_m)
    slides = joint.kind == "slide"
    body.add_joint(
        name=f"{part.name}_joint",
        type=mujoco.mjtJoint.mjJNT_SLIDE if slides else mujoco.mjtJoint.mjJNT_HINGE,
        axis=joint.axis,
        limited=True,
        range=(joint.low, joint.high),
        frictionloss=joint.friction,
        damping=joint.damping,
        stiffness=joint.spring,
        springref=joint.spring_at,
        # with MuJoCo's defaults a part held by dry friction creeps: 5 N, against a friction of 8 N,
        # move 0.5 kg at 10 mm/s
        solref_friction=(2.0 * timestep_s, 1.0),
        solimp_friction=(0.999, 0.9999, 0.001, 0.5, 2.0),
    )
    spec.add_exclude(bodyname1=joint.mount, bodyname2=part.name)
    return body


def _check_part(part: Part) -> None:
    """Raise `ConfigError` for an unknown role, shape or material, or a joint without its role."""
    if (part.role == "jointed") != (part.joint is not None):
        raise ConfigError(
            f"part '{part.name}' has " + ("no joint" if part.joint is None else "a joint"),
            expected='role="jointed" with joint=Joint(...), or another role without one',
            got=f"role={part.role!r}, joint={part.joint}",
            fix="say how the part moves, or that it does not",
        )
    asked = [("role", part.role, ROLES)]
    asked += [("shape", p.shape, SHAPES) for p in part.primitives]
    asked += [("material", p.material, MATERIALS) for p in part.primitives]
    for what, word, known in asked:
        if word not in known:
            raise ConfigError(
                f"part '{part.name}' has an unknown {what}",
                expected=f"one of: {', '.join(known)}",
                got=repr(word),
                fix=did_you_mean(word, known),
            )


def _add_primitive(body: mujoco.MjsBody, shape: Primitive, name: str) -> mujoco.MjsGeom:
    x, y, z, w = shape.quaternion_xyzw
    return body.add_geom(
        name=name,
        type=SHAPES[shape.shape],
        size=(*shape.size_m, 0.0, 0.0)[:3],
        pos=shape.position_m,
        quat=(w, x, y, z),
        material=shape.material,
        contype=0,
        conaffinity=0,
        mass=0.0,
    )


def _add_target(spec: mujoco.MjSpec) -> None:
    target = spec.worldbody.add_body(name=TARGET_BODY, mocap=True)
    target.add_site(name=TARGET_BODY, group=4, size=(0.002, 0.002, 0.002))


def drive(joint: str) -> str:
    """Name of a joint's drive."""
    return f"drive_{joint}"


def _add_drives(spec: mujoco.MjSpec, robot: Robot) -> None:
    """A position servo in each joint, as an arm has it below its joint controllers."""
    for joint in robot.joints:
        spec.add_actuator(
            name=drive(joint.name),
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            target=joint.name,
            gaintype=mujoco.mjtGain.mjGAIN_FIXED,
            biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        )


def drive_gains(model: mujoco.MjModel, robot: Robot) -> list[tuple[float, float]]:
    """Stiffness (Nm/rad) and damping (Nms/rad) of each joint's drive.

    Critical damping at `DRIVE_RAD_S` with each joint's inertia where all of them are 0. The joint
    follows a steady motion 2 / `DRIVE_RAD_S` late; torque = k (goal - q) - d qdot.
    """
    inertia = [float(model.dof_M0[model.joint(name).dofadr[0]]) for name in robot.joint_names]
    return [(i * DRIVE_RAD_S**2, 2.0 * i * DRIVE_RAD_S) for i in inertia]


def _tune_drives(model: mujoco.MjModel, robot: Robot) -> None:
    for name, (stiffness, damping) in zip(
        robot.joint_names, drive_gains(model, robot), strict=True
    ):
        number = model.actuator(drive(name)).id
        model.actuator_gainprm[number, 0] = stiffness
        model.actuator_biasprm[number, :3] = 0.0, -stiffness, -damping


def _add_impedance(spec: mujoco.MjSpec, task: SimTask) -> None:
    """Impedance actuators (see the module docstring)."""
    law = task.impedance
    stiffness = np.repeat((law.stiffness_n_m, law.stiffness_nm_rad), 3)
    damping = np.repeat((law.damping_ns_m, law.damping_nms_rad), 3)
    clip = np.array((*law.clip_m, *law.clip_rad))
    for i, axis in enumerate(("x", "y", "z", "rx", "ry", "rz")):
        gear = np.eye(6)[i]
        limit = float(stiffness[i] * clip[i])
        spring = _site_actuator(spec, f"spring_{axis}", gear, (0.0, -float(stiffness[i]), 0.0))
        spring.forcelimited, spring.forcerange = True, (-limit, limit)
        _site_actuator(spec, f"damper_{axis}", gear, (0.0, 0.0, -float(damping[i])))


def _site_actuator(
    spec: mujoco.MjSpec, name: str, gear: np.ndarray, bias: tuple[float, float, float]
) -> mujoco.MjsActuator:
    """Actuator without input: force = bias[1] * length + bias[2] * velocity of tcp in target."""
    return spec.add_actuator(
        name=name,
        trntype=mujoco.mjtTrn.mjTRN_SITE,
        target="tcp",
        refsite=TARGET_BODY,
        gear=gear,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        gainprm=np.zeros(10),
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        biasprm=(*bias, *np.zeros(7)),
    )


def _add_gripper(spec: mujoco.MjSpec, gripper: Gripper) -> None:
    """Both fingers on one drive; the tendon's length is the gripper width."""
    tendon = spec.add_tendon(name="gripper_width")
    for joint in gripper.fingers:
        tendon.wrap_joint(joint, 1.0)
    mirror = spec.add_equality(
        name="fingers_mirror",
        type=mujoco.mjtEq.mjEQ_JOINT,
        objtype=mujoco.mjtObj.mjOBJ_JOINT,
        name1=gripper.fingers[0],
        name2=gripper.fingers[1],
    )
    mirror.data = np.eye(len(mirror.data))[1]  # finger 2 = 0 + 1 * finger 1
    gain, damping = GRIPPER_GAINS
    spec.add_actuator(
        name="gripper",
        trntype=mujoco.mjtTrn.mjTRN_TENDON,
        target="gripper_width",
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        gainprm=(gain, *np.zeros(9)),
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        biasprm=(0.0, -gain, -damping, *np.zeros(7)),
        ctrllimited=True,
        ctrlrange=(0.0, gripper.stroke_m),
        forcelimited=True,
        forcerange=(-gripper.force_n, gripper.force_n),
    )


def _add_contact_sensor(spec: mujoco.MjSpec, task: SimTask) -> None:
    """Add `external`: force, torque, point of all that touches hand, fingers and held part.

    Its history holds every physics step of the last `TICK_S`.
    """
    fields = mujoco.mjtConDataField
    wanted = (fields.mjCONDATA_FORCE, fields.mjCONDATA_TORQUE, fields.mjCONDATA_POS)
    net_force = 3  # reduction to one wrench, in the world frame
    spec.add_sensor(
        name="external",
        type=mujoco.mjtSensor.mjSENS_CONTACT,
        objtype=mujoco.mjtObj.mjOBJ_XBODY,
        objname=HAND,
        reftype=mujoco.mjtObj.mjOBJ_UNKNOWN,
        intprm=(sum(1 << field.value for field in wanted), net_force, 1),
        nsample=max(1, round(TICK_S / task.timestep_s)),
    )
