"""Sparse reward from the task's own predicate on ground truth: 1 at success, 0 elsewhere."""

from __future__ import annotations

from dataclasses import replace

from robot_rl.ports import RewardResult, Task
from robot_rl.store.labels import PREDICATE
from robot_rl.types import Observation, RobotState


class PredicateReward:
    """`RewardSource` that asks `task.success`; success must be seen `hold_steps` ticks in a row.

    tells: beside the reward, say of each moment whether it shows success and how far the task is;
    reward models learn from moments, which may show success where the reward is still 0.
    """

    knows = True  # whether the task could tell from the last state

    def __init__(self, task: Task, hold_steps: int = 1, *, tells: bool = False) -> None:
        self._task, self._hold_steps, self._tells = task, hold_steps, tells or hold_steps > 1
        self._seen, self._way_m = 0, 0.0

    def begin_episode(self, purpose: str) -> None:
        """Forget how long success has been held."""
        self._seen, self._way_m = 0, 0.0

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """Reward 1.0 and terminated at success; 0.0 and terminated at failure."""
        shown = self._task.success(state)
        self.knows = shown is not None
        self._seen = self._seen + 1 if shown else 0
        success = self._seen >= self._hold_steps
        failed = not success and self._task.failure(state)
        result = RewardResult(float(success), success, success or failed)
        if not self._tells or not self.knows:
            return result
        left_m = self._task.progress(state).remaining_m
        self._way_m = self._way_m or left_m  # what was left after the first step
        progress = min(max(1.0 - left_m / max(self._way_m, 1e-6), 0.0), 1.0)
        now = float(self._seen > 0)
        return replace(
            result, score=now, source=PREDICATE, author=PREDICATE, progress=1.0 if now else progress
        )
