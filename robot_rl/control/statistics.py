"""The few statistics a robot-learning result needs, in plain numpy."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

Z95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution
PAUSE_S = 600.0  # between two lines of a run's figures: nobody worked, whatever is known


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


def over_seeds(
    successes: Sequence[int], episodes: Sequence[int], draws: int = 4000
) -> tuple[float, float]:
    """95 % interval of the mean success rate of a method, from one policy for each seed.

    Episodes of one policy are not independent: seeds of 0, 92 and 33 of 100 are three draws of what
    the method does, not 300. So it is a bootstrap over seeds (Agarwal et al., 2021, rliable), and
    within each drawn seed its rate is drawn from the posterior of its episodes under Jeffreys'
    prior, or the interval of three seeds with 100 of 100 would have no width. In simulation it
    holds the true mean in 75 to 88 % of the cases with 3 seeds, in 84 to 94 % with 5, in 92 to 95 %
    with 10; Wilson's interval of the episodes pooled, in 17 to 75 %. (0, 1) without episodes.

    Raises:
        ValueError: not 0 <= successes <= episodes for each seed.
    """
    pairs = list(zip(successes, episodes, strict=True))
    if any(not 0 <= wins <= count for wins, count in pairs):
        raise ValueError(f"expected 0 <= successes <= episodes of each seed, got {pairs}")
    known = np.array([pair for pair in pairs if pair[1]], np.float64).reshape(-1, 2)
    if not known.size:
        return 0.0, 1.0
    rng = np.random.default_rng(0)  # the same figures give the same interval
    wins, count = known[rng.integers(0, len(known), (draws, len(known)))].transpose(2, 0, 1)
    means = rng.beta(wins + 0.5, count - wins + 0.5).mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    won, lost = known[:, 0].any(), (known[:, 1] > known[:, 0]).any()
    return float(low) if won else 0.0, float(high) if lost else 1.0


def rolling_mean(values: Sequence[float] | np.ndarray, window: int) -> np.ndarray:
    """Mean over the last `window` values at each index; shorter at the start. float64 [N]."""
    data = np.asarray(values, np.float64)
    total = np.concatenate(([0.0], np.cumsum(data)))
    end = np.arange(1, data.size + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)


def work_s(before_s: float, now_s: float, begun: Collection[float] = ()) -> float:
    """Seconds that were worked between two lines of a run's figures; none in a pause.

    Args:
        begun: when processes began to work on the run (s). Between lines of two of them the run had
            been stopped, however shortly.
    """
    if any(before_s < began_s <= now_s for began_s in begun):
        return 0.0
    return now_s - before_s if 0.0 < now_s - before_s < PAUSE_S else 0.0


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p-value of McNemar's exact test: do two policies succeed equally often?

    Under the null hypothesis, each pair in which exactly one of them succeeds is a fair coin
    (McNemar, 1947; exact form: Fagerland, Lydersen, Laake, 2013, eq. 3). 1.0 without such pairs.

    Args:
        only_first, only_second: pairs in which only the first, only the second succeeded.

    Raises:
        ValueError: a negative number.
    """
    if min(only_first, only_second) < 0:
        raise ValueError(f"expected counts, got {only_first} and {only_second}")
    pairs = only_first + only_second
    tail = sum(math.comb(pairs, k) for k in range(min(only_first, only_second) + 1))
    return min(1.0, 2 * tail / 2**pairs)


def paired_difference(
    both: int, only_first: int, only_second: int, neither: int, z: float = Z95
) -> tuple[float, float, float]:
    """(difference, low, high) of two success rates measured on the same starts, first - second.

    Newcombe's square-and-add interval of Wilson limits, with his correction of the correlation
    (Newcombe, 1998, Statistics in Medicine 17:2635, method 10): close to its nominal coverage with
    few pairs, and with a width where nothing differs. (0, -1, 1) without pairs.

    Raises:
        ValueError: a negative number.
    """
    if min(both, only_first, only_second, neither) < 0:
        raise ValueError("expected counts")
    pairs = both + only_first + only_second + neither
    if pairs == 0:
        return 0.0, -1.0, 1.0
    wins = both + only_first, both + only_second
    (p1, p2), ((low1, high1), (low2, high2)) = (
        (w / pairs for w in wins),
        (wilson(w, pairs, z) for w in wins),
    )
    margins = wins[0] * (pairs - wins[0]) * wins[1] * (pairs - wins[1])
    excess = both * neither - only_first * only_second
    if excess > 0:
        excess = max(excess - pairs / 2, 0.0)
    phi = excess / math.sqrt(margins) if margins else 0.0

    def reach(a: float, b: float) -> float:
        return math.sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0))

    difference = p1 - p2
    low = difference - reach(p1 - low1, high2 - p2)
    high = difference + reach(high1 - p1, p2 - low2)
    return difference, max(low, -1.0), min(high, 1.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted so that the chance of any false one in the family stays (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, so_far = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = so_far
    return adjusted
