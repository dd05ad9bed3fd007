"""A hand on a device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_rl.operate.calibration import AXES, Rest
from robot_rl.operate.handset import DeviceReading, Handset, HandsetConfig
from robot_rl.ports import OperatorInput

CONFIG = HandsetConfig()


PERIOD_S = 0.02


class Hand:
    """Feeds a handset at 50 Hz."""

    def __init__(
        self, config: HandsetConfig = CONFIG, size: int = 7, rest: Rest | None = None
    ) -> None:
        self.handset = Handset(config, size, rest)
        self.now_s = 100.0

    def feel(
        self, axes: dict[str, float] | None = None, held: str = "", seconds: float = PERIOD_S
    ) -> OperatorInput:
        """Hold this for so long; what the handset makes of the end of it."""
        values = [(axes or {}).get(name, 0.0) for name in AXES]
        for _ in range(max(round(seconds / PERIOD_S), 1)):
            self.now_s += PERIOD_S
            reading = DeviceReading(self.now_s, np.array(values), frozenset(held.split()))
            out = self.handset.feed(reading, self.now_s)
        return out

    def rested(self) -> Hand:
        """Everything has been seen neutral."""
        self.feel(seconds=0.3)
        assert self.handset.ready
        return self


def motion(value: OperatorInput) -> NDArray[np.float32]:
    return value.action[:6]
