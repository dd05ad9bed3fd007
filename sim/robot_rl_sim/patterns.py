"""Patterns for the surfaces of a scene: flat, checker, gradient or noise, painted on a texture."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


def paint(texels: NDArray[np.uint8], contrast: float, rng: np.random.Generator) -> None:
    """Darken a texture [H, W, 3] in place by a pattern in one colour.

    A texture of six faces, one below the other, has the same pattern on each.

    contrast: in [0, 1], of the darkest place: how much its colour may lose.
    """
    width = texels.shape[1]
    faces = texels.reshape(-1, width, width, 3)
    shade = PATTERNS[rng.integers(len(PATTERNS))](width, rng)
    kept = 1.0 - contrast * shade[..., None] * rng.uniform(size=3).astype(np.float32)
    np.copyto(faces, faces * kept + 0.5, casting="unsafe")  # 0.5: rounds


def _flat(side: int, _rng: np.random.Generator) -> F32:
    return np.ones((side, side), np.float32)


def _checker(side: int, rng: np.random.Generator) -> F32:
    across, down = (np.arange(side) * rng.integers(2, 9) // side for _ in range(2))
    return ((across + down[:, None]) % 2).astype(np.float32)


def _gradient(side: int, rng: np.random.Generator) -> F32:
    angle = rng.uniform(0.0, 2.0 * np.pi)
    place = np.linspace(-1.0, 1.0, side)
    slope = np.cos(angle) * place + np.sin(angle) * place[:, None]
    return (0.5 + 0.5 * slope / np.abs(slope).max()).astype(np.float32)


def _noise(side: int, rng: np.random.Generator) -> F32:
    cells = int(rng.integers(4, 17))
    grid = rng.uniform(size=(cells, cells)).astype(np.float32)
    return np.asarray(cv2.resize(grid, (side, side)), np.float32)


PATTERNS = (_flat, _checker, _gradient, _noise)
