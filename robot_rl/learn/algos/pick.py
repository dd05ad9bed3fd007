"""Heads that choose among what the base proposes: best of N, edits, steps uphill, an own actor.

Papers: Q-chunking's best-of-N (arXiv 2507.07969), PA-RL (arXiv 2412.06685), EXPO (arXiv
2507.07986), IBRL (arXiv 2311.02198). One rule chooses the chunk when acting and in the target
(`nets.chunk.PickNet`):

    C(s) = { a_1 .. a_N ~ base(s) }                                            best of N
           + { clip(a_i + edit u_i), u_i ~ pi(s, a_i) }                        EXPO, `edit` > 0
           + { u ~ pi(s) }                                                     IBRL, `own_actor`
           + { the best `climbers` of them after `climbs` steps up Q }         PA-RL, `climbs` > 0
    c(s) = argmax Q(s, c), c in C(s); in practice drawn from softmax(Q / choice_temperature)

    critic_loss    that of `chunked` with c' = c(s')
    actor_loss     SAC's: of EXPO's edits a = clip(a_1 + edit u), u ~ pi(s, a_1), of IBRL's a = u
    distill_loss   PA-RL: the base's own loss on (s, c(s)), and on what people did; with
                   `distill_rate` > 0 a copy of the base, the student, learns from it, and becomes
                   the base every `distill_period_updates`

A base that learned at once from what it proposes itself would have nothing to hold on to: it drifts
away within some hundred updates, whatever the critics say (docs/bases.md). PA-RL proposes from
stored candidates, which are drawn again after thousands of updates, for the same effect.

Deviations. PA-RL: steps uphill have a fixed size (the gradient's sign), as Q's scale differs from
task to task; critics begin untrained (there: with Cal-QL), but for `learner.pretrain_updates`.
EXPO: the base does not learn. IBRL: chunks instead of actions, SAC instead of TD3. All: the mean of
all critics chooses, the lowest of a random subset of slow ones is the target. Metrics: those of
`hil_serl`, and distill/loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.base import Adam
from robot_rl.learn.algos.chunked import Chunked, OnFlowConfig, adopt
from robot_rl.learn.algos.hil_serl import Transitions
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import VELOCITY, PickNet
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.spec import Spec


@register("algo", "pick")
@dataclass(frozen=True, kw_only=True)
class PickConfig(OnFlowConfig):
    """Best of N; `configs/algo/pa_rl.yaml` and `expo.yaml` add to it."""

    candidates: int = 8  # N; PA-RL and Q-chunking: 32, EXPO: 8
    climbs: int = 0  # PA-RL: 10
    climb_step: float = 0.01  # of the action's range of 2
    climbers: int = 2  # PA-RL: 10 of 32
    edit: float = 0.0  # EXPO: 0.2
    own_actor: bool = False  # IBRL: an actor that does not see the base proposes, too
    choice_temperature: float = 0.0
    distill_rate: float = 0.0  # learning rate of the student; 0 = the base stays as it is
    distill_period_updates: int = 4000  # after which it becomes the base, and goes on from there

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.distill_period_updates < 1:
            raise ValueError("distill_period_updates must be at least 1")
        if min(self.candidates, self.climbers) < 1 or self.climbs < 0:
            raise ValueError("candidates and climbers must be at least 1, climbs >= 0")
        sizes = (self.climb_step, self.edit, self.choice_temperature, self.distill_rate)
        if min(sizes) < 0.0:
            raise ValueError("climb_step, edit, choice_temperature, distill_rate must be >= 0")
        if self.residual or self.value_bins:
            raise ValueError("a head that picks needs residual=0 and value_bins=0")
        if self.edit and self.own_actor:
            raise ValueError("the policy either edits or proposes: edit=0, or own_actor=false")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Pick:
        """A fresh learner."""
        return Pick.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `HilSerlConfig.net`."""
        size = self.chunk * spec.action.size
        parts = self.front(spec, bf16, size, inputs=0 if self.own_actor else size)
        seen = parts["policy"].sizes[0] + (size if self.own_actor else 0)
        judged = (seen, *self.hidden, 1)
        return PickNet(
            **parts,
            flow=self.opened.net,
            critics=EnsembleMLP(self.critics, judged, self.activation, bf16),
            candidates=self.candidates,
            climbs=self.climbs,
            climb_step=self.climb_step,
            climbers=self.climbers,
            edit=self.edit,
            own_actor=self.own_actor,
            choice_temperature=self.choice_temperature,
        )


class Pick(Chunked):
    """Critics as in `Chunked`."""

    losses = tuple(name for name in Chunked.losses if name != "_next_action")  # it takes gradients
    follows: ClassVar = {**Chunked.follows, "student": VELOCITY}
    config: PickConfig  # type: ignore[reportIncompatibleVariableOverride]
    net: PickNet  # type: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, config: PickConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        adopt(self.actor, config.opened)
        self.actor["critic"] = self.critic
        self.student: Tensor | None = None
        if config.distill_rate:
            self.student = self.actor[VELOCITY].clone().requires_grad_()
            self.distill_optimizer = Adam({"student": self.student}, config.distill_rate)

    def _next_action(self, features: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        chunk = self.net.pick(features, base, self.actor, greedy=True, generator=self.generator)
        return chunk, torch.zeros_like(chunk[:, 0])

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The edit of the base's first sample, or the chunk, that the critics like best."""
        seen, plain, reach = batch.state, torch.zeros((), device=self.device), 1.0
        if not self.config.own_actor:
            with torch.no_grad():
                plain, reach = self.net.plain(batch.base, self.actor), self.config.edit
            seen = torch.cat((batch.state, plain), -1)
        decision, log_prob = self._draw(*self.net.distribution(seen, self.actor["policy"]))
        chunk = (plain + reach * decision).clamp(-1.0, 1.0)
        worth = self._q(batch.state, chunk, batch.base, self.critic.detach()).mean(0)
        loss = self._soft(worth, log_prob)
        return loss, log_prob, {"actor/loss": loss, "actor/entropy": -log_prob.mean()}

    def distill_loss(self, batch: Transitions) -> Tensor:
        """The flow's loss of the student on the choices in s, and on what people did there."""
        net, flow = self.net, self.net.flow
        chosen = net.pick(
            batch.state, batch.base, self.actor, greedy=True, generator=self.generator
        )
        human = batch.human.unsqueeze(-1)
        target = torch.where(human, batch.action, chosen).view(-1, net.chunk, net.action_size)
        shape = (len(target), flow.chunk, flow.action_size)
        chunk = torch.zeros(shape, device=self.device)
        chunk[:, : net.chunk] = target
        valid = (torch.arange(flow.chunk, device=self.device) < net.chunk).expand(shape[:2])
        condition, _ = net.split(batch.base)
        noise = torch.randn(shape, generator=self.generator).to(self.device)
        t = torch.rand(len(target), generator=self.generator).to(self.device)
        assert self.student is not None
        return flow.loss(condition, self.student, chunk=chunk, valid=valid, noise=noise, t=t)

    def _actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        learns = self.config.edit or self.config.own_actor
        metrics = super()._actor_step(batch) if learns else {}
        if self.student is not None:
            over = self.updates.remainder(self.config.distill_period_updates) == 0
            base = self.actor[VELOCITY]
            base.copy_(torch.where(over, self.student.detach(), base))
            loss = self.distill_loss(batch)
            self.distill_optimizer.step(loss)
            metrics |= {"distill/loss": loss}
        return metrics

    def _tensors(self) -> dict[str, Tensor]:
        tensors = super()._tensors()
        del tensors["actor/critic"]  # the same as "critic"
        if self.student is not None:
            state = self.distill_optimizer.state_dict()
            tensors |= {f"distill_optimizer/{k}": v for k, v in state.items()}
            tensors["student"] = self.student
        return tensors
