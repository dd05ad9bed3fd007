"""The tanh-squashed Gaussian: a distribution over actions in (-1, 1)^A, numerically stable.

With u ~ N(mean, std), a = tanh(u):

    log pi(a) = sum_j [ log N(u_j) - 2 (log 2 - u_j - softplus(-2 u_j)) ]

which never takes the log of 1 - tanh(u)^2 (SAC, arXiv 1801.01290, appendix C, in the stable form
that TensorFlow Probability's Tanh bijector uses).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

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
