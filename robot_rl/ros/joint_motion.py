"""What is commanded of an arm's joints from one tick of the node `ik` to the next.

Pure state and functions, no rclpy: the node feeds measured joints, TCP targets and time, and
publishes what comes out.

The joints are moved on from where they were *commanded* last, because measured ones are noisy and
late; but a joint is never commanded further than `ahead_rad` from where it was measured. So an arm
that was blocked, or sagged, does not jump when it comes free.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from robot_rl.robots.driver import JointDriver
from robot_rl.robots.ik import InverseKinematics
from robot_rl.types import Pose

F64 = NDArray[np.float64]

REST_RAD_S = 1e-6
OLD_S = 0.1  # joints measured longer ago are not known


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
