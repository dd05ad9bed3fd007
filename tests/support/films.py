"""Films that stand in for UVC cameras: each pixel says where it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WIDTH, HEIGHT, FPS = 160, 120, 30
SIZE = {"width": WIDTH, "height": HEIGHT}


def ramp(width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """RGB: red grows to the right, green downwards, blue is constant."""
    across, down = np.meshgrid(np.linspace(0, 250, width), np.linspace(0, 250, height))
    return np.stack((across, down, np.full_like(across, 80)), 2).astype(np.uint8)


def write_film(path: Path, seconds: float = 60.0, width: int = WIDTH, height: int = HEIGHT) -> Path:
    """A film of `ramp` that plays in real time, long enough for a test."""
    import cv2

    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), FPS, (width, height))
    picture = np.ascontiguousarray(ramp(width, height)[..., ::-1])
    for _ in range(round(seconds * FPS)):
        writer.write(picture)
    writer.release()
    return path
