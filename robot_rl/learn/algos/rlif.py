"""RLIF: learn from when a person takes over, and from nothing else.

Paper: RLIF (arXiv 2311.12996). The learner is `hil_serl` with another reward r and mask m:

    r = -takeover_penalty on the policy's last action before a person took over, 0 elsewhere
    m = 1: success ends an episode, but does not count

While the robot stands still between two drivers (`control.takeover`), the policy does not act.

Deviations: a failure (m = 0) counts as if a person took over after every later step, or it would
end all takeovers and be the best that a policy can do; returns of three steps (`n_step`): with one,
values spread by one step at a time, and 12,000 steps were too few. Metrics: those of `hil_serl`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robot_rl.config.registry import register
from robot_rl.learn.algos.hil_serl import HilSerl, HilSerlConfig
from robot_rl.learn.replay import Batch
from robot_rl.reward.assembly import after_failure
from robot_rl.spec import Spec


@register("algo", "rlif")
@dataclass(frozen=True, kw_only=True)
class RlifConfig(HilSerlConfig):
    """RLPD's critics; no offline data."""

    critics: int = 10
    demo_fraction: float = 0.0
    n_step: int = 3
    takeover_penalty: float = 1.0

    def __post_init__(self) -> None:
        """Check ranges."""
        super().__post_init__()
        if self.takeover_penalty <= 0.0:
            raise ValueError(f"takeover_penalty must be positive, got {self.takeover_penalty}")

    def make(self, spec: Spec, seed: int, device: str = "cpu") -> Rlif:
        """A fresh learner; a `value_range` holds from "always taken over" to "never"."""
        if self.value_range is None:
            return Rlif.init(self, spec, seed, device)
        worst = -self.takeover_penalty / (1.0 - self.gamma)
        low, high = min(self.value_range[0], worst), max(self.value_range[1], 0.0)
        return Rlif.init(replace(self, value_range=(low, high)), spec, seed, device)


class Rlif(HilSerl):
    """`HilSerl` with another reward."""

    def reward(self, batch: Batch) -> Tensor:
        """Rewards [B] from the person's takeovers, and from failures."""
        penalty = -self.config.takeover_penalty
        reward = penalty * self._tensor(batch.before_takeover)
        if batch.failed is None:
            return reward
        since = self.config.gamma ** (self._tensor(batch.steps) - 1.0)
        return reward + since * after_failure(penalty, self.config.gamma) * self._failed(batch)

    def mask(self, batch: Batch) -> Tensor:
        """1 [B] unless the episode failed: the return goes on, whatever else ended the episode."""
        return 1.0 - self._failed(batch)

    def _failed(self, batch: Batch) -> Tensor:
        """1 [B] where the episode ended in a failure."""
        if batch.failed is None:
            return torch.zeros_like(self._tensor(batch.mask))
        return self._tensor(batch.failed).float()
