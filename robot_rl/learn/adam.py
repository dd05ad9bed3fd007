"""Adam, the optimiser of every algorithm; its state is named tensors.

Papers: Adam (arXiv 1412.6980); decoupled weight decay, AdamW (arXiv 1711.05101).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from robot_rl.learn import ranks

BETAS, ADAM_EPS = (0.9, 0.999), 1e-8  # the paper's


class Adam:
    """Adam over named parameters, as a fused kernel; its state consists of named tensors only.

    weight_decay: each step takes `learning_rate weight_decay` of every parameter off, biases and
    LayerNorm's gains included. fixed: parameter -> which of its entries never have a gradient; they
    do not decay either.

    A step whose gradient is not finite is skipped. `skipped` counts all such steps, `bad_in_a_row`
    those in a row up to now; both are int64 scalars on the device, so that no step waits for it.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        learning_rate: float,
        weight_decay: float = 0.0,
        fixed: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._parameters, self._weight_decay = dict(parameters), weight_decay
        self._learning_rate, values = learning_rate, list(self._parameters.values())
        device = values[0].device
        spared = {k: m for k, m in (fixed or {}).items() if weight_decay and k in self._parameters}
        self._fixed = {k: m.to(device) for k, m in spared.items() if bool(m.any())}
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        self.bad_in_a_row = torch.zeros((), dtype=torch.int64, device=device)
        self._steps = [torch.zeros((), device=device) for _ in values]
        self._first = [torch.zeros_like(v, requires_grad=False) for v in values]
        self._second = [torch.zeros_like(v, requires_grad=False) for v in values]

    def step(self, loss: Tensor) -> None:
        """Move the parameters down the gradient of `loss`."""
        values = list(self._parameters.values())
        grads = torch.autograd.grad(loss, values)
        ranks.average_(grads)
        total = torch.zeros((), device=self.skipped.device)
        for grad in grads:
            total = total + grad.sum()
        bad = ~torch.isfinite(total)
        self.skipped += bad
        self.bad_in_a_row.add_(1).mul_(bad)
        with torch.no_grad():
            before = {name: self._parameters[name].clone() for name in self._fixed}
            adamw(  # what torch.optim.AdamW calls, without 0.3 ms of bookkeeping
                values,
                [*grads],
                self._first,
                self._second,
                [],
                self._steps,
                fused=True,
                found_inf=bad.float(),
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=self._learning_rate,
                weight_decay=self._weight_decay,
                eps=ADAM_EPS,
                maximize=False,
            )
            for name, fixed in self._fixed.items():
                value = self._parameters[name]
                value.copy_(torch.where(fixed, before[name], value))

    def counts(self) -> dict[str, Tensor]:
        """Return how many steps were skipped, in all and in a row up to now, as metrics."""
        return {
            "optimizer/skipped": self.skipped.clone(),
            "optimizer/bad_in_a_row": self.bad_in_a_row.clone(),
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return both counts and `<parameter>/<moment>` -> tensor (the live ones, not copies)."""
        state = {"skipped": self.skipped, "bad_in_a_row": self.bad_in_a_row}
        moments = zip(self._parameters, self._steps, self._first, self._second, strict=True)
        for name, step, first, second in moments:
            state |= {f"{name}/step": step, f"{name}/exp_avg": first, f"{name}/exp_avg_sq": second}
        return state
