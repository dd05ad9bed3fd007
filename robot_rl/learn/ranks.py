"""Several learner processes as one (`torchrun`): each takes a share of the batch.

Gradients are averaged, so the update is that of the whole batch. There is no second code path: a
process alone is the only rank, and nothing is exchanged. All ranks hold the same networks
(same seed, same averaged gradients); each reads the store itself and draws its own part of the
batch. Only rank 0 talks to the robot and writes files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from robot_rl.errors import ConfigError


def join() -> None:
    """Join the other ranks when started by `torchrun`; does nothing in a process alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def leave() -> None:
    """Leave the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def count() -> int:
    """Return how many ranks there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process; 0 talks to the robot and writes files."""
    return dist.get_rank() if dist.is_initialized() else 0


def share(batch_size: int) -> int:
    """Return this rank's part of a batch size.

    Raises:
        ConfigError: the batch cannot be divided evenly.
    """
    if batch_size % count():
        raise ConfigError(
            "the batch does not divide among the ranks",
            expected=f"algo.batch_size divisible by {count()}",
            got=str(batch_size),
            fix="change algo.batch_size, or the number of processes given to torchrun",
        )
    return batch_size // count()


def average_(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its mean over all ranks, in place."""
    if count() > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)
            tensor.div_(count())


def agree(value: int) -> int:
    """Return rank 0's value, on every rank."""
    if count() == 1:
        return value
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    said = torch.tensor([int(value)], device=device)
    dist.broadcast(said, 0)
    return int(said)
