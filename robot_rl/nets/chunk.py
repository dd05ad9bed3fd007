"""Actors that decide the next h actions at once, most of them on a base policy.

What the policy decides, u in [-1, 1]^d, becomes a chunk [h, A], the gripper one more number in it:

    ChunkNet   u itself, or clip(a_base + residual u): the base's plan as recorded with the frame;
               with `reference` it is u, and the plan is only something that the policy sees
    SteerNet   what the base samples from the noise reach u (DSRL), or from its code z + reach u
               (ZPRL)
    PickNet    the best of several samples of the base, after a few steps uphill (PA-RL), or of
               those and their edits a + edit u(s, a) (EXPO), or of those and u itself (IBRL)

With a base the tensors hold "share": the probability that the head decides and not the base alone.
It is 0 before any update, so an evaluation then is the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.nets.actor import ActorNet, Executed
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.flow import FlowNet
from robot_rl.spec import BASE_ACTION

OF_BASE = "base_"  # tensors of a base policy that travels with the head begin so
VELOCITY = OF_BASE + "velocity"  # of a flow: what PA-RL teaches


@dataclass(frozen=True, kw_only=True)
class ChunkNet(ActorNet):
    """Decides a chunk; `ActorNet`'s tensors, and "share" on a base. chunk: h; action_size: A;
    reference: see the module."""

    chunk: int
    action_size: int
    reference: bool = False

    @property
    def pose_size(self) -> int:
        """Numbers in a chunk."""
        return self.chunk * self.action_size

    def executed(self, batch: Executed) -> NDArray[np.float32]:
        """Chunks [B, h A], zeros beyond their end."""
        assert batch.chunk is not None
        return batch.chunk.reshape(len(batch.chunk), -1)

    @property
    def has_base(self) -> bool:
        """Whether a base proposes."""
        return self.residual > 0.0 or self.reference

    def init(self, generator: torch.Generator, std: float = 1.0) -> dict[str, Tensor]:
        """As `ActorNet.init`; the base drives at first."""
        share = {"share": torch.zeros(())} if self.has_base else {}
        return super().init(generator, std) | share

    def base(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """What the base would do in the next h steps: [B, h A], or [B, 0]."""
        if not self.has_base:
            return super().base(observation, tensors)
        plan = torch.as_tensor(observation[BASE_ACTION])[:, : self.chunk]
        return plan.flatten(1).to(tensors["mean"].device)

    def plain(self, base: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The chunk [B, h A] of the base alone."""
        return base.clamp(-1.0, 1.0)

    def propose(
        self,
        features: Tensor,
        base: Tensor,
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
        share = 1.0
        if self.has_base:  # a GPU is not waited for: it computes both
            share = float(tensors["share"]) if tensors["share"].device.type == "cpu" else 0.5
        base = self.base(observation, tensors, generator)
        if share <= 0.0:
            return self.plain(base, tensors).view(-1, self.chunk, self.action_size)
        features = self.look(observation, tensors)
        chunk = self.propose(
            features, base, tensors, deterministic=deterministic, generator=generator
        )
        if share < 1.0:
            drawn = torch.rand(len(chunk), 1, generator=generator).to(chunk.device)
            head = drawn < tensors["share"]
            chunk = torch.where(head, chunk, self.plain(base, tensors))
        return chunk.view(-1, self.chunk, self.action_size)


@dataclass(frozen=True, kw_only=True)
class _FlowNetHead(ChunkNet):
    """A head that runs the base itself; the base's tensors travel with it, as "base_...".

    What `base` returns is the condition of the flow and `samples` draws of its noise: [B, C + n h'
    A], h' the base's chunk.
    """

    flow: FlowNet

    @property
    def samples(self) -> int:
        """n."""
        return 1

    @property
    def has_base(self) -> bool:
        """Always."""
        return True

    def init(self, generator: torch.Generator, std: float = 1.0) -> dict[str, Tensor]:
        """As `ChunkNet.init`, and room for the base."""
        own = super().init(generator, std)
        return own | {
            OF_BASE + k: torch.zeros_like(v) for k, v in self.flow.init(generator).items()
        }

    def base(
        self,
        observation: Mapping[str, NDArray | Tensor],
        tensors: Mapping[str, Tensor],
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Condition and noise, see the class."""
        frozen = {k[len(OF_BASE) :]: v for k, v in tensors.items() if k.startswith(OF_BASE)}
        condition = self.flow.condition(observation, frozen).detach()
        size = self.samples * self.flow.chunk * self.flow.action_size
        noise = torch.randn((len(condition), size), generator=generator)
        return torch.cat((condition, noise.to(condition.device)), -1)

    def split(self, base: Tensor) -> tuple[Tensor, Tensor]:
        """Condition [B, C] and noise [B, n h' A]."""
        size = self.flow.condition_size
        return base[:, :size], base[:, size:]

    def decode(self, condition: Tensor, noise: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The first h actions [B, h A] that noise [B, h' A] becomes."""
        noise = noise.view(-1, *self.flow.noise_shape)
        chunk = self.flow.decode(condition, noise, tensors[VELOCITY])
        return chunk[:, : self.chunk].flatten(1)

    def plain(self, base: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The base's first sample."""
        condition, noise = self.split(base)
        size = self.flow.chunk * self.flow.action_size
        return self.decode(condition, noise[:, :size], tensors)


def spread(decision: Tensor, knots: int, chunk: int, action_size: int) -> Tensor:
    """Numbers at `knots` moments [B, knots A], linear in between: [B, chunk A]."""
    at_knots = decision.view(-1, knots, action_size)
    place = torch.linspace(0.0, knots - 1.0, chunk, device=decision.device)
    low = place.floor().long()
    high = (low + 1).clamp_max(knots - 1)
    share = (place - low).view(1, -1, 1)
    return torch.lerp(at_knots[:, low], at_knots[:, high], share).flatten(1)


@dataclass(frozen=True, kw_only=True)
class SteerNet(_FlowNetHead):
    """Decides from which noise, or around which code, the base samples.

    latent: which of the two; reach: of a decision; knots: the noise is decided at so many moments
    of the chunk and interpolated (1 = the same in all of them), 0 = at all of them.
    """

    latent: bool
    reach: float
    knots: int = 0

    def compose(self, decision: Tensor, base: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The chunk [B, h A] that the base makes of a decision."""
        condition, noise = self.split(base)
        if self.latent:
            return self.decode(condition + self.reach * decision, noise, tensors)
        return self.decode(condition, self.reach * self.spread(decision), tensors)

    def spread(self, decision: Tensor) -> Tensor:
        """Noise at the knots [B, knots A] -> noise of the whole chunk [B, h' A]."""
        if not self.knots:
            return decision
        return spread(decision, self.knots, self.flow.chunk, self.action_size)


@dataclass(frozen=True, kw_only=True)
class PickNet(_FlowNetHead):
    """Chooses among samples of the base; `tensors` hold the critics that choose, too.

    critics: of the chunk in a state; candidates: samples of the base; climbs, climb_step: gradient
    steps that the best `climbers` of them make, and their size; edit: how far an edit goes, 0 = no
    edits; own_actor: the policy proposes a chunk of its own instead; choice_temperature: of the
    softmax over values in practice, 0 = always the best.
    """

    critics: EnsembleMLP
    candidates: int
    climbs: int = 0
    climb_step: float = 0.0
    climbers: int = 1
    edit: float = 0.0
    own_actor: bool = False
    choice_temperature: float = 0.0

    @property
    def samples(self) -> int:
        """As many as candidates."""
        return self.candidates

    def init(self, generator: torch.Generator, std: float = 1.0) -> dict[str, Tensor]:
        """As `ChunkNet.init`, the base, and the critics."""
        return super().init(generator, std) | {"critic": self.critics.init(generator)}

    def values(self, features: Tensor, chunks: Tensor, critics: Tensor) -> Tensor:
        """What the critics think of chunks [B, n, h A]: their mean [B, n]."""
        batch, count, _ = chunks.shape
        rows = features.unsqueeze(1).expand(-1, count, -1)
        pair = torch.cat((rows, chunks), -1).flatten(0, 1)
        return self.critics(pair, critics).mean(0).view(batch, count)

    def sampled(self, base: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The base's samples [B, n, h A]."""
        condition, noise = self.split(base)
        rows = condition.repeat_interleave(self.candidates, 0)
        chunks = self.decode(rows, noise.reshape(len(rows), -1), tensors)
        return chunks.view(len(base), self.candidates, -1)

    def edited(
        self,
        features: Tensor,
        chunks: Tensor,
        policy: Tensor,
        generator: torch.Generator | None,
    ) -> Tensor:
        """An edit of each chunk: [B, n, h A] -> [B, n, h A]."""
        rows = features.unsqueeze(1).expand(-1, chunks.shape[1], -1)
        seen = torch.cat((rows, chunks), -1).flatten(0, 1)
        step = self.decision(seen, policy, deterministic=False, generator=generator)
        return (chunks + self.edit * step.view_as(chunks)).clamp(-1.0, 1.0)

    def weighed(self, features: Tensor, chunks: Tensor, critics: Tensor) -> tuple[Tensor, Tensor]:
        """Chunks [B, n, h A] and, with climbs, the best `climbers` of them moved uphill; and what
        the critics think of them: [B, n', h A], [B, n']."""
        if not self.climbs:
            return chunks, self.values(features, chunks, critics)
        q, uphill = self._uphill(features, chunks, critics)
        best = q.topk(min(self.climbers, chunks.shape[1]), 1).indices.unsqueeze(-1)
        best = best.expand(-1, -1, chunks.shape[-1])
        found, uphill = chunks.gather(1, best), uphill.gather(1, best)
        for _ in range(self.climbs - 1):
            found = self._step(found, uphill)
            _, uphill = self._uphill(features, found, critics)
        found = self._step(found, uphill)
        q_found = self.values(features, found, critics)
        return torch.cat((chunks, found), 1), torch.cat((q, q_found), 1)

    def _uphill(self, features: Tensor, chunks: Tensor, critics: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B, n] and their gradients [B, n, h A]."""
        with torch.enable_grad():
            at = chunks.detach().requires_grad_()
            q = self.values(features, at, critics)
            (uphill,) = torch.autograd.grad(q.sum(), at)
        return q.detach(), uphill

    def _step(self, chunks: Tensor, uphill: Tensor) -> Tensor:
        return (chunks + self.climb_step * uphill.sign()).clamp(-1.0, 1.0)

    @torch.no_grad()
    def pick(
        self,
        features: Tensor,
        base: Tensor,
        tensors: Mapping[str, Tensor],
        *,
        greedy: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """The chosen chunk [B, h A]."""
        features, critics = features.detach(), tensors["critic"].detach()
        chunks = self.sampled(base, tensors)
        if self.edit:
            edits = self.edited(features, chunks, tensors["policy"], generator)
            chunks = torch.cat((chunks, edits), 1)
        if self.own_actor:
            own = self.decision(
                features, tensors["policy"], deterministic=greedy, generator=generator
            )
            chunks = torch.cat((chunks, own.unsqueeze(1)), 1)
        chunks, q = self.weighed(features, chunks, critics)
        if greedy or not self.choice_temperature:
            best = q.argmax(1)
        else:
            draw = torch.rand(q.shape, generator=generator).clamp(1e-9, 1.0 - 1e-7).to(q.device)
            best = (q / self.choice_temperature - (-draw.log()).log()).argmax(1)  # Gumbel
        return chunks[torch.arange(len(chunks), device=chunks.device), best]

    def propose(
        self,
        features: Tensor,
        base: Tensor,
        tensors: Mapping[str, Tensor],
        *,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> Tensor:
        """As `pick`."""
        return self.pick(features, base, tensors, greedy=deterministic, generator=generator)
