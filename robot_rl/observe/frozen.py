"""A camera that sends the same picture again and again, with new stamps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.types import Pose

MOVED_M = 0.01  # how far the TCP goes before an unchanged picture of the scene is not believed


@dataclass(frozen=True, slots=True)
class _Seen:
    stamp_s: float
    rgb: NDArray[np.uint8]
    tcp_m: NDArray[np.float64]


class Frozen:
    """Tells when the content of a camera's picture was new.

    A frozen grabber may stamp an old picture anew. A real sensor never sends the same bytes twice,
    nor does our simulated camera: where the arm has moved by `MOVED_M` since a picture was first
    seen, the same picture is as old as it was then. While nothing moves it is believed, because
    another simulator's camera may well send it again.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def new_s(
        self, camera: str, stamp_s: float, rgb: NDArray[np.uint8], tcp_in_base: Pose
    ) -> float:
        """The stamp by which a picture has to be judged, at most `stamp_s`."""
        seen = self._seen.get(camera)
        if seen is None or not np.array_equal(rgb, seen.rgb):
            self._seen[camera] = _Seen(stamp_s, rgb.copy(), tcp_in_base.position_m)
            return stamp_s
        moved_m = float(np.linalg.norm(tcp_in_base.position_m - seen.tcp_m))
        return seen.stamp_s if moved_m > MOVED_M else stamp_s
