"""Flow-matching behaviour cloning of action chunks: how most base policies are made.

    chunk_loss  L = E_{t, w} |v(x_t, t, s) - (a_{t:t+h} - w)|^2 over actions that a person drove in
                a row; see `nets.flow` for papers, sampling, the bottleneck and deviations

`robot-rl train algo=bc_flow train.max_env_steps=0 learner.pretrain_updates=N` makes a base policy
from demonstrations; `base=flow base.run=RUN` uses it. Metrics: `algos.chunk_cloning`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.chunk_cloning import ChunkCloning, ChunkCloningConfig
from robot_rl.nets import heads
from robot_rl.nets.flow import FlowNet
from robot_rl.spec import Spec


@register("algo", "bc_flow")
@dataclass(frozen=True, kw_only=True)
class BcFlowConfig(ChunkCloningConfig):
    """A small flow policy; seconds to minutes on one core."""

    noise: float = 1.0  # spread of what a chunk is drawn from in evaluation and at work; 0 = none
    hidden: tuple[int, ...] = (256, 256, 256)
    flow_steps: int = 10  # as pi0
    latent: int = 0  # size of the bottleneck that a latent head steers (ZPRL: 16); 0 = none
    latent_weight: float = 2e-4  # beta: how much the code must look like noise

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.flow_steps < 1 or not self.hidden:
            raise ValueError("flow_steps must be at least 1, hidden not empty")
        if min(self.latent, self.latent_weight) < 0:
            raise ValueError("latent and latent_weight must not be negative")
        if not 0.0 <= self.noise <= 1.0:
            raise ValueError(f"noise must lie in [0, 1], got {self.noise}")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> BcFlow:
        """A fresh learner."""
        return BcFlow.init(self, spec, seed, device)

    def make_actor(self, spec: Spec) -> FlowNet:
        """The network that drives."""
        return FlowNet.from_spec(
            spec,
            self.hidden,
            chunk=self.chunk,
            steps=self.flow_steps,
            execute=self.execute,
            latent=self.latent,
            encoder=self.encoder,
            spread=self.noise,
        )


class BcFlow(ChunkCloning[FlowNet]):
    """The flow-matching loss; everything else is in `ChunkCloning`."""

    def chunk_loss(
        self, features: Tensor, chunk: Tensor, valid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """How far the velocity is from the straight line from noise to the person's chunk."""
        noise = self._normal(chunk.shape)
        t = torch.rand(len(chunk), generator=self.generator).to(self.device)
        velocity, extra = self.actor["velocity"], torch.zeros((), device=self.device)
        condition = features
        if self.net.bottleneck is not None:
            mean, log_std = self.net.code(features, self.actor)
            draw = self._normal(mean.shape)
            condition = mean + draw * log_std.exp()
            extra = self.config.latent_weight * heads.divergence(mean, log_std).mean()
        loss = self.net.loss(condition, velocity, chunk=chunk, valid=valid, noise=noise, t=t)
        return loss + extra, {}
