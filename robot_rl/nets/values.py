"""How a critic expresses a value: as a number, or as a histogram over the possible values.

HL-Gauss (arXiv 2403.03950, section 3.1): a value is a histogram over bins, a target y the histogram
of a Gaussian around it, the loss their cross entropy.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

SMEAR = 0.75  # standard deviation of HL-Gauss in bins, the paper's
MARGIN = 0.1  # of the value range, on both sides: targets at the ends are smeared, too


class Values(Protocol):
    """Turns outputs of a critic into values. outputs: K, numbers of each critic and state."""

    outputs: int

    def start_(self, bias: Tensor) -> None:
        """Set the bias [E, 1, K] of fresh critics so that values start near 0."""
        ...

    def value(self, output: Tensor) -> Tensor:
        """[..., K] -> [...]."""
        ...

    def loss(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """How far outputs [E, B, K] are from target values [B]: a mean over both axes.

        weight: of each row [B]; None = all count alike.
        """
        ...


class Numbers:
    """A value is a number, the loss its mean squared error."""

    outputs = 1

    def start_(self, bias: Tensor) -> None:
        """Do nothing: small weights suffice."""

    def value(self, output: Tensor) -> Tensor:
        """[..., 1] -> [...]."""
        return output.squeeze(-1)

    def loss(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean squared error."""
        return weighted((output.squeeze(-1) - target).square(), weight)


class HlGauss:
    """A value is a histogram of `bins` = K bins over [low, high], and the loss a cross entropy."""

    def __init__(
        self, low: float, high: float, bins: int, device: torch.device | str = "cpu"
    ) -> None:
        margin = MARGIN * (high - low)
        self.outputs = bins
        edges = torch.linspace(low - margin, high + margin, bins + 1)
        self._edges = edges.to(device)
        self._centres = (self._edges[1:] + self._edges[:-1]) / 2
        self._std = SMEAR * float(edges[1] - edges[0])

    def start_(self, bias: Tensor) -> None:
        """Set the bias to the histogram of 0; no bin gets a probability of 0."""
        bias.copy_((self.encode(torch.zeros((), device=bias.device)) + 1e-4).log())

    def encode(self, value: Tensor) -> Tensor:
        """Values [...] -> probabilities [..., K]."""
        cut = (self._edges - value.unsqueeze(-1)) / (self._std * math.sqrt(2.0))
        cdf = torch.erf(cut)
        return (cdf[..., 1:] - cdf[..., :-1]) / (cdf[..., -1:] - cdf[..., :1])

    def value(self, output: Tensor) -> Tensor:
        """Logits [..., K] -> expected value [...]."""
        return torch.softmax(output, -1) @ self._centres

    def loss(self, output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean cross entropy of logits [E, B, K] with target values [B]."""
        return weighted(-(self.encode(target) * torch.log_softmax(output, -1)).sum(-1), weight)


def weighted(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Mean of losses [..., B] over rows of a weight [B]; 0 where all weights are 0."""
    if weight is None:
        return losses.mean()
    return (losses * weight).mean() * (len(weight) / weight.sum().clamp_min(1.0))
