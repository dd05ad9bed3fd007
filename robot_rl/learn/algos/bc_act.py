"""Cloning of action chunks with a transformer, as a CVAE (ACT, arXiv 2304.13705).

    chunk_loss  L = mean |a_{t:t+h} - pi(s, z)| + beta KL(q(z | s, a_{t:t+h}) | N(0, 1)), over
                actions that a person drove in a row; see `nets.transformer` for the networks

Deviations from ACT: those of `nets.transformer`; small networks (ACT: width 512, 4 and 7 layers);
the policy that drives is a slow average. `robot-rl train algo=bc_act train.max_env_steps=0
learner.pretrain_updates=N` makes a base policy; `base=act base.run=RUN` uses it. This base has one
chunk for each state, so heads that choose its noise or among its samples have no choice. Metrics:
`algos.chunk_cloning`, and actor/kl.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.chunk_cloning import ChunkCloning, ChunkCloningConfig
from robot_rl.nets import heads
from robot_rl.nets.transformer import ActNet
from robot_rl.spec import Spec


@register("algo", "bc_act")
@dataclass(frozen=True, kw_only=True)
class BcActConfig(ChunkCloningConfig):
    """A small ACT; minutes on one core."""

    width: int = 64
    attention_heads: int = 4
    layers: int = 2  # of each transformer
    latent: int = 8  # size of z (ACT: 32, for chunks of 100)
    kl_weight: float = 10.0  # beta, as ACT

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if min(self.width, self.attention_heads, self.layers, self.latent) < 1:
            raise ValueError("width, attention_heads, layers and latent must be at least 1")
        if self.width % self.attention_heads:
            raise ValueError("width must be a multiple of attention_heads")
        if self.kl_weight < 0.0:
            raise ValueError("kl_weight must not be negative")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> BcAct:
        """A fresh learner."""
        return BcAct.init(self, spec, seed, device)

    def make_actor(self, spec: Spec) -> ActNet:
        """The network that drives."""
        return ActNet.from_spec(
            spec,
            chunk=self.chunk,
            execute=self.execute,
            width=self.width,
            attention_heads=self.attention_heads,
            layers=self.layers,
            latent=self.latent,
            encoder=self.encoder,
        )


class BcAct(ChunkCloning[ActNet]):
    """The loss of ACT; everything else is in `ChunkCloning`."""

    def _more(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors of q, which only learning needs."""
        return {"posterior": self.net.init_posterior(generator)}

    def chunk_loss(
        self, features: Tensor, chunk: Tensor, valid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Distance of the proposed chunk from the person's, plus beta times the divergence of z."""
        mean, log_std = self.net.style(features, self.helpers["posterior"], chunk, valid)
        draw = self._normal(mean.shape)
        said = self.net.decode(features, mean + draw * log_std.exp(), self.actor["chunk"])
        there = valid.unsqueeze(-1).expand_as(chunk)
        error = ((said - chunk).abs() * there).sum() / there.sum().clamp_min(1)
        divergence = heads.divergence(mean, log_std).mean()
        loss = error + self.config.kl_weight * divergence
        return loss, {"actor/kl": divergence.detach()}
