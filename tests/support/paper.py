"""A calibration board photographed straight on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.board import Board

EDGE = 60  # pixels of white paper around it


def seen(board: Board, dots_per_mm: float = 3.0) -> NDArray[np.uint8]:
    """A picture of it, uint8 [H, W, 3], with white paper around."""
    paper = np.pad(board.picture(dots_per_mm), EDGE, constant_values=255)
    return np.repeat(paper[:, :, None], 3, axis=2)
