"""Where the replay keeps its frames: in memory, in memory-mapped files, or on the learner's GPU.

    memory  numpy; pages are touched only as they fill
    disk    numpy.memmap in the run folder, for more images than memory; a cache of the store
    device  images as torch tensors where the networks are: they need no copy, but fill the GPU

Each place has a function (key, shape, dtype) -> an array with `take`, `[slot]`, `[slot] = value`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.spec import IMAGE

PLACES = ("memory", "disk", "device")


class Frames(Protocol):
    """One entry of the observation, for every kept frame: [slots, ...]."""

    def take(self, slots: NDArray[np.int64], axis: int, /) -> Any:
        """Return the entries [B, ...] at `slots` [B]; axis is 0."""
        ...

    def __getitem__(self, slot: int, /) -> Any:
        """Return one entry, which has `nbytes`."""
        ...

    def __setitem__(self, slot: int, value: NDArray, /) -> None:
        """Keep a copy of one entry."""
        ...


Allocate = Callable[[str, tuple[int, ...], str], Frames]


def in_memory(_key: str, shape: tuple[int, ...], dtype: str) -> Frames:
    """Return an array of zeros in memory."""
    return np.zeros(shape, dtype)


def on_disk(folder: Path) -> Allocate:
    """Return an allocator that makes a new file in `folder` for each key."""

    def allocate(key: str, shape: tuple[int, ...], dtype: str) -> Frames:
        folder.mkdir(parents=True, exist_ok=True)
        return np.memmap(folder / f"{key.replace('/', '-')}.dat", dtype, "w+", shape=shape)

    return allocate


def on_device(device: torch.device | str) -> Allocate:
    """Return an allocator that puts images on a torch device, where `take` returns tensors.

    Vectors stay in memory, as numpy arrays: copying them costs next to nothing, and who computes
    with them (mirror, decisions about noise) need not know where frames lie.
    """

    def allocate(key: str, shape: tuple[int, ...], dtype: str) -> Frames:
        if not key.startswith(IMAGE):
            return in_memory(key, shape, dtype)
        return _OnDevice(torch.zeros(shape, dtype=getattr(torch, dtype), device=device))

    return allocate


class _OnDevice:
    def __init__(self, data: Tensor) -> None:
        self._data = data

    def take(self, slots: NDArray[np.int64], _axis: int) -> Tensor:
        return self._data.index_select(0, torch.from_numpy(slots).to(self._data.device))

    def __getitem__(self, slot: int) -> Tensor:
        return self._data[slot]

    def __setitem__(self, slot: int, value: NDArray) -> None:
        self._data[slot] = torch.from_numpy(np.ascontiguousarray(value))
