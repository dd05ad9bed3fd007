"""The same comparison with PhysX itself: what it made of the stage, how it moves, how it touches.

Gates as in `parity`; those of motion grow with the time step, because both engines integrate to
first order and take different halves of the step first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.robots import Robot
from robot_rl.tasks.common import SimTask, tool_down
from robot_rl.tasks.peg_insert import DEPTH_M, PROTRUSION_M, PegInsertTask
from robot_rl.types import Command, Driver, Pose
from robot_rl_sim.builder import TICK_S, build_model, drive
from robot_rl_sim.kinematics import matrix, wxyz
from robot_rl_sim.parity import (
    Check,
    Trace,
    angle,
    arm_bodies,
    model_dynamics,
    random_poses,
    worst,
)
from robot_rl_sim.physx import PhysxRobot
from robot_rl_sim.physx_world import PhysxWorld
from robot_rl_sim.robot import MujocoRobot

F64 = NDArray[np.float64]
SWING_RAD, SWING_HZ, SWING_S = 0.15, 0.5, 2.0  # of every joint, about the home pose
FALL_S = 0.1  # until then no joint is as fast as it may be, which only PhysX sees to
SLOPE_RAD, SLOPE_FRICTION, SLIDE_S = math.radians(30.0), 0.3, 0.25
STEEP_RAD, STICK_FRICTION, STICK_S = math.radians(20.0), 0.5, 1.0
REST_S = 0.5
ABOVE_M, PRESS_M, INSERT_S = 0.005, 0.005, 2.0  # of the peg's tip over the mouth; into the floor
AGAIN_S = 0.5
LAND_XY_M, LAND_FROM_M, LAND_M_S, LAND_S = (0.45, 0.12), 0.06, 0.1, 0.9  # beside every part


class Measured(NamedTuple):
    """What was compared, and curves of the motions among it."""

    checks: list[Check]
    traces: list[Trace]


def engine_checks(task: SimTask, robot: Robot) -> Measured:
    """Statics, motion and contact of the task's scene in PhysX against MuJoCo.

    Raises:
        SetupError: PhysX is not installed.
        ConfigError: PhysX cannot build the scene.
    """
    found = Measured([], [])
    found.checks.extend(_static(task, robot))
    _swing(task, robot, found)
    _fall(task, robot, found)
    if any(part.role == "free" for part in task.parts()):
        _contacts(task, robot, found)
    if task.uses_gripper:
        _land(task, robot, found)
    if isinstance(task, PegInsertTask):
        _insert(task, robot, found)
    found.checks.append(_again(task, robot))
    return found


def _scene(
    task: SimTask, robot: Robot, change: Callable[[mujoco.MjModel], None] | None = None
) -> MujocoRobot:
    """The start of an episode, in a model that `change` may have altered."""
    model = build_model(task, robot, joint_control=True)
    if change is not None:
        change(model)
    simulated = MujocoRobot(task, robot, model, joint_control=True)
    simulated.reset(task.sample_reset(np.random.default_rng(0)))
    return simulated


def _at_home(simulated: MujocoRobot, robot: Robot) -> MujocoRobot:
    """With the arm at its home pose."""
    simulated.data.qpos[: len(robot.joints)] = robot.home_rad
    mujoco.mj_forward(simulated.model, simulated.data)
    return simulated


def _static(task: SimTask, robot: Robot) -> list[Check]:
    """Kinematics, mass matrix and gravity, as PhysX's own articulation has them."""
    simulated = _scene(task, robot, _with_gravity)
    model = simulated.model
    world = PhysxWorld(task, robot, model, simulated.data)
    names = world.joint_names
    paths = {path.rpartition("/")[2]: n for path, n in arm_bodies(model, robot).items()}
    links = world.bind("ARTICULATION_LINK_POSE")
    bodies = [paths[name] for name in links.body_names]
    dofs = [int(model.joint(name).dofadr[0]) for name in names]
    kinds = ("ARTICULATION_MASS_MATRIX", "ARTICULATION_GRAVITY_FORCE", "ARTICULATION_DOF_POSITION")
    mass, gravity, position = (world.bind(kind) for kind in kinds)
    seen = [np.zeros(binding.shape, np.float32) for binding in (links, mass, gravity)]
    place: list[float] = []
    turn: list[float] = []
    masses: list[float] = []
    torques: list[float] = []
    for q in random_poses(model, names):
        position.write(q[None].astype(np.float32))
        world.refresh()
        for binding, out in zip((links, mass, gravity), seen, strict=True):
            binding.read(out)
        full, bias, data = model_dynamics(model, names, q)
        for pose, body in zip(seen[0][0].astype(float), bodies, strict=True):
            place.append(float(np.abs(pose[:3] - data.xpos[body]).max()))
            turn.append(angle(matrix(wxyz(pose[3:])), data.xmat[body].reshape(3, 3)))
        own = seen[1][0].reshape(len(names), len(names)) + np.diag(model.dof_armature[dofs])
        masses.append(float(np.abs(own - full).max()))
        torques.append(float(np.abs(seen[2][0] - bias).max()))
    world.close()
    return [
        Check("PhysX: kinematics, place", worst(place), 1e-5, "m"),
        Check("PhysX: kinematics, turn", worst(turn), 1e-5, "rad"),
        Check("PhysX: mass matrix", worst(masses), 1e-4, "kg m2"),
        Check("PhysX: torques of gravity", worst(torques), 1e-3, "Nm"),
    ]


def _swing(task: SimTask, robot: Robot, found: Measured) -> None:
    """All joints follow a sine with their drives, MuJoCo's in one engine, the stage's in PhysX."""
    simulated, other = (_at_home(_scene(task, robot, _untouched), robot) for _ in range(2))
    model = simulated.model
    world = PhysxWorld(task, robot, model, other.data, driven=True)
    home = np.array(robot.home_rad)
    drives = [model.actuator(drive(name)).id for name in robot.joint_names]
    goal = {name: float(other.data.joint(name).qpos[0]) for name in world.joint_names}

    def step(time_s: float) -> None:
        want = home + SWING_RAD * math.sin(2.0 * math.pi * SWING_HZ * time_s)
        simulated.data.ctrl[drives] = want
        world.drive_to(goal | dict(zip(robot.joint_names, want.tolist(), strict=True)))
        mujoco.mj_step(model, simulated.data)
        world.step(np.zeros(model.nv))

    gap, trace = _joints_of(robot, (simulated, other), SWING_S, step)
    world.close()
    name, gate = "drives follow a sine", 3e-3 * model.opt.timestep / 0.002
    found.checks.append(Check(name, gap, gate, "rad", f"{SWING_S:g} s"))
    found.traces.append(replace(trace, name=f"{name}: {trace.name}"))


def _fall(task: SimTask, robot: Robot, found: Measured) -> None:
    """The arm falls, without drives and compensation, for a moment."""
    simulated, other = (_at_home(_scene(task, robot, _limp), robot) for _ in range(2))
    model = simulated.model
    world = PhysxWorld(task, robot, model, other.data)

    def step(_time_s: float) -> None:
        mujoco.mj_step(model, simulated.data)
        world.step(np.zeros(model.nv))

    gap, trace = _joints_of(robot, (simulated, other), FALL_S, step)
    world.close()
    name, gate = "the limp arm falls", 2.6 * model.opt.timestep
    found.checks.append(Check(name, gap, gate, "rad", f"{FALL_S:g} s"))
    found.traces.append(replace(trace, name=f"{name}: {trace.name}"))


def _joints_of(
    robot: Robot,
    pair: tuple[MujocoRobot, MujocoRobot],
    seconds: float,
    step: Callable[[float], None],
) -> tuple[float, Trace]:
    """The largest gap between the joints of two arms on the way, and the curve of that joint."""
    dt_s, joints = pair[0].model.opt.timestep, len(robot.joints)
    times = dt_s * np.arange(round(seconds / dt_s), dtype=np.float64)
    ways = np.zeros((2, len(times), joints))
    for index, time_s in enumerate(times):
        step(float(time_s))
        for side, simulated in enumerate(pair):
            ways[side, index] = simulated.data.qpos[:joints]
    gaps = np.abs(ways[0] - ways[1]).max(0)
    joint = int(np.argmax(gaps))
    curve = Trace(robot.joint_names[joint], "rad", times, ways[0, :, joint], ways[1, :, joint])
    return float(gaps[joint]), curve


def _contacts(task: SimTask, robot: Robot, found: Measured) -> None:
    """A free part lies on the table, slides down a slope, and stays on a gentler one.

    Gravity is tilted instead of the table. On the gentler slope both engines let it creep.
    """
    one, other = _drop(task, robot, lambda _model: None, REST_S)
    gap = float(np.abs(one[-1] - other[-1]).max())
    found.checks.append(Check("a part lies on the table", gap, 3e-4, "m", f"{REST_S:g} s"))

    one, other = _drop(task, robot, _tilted(SLOPE_RAD, SLOPE_FRICTION), SLIDE_S)
    way, gap = abs(float(one[-1, 0])), abs(float(one[-1, 0] - other[-1, 0]))
    found.checks.append(
        Check("a part slides down a slope", gap / way, 0.03, "of the way", _told(one, other))
    )
    times = SLIDE_S / len(one) * np.arange(len(one), dtype=np.float64)
    found.traces.append(
        Trace("a part slides down a slope", "mm", times, 1e3 * one[:, 0], 1e3 * other[:, 0])
    )

    one, other = _drop(task, robot, _tilted(STEEP_RAD, STICK_FRICTION), STICK_S)
    creep = worst([abs(float(one[-1, 0])), abs(float(other[-1, 0]))])
    found.checks.append(Check("a part stays on a slope", creep, 0.010, "m", _told(one, other)))


def _told(one: F64, other: F64) -> str:
    here, there = 1000 * abs(one[-1, 0]), 1000 * abs(other[-1, 0])
    return f"{here:.1f} mm in MuJoCo, {there:.1f} mm in PhysX"


def _drop(
    task: SimTask, robot: Robot, change: Callable[[mujoco.MjModel], None], seconds: float
) -> tuple[F64, F64]:
    """Where a free part goes [steps, 3] in both engines, seen from where it was."""
    name = next(part.name for part in task.parts() if part.role == "free")
    ways: list[F64] = []
    for physx in (False, True):
        simulated = _scene(task, robot, change)
        model, data = simulated.model, simulated.data
        world = PhysxWorld(task, robot, model, data) if physx else None
        start = data.body(name).xpos.copy()
        way = np.zeros((round(seconds / model.opt.timestep), 3))
        for index in range(len(way)):
            if world is None:
                mujoco.mj_step(model, data)
            else:
                world.step(np.zeros(model.nv))
            mujoco.mj_kinematics(model, data)
            way[index] = data.body(name).xpos - start
        ways.append(way)
        if world is not None:
            world.close()
    return ways[0], ways[1]


def _insert(task: PegInsertTask, robot: Robot, found: Measured) -> None:
    """The peg is put into the hole from above, and pressed onto its floor."""
    depths: list[F64] = []
    for simulated in (MujocoRobot(task, robot), PhysxRobot(task, robot)):
        plan = task.sample_reset(np.random.default_rng(0))
        mouth = plan.objects["hole"].position_m + np.array((0.0, 0.0, PROTRUSION_M))
        high, low = (mouth + np.array((0.0, 0.0, z)) for z in (ABOVE_M, -DEPTH_M - PRESS_M))
        simulated.reset(replace(plan, tcp_in_base=tool_down(high)))
        depth: list[float] = []
        for tick in range(round(INSERT_S / TICK_S)):
            share = min(1.0, (tick + 1) * TICK_S / (0.5 * INSERT_S))
            simulated.apply(_command(tool_down(high + share * (low - high)), simulated.now_s()))
            simulated.advance(TICK_S)
            (_, _, z), _ = task.tip_in_hole(simulated.read())
            depth.append(-float(z))
        depths.append(np.array(depth))
    one, other = depths
    gap = abs(float(one[-1] - other[-1]))
    note = f"{1000 * one[-1]:.2f} mm deep in MuJoCo, {1000 * other[-1]:.2f} mm in PhysX"
    found.checks.append(Check("the peg rests in the hole", gap, 1e-4, "m", note))
    shallow = worst([DEPTH_M - float(one[-1]), DEPTH_M - float(other[-1])])
    found.checks.append(Check("the peg is down", shallow, 1e-3, "m from the floor", note))
    times = TICK_S * np.arange(len(one), dtype=np.float64)
    found.traces.append(Trace("the peg goes down", "mm", times, 1e3 * one, 1e3 * other))


def _land(task: SimTask, robot: Robot, found: Measured) -> None:
    """The open hand comes down onto the table: what the wrench sensor says of the impact.

    Once it has touched the table it is to stay where it is: to press on would hide the impact. The
    gate of the peak is wide, as MuJoCo's contact gives way for some milliseconds and PhysX's does
    not; what stops the hand, force times time, is nearly the same.
    """
    forces: list[F64] = []
    for simulated in (MujocoRobot(task, robot), PhysxRobot(task, robot)):
        plan = task.sample_reset(np.random.default_rng(0))
        (x, y), z = LAND_XY_M, LAND_FROM_M
        simulated.reset(replace(plan, tcp_in_base=tool_down(np.array((x, y, z)))))
        force: list[float] = []
        for _ in range(round(LAND_S / TICK_S)):
            landed = any(force)
            z -= 0.0 if landed else LAND_M_S * TICK_S
            simulated.apply(_command(tool_down(np.array((x, y, z))), simulated.now_s()))
            simulated.advance(TICK_S)
            state = simulated.read()
            force.append(-float(state.wrench_in_tcp[2]))  # the table pushes against the tool's z
            if force[-1] and not landed:
                z = float(state.tcp_in_base.position_m[2])
        forces.append(np.array(force))
    one, other = forces
    name = "the hand lands on the table"
    for what, unit, gate, measured in (
        ("peak", "N", 0.5, np.max(forces, 1)),
        ("impulse", "Ns", 0.2, TICK_S * np.sum(forces, 1)),
    ):
        here, there = measured.tolist()
        note = f"{LAND_M_S:g} m/s: {here:.2g} {unit} in MuJoCo, {there:.2g} {unit} in PhysX"
        off = abs(there / here - 1.0) if here else math.nan
        found.checks.append(Check(f"{name}, {what}", off, gate, "of MuJoCo's", note))
    times = TICK_S * np.arange(len(one), dtype=np.float64)
    found.traces.append(Trace(name, "N", times, one, other))


def _command(target: Pose, now_s: float) -> Command:
    return Command(
        sequence=0,
        stamp_s=now_s,
        driver=Driver.POLICY,
        lease="parity",
        tcp_target_in_base=target,
        gripper_width_m=None,
    )


def _again(task: SimTask, robot: Robot) -> Check:
    """The same motion twice in PhysX."""
    ends: list[F64] = []
    for _ in range(2):
        simulated = PhysxRobot(task, robot)
        plan = task.sample_reset(np.random.default_rng(0))
        simulated.reset(plan)
        low = plan.tcp_in_base.position_m - np.array((0.0, 0.0, 0.05))
        simulated.apply(_command(Pose(low, plan.tcp_in_base.quaternion_xyzw), simulated.now_s()))
        simulated.advance(AGAIN_S)
        ends.append(simulated.data.qpos.copy())
    gap = float(np.abs(ends[0] - ends[1]).max())
    return Check("PhysX does the same twice", gap, 0.0, "rad or m", f"{AGAIN_S:g} s")


def _tilted(angle_rad: float, friction: float) -> Callable[[mujoco.MjModel], None]:
    def change(model: mujoco.MjModel) -> None:
        size = float(np.linalg.norm(model.opt.gravity))
        model.opt.gravity[:] = size * math.sin(angle_rad), 0.0, -size * math.cos(angle_rad)
        model.geom_friction[:, 0] = friction

    return change


def _untouched(model: mujoco.MjModel) -> None:
    """Nothing collides: an arm whose home is stretched out would meet the table."""
    model.geom_contype[:] = model.geom_conaffinity[:] = 0


def _with_gravity(model: mujoco.MjModel) -> None:
    model.body_gravcomp[:] = 0.0


def _limp(model: mujoco.MjModel) -> None:
    """No compensation of gravity, no drives; joints keep their own damping."""
    _with_gravity(model)
    _untouched(model)
    model.actuator_gainprm[:] = 0.0
    model.actuator_biasprm[:] = 0.0
