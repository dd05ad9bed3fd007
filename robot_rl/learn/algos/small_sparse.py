"""What heads on a base policy have in common."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SmallSparse:
    """Defaults for a small state and a sparse reward of 0 or 1, tuned on peg_insert.

    As `configs/algo/hil_serl_state.yaml`, for heads on a base policy; not tried: decay of critics.
    """

    hidden: tuple[int, ...] = (128, 128)
    batch_size: int = 128
    gamma: float = 0.95
    value_range: tuple[float, float] | None = (0.0, 1.0)
    policy_tau: float = 0.005
