"""The `InputDevice` of everything that a person holds: a source of readings and a `Handset`."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from robot_rl.errors import RobotRLError
from robot_rl.operate.calibration import Rest
from robot_rl.operate.handset import DeviceReading, Handset, HandsetConfig
from robot_rl.operate.rewind import Rewind
from robot_rl.ports import OperatorInput, Task
from robot_rl.spec import ActionSpec, BoxActionSpec
from robot_rl.system.jumps import JUMP_S
from robot_rl.types import HELPED, Driver, RobotState

log = logging.getLogger(__name__)

TICK_S = 1e-6  # a newer reading has a newer stamp, even if the robot's state is still the old one
PRESENT_S = 1.0  # a page in the seat speaks 50 times a second
PATIENCE_S = 0.5  # why a device refuses is logged after this long ...
TELL_S, SELDOM_S = 5.0, 600.0  # ... again after this long, then each time twice as long, up to this


class Source(Protocol):
    """Where a `HeldDevice` gets its readings from."""

    def read(self, state: RobotState | None) -> DeviceReading | None:
        """Newest reading, stamped with `time.monotonic`, never blocking; None = device is gone.

        `state` helps sources that must turn a vector into the TCP frame.

        Raises:
            RobotRLError: what was heard makes no sense; the device counts as gone, the person is
                told.
        """
        ...


@runtime_checkable
class WaitingSource(Source, Protocol):
    """A source that can tell when it has news; the others are read at a fixed rate."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something arrives, at most this long; True when it has."""
        ...


def wait_for_news(source: Source, timeout_s: float) -> bool:
    """Sleep until a source has news, at most this long; True when it is known to have."""
    if isinstance(source, WaitingSource):
        return source.wait(timeout_s)
    time.sleep(timeout_s)
    return False


class HeldDevice:
    """`InputDevice` of a source and a `Handset`: every device that a person holds.

    Args:
        name: for the log.
        now_s: clock of the readings' stamps.
        rewind: leads the robot back while the button `rewind` is held; None = nothing does.
    """

    def __init__(
        self,
        handset: Handset,
        source: Source,
        name: str,
        now_s: Callable[[], float] = time.monotonic,
        rewind: Rewind | None = None,
    ) -> None:
        self.handset, self.source, self.name = handset, source, name
        self._rewind, self._purpose = rewind, "train"
        self._now_s = now_s
        self._heard_s = self._stamp_s = 0.0
        self._tell_s: float | None = None  # when to say why it refuses; None while it does not
        self._again_s = TELL_S

    @property
    def held(self) -> frozenset[str]:
        """Meanings of the buttons that are down."""
        return self.handset.held

    @property
    def problem(self) -> str:
        """Why the device would not drive now, for the person to read; "" when it would."""
        return self.handset.problem or (self._rewind.problem if self._rewind else "")

    @property
    def silent_s(self) -> float:
        """Seconds since the device was heard; infinity before the first time."""
        return self._now_s() - self._heard_s if self._heard_s else math.inf

    @property
    def present(self) -> bool:
        """Whether the device was heard lately; while it is, simulated time keeps to wall time."""
        return self.silent_s < PRESENT_S

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Forget the last episode; everything must be neutral again, or have been until now."""
        self._purpose = purpose
        self.handset.begin_episode(seed, purpose)
        if self._rewind is not None:
            self._rewind.begin_episode()

    def poll(self, state: RobotState) -> OperatorInput:
        """What the person does now; stamped, on the run's clock, with when the device was heard."""
        now_s = self._now_s()
        try:
            value = self.handset.feed(self.source.read(state), now_s)
        except RobotRLError as error:
            value = self.handset.lose(str(error))
        value = self._led_back(value, state)
        if value.stamp_s != self._heard_s:  # one reading keeps one stamp, however often it is seen
            self._heard_s = value.stamp_s
            run_s = state.stamp_s - (now_s - value.stamp_s)
            ahead = self._stamp_s + TICK_S
            self._stamp_s = max(run_s, ahead) if ahead - run_s < JUMP_S else run_s  # set back
        self._tell(now_s)
        return replace(value, stamp_s=self._stamp_s)

    def _led_back(self, value: OperatorInput, state: RobotState) -> OperatorInput:
        """`value`, or the way back while `rewind` is held; with `drive` the person drives it."""
        if self._rewind is None:
            return value
        held, free = self.handset.held, self.handset.ready and self._purpose in HELPED
        if not free or "rewind" not in held or "hold" in held:
            self._rewind.follow(state)
            return value
        if "drive" in held:
            return replace(value, driver=Driver.RECOVERY)
        action = self._rewind.back(state)
        return replace(value, driving=True, action=action, driver=Driver.RECOVERY)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the source has news, at most this long; True when it is known to have."""
        return wait_for_news(self.source, timeout_s)

    def _tell(self, now_s: float) -> None:
        """Say in the log what keeps the device from driving, and when nothing does any more."""
        if self.handset.ready:
            if self._again_s > TELL_S:  # it was told
                log.info("%s: neutral, ready to drive", self.name)
            self._tell_s, self._again_s = None, TELL_S
        elif self._tell_s is None:
            self._tell_s = now_s + PATIENCE_S
        elif now_s >= self._tell_s:
            log.warning("%s does not drive: %s", self.name, self.handset.problem)
            self._tell_s = now_s + self._again_s
            self._again_s = min(2 * self._again_s, SELDOM_S)


def hand_on(
    task: Task,
    config: HandsetConfig,
    source: Source,
    name: str,
    rest: Rest | None = None,
    *,
    absent: str = "",
) -> HeldDevice:
    """A held device that drives this task's arm, and leads it back; or drives an environment.

    absent: see `Handset`.

    Raises:
        ConfigError: see `Handset`.
    """
    hand = task.spec.hand
    unit = None
    if isinstance(hand, ActionSpec):
        unit = (hand.translation_m, hand.rotation_rad, 1.0 / task.spec.control_hz)
    handset = Handset(config, hand.size, rest, hand.motion, unit, absent=absent)
    rewind = None if isinstance(hand, BoxActionSpec) else Rewind(hand)
    return HeldDevice(handset, source, name, rewind=rewind)
