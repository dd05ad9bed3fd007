"""IQL: learns from recorded data without ever asking for the value of an action nobody took.

Paper: IQL (arXiv 2110.06169). What is not said here is as in `hil_serl`; V is one more network.

    value_loss    u = min_i Q'_i(s, a) - V(s),   L = mean_B | tau - 1[u < 0] | u^2     (expectile)
    target        y = r + gamma^n m V(s')
    actor_loss    L = -mean_B min(exp(beta u), 100) log pi(a|s)      (advantage-weighted cloning)

pi is a Gaussian around tanh of the network's output, clipped when it acts, as in the authors' code:
under a squashed Gaussian an action at its bound, which a person's device often gives, lies at
infinity and would count for many. With a gripper, Q_g(s, k) of its commands k is one more network:

    gripper value   L = mean_B (Q_g(s, k) - y + penalty toggle)^2
    gripper policy  L = -mean_B min(exp(beta (Q_g(s, k) - V(s))), 100) log softmax(logits)_k

Deviations: the state-independent standard deviation of the paper is a network output here, at least
`STD_LOW`; the gripper, which the paper does not have. Metrics: critic/loss, critic/q_mean,
critic/target_mean, value/loss, value/mean, actor/loss, actor/weight, gripper/loss, gripper/q_mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import cross_entropy

from robot_rl.config.registry import register
from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.actor_critic import ActorCritic
from robot_rl.learn.algos.hil_serl import HilSerl, HilSerlConfig
from robot_rl.learn.transitions import Moment, Transitions
from robot_rl.nets import heads
from robot_rl.nets.actor import ActorNet, gripper_index
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.spec import Spec

MAX_WEIGHT = 100.0  # of one action in the actor's loss, as in the paper
STD_LOW = 0.05  # of an action: less, and a few that agree exactly would outweigh all others


@dataclass(frozen=True, slots=True)
class GaussianNet(ActorNet):
    """An actor whose noise is added behind the squash; its gripper entry holds logits."""

    def distribution(self, features: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
        """Mean before the squash and log std behind it, [B, pose]."""
        mean, log_std = heads.split(self.policy(features, policy)[0])
        return mean, log_std.clamp_min(math.log(STD_LOW))

    def decision(
        self,
        features: Tensor,
        policy: Tensor,
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """tanh of the mean, or a sample around it, clipped to [-1, 1]."""
        mean, log_std = self.distribution(features, policy)
        action = torch.tanh(mean)
        if deterministic:
            return action
        noise = torch.randn(mean.shape, generator=generator).to(mean.device)
        return (action + noise * log_std.exp()).clamp(-1.0, 1.0)

    def log_prob(self, action: Tensor, features: Tensor, policy: Tensor) -> Tensor:
        """Log density [B] of recorded actions [B, pose]."""
        mean, log_std = self.distribution(features, policy)
        return Normal(torch.tanh(mean), log_std.exp(), validate_args=False).log_prob(action).sum(-1)


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

    def net(self, spec: Spec, bf16: bool) -> GaussianNet:
        """The network that drives."""
        return GaussianNet.from_spec(spec, self.hidden, bf16=bf16, encoder=self.encoder)

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Iql:
        """A fresh learner."""
        return Iql.init(self, spec, seed, device)


class Iql(HilSerl):
    """Encoder and data as in `HilSerl`."""

    net: GaussianNet

    def __init__(
        self, config: IqlConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        sizes = (self.net.feature_size, *config.hidden, 1)
        self.value_net = EnsembleMLP(1, sizes, self.critic_net.bf16)
        value = self.value_net.init(generator, last_scale=0.01)
        self.value = value.to(self.device).requires_grad_()
        self.values_seen = {"value": self.value}
        if self.net.gripper:
            judge = self.net.gripper.init(generator, last_scale=0.01)
            self.values_seen["gripper_critic"] = judge.to(self.device).requires_grad_()
        self.value_optimizer = Adam(self.values_seen, config.learning_rate)

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """As in `Agent`: a gripper's logits are what drives it here."""
        ActorCritic.start_from(self, state)

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
        weight = self._weight(self._judged(batch), batch)
        action = batch.action[:, : self.net.pose_size]
        log_prob = self.net.log_prob(action, batch.now.features, self.actor["policy"])
        loss = -(weight * log_prob).mean()
        return loss, torch.zeros_like(log_prob), {"actor/loss": loss, "actor/weight": weight.mean()}

    def temperature_loss(self, log_prob: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return 0: there is no such loss here, and the temperature stays as it is."""
        return 0.0 * self.temperature, {}

    def gripper_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Clone the gripper's commands that were better than usual."""
        assert self.net.gripper is not None
        features, taken = batch.now.features.detach(), gripper_index(batch.action[:, -1])
        with torch.no_grad():
            weight = self._weight(self._judged_gripper(features, taken), batch)
        logits = self.net.gripper(features, self.actor["gripper"])[0]
        loss = (weight * cross_entropy(logits, taken, reduction="none")).mean()
        return loss, {"gripper/loss": loss}

    def gripper_value_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Regression of Q_g; trains Q_g alone."""
        with torch.no_grad():
            target = self.target(batch) - self.config.gripper_penalty * batch.toggle
        taken = gripper_index(batch.action[:, -1])
        q = self._judged_gripper(batch.now.features.detach(), taken)
        return (q - target).square().mean(), {"gripper/q_mean": q.mean()}

    def critic_step(self, batch: Transitions) -> dict[str, Tensor]:
        loss, metrics = self.value_loss(batch)
        if self.net.gripper:
            gripper_loss, gripper_metrics = self.gripper_value_loss(batch)
            loss, metrics = loss + gripper_loss, metrics | gripper_metrics
        self.value_optimizer.step(loss)
        return metrics | super().critic_step(batch)

    @torch.no_grad()
    def _judged(self, batch: Transitions) -> Tensor:
        """The lowest value that a slow critic gives the recorded action: [B]."""
        action = batch.action[:, : self.net.pose_size]
        seen = Moment(batch.now.features.detach(), {}, {})
        return self.q(seen, action, self.slow["critic"]).amin(0)

    def _judged_gripper(self, features: Tensor, taken: Tensor) -> Tensor:
        """Q_g [B] of the gripper's commands with these indices [B]."""
        assert self.net.gripper is not None
        q = self.net.gripper(features, self.values_seen["gripper_critic"])[0]
        return q.gather(-1, taken[:, None]).squeeze(-1)

    @torch.no_grad()
    def _weight(self, judged: Tensor, batch: Transitions) -> Tensor:
        """min(exp(beta u), 100) [B] of actions with these values [B]."""
        advantage = judged - self._v(batch.now.features)
        return (self.config.inverse_temperature * advantage).exp().clamp_max(MAX_WEIGHT)

    def _v(self, features: Tensor) -> Tensor:
        return self.value_net(features, self.value)[0].squeeze(-1)

    def _tensors(self) -> dict[str, Tensor]:
        adam = {f"value_optimizer/{k}": v for k, v in self.value_optimizer.state_dict().items()}
        return super()._tensors() | self.values_seen | adam
