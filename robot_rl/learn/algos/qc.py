"""Q-chunking's best of N: of several samples of the base policy, the critics choose one.

Paper: Q-chunking (arXiv 2507.07969). One rule chooses the chunk when acting and in the target:

    C(s) = { c_1 .. c_N ~ base(s) },   c(s) = argmax mean_i Q_i(s, c), c in C(s)
    target   that of `chunked` with c' = c(s')

`pa_rl` and `expo` add to C(s). Deviations: the mean of all critics chooses, the lowest of a
random subset of slow ones is the target. Metrics: those of `actor_critic`, without the actor's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.on_flow import OnFlow, OnFlowConfig
from robot_rl.learn.transitions import Moment, Transitions
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import FlowHead
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.spec import Spec


@dataclass(frozen=True, kw_only=True)
class PickConfig(OnFlowConfig):
    """From how many samples of the base a chunk is chosen."""

    candidates: int = 8  # N; PA-RL and Q-chunking: 32, EXPO: 8

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.candidates < 1:
            raise ValueError(f"candidates must be at least 1, got {self.candidates}")
        if self.value_bins:
            raise ValueError("a head that picks needs value_bins=0")

    def fit(self, kind: type[PickNet], spec: Spec, bf16: bool, **more: Any) -> PickNet:
        """A net that picks; its policy sees a chunk. more: fields of `kind`."""
        return kind.fit(
            spec,
            self.hidden,
            chunk=self.chunk,
            bf16=bf16,
            encoder=self.encoder,
            sees_more=self.chunk * spec.action.size,
            flow=self.opened.net,
            members=self.critics,
            candidates=self.candidates,
            **more,
        )


@register("algo", "qc")
@dataclass(frozen=True, kw_only=True)
class QcConfig(PickConfig):
    """Best of N, with the numbers of `PickConfig`."""

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Qc:
        """A fresh learner."""
        return Qc.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`."""
        return self.fit(PickNet, spec, bf16)


class Pick(OnFlow):
    """Critics as in `Chunked`; they travel with the actor, since they choose."""

    losses = tuple(name for name in OnFlow.losses if name != "next_action")  # PA-RL's has gradients
    net: PickNet  # type: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, config: PickConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.actor["critic"] = self.critic

    @property
    def _followed(self) -> tuple[str, ...]:
        """As in `Agent`; where the slow encoder drives, so do the critics that learned with it."""
        return (*super()._followed, *(["critic"] if "encoder" in self.slow else []))

    def next_action(self, moment: Moment) -> Tensor:
        """c(s'), the chunk that would be chosen in s'."""
        return self.net.propose(
            moment.features,
            moment.base,
            self.actor,
            deterministic=True,
            generator=self.generator,
        )

    def _tensors(self) -> dict[str, Tensor]:
        tensors = super()._tensors()
        del tensors["actor/critic"]  # the same as "critic"
        return tensors


class Qc(Pick):
    """`Pick` without a policy to learn: the base alone proposes."""

    def actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        """Return no metrics: there is no policy to improve."""
        return {}


@dataclass(frozen=True, kw_only=True)
class PickNet(FlowHead):
    """Chooses among samples of the base; `tensors` hold the critics that choose, too.

    members: of the ensemble of critics; candidates: samples of the base.
    """

    members: int
    candidates: int

    @property
    def critics(self) -> EnsembleMLP:
        """Critics of a chunk in a state, as wide as the policy."""
        sizes = (self.feature_size + self.pose_size, *self.policy.sizes[1:-1], 1)
        return EnsembleMLP(self.members, sizes, self.policy.bf16)

    @property
    def samples(self) -> int:
        """n: as many samples as candidates."""
        return self.candidates

    def init(
        self, generator: torch.Generator, std: float = 1.0, last_scale: float = 0.01
    ) -> dict[str, Tensor]:
        """As `FlowHead.init`, and the critics."""
        own = super().init(generator, std, last_scale)
        return own | {"critic": self.critics.init(generator)}

    def proposals(
        self,
        features: Tensor,
        base: Mapping[str, Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """C(s): the base's samples [B, n, h A]."""
        rows = base["condition"].repeat_interleave(self.candidates, 0)
        chunks = self.decode(rows, base["noise"].reshape(len(rows), -1), tensors)
        return chunks.view(len(features), self.candidates, -1)

    def values(self, features: Tensor, chunks: Tensor, critics: Tensor) -> Tensor:
        """What the critics think of chunks [B, n, h A]: their mean [B, n]."""
        batch, count, _ = chunks.shape
        rows = features.unsqueeze(1).expand(-1, count, -1)
        pair = torch.cat((rows, chunks), -1).flatten(0, 1)
        return self.critics(pair, critics).mean(0).view(batch, count)

    def weighed(self, features: Tensor, chunks: Tensor, critics: Tensor) -> tuple[Tensor, Tensor]:
        """Chunks to choose from, and what the critics think of them: [B, n', h A], [B, n']."""
        return chunks, self.values(features, chunks, critics)

    @torch.no_grad()
    def propose(
        self,
        features: Tensor,
        base: Mapping[str, Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """c(s): the chosen chunk [B, h A]."""
        features = features.detach()
        chunks = self.proposals(
            features, base, tensors, deterministic=deterministic, generator=generator
        )
        chunks, q = self.weighed(features, chunks, tensors["critic"].detach())
        return chunks[torch.arange(len(chunks), device=chunks.device), q.argmax(1)]
