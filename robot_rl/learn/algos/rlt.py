"""RLT: decide whole chunks; the policy sees the plan of a base policy as a reference.

Paper: RL Token (RLT, arXiv 2604.23073). `chunked` whose policy sees the base's plan c_b, recorded
with each frame, and is held near it, or near what a person did instead:

    actor_loss   SAC's + reference_weight mean_B mean_d (c~ - c_b)_d^2;  c_b is hidden from the
                 policy in `reference_dropout` of the rows, so that it cannot merely copy

Deviations: the policy sees the observation itself, not a token of a VLA's features; SAC's
temperature; transitions begin at every step; the distance is a mean over the chunk's numbers d,
where the paper has their sum: so a weight means the same for chunks of any size; of a person's
chunk that was cut, only what the person did counts. Metrics: those of `actor_critic`,
actor/reference_loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.chunked import OnBase, OnBaseConfig
from robot_rl.learn.algos.policy_decorator import need_plan
from robot_rl.learn.transitions import Transitions
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import BasedChunkNet
from robot_rl.spec import BASE_ACTION, Spec


@register("algo", "rlt")
@dataclass(frozen=True, kw_only=True)
class RltConfig(OnBaseConfig):
    """How near to the plan the policy is held."""

    reference_weight: float = 1.0  # values lie in [0, 1]; an error of 0.1 costs 0.01
    reference_dropout: float = 0.5  # share of rows in which the policy does not see the plan
    std_init: float = 0.3
    target_entropy_per_dim: float = -1.5

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.reference_weight < 0.0 or not 0.0 <= self.reference_dropout <= 1.0:
            raise ValueError("reference_weight must be >= 0, reference_dropout lie in [0, 1]")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Rlt:
        """A fresh learner."""
        return Rlt.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`.

        Raises:
            ConfigError: no base, or its plan is too short.
        """
        need_plan(spec, self.chunk)
        return BasedChunkNet.fit(
            spec, self.hidden, chunk=self.chunk, bf16=bf16, encoder=self.encoder
        )


class Rlt(OnBase):
    """`OnBase`, held near the plan."""

    def __init__(
        self, config: RltConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        sizes = {k: math.prod(spec.observation[k].shape) for k in self.net.keys}
        before = sum(v for k, v in sizes.items() if k < BASE_ACTION)  # the keys are sorted
        self._plan = slice(before, before + sizes[BASE_ACTION])  # its place in the state

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """SAC's loss plus the distance to the reference: (loss, log_prob [B], metrics)."""
        now, config = batch.now, self.config
        hidden = torch.rand(len(batch.reward), 1, generator=self.generator).to(self.device)
        plan = torch.zeros(now.features.shape[1], dtype=torch.bool, device=self.device)
        plan[self._plan] = True
        blind = (hidden < config.reference_dropout) & plan
        decision, log_prob = self.draw(now.features.masked_fill(blind, 0.0))
        value = self.q(now, decision, self.critic.detach()).mean(0)
        human, valid = batch.human.unsqueeze(-1), batch.valid
        assert valid is not None
        reference = torch.where(human, batch.action, now.base["plan"])
        known = valid.repeat_interleave(decision.shape[1] // valid.shape[1], 1) | ~human
        far = ((decision - reference).square() * known).sum() / known.sum().clamp_min(1)
        loss = self.soft(value, log_prob) + config.reference_weight * far
        metrics = {"actor/entropy": -log_prob.mean(), "actor/reference_loss": far}
        return loss, log_prob, {"actor/loss": loss} | metrics
