"""What a learner does when its device has too little memory: half of each batch, once."""

from __future__ import annotations

import logging

import torch

from robot_rl.errors import ConfigError

log = logging.getLogger(__name__)


class Room:
    """How much of a batch there is room for."""

    def __init__(self) -> None:
        self._share = 1.0

    def of(self, batch_size: int) -> int:
        """Rows that are drawn where the algorithm asks for `batch_size`."""
        return max(1, round(batch_size * self._share))

    def short(self, error: Exception) -> None:
        """Memory was short in an update, which is left out.

        Raises:
            ConfigError: it is not the first time. A restart would change nothing.
        """
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        why = str(error).splitlines()[0]
        if self._share < 1.0:
            raise ConfigError(
                "the device has too little memory to learn",
                expected="room for half of a batch",
                got=why,
                fix="a smaller algo.batch_size, smaller pictures (task.image_size), or end other "
                "programs on the GPU; the newest checkpoint is intact",
            ) from error
        self._share = 0.5
        log.error("out of memory: from now on half of each batch (%s)", why)
