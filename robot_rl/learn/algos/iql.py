"""IQL: learns from recorded data without ever asking for the value of an action nobody took.

Paper: IQL (arXiv 2110.06169). What is not said here is as in `hil_serl`; V is one more network.

    value_loss    u = min_i Q'_i(s, a) - V(s),   L = mean_B | tau - 1[u < 0] | u^2     (expectile)
    target        y = r + gamma^n m V(s')
    actor_loss    L = -mean_B min(exp(beta u), 100) log pi(a|s)      (advantage-weighted cloning)

Deviations: the state-independent standard deviation of the paper is a network output here. Metrics:
critic/loss, critic/q_mean, critic/target_mean, value/loss, value/mean, actor/loss, actor/weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.hil_serl import HilSerl, HilSerlConfig
from robot_rl.learn.transitions import Moment, Transitions
from robot_rl.nets import heads
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.spec import Spec

MAX_WEIGHT = 100.0  # of one action in the actor's loss, as in the paper


@register("algo", "iql")
@dataclass(frozen=True, kw_only=True)
class IqlConfig(HilSerlConfig):
    """The paper's numbers."""

    expectile: float = 0.7  # 0.5 = mean of the data's policy; 0.9 where the data is poor
    inverse_temperature: float = 3.0  # beta: 0 = cloning

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if not 0.5 <= self.expectile < 1.0 or self.inverse_temperature < 0.0:
            raise ValueError("expectile must lie in [0.5, 1), inverse_temperature be >= 0")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Iql:
        """A fresh learner."""
        return Iql.init(self, spec, seed, device)


class Iql(HilSerl):
    """Encoder, gripper and data as in `HilSerl`."""

    def __init__(
        self, config: IqlConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        sizes = (self.net.feature_size, *config.hidden, 1)
        self.value_net = EnsembleMLP(1, sizes, self.critic_net.bf16)
        value = self.value_net.init(generator, last_scale=0.01)
        self.value = value.to(self.device).requires_grad_()
        self.value_optimizer = Adam({"value": self.value}, config.learning_rate)

    def target(self, batch: Transitions) -> Tensor:
        """y [B], from V in s'."""
        value = self._v(batch.then.features)
        return self.possible(batch, batch.reward + batch.discount * batch.mask * value)

    def value_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Expectile regression of V towards the slow critics; trains V alone."""
        value = self._v(batch.now.features.detach())
        error = self._judged(batch) - value
        weight = torch.where(error < 0.0, 1.0 - self.config.expectile, self.config.expectile)
        loss = (weight * error.square()).mean()
        return loss, {"value/loss": loss, "value/mean": value.mean()}

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return (loss, zeros [B], metrics): clone what was better than usual."""
        with torch.no_grad():
            advantage = self._judged(batch) - self._v(batch.now.features)
            weight = (self.config.inverse_temperature * advantage).exp().clamp_max(MAX_WEIGHT)
        mean, log_std = self.net.distribution(batch.now.features, self.actor["policy"])
        log_prob = heads.log_prob(batch.action[:, : self.net.pose_size], mean, log_std)
        loss = -(weight * log_prob).mean()
        return loss, torch.zeros_like(log_prob), {"actor/loss": loss, "actor/weight": weight.mean()}

    def temperature_loss(self, log_prob: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return 0: there is no such loss here, and the temperature stays as it is."""
        return 0.0 * self.temperature, {}

    def critic_step(self, batch: Transitions) -> dict[str, Tensor]:
        loss, metrics = self.value_loss(batch)
        self.value_optimizer.step(loss)
        return metrics | super().critic_step(batch)

    @torch.no_grad()
    def _judged(self, batch: Transitions) -> Tensor:
        """The lowest value that a slow critic gives the recorded action: [B]."""
        action = batch.action[:, : self.net.pose_size]
        seen = Moment(batch.now.features.detach(), {}, {})
        return self.q(seen, action, self.slow["critic"]).amin(0)

    def _v(self, features: Tensor) -> Tensor:
        return self.value_net(features, self.value)[0].squeeze(-1)

    def _tensors(self) -> dict[str, Tensor]:
        adam = {f"value_optimizer/{k}": v for k, v in self.value_optimizer.state_dict().items()}
        return super()._tensors() | {"value": self.value} | adam
