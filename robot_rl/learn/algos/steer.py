"""Heads that choose what a frozen flow policy starts from: its noise (DSRL), or its code (ZPRL).

Papers: DSRL (arXiv 2506.15799; the noise-aliased variant), ZPRL (arXiv 2605.19919). G(s, u) is the
chunk that the base makes of the decision u in s (`nets.chunk.SteerNet`); the critics are those of
`chunked`, over chunks, so demonstrations and corrections are learned from although nobody knows
which u they would have been.

    guide_loss   L = mean_B mean_i (W_i(s, u) - mean_j Q_j(s, G(s, u)))^2,  u drawn blindly
    actor_loss   L = mean_B [ alpha log pi(u~|s) - mean_i W_i(s, u~)
                              + hinge mean_d max(0, |reach u~_d| - from)^2 ],  u~ ~ pi(s)

The hinge (GR-RL, arXiv 2512.01801; off by default) keeps the noise where the base has seen noise
more often, which a bound alone (`reach`) does not.

Whatever u is, the robot does something that the base might have done, and moves as smoothly; what
the base never does cannot be learned.

Deviations from DSRL: the guides W learn `guide_steps` times per actor step, and their u are clipped
like the policy's. From ZPRL: its SAC judges the shift of the code, here the critics judge the
chunk; the shift is in units of the code, whose spread the bottleneck keeps near 1. Metrics: those
of `hil_serl`, and guide/loss, noise/error_ratio: how much worse the base imitates the first people
it saw from noise of this shape than from its own (far above 1: use more `knots`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError
from robot_rl.learn.algos.base import Adam, Sampler
from robot_rl.learn.algos.chunked import Chunked, OnFlowConfig, adopt
from robot_rl.learn.algos.hil_serl import Transitions
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import SteerNet
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.spec import Spec


@register("algo", "steer")
@dataclass(frozen=True, kw_only=True)
class SteerConfig(OnFlowConfig):
    """What is steered, and how far."""

    steer: str = "noise"  # | latent: the base's code; it needs a bottleneck (bc_flow's latent)
    reach: float = 1.5  # of a decision: standard deviations of the noise (DSRL: 1 to 2.5)
    knots: int = 0  # noise is decided at so many moments of a chunk, 0 = at all; 1 = the same
    hinge_weight: float = 0.0  # of the penalty on noise beyond hinge_from standard deviations
    hinge_from: float = 1.0
    guides: int = 2
    guide_steps: int = 2  # per actor step

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.steer not in ("noise", "latent"):
            raise ValueError(f"steer must be noise or latent, got {self.steer!r}")
        if self.reach <= 0.0 or self.knots < 0 or min(self.guides, self.guide_steps) < 1:
            raise ValueError("reach must be positive, knots >= 0, guides and guide_steps >= 1")
        if min(self.hinge_weight, self.hinge_from) < 0.0:
            raise ValueError("hinge_weight and hinge_from must not be negative")
        if self.residual:
            raise ValueError("a head that steers adds nothing to actions: residual must be 0")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Steer:
        """A fresh learner."""
        return Steer.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `HilSerlConfig.net`."""
        flow, latent = self.opened.net, self.steer == "latent"
        if latent and flow.bottleneck is None:
            raise ConfigError(
                "a latent head needs a base with a bottleneck",
                expected="a run of algo=bc_flow algo.latent=16",
                got="a base whose velocity sees the whole observation",
                fix="train such a base, or steer its noise: algo=dsrl",
            )
        moments = self.knots or flow.chunk
        size = flow.condition_size if latent else moments * flow.action_size
        parts = self.front(spec, bf16, size)
        return SteerNet(**parts, flow=flow, latent=latent, reach=self.reach, knots=self.knots)


class Steer(Chunked):
    """Critics as in `Chunked`; the policy learns from guides."""

    losses = (*Chunked.losses, "guide_loss")
    config: SteerConfig  # type: ignore[reportIncompatibleVariableOverride]
    net: SteerNet  # type: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, config: SteerConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        adopt(self.actor, config.opened)
        sizes = (self.net.feature_size + self.net.decision_size, *config.hidden, 1)
        self.guide_net = EnsembleMLP(config.guides, sizes, config.activation, self.critic_net.bf16)
        guide = self.guide_net.init(generator, last_scale=0.01)
        self.guide = guide.to(self.device).requires_grad_()
        self.guide_optimizer = Adam({"guide": self.guide}, config.learning_rate)
        self.error_ratio = torch.ones((), device=self.device)

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """As in `Chunked`; with the first one, whether the base survives this kind of noise."""
        fresh = self._fresh
        metrics = super().update(sample)
        if self.net.latent:
            return metrics
        if fresh:
            self.error_ratio.copy_(self._try_noise(sample))
        return metrics | {"noise/error_ratio": self.error_ratio.clone()}

    def guide_loss(self, batch: Transitions, decision: Tensor, target: Tensor) -> Tensor:
        """How far the guides are from what the critics think of decisions [B, d]."""
        guess = self.guide_net(torch.cat((batch.state, decision), -1), self.guide).squeeze(-1)
        return (guess - target).square().mean()

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """(loss, log_prob [B], metrics). The guides judge, and take no gradient."""
        decision, log_prob = self._draw(*self.net.distribution(batch.state, self.actor["policy"]))
        pair = torch.cat((batch.state, decision), -1)
        worth = self.guide_net(pair, self.guide.detach()).squeeze(-1).mean(0)
        loss = self._soft(worth, log_prob)
        if self.config.hinge_weight:
            beyond = (self.net.reach * decision.abs() - self.config.hinge_from).clamp_min(0.0)
            loss = loss + self.config.hinge_weight * beyond.square().mean()
        return loss, log_prob, {"actor/loss": loss, "actor/entropy": -log_prob.mean()}

    def _actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        loss = torch.zeros(())
        for _ in range(self.config.guide_steps):
            decision = self._blind(len(batch.state))
            with torch.no_grad():
                chunk = self.net.compose(decision, batch.base, self.actor)
                target = self._q(batch.state, chunk, batch.base, self.critic).mean(0)
            loss = self.guide_loss(batch, decision, target)
            self.guide_optimizer.step(loss)
        return super()._actor_step(batch) | {"guide/loss": loss}

    def _blind(self, count: int) -> Tensor:
        """Decisions [B, d] as the base draws its noise, clipped; uniform shifts of its code."""
        shape = (count, self.net.decision_size)
        if self.net.latent:
            drawn = 2.0 * torch.rand(shape, generator=self.generator) - 1.0
        else:
            drawn = torch.randn(shape, generator=self.generator) / self.net.reach
        return drawn.clamp(-1.0, 1.0).to(self.device)

    @torch.no_grad()
    def _try_noise(self, sample: Sampler) -> Tensor:
        batch = sample(self.batch_size, 1.0)
        base = self.net.base(batch.observation, self.actor, self.generator)
        done = self._executed(batch)
        own = self.net.plain(base, self.actor)
        steered = self.net.compose(self._blind(len(done)), base, self.actor)
        return (steered - done).square().mean() / (own - done).square().mean().clamp_min(1e-9)

    def _tensors(self) -> dict[str, Tensor]:
        adam = {f"guide_optimizer/{k}": v for k, v in self.guide_optimizer.state_dict().items()}
        own = {"guide": self.guide, "error_ratio": self.error_ratio}
        return super()._tensors() | own | adam
