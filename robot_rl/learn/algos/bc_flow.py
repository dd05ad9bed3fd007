"""Flow-matching behaviour cloning of action chunks: how most base policies are made.

    flow_loss   L = E_{t, w} |v(x_t, t, s) - (a_{t:t+h} - w)|^2 over actions that a person drove in
                a row; see `nets.flow` for papers, sampling, the bottleneck and deviations

The policy that drives is a slow average of the one that learns (`policy_tau`), as usual for
diffusion and flow policies. `robot-rl train algo=bc_flow train.max_env_steps=0
learner.pretrain_updates=N` makes a base policy from demonstrations; `base=flow base.run=RUN` uses
it. Metrics: flow/loss, optimizer/skipped, optimizer/bad_in_a_row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from robot_rl.config import register
from robot_rl.learn.algos.base import Adam, Sampler, Trained
from robot_rl.learn.replay import View
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import ACTIVATIONS
from robot_rl.nets.flow import FlowNet
from robot_rl.spec import Spec
from robot_rl.types import Observation


@register("algo", "bc_flow")
@dataclass(frozen=True, kw_only=True)
class BcFlowConfig:
    """A small flow policy; seconds to minutes on one core."""

    hidden: tuple[int, ...] = (256, 256, 256)
    activation: str = "relu"
    chunk: int = 8  # actions sampled together: 0.8 s at 10 Hz
    execute: int = 4  # of them carried out before the next look
    flow_steps: int = 10  # as pi0
    learning_rate: float = 3e-4
    batch_size: int = 256
    policy_tau: float = 0.005  # how fast the policy that drives follows the one that learns
    latent: int = 0  # size of the bottleneck that a latent head steers (ZPRL: 16); 0 = none
    latent_weight: float = 2e-4  # beta: how much the code must look like noise
    own_successes: bool = False  # filtered BC: clone also what the policy did alone and well
    encoder: EncoderConfig = field(default_factory=EncoderConfig)  # used when there are images

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 1 <= self.execute <= self.chunk or self.chunk < 2:
            raise ValueError("chunk must be at least 2, execute lie in 1..chunk")
        if min(self.flow_steps, self.batch_size) < 1 or not self.hidden:
            raise ValueError("flow_steps and batch_size must be at least 1, hidden not empty")
        if min(self.latent, self.latent_weight) < 0:
            raise ValueError("latent and latent_weight must not be negative")
        if self.learning_rate <= 0.0 or not 0.0 < self.policy_tau <= 1.0:
            raise ValueError("learning_rate must be positive, policy_tau lie in (0, 1]")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {self.activation}")

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
            activation=self.activation,
            encoder=self.encoder,
        )


class BcFlow(Trained[FlowNet]):
    """State and loss; the verbs are those of every algorithm."""

    losses = ("flow_loss",)
    steps_per_update = 1

    def __init__(
        self, config: BcFlowConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.config = config
        self.view = View(chunk=config.chunk, demo_only=True, own_successes=config.own_successes)
        self.net = config.make_actor(spec)
        self.actor = {k: v.to(self.device) for k, v in self.net.init(generator).items()}
        names = ("velocity", "bottleneck", "encoder")
        learned = {k: self.actor[k] for k in names if k in self.actor}
        self.slow = {k: v.clone() for k, v in learned.items()}
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)
        for tensor in learned.values():
            tensor.requires_grad_()
        self.optimizer = Adam(learned, config.learning_rate)

    def act(self, observation: Observation, deterministic: bool) -> Tensor:
        """Actions [B, A], the first of their chunks."""
        state = self.actor_state()
        chunk = self.net.act(
            observation, state, deterministic=deterministic, generator=self.generator
        )
        return chunk[:, 0]

    def actor_state(self) -> dict[str, Tensor]:
        """The slow average, and the scaling."""
        return super().actor_state() | self.slow

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """One gradient step on chunks that a person drove."""
        self._standardize(sample, 1.0)
        batch = sample(self.batch_size, 1.0)
        assert batch.chunk is not None and batch.valid is not None
        scaled = self.net.scaled(self.net.state(batch.observation), self.actor)
        features = self.net.features(
            scaled, self._look(batch.observation), self.actor.get("encoder")
        )
        loss = self.flow_loss(features, self._tensor(batch.chunk), self._tensor(batch.valid))
        self.optimizer.step(loss)
        for name, slow in self.slow.items():
            slow.lerp_(self.actor[name].detach(), self.config.policy_tau)
        self.updates += 1
        return {
            "flow/loss": loss.detach(),
            "optimizer/skipped": self.optimizer.skipped.clone(),
            "optimizer/bad_in_a_row": self.optimizer.bad_in_a_row.clone(),
        }

    def flow_loss(self, features: Tensor, chunk: Tensor, valid: Tensor) -> Tensor:
        """How far the velocity is from the straight way to what the person did."""
        noise = torch.randn(chunk.shape, generator=self.generator).to(self.device)
        t = torch.rand(len(chunk), generator=self.generator).to(self.device)
        velocity, extra = self.actor["velocity"], torch.zeros((), device=self.device)
        condition = features
        if self.net.bottleneck is not None:
            mean, log_std = self.net.code(features, self.actor)
            draw = torch.randn(mean.shape, generator=self.generator).to(self.device)
            condition = mean + draw * log_std.exp()
            spread = 0.5 * (mean.square() + (2.0 * log_std).exp() - 1.0) - log_std
            extra = self.config.latent_weight * spread.sum(-1).mean()
        loss = self.net.loss(condition, velocity, chunk=chunk, valid=valid, noise=noise, t=t)
        return loss + extra

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"actor/{k}": v for k, v in self.actor.items()} | {"updates": self.updates}
        tensors |= {f"{k}_slow": v for k, v in self.slow.items()}
        return tensors | {f"optimizer/{k}": v for k, v in self.optimizer.state_dict().items()}
