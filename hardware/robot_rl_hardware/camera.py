"""What the drivers of our cameras share: settings, and a device's clock on the system's."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from robot_rl.observe.cameras import CameraConfig

SETTLE_S = 1.0  # automatic exposure and white balance have this long, then they are locked
SILENT_S = 1.0  # no picture for this long: the camera is gone
WAIT_S = 0.1  # a picture is waited for this long at a time
WINDOW = 300  # pictures that a clock is followed by: 10 s at 30 Hz
JUMP_S = 1.0  # a device clock that is this far off was set anew


@dataclass(frozen=True, kw_only=True)
class DeviceCameraConfig(CameraConfig):
    """A camera that is read by a node of ours; width, height and fps are asked of it.

    Exposure and white balance are those that it has settled on after a second, then they stay:
    a policy must not see the light change because an arm came into the picture.
    """

    fps: int = 30
    lock: bool = True  # False: the camera goes on adjusting itself
    exposure: float | None = None  # in the driver's own unit; None = what it has settled on
    white_balance_k: float | None = None  # kelvin; None = what it has settled on

    def __post_init__(self) -> None:
        """Check crop and rate."""
        super().__post_init__()
        if not 1 <= self.fps <= 240:
            raise ValueError(f"fps must lie in [1, 240], got {self.fps}")


class ClockMap:
    """Stamps of a device's own clock -> system time.

    A picture arrives some time after it was taken, never before. So the smallest difference between
    arrival and stamp that was seen lately is the offset of the clocks, and the least delay; the
    window follows clocks that drift apart.
    """

    def __init__(self) -> None:
        self._offsets_s: deque[float] = deque(maxlen=WINDOW)

    def system_s(self, device_s: float, arrived_s: float) -> float:
        """System time of a stamp whose picture arrived at `arrived_s` (system time)."""
        offset_s = arrived_s - device_s
        if self._offsets_s and abs(offset_s - self._offsets_s[-1]) > JUMP_S:
            self._offsets_s.clear()
        self._offsets_s.append(offset_s)
        return device_s + min(self._offsets_s)


class Gaps:
    """Counts pictures that a camera took and that never arrived, from stamps at a known rate."""

    def __init__(self, fps: float) -> None:
        self._fps, self._last_s = fps, math.nan

    def lost(self, stamp_s: float) -> int:
        """How many are missing between the picture before and this one."""
        gap_s, self._last_s = stamp_s - self._last_s, stamp_s
        return 0 if math.isnan(gap_s) else max(0, round(gap_s * self._fps) - 1)
