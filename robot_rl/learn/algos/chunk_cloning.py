"""What `bc_flow` and `bc_act` have in common: cloning of action chunks, whatever the network.

The policy that drives is a slow average of the one that learns (`policy_tau`), as usual for
diffusion and flow policies. Metrics: actor/loss and what `chunk_loss` adds, optimizer/skipped,
optimizer/bad_in_a_row.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.base import Sampler, Trained
from robot_rl.learn.replay import View
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.flow import FlowNet
from robot_rl.nets.transformer import ActNet
from robot_rl.spec import Spec
from robot_rl.types import Observation

ChunkNetT = TypeVar("ChunkNetT", FlowNet, ActNet)


@dataclass(frozen=True, kw_only=True)
class ChunkCloningConfig:
    """Settings that every cloning of chunks has."""

    chunk: int = 8  # actions proposed together: 0.8 s at 10 Hz
    execute: int = 4  # how many of them are carried out before the next chunk is proposed
    learning_rate: float = 3e-4
    batch_size: int = 256
    policy_tau: float = 0.005  # how fast the policy that drives follows the one that learns
    own_successes: bool = False  # filtered BC: also clone episodes without a person that succeeded
    encoder: EncoderConfig = field(default_factory=EncoderConfig)  # used when there are images

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 1 <= self.execute <= self.chunk or self.chunk < 2:
            raise ValueError("chunk must be at least 2, execute lie in 1..chunk")
        if self.batch_size < 1:
            raise ValueError("batch_size must be at least 1")
        if self.learning_rate <= 0.0 or not 0.0 < self.policy_tau <= 1.0:
            raise ValueError("learning_rate must be positive, policy_tau lie in (0, 1]")


class ChunkCloning(Trained[ChunkNetT]):
    """State and update; a subclass gives the loss and maybe more learned tensors (`_more`)."""

    losses = ("chunk_loss",)
    steps_per_update = 1

    def __init__(
        self, config: Any, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.config = config
        self.view = View(chunk=config.chunk, demo_only=True, own_successes=config.own_successes)
        self.net = config.make_actor(spec)
        self.actor = {k: v.to(self.device) for k, v in self.net.init(generator).items()}
        learned = {k: v for k, v in self.actor.items() if k not in ("mean", "scale")}
        self.slow = {k: v.clone() for k, v in learned.items()}
        self.helpers = {k: v.to(self.device) for k, v in self._more(generator).items()}
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)
        learned |= self.helpers
        for tensor in learned.values():
            tensor.requires_grad_()
        self.optimizer = Adam(learned, config.learning_rate)

    def _more(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors that are learned, but not needed to drive."""
        return {}

    @abstractmethod
    def chunk_loss(
        self, features: Tensor, chunk: Tensor, valid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss, and metrics: features [B, F], chunk [B, h, A], valid bool [B, h]."""

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
        """Do one gradient step on chunks that a person drove."""
        batch = sample(self.batch_size, 1.0)
        assert batch.chunk is not None and batch.valid is not None
        features = self._features(batch.observation)
        loss, metrics = self.chunk_loss(
            features, self._tensor(batch.chunk), self._tensor(batch.valid)
        )
        self.optimizer.step(loss)
        for name, slow in self.slow.items():
            slow.lerp_(self.actor[name].detach(), self.config.policy_tau)
        self.updates += 1
        return metrics | {"actor/loss": loss.detach()} | self.optimizer.counts()

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"actor/{k}": v for k, v in self.actor.items()} | {"updates": self.updates}
        tensors |= {f"{k}_slow": v for k, v in self.slow.items()} | self.helpers
        return tensors | {f"optimizer/{k}": v for k, v in self.optimizer.state_dict().items()}
