"""The few statistics a robot-learning result needs, in plain numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Z95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution


def wilson(successes: int, episodes: int, z: float = Z95) -> tuple[float, float]:
    """Wilson score interval of a success rate: (low, high) in [0, 1]; (0, 1) without episodes.

    Unlike the usual +-1.96 sigma it stays inside [0, 1] and has width at 0/n and n/n (Wilson,
    1927, eq. 1; recommended for small n by Brown, Cai, DasGupta, 2001).

    Raises:
        ValueError: not 0 <= successes <= episodes.
    """
    if not 0 <= successes <= episodes:
        raise ValueError(f"expected 0 <= successes <= episodes, got {successes} of {episodes}")
    if episodes == 0:
        return 0.0, 1.0
    rate, z2 = successes / episodes, z * z
    centre = (rate + z2 / (2 * episodes)) / (1 + z2 / episodes)
    spread = math.sqrt(rate * (1 - rate) / episodes + z2 / (4 * episodes**2))
    half = z / (1 + z2 / episodes) * spread
    # exact ends, where rounding would leave 1e-17
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return low, 1.0 if successes == episodes else min(1.0, centre + half)


def rolling_mean(values: Sequence[float] | np.ndarray, window: int) -> np.ndarray:
    """Mean over the last `window` values at each index; shorter at the start. float64 [N]."""
    data = np.asarray(values, np.float64)
    total = np.concatenate(([0.0], np.cumsum(data)))
    end = np.arange(1, data.size + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)
