"""EXPO: choose among the base's samples and edits of these samples by a small policy.

Paper: EXPO (arXiv 2507.07986). `qc`, whose candidates

    C(s) = { c_1 .. c_N ~ base(s) } + { clip(c_i + edit u_i), u_i ~ pi(s, c_i) }

    actor_loss   SAC's of c = clip(c_1 + edit u), u ~ pi(s, c_1)

Deviation: the base does not learn. Metrics: those of `actor_critic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.qc import Pick, PickConfig, PickNet
from robot_rl.learn.transitions import Transitions
from robot_rl.nets.actor import ActorNet
from robot_rl.spec import Spec


@register("algo", "expo")
@dataclass(frozen=True, kw_only=True)
class ExpoConfig(PickConfig):
    """How far an edit goes."""

    edit: float = 0.2
    std_init: float = 0.5
    target_entropy_per_dim: float = -1.5

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if not 0.0 < self.edit <= 1.0:
            raise ValueError(f"edit must lie in (0, 1], got {self.edit}")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Expo:
        """A fresh learner."""
        return Expo.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`."""
        return self.fit(EditNet, spec, bf16, edit=self.edit)


class Expo(Pick):
    """`Pick`, with a policy that edits."""

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """SAC's loss of an edit of the base's first sample: (loss, log_prob [B], metrics)."""
        now = batch.now
        with torch.no_grad():
            plain = self.net.base_chunk(now.base, self.actor)
        decision, log_prob = self.draw(torch.cat((now.features, plain), -1))
        chunk = (plain + self.config.edit * decision).clamp(-1.0, 1.0)
        loss = self.soft(self.q(now, chunk, self.critic.detach()).mean(0), log_prob)
        return loss, log_prob, {"actor/loss": loss, "actor/entropy": -log_prob.mean()}


@dataclass(frozen=True, kw_only=True)
class EditNet(PickNet):
    """Chooses among samples of the base and their edits. edit: how far an edit goes."""

    edit: float

    def proposals(
        self,
        features: Tensor,
        base: Mapping[str, Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """C(s): samples and an edit of each, [B, 2 n, h A]."""
        chunks = super().proposals(
            features, base, tensors, deterministic=deterministic, generator=generator
        )
        rows = features.unsqueeze(1).expand(-1, chunks.shape[1], -1)
        seen = torch.cat((rows, chunks), -1).flatten(0, 1)
        step = self.decision(seen, tensors["policy"], deterministic=False, generator=generator)
        edits = (chunks + self.edit * step.view_as(chunks)).clamp(-1.0, 1.0)
        return torch.cat((chunks, edits), 1)
