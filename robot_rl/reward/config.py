"""The sources of reward that `reward=...` names. Importing this imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from robot_rl.config import register
from robot_rl.ports import RewardSource, Task
from robot_rl.reward.predicate import PredicateReward


class RewardConfig(Protocol):
    """A registered config that opens its source."""

    def open(self, task: Task) -> RewardSource:
        """A source for one actor."""
        ...


@register("reward", "predicate")
@dataclass(frozen=True, kw_only=True)
class PredicateRewardConfig:
    """The task's own rule on the measured state."""

    hold_steps: int = 1  # ticks in a row; more shows a success classifier what success looks like

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.hold_steps < 1:
            raise ValueError(f"hold_steps must be at least 1, got {self.hold_steps}")

    def open(self, task: Task) -> PredicateReward:
        """See `RewardConfig`."""
        return PredicateReward(task, self.hold_steps)


@register("reward", "classifier")
@dataclass(frozen=True, kw_only=True)
class ClassifierRewardConfig:
    """A model of `robot-rl reward train`; evaluation is by the task's own rule."""

    model: str = ""  # its folder; there is no default
    hold_steps: int = 0  # ticks in a row; 0 = as it was trained

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.hold_steps < 0:
            raise ValueError(f"hold_steps must not be negative, got {self.hold_steps}")

    def open(self, task: Task) -> RewardSource:
        """See `RewardConfig`.

        Raises:
            CheckpointError: `model` is no model.
            ConfigError: it sees other cameras than the task has.
        """
        from robot_rl.reward.classifier import ClassifierReward, SuccessModel

        model = SuccessModel.load(Path(self.model or "(no reward.model given)"), task.spec)
        return ClassifierReward(model, PredicateReward(task), self.hold_steps)
