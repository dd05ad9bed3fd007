"""IBRL: choose the better of the base's proposal and that of a policy which learns.

Paper: IBRL (arXiv 2311.02198). `qc`, whose candidates

    C(s) = { c_1 .. c_N ~ base(s) } + { u ~ pi(s) },   N = 1

    actor_loss   SAC's of c = u; the policy does not see the base

Deviations: chunks instead of actions, SAC instead of TD3. Metrics: those of `actor_critic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.qc import Pick, PickConfig, PickNet
from robot_rl.nets.actor import ActorNet
from robot_rl.spec import Spec


@register("algo", "ibrl")
@dataclass(frozen=True, kw_only=True)
class IbrlConfig(PickConfig):
    """One sample of the base against one of the policy."""

    candidates: int = 1
    std_init: float = 0.3
    target_entropy_per_dim: float = -1.5

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Pick:
        """A fresh learner."""
        return Pick.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`."""
        return self.fit(OwnActorNet, spec, bf16, sees_chunk=False)


@dataclass(frozen=True, kw_only=True)
class OwnActorNet(PickNet):
    """Chooses among samples of the base and the policy's own chunk."""

    def proposals(
        self,
        features: Tensor,
        base: Mapping[str, Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """C(s): the base's samples and the policy's own chunk, [B, n + 1, h A]."""
        chunks = super().proposals(
            features, base, tensors, deterministic=deterministic, generator=generator
        )
        own = self.decision(
            features, tensors["policy"], deterministic=deterministic, generator=generator
        )
        return torch.cat((chunks, own.unsqueeze(1)), 1)
