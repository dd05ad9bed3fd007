"""Cameras as a person looks at them: the newest whole picture, how it comes, and what is wrong.

A run cuts its pictures at once and ends when one is missing. Who looks at a camera to set it up
wants the whole picture, and the reason and the fix in its place while none comes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import RobotRLError, SetupError
from robot_rl.observe.cameras import Calibration, Device, OpenCamera
from robot_rl.observe.freshness import Freshness

log = logging.getLogger(__name__)

RETRY_S = 1.0  # between two attempts to open a camera
AGAIN_S = 0.1  # and after it has sent pictures
REPORT_S = 1.0  # the rate is counted over this long
CLOSE_S = 3.0  # an OpenCV camera that says nothing lets go after a second
CLOCK_S = 5.0  # stamps further from this machine's clock are of another clock
STAMPS = 15  # gaps between pictures whose median is a camera's period


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of a camera now.

    Attributes:
        source: the device or the topic, for people.
        number: of the newest picture, counted from 1; 0 = there was none.
        rgb: the newest whole picture, uint8 [H, W, 3]; None before the first.
        received_s: when it arrived, monotonic.
        delay_s: how long it was under way, from its stamp to its arrival; NaN when the stamp is of
            another clock (a simulation's).
        rate_hz: pictures per second; 0 until they were counted for a second.
        lost: pictures that the camera took and that never arrived.
        calibration: of the whole picture; None = nobody has said it.
        problem: why no picture comes; None when they come.
    """

    source: str
    number: int = 0
    rgb: NDArray[np.uint8] | None = None
    received_s: float = -math.inf
    delay_s: float = math.nan
    rate_hz: float = 0.0
    lost: int = 0
    calibration: Calibration | None = None
    problem: RobotRLError | None = None

    @property
    def age_s(self) -> float:
        """Time since it was taken, or since it arrived where the stamp says nothing."""
        delay_s = 0.0 if math.isnan(self.delay_s) else self.delay_s
        return time.monotonic() - self.received_s + delay_s


class Watch(Protocol):
    """A camera that somebody looks at; `sight` may be called from any thread."""

    def sight(self) -> Sight:
        """What is known now."""
        ...


class Tally:
    """Collects the pictures of one camera in one thread, for readers in others."""

    def __init__(self, source: str) -> None:
        self._lock = threading.Lock()
        self._freshness, self._reported_s = Freshness(), time.monotonic()
        self._freshness.report(self._reported_s)
        self._now = Sight(source)

    def took(
        self,
        rgb: NDArray[np.uint8],
        stamp_s: float,
        lost: int,
        source: str,
        calibration: Calibration | None,
    ) -> None:
        """Count a picture that has just arrived; it ends what was wrong. lost: before it."""
        now_s, delay_s = time.monotonic(), time.time() - stamp_s
        self._freshness.saw(now_s)
        with self._lock:
            self._now = Sight(
                source,
                self._now.number + 1,
                rgb,
                now_s,
                delay_s if abs(delay_s) < CLOCK_S else math.nan,
                self._now.rate_hz,
                self._now.lost + lost,
                calibration,
            )

    def wrong(self, problem: RobotRLError | None) -> None:
        """Say why no picture comes; None = one will."""
        with self._lock:
            self._now = replace(self._now, problem=problem)

    def sight(self) -> Sight:
        """What is known now."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._reported_s >= REPORT_S:
                self._reported_s = now_s
                rate_hz = self._freshness.report(now_s).rate_hz
                self._now = replace(self._now, rate_hz=rate_hz)
            return self._now


class DeviceWatch:
    """`Watch` of a camera that is opened here, in a thread of its own, again and again."""

    def __init__(self, name: str, device: Device) -> None:
        self._name, self._device = name, device
        self._tally = Tally("opening the camera")
        self.sight = self._tally.sight
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"camera-{name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            before = self._tally.sight().number
            try:
                self._follow(self._device.connect())
            except RobotRLError as error:
                self._wait(error)
            except OSError as error:
                log.info("camera %s: %s", self._name, error)
                if self._tally.sight().number == before:
                    self._wait(_broken(self._name, error))
                else:  # it sent pictures: it may be back at once, as a film is
                    self._stop.wait(AGAIN_S)
            except Exception as error:  # a driver's own; the page must not wait for ever
                log.exception("camera %s", self._name)
                self._wait(_broken(self._name, error))

    def _wait(self, problem: RobotRLError) -> None:
        self._tally.wrong(problem)
        self._stop.wait(RETRY_S)

    def _follow(self, camera: OpenCamera) -> None:
        """Pass on pictures until the camera is gone, which is an `OSError`."""
        try:
            while not self._stop.is_set():
                shot = camera.read()
                if shot is not None:
                    self._tally.took(
                        shot.rgb, shot.stamp_s, shot.lost, camera.name, camera.calibration
                    )
        finally:
            camera.close()

    def close(self) -> None:
        """Give the device back."""
        self._stop.set()
        self._thread.join(CLOSE_S)


class Blind:
    """`Watch` of a camera that cannot be looked at on this machine."""

    def __init__(self, problem: RobotRLError) -> None:
        self._sight = Sight("", problem=problem)

    def sight(self) -> Sight:
        """Why."""
        return self._sight


class StampGaps:
    """Counts pictures that are missing between those that came, where nobody numbers them.

    A gap of two or more times the median of the last gaps is as many pictures that are missing.
    """

    def __init__(self) -> None:
        self._gaps_s: deque[float] = deque(maxlen=STAMPS)
        self._last_s = math.nan

    def lost(self, stamp_s: float) -> int:
        """How many are missing between the picture before and this one."""
        gap_s, self._last_s = stamp_s - self._last_s, stamp_s
        if not gap_s > 0.0:  # the first, or a clock that was set back
            return 0
        self._gaps_s.append(gap_s)
        if len(self._gaps_s) < STAMPS:
            return 0
        return max(0, round(gap_s / float(np.median(self._gaps_s))) - 1)


def _broken(name: str, error: Exception) -> SetupError:
    return SetupError(
        f"camera {name} cannot be read",
        expected="pictures from its driver",
        got=f"{type(error).__name__}: {error}",
        fix="plug it in again, on another port; the terminal says more",
    )
