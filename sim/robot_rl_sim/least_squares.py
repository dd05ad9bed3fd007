"""Least squares with the solver that `mujoco.sysid` begins with: Gauss-Newton, damped, with bounds.

It comes with MuJoCo. The rest of `mujoco.sysid` plays control signals into a model; here a gate and
a controller stand between the two.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mujoco import minimize
from numpy.typing import NDArray

F64 = NDArray[np.float64]
MOST = 10  # steps; a good start needs five
STIFFER = 10.0  # damping, from one try to the next: few tries where nothing gets better


class _Soft(minimize.Norm):
    """Squares of what is small beside `scale`; what is large counts as its distance."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def _root(self, r: F64) -> F64:
        return np.sqrt(1.0 + (r / self._scale) ** 2)

    def value(self, r: F64) -> np.float64:
        return np.float64(self._scale**2 * np.sum(self._root(r) - 1.0))

    def grad_hess(self, r: F64, proj: F64) -> tuple[F64, F64]:
        weight = 1.0 / self._root(r)
        return proj.T @ (weight * r), proj.T @ (weight * proj)


def least_squares(
    off: Callable[[F64], F64],
    slopes: Callable[[F64], F64],
    start: F64,
    bounds: tuple[F64, F64],
    *,
    tolerance: float,
    soft: float,
) -> F64:
    """Where `off` [residuals] is least.

    slopes: its derivatives [residuals, coordinates]. tolerance: it ends with a step that is so
    small beside the coordinates. soft: residuals that are larger count less.
    """
    found, _ = minimize.least_squares(
        start,
        lambda points: np.array([off(point) for point in points.T]).T,
        bounds=bounds,
        jacobian=lambda point, _off: slopes(point.ravel()),
        norm=_Soft(soft),
        mu_factor=STIFFER,
        xtol=tolerance,
        gtol=1e-5,
        max_iter=MOST,
        verbose=minimize.Verbosity.SILENT,
    )
    return found
