"""Actors that decide the next h actions at once, from scratch or on a base policy.

What the policy decides becomes a chunk [h, A], flattened to [h A]; the gripper is one more number
of each action in it. `ChunkNet` has no base. `BasedChunkNet` shares the decisions with a base: its
tensors hold "share", the probability that the head decides and not the base alone. The share is 0
before any update, so that an evaluation then tests the base. `FlowHead` runs the base itself. What
a head makes of a decision is in the file of its algorithm (`learn.algos`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.nets.actor import ActorNet, Executed
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.flow import FlowNet
from robot_rl.nets.observation import ObservationNet
from robot_rl.spec import BASE_ACTION, Spec

OF_BASE = "base_"  # tensors of a base policy that travels with the head begin so
VELOCITY = OF_BASE + "velocity"  # of a flow: what PA-RL trains


@dataclass(frozen=True, kw_only=True)
class ChunkNet(ActorNet):
    """Decides a chunk; tensors as `ActorNet`'s. chunk: h; action_size: A."""

    chunk: int
    action_size: int

    @classmethod
    def fit(
        cls,
        spec: Spec,
        hidden: tuple[int, ...],
        *,
        chunk: int,
        bf16: bool,
        encoder: EncoderConfig,
        decides: int | None = None,
        sees_more: int = 0,
        **more: Any,
    ) -> Self:
        """Fit one to a run's observation and action.

        decides: numbers of a decision, None = the whole chunk; sees_more: inputs of the policy
        beside the features; more: fields of a subclass.

        Raises:
            SpecError: the observation holds something no network here reads.
        """
        front = ObservationNet.of(spec, encoder, bf16)
        outputs = chunk * spec.action.size if decides is None else decides
        sizes = (front.feature_size + sees_more, *hidden, 2 * outputs)
        return cls(
            keys=front.keys,
            encoder=front.encoder,
            state_size=front.state_size,
            policy=EnsembleMLP(1, sizes, bf16),
            gripper=None,
            chunk=chunk,
            action_size=spec.action.size,
            **more,
        )

    @property
    def pose_size(self) -> int:
        """Numbers in a chunk, h A."""
        return self.chunk * self.action_size

    def executed(self, batch: Executed) -> NDArray[np.float32]:
        """Chunks [B, h A], zeros beyond their end."""
        assert batch.chunk is not None
        return batch.chunk.reshape(len(batch.chunk), -1)

    def propose(
        self,
        features: Tensor,
        base: Mapping[str, Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """The chunk [B, h A] of the head."""
        decision = self.decision(
            features, tensors["policy"], deterministic=deterministic, generator=generator
        )
        return self.compose(decision, base, tensors)

    @torch.no_grad()
    def act(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None = None,
        gripper_epsilon: float = 0.0,
    ) -> Tensor:
        """Actions [B, h, A] of the next steps."""
        features = self.look(observation, tensors)
        chunk = self.propose(
            features, {}, tensors, deterministic=deterministic, generator=generator
        )
        return chunk.view(-1, self.chunk, self.action_size)


@dataclass(frozen=True, kw_only=True)
class BasedChunkNet(ChunkNet):
    """Decides a chunk on a base; `ActorNet`'s tensors, and "share"."""

    def init(
        self, generator: torch.Generator, std: float = 1.0, last_scale: float = 0.01
    ) -> dict[str, Tensor]:
        """As `ActorNet.init`; the base drives at first."""
        return super().init(generator, std, last_scale) | {"share": torch.zeros(())}

    def base(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """plan [B, h A]: what the base would do in the next h steps, as recorded."""
        plan = torch.as_tensor(observation[BASE_ACTION])[:, : self.chunk]
        return {"plan": plan.flatten(1).to(tensors["mean"].device)}

    def base_chunk(self, base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        """The chunk [B, h A] of the base alone."""
        return base["plan"].clamp(-1.0, 1.0)

    @torch.no_grad()
    def act(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None = None,
        gripper_epsilon: float = 0.0,
    ) -> Tensor:
        """Actions [B, h, A] of the next steps."""
        # on a GPU, reading the share would wait: compute both chunks instead
        share = float(tensors["share"]) if tensors["share"].device.type == "cpu" else 0.5
        base = self.base(observation, tensors, generator)
        if share <= 0.0:
            return self.base_chunk(base, tensors).view(-1, self.chunk, self.action_size)
        features = self.look(observation, tensors)
        chunk = self.propose(
            features, base, tensors, deterministic=deterministic, generator=generator
        )
        if share < 1.0:
            drawn = torch.rand(len(chunk), 1, generator=generator).to(chunk.device)
            head = drawn < tensors["share"]
            chunk = torch.where(head, chunk, self.base_chunk(base, tensors))
        return chunk.view(-1, self.chunk, self.action_size)


@dataclass(frozen=True, kw_only=True)
class FlowHead(BasedChunkNet):
    """A head that runs the base itself; the base's tensors travel with it, as "base_..."."""

    flow: FlowNet

    @property
    def samples(self) -> int:
        """n, how many times the base is sampled for one decision."""
        return 1

    def init(
        self, generator: torch.Generator, std: float = 1.0, last_scale: float = 0.01
    ) -> dict[str, Tensor]:
        """As `BasedChunkNet.init`, and room for the base."""
        own = super().init(generator, std, last_scale)
        return own | {
            OF_BASE + k: torch.zeros_like(v) for k, v in self.flow.init(generator).items()
        }

    def base(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """condition [B, C] of the flow, and noise [B, n h' A] for n samples; h': its chunk."""
        frozen = {k[len(OF_BASE) :]: v for k, v in tensors.items() if k.startswith(OF_BASE)}
        condition = self.flow.condition(observation, frozen).detach()
        size = self.samples * self.flow.chunk * self.flow.action_size
        noise = torch.randn((len(condition), size), generator=generator)
        return {"condition": condition, "noise": noise.to(condition.device)}

    def decode(self, condition: Tensor, noise: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The first h actions [B, h A] that noise [B, h' A] becomes."""
        noise = noise.view(-1, *self.flow.noise_shape)
        chunk = self.flow.decode(condition, noise, tensors[VELOCITY])
        return chunk[:, : self.chunk].flatten(1)

    def base_chunk(self, base: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        """The base's first sample."""
        size = self.flow.chunk * self.flow.action_size
        return self.decode(base["condition"], base["noise"][:, :size], tensors)


def spread(decision: Tensor, knots: int, chunk: int, action_size: int) -> Tensor:
    """Numbers at `knots` moments [B, knots A], linear in between: [B, chunk A]."""
    at_knots = decision.view(-1, knots, action_size)
    place = torch.linspace(0.0, knots - 1.0, chunk, device=decision.device)
    low = place.floor().long()
    high = (low + 1).clamp_max(knots - 1)
    share = (place - low).view(1, -1, 1)
    return torch.lerp(at_knots[:, low], at_knots[:, high], share).flatten(1)
