"""Batched ensembles of small MLPs with LayerNorm: one matrix product per layer for all members.

All parameters of an ensemble live in one tensor `[E, P]` (member by parameter). So an optimiser
step, a Polyak step, a checkpoint and "a random subset of members" are each one tensor operation,
and a target network is just another tensor of the same shape given to the same function.

A layer is linear -> LayerNorm -> ReLU (RLPD, arXiv 2302.02948, section 4.2: LayerNorm bounds
Q by the norm of the last layer, also for actions that were never tried). The backward pass is
written out: at this size half of PyTorch's time goes to graph nodes and to thin matrix products
(256 -> 1), both of which this avoids. `tests/nets/test_ensemble.py` checks it with gradcheck.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

LAYER_NORM_EPS = 1e-6  # flax's default, so that RLPD and HIL-SERL figures carry over


@dataclass(frozen=True, slots=True)
class EnsembleMLP:
    """E members of `sizes[0] -> ... -> sizes[-1]`; a pure function of (input, parameters).

    members: E; sizes: widths, input first; bf16: multiply in bfloat16 (parameters, LayerNorm,
    activations and sums stay float32).
    """

    members: int
    sizes: tuple[int, ...]
    bf16: bool = False

    @property
    def parameters_per_member(self) -> int:
        """P. Hidden layers hold weight, bias, LayerNorm gain and offset; the last weight, bias."""
        hidden = sum((i + 3) * o for i, o in self._pairs[:-1])
        return hidden + (self._pairs[-1][0] + 1) * self._pairs[-1][1]

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(itertools.pairwise(self.sizes))

    def layers(self, flat: Tensor) -> list[list[Tensor]]:
        """Views of `flat` [E, P], per layer: weight [E, I, O], bias [E, 1, O].

        Hidden layers also have the gain and the offset of LayerNorm, each [E, 1, O].
        """
        members, pairs = flat.shape[0], self._pairs
        rows = [3] * (len(pairs) - 1) + [1]
        pieces = [n for (i, o), r in zip(pairs, rows, strict=True) for n in (i * o, r * o)]
        parts = flat.split_with_sizes(pieces, 1)
        return [
            [
                parts[2 * depth].view(members, i, o),
                *parts[2 * depth + 1].view(members, rows[depth], 1, o).unbind(1),
            ]
            for depth, (i, o) in enumerate(pairs)
        ]

    def init(self, generator: torch.Generator, last_scale: float = 1.0) -> Tensor:
        """Fresh parameters, float32 [E, P]: Xavier-uniform weights (as HIL-SERL), zero biases.

        last_scale: factor on the last layer; small means that the ensemble starts near zero.
        """
        flat = torch.zeros(self.members, self.parameters_per_member)
        for layer in self.layers(flat):
            weight, is_last = layer[0], len(layer) == 2
            bound = (6.0 / (weight.shape[1] + weight.shape[2])) ** 0.5
            weight.uniform_(-bound, bound, generator=generator)
            if is_last:
                weight.mul_(last_scale)
            else:
                layer[2].fill_(1.0)
        return flat

    def __call__(self, x: Tensor, flat: Tensor) -> Tensor:
        """Apply every member: x [B, I] (or [E, B, I]), flat [E', P] -> [E', B, O], E' <= E rows."""
        if torch.compiler.is_compiling():
            return self._plain(x, flat)
        return _Forward.apply(x, flat, self)  # type: ignore[no-any-return]

    def _plain(self, x: Tensor, flat: Tensor) -> Tensor:
        """The same for `torch.compile`, which writes a backward pass of its own and fuses more."""
        low = flat.bfloat16() if self.bf16 else flat
        layers, low_layers = self.layers(flat), self.layers(low)
        h = x.expand(flat.shape[0], -1, -1) if x.dim() == 2 else x
        for layer, low_layer in zip(layers[:-1], low_layers[:-1], strict=True):
            z = torch.baddbmm(low_layer[1], h.to(low.dtype), low_layer[0]).to(flat.dtype)
            h = layer_norm(z, z.shape[-1:], eps=LAYER_NORM_EPS) * layer[2] + layer[3]
            h = torch.relu(h)
        return _last(h, *layers[-1])

    def activations(self, x: Tensor, flat: Tensor) -> tuple[list[Tensor], Tensor]:
        """Hidden layers, each [E', B, O], and output of the same product, without gradients."""
        out, _, saved = _propagate(x.detach(), flat.detach(), self)
        return saved[3::4], out


def _propagate(x: Tensor, flat: Tensor, net: EnsembleMLP) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Output, parameters as multiplied, and per hidden layer: input, normed, 1 / std, output."""
    low = flat.bfloat16() if net.bf16 else flat
    layers = net.layers(flat)
    low_layers = net.layers(low) if net.bf16 else layers
    h = x.expand(flat.shape[0], -1, -1) if x.dim() == 2 else x
    saved: list[Tensor] = []
    for layer, low_layer in zip(layers[:-1], low_layers[:-1], strict=True):
        h_low = h.to(low.dtype)
        z = torch.baddbmm(low_layer[1], h_low, low_layer[0]).to(flat.dtype)
        normed, rstd = _layer_norm_(z)
        h = torch.addcmul(layer[3], normed, layer[2])
        h = h.relu_()
        saved += [h_low, normed, rstd, h]
    return _last(h, *layers[-1]), low, saved


def _last(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The linear output layer; 256 -> 1 is 5x faster as multiply and sum."""
    if weight.shape[-1] > 1:
        return torch.baddbmm(bias, h, weight)
    return (h * weight.transpose(1, 2)).sum(-1, keepdim=True) + bias


class _Forward(torch.autograd.Function):
    """The ensemble with a hand-written backward, which skips gradients that nobody asked for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, flat: Tensor, net: EnsembleMLP) -> Tensor:
        out, low, saved = _propagate(x, flat, net)
        if any(ctx.needs_input_grad):
            ctx.net, ctx.shared_input = net, x.dim() == 2
            ctx.save_for_backward(flat, low, *saved)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        flat, low, *saved = ctx.saved_tensors
        net: EnsembleMLP = ctx.net
        want_x, want_flat = ctx.needs_input_grad[:2]
        layers = net.layers(flat)
        low_layers = net.layers(low) if net.bf16 else layers
        grad_flat = torch.empty_like(flat) if want_flat else None
        grad_layers = None if grad_flat is None else net.layers(grad_flat)
        grad, h, weight = grads[0], saved[-1], layers[-1][0].transpose(1, 2)
        if grad_layers:
            _output_layer_grad(grad_layers[-1], h, grad)
        grad = grad * weight if weight.shape[1] == 1 else torch.bmm(grad, weight)
        for depth in range(len(layers) - 2, -1, -1):
            h_low, normed, rstd, h = saved[4 * depth : 4 * depth + 4]
            # a third of the time of a product with sign(h)
            grad = torch.ops.aten.threshold_backward(grad, h, 0.0)
            grad_gain = grad * normed
            if grad_layers:
                torch.sum(grad_gain, 1, keepdim=True, out=grad_layers[depth][2])
                torch.sum(grad, 1, keepdim=True, out=grad_layers[depth][3])
            grad = _layer_norm_grad_(grad, grad_gain, layers[depth][2], normed, rstd)
            grad_low = grad.to(low.dtype)
            if grad_layers:
                torch.sum(grad, 1, keepdim=True, out=grad_layers[depth][1])
                grad_layers[depth][0].copy_(torch.bmm(h_low.transpose(1, 2), grad_low))
            if depth > 0 or want_x:
                grad = torch.bmm(grad_low, low_layers[depth][0].transpose(1, 2)).to(flat.dtype)
        grad_x = (grad.sum(0) if ctx.shared_input else grad) if want_x else None
        return grad_x, grad_flat, None


def _layer_norm_(z: Tensor) -> tuple[Tensor, Tensor]:
    """Normalise over the features in place: (n, 1 / std [..., 1]). Half the time of torch's own."""
    z.sub_(z.mean(-1, keepdim=True))
    variance = torch.linalg.vector_norm(z, dim=-1, keepdim=True).square_().div_(z.shape[-1])
    rstd = variance.add_(LAYER_NORM_EPS).rsqrt_()
    return z.mul_(rstd), rstd


def _output_layer_grad(grad_layer: list[Tensor], h: Tensor, grad: Tensor) -> None:
    """Write d loss / d (weight, bias) of the linear output layer."""
    if grad.shape[-1] == 1:
        grad_layer[0].copy_((h * grad).sum(1).unsqueeze(-1))
    else:
        grad_layer[0].copy_(torch.bmm(h.transpose(1, 2), grad))
    torch.sum(grad, 1, keepdim=True, out=grad_layer[1])


def _layer_norm_grad_(
    grad: Tensor, grad_gain: Tensor, gain: Tensor, normed: Tensor, rstd: Tensor
) -> Tensor:
    """Through y = gain * n + offset, n = (z - mean) * rstd, in place. With dn = dy * gain:

    dz = rstd * (dn - mean(dn) - n * mean(dn * n)), means over the features.
    """
    projection = grad_gain.mul_(gain).mean(-1, keepdim=True)
    grad.mul_(gain).sub_(grad.mean(-1, keepdim=True))
    return grad.addcmul_(normed, projection, value=-1.0).mul_(rstd)
