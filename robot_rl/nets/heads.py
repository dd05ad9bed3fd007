"""Output heads: a distribution over actions, and one over values.

The tanh-squashed Gaussian: a distribution over actions in (-1, 1)^A, numerically stable.

With u ~ N(mean, std), a = tanh(u):

    log pi(a) = sum_j [ log N(u_j) - 2 (log 2 - u_j - softplus(-2 u_j)) ]

which never takes the log of 1 - tanh(u)^2 (SAC, arXiv 1801.01290, appendix C, in the stable form
that TensorFlow Probability's Tanh bijector uses).

HL-Gauss (arXiv 2403.03950, section 3.1): a value is a histogram over bins, a target y the histogram
of a Gaussian around it, the loss their cross entropy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

SMEAR = 0.75  # standard deviation of HL-Gauss in bins, the paper's
MARGIN = 0.1  # of the value range, on both sides: targets at the ends are smeared, too
STD_MIN, STD_MAX = 1e-5, 5.0  # HIL-SERL's clip of exp(log_std)
ACTION_CLIP = 1.0 - 1e-6  # recorded actions may be exactly +-1, where atanh is infinite
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def split(output: Tensor) -> tuple[Tensor, Tensor]:
    """Network output [..., 2 A] -> (mean, log_std), each [..., A], std within its limits."""
    mean, log_std = output.chunk(2, -1)
    return mean, log_std.clamp(math.log(STD_MIN), math.log(STD_MAX))


def divergence(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(N(mean, std) | N(0, 1)), summed over the last axis: [..., A] -> [...]."""
    return (0.5 * (mean.square() + (2.0 * log_std).exp() - 1.0) - log_std).sum(-1)


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Reparameterised draw: (action [..., A], log_prob [...]) for standard normal `noise`."""
    u = mean + noise * log_std.exp()
    gaussian = (-0.5 * noise.square() - log_std - _LOG_SQRT_2PI).sum(-1)
    return torch.tanh(u), gaussian - _log_det(u)


def log_prob(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log density [...] of a recorded action [..., A] (clipped to +-(1 - 1e-6) first)."""
    u = torch.atanh(action.clamp(-ACTION_CLIP, ACTION_CLIP))
    noise = (u - mean) * (-log_std).exp()
    return (-0.5 * noise.square() - log_std - _LOG_SQRT_2PI).sum(-1) - _log_det(u)


def _log_det(u: Tensor) -> Tensor:
    """log |d tanh(u) / du|, summed over the action: [..., A] -> [...]."""
    return 2.0 * (math.log(2.0) - u - softplus(-2.0 * u)).sum(-1)


class HlGauss:
    """Histogram values over [low, high].

    Attributes:
        bins: K.
    """

    def __init__(
        self, low: float, high: float, bins: int, device: torch.device | str = "cpu"
    ) -> None:
        margin = MARGIN * (high - low)
        self.bins = bins
        edges = torch.linspace(low - margin, high + margin, bins + 1)
        self._edges = edges.to(device)
        self._centres = (self._edges[1:] + self._edges[:-1]) / 2
        self._std = SMEAR * float(edges[1] - edges[0])

    def encode(self, value: Tensor) -> Tensor:
        """Values [...] -> probabilities [..., K]."""
        cut = (self._edges - value.unsqueeze(-1)) / (self._std * math.sqrt(2.0))
        cdf = torch.erf(cut)
        return (cdf[..., 1:] - cdf[..., :-1]) / (cdf[..., -1:] - cdf[..., :1])

    def value(self, logits: Tensor) -> Tensor:
        """Logits [..., K] -> expected value [...]."""
        return torch.softmax(logits, -1) @ self._centres

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean cross entropy of logits [E, B, K] with target values [B]."""
        return -(self.encode(target) * torch.log_softmax(logits, -1)).sum(-1).mean()
