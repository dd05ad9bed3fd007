"""From scores to a reward, when a transition is sampled: nothing is asked or recorded again.

    r_t                as recorded, or as a person says (`store.review`); unlabelled stays so;
                       with `rewards_by` what that model says of the frame that the step leads to
    - step_cost        each step: success sooner is worth more, waiting near it is not
    + shaping F        F = gamma^k m Phi(s_{t+k}) - Phi(s_t) for a transition of k steps,
                       Phi = phi - 1: less than 0 by what is left of the way

F is potential-based (Ng, Harada, Russell 1999): whatever phi says, the best policy stays the same.
m = 0 after a terminal step, so there Phi(s') counts as 0; after a time limit Phi(s') is kept, as
the value is. Both phi are one model's, named by `progress_by`, each the mean over the last
`smooth_steps` frames: what a model says jumps from frame to frame, and an actor would chase that. A
transition of which one phi is missing is not sampled before it arrives.

Shaping is the same as critics that start from `shaping` Phi (Wiewiora 2003), and they start near 0.
With phi itself that would be to believe in all that nobody has tried; with phi - 1 it is to doubt
it, the more so the farther the goal.

Where the value of what was recorded lies in [low, high], Q lies in [low, high] - shaping Phi(s), so
in [low, high + shaping] (`widened`); `room` says how much less it is in one state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """shaping: weight of F, 0 = none; step_cost: see the module; progress_by: the author whose
    labels are phi; rewards_by: whose labels take the place of recorded rewards, "" = nobody's."""

    shaping: float = 0.0
    step_cost: float = 0.0
    progress_by: str = ""
    smooth_steps: int = 1
    rewards_by: str = ""


def potential_based(
    potential: ArrayLike, after: ArrayLike, mask: ArrayLike, discount: ArrayLike
) -> NDArray[np.float32]:
    """F [B] of Phi before and after; discount: gamma^k [B]. `after` may be NaN where mask is 0."""
    kept = np.where(np.asarray(mask) > 0.0, after, 0.0)
    return (np.asarray(discount) * kept - np.asarray(potential)).astype(np.float32)


def widened(
    value_range: tuple[float, float], assembly: Assembly, gamma: float
) -> tuple[float, float]:
    """Bounds of the value with this assembly, from those without."""
    low, high = value_range
    return low - assembly.step_cost / (1.0 - gamma), high + assembly.shaping


def after_change(phi: float, change: float) -> float:
    """Progress after a signed share of what is left (VLAC), of what was reached if negative.

    Neither direction can leave [0, 1], so errors saturate instead of adding up.
    """
    return phi + (1.0 - phi) * change if change >= 0.0 else phi + phi * change
