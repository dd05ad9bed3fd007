"""PA-RL: choose among the base's samples, improve the best of them, and teach the base.

Paper: PA-RL (arXiv 2412.06685). `qc`, whose candidates

    C(s) = { c_1 .. c_N ~ base(s) } + { the best `climbers` of them after `climbs` steps up Q }

and a copy of the base, the student, that learns from the choices and becomes the base every
`distill_period_updates`:

    distill_loss   the base's own loss on (s, c(s)), and on what people did there

A base that learned at once from its own proposals would drift away within some hundred updates,
whatever the critics say (docs/bases.md). PA-RL avoids this with stored candidates, which are drawn
again after thousands of updates.

Deviations: steps uphill have a fixed size (the gradient's sign), as Q's scale differs from task to
task; critics begin untrained, unless `learner.pretrain_updates` is set (PA-RL: Cal-QL trains them
first). Metrics: those of `qc`, distill/loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.adam import Adam
from robot_rl.learn.algos.qc import PickConfig, PickNet, Qc
from robot_rl.learn.transitions import Transitions
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.chunk import VELOCITY
from robot_rl.spec import Spec


@register("algo", "pa_rl")
@dataclass(frozen=True, kw_only=True)
class PaRlConfig(PickConfig):
    """How candidates are improved, and how the base learns."""

    climbs: int = 1  # paper: 10; each costs a pass through the critics and back within the tick
    climb_step: float = 0.02  # in units of an action, whose range is 2
    climbers: int = 2  # PA-RL: 10 of 32
    distill_rate: float = 1e-4  # learning rate of the student; 0 = the base stays as it is
    distill_period_updates: int = 4000  # after which the student becomes the base, and learns on

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if min(self.distill_period_updates, self.climbers) < 1 or self.climbs < 0:
            raise ValueError("distill_period_updates and climbers must be >= 1, climbs >= 0")
        if min(self.climb_step, self.distill_rate) < 0.0:
            raise ValueError("climb_step and distill_rate must not be negative")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> PaRl:
        """A fresh learner."""
        return PaRl.init(self, spec, seed, device)

    def net(self, spec: Spec, bf16: bool) -> ActorNet:
        """See `ActorCriticConfig.net`."""
        return self.fit(
            ClimbNet,
            spec,
            bf16,
            climbs=self.climbs,
            climb_step=self.climb_step,
            climbers=self.climbers,
        )


class PaRl(Qc):
    """`Qc`, and a student."""

    def __init__(
        self, config: PaRlConfig, spec: Spec, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        super().__init__(config, spec, generator, device)
        self.student: Tensor | None = None
        if config.distill_rate:
            self.student = self.actor[VELOCITY].clone().requires_grad_()
            self.distill_optimizer = Adam({"student": self.student}, config.distill_rate)

    def actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        """Do one step of the student, which becomes the base every `distill_period_updates`."""
        if self.student is None:
            return {}
        over = self.updates.remainder(self.config.distill_period_updates) == 0
        base = self.actor[VELOCITY]
        base.copy_(torch.where(over, self.student.detach(), base))
        loss = self.distill_loss(batch)
        self.distill_optimizer.step(loss)
        return {"distill/loss": loss}

    def distill_loss(self, batch: Transitions) -> Tensor:
        """The flow's loss of the student on the choices in s, and on what people did there."""
        net, flow, now = self.net, self.net.flow, batch.now
        chosen = self.next_action(now)
        assert batch.valid is not None
        done = (batch.human.unsqueeze(-1) & batch.valid).repeat_interleave(net.action_size, 1)
        target = torch.where(done, batch.action, chosen).view(-1, net.chunk, net.action_size)
        shape = (len(target), flow.chunk, flow.action_size)
        chunk = torch.zeros(shape, device=self.device)
        chunk[:, : net.chunk] = target
        valid = (torch.arange(flow.chunk, device=self.device) < net.chunk).expand(shape[:2])
        noise = self._normal(shape)
        t = torch.rand(len(target), generator=self.generator).to(self.device)
        condition, student = now.base["condition"], self.student
        assert student is not None
        return flow.loss(condition, student, chunk=chunk, valid=valid, noise=noise, t=t)

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """As in `Agent`; a student that the state lacks begins as the base."""
        base = f"actor/{VELOCITY}"
        begins = {"student": state[base]} if base in state else {}
        super().start_from(begins | dict(state))

    def _tensors(self) -> dict[str, Tensor]:
        tensors = super()._tensors()
        if self.student is not None:
            state = self.distill_optimizer.state_dict()
            tensors |= {f"distill_optimizer/{k}": v for k, v in state.items()}
            tensors["student"] = self.student
        return tensors


@dataclass(frozen=True, kw_only=True)
class ClimbNet(PickNet):
    """Chooses among samples of the base and steps uphill from the best of them.

    climbs, climb_step: gradient steps that the best `climbers` make, and their size.
    """

    climbs: int
    climb_step: float
    climbers: int

    def weighed(self, features: Tensor, chunks: Tensor, critics: Tensor) -> tuple[Tensor, Tensor]:
        """Chunks, and the best of them moved uphill; values: [B, n + climbers, h A], [B, ...]."""
        if not self.climbs:
            return super().weighed(features, chunks, critics)
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
