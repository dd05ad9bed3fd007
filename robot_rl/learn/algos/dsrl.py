"""DSRL: choose the noise from which a frozen flow policy samples.

Paper: DSRL (arXiv 2506.15799), its noise-aliased variant; losses in `steer`. The decision u is the
noise w = reach u at `knots` moments of the chunk, linear in between.

Deviations from DSRL: the guides W learn `guide_steps` times per actor step, and their u are clipped
like the policy's. Metrics: those of `actor_critic`, guide/loss, noise/error_ratio: how many times
worse the base imitates people, in the first data, from noise of this shape than from its own noise
(far above 1: use more `knots`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.base import Sampler
from robot_rl.learn.algos.steer import Steer, SteerConfig
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import FlowHead, spread
from robot_rl.spec import Spec


@register("algo", "dsrl")
@dataclass(frozen=True, kw_only=True)
class DsrlConfig(SteerConfig):
    """What noise may be chosen."""

    reach: float = 1.5  # standard deviations of the noise; DSRL: 1 to 2.5
    knots: int = 0  # moments of a chunk at which noise is decided; 0 = all, 1 = one for all

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.knots < 0:
            raise ValueError(f"knots must not be negative, got {self.knots}")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Dsrl:
        """A fresh learner."""
        return Dsrl.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`."""
        flow = self.opened.net
        return NoiseSteerNet.fit(
            spec,
            self.hidden,
            chunk=self.chunk,
            bf16=bf16,
            encoder=self.encoder,
            decides=(self.knots or flow.chunk) * flow.action_size,
            flow=flow,
            reach=self.reach,
            knots=self.knots,
        )


class Dsrl(Steer):
    """`Steer` whose decision is the noise."""

    def __init__(
        self, config: DsrlConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.error_ratio = torch.ones((), device=self.device)
        self._tried = False

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """As in `OnBase`; the first update also measures what such noise does to the base."""
        metrics = super().update(sample)
        if not self._tried:
            self.error_ratio.copy_(self._try_noise(sample))
            self._tried = True
        return metrics | {"noise/error_ratio": self.error_ratio.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As in `Trained`; what such noise does is measured once."""
        super().load_state_dict(state)
        self._tried = bool(self.updates)

    def blind(self, count: int) -> Tensor:
        """Draw decisions as the base draws its noise, clipped."""
        shape = (count, self.net.decision_size)
        return (self._normal(shape) / self.config.reach).clamp(-1.0, 1.0)

    @torch.no_grad()
    def _try_noise(self, sample: Sampler) -> Tensor:
        batch = sample(self.batch_size, 1.0)
        base = self.net.base(batch.observation, self.actor, self.generator)
        done = self.executed(batch)
        own = self.net.base_chunk(base, self.actor)
        steered = self.net.compose(self.blind(len(done)), base, self.actor)
        return (steered - done).square().mean() / (own - done).square().mean().clamp_min(1e-9)

    def _tensors(self) -> dict[str, Tensor]:
        return super()._tensors() | {"error_ratio": self.error_ratio}


@dataclass(frozen=True, kw_only=True)
class NoiseSteerNet(FlowHead):
    """Decides the noise from which the base samples. reach, knots: see `DsrlConfig`."""

    reach: float
    knots: int

    def compose(
        self, decision: Tensor, base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """The chunk [B, h A] that the base makes of a decision."""
        noise = self.reach * self.spread(decision)
        return self.decode(base["condition"], noise, tensors)

    def spread(self, decision: Tensor) -> Tensor:
        """Noise at the knots [B, knots A] -> noise of the whole chunk [B, h' A]."""
        if not self.knots:
            return decision
        return spread(decision, self.knots, self.flow.chunk, self.action_size)
