"""Actor-critic over chunks: the policy decides h actions at once, the critics judge all of them.

Paper: Q-chunking (arXiv 2507.07969). `actor_critic` with a chunk c = a_{t:t+h} as the action:

    target   y = R_h + gamma^h m min_{i in S} Q'_i(s_{t+h}, c'),  R_h = sum_{k < h} gamma^k r_{t+k}

c is what was really carried out, so the h-step backup is unbiased, and each of the h steps may
begin a transition, whoever drove. The gripper is one more number of each action.

Where the driver changed, or the episode ended, within h steps, the transition ends there, too
(`View`). After a terminal step the rest of c is filled with actions of other rows, which is exact:
what would have followed changes nothing. (Q-chunking drops such rows; with a sparse reward, these
are the rows that hold the reward.) Elsewhere nobody knows what the rest of c would have done, and
the row is left out of the critics' loss.

The heads on a base policy that decide chunks build on this: `policy_decorator`, and with a base
that runs here (`on_flow`) `dsrl`, `zprl`, `qc`, `pa_rl`, `expo`. Metrics: those of `actor_critic`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.actor_critic import ActorCritic
from robot_rl.learn.algos.agent import ActorCriticConfig
from robot_rl.learn.algos.base import Sampler
from robot_rl.learn.algos.small_sparse import SmallSparse
from robot_rl.learn.replay import Batch, View
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import BasedChunkNet, ChunkNet
from robot_rl.spec import Spec
from robot_rl.types import Observation


@register("algo", "chunked")
@dataclass(frozen=True, kw_only=True)
class ChunkedConfig(SmallSparse, ActorCriticConfig):
    """How many actions are decided at once."""

    chunk: int = 4  # h, all of which are carried out; Q-chunking: 5

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.chunk < 2 or self.n_step != 1:
            raise ValueError("chunk must be at least 2; returns span a chunk, so n_step stays 1")

    @property
    def view(self) -> View:
        """What the replay shall offer: chunks, and the rewards summed over them."""
        return View(n_step=self.chunk, chunk=self.chunk, gamma=self.gamma)

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Chunked:
        """A fresh learner."""
        return Chunked.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`."""
        return ChunkNet.fit(spec, self.hidden, chunk=self.chunk, bf16=bf16, encoder=self.encoder)


class Chunked(ActorCritic):
    """As `ActorCritic`, for chunks."""

    def act(self, observation: Observation, deterministic: bool) -> Tensor:
        """Actions [B, A], the first of their chunks."""
        return super().act(observation, deterministic)[:, 0]

    def executed(self, batch: Batch) -> Tensor:
        """Chunks [B, h A] as carried out; beyond their end, actions of other rows."""
        assert batch.chunk is not None and batch.valid is not None
        chunk, valid = self._tensor(batch.chunk), self._tensor(batch.valid).unsqueeze(-1)
        return torch.where(valid, chunk, chunk[self._order(len(chunk))]).flatten(1)

    def weight(self, batch: Batch) -> Tensor:
        """1 for whole chunks, and for those that end with the episode; 0 for the others."""
        assert batch.valid is not None
        return self._tensor(batch.valid.all(1) | (batch.mask == 0.0)).float()


@dataclass(frozen=True, kw_only=True)
class OnBaseConfig(ChunkedConfig):
    """Keys of a head on a base policy: how soon it decides instead of the base."""

    ramp_updates: int = 2000  # until the head always decides, and never the base alone

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.ramp_updates < 0:
            raise ValueError(f"ramp_updates must not be negative, got {self.ramp_updates}")


class OnBase(Chunked):
    """`Chunked` on a base, which drives at first; the head takes over within `ramp_updates`."""

    net: BasedChunkNet

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """As in `ActorCritic`; the head's share grows (Policy Decorator's exploration)."""
        metrics = super().update(sample)
        share = self.updates / max(self.config.ramp_updates, 1)
        self.actor["share"].copy_(share.clamp_max(1.0))
        return metrics
