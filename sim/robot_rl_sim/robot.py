"""MujocoRobot: the simulated arm behind `RobotPort` and `Clock`.

Physics and impedance run in C; Python wakes every 10 ms of simulated time to move the filtered
target, and every 50 ms to refresh the posture torque. These moments lie on a fixed grid of physics
steps, so advancing in one go or in pieces gives bit-identical results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import RobotRLError
from robot_rl.geometry import compose, pose
from robot_rl.ports import ResetPlan
from robot_rl.robots import Fr3, Robot
from robot_rl.robots.chain import Chain
from robot_rl.robots.ik import TARGET_FILTER_S
from robot_rl.tasks.common import SimTask, tool_down
from robot_rl.types import Command, Pose, RobotState
from robot_rl_sim.arm import HAND
from robot_rl_sim.builder import TARGET_BODY, TICK_S, build_model, drive
from robot_rl_sim.kinematics import wxyz, xyzw
from robot_rl_sim.randomize import Randomizer

if TYPE_CHECKING:
    from robot_rl_sim.camera import SceneCamera

POSTURE_TICKS = 5  # posture torque every 50 ms: the elbow is slow
POSTURE_NM_RAD = 10.0
POSTURE_NMS_RAD = 3.0
JOINT_ALPHA = 1.0 - math.exp(-TICK_S / TARGET_FILTER_S)  # of the drives' goal, each tick
WRENCH_FILTER_S = 0.02  # like the low-pass in Franka's external wrench estimate

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that decides the future of a `MujocoRobot`; see `MujocoRobot.snapshot`."""

    physics: F64
    memory: F64
    held: F64


class MujocoRobot:
    """A simulated robot in the scene of a task; implements `RobotPort` and `Clock`.

    The arm starts in the middle of the workspace, the objects at a start that the task has drawn;
    `reset` teleports all to a plan's start. Not thread-safe.

    joint_control: each joint has a drive instead of the impedance at the TCP; in a task whose
    actions move the joints, always. `apply` then takes joint targets, which the drives follow with
    the lag of the node `ik`, or commands the gripper only. `drive_joints` is the arm's own joint
    controller; a snapshot does not hold the motion that it goes on with, nor commands and pictures
    that a randomised task delays.

    Attributes:
        task, robot: what is simulated.
        randomizer: what differs in this episode, if the task says so (`tasks.randomize`).
        model, data: MuJoCo's, for cameras and tests; change them through the methods only.
    """

    def __init__(
        self,
        task: SimTask,
        robot: Robot | None = None,
        model: mujoco.MjModel | None = None,
        *,
        joint_control: bool = False,
    ) -> None:
        self.task, self.robot = task, robot or Fr3()
        joint_control = joint_control or task.moves_joints
        self.model = model or build_model(task, self.robot, joint_control=joint_control)
        self.data = mujoco.MjData(self.model)
        m = self.model
        self._substeps = max(1, round(TICK_S / m.opt.timestep))
        self._alpha = 1.0 - math.exp(-TICK_S / max(task.impedance.filter_s, 1e-6))
        self._wrench_alpha = 1.0 - math.exp(-TICK_S / WRENCH_FILTER_S)
        self._tcp = m.site("tcp").id
        target = int(m.body(TARGET_BODY).mocapid[0])
        self._target_pose = self.data.mocap_pos[target], self.data.mocap_quat[target]
        self._hand = m.body(HAND).id
        self._contacts = _history(m, self.data, "external")
        self._tcp_position = self.data.site_xpos[self._tcp]
        arm = [int(m.joint(name).qposadr[0]) for name in self.robot.joint_names]
        self._joints = len(arm)
        drives = [m.actuator(drive(n)).id for n in self.robot.joint_names] if joint_control else []
        self._drives = slice(drives[0], drives[-1] + 1) if drives else None
        self._drift_rad_s = np.zeros(self._joints)  # the drives' goals move by themselves
        self._joint_goal_rad: F64 | None = None  # they move towards this
        assert arm == list(range(self._joints)), "the arm's joints come first"
        parts = task.parts()
        self._mocap = {
            p.name: int(m.body(p.name).mocapid[0]) for p in parts if p.role in ("fixture", "marker")
        }
        self._free = {
            p.name: int(m.joint(f"{p.name}_free").qposadr[0]) for p in parts if p.role == "free"
        }
        self._jointed = {
            p.name: (p.joint, m.joint(f"{p.name}_joint")) for p in parts if p.joint is not None
        }
        self._joint_dofs = [int(its.dofadr[0]) for _, its in self._jointed.values()]
        self._held = next((m.body(p.name).id for p in parts if p.role == "held"), None)
        names = (*self._mocap, *self._jointed, *self._free)  # fixtures before what moves in them
        self._bodies = {name: m.body(name).id for name in names}
        self._gripper = m.actuator("gripper").id if task.uses_gripper else None
        self._jacobian = np.zeros((6, m.nv))
        self._steps = 0
        self._wrench = np.zeros(6)  # in base, about the TCP, filtered
        self._touched = False
        self._gripper_goal_m = task.gripper_start_m
        self.randomizer: Randomizer | None = None  # not before somebody resets
        middle = (np.array(task.workspace_min_m) + np.array(task.workspace_max_m)) / 2
        self._chain = Chain(self.robot)
        self._posture_rad = self._chain.solve(tool_down(middle), np.array(self.robot.home_rad))
        self._place_arm(self._posture_rad)
        self.place_objects(task.sample_reset(np.random.default_rng(0)))
        if task.drawn_ranges:
            self.randomizer = Randomizer(self.model, task, self.robot)

    # --- ports -----------------------------------------------------------------------------------

    def read(self) -> RobotState:
        """State now; see `RobotState` for units. The wrench is filtered with `WRENCH_FILTER_S`."""
        data = self.data
        tcp = self._tcp_in_base()
        to_tcp = data.site_xmat[self._tcp].reshape(3, 3)
        state = RobotState(
            stamp_s=self.now_s(),
            joint_position_rad=data.qpos[: self._joints].copy(),
            joint_velocity_rad_s=data.qvel[: self._joints].copy(),
            tcp_in_base=tcp,
            tcp_twist_in_base=self._jacobian[:, : self._joints] @ data.qvel[: self._joints],
            wrench_in_tcp=(self._wrench.reshape(2, 3) @ to_tcp).ravel(),
            gripper_width_m=self.gripper_width_m,
            objects={name: self._body_in_base(i) for name, i in self._bodies.items()},
        )
        return state if self.randomizer is None else self.randomizer.sense(state, self._jacobian)

    def apply(self, command: Command) -> None:
        """Set the goal of the impedance controller, or of the drives; filters move towards it.

        With fewer than six joints the goal becomes what they can reach of it (`robots.chain`):
        springs that pull at the tool in a direction in which it cannot turn would move the TCP.
        """
        if self.randomizer is None:
            self._obey(command)
            self._grip(command.gripper_width_m)
        else:
            self.randomizer.order(command, self.now_s())

    def _obey(self, command: Command) -> None:
        goal = command.tcp_target_in_base
        if self._drives is not None:
            if command.joint_target_rad is not None:
                self._joint_goal_rad = command.joint_target_rad.copy()
        elif self._joints < 6:
            goal = self._chain.nearest(goal, self.data.qpos[: self._joints].copy())
        self._set_goal(goal)

    def _grip(self, width_m: float | None) -> None:
        if width_m is not None and self._gripper is not None:
            self._gripper_goal_m = float(np.clip(width_m, 0.0, self.robot.gripper.stroke_m))

    def drive_joints(self, goal_rad: F64 | None, velocity_rad_s: F64 | None = None) -> None:
        """Set the goal of each joint's drive [J], and the velocity with which it goes on by itself.

        Only with `joint_control`. goal_rad: None = where the joints are now.
        """
        assert self._drives is not None, "this arm has no drives: joint_control"
        here = self.data.qpos[: self._joints]
        self._joint_goal_rad = None
        self.data.ctrl[self._drives] = here if goal_rad is None else goal_rad
        self._drift_rad_s = np.zeros(self._joints) if velocity_rad_s is None else velocity_rad_s

    @property
    def driven_to_rad(self) -> F64:
        """Goal of each joint's drive [J]."""
        assert self._drives is not None, "this arm has no drives: joint_control"
        return self.data.ctrl[self._drives].copy()

    def push(self, force_n: Sequence[float]) -> None:
        """Let a person push the hand with this force [3] in base, until told otherwise or `reset`.

        As on an arm whose wrench sensor lies beyond the place that is pushed, the state's wrench
        does not tell of it.
        """
        self.data.xfrc_applied[self._hand, :3] = force_n

    def now_s(self) -> float:
        """Simulated seconds since construction; a reset does not turn it back."""
        return self._steps * self.model.opt.timestep

    def sleep_until_s(self, deadline_s: float) -> None:
        """Step the physics to the deadline (nearest whole step); nothing if it has passed."""
        self._advance_to(round(deadline_s / self.model.opt.timestep))

    def advance(self, dt_s: float) -> None:
        """Step the physics by `dt_s`, rounded to whole steps."""
        self._advance_to(self._steps + round(dt_s / self.model.opt.timestep))

    def tcp_at(self, joints_rad: Sequence[float]) -> Pose:
        """Pose of the TCP in base with the arm's joints at `joints_rad`; nothing moves."""
        scratch = mujoco.MjData(self.model)
        scratch.qpos[:] = self.data.qpos
        scratch.qpos[: self._joints] = joints_rad
        mujoco.mj_kinematics(self.model, scratch)
        return Pose(scratch.site_xpos[self._tcp].copy(), xyzw(scratch.xquat[self._hand]))

    def camera(self, name: str, size: tuple[int, int]) -> SceneCamera:
        """A `MujocoCamera` of the scene; needs OpenGL."""
        from robot_rl_sim.camera import MujocoCamera  # OpenGL is needed for pictures only

        return MujocoCamera(self, name, size)

    # --- episodes --------------------------------------------------------------------------------

    def reset(self, plan: ResetPlan) -> None:
        """Teleport arm, gripper, held part and objects to the start of an episode, all at rest.

        Raises:
            RobotRLError: the start pose is out of reach.
        """
        self._place_arm(self._chain.solve(plan.tcp_in_base, self._posture_rad))
        self._gripper_goal_m = plan.gripper_width_m
        if self._gripper is not None:
            self.data.qpos[self._joints : self._joints + 2] = plan.gripper_width_m / 2
            self.data.ctrl[self._gripper] = plan.gripper_width_m
        self.place_objects(plan)

    def vary(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        """Let these ranges hold in the place of the task's (`tasks.randomize`), from `reset` on."""
        self.randomizer = self.randomizer or Randomizer(self.model, self.task, self.robot)
        self.randomizer.ranges = dict(ranges)

    @property
    def painted(self) -> int:
        """How often the scene's textures have changed."""
        return 0 if self.randomizer is None else self.randomizer.painted

    def place_objects(self, plan: ResetPlan) -> None:
        """Move objects and held part only; the arm stays where it is (the ROS sim node's reset).

        Raises:
            RobotRLError: the plan names an object that the scene does not have.
        """
        if self.randomizer is not None:
            self.randomizer.renew(plan)
        unknown = set(plan.objects) - set(self._bodies)
        if unknown:
            raise RobotRLError(
                "the reset plan names objects that are not in the scene",
                expected=f"a subset of {sorted(self._bodies)}",
                got=f"{sorted(unknown)}",
                fix="use the plan of the task that built this scene",
            )
        for name in (n for n in self._bodies if n in plan.objects):
            self._place_object(name, plan.objects[name])
        if self._held is not None and plan.held_in_tcp is not None:
            held_in_hand = compose(pose((0.0, 0.0, self.robot.gripper.tcp_m)), plan.held_in_tcp)
            self.model.body_pos[self._held] = held_in_hand.position_m
            self.model.body_quat[self._held] = wxyz(held_in_hand.quaternion_xyzw)
        self._refresh()

    def _place_object(self, name: str, where: Pose) -> None:
        """Put an object somewhere, at rest."""
        quat = wxyz(where.quaternion_xyzw)
        if name in self._mocap:
            self.data.mocap_pos[self._mocap[name]] = where.position_m
            self.data.mocap_quat[self._mocap[name]] = quat
        elif name in self._jointed:
            self._place_jointed(name, where)
        else:
            adr = self._free[name]
            self.data.qpos[adr : adr + 7] = np.concatenate((where.position_m, quat))
            self._velocity_of(name)[:] = 0.0

    def _velocity_of(self, name: str) -> F64:
        """View of a free object's velocity [6]: linear in the world, turning in its own frame."""
        dof = self.model.jnt_dofadr[self.model.joint(f"{name}_free").id]
        return self.data.qvel[dof : dof + 6]

    def show(self, state: RobotState) -> None:
        """Be where a state says, at rest: the arm, the fingers, and the objects that it has."""
        self._place_arm(state.joint_position_rad)
        if self._gripper is not None:
            self._gripper_goal_m = state.gripper_width_m
            self.data.qpos[self._joints : self._joints + 2] = state.gripper_width_m / 2
            self.data.ctrl[self._gripper] = state.gripper_width_m
        for name, where in state.objects.items():
            self._place_object(name, where)
        if self.randomizer is not None:
            self.randomizer.forget()
        self._refresh()

    @property
    def goal(self) -> Pose:
        """Pose of the TCP in base that the controller moves towards."""
        return Pose(self._goal_position.copy(), xyzw(self._goal_wxyz))

    def move_object(self, name: str, where: Pose | None, twist: F64 | None) -> None:
        """Put one object somewhere (in base), give it a velocity [6] (in base), or both.

        Raises:
            RobotRLError: there is no such object, or it cannot have a velocity.
        """
        free = name in self._free
        if name not in self._bodies or (twist is not None and twist.any() and not free):
            raise RobotRLError(
                f"{name} cannot be moved so",
                expected=f"one of {sorted(self._bodies)}; a velocity for {sorted(self._free)}",
                got=f"{name}" + ("" if twist is None else f" at {twist.tolist()}"),
                fix="an object of the scene, without a velocity unless it is free",
            )
        if where is not None:
            self._place_object(name, where)
            self._refresh()
        if twist is not None and free:
            turn = self.data.xmat[self._bodies[name]].reshape(3, 3)
            self._velocity_of(name)[:] = *twist[:3], *(turn.T @ twist[3:])

    def twist_of(self, name: str) -> F64:
        """Velocity [6] of an object's origin, linear then turning, in base."""
        twist = np.zeros(6)
        mujoco.mj_comVel(self.model, self.data)
        kind = mujoco.mjtObj.mjOBJ_XBODY
        mujoco.mj_objectVelocity(self.model, self.data, kind, self._bodies[name], twist, 0)
        return np.concatenate((twist[3:], twist[:3]))

    def _place_jointed(self, name: str, where: Pose) -> None:
        """Set a joint to the position that is nearest to a pose of its part, at rest."""
        joint, its = self._jointed[name]
        mount = self._mocap[joint.mount]
        mount_in_base = Pose(self.data.mocap_pos[mount], xyzw(self.data.mocap_quat[mount]))
        position = joint.position(mount_in_base, where)
        self.data.qpos[its.qposadr[0]] = np.clip(position, joint.low, joint.high)
        self.data.qvel[its.dofadr[0]] = 0.0

    def _catch(self) -> None:
        """Give the joints that stand in their catch its extra friction."""
        for joint, its in self._jointed.values():
            if joint.catch:
                away = abs(float(self.data.qpos[its.qposadr[0]]) - joint.catch_at)
                caught = joint.catch * (away <= joint.catch_width)
                self.model.dof_frictionloss[its.dofadr[0]] = joint.friction + caught

    def snapshot(self) -> Snapshot:
        """Copy of the whole state, for `restore`."""
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.empty(mujoco.mj_stateSize(self.model, kind))
        mujoco.mj_getState(self.model, self.data, physics, kind)
        goal = (*self._goal_position, *self._goal_wxyz)
        catches = self.model.dof_frictionloss[self._joint_dofs]
        joints = () if self._joint_goal_rad is None else self._joint_goal_rad
        memory = np.array(
            (self._steps, self._gripper_goal_m, *self._wrench, *goal, *catches, *joints)
        )
        held = np.zeros(7)
        if self._held is not None:
            held[:3] = self.model.body_pos[self._held]
            held[3:] = self.model.body_quat[self._held]
        return Snapshot(physics, memory, held)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a snapshot of this robot; what follows is bit-identical."""
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        mujoco.mj_setState(self.model, self.data, snapshot.physics, kind)
        self._steps = int(snapshot.memory[0])
        self._gripper_goal_m = float(snapshot.memory[1])
        self._wrench = snapshot.memory[2:8].copy()
        self._touched = bool(self._wrench.any())
        self._goal_position = snapshot.memory[8:11].copy()
        self._goal_wxyz = snapshot.memory[11:15].copy()
        joints = 15 + len(self._joint_dofs)
        self.model.dof_frictionloss[self._joint_dofs] = snapshot.memory[15:joints]
        kept = snapshot.memory[joints:]
        self._joint_goal_rad = kept.copy() if len(kept) else None
        if self._held is not None:
            self.model.body_pos[self._held] = snapshot.held[:3]
            self.model.body_quat[self._held] = snapshot.held[3:]
        self._refresh()

    @property
    def gripper_width_m(self) -> float:
        """Distance between the finger pads."""
        if self._gripper is None:
            return self.task.gripper_start_m
        return float(self.data.qpos[self._joints] + self.data.qpos[self._joints + 1])

    # --- physics ---------------------------------------------------------------------------------

    def _advance_to(self, step: int) -> None:
        while self._steps < step:
            phase = self._steps % self._substeps
            if phase == 0:
                self._tick()
            count = min(self._substeps - phase, step - self._steps)
            self._step(count)
            self._steps += count
            if self._steps % self._substeps == 0:
                self._filter_wrench()
        self._refresh()

    def _step(self, count: int) -> None:
        """Go on by `count` physics steps, all within one tick."""
        mujoco.mj_step(self.model, self.data, nstep=count)

    def _set_goal(self, goal: Pose) -> None:
        """Remember where the filtered target goes, the short way round."""
        self._goal_position, quat = goal.position_m, wxyz(goal.quaternion_xyzw)
        self._goal_wxyz = -quat if float(quat @ self._target_pose[1]) < 0.0 else quat

    def _tick(self) -> None:
        """Move the filtered target towards the goal, the gripper towards its own."""
        data = self.data
        if self.randomizer is not None:
            command, width_m = self.randomizer.due(self.now_s())
            if command is not None:
                self._obey(command)
            self._grip(width_m)
            self.randomizer.remember(self.now_s(), data)
        position, quat = self._target_pose  # views into MuJoCo's memory
        position += self._alpha * (self._goal_position - position)
        quat += self._alpha * (self._goal_wxyz - quat)  # MuJoCo normalises what it reads
        self._catch()
        if self._gripper is not None:
            gap = self._gripper_goal_m - float(data.ctrl[self._gripper])
            stride = self.robot.gripper.speed_m_s * TICK_S
            data.ctrl[self._gripper] += min(max(gap, -stride), stride)
        if self._drives is not None:
            low, high = self.model.jnt_range[: self._joints].T
            driven = data.ctrl[self._drives]
            moved = driven + TICK_S * self._drift_rad_s
            if self._joint_goal_rad is not None:
                moved = driven + JOINT_ALPHA * (self._joint_goal_rad - driven)
            data.ctrl[self._drives] = np.clip(moved, low, high)
        elif (self._steps // self._substeps) % POSTURE_TICKS == 0:
            self._hold_posture()

    def _hold_posture(self) -> None:
        """Pull the elbow to its posture with torques that the TCP does not feel.

        tau = (1 - J^T (J J^T)^-1 J) (k (q0 - q) - d qdot): no static TCP force. With six joints
        there is no such torque.
        """
        if self._joints <= 6:
            return
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        jacobian = self._update_jacobian()[:, : self._joints]
        q, v = self.data.qpos[: self._joints], self.data.qvel[: self._joints]
        torque = POSTURE_NM_RAD * (self._posture_rad - q) - POSTURE_NMS_RAD * v
        felt = np.linalg.solve(jacobian @ jacobian.T, jacobian @ torque)
        self.data.qfrc_applied[: self._joints] = torque - jacobian.T @ felt

    def _touches(self) -> F64:
        """Force, torque and place [samples, 9] of what the hand does to the world, in the world."""
        return self._contacts

    def _filter_wrench(self) -> None:
        """Low-pass the contact wrench of the last `TICK_S`, moved from where it acts to the TCP.

        It takes the mean over the physics steps, not the last one: an impact lasts one step.
        """
        samples = self._touches()
        if not samples[:, :3].any():
            if self._touched:
                self._wrench *= 1.0 - self._wrench_alpha
                self._touched = bool(np.abs(self._wrench).max() > 1e-6)
                self._wrench *= self._touched
            return
        self._touched = True
        force, arm = samples[:, :3], samples[:, 6:] - self._tcp_position
        moment = arm[:, (1, 2, 0)] * force[:, (2, 0, 1)] - arm[:, (2, 0, 1)] * force[:, (1, 2, 0)]
        # MuJoCo reports what the hand does to the world; a sensor feels the opposite
        mean = -np.concatenate((force.mean(0), (samples[:, 3:6] + moment).mean(0)))
        self._wrench += self._wrench_alpha * (mean - self._wrench)

    def _refresh(self) -> None:
        """Bring poses and Jacobian up to date with qpos (a step leaves them one step behind)."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        self._update_jacobian()

    def _update_jacobian(self) -> F64:
        j = self._jacobian
        mujoco.mj_jacSite(self.model, self.data, j[:3], j[3:], self._tcp)
        return j

    def _tcp_in_base(self) -> Pose:
        """TCP pose, turned like the hand body, whose quaternion MuJoCo already has."""
        quat = xyzw(self.data.xquat[self._hand])
        return Pose(self.data.site_xpos[self._tcp].copy(), quat)

    def _body_in_base(self, body: int) -> Pose:
        return Pose(self.data.xpos[body].copy(), xyzw(self.data.xquat[body]))

    def _place_arm(self, joints_rad: F64) -> None:
        """Put the arm somewhere at rest, the controller's goal with it; forget all forces."""
        objects = self.data.mocap_pos.copy(), self.data.mocap_quat.copy()
        qpos = self.data.qpos.copy()
        mujoco.mj_resetData(self.model, self.data)
        self.data.mocap_pos[:], self.data.mocap_quat[:] = objects
        self.data.qpos[:] = qpos
        self.data.qpos[: self._joints] = joints_rad
        self._wrench, self._touched = np.zeros(6), False
        # episodes start on the grid of ticks, so that each begins alike
        self._steps += -self._steps % (self._substeps * POSTURE_TICKS)
        self._refresh()
        self._set_goal(self._tcp_in_base())
        position, quat = self._target_pose
        position[:], quat[:] = self._goal_position, self._goal_wxyz
        if self._drives is not None:
            self.drive_joints(joints_rad)


def _history(model: mujoco.MjModel, data: mujoco.MjData, sensor: str) -> F64:
    """View [samples, dim] of a sensor's history buffer, in no particular order.

    MuJoCo keeps (user, cursor, times[samples], values[samples, dim]) per sensor.
    """
    sensor_id = model.sensor(sensor).id
    samples, dim = int(model.sensor_history[sensor_id, 0]), int(model.sensor_dim[sensor_id])
    begin = int(model.sensor_historyadr[sensor_id]) + 2 + samples
    return data.history[begin : begin + samples * dim].reshape(samples, dim)
