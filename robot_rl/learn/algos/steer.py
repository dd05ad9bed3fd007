"""What `dsrl` and `zprl` have in common: heads that choose what a frozen flow policy starts from.

Paper: DSRL (arXiv 2506.15799), its noise-aliased variant. G(s, u) is the chunk that the base makes
of the decision u in s. The critics are those of `chunked`, over chunks, so they learn from
demonstrations and corrections, too, for which no u is known. Guides W learn from the critics what a
decision is worth, and the policy learns from the guides:

    guide_loss   L = mean_B mean_i (W_i(s, u) - mean_j Q_j(s, G(s, u)))^2,  u drawn blindly
    actor_loss   L = mean_B [ alpha log pi(u~|s) - mean_i W_i(s, u~) ],  u~ ~ pi(s)

Whatever u is, the robot does something that the base might have done, and moves as smoothly as the
base; what the base never does cannot be learned.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.on_flow import OnFlow, OnFlowConfig
from robot_rl.learn.transitions import Transitions
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.spec import Spec


@dataclass(frozen=True, kw_only=True)
class SteerConfig(OnFlowConfig):
    """How far a decision reaches, and the guides."""

    reach: float = 1.0  # of a decision u: what u = 1 stands for
    guides: int = 2
    guide_steps: int = 2  # per actor step

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.reach <= 0.0 or min(self.guides, self.guide_steps) < 1:
            raise ValueError("reach must be positive, guides and guide_steps at least 1")


class Steer(OnFlow):
    """Critics as in `Chunked`; the policy learns from guides."""

    losses = (*OnFlow.losses, "guide_loss")

    def __init__(
        self, config: SteerConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        sizes = (self.net.feature_size + self.net.decision_size, *config.hidden, 1)
        self.guide_net = EnsembleMLP(config.guides, sizes, self.critic_net.bf16)
        guide = self.guide_net.init(generator, last_scale=0.01)
        self.guide = guide.to(self.device).requires_grad_()
        self.guide_optimizer = Adam({"guide": self.guide}, config.learning_rate)

    def guide_loss(self, batch: Transitions, decision: Tensor, target: Tensor) -> Tensor:
        """How far the guides are from what the critics think of decisions [B, d]."""
        pair = torch.cat((batch.now.features, decision), -1)
        guess = self.guide_net(pair, self.guide).squeeze(-1)
        return (guess - target).square().mean()

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return (loss, log_prob [B], metrics); the guides' parameters take no gradient."""
        decision, log_prob = self.draw(batch.now.features)
        pair = torch.cat((batch.now.features, decision), -1)
        value = self.guide_net(pair, self.guide.detach()).squeeze(-1).mean(0)
        loss = self.soft(value, log_prob)
        return loss, log_prob, {"actor/loss": loss, "actor/entropy": -log_prob.mean()}

    def actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        """Do `guide_steps` steps of the guides, then one of the policy; return metrics."""
        loss = torch.zeros(())
        for _ in range(self.config.guide_steps):
            decision = self.blind(len(batch.reward))
            with torch.no_grad():
                chunk = self.net.compose(decision, batch.now.base, self.actor)
                target = self.q(batch.now, chunk, self.critic).mean(0)
            loss = self.guide_loss(batch, decision, target)
            self.guide_optimizer.step(loss)
        return super().actor_step(batch) | {"guide/loss": loss}

    @abstractmethod
    def blind(self, count: int) -> Tensor:
        """Draw decisions [count, d] in [-1, 1] without looking at the state."""

    def _tensors(self) -> dict[str, Tensor]:
        adam = {f"guide_optimizer/{k}": v for k, v in self.guide_optimizer.state_dict().items()}
        return super()._tensors() | {"guide": self.guide} | adam
