"""A camera's picture -> what the network sees: a part of it, at the size of the spec."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import SpecError

Crop = tuple[int, int, int, int]
"""left, top, width, height in pixels of the whole picture."""


@dataclass(frozen=True, slots=True)
class View:
    """What is seen of a camera: of its crop, the largest centred part with the right proportions.

    Attributes:
        height, width: pixels of what the network sees.
        crop: what a person cut out; None = the whole picture.
        drawn_in: (height, width) of the pictures that the crop was drawn in.
    """

    height: int
    width: int
    crop: Crop | None = None
    drawn_in: tuple[int, int] | None = None

    def part(self, rows: int, columns: int) -> Crop:
        """The part of a picture of `rows` x `columns` pixels that is seen.

        Raises:
            SpecError: the crop was drawn in pictures of another size.
        """
        left, top, width, height = self._crop(rows, columns)
        kept_rows = max(1, min(height, round(width * self.height / self.width)))
        kept_columns = max(1, min(width, round(height * self.width / self.height)))
        left += (width - kept_columns) // 2
        top += (height - kept_rows) // 2
        return left, top, kept_columns, kept_rows

    def _crop(self, rows: int, columns: int) -> Crop:
        if self.crop is None:
            return 0, 0, columns, rows
        if self.drawn_in not in (None, (rows, columns)):
            height, width = self.drawn_in or (0, 0)
            raise SpecError(
                "the crop was drawn in pictures of another size",
                expected=f"pictures of {width} x {height} pixels",
                got=f"{columns} x {rows}",
                fix="set the camera back to that size, or draw the crop again "
                "(robot-rl camera roi; it writes crop, width and height)",
            )
        return self.crop

    def of(self, rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """What is seen of `rgb`.

        Args:
            rgb: uint8 [H, W, 3], of any size.

        Returns:
            uint8 [height, width, 3]; `rgb` itself when nothing is to be done. Pixels are averaged
            over their area, so that thin things do not vanish when a large picture becomes small.

        Raises:
            SpecError: see `part`.
        """
        rows, columns = rgb.shape[:2]
        left, top, kept_columns, kept_rows = self.part(rows, columns)
        part = rgb[top : top + kept_rows, left : left + kept_columns]
        if part.shape[:2] == (self.height, self.width):
            return rgb if part.shape == rgb.shape else np.ascontiguousarray(part)
        import cv2  # pictures that fit need no OpenCV

        size = (self.width, self.height)
        return np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)

    def intrinsics(self, k: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
        """Pinhole matrix [3, 3] of what is seen, from that of the whole picture.

        Pixel centres are at whole numbers, as in OpenCV and `sensor_msgs/CameraInfo`.
        """
        left, top, kept_columns, kept_rows = self.part(rows, columns)
        across, down = self.width / kept_columns, self.height / kept_rows
        shift = np.array(((1.0, 0.0, 0.5 - left), (0.0, 1.0, 0.5 - top), (0.0, 0.0, 1.0)))
        back = np.array(((1.0, 0.0, -0.5), (0.0, 1.0, -0.5), (0.0, 0.0, 1.0)))
        return back @ np.diag((across, down, 1.0)) @ shift @ k
