"""The hand-written ensemble equals the plain one, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from robot_rl.nets.ensemble import LAYER_NORM_EPS, EnsembleMLP


def plain(net: EnsembleMLP, x: Tensor, flat: Tensor) -> Tensor:
    """Member by member, layer by layer, with PyTorch's own autograd."""
    outputs = []
    for member in range(flat.shape[0]):
        h = x if x.dim() == 2 else x[member]
        *hidden, last = net.layers(flat[member : member + 1])
        for weight, bias, gain, offset in hidden:
            z = h @ weight[0] + bias[0]
            z = layer_norm(z, z.shape[-1:], gain[0, 0], offset[0, 0], LAYER_NORM_EPS)
            h = torch.relu(z)
        outputs.append(h @ last[0][0] + last[1][0])
    return torch.stack(outputs)


def inputs(net: EnsembleMLP, dims: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    flat = net.init(generator).double()
    flat += 0.1 * torch.randn(flat.shape, generator=generator, dtype=torch.float64)
    shape = (7, net.sizes[0]) if dims == 2 else (net.members, 7, net.sizes[0])
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x.requires_grad_(), flat.requires_grad_()


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("dims", [2, 3])
def test_equals_the_plain_network(outputs: int, dims: int) -> None:
    net = EnsembleMLP(3, (5, 16, 8, outputs))
    x, flat = inputs(net, dims)
    weight = torch.randn(3, 7, outputs, dtype=torch.float64)
    got, want = net(x, flat), plain(net, x, flat)
    torch.testing.assert_close(got, want)
    for a, b in zip(
        torch.autograd.grad((got * weight).sum(), (x, flat)),
        torch.autograd.grad((want * weight).sum(), (x, flat)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_gradcheck() -> None:
    net = EnsembleMLP(2, (3, 8, 8, 1))
    assert torch.autograd.gradcheck(net, inputs(net))


def test_gradient_only_of_what_is_asked() -> None:
    net = EnsembleMLP(2, (3, 8, 1))
    x, flat = inputs(net)
    (grad,) = torch.autograd.grad(net(x, flat.detach()).sum(), x)
    (want,) = torch.autograd.grad(net(x, flat).sum(), x)
    torch.testing.assert_close(grad, want)


def test_a_subset_of_members_is_a_slice_of_the_parameters() -> None:
    net = EnsembleMLP(4, (3, 8, 1))
    x, flat = inputs(net)
    torch.testing.assert_close(net(x, flat[[2, 0]]), net(x, flat)[[2, 0]])


def test_bfloat16_products_stay_close_to_float32() -> None:
    shape = (2, (16, 64, 64, 1))
    generator = torch.Generator().manual_seed(0)
    flat = EnsembleMLP(*shape).init(generator).requires_grad_()
    x = torch.randn(128, 16, generator=generator)
    results = []
    for bf16 in (False, True):
        out = EnsembleMLP(*shape, bf16=bf16)(x, flat)
        results.append((out, torch.autograd.grad(out.square().mean(), flat)[0]))
    (out, grad), (out_low, grad_low) = results
    assert (out - out_low).abs().max() < 0.02 * out.abs().max()
    assert torch.cosine_similarity(grad.flatten(), grad_low.flatten(), 0) > 0.999
