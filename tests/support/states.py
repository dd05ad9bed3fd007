"""Robot states."""

from __future__ import annotations

import numpy as np

from robot_rl.geometry import pose
from robot_rl.types import RobotState

# --- calibration ----------------------------------------------------------------------------------


def state_at(stamp_s: float) -> RobotState:
    zero, joints = np.zeros(6), np.zeros(7)
    return RobotState(stamp_s, joints, joints, pose((0.4, 0.0, 0.3)), zero, zero, 0.0)
