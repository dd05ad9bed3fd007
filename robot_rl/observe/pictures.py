"""A camera's picture -> what the network sees: the middle of it, at the size of the spec."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def fit(rgb: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Cut the largest centred part with the proportions asked for, and scale it to that size.

    Args:
        rgb: uint8 [H, W, 3], of any size.
        height, width: pixels of the result.

    Returns:
        uint8 [height, width, 3]; `rgb` itself when it has this size. Pixels are averaged over their
        area, so that thin things do not vanish when a large picture becomes small.
    """
    rows, columns = rgb.shape[:2]
    if (rows, columns) == (height, width):
        return rgb
    import cv2  # pictures that fit need no OpenCV

    kept_rows = max(1, min(rows, round(columns * height / width)))
    kept_columns = max(1, min(columns, round(rows * width / height)))
    top, left = (rows - kept_rows) // 2, (columns - kept_columns) // 2
    part = rgb[top : top + kept_rows, left : left + kept_columns]
    return np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
