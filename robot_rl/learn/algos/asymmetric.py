"""Asymmetric learning: critics see what the policy never gets; the rest is as in `actor_critic`.

Paper: Asymmetric Actor Critic (arXiv 1710.06542). In simulation more is known than a robot at work
will be told: h, the privileged entries of an observation (`Spec.privileged`), such as the poses of
objects that the policy has to find in pictures.

    critics        Q_i(s, h, a) of the state s and h, and of no picture
    a'             of the policy, which sees state and pictures; so a critic step encodes one
                   picture a camera, that of s', without gradient
    actor_loss     that of `actor_critic`, with a gradient that trains the encoder, too
    estimate_loss  L = estimate_weight mean_B (e(features) - h)^2,  h standardised, e a head that
                   stays with the learner: what the critics know is to be seen in the pictures

What the policy sees with is trained in the actor step; so is a gripper's critic, which drives
(`hil_serl`).

Deviation: the paper has no estimate_loss (what it is worth: docs/results.md). Metrics: those of
`actor_critic`, estimate/loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.actor_critic import ActorCritic
from robot_rl.learn.replay import Batch
from robot_rl.learn.transitions import Moment, Transitions
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import Spec
from robot_rl.types import Observation


class Asymmetric(ActorCritic):
    """An actor-critic with privileged critics."""

    sees_privileged = True
    learned_with_critics = ()

    def __init__(
        self, config: Any, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        self.privileged = ObservationNet.privileged(spec)
        super().__init__(config, spec, generator, device)
        scaling = self.privileged.init_observation(generator)
        self.scaling = {k: v.to(self.device) for k, v in scaling.items()}
        self.estimator = EnsembleMLP(
            1, (self.net.feature_size, *config.hidden, self.privileged.state_size), False
        )
        estimate = self.estimator.init(generator, last_scale=0.01).to(self.device)
        # what the policy's loss trains beside the policy
        self.seeing = {k: self.actor[k] for k in ("encoder", "gripper") if k in self.actor}
        self.slow.update({k: v.clone() for k, v in self.seeing.items()})
        self.seeing |= {"estimate": estimate} if config.estimate_weight and self.net.encoder else {}
        for tensor in self.seeing.values():
            tensor.requires_grad_()
        learned = {"policy": self.actor["policy"], "temperature": self.temperature, **self.seeing}
        rate = config.actor_learning_rate or config.learning_rate
        self.actor_optimizer = Adam(learned, rate)

    @property
    def critic_input(self) -> int:
        """As in `Agent`: state, privileged entries, action."""
        return self.net.state_size + self.privileged.state_size + self.net.judged_size

    @property
    def observation_keys(self) -> tuple[str, ...]:
        """As in `Algorithm`."""
        return (*super().observation_keys, *self.privileged.keys)

    @property
    def scaled_keys(self) -> tuple[str, ...]:
        """As in `Algorithm`."""
        return (*super().scaled_keys, *self.privileged.keys)

    def standardize(self, observation: Observation) -> None:
        """As in `Trained`; what is privileged, too."""
        super().standardize(observation)
        self._standardize(self.privileged.state(observation), self.scaling)

    def transitions(self, batch: Batch) -> Transitions:
        """As in `Agent`, with h in s and s'."""
        drawn = super().transitions(batch)
        return drawn._replace(
            now=drawn.now._replace(privileged=self._hidden(batch.observation)),
            then=drawn.then._replace(privileged=self._hidden(batch.next_observation)),
        )

    def moment(self, observation: Observation) -> Moment:
        """As in `Agent`, with h."""
        return super().moment(observation)._replace(privileged=self._hidden(observation))

    def _hidden(self, observation: Observation) -> Tensor:
        """What only critics see, scaled [B, P]."""
        return self.privileged.scaled(self.privileged.state(observation), self.scaling)

    def judged(self, moment: Moment, action: Tensor) -> Tensor:
        """As in `Agent`; of the features only the state, which comes first."""
        assert moment.privileged is not None
        state = moment.features[:, : self.net.state_size]
        return torch.cat((state, moment.privileged, self.net.judged(action, moment.base)), -1)

    def see(self, batch: Transitions) -> Transitions:
        """Critics see no pictures."""
        return batch

    def actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        """Do one gradient step of all that the policy's loss trains; return metrics."""
        net, now, then = self.net, batch.now, batch.then
        seen = net.features(now.features, now.images, self.actor.get("encoder"))
        if net.gripper is not None:
            with torch.no_grad():
                after = net.features(then.features, then.images, self.slow.get("encoder"))
            then = then._replace(features=after)
        metrics = super().actor_step(batch._replace(now=now._replace(features=seen), then=then))
        for name in self.seeing.keys() & self.slow.keys():
            self.slow[name].lerp_(self.seeing[name].detach(), self.config.tau)
        return metrics

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """As in `ActorCritic`, plus the loss of the estimate."""
        loss, log_prob, metrics = super().actor_loss(batch)
        hidden = batch.now.privileged
        if "estimate" in self.seeing and hidden is not None:
            estimate = self.estimator(batch.now.features, self.seeing["estimate"])[0]
            estimate_loss = (estimate - hidden).square().mean()
            loss = loss + self.config.estimate_weight * estimate_loss
            metrics |= {"estimate/loss": estimate_loss}
        return loss, log_prob, metrics

    @property
    def _followed(self) -> tuple[str, ...]:
        return tuple(k for k in ("policy", *self.seeing) if k in self.slow)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = super()._tensors() | {f"privileged/{k}": v for k, v in self.scaling.items()}
        return tensors | {k: v for k, v in self.seeing.items() if k == "estimate"}
