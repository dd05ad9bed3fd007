"""Reward from a success classifier: the pictures of this moment, no ground truth.

    p_t = sigmoid(logit(images_t));  success once p >= threshold for `hold_steps` ticks in a row

It runs in the control loop (tier A of the design: some milliseconds), so it may end the episode.
`robot-rl reward train` makes the model folder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from robot_rl.ports import RewardResult
from robot_rl.reward.model import PictureModel
from robot_rl.reward.predicate import PredicateReward
from robot_rl.types import Observation, RobotState


@dataclass(frozen=True)
class SuccessModel(PictureModel):
    """A trained classifier. threshold: of the logit; hold_steps: ticks in a row at or above it."""

    kind = "success"
    title = "success classifier"

    threshold: float = 0.0
    hold_steps: int = 1

    def own_facts(self) -> dict[str, Any]:
        """See `PictureModel`."""
        return {"threshold": self.threshold, "hold_steps": self.hold_steps}

    @classmethod
    def own_fields(cls, facts: Mapping[str, Any]) -> dict[str, Any]:
        """See `PictureModel`."""
        threshold, hold_steps = float(facts["threshold"]), int(facts["hold_steps"])
        return {"threshold": threshold, "hold_steps": hold_steps}

    @torch.no_grad()
    def logit(self, observation: Observation) -> float:
        """Of one observation."""
        images = {k: observation[k][None] for k in self.net.keys}
        return float(self.net(images, self.tensors))


class ClassifierReward:
    """`RewardSource` on a model. Evaluation episodes are judged by the task's own predicate."""

    def __init__(self, model: SuccessModel, truth: PredicateReward, hold_steps: int = 0) -> None:
        self._model, self._truth = model, truth
        self._hold_steps, self._seen = hold_steps or model.hold_steps, 0
        self._evaluates = False

    def begin_episode(self, purpose: str) -> None:
        """See `ports.RewardSource`."""
        self._seen, self._evaluates = 0, purpose == "eval"
        self._truth.begin_episode(purpose)

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """Reward 1.0 and terminated at success as the model sees it, 0.0 before."""
        truth = self._truth.score(state, observation)
        if self._evaluates:
            return truth
        logit = self._model.logit(observation)
        self._seen = self._seen + 1 if logit >= self._model.threshold else 0
        success = self._seen >= self._hold_steps
        score = 1.0 / (1.0 + math.exp(-max(min(logit, 60.0), -60.0)))
        return RewardResult(
            reward=float(success),
            success=success,
            terminated=success,
            score=score,
            source="classifier",
            author=self._model.author,
            truth=bool(truth.success),
            progress=truth.progress,
        )
