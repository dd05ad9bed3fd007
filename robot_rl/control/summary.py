"""What one episode has come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robot_rl.types import Driver, Ending, EpisodeId


@dataclass(slots=True)
class EpisodeSummary:
    """The result of one episode.

    period_ms: measured control periods on the run's clock; wall_ms: the same in wall time (equal on
    a robot; shorter in an accelerated simulation); jerk: root mean square of a_t - 2 a_{t-1} +
    a_{t-2} over the motion in executed actions (`jerk_of`).
    """

    id: EpisodeId
    purpose: str
    begun: bool = True  # False: nobody began to drive, and nothing was recorded
    steps: int = 0
    success: bool = False
    unjudged: str = ""  # what the task's rule or the reward raised; the episode is aborted
    true_success: bool | None = None  # what the task's predicate says where a model decides
    success_known: bool = True  # False: a Gymnasium environment that does not say what success is
    ending: Ending = Ending.ABORTED
    reason: str = ""
    total_reward: float = 0.0
    duration_s: float = 0.0
    takeovers: int = 0
    driver_steps: dict[str, int] = field(default_factory=dict)
    outcome_steps: dict[str, int] = field(default_factory=dict)
    period_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    jerk: float | None = None

    @property
    def human_steps(self) -> int:
        """Steps a person drove."""
        return sum(n for d, n in self.driver_steps.items() if Driver(d).is_human)


def jerk_of(actions: Sequence[NDArray[np.float32]], motion: int) -> float | None:
    """How rough executed actions [A] of one episode are; None with fewer than 3 of them.

    motion: how many of an action's numbers move the arm; the gripper's command comes after them.
    """
    if len(actions) < 3:
        return None
    turns = np.diff(np.stack(actions)[:, :motion], 2, axis=0)
    return float(np.sqrt(np.square(turns).mean()))
