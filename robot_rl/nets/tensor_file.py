"""Tensors from the bytes of a safetensors file, whoever wrote it."""

from __future__ import annotations

import safetensors.torch
from torch import Tensor


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """Names and tensors. Raises `ValueError` for anything that is no safetensors image."""
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # SafetensorError, and what torch says to odd types and shapes
        raise ValueError(f"no safetensors image: {error}"[:300]) from error
