"""Cal-QL: conservative critics for offline data, calibrated so that going online does not hurt.

Papers: CQL (arXiv 2006.04779), Cal-QL (arXiv 2303.05479). The rest is as in `hil_serl`.

    critic_loss   SAC's, plus  w mean_i mean_B [ log sum_k exp( max(Q_i(s, a_k), G) - log p_k )
                                                 - Q_i(s, a) ]
                  a_k: K uniform actions, K of pi(s), K of pi(s'); p_k their densities;
                  G: discounted rewards from s on; an episode that was cut off goes on for ever
                  with its last reward, if that is negative (as the authors' code does), else at 0

With a gripper its critic Q_g has the same term, exactly, over the three commands:

    gripper_loss  HIL-SERL's, plus  w mean_B [ log sum_k exp max(Q_g(s, k), G) - Q_g(s, k_data) ]

Without `calibrate` (no max with G) it is CQL. After offline training, WSRL (arXiv 2412.07762) goes
on with plain SAC and without the offline data: docs/algorithms.md has the commands.

w has the scale of the returns: where all samples count alike, Q of a recorded action settles w / 2
above its target, and this excess enters the next target. Adroit's returns are in the hundreds.

Deviations: the weight w is fixed (no Lagrange multiplier); the gripper, which the papers do not
have. Metrics: those of `hil_serl`, critic/conservative and gripper/conservative (the added terms),
critic/calibrated (share of Q below G).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.hil_serl import HilSerl, HilSerlConfig
from robot_rl.learn.transitions import Moment, Transitions
from robot_rl.nets.actor import gripper_index
from robot_rl.spec import Spec


@register("algo", "calql")
@dataclass(frozen=True, kw_only=True)
class CalQlConfig(HilSerlConfig):
    """Cal-QL's numbers where the task does not decide."""

    conservative_weight: float = 1.0  # w; Adroit: 1, antmaze: 5; returns in [0, 1] need 0.05
    conservative_actions: int = 4  # K of each kind; the paper: 10
    calibrate: bool = True

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.conservative_weight < 0.0 or self.conservative_actions < 1:
            raise ValueError("conservative_weight must be >= 0, conservative_actions at least 1")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> CalQl:
        """A fresh learner."""
        return CalQl.init(self, spec, seed, device)


class CalQl(HilSerl):
    """Actor, temperature, encoder, gripper and data as in `HilSerl`."""

    def critic_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """SAC's loss and the conservative term."""
        loss, metrics = super().critic_loss(batch)
        config, count = self.config, self.config.conservative_actions
        actions, log_probs = self._proposals(batch, count)
        size, features = len(batch.reward), batch.now.features
        states = Moment(features.repeat_interleave(3 * count, 0), {}, {})
        q = self.q(states, actions, self.critic).view(config.critics, size, 3 * count)
        below = torch.zeros((), device=self.device)
        if config.calibrate:
            bound = batch.return_to_go.view(1, size, 1)
            below = (q < bound).float().mean()
            q = torch.maximum(q, bound)
        soft = torch.logsumexp(q - log_probs.view(1, size, 3 * count), -1) - math.log(3 * count)
        term = soft.mean() - metrics["critic/q_mean"]  # of the recorded actions
        metrics |= {"critic/conservative": term, "critic/calibrated": below}
        return loss + config.conservative_weight * term, metrics

    def gripper_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Double DQN and the conservative term."""
        loss, metrics = super().gripper_loss(batch)
        assert self.net.gripper is not None
        q = self.net.gripper(batch.now.features, self.actor["gripper"])[0]
        bounded = torch.maximum(q, batch.return_to_go[:, None]) if self.config.calibrate else q
        taken = gripper_index(batch.action[:, -1])[:, None]
        term = (torch.logsumexp(bounded, -1) - q.gather(-1, taken).squeeze(-1)).mean()
        loss = loss + self.config.conservative_weight * term
        return loss, metrics | {"gripper/loss": loss, "gripper/conservative": term}

    @torch.no_grad()
    def _proposals(self, batch: Transitions, count: int) -> tuple[Tensor, Tensor]:
        """Actions [B * 3K, pose] and their log densities [B, 3K], state by state."""
        pose, size = self.net.pose_size, len(batch.reward)
        drawn = [self.draw(moment.features, count) for moment in (batch.now, batch.then)]
        uniform = 2.0 * torch.rand((size * count, pose), generator=self.generator) - 1.0
        density = torch.full((size * count,), -pose * math.log(2.0))
        drawn.append((uniform.to(self.device), density.to(self.device)))
        actions = torch.cat([a.view(size, count, pose) for a, _ in drawn], 1)
        log_probs = torch.cat([p.view(size, count) for _, p in drawn], 1)
        return actions.flatten(0, 1), log_probs
