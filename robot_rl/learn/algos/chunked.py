"""Actor-critic over chunks: the policy decides h actions at once, the critics judge all of them.

Papers: Q-chunking (arXiv 2507.07969), Policy Decorator (arXiv 2412.13630), RL Token (RLT, arXiv
2604.23073). The rest is as in `hil_serl`, with a chunk c = a_{t:t+h} in the place of the action:

    critic_loss   y = R_h + gamma^h m min_{i in S} Q'_i(s_{t+h}, c')
                  L = mean_i mean_B (Q_i(s_t, c) - y)^2,  R_h = sum_{k < h} gamma^k r_{t+k}

c is what was really carried out, so the h-step backup is unbiased, and each of the h steps may
begin a transition, whoever drove. On a base policy (`residual` > 0) the decision is a correction of
its whole plan, which is recorded with each frame: `base.ahead` must be at least `chunk`.

With `reference_weight` w > 0 the policy decides whole chunks with the base's plan c_b before its
eyes (RLT), and is held near it, or near what a person did instead:

    actor_loss    SAC's + w mean_B |c~ - c_b|^2; in `reference_dropout` of the rows c_b is hidden

Where the driver changed, or the episode ended, within h steps, the transition ends there, too
(`View`); the rest of c is filled with actions of other rows. After a terminal step that is exact:
what would have followed changes nothing. (Q-chunking drops such rows; with a sparse reward it is
they that hold it.)

Deviations from Policy Decorator: decisions begin at zero, so that the base drives at first,
exactly; its progressive exploration is `ramp_updates`. The gripper is one more number of the chunk.
From RLT: no token of a VLA's features, the observation itself; SAC's temperature; transitions begin
at every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError
from robot_rl.learn.algos.base import Sampler
from robot_rl.learn.algos.hil_serl import HilSerl, HilSerlConfig, Transitions
from robot_rl.learn.replay import Batch, View
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import OF_BASE, ChunkNet
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.nets.observation import ObservationNet
from robot_rl.policy.base.own import FlowBase, FlowBaseConfig
from robot_rl.policy.base.spec import BaseConfig
from robot_rl.spec import BASE_ACTION, Spec
from robot_rl.types import Observation


@register("algo", "chunked")
@dataclass(frozen=True, kw_only=True)
class ChunkedConfig(HilSerlConfig):
    """HIL-SERL's numbers, and a chunk."""

    chunk: int = 4  # h, as long as what is carried out; Q-chunking: 5
    reference_weight: float = 0.0  # of the distance to the base's plan; > 0 = RLT (residual 0)
    reference_dropout: float = 0.5  # share of rows in which the policy must do without seeing it
    ramp_updates: int = 0  # until the head decides always and the base alone never (on a base)

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.chunk < 2 or self.n_step != 1:
            raise ValueError("chunk must be at least 2; returns span a chunk, so n_step stays 1")
        if self.ramp_updates < 0:
            raise ValueError(f"ramp_updates must not be negative, got {self.ramp_updates}")
        if self.reference_weight < 0.0 or not 0.0 <= self.reference_dropout <= 1.0:
            raise ValueError("reference_weight must be >= 0, reference_dropout lie in [0, 1]")
        if self.residual and self.reference_weight:
            raise ValueError("residual corrects the base's plan, reference_weight replaces it")

    @property
    def view(self) -> View:
        """Chunks, and the returns over them."""
        return View(n_step=self.chunk, chunk=self.chunk, gamma=self.gamma)

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Chunked:
        """A fresh learner."""
        return Chunked.init(self, spec, seed, device)

    def front(self, spec: Spec, bf16: bool, outputs: int, inputs: int = 0) -> dict[str, Any]:
        """What every net of a chunk is made of: the policy has 2 `outputs` numbers, and sees the
        features and `inputs` more."""
        front = ObservationNet.of(spec, self.encoder, bf16)
        sizes = (front.feature_size + inputs, *self.hidden, 2 * outputs)
        return {
            "keys": front.keys,
            "encoder": front.encoder,
            "state_size": front.state_size,
            "policy": EnsembleMLP(1, sizes, self.activation, bf16),
            "gripper": None,
            "chunk": self.chunk,
            "action_size": spec.action.size,
        }

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `HilSerlConfig.net`."""
        ahead = spec.observation[BASE_ACTION].shape[0] if BASE_ACTION in spec.observation else 0
        reference = self.reference_weight > 0.0
        if (self.residual or reference) and ahead < self.chunk:
            raise ConfigError(
                "a head that builds on the base's plan needs it for the whole chunk",
                expected=f"base.ahead of at least algo.chunk={self.chunk}",
                got=f"{ahead}" if ahead else "no base",
                fix=f"base=flow base.run=RUN base.ahead={self.chunk}",
            )
        size = self.chunk * spec.action.size
        parts = self.front(spec, bf16, size)
        return ChunkNet(**parts, residual=self.residual, reference=reference)


class Chunked(HilSerl):
    """As `HilSerl`, for chunks."""

    config: ChunkedConfig
    net: ChunkNet

    def __init__(
        self, config: ChunkedConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        sizes = {k: math.prod(spec.observation[k].shape) for k in self.net.keys}
        before = sum(v for k, v in sizes.items() if k < BASE_ACTION)  # the keys are sorted
        self._plan = slice(before, before + sizes.get(BASE_ACTION, 0))  # its place in the state

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """As in `HilSerl`."""
        metrics = super().update(sample)
        if self.net.has_base:
            share = self.updates / max(self.config.ramp_updates, 1)
            self.actor["share"].copy_(share.clamp_max(1.0))
        return metrics

    def act(self, observation: Observation, deterministic: bool) -> Tensor:
        """Actions [B, A], the first of their chunks."""
        return super().act(observation, deterministic)[:, 0]

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """SAC's; RLT's with a reference."""
        weight = self.config.reference_weight
        if not weight:
            return super().actor_loss(batch)
        hidden = torch.rand(len(batch.state), 1, generator=self.generator).to(self.device)
        plan = torch.zeros(batch.state.shape[1], dtype=torch.bool, device=self.device)
        plan[self._plan] = True
        blind = (hidden < self.config.reference_dropout) & plan
        seen = batch.state.masked_fill(blind, 0.0)
        decision, log_prob = self._draw(*self.net.distribution(seen, self.actor["policy"]))
        worth = self._q(batch.state, decision, batch.base, self.critic.detach()).mean(0)
        reference = torch.where(batch.human.unsqueeze(-1), batch.action, batch.base)
        far = (decision - reference).square().mean()
        loss = self._soft(worth, log_prob) + weight * far
        metrics = {"actor/entropy": -log_prob.mean(), "actor/reference_loss": far}
        return loss, log_prob, {"actor/loss": loss} | metrics

    def _executed(self, batch: Batch) -> Tensor:
        """Chunks [B, h A] as carried out; see the module for what is beyond their end."""
        assert batch.chunk is not None and batch.valid is not None
        chunk, valid = self._tensor(batch.chunk), self._tensor(batch.valid).unsqueeze(-1)
        other = torch.randperm(len(chunk), generator=self.generator).to(self.device)
        return torch.where(valid, chunk, chunk[other]).flatten(1)


@dataclass(frozen=True, kw_only=True)
class OnFlowConfig(ChunkedConfig):
    """Of a head that runs the base itself, in the learner too: the base has to be `base=flow`."""

    ramp_updates: int = 1000
    flow: FlowBase | None = field(default=None, init=False, repr=False, compare=False)

    def on(self, base: BaseConfig | None, spec: Spec, seed: int) -> Self:
        """The same with the base that it runs.

        Raises:
            ConfigError: no base, one that this process cannot look into, or one that does not fit.
            CheckpointError: the base was made for something else.
        """
        if not isinstance(base, FlowBaseConfig):
            raise ConfigError(
                "this head runs the base policy in the learner",
                expected="a base that lies here: base=flow base.run=RUN (a run of algo=bc_flow)",
                got="no base" if base is None else type(base).__name__,
                fix="name one; or correct a served base: algo=resfit, algo=policy_decorator",
            )
        return self.running(base.open(spec, seed))

    def running(self, base: FlowBase) -> Self:
        """The same with a base that is open.

        Raises:
            ConfigError: its chunks are too short.
        """
        if base.net.chunk < self.chunk:
            raise ConfigError(
                "the base's chunks are shorter than the head's",
                expected=f"algo.chunk of at most {base.net.chunk}",
                got=f"algo.chunk={self.chunk}",
                fix="decide fewer actions at once, or train the base with a longer algo.chunk",
            )
        bound = replace(self)
        object.__setattr__(bound, "flow", base)
        return bound

    @property
    def opened(self) -> FlowBase:
        """The base; `on` brings it."""
        assert self.flow is not None, "OnFlowConfig.on has not been called"
        return self.flow


def adopt(actor: Mapping[str, Tensor], base: FlowBase) -> None:
    """Put a base into the tensors of the head that runs it."""
    with torch.no_grad():
        for name, tensor in base.tensors.items():
            actor[OF_BASE + name].copy_(tensor)
