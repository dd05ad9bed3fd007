"""What is commanded of an arm's joints from one tick of the node `ik` to the next.

Pure state and functions, no rclpy: the node feeds measured joints, TCP targets and time, and
publishes what comes out.

The joints are moved on from where they were *commanded* last, because measured ones are noisy and
late; but a joint is never commanded further than `ahead_rad` from where it was measured. So an arm
that was blocked, or sagged, does not jump when it comes free.

That makes a wrong reading a wrong command. So readings that no joint can have reached are not taken
for the arm's (`Readings`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from robot_rl.robots import Robot
from robot_rl.robots.driver import JointDriver
from robot_rl.robots.ik import InverseKinematics
from robot_rl.types import Pose

F64 = NDArray[np.float64]

REST_RAD_S = 1e-6
OLD_S = 0.1  # joints measured longer ago are not known
JUMP_RAD = 0.05  # between two readings, beside what the joint's speed explains: noise, late stamps
STEADY_S = 1.0  # wall; joint_state_publisher, the usual stranger, publishes ten times in it
TURN_RAD = 2.0 * math.pi
LOOKING = f"looking whether the joints go on without a jump for {STEADY_S:.0f} s"


class Doing(Enum):
    """What the joints do now."""

    OFF = "off"  # nobody may move the arm: nothing is commanded
    REST = "rest"  # commanded to stay
    BRAKE = "brake"
    FOLLOW = "follow"


@dataclass(frozen=True, slots=True)
class Measured:
    """Joints as measured: position and velocity, float64 [J], and their age (s)."""

    position_rad: F64
    velocity_rad_s: F64
    age_s: float


@dataclass(frozen=True, slots=True)
class Commanded:
    """What comes out of a tick. position_rad, velocity_rad_s: float64 [J]; None = command nothing.

    left_m, left_rad: from the commanded TCP to the target; held_by: as in `JointStep`.
    """

    doing: Doing
    position_rad: F64 | None = None
    velocity_rad_s: F64 | None = None
    left_m: float = 0.0
    left_rad: float = 0.0
    held_by: str = ""


OFF = Commanded(Doing.OFF)


class Readings:
    """Joints as measured, and whether they are the arm's.

    A joint goes no further between two readings than its velocity takes it. A reading that lies
    elsewhere is another publisher's (joint_state_publisher says zero), or the driver has lost its
    arm. Then the joints count as not known until there was no such reading for `STEADY_S`. Once
    they were known, only readings near the last good one are taken, so that a stranger who goes on
    alone is not believed either.

    Drivers may tell a joint that can go round within one turn: at its end the reading jumps by a
    whole turn, and the arm has not moved. Joint velocities are the same in every turn, so there the
    joint is counted on. A joint position is not: a controller that does not know that the joint can
    go round would take it all the way back. Whether it does, nobody tells us, and near the end of
    the turn our command and its own reading are in two turns whatever is sent. So a driver of
    positions is sent nothing there.

    Args:
        turns: whether a joint may be counted on into the next turn: only velocities are commanded.
    """

    def __init__(self, robot: Robot, *, turns: bool) -> None:
        self._names, self._turns = robot.joint_names, turns
        self._speed_rad_s = np.array([joint.velocity_rad_s for joint in robot.joints])
        span_rad = np.subtract(robot.joint_max_rad, robot.joint_min_rad)
        self._round = span_rad > TURN_RAD - 0.01  # joints that can go round; some say 3.14 for pi
        self._last_rad: F64 | None = None
        self._stamp_s = self._doubted_s = -math.inf
        self._firm = False  # readings elsewhere are refused
        self.why = LOOKING  # the joints are not known; "" when they are
        self.turned = False  # that is because one is told in another turn now

    def take(self, position_rad: F64, stamp_s: float, wall_s: float) -> F64 | None:
        """The reading, counted on from the one before; None = it is not the arm's."""
        if self._last_rad is None:
            self._last_rad, self._doubted_s = position_rad, wall_s
        before_rad = self._last_rad
        allowed_rad = JUMP_RAD + self._speed_rad_s * min(max(stamp_s - self._stamp_s, 0.0), OLD_S)
        here_rad = self.in_turn(position_rad)
        far_rad = np.abs(here_rad - before_rad) - allowed_rad
        if (far_rad > 0.0).any():
            i = int(np.argmax(far_rad))
            fix = (
                f"expected at most {allowed_rad[i]:.2f} rad: end whoever else publishes the joints "
                "(joint_state_publisher?); if the arm is there now, switch its controller off and "
                "on, or start again"
            )
            self._doubt(i, position_rad, wall_s, fix)
            if self._firm:
                return None
            here_rad = position_rad
        elif not self._turns and (here_rad != position_rad).any():
            i = int(np.argmax(here_rad != position_rad))
            fix = (
                "a whole turn: a position controller might take it all the way round. Move this "
                "joint away from there by other means, or command velocities"
            )
            self._doubt(i, position_rad, wall_s, fix)
            self.turned, here_rad = True, position_rad
        elif wall_s - self._doubted_s >= STEADY_S:
            self._firm, self.why, self.turned = True, "", False
        self._last_rad, self._stamp_s = here_rad, stamp_s
        return here_rad

    def in_turn(self, position_rad: F64) -> F64:
        """Joints in the turn of the newest reading: the short way from there, if one can go round.

        A joint target is one step of a policy away, or where the arm stood; never half a turn.
        """
        if self._last_rad is None:
            return position_rad
        turns = np.round((position_rad - self._last_rad) / TURN_RAD)
        return position_rad - TURN_RAD * np.where(self._round, turns, 0.0)

    def forget(self) -> None:
        """The arm may be elsewhere by now: others may move it."""
        self._firm = False

    def _doubt(self, i: int, position_rad: F64, wall_s: float, fix: str) -> None:
        """From now on the joints are not known, because of what the i-th has done."""
        assert self._last_rad is not None
        self._doubted_s = wall_s
        if self.why in ("", LOOKING):  # the first reason is the one to tell
            way = f"from {self._last_rad[i]:.2f} to {position_rad[i]:.2f} rad"
            self.why = f"{self._names[i]} jumped {way}, {fix}"


class JointMotion:
    """Joints on their way to targets of the TCP or of themselves, at rest without one.

    Args:
        speed_rad_s: float64 [J], the most that may be commanded as a velocity.
    """

    def __init__(
        self, kinematics: InverseKinematics, driver: JointDriver, speed_rad_s: F64
    ) -> None:
        self._kinematics, self._driver = kinematics, driver
        self._speed_rad_s = speed_rad_s
        self._position_rad: F64 | None = None  # commanded last
        self._velocity_rad_s = np.zeros_like(speed_rad_s)

    def forget(self) -> None:
        """Command nothing, not even to stay; go on from where the arm is."""
        self._position_rad = None
        self._velocity_rad_s = np.zeros_like(self._velocity_rad_s)

    def tick(
        self, measured: Measured | None, target: Pose | F64 | None, dt_s: float, *, off: bool
    ) -> Commanded:
        """One step of `dt_s`.

        Args:
            target: of the TCP in base, or of the joints [J] rad; None = there is none that is
                fresh: come to rest.
            off: nobody may move the arm, or somebody else does; after that it goes on from where
                the arm is, not from where it was commanded.
        """
        known = measured is not None and measured.age_s <= OLD_S
        moves = float(np.abs(self._velocity_rad_s).max()) > REST_RAD_S
        if self._position_rad is None and (off or not known):
            return OFF
        if off and not moves:
            self._position_rad = None
            return OFF
        if self._position_rad is None:
            assert measured is not None
            self._position_rad = measured.position_rad.copy()
        if off or not known or target is None:
            return self._brake(measured if known else None, dt_s)
        assert measured is not None
        start_rad = self._near(measured)
        step = self._kinematics.step(start_rad, self._velocity_rad_s, target, dt_s)
        self._position_rad, self._velocity_rad_s = step.position_rad, step.velocity_rad_s
        return Commanded(
            Doing.FOLLOW,
            step.position_rad,
            self._corrected(measured),
            step.left_m,
            step.left_rad,
            step.held_by,
        )

    def _brake(self, measured: Measured | None, dt_s: float) -> Commanded:
        """Come to rest, and stay there."""
        assert self._position_rad is not None
        if float(np.abs(self._velocity_rad_s).max()) <= REST_RAD_S:
            return Commanded(Doing.REST, self._position_rad, np.zeros_like(self._velocity_rad_s))
        start_rad = self._position_rad if measured is None else self._near(measured)
        step = self._kinematics.brake(start_rad, self._velocity_rad_s, dt_s)
        self._position_rad, self._velocity_rad_s = step.position_rad, step.velocity_rad_s
        return Commanded(Doing.BRAKE, step.position_rad, step.velocity_rad_s)

    def _near(self, measured: Measured) -> F64:
        """The joints commanded last, no further from the measured ones than allowed."""
        assert self._position_rad is not None
        ahead, here = self._driver.ahead_rad, measured.position_rad
        return np.clip(self._position_rad, here - ahead, here + ahead)

    def _corrected(self, measured: Measured) -> F64:
        """The velocity, corrected by what the arm was left behind: velocities alone drift."""
        assert self._position_rad is not None
        behind = self._position_rad - measured.position_rad
        wanted = self._velocity_rad_s + self._driver.gain_1_s * behind
        return np.clip(wanted, -self._speed_rad_s, self._speed_rad_s)
