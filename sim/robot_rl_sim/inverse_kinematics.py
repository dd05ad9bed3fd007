"""Inverse kinematics of a whole run: from targets to joint targets, with mink on MuJoCo.

Each step is a quadratic program over the joints' small displacement: come nearer to the target
(`mink.FrameTask`), stay near the home pose where that costs nothing (`mink.PostureTask`), inside a
box of ranges, velocities and accelerations, and away from the arm itself
(`mink.CollisionAvoidanceLimit` on the capsules that the gate checks, too).

A joint target (in a run of joint actions) is a `PostureTask` alone, in the same box and with the
same clearance: no pose of the TCP is looked for, and no pose is singular.

Near a singular pose small motions of the TCP ask for large ones of the joints. There the problem is
damped the more, the smaller the least singular value of the Jacobian is (Nakamura and Hanafusa
1986), and the TCP slows down instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mink
import mujoco
import numpy as np
import qpsolvers
from numpy.typing import NDArray

from robot_rl.geometry import rotation_error, step_towards
from robot_rl.robots import Robot
from robot_rl.robots.ik import TARGET_FILTER_S, JointStep
from robot_rl.safety.body import body_of
from robot_rl.safety.limits import Limits
from robot_rl.types import Pose
from robot_rl_sim.arm import HAND, add_arm, add_hand, link
from robot_rl_sim.kinematics import wxyz, xyzw

F64 = NDArray[np.float64]

SOLVER = "daqp"
RAMP_S = 0.25  # from rest to full joint velocity; an FR3 may do 10 rad/s2, this asks it for 5
SLACK_RAD = 0.02  # inside the gate's joint margin, so that the gate has nothing to stop
CLEAR_M = 0.005  # more than the gate's collision margin, for the same reason
SEEN_M = 0.08  # capsules further apart than this do not slow the arm down
NEAR_S = 0.1  # they may come closer by their distance in this time, not faster
TURN_M = 0.3  # one radian of the TCP counts as much as this way
TURN_SHORT_M = 0.03  # the same with fewer than six joints: the place counts, then what can be had
POSTURE = 0.02  # cost of a radian from home
POSTURE_S = 1.0  # time constant of the way there
MOVING_M = 0.02  # from the target: nearer, the posture counts less, at the target not at all
SINGULAR = 0.08  # least singular value (m) below which the damping grows
DAMPING = 0.08  # the most, as a length (m)
LEAST = 1e-6  # damping far from any singular pose
THERE_M = 2e-3  # the target is reached; a turn counts by `TURN_M`
STOPPING = 0.8  # share of the acceleration's own v that a joint target is approached with
STUCK = 0.1  # share of the motion towards the target below which the arm is held by something


class Box(mink.Limit):
    """Ranges, velocities and accelerations of the joints as bounds of one step.

    A joint may go towards the end of its range only as fast as its acceleration can still stop it:
    v^2 <= 2 a d. A box is never empty: where the bounds contradict each other, it is the hardest
    braking that the acceleration allows.
    """

    def __init__(self, low_rad: F64, high_rad: F64, speed_rad_s: F64) -> None:
        self.low_rad, self.high_rad, self.speed_rad_s = low_rad, high_rad, speed_rad_s
        self.acceleration_rad_s2 = speed_rad_s / RAMP_S
        self.velocity_rad_s = np.zeros_like(speed_rad_s)  # of the step before
        self.free = False  # whether the accelerations are ignored

    def bounds(self, q: F64, dt_s: float) -> tuple[F64, F64]:
        """Least and greatest velocity (rad/s) of the next step."""
        accel, speed = self.acceleration_rad_s2, self.speed_rad_s
        low = np.maximum(-speed, -_stopping(q - self.low_rad, accel, dt_s))
        high = np.minimum(speed, _stopping(self.high_rad - q, accel, dt_s))
        low, high = np.minimum(low, speed), np.maximum(high, -speed)
        if self.free:
            return np.minimum(low, high), high
        slowest, fastest = self.velocity_rad_s - accel * dt_s, self.velocity_rad_s + accel * dt_s
        return np.minimum(np.maximum(low, slowest), fastest), np.maximum(
            np.minimum(high, fastest), slowest
        )

    def compute_qp_inequalities(
        self, configuration: mink.Configuration, dt: float
    ) -> mink.Constraint:
        """`G dq <= h` of one step."""
        low, high = self.bounds(configuration.q, dt)
        eye = np.eye(len(low))
        return mink.Constraint(G=np.vstack((eye, -eye)), h=dt * np.concatenate((high, -low)))


def _stopping(room_rad: F64, accel: F64, dt_s: float) -> F64:
    """Velocity from which a joint stops within its room; back into its range where it is outside.

    With steps of dt, v^2 / 2a + v dt / 2 <= d: the step in which it brakes counts as well.
    """
    half = 0.5 * accel * dt_s
    inside = np.sqrt(half**2 + 2.0 * accel * np.maximum(room_rad, 0.0)) - half
    return np.where(room_rad >= 0.0, inside, np.maximum(room_rad, -0.1) / NEAR_S)


class _Step(NamedTuple):
    """One step that was made: joints before it (rad), displacement, TCP before it, its aim on the
    way to the target, least singular value (m), duration."""

    before: F64
    moved: F64
    here: Pose
    aim: Pose
    target: Pose
    least: float
    dt_s: float


class MinkKinematics:
    """`robots.ik.InverseKinematics` of a robot within its limits. Not thread-safe.

    Args:
        limits: the gate's: joint ranges and margin, speeds of the TCP, collision margin.
        speed: share of each joint's velocity that is used.
    """

    def __init__(self, robot: Robot, limits: Limits, speed: float = 0.5) -> None:
        self._robot, self._limits = robot, limits
        self.model = _model(robot)
        self._configuration = mink.Configuration(self.model)
        self._tcp = self.model.site("tcp").id
        self._hand = self.model.body(HAND).id
        joints = len(robot.joints)
        self._turn_m = TURN_M if joints >= 6 else TURN_SHORT_M
        self._needs_turn = joints >= 6
        self._frame = mink.FrameTask("tcp", "site", 1.0, self._turn_m)
        self._posture = mink.PostureTask(self.model, POSTURE)
        self._posture.set_target(np.array(robot.home_rad))
        self._joints = mink.PostureTask(self.model, 1.0)
        margin = limits.joint_margin_rad + SLACK_RAD
        self._box = Box(
            np.array(limits.joint_min_rad or robot.joint_min_rad) + margin,
            np.array(limits.joint_max_rad or robot.joint_max_rad) - margin,
            speed * np.array([joint.velocity_rad_s for joint in robot.joints]),
        )
        pairs = [((_capsule(i),), (_capsule(k),)) for i, k, *_ in body_of(robot).pairs]
        self._clearance = (
            mink.CollisionAvoidanceLimit(
                self.model,
                pairs,
                minimum_distance_from_collisions=limits.collision_margin_m + CLEAR_M,
                collision_detection_distance=SEEN_M,
            )
            if pairs
            else None
        )

    def forward(self, position_rad: F64, velocity_rad_s: F64) -> tuple[Pose, F64]:
        """See `robots.ik.InverseKinematics`."""
        self._configuration.update(position_rad)
        jacobian = np.zeros((6, self.model.nv))
        mujoco.mj_jacSite(
            self.model, self._configuration.data, jacobian[:3], jacobian[3:], self._tcp
        )
        return self._pose(), jacobian @ velocity_rad_s

    def step(
        self, position_rad: F64, velocity_rad_s: F64, target: Pose | F64, dt_s: float
    ) -> JointStep:
        """See `robots.ik.InverseKinematics`."""
        self._configuration.update(position_rad)
        self._box.velocity_rad_s = velocity_rad_s
        if not isinstance(target, Pose):
            return self._step_joints(position_rad, velocity_rad_s, target, dt_s)
        here, limits = self._pose(), self._limits
        aim = step_towards(
            here,
            target,
            limits.max_speed_m_s * TARGET_FILTER_S,
            limits.max_rotation_speed_rad_s * TARGET_FILTER_S,
        )
        self._frame.set_target(_se3(aim))
        self._frame.gain = min(dt_s / TARGET_FILTER_S, 1.0)
        # who stands still does so with every joint: towards home only on the way
        on_the_way = min(self._size(self._error(target, here)) / MOVING_M, 1.0)
        self._posture.gain = min(dt_s / POSTURE_S, 1.0) * on_the_way
        least = self._least_singular()
        found = self._solve((self._frame, self._posture), _damping(least), dt_s)
        if found is None:
            return self.brake(position_rad, velocity_rad_s, dt_s)
        after = position_rad + found
        left_m, left_rad = self._left(target, after)
        why = self._why(_Step(position_rad, found, here, aim, target, least, dt_s))
        return JointStep(after, found / dt_s, left_m, left_rad, why)

    def _step_joints(
        self, position_rad: F64, velocity_rad_s: F64, target_rad: F64, dt_s: float
    ) -> JointStep:
        """Towards a joint target on a straight line: all joints as slow as the slowest has to be.

        Each could stop at the target with its own acceleration: v^2 <= 2 a d.
        """
        way, accel = target_rad - position_rad, self._box.acceleration_rad_s2
        far = np.maximum(np.abs(way), 1e-9)
        rates = self._box.speed_rad_s / far, STOPPING * np.sqrt(2.0 * accel / far)
        rate_1_s = min(1.0 / max(TARGET_FILTER_S, dt_s), *(float(r.min()) for r in rates))
        change = rate_1_s * way - velocity_rad_s
        change /= max(1.0, float((np.abs(change) / (accel * dt_s)).max()))
        self._joints.set_target(position_rad + dt_s * (velocity_rad_s + change))
        self._joints.gain = 1.0
        found = self._solve((self._joints,), LEAST, dt_s)
        if found is None:
            return self.brake(position_rad, velocity_rad_s, dt_s)
        after = position_rad + found
        left_rad = float(np.abs(target_rad - after).max())
        return JointStep(after, found / dt_s, 0.0, left_rad)

    def brake(self, position_rad: F64, velocity_rad_s: F64, dt_s: float) -> JointStep:
        """See `robots.ik.InverseKinematics`."""
        less = self._box.acceleration_rad_s2 * dt_s
        slower = np.sign(velocity_rad_s) * np.maximum(np.abs(velocity_rad_s) - less, 0.0)
        return JointStep(position_rad + slower * dt_s, slower, 0.0, 0.0, "no solution")

    # --- one step --------------------------------------------------------------------------------

    def _solve(self, tasks: Sequence[mink.Task], damping: float, dt_s: float) -> F64 | None:
        """The displacement [J] of one step; None when ranges and clearance contradict each other.

        Clearance counts more than accelerations: whoever would touch himself may brake harder.
        """
        clearance = self._clearance
        if clearance is not None:  # mink divides by the time step what is a displacement already
            clearance.gain = dt_s**2 / NEAR_S
        for free in (False, True):
            self._box.free = free
            limits = [self._box] if clearance is None else [self._box, clearance]
            problem = mink.build_ik(self._configuration, tasks, dt_s, damping, limits)
            solution = qpsolvers.solve_problem(problem, solver=SOLVER)
            if solution.found and solution.x is not None and np.isfinite(solution.x).all():
                low, high = self._box.bounds(self._configuration.q, dt_s)
                return np.clip(solution.x, dt_s * low, dt_s * high)  # the solver is 1e-6 rad exact
        return None

    def _least_singular(self) -> float:
        """Least singular value (m) of the TCP's Jacobian, turns weighed as in the task."""
        jacobian = self._configuration.get_frame_jacobian("tcp", "site").copy()
        jacobian[3:] *= self._turn_m
        if not self._needs_turn:
            jacobian = jacobian[:3]
        return float(np.linalg.svd(jacobian, compute_uv=False)[-1])

    def _left(self, target: Pose, after: F64) -> tuple[float, float]:
        self._configuration.update(after)
        here = self._pose()
        turn = float(np.linalg.norm(rotation_error(target, here)))
        return float(np.linalg.norm(target.position_m - here.position_m)), turn

    def _why(self, step: _Step) -> str:
        """What keeps the TCP from the target; "" while it comes nearer or is there."""
        now, here, aim = self._pose(), step.here, step.aim
        if self._size(self._error(step.target, here)) < THERE_M:
            return ""
        wanted_m, got_m = self._size(self._error(aim, here)), self._size(self._error(aim, now))
        if wanted_m - got_m > STUCK * self._frame.gain * wanted_m:
            return ""
        if self._size(step.moved) > step.dt_s * self._size(self._box.velocity_rad_s) + 1e-6:
            return ""  # it gathers speed
        return self._holder(step)

    def _error(self, aim: Pose, here: Pose) -> F64:
        """Way [3] and turn [3] from here to there (m); an arm without six joints owes no turn."""
        turn = self._turn_m * rotation_error(aim, here)
        return np.concatenate((aim.position_m - here.position_m, turn * self._needs_turn))

    @staticmethod
    def _size(error: F64) -> float:
        return float(np.linalg.norm(error))

    def _holder(self, step: _Step) -> str:
        box, before = self._box, step.before
        at_end = (before - box.low_rad < SLACK_RAD) | (box.high_rad - before < SLACK_RAD)
        if at_end.any():
            return f"the end of {self._robot.joint_names[int(np.argmax(at_end))]}"
        if self._clearance is not None:
            self._configuration.update(before)
            found = self._clearance.compute_qp_inequalities(self._configuration, step.dt_s)
            assert found.G is not None and found.h is not None
            near = np.isfinite(found.h)
            if (found.h[near] - found.G[near] @ step.moved < 1e-5).any():
                return "the arm itself"
        return "a singular pose" if step.least < SINGULAR else "its reach"

    def _pose(self) -> Pose:
        data = self._configuration.data
        return Pose(data.site_xpos[self._tcp].copy(), xyzw(data.xquat[self._hand]))


def _damping(least: float) -> float:
    """Square of the damping length for the least singular value."""
    share = min(least / SINGULAR, 1.0)
    return LEAST + DAMPING**2 * (1.0 - share) ** 2


def _se3(where: Pose) -> mink.SE3:
    return mink.SE3(np.concatenate((wxyz(where.quaternion_xyzw), where.position_m)))


def _model(robot: Robot) -> mujoco.MjModel:
    """The bare arm: links, hand, and the capsules that must not touch each other."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.compiler.balanceinertia = True
    hand = add_hand(add_arm(spec.worldbody, robot), robot, moving=False, width_m=0.0, friction=1.0)
    bodies = [spec.body(link(robot, i)) for i in range(len(robot.joints) + 1)]
    for number, capsule in enumerate(robot.capsules):
        body = [*bodies, hand][capsule.link]
        body.add_geom(
            name=_capsule(number),
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            fromto=(*capsule.start_m, *capsule.end_m),
            size=(capsule.radius_m, 0.0, 0.0),
            mass=0.0,
        )
    return spec.compile()


def _capsule(number: int) -> str:
    return f"capsule{number}"
