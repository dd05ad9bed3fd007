"""TD3 and, from cameras, DrQ-v2: a deterministic policy, fixed exploration noise, no temperature.

Papers: TD3 (arXiv 1802.09477), DrQ-v2 (arXiv 2107.09645). The rest is as in `hil_serl`.

    target       y = r + gamma^n m min_i Q'_i(s', a'), a' = clip(pi(s') + clip(eps, +-c), +-1)
    actor_loss   L = -mean_B mean_i Q_i(s, pi(s)),  pi(s) = tanh(mean(s))

DrQ-v2 is this with `n_step: 3` and cameras (`configs/algo/drq_v2.yaml`).

Deviations: a' comes from the policy itself, not from a slow copy; the mean over critics judges the
policy (TD3: the first, DrQ-v2: the lowest); exploration noise is constant and added before the
squash, as the actor on the robot does it; LayerNorm in the critics. Metrics: as `hil_serl`, without
entropy and temperature.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.hil_serl import HilSerl, HilSerlConfig
from robot_rl.learn.transitions import Moment, Transitions
from robot_rl.spec import Spec


@register("algo", "td3")
@dataclass(frozen=True, kw_only=True)
class Td3Config(HilSerlConfig):
    """TD3's numbers; demonstrations are used as in RLPD unless `demo_fraction` is 0."""

    std_init: float = 0.1  # of the exploration noise; it stays what it is
    target_noise: float = 0.2
    target_noise_clip: float = 0.5

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if min(self.target_noise, self.target_noise_clip) < 0.0:
            raise ValueError("target_noise and target_noise_clip must not be negative")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Td3:
        """A fresh learner."""
        return Td3.init(self, spec, seed, device)


class Td3(HilSerl):
    """Critics, encoder, gripper and data as in `HilSerl`."""

    def next_action(self, moment: Moment) -> Tensor:
        """Return a' [B, pose]: the policy's mean plus clipped noise."""
        config = self.config
        mean, _ = self.net.distribution(moment.features, self.actor["policy"])
        noise = self._normal(mean.shape) * config.target_noise
        noise = noise.clamp(-config.target_noise_clip, config.target_noise_clip)
        decision = (torch.tanh(mean) + noise).clamp(-1.0, 1.0)
        return self.net.compose(decision, moment.base, self.actor)

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return (loss, zeros [B], metrics); the critics' parameters take no gradient."""
        mean, _ = self.net.distribution(batch.now.features, self.actor["policy"])
        action = self.net.compose(torch.tanh(mean), batch.now.base, self.actor)
        loss = -self.q(batch.now, action, self.critic.detach()).mean()
        return loss, torch.zeros_like(mean[:, 0]), {"actor/loss": loss}

    def temperature_loss(self, log_prob: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return 0: there is no such loss here, and the temperature stays as it is."""
        return 0.0 * self.temperature, {}
