"""The way back: leads the arm along the path it came, at half speed, through arbiter and gate.

A person who sees the policy stray holds `rewind` until the arm is back on known ground, then takes
over and corrects (RaC, arXiv 2509.07953, section 3: recover, then correct). Deviation from the
paper: there the person drives the way back by hand, which works here, too (`rewind` and `drive`
held together); the recorded path needs no skill. The path is of measured tool poses; the gripper
stays as it is, because opening it on the way back would drop what it holds.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import rotation_error
from robot_rl.spec import ActionSpec
from robot_rl.types import Pose, RobotState

SPEED = 0.5  # share of the greatest speed that an action can ask for
SPACING_M, SPACING_RAD = 0.002, 0.02  # of the remembered poses
REST_M_S = 0.02
CONTACT_N = 10.0  # this much above the least force since the way back began is a contact
KEPT = 5_000  # poses: 10 m of path


class Rewind:
    """Remembers one episode's path and leads back along it. Feed it one state per poll.

    Attributes:
        problem: why the way back has ended; "" while it goes on, or nobody asks for it.
    """

    def __init__(self, action: ActionSpec) -> None:
        self._action = action
        self.begin_episode()

    def begin_episode(self) -> None:
        """Forget the last path."""
        self._path: deque[Pose] = deque(maxlen=KEPT)
        self._least_n, self.problem = np.inf, ""

    def follow(self, state: RobotState) -> None:
        """Remember where the arm is; call it whenever nobody asks for the way back."""
        self._least_n, self.problem = np.inf, ""
        here = state.tcp_in_base
        if not self._path or not _near(here, self._path[-1], SPACING_M, SPACING_RAD):
            self._path.append(here)

    def back(self, state: RobotState) -> NDArray[np.float32]:
        """Action [A] towards where the arm came from; zero at the start, or once it met something.

        After a contact the arm stays where it is until `follow` is called: the person has let go.
        """
        force_n = float(np.linalg.norm(state.wrench_in_tcp[:3]))
        self._least_n = min(self._least_n, force_n)
        if force_n > self._least_n + CONTACT_N:
            self.problem = f"the way back met something ({force_n:.0f} N): let go, look, drive"
        still = np.zeros(self._action.size, np.float32)
        if self.problem or not self._path:
            return still
        here, spec = state.tcp_in_base, self._action
        reach = SPEED * spec.translation_m, SPEED * spec.rotation_rad
        while len(self._path) > 1 and _near(here, self._path[-1], *reach):
            self._path.pop()
        at_rest = float(np.linalg.norm(state.tcp_twist_in_base[:3])) < REST_M_S
        at_start = len(self._path) == 1 and _near(here, self._path[0], SPACING_M, SPACING_RAD)
        if at_start and at_rest:
            self.problem = "back at the start of the episode"
            return still
        action = spec.action(self._path[-1], here)
        return action * np.float32(min(1.0, SPEED / max(float(np.abs(action).max()), 1e-6)))


def _near(a: Pose, b: Pose, within_m: float, within_rad: float) -> bool:
    """Whether two poses are closer than `within_m` in position and `within_rad` in rotation."""
    off_m = float(np.linalg.norm(a.position_m - b.position_m))
    return off_m < within_m and float(np.linalg.norm(rotation_error(a, b))) < within_rad
