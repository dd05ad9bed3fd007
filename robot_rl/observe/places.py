"""Where a picture was taken from, and the goal: plain data, for what the page draws at the tip.

Keys follow the place of the large picture.

A place is frame, position_m, rotation (three rows) and fovy_deg. frame: "base", or "tool" where the
camera moves with the TCP, whose frame it then is. The columns of the rotation are right, up and
back of the picture in that frame. fovy_deg: vertical angle of view; 0 where a point's place in the
picture is not known.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import SpecError
from robot_rl.geometry import quat_to_matrix
from robot_rl.observe.cameras import CameraConfig
from robot_rl.ports import Goal, KnowsGoal
from robot_rl.types import Pose, RobotState

log = logging.getLogger(__name__)
Place = dict[str, Any]
F64 = NDArray[np.float64]
TO_PICTURE = np.diag((1.0, -1.0, -1.0))  # an optical frame has y down and z ahead
SAME_SHAPE = 0.01  # a picture that is stretched by less is drawn on


def place(frame: str, position_m: F64, rotation: F64, fovy_deg: float) -> Place:
    """A place as plain data. rotation: [3, 3]."""
    return {
        "frame": frame,
        "position_m": [round(float(v), 5) for v in position_m],
        "rotation": [[round(float(v), 5) for v in row] for row in rotation],
        "fovy_deg": round(fovy_deg, 3),
    }


def goal_words(goal: Goal) -> dict[str, Any]:
    """A goal as plain data, all in base.

    Yaw is the heading of the x axis about the vertical. axis: the direction in which heights above
    the goal are told. Raises `SpecError` for numbers that are not finite.
    """
    sizes = (*goal.half_m, goal.tolerance_m or 0.0)
    if not np.isfinite((*_numbers(goal.in_base), *_numbers(goal.tip_in_base), *sizes)).all():
        raise SpecError(
            "goal() of the task is not finite",
            expected="where the tip has to get and where it is, in base; or None",
            got=str(goal),
            fix="look for a division by zero, or an object that is not there",
        )

    def at(where: Pose) -> tuple[list[float], float]:
        x = quat_to_matrix(where.quaternion_xyzw)[:, 0]
        return [round(float(v), 5) for v in where.position_m], round(math.atan2(x[1], x[0]), 4)

    (position_m, yaw_rad), (tip_m, tip_yaw_rad) = at(goal.in_base), at(goal.tip_in_base)
    axis = quat_to_matrix(goal.in_base.quaternion_xyzw)[:, 2]
    return {
        "position_m": position_m,
        "yaw_rad": yaw_rad,
        "axis": [round(float(v), 4) for v in axis],
        "tip_m": tip_m,
        "tip_yaw_rad": tip_yaw_rad,
        "half_m": [float(half) for half in goal.half_m],
        "tolerance_m": None if goal.tolerance_m is None else float(goal.tolerance_m),
    }


def _numbers(where: Pose) -> F64:
    return np.concatenate((where.position_m, where.quaternion_xyzw))


class Goals:
    """What a task says of its goal, as plain data.

    A task of somebody's own whose `goal` fails is not asked again: whoever asks here also answers
    the buttons that stop the robot.
    """

    def __init__(self, task: Any) -> None:
        self._task = task if isinstance(task, KnowsGoal) else None

    def words(self, state: RobotState) -> dict[str, Any] | None:
        """See `goal_words`; None where there is no goal, or nobody knows it."""
        if self._task is None:
            return None
        try:
            goal = self._task.goal(state)
            return None if goal is None else goal_words(goal)
        except Exception:
            log.exception("goal() of the task fails: the page shows none until a restart")
            self._task = None
            return None


def place_of(camera: CameraConfig, size: tuple[int, int]) -> Place | None:
    """The measured place of a camera whose pictures are shown at `size`, (height, width).

    None where nobody has measured it.
    """
    where = camera.calibrated_pose
    if where is None:
        return None
    stretch = (size[1] / size[0]) / (camera.width / camera.height)
    whole = camera.crop is None and abs(stretch - 1.0) < SAME_SHAPE
    fovy_rad = camera.fovy_rad if whole else 0.0
    frame = "tool" if camera.mount == "hand" else "base"
    rotation = quat_to_matrix(where.quaternion_xyzw) @ TO_PICTURE
    return place(frame, where.position_m, rotation, math.degrees(fovy_rad))
