"""ZPRL: shift the code through which a frozen flow policy sees the observation.

Paper: ZPRL (arXiv 2605.19919); losses in `steer`. The base has a bottleneck (`bc_flow` with
`latent`): its velocity sees nothing of the observation but a code z. The decision u shifts this
code, and the base acts on z + reach u.

Deviations from ZPRL: its SAC judges the shift of the code, here the critics judge the chunk; the
shift is in units of the code, whose spread the bottleneck pulls towards 1. Metrics: those of
`actor_critic`, guide/loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError
from robot_rl.learn.algos.steer import Steer, SteerConfig
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import FlowHead
from robot_rl.spec import Spec


@register("algo", "zprl")
@dataclass(frozen=True, kw_only=True)
class ZprlConfig(SteerConfig):
    """`reach` is in units of codes, whose measured spread was 0.2 to 0.4.

    Where a task forgives few errors, a reach of 0.1 is better.
    """

    std_init: float = 0.5

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Zprl:
        """A fresh learner."""
        return Zprl.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`.

        Raises:
            ConfigError: the base has no bottleneck.
        """
        flow = self.opened.net
        if flow.bottleneck is None:
            raise ConfigError(
                "a latent head needs a base with a bottleneck",
                expected="a run of algo=bc_flow algo.latent=16",
                got="a base whose velocity sees the whole observation",
                fix="train such a base, or steer its noise: algo=dsrl",
            )
        return CodeSteerNet.fit(
            spec,
            self.hidden,
            chunk=self.chunk,
            bf16=bf16,
            encoder=self.encoder,
            decides=flow.condition_size,
            flow=flow,
            reach=self.reach,
        )


class Zprl(Steer):
    """`Steer` whose decision shifts the code."""

    def blind(self, count: int) -> Tensor:
        """Draw shifts uniformly."""
        shape = (count, self.net.decision_size)
        drawn = 2.0 * torch.rand(shape, generator=self.generator) - 1.0
        return drawn.clamp(-1.0, 1.0).to(self.device)


@dataclass(frozen=True, kw_only=True)
class CodeSteerNet(FlowHead):
    """Decides the code from which the base samples. reach: see `SteerConfig`."""

    reach: float

    def compose(
        self, decision: Tensor, base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor:
        """The chunk [B, h A] that the base makes of a decision."""
        return self.decode(base["condition"] + self.reach * decision, base["noise"], tensors)
