"""A UVC camera (webcam, endoscope, frame grabber) through V4L2 and OpenCV.

`device` may also be the path of a film: it is played once in place of the camera; a camera node
opens it again at its end.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.config.registry import register
from robot_rl.errors import SetupError
from robot_rl.observe.cameras import Shot
from robot_rl_hardware.camera import SETTLE_S, ClockMap, DeviceCameraConfig, Gaps
from robot_rl_hardware.reader import FoundDevice, pick

log = logging.getLogger(__name__)

SYSFS = Path("/sys/class/video4linux")
DEV = Path("/dev")
MANUAL = 1  # V4L2_EXPOSURE_MANUAL
NEAR_S = 5.0  # stamps this close to a clock of the system are that clock's


@register("camera", "uvc")
@dataclass(frozen=True, kw_only=True)
class UvcConfig(DeviceCameraConfig):
    """A camera on USB that the kernel's driver serves (`/dev/video*`), or a film."""

    device: str = ""  # /dev/v4l/by-id/... (stays the same), part of its name, a film; "" = only one
    fourcc: str = ""  # e.g. MJPG, which many cameras need for 30 Hz; "" = the driver's choice

    def __post_init__(self) -> None:
        """Check lengths."""
        super().__post_init__()
        if len(self.fourcc) not in (0, 4):
            raise ValueError(f"fourcc has four letters, e.g. MJPG, got '{self.fourcc}'")

    def connect(self) -> UvcCamera:
        """See `Device`."""
        return connect(self)


def find_uvc(sysfs: Path = SYSFS, dev: Path = DEV) -> list[FoundDevice]:
    """The V4L2 cameras of this machine, readable or not; by the path that stays the same."""
    stable = {link.resolve(): link for link in sorted((dev / "v4l" / "by-id").glob("*"))}
    found = []
    for about in sorted(sysfs.glob("video*"), key=lambda p: (len(p.name), p.name)):
        try:
            first = (about / "index").read_text().strip() == "0"  # others carry metadata
            name = (about / "name").read_text().strip()
        except OSError:
            continue
        path = dev / about.name
        if first:
            problem = "" if os.access(path, os.R_OK | os.W_OK) else "no read permission"
            found.append(FoundDevice("uvc", name, str(stable.get(path.resolve(), path)), problem))
    return found


class UvcCamera:
    """`OpenCamera` of a device or a film.

    Args:
        capture: `cv2.VideoCapture`, open.

    Raises:
        SetupError: it sends pictures of another size than asked for.
    """

    def __init__(self, capture: Any, name: str, config: UvcConfig, *, film: bool = False) -> None:
        self.name, self.calibration = name, config.calibration
        self._capture, self._config, self._film = capture, config, film
        self._clock = ClockMap()
        self._began_s = math.nan
        self._locked = not config.lock
        self._ask()
        self._gaps = Gaps(self._capture.get(_cv2().CAP_PROP_FPS) or config.fps)

    def _ask(self) -> None:
        """Set size and rate, and look what came of it."""
        cv2, config = _cv2(), self._config
        if config.fourcc:
            self._capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*config.fourcc))
        wanted = (config.width, config.height)
        sizes = (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
        for key, value in zip((*sizes, cv2.CAP_PROP_FPS), (*wanted, config.fps), strict=True):
            self._capture.set(key, value)
        got = tuple(int(self._capture.get(key)) for key in sizes)
        if got != wanted:
            self.close()
            raise SetupError(
                f"{self.name} does not send pictures of this size",
                expected=f"{wanted[0]} x {wanted[1]} pixels (width, height)",
                got=f"{got[0]} x {got[1]}",
                fix="choose a size that it has: v4l2-ctl --list-formats-ext -d DEVICE",
            )

    def read(self) -> Shot | None:
        """See `OpenCamera`. A film is played at its own rate; at its end it is gone."""
        done, bgr = self._capture.read()
        if not done:
            raise OSError(f"{self.name} sends no pictures any more")
        cv2 = _cv2()
        taken_s = self._capture.get(cv2.CAP_PROP_POS_MSEC) * 1e-3
        if math.isnan(self._began_s):
            self._began_s = time.monotonic() - (taken_s if self._film else 0.0)
        if self._film:
            time.sleep(max(0.0, self._began_s + taken_s - time.monotonic()))
        if not self._locked and time.monotonic() - self._began_s > SETTLE_S:
            self._lock()
        stamp_s = self._system_s(taken_s)
        return Shot(
            stamp_s,
            np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), np.uint8),
            lost=self._gaps.lost(stamp_s),
        )

    def _system_s(self, taken_s: float) -> float:
        """System time of a picture; the kernel stamps with its monotonic clock."""
        now_s, monotonic_s = time.time(), time.monotonic()
        if not self._film and abs(monotonic_s - taken_s) < NEAR_S:
            return now_s - (monotonic_s - taken_s)
        return self._clock.system_s(taken_s, now_s)

    def _lock(self) -> None:
        """Keep exposure and white balance as they are, or as the config says."""
        cv2, config, self._locked = _cv2(), self._config, True
        exposure = (cv2.CAP_PROP_AUTO_EXPOSURE, MANUAL, cv2.CAP_PROP_EXPOSURE)
        white = (cv2.CAP_PROP_AUTO_WB, 0, cv2.CAP_PROP_WB_TEMPERATURE)
        asked_for = {"exposure": config.exposure, "white balance": config.white_balance_k}
        for what, (automatic, off, value) in zip(asked_for, (exposure, white), strict=True):
            asked = asked_for[what]
            settled = self._capture.get(value) if asked is None else asked
            if self._capture.set(automatic, off) and self._capture.set(value, settled):
                log.info("%s: %s is locked at %g", self.name, what, settled)
            else:
                log.warning("%s: its driver does not let %s be locked", self.name, what)

    def close(self) -> None:
        """See `OpenCamera`."""
        self._capture.release()


def connect(
    config: UvcConfig,
    find: Callable[[], list[FoundDevice]] = find_uvc,
    opened: Callable[[str], Any] | None = None,
) -> UvcCamera:
    """Open the camera that `config.device` means. Raises `SetupError` when that fails."""
    film = Path(config.device).is_file()
    if film:
        found = FoundDevice("uvc", Path(config.device).name, config.device)
    else:
        found = pick(find(), config.device, "UVC camera", none_found(), key="cameras.NAME.device")
    capture = (opened or _open)(found.path)
    if not capture.isOpened():
        raise SetupError(
            f"{found.name} cannot be opened",
            expected=f"to read {found.path}",
            got="OpenCV refuses it: taken by another program, or no camera or film",
            fix=f"end the other program (fuser {found.path}), plug the camera in again",
        )
    return UvcCamera(capture, found.name, config, film=film)


def none_found() -> SetupError:
    """What to say when there is no camera."""
    return SetupError(
        "no UVC camera found",
        expected=f"a camera in {SYSFS}",
        got="none",
        fix="plug it in; in a container, pass /dev/video* through; lsusb shows whether it is there",
    )


def _open(path: str) -> Any:
    cv2 = _cv2()
    if Path(path).is_file():
        return cv2.VideoCapture(path)
    return cv2.VideoCapture(os.path.realpath(path), cv2.CAP_V4L2)


def _cv2() -> Any:
    # V4L2 gives up on a silent camera after this many seconds; read when OpenCV is imported
    os.environ.setdefault("OPENCV_VIDEOIO_V4L_SELECT_TIMEOUT", "1")
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise SetupError(
            "a UVC camera needs the package 'opencv-python-headless'",
            expected="import cv2 works",
            got=str(error),
            fix="pip install 'robot-rl[hardware]'",
        ) from error
    return cv2
