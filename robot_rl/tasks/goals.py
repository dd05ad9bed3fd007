"""Where the tip has to get, for a person who drives: the operator's page draws it.

No policy sees it. A task says it with the method `goal`, which may be left out.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import SpecError
from robot_rl.geometry import quat_to_matrix
from robot_rl.types import Pose, RobotState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Goal:
    """Where the tip has to get next: the point of the tool, or of what it holds, that matters.

    in_base: its z axis points back out of the goal, and heights are told along it. half_m: half
    sizes of its outline along x and y, () = it has none. tolerance_m: how far beside the goal the
    tip may be; None = nobody knows.
    """

    in_base: Pose
    tip_in_base: Pose
    half_m: tuple[float, ...] = ()
    tolerance_m: float | None = None


@runtime_checkable
class KnowsGoal(Protocol):
    """A task that can tell a person who drives where the tip has to get."""

    def goal(self, state: RobotState) -> Goal | None:
        """The goal of this moment; None where there is none, or the state does not tell it."""
        ...


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


def _numbers(where: Pose) -> NDArray[np.float64]:
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
