"""What the scripted experts of the tasks share: a hand with a person's imperfections.

The experts solve a task from `RobotState`, through the same actions as a policy, and stand in for a
person: with a `skill` below 1 the hand aims a millimetre or two off, shakes, and is slower.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_rl.spec import ActionSpec
from robot_rl.types import Pose

GAIN, LOOK_AHEAD_S = 0.8, 0.022
"""Deadbeat at 10 Hz for the arm under its impedance law: apparent mass 7 kg, 2000 N/m, damping
ratio 0.4, so w T = 1.7. Each step asks for `GAIN` of the way left after `LOOK_AHEAD_S` of coasting;
a gain of 1 with 0.06 s rings, with 0.1 s the arm oscillates without end."""


PARALLAX_M = np.array((0.002, 0.0))
"""Misjudgement that stays the same: whoever looks from one side always errs to that side."""


class Hand:
    """The imperfections of whoever drives: misjudgement, tremor, slowness.

    At skill 0 the hand always aims 2 mm to one side, plus a random offset of about 2 mm that is
    drawn for each episode; the tremor is 0.5 action units, and the speed drops to half at worst.
    Cloning averages the random offset out, but learns the constant one.
    """

    def __init__(self, skill: float) -> None:
        if not 0.0 <= skill <= 1.0:
            raise ValueError(f"skill must lie in [0, 1], got {skill}")
        self._clumsy = 1.0 - skill
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """Draw this episode's misjudgement."""
        self._rng = rng
        self.offset_m = (PARALLAX_M + rng.normal(0.0, 0.002, 2)) * self._clumsy
        self.speed = 1.0 - 0.5 * self._clumsy * rng.random()

    def move(
        self, action: ActionSpec, tcp: Pose, target: Pose, gripper: float = 0.0
    ) -> NDArray[np.float32]:
        """Action [A] towards `target`, as well as this hand can."""
        a = action.action(target, tcp, gripper)
        a[:6] = np.clip(a[:6] * self.speed * GAIN, -1.0, 1.0)
        if self._clumsy:
            a[:6] += self._rng.normal(0.0, 0.5 * self._clumsy, 6)
        return np.clip(a, -1.0, 1.0).astype(np.float32)


class Ticks:
    """Counts control periods, however often a device asks its expert (50 Hz over ROS 2)."""

    def __init__(self, control_hz: float) -> None:
        self._least_s, self._last_s = 0.9 / control_hz, -np.inf

    def new(self, stamp_s: float) -> bool:
        """True when a control period has passed since this was last true (or the clock jumped)."""
        if abs(stamp_s - self._last_s) < self._least_s:
            return False
        self._last_s = stamp_s
        return True


def level(quaternion_xyzw: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest rotation with the fingers straight down: keep only the yaw."""
    x, y, _, _ = quaternion_xyzw  # tool down, turned by yaw: (cos, sin, 0, 0) of half the yaw
    q = np.array((x, y, 0.0, 0.0))
    return q / float(np.linalg.norm(q))
