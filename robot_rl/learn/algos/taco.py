"""TACO's contrastive loss: an encoder also learns to which picture an action leads.

Paper: TACO (arXiv 2306.13229). z and z' are the encoded pictures of s and s', the latter by the
slow encoder, without gradient. From z and the action the loss tells a row's own z' from those of
the other rows of the batch:

    taco_loss  L = taco_weight mean_i -log(exp(g_i h_i) / sum_j exp(g_i h_j)),
               g_i = G(z_i, a_i), h_j = H(z'_j), with two small networks that stay with the learner

Deviations: one action in place of three in a row, and it is not encoded (an arm's has six or seven
numbers); no loss of the reward, none between two shifts of one picture; the paper's matrix W
between g and h is part of G. With returns of n steps z' is n steps on, and only the first action is
known.

Metrics: taco/loss, taco/right (share of the rows whose own z' scored highest; 1/B by chance).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from robot_rl.learn.transitions import Transitions
from robot_rl.nets.actor import ActorNet
from robot_rl.nets.ensemble import EnsembleMLP

WIDTH, CODE = 256, 50  # hidden units; numbers in g and h, as the paper's


class Taco:
    """G and H.

    Attributes:
        tensors: their parameters, by name.
    """

    def __init__(
        self, net: ActorNet, action_size: int, generator: torch.Generator, device: torch.device
    ) -> None:
        assert net.encoder is not None
        self._begin, size = net.state_size, net.encoder.size
        self._nets = {
            "taco_from": EnsembleMLP(1, (size + action_size, WIDTH, CODE)),
            "taco_to": EnsembleMLP(1, (size, WIDTH, CODE)),
        }
        self.tensors = {
            name: mlp.init(generator).to(device).requires_grad_()
            for name, mlp in self._nets.items()
        }

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of encoder, G and H on a batch whose pictures are encoded; metrics."""
        before, after = (m.features[:, self._begin :] for m in (batch.now, batch.then))
        scores = self._code("taco_from", before, batch.action) @ self._code("taco_to", after).T
        own = torch.arange(len(scores), device=scores.device)
        loss = cross_entropy(scores, own)
        right = (scores.argmax(-1) == own).float().mean()
        return loss, {"taco/loss": loss, "taco/right": right}

    def _code(self, name: str, *seen: Tensor) -> Tensor:
        return self._nets[name](torch.cat(seen, -1), self.tensors[name])[0]
