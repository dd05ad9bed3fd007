"""Figures that say how good a reward model is, in plain numpy.

Figures per frame mislead: a model that is right in 97 % of the frames is wrong somewhere in 95 % of
the episodes of 100 frames, and the policy looks for just these frames. So what counts is the
*episode*: the highest score that was held for `hold` ticks in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = 10  # of the calibration error


def held(score: ArrayLike, hold: int) -> NDArray[np.float64]:
    """The lowest of the last `hold` scores at each tick [T], -inf before there are so many."""
    values = np.asarray(score, np.float64)
    out = np.full(len(values), -np.inf)
    if len(values) >= hold:
        out[hold - 1 :] = np.lib.stride_tricks.sliding_window_view(values, hold).min(1)
    return out


def auc(positive: ArrayLike, negative: ArrayLike) -> float:
    """Area under the ROC curve: how often a positive scores above a negative; a tie is half.

    NaN when one side is empty.
    """
    above, below = np.asarray(positive, np.float64), np.sort(np.asarray(negative, np.float64))
    if not above.size or not below.size:
        return float("nan")
    lower, upper = np.searchsorted(below, above, "left"), np.searchsorted(below, above, "right")
    return float((lower + upper).mean() / (2 * below.size))


def calibration_error(probability: ArrayLike, truth: ArrayLike) -> float:
    """Expected calibration error over ten equal bins: mean |how often true - how sure|."""
    p, y = np.asarray(probability, np.float64), np.asarray(truth, np.float64)
    if not p.size:
        return float("nan")
    which = np.minimum((p * BINS).astype(int), BINS - 1)
    gaps = [abs(y[which == b].sum() - p[which == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / p.size)


def operating_point(
    positive: ArrayLike, negative: ArrayLike, max_false_rate: float
) -> tuple[float, float, float]:
    """(threshold, true positive rate, false positive rate) of episode scores at `>= threshold`.

    The highest true positive rate whose false positive rate is at most `max_false_rate`; of the
    thresholds that give it, the middle one, which leaves both sides the same room.

    Raises:
        ValueError: one side is empty.
    """
    above, below = np.sort(np.asarray(positive, float)), np.sort(np.asarray(negative, float))
    if not above.size or not below.size:
        raise ValueError("an operating point needs episodes of both kinds")
    allowed = int(max_false_rate * below.size + 1e-9)
    floor = below[below.size - 1 - allowed] if allowed < below.size else -np.inf
    accepted = above[above > floor]
    if not accepted.size:
        threshold = np.nextafter(floor, np.inf)  # no success scores above what must be refused
    elif np.isfinite(floor):
        threshold = (floor + accepted[0]) / 2
    else:
        threshold = accepted[0]
    false = float((below >= threshold).mean())
    return float(threshold), float((above >= threshold).mean()), false


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 0; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((2 * last - counts - 1) / 2)[which]


def spearman(score: ArrayLike, truth: ArrayLike) -> float:
    """Rank correlation of two series [T]; pairs with a NaN are left out; NaN if one is constant.

    Against time this is the value-order correlation (VOC); a clock has 1.
    """
    a, b = np.asarray(score, np.float64), np.asarray(truth, np.float64)
    known = np.isfinite(a) & np.isfinite(b)
    a, b = _ranks(a[known]), _ranks(b[known])
    if len(a) < 2 or not a.std() or not b.std():
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def kendall(score: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """Kendall's tau over pairs: "a", ties count as neither; "b", corrected for ties (NaN if all).

    Discrete scores look poor in tau-a, and good in tau-b: give both.
    """
    a, b = np.asarray(score, np.float64), np.asarray(truth, np.float64)
    i, j = np.triu_indices(len(a), 1)
    one, other = np.sign(a[i] - a[j]), np.sign(b[i] - b[j])
    agree, untied = float((one * other).sum()), float(np.abs(one).sum() * np.abs(other).sum())
    return {
        "a": agree / len(i) if len(i) else float("nan"),
        "b": agree / untied**0.5 if untied else float("nan"),
    }


def direction_accuracy(curves: Sequence[NDArray[np.float64]], gap: int) -> float:
    """How often progress is higher `gap` frames later, over all such pairs; NaN without one."""
    later = [c[gap:] > c[:-gap] for c in curves if len(c) > gap]
    return float(np.concatenate(later).mean()) if later else float("nan")


def mean_known(values: Sequence[float]) -> tuple[float, int]:
    """Mean of the values that are not NaN, and how many these are."""
    known = [v for v in values if np.isfinite(v)]
    return (float(np.mean(known)) if known else float("nan")), len(known)


@dataclass(frozen=True)
class Strip:
    """One episode for a report.

    images: uint8 [T, H, W, 3]; curves: name -> [T]; wrong: "" or what the model got wrong;
    threshold: a line across, or None.
    """

    title: str
    images: NDArray[np.uint8]
    curves: Mapping[str, NDArray[np.float64]]
    wrong: str = ""
    threshold: float | None = None
