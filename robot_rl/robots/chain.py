"""Kinematics of an arm in numpy: where its tool is, how it moves, which joint angles put it there.

For everything that is not in a hurry (starts of episodes, home poses, workspaces); the gate has its
own in plain floats.

An arm with fewer than six joints cannot turn its tool any way it likes. `Chain.solve` then puts the
TCP where it should be, and turns the tool towards the goal as far as the joints allow without
moving the TCP (task priority: Nakamura, Hanafusa & Yoshikawa 1987).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import RobotRLError
from robot_rl.geometry import compose, pose, quat_from_matrix, quat_to_matrix, rotation_error
from robot_rl.robots.robot import Robot
from robot_rl.types import Pose

F64 = NDArray[np.float64]

TOLERANCE = 1e-7  # m and rad
LIMIT_MARGIN_RAD = 1e-3
TURN_DAMPING = 1e-4  # the same of the turn that fewer than six joints leave free
DAMPING = 1e-6  # of the normal equations: the workspace has no singular pose, this is for safety
LARGEST_STEP_RAD = 0.3
ROUNDS = 100
NUDGES, NUDGE_DAMPING = 3, 1e-4  # near a singular pose a nudge goes a part of the way only
STUCK = 12  # rounds without progress: at the ends of the joints' ranges, or out of reach
AXIS_RAD = 0.05  # fewer than six joints: so far may the tool's axis be from that of the goal


class Chain:
    """The joints of a robot and its tool, prepared once.

    Attributes:
        low_rad, high_rad: ends of the joints' ranges [J].
        places: frame of each joint [4, 4] in the frame behind the joint before it, at angle 0.
        tool: TCP in the frame behind the last joint [4, 4].
    """

    def __init__(self, robot: Robot) -> None:
        self.low_rad, self.high_rad = np.array([j.range_rad for j in robot.joints]).T
        self.places = [_matrix(pose(j.position_m, j.quaternion_xyzw)) for j in robot.joints]
        tcp_in_hand = pose((0.0, 0.0, robot.gripper.tcp_m))
        self.tool = _matrix(compose(robot.hand_in_last, tcp_in_hand))

    @classmethod
    def of(cls, places: Sequence[Pose], tool: Pose) -> Chain:
        """A chain that is no robot of ours, such as a leader arm; its joints have no ends.

        Args:
            places: frame of each joint [J] in the frame behind the joint before it, at angle 0.
            tool: TCP in the frame behind the last joint.
        """
        found = cls.__new__(cls)
        found.low_rad, found.high_rad = np.full((2, len(places)), math.inf)
        found.low_rad = -found.low_rad
        found.places, found.tool = [_matrix(place) for place in places], _matrix(tool)
        return found

    def frames(self, q_rad: F64) -> F64:
        """Frame behind each joint, then the TCP, in base [J + 1, 4, 4], at angles [J] rad."""
        here, found = np.eye(4), []
        for place, c, s in zip(self.places, np.cos(q_rad), np.sin(q_rad), strict=True):
            here = here @ place
            x, y = here[:, 0].copy(), here[:, 1].copy()
            here[:, 0], here[:, 1] = c * x + s * y, c * y - s * x
            found.append(here)
        return np.array((*found, here @ self.tool))

    def tcp_in_base(self, q_rad: F64) -> Pose:
        """Pose of the TCP at joint angles [J] rad."""
        return _pose(self.frames(q_rad)[-1])

    def jacobian(self, frames: F64) -> F64:
        """Geometric Jacobian [6, J] of the TCP in base: m/rad, then rad/rad."""
        (ax, ay, az), (x, y, z) = frames[:-1, :3, 2].T, (frames[-1, :3, 3] - frames[:-1, :3, 3]).T
        return np.array((ay * z - az * y, az * x - ax * z, ax * y - ay * x, ax, ay, az))

    def solve(self, goal: Pose, start_rad: F64) -> F64:
        """Joint angles [J] that put the TCP at `goal`, by damped Gauss-Newton from `start_rad`.

        With fewer than six joints: see the head of this file.

        Raises:
            RobotRLError: no convergence inside the joint limits; with fewer than six joints also
                when the tool's axis would be more than `AXIS_RAD` off.
        """
        q, frames, error, there = self.approach(goal, start_rad)
        if there:
            return q
        found = f"position {goal.position_m.round(3).tolist()} m"
        if len(q) < 6 and float(np.abs(error[:3]).max()) < TOLERANCE:
            found += (
                f", {len(q)} joints: the tool's axis is {axis_error_rad(frames, goal):.2f} rad off"
            )
        raise RobotRLError(
            "the start pose is out of the arm's reach",
            expected="a pose inside the joint limits",
            got=found,
            fix="move the reset range or the workspace box of the task",
        )

    def nearest(self, goal: Pose, start_rad: F64) -> Pose:
        """What the arm can reach of a goal: its place, and as much of its turn as the joints allow.

        The goal itself, where the place cannot be reached.
        """
        _, frames, error, _ = self.approach(goal, start_rad)
        return _pose(frames[-1]) if float(np.abs(error[:3]).max()) < TOLERANCE else goal

    def nudged(self, goal: Pose, start_rad: F64) -> F64:
        """Angles [J] on the way from `start_rad` to a goal that is near: one control step ahead.

        Never raises: where the arm cannot follow it comes as near as a few damped steps take it,
        inside the ranges of its joints.
        """
        q, few = start_rad.copy(), len(start_rad) < 6
        low, high = np.minimum(self.low_rad, q), np.maximum(self.high_rad, q)
        for _ in range(NUDGES):
            frames = self.frames(q)
            here = _pose(frames[-1])
            error = np.concatenate((goal.position_m - here.position_m, rotation_error(goal, here)))
            jacobian = self.jacobian(frames)
            step = prioritised(jacobian, error) if few else _solved(jacobian, error, NUDGE_DAMPING)
            q = np.clip(q + np.clip(step, -LARGEST_STEP_RAD, LARGEST_STEP_RAD), low, high)
        return q

    def free(self, turn_rad: F64, q_rad: F64) -> F64:
        """The part of a turn of the joints [J] that leaves the TCP where it is, at angles [J]."""
        jacobian = self.jacobian(self.frames(q_rad))
        return turn_rad - np.linalg.pinv(jacobian, rcond=1e-3) @ (jacobian @ turn_rad)

    def approach(self, goal: Pose, start_rad: F64) -> tuple[F64, F64, F64, bool]:
        """(angles [J], frames, error [6] that is left in base, whether this is the goal)."""
        few = len(start_rad) < 6
        low, high = self.low_rad + LIMIT_MARGIN_RAD, self.high_rad - LIMIT_MARGIN_RAD
        q, last = start_rad.copy(), math.inf
        frames, error, least, since = self.frames(q), np.full(6, math.inf), math.inf, 0
        for _ in range(ROUNDS):
            here = _pose(frames[-1])
            error = np.concatenate((goal.position_m - here.position_m, rotation_error(goal, here)))
            if float(np.abs(error).max()) < TOLERANCE:
                return q, frames, error, True
            norm, left = float(np.linalg.norm(error)), float(np.linalg.norm(error[3:]))
            since = 0 if norm < 0.98 * least else since + 1
            least = min(norm, least)
            if few and float(np.abs(error[:3]).max()) < TOLERANCE and abs(last - left) < TOLERANCE:
                return q, frames, error, axis_error_rad(frames, goal) < AXIS_RAD
            if since > STUCK:
                break
            last = left
            jacobian = self.jacobian(frames)
            step = prioritised(jacobian, error) if few else _solved(jacobian, error)
            q = np.clip(q + np.clip(step, -LARGEST_STEP_RAD, LARGEST_STEP_RAD), low, high)
            frames = self.frames(q)
        return q, frames, error, False


def axis_error_rad(frames: F64, goal: Pose) -> float:
    """Angle between the tool's axis (z of the last frame) and that of the goal."""
    cosine = float(frames[-1, :3, 2] @ quat_to_matrix(goal.quaternion_xyzw)[:, 2])
    return math.acos(min(max(cosine, -1.0), 1.0))


def _solved(jacobian: F64, error: F64, damping: float = DAMPING) -> F64:
    """Damped least squares (Wampler 1986)."""
    square = jacobian @ jacobian.T + damping * np.eye(len(jacobian))
    return jacobian.T @ np.linalg.solve(square, error)


def prioritised(jacobian: F64, error: F64) -> F64:
    """A step [J] rad of fewer than six joints: the place of the TCP first, then its turn.

    The turn gets what the place leaves free of the joints, and goes as far as they can.

    Args:
        jacobian, error: [6, J] and [6] in base: m, then rad.
    """
    move, turn = jacobian[:3], jacobian[3:]
    back = move.T @ np.linalg.inv(move @ move.T + DAMPING * np.eye(3))
    first = back @ error[:3]
    free = np.eye(jacobian.shape[1]) - back @ move
    left = turn @ free
    square = left @ left.T + TURN_DAMPING * np.eye(3)
    return first + free @ (left.T @ np.linalg.solve(square, error[3:] - turn @ first))


def _matrix(place: Pose) -> F64:
    found = np.eye(4)
    found[:3, :3], found[:3, 3] = quat_to_matrix(place.quaternion_xyzw), place.position_m
    return found


def _pose(matrix: F64) -> Pose:
    return Pose(matrix[:3, 3].copy(), quat_from_matrix(matrix[:3, :3]))
