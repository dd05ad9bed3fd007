"""Statistics that LeRobot normalises with: per feature and episode, and over all episodes.

Conventions of the format: vectors reduce over steps; images per channel, as [3, 1, 1] in 0 to 1,
from at most `IMAGES` pictures of an episode; text has none. Quantiles of all episodes are the
mean of the episodes' quantiles, weighted by their steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.data.video import Image

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
IMAGES = 100

Stats = dict[str, Any]
"""min, max, mean, std, count, q01 ... q99 of one feature, as nested lists."""


def vector_stats(values: NDArray[Any]) -> Stats:
    """Statistics of [N] or [N, D] numbers: lists of length 1 or D."""
    table = values.reshape(len(values), -1).astype(np.float64)
    figures = {
        "min": table.min(axis=0),
        "max": table.max(axis=0),
        "mean": table.mean(axis=0),
        "std": table.std(axis=0),
    }
    quantiles = np.quantile(table, list(QUANTILES.values()), axis=0)
    figures |= dict(zip(QUANTILES, quantiles, strict=True))
    return {k: v.tolist() for k, v in figures.items()} | {"count": [len(table)]}


def image_stats(images: Sequence[Image]) -> Stats:
    """Statistics of pictures [H, W, 3]; exact, from how often each of the 256 values occurs."""
    picked = np.unique(np.linspace(0, len(images) - 1, min(len(images), IMAGES)).round())
    counts = np.zeros((3, 256))
    for index in picked.astype(int):
        for channel in range(3):
            counts[channel] += np.bincount(images[index][:, :, channel].ravel(), minlength=256)
    figures = [_of_counts(c) for c in counts]
    spread = {k: [[[f[k] / 255.0]] for f in figures] for k in figures[0]}
    return spread | {"count": [len(picked)]}


def merged(parts: Sequence[Mapping[str, Any]]) -> Stats:
    """Statistics of one feature over all episodes, from those of each episode."""
    table = {k: np.array([p[k] for p in parts], np.float64) for k in parts[0]}
    counts = table["count"][:, 0]
    weights = (counts / counts.sum()).reshape(-1, *[1] * (table["mean"].ndim - 1))

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return (values * weights).sum(axis=0)

    center = mean(table["mean"])
    variance = mean(table["std"] ** 2 + (table["mean"] - center) ** 2)
    figures = {"min": table["min"].min(axis=0), "max": table["max"].max(axis=0), "mean": center}
    figures |= {"std": np.sqrt(variance)} | {q: mean(table[q]) for q in QUANTILES}
    return {k: v.tolist() for k, v in figures.items()} | {"count": [int(counts.sum())]}


def _of_counts(counts: NDArray[np.float64]) -> dict[str, float]:
    """Figures of a channel in which value v occurs counts[v] times."""
    values, total = np.arange(256), counts.sum()
    present = np.flatnonzero(counts)
    mean = float(counts @ values / total)
    share = counts.cumsum() / total
    figures = {
        "min": float(present[0]),
        "max": float(present[-1]),
        "mean": mean,
        "std": float(np.sqrt(counts @ (values - mean) ** 2 / total)),
    }
    return figures | {k: float(np.searchsorted(share, q)) for k, q in QUANTILES.items()}
