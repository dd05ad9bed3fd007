"""A camera that is looked at: what comes, what is lost, why nothing comes; it comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from robot_rl.errors import SetupError
from robot_rl.observe import watching
from robot_rl.observe.cameras import Shot
from robot_rl.observe.watching import Blind, DeviceWatch, Sight, StampGaps, Tally


def until(what: Callable[[], Any]) -> Any:
    give_up_s = time.monotonic() + 20.0
    while not (value := what()):
        assert time.monotonic() < give_up_s, "waited too long"
        time.sleep(0.01)
    return value


class FakeCamera:
    """Sends what `say` returns; an exception is raised in its place."""

    name, calibration = "Fake 1", None

    def __init__(self, say: Callable[[], Shot | None]) -> None:
        self._say, self.closed = say, False

    def read(self) -> Shot | None:
        time.sleep(0.01)
        return self._say()

    def close(self) -> None:
        self.closed = True


class FakeDevice:
    """A device whose `connect` and pictures a test changes while it is watched."""

    def __init__(self) -> None:
        self.connects: Callable[[], Any] = lambda: None
        self.says: Callable[[], Shot | None] = shot
        self.opened: list[FakeCamera] = []

    def connect(self) -> FakeCamera:
        self.connects()
        self.opened.append(FakeCamera(self._say))
        return self.opened[-1]

    def _say(self) -> Shot | None:
        return self.says()


def shot(lost: int = 0) -> Shot:
    return Shot(time.time() - 0.05, np.full((4, 6, 3), 7, np.uint8), lost=lost)


def fails(error: Exception) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "RETRY_S", 0.02)
    monkeypatch.setattr(watching, "AGAIN_S", 0.01)


@contextmanager
def watched(device: FakeDevice) -> Iterator[DeviceWatch]:
    watch = DeviceWatch("wrist", device)
    try:
        yield watch
    finally:
        watch.close()
    assert all(camera.closed for camera in device.opened)
    assert not any(t.name == "camera-wrist" for t in threading.enumerate())


def test_a_device_is_told_with_name_age_and_losses() -> None:
    device = FakeDevice()
    device.says = lambda: shot(lost=2)
    with watched(device) as watch:
        sight = until(lambda: watch.sight().number > 3 and watch.sight())
    assert sight.source == "Fake 1" and sight.problem is None and sight.rgb.shape == (4, 6, 3)
    assert sight.lost == 2 * sight.number
    assert 0.05 <= sight.age_s < 20.0


def test_a_camera_that_cannot_be_opened_says_why_and_comes_back_by_itself() -> None:
    device = FakeDevice()
    device.connects = fails(SetupError("C920 cannot be opened", fix="end the other program"))
    with watched(device) as watch:
        problem = until(lambda: watch.sight().problem)
        assert problem.summary == "C920 cannot be opened" and watch.sight().number == 0
        device.connects = lambda: None
        until(lambda: watch.sight().number)
        assert watch.sight().problem is None


def test_a_cable_that_is_pulled_is_told_until_the_camera_is_back() -> None:
    device = FakeDevice()
    with watched(device) as watch:
        until(lambda: watch.sight().number)
        device.says = fails(OSError("no such device"))
        problem = until(lambda: watch.sight().problem)
        assert "no such device" in problem.got and problem.fix
        device.says = shot
        until(lambda: watch.sight().problem is None)


def test_a_driver_that_fails_in_its_own_way_is_told() -> None:
    device = FakeDevice()
    device.says = fails(RuntimeError("of the driver"))
    with watched(device) as watch:
        problem = until(lambda: watch.sight().problem)
    assert problem.got == "RuntimeError: of the driver"


def test_the_rate_is_counted_and_stamps_of_another_clock_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "REPORT_S", 0.0)
    tally, rgb = Tally("topic"), np.zeros((2, 2, 3), np.uint8)
    for _ in range(3):
        tally.took(rgb, 12.5, 0, "topic", None)  # simulated time
    sight = tally.sight()
    assert sight.rate_hz > 0.0 and np.isnan(sight.delay_s) and 0.0 <= sight.age_s < 20.0
    assert Sight("x").age_s == float("inf")
    assert Blind(SetupError("no ROS")).sight().problem is not None


def test_missing_pictures_are_seen_in_the_stamps() -> None:
    gaps = StampGaps()
    assert sum(gaps.lost(n / 30) for n in range(40)) == 0
    assert gaps.lost(42 / 30) == 2  # 40 and 41 are missing
    assert gaps.lost(10 / 30) == 0  # the clock was set back
