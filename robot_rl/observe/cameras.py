"""Where a camera's pictures come from, and what is cut out of them: the section `cameras`.

A camera is either a topic of somebody else's driver (`name: topic`), or a device that one of our
own camera nodes reads (`Device`; RealSense and UVC in `robot_rl_hardware`).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import register
from robot_rl.geometry import pose
from robot_rl.observe.pictures import Crop, View
from robot_rl.types import Pose

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Pinhole matrix and distortion of a camera's whole picture.

    k: float64 [3, 3], pixels; distortion: coefficients of the named model (`plumb_bob`: k1 k2 p1 p2
    k3).
    """

    k: NDArray[np.float64]
    distortion: tuple[float, ...] = ()
    model: str = "plumb_bob"


@dataclass(frozen=True, kw_only=True)
class CameraConfig:
    """What every kind of camera has; sizes are of the whole picture, in pixels.

    `robot-rl calibrate` measures the rest (docs/calibration.md). k: fx, fy, cx, cy; () = as the
    driver says. k_size: width and height of the pictures in which k was found; () = `width` and
    `height`, as in older files. distortion: k1, k2, p1, p2, k3 of the same calibration. mount:
    "hand" or "beside"; pose: of the optical frame in the TCP (hand) or in the base (beside), as x,
    y, z in metres and a quaternion xyzw; () = nobody has measured it. latency_s: a picture shows
    the arm as it was this long before the picture's stamp.
    """

    width: int = 640
    height: int = 480
    crop: Crop | None = None  # left, top, width, height: what is seen of it; None = all of it
    k: tuple[float, ...] = ()
    k_size: tuple[int, ...] = ()
    distortion: tuple[float, ...] = ()
    mount: str = ""
    pose: tuple[float, ...] = ()
    latency_s: float = 0.0

    @property
    def calibration(self) -> Calibration | None:
        """What `k` and `distortion` say of pictures of `width` x `height`."""
        return self.calibration_at(self.height, self.width)

    def calibration_at(self, rows: int, columns: int) -> Calibration | None:
        """What `k` and `distortion` say of whole pictures of this size; None = nothing.

        They are not scaled to another size: for that, some sensors average pixels and others cut.
        """
        if not self.k:
            return None
        if self.lens_size != (rows, columns):
            if self.k_size:
                _warn_of_other_size(self.k, self.k_size, (columns, rows))
            return None
        fx, fy, cx, cy = self.k
        return Calibration(np.array(((fx, 0, cx), (0, fy, cy), (0, 0, 1.0))), self.distortion)

    @property
    def lens_size(self) -> tuple[int, int]:
        """Height and width of the pictures in which `k` was found."""
        width, height = self.k_size or (self.width, self.height)
        return height, width

    @property
    def fovy_rad(self) -> float:
        """Vertical angle of view of the whole picture, as calibrated; 0.0 where nobody has."""
        return 2 * math.atan2(self.lens_size[0] / 2, self.k[1]) if self.k else 0.0

    @property
    def calibrated_pose(self) -> Pose | None:
        """What `pose` says; see the class."""
        return pose(self.pose[:3], self.pose[3:]) if self.pose else None

    def _check_calibration(self) -> None:
        if len(self.k) not in (0, 4) or len(self.distortion) not in (0, 5):
            raise ValueError("k is fx, fy, cx, cy; distortion is k1, k2, p1, p2, k3; or neither")
        if len(self.k_size) not in (0, 2) or min(self.k_size, default=1) < 1:
            raise ValueError(f"k_size is width, height of k's pictures, got {list(self.k_size)}")
        if self.mount not in ("", "hand", "beside"):
            raise ValueError(f"mount must be hand or beside, got '{self.mount}'")
        if bool(self.pose) != bool(self.mount):
            raise ValueError("mount and pose belong together: robot-rl calibrate camera has both")
        if len(self.pose) not in (0, 7):
            raise ValueError("pose is x, y, z in metres and a quaternion x, y, z, w")
        if self.pose and not 0.99 < float(np.linalg.norm(self.pose[3:])) < 1.01:
            raise ValueError(f"the quaternion of pose has not length 1: {list(self.pose[3:])}")
        if not -0.2 <= self.latency_s <= 0.5:
            raise ValueError(f"latency_s must lie in [-0.2, 0.5] s, got {self.latency_s}")

    def __post_init__(self) -> None:
        """Check that the crop lies in the picture, and what calibrations say."""
        if min(self.width, self.height) < 1:
            raise ValueError(f"width and height must be positive, got {self.width}, {self.height}")
        self._check_calibration()
        if self.crop is None:
            return
        left, top, width, height = self.crop
        inside = left >= 0 and top >= 0 and min(width, height) >= 1
        if not (inside and left + width <= self.width and top + height <= self.height):
            raise ValueError(
                f"crop [left, top, width, height] = {list(self.crop)} leaves the picture of "
                f"{self.width} x {self.height} pixels"
            )

    def view(self, size: tuple[int, int]) -> View:
        """What the network sees, at `size` (height, width)."""
        return View(*size, self.crop, (self.height, self.width))


@cache  # once for each lens and size, though it is asked for with every picture
def _warn_of_other_size(
    k: tuple[float, ...], found_in: tuple[int, ...], shown: tuple[int, int]
) -> None:
    log.warning(
        "k = %s of a camera was found in pictures of %d x %d pixels, and these have %d x %d: it is "
        "not used; robot-rl calibrate camera finds it anew, or set width and height back",
        list(k),
        *found_in,
        *shown,
    )


@register("camera", "topic")
@dataclass(frozen=True, kw_only=True)
class TopicCameraConfig(CameraConfig):
    """A topic of somebody else's driver. Its pictures may have any size, unless they are cropped.

    width, height: of the driver's pictures; a crop is checked against them, a double sends them.
    """

    topic: str = ""  # "" = camera/<name>/color/image_raw
    compressed: bool = False  # CompressedImage; so is every topic that ends in /compressed


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture of a device.

    stamp_s: when it was taken, system time; rgb: uint8 [H, W, 3]; depth_mm: uint16 [H, W], 0 = not
    known, seen from where `rgb` is seen; lost: pictures that the device took since the last one and
    that never arrived.
    """

    stamp_s: float
    rgb: NDArray[np.uint8]
    depth_mm: NDArray[np.uint16] | None = None
    lost: int = 0


class OpenCamera(Protocol):
    """An open device; used by one thread."""

    name: str  # maker's name and serial number, for people
    calibration: Calibration | None  # None = nobody has measured it

    def read(self) -> Shot | None:
        """The next picture; None when none came within about 0.1 s. `OSError` once it is gone."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


@runtime_checkable
class Device(Protocol):
    """The config of a camera that a camera node of ours reads."""

    def connect(self) -> OpenCamera:
        """Open it.

        Raises:
            SetupError: it is not there, is taken, or a package is missing.
        """
        ...
