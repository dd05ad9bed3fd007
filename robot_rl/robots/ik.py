"""The port of inverse kinematics: from targets to joint targets, one small step at a time.

Implemented on MuJoCo (`robot_rl_sim.inverse_kinematics`); the node `ik` moves an arm with it. Where
an arm can be at all is another question, see `robot_rl.robots.chain`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robot_rl.types import Pose

TARGET_FILTER_S = 0.05
"""Time constant of the way to a target: 10 Hz targets become one motion."""


@dataclass(frozen=True, slots=True)
class JointStep:
    """Where the joints are commanded next on their way to a TCP target.

    position_rad, velocity_rad_s: float64 [J], next position and the velocity that leads there.
    left_m, left_rad: from that TCP to the target. held_by: why the TCP does not come nearer
    (a joint's limit, the arm itself, a singular pose, its reach); "" while it does or is there.
    """

    position_rad: NDArray[np.float64]
    velocity_rad_s: NDArray[np.float64]
    left_m: float
    left_rad: float
    held_by: str = ""


@runtime_checkable
class InverseKinematics(Protocol):
    """From TCP targets to joint targets, one small step at a time; it keeps no state."""

    def forward(
        self, position_rad: NDArray[np.float64], velocity_rad_s: NDArray[np.float64]
    ) -> tuple[Pose, NDArray[np.float64]]:
        """Pose of the TCP in base, and its twist [6] in base (m/s, then rad/s)."""
        ...

    def step(
        self,
        position_rad: NDArray[np.float64],
        velocity_rad_s: NDArray[np.float64],
        target: Pose | NDArray[np.float64],
        dt_s: float,
    ) -> JointStep:
        """One step of `dt_s` from the joints commanded last [J] towards the target.

        target: of the TCP in base, or of the joints, float64 [J] rad.

        Joint ranges, velocities and accelerations are kept, and the arm's distance to itself.
        """
        ...

    def brake(
        self,
        position_rad: NDArray[np.float64],
        velocity_rad_s: NDArray[np.float64],
        dt_s: float,
    ) -> JointStep:
        """One step of `dt_s` towards rest, as fast as the accelerations allow."""
        ...
