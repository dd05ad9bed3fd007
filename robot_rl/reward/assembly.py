"""Makes a reward of recorded scores when a transition is sampled: no model is asked again.

    r_t                as recorded, or as a person says (`store.review`); an unlabelled step stays
                       unlabelled; with `rewards_by` that model's label of the frame after the step
    - step_cost        each step: sooner success is worth more, waiting near it is not
    + failure          after the last step of a failure: the lowest reward of a step, for ever
    + shaping F        F = gamma^k m Phi(s_{t+k}) - Phi(s_t) for a transition of k steps,
                       Phi = phi - 1: minus the share of the way that is left

A failure ends an episode, as a success does. Where steps cost something, to end is worth more than
to go on, and a policy would learn to fail as soon as it can. So a failure counts as if every later
step had the lowest reward that is possible (`Assembly.lowest`, 0 for a sparse reward): then to go
on is never worth less, whatever comes (`after_failure`).

F is potential-based (Ng, Harada, Russell 1999): whatever phi says, the best policy stays the same.
m = 0 after a terminal step, so there Phi(s') counts as 0; after a time limit Phi(s') is kept, as
the value is. Both phi come from one model, named by `progress_by`, and each is the mean over the
last `smooth_steps` frames: a model's progress jumps from frame to frame, and an actor would chase
the jumps. A transition is not sampled before the phi that it needs have arrived.

Shaping has the effect of critics that start from `shaping` Phi (Wiewiora 2003); ours start near 0.
With Phi = phi such critics would believe in whatever nobody has tried; with phi - 1 they doubt it,
the more so the farther the goal.

If the value of the recorded rewards lies in [low, high], Q lies in [low, high] - shaping Phi(s), so
in [low, high + shaping] (`widened`); `Batch.room` says how much narrower that is in one state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """How a reward is made of what was recorded.

    shaping: weight of F, 0 = none; step_cost: see the module; progress_by: the author whose labels
    are phi; rewards_by: whose labels take the place of recorded rewards, "" = nobody's.
    """

    shaping: float = 0.0
    step_cost: float = 0.0
    progress_by: str = ""
    smooth_steps: int = 1
    rewards_by: str = ""

    @property
    def lowest(self) -> float:
        """Lowest reward of a step, where a success pays 1; a model's rewards lie in [-1, 0]."""
        return -self.step_cost - bool(self.rewards_by)


def potential_based(
    potential: ArrayLike, after: ArrayLike, mask: ArrayLike, discount: ArrayLike
) -> NDArray[np.float32]:
    """F [B] of Phi before and after; discount: gamma^k [B]. `after` may be NaN where mask is 0."""
    kept = np.where(np.asarray(mask) > 0.0, after, 0.0)
    return (np.asarray(discount) * kept - np.asarray(potential)).astype(np.float32)


def after_failure(lowest: float, gamma: float) -> float:
    """What a failure adds to the reward of the step that ended in it: `lowest` for ever after."""
    return gamma * lowest / (1.0 - gamma) if lowest else 0.0


def widened(
    value_range: tuple[float, float], assembly: Assembly, gamma: float
) -> tuple[float, float]:
    """Bounds of the value with this assembly, from those without."""
    low, high = value_range
    return low - assembly.step_cost / (1.0 - gamma), high + assembly.shaping


def after_change(phi: float, change: float) -> float:
    """Progress after a change: a share of what is left (VLAC), or if negative of what was reached.

    Neither direction can leave [0, 1], so errors saturate instead of adding up.
    """
    return phi + (1.0 - phi) * change if change >= 0.0 else phi + phi * change
