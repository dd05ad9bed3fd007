"""Boxes that the arm must not touch, as a person writes them in `safety.obstacles`."""

from __future__ import annotations

import math
from dataclasses import dataclass

Vec3 = tuple[float, float, float]
Box = tuple[float, float, float, float, float, float, float, float]
"""Centre in base (m), half sizes (m), cosine and sine of the yaw."""

FURTHEST_M = 20.0  # beyond, millimetres were written


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """One box: a table, a wall, a fixture.

    centre_in_base_m: its middle. size_m: lengths of its edges along its own x, y, z. yaw_rad: turn
    about base z. may_touch: parts of the arm that are *not* kept clear of it ("hand", "link7" ...):
    a fixture that the hand works in.

    Raises:
        ValueError: a value that cannot be meant.
    """

    centre_in_base_m: Vec3
    size_m: Vec3
    yaw_rad: float = 0.0
    may_touch: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse sizes and places that make no sense."""
        numbers = (*self.centre_in_base_m, *self.size_m, self.yaw_rad)
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"a box needs finite numbers, got {numbers}")
        if not 0.0 < min(self.size_m) <= max(self.size_m) <= FURTHEST_M:
            raise ValueError(
                f"size_m is the lengths of the edges, in (0, {FURTHEST_M:g}] m, got {self.size_m}"
            )
        if max(map(abs, self.centre_in_base_m)) > FURTHEST_M:
            got = self.centre_in_base_m
            raise ValueError(f"centre_in_base_m must lie within {FURTHEST_M:g} m of 0, got {got}")
        if abs(self.yaw_rad) > 2 * math.pi:
            raise ValueError(f"yaw_rad is in radians, within 2 pi of 0, got {self.yaw_rad}")

    @property
    def box(self) -> Box:
        """The numbers that the distances are computed from."""
        x, y, z = self.centre_in_base_m
        a, b, c = self.size_m
        return (x, y, z, a / 2, b / 2, c / 2, math.cos(self.yaw_rad), math.sin(self.yaw_rad))


TABLE = Obstacle(centre_in_base_m=(0.0, 0.0, -0.5), size_m=(6.0, 6.0, 1.0))
"""Its top is at the height of the arm's foot."""
