"""Reward from a success classifier, which sees the pictures of this moment, no ground truth.

    p_t = sigmoid(logit(images_t))
    success  once p >= threshold in k of the last n ticks, this one included, and the state is where
             it has to be (HIL-SERL ends no episode without such a test: the gripper closed, say)

It runs in the control loop (tier A of the design: some milliseconds), so it may end the episode.
`robot-rl reward train` makes the model folder.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.nets.picture import PictureNet
from robot_rl.ports import RewardResult
from robot_rl.reward.model import ScoreModel
from robot_rl.reward.predicate import PredicateReward
from robot_rl.spec import Spec
from robot_rl.types import Observation, RobotState


@dataclass(frozen=True)
class SuccessModel(ScoreModel):
    """A trained classifier. threshold: of the logit; hold_steps: ticks in a row at or above it."""

    kind = "success"
    title = "success classifier"
    net_type = PictureNet

    threshold: float = 0.0
    hold_steps: int = 1

    @torch.no_grad()
    def logit(self, observation: Observation) -> float:
        """How sure the model is of success in one observation, as a logit."""
        images = {k: observation[k][None] for k in self.net.keys}
        return float(self.net(images, self.tensors))


@dataclass(frozen=True, slots=True)
class Where:
    """Bounds of numbers of the state: (index in the state, low, high)."""

    bounds: tuple[tuple[int, float, float], ...] = ()

    @classmethod
    def of(cls, named: Mapping[str, Sequence[float]], spec: Spec) -> Where:
        """From names of `Spec.state_layout`: "gripper_width" or, of several numbers, "tcp.2".

        Raises:
            ConfigError: no such part, no index into a part of several numbers, or no range.
        """
        slices, found = spec.state_slices, []
        for name, limits in named.items():
            part, _, index = name.rpartition(".") if name not in slices else (name, "", "0")
            at = slices.get(part)
            size = at.stop - at.start if at else 0
            which = int(index) if index.isdigit() and (part != name or size == 1) else -1
            if at is None or not 0 <= which < size:
                raise ConfigError(
                    f"the state has no single number '{name}'",
                    expected=", ".join(
                        k if s.stop - s.start == 1 else f"{k}.0 to {k}.{s.stop - s.start - 1}"
                        for k, s in slices.items()
                    ),
                    got=f"reward.where={{{name}: ...}}",
                    fix=did_you_mean(part, list(slices)),
                )
            if len(limits) != 2 or not limits[0] <= limits[1]:
                raise ConfigError(
                    f"'{name}' needs a lowest and a highest value",
                    expected="[low, high]",
                    got=str(limits),
                    fix=f"reward.where={{{name}: [0.0, 0.02]}}, in the units of the state",
                )
            found.append((at.start + which, float(limits[0]), float(limits[1])))
        return cls(tuple(found))

    def holds(self, observation: Observation) -> bool:
        """Whether the state lies in all bounds."""
        return all(low <= observation["state"][i] <= high for i, low, high in self.bounds)


class ClassifierReward:
    """`RewardSource` on a model. The task's own predicate judges evaluation where it can tell.

    hold_steps: n, 0 = as the model was trained; agree: k, 0 = all n; where: see the module.

    Raises:
        ConfigError: k is more than n, and there would never be success.
    """

    def __init__(
        self,
        model: SuccessModel,
        truth: PredicateReward,
        *,
        hold_steps: int = 0,
        agree: int = 0,
        where: Where | None = None,
    ) -> None:
        self._model, self._truth, self._where = model, truth, where or Where()
        hold_steps = hold_steps or model.hold_steps
        if agree > hold_steps:
            raise ConfigError(
                "so many ticks can never agree",
                expected=f"reward.agree at most {hold_steps}, the ticks that count",
                got=f"reward.agree={agree}",
                fix=f"reward.hold_steps={agree} (0 = as the model was trained), or a lower agree",
            )
        self._seen: deque[bool] = deque(maxlen=hold_steps)
        self._agree = agree or hold_steps
        self._evaluates = False

    def begin_episode(self, purpose: str) -> None:
        """See `ports.RewardSource`."""
        self._seen.clear()
        self._evaluates = purpose == "eval"
        self._truth.begin_episode(purpose)

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """Reward 1.0 and terminated at success as the model sees it, 0.0 before."""
        truth = self._truth.score(state, observation)
        if self._evaluates and self._truth.knows:
            return truth
        logit = self._model.logit(observation)
        self._seen.append(logit >= self._model.threshold)
        now = self._seen[-1] and self._where.holds(observation)
        success = now and sum(self._seen) >= self._agree
        score = 1.0 / (1.0 + math.exp(-max(min(logit, 60.0), -60.0)))
        return RewardResult(
            reward=float(success),
            success=success,
            terminated=success,
            score=score,
            source="classifier",
            author=self._model.author,
            truth=truth.success if self._truth.knows else None,
            progress=truth.progress,
        )
