"""What camera drivers share: a device's clock on the system's, and pictures that never arrived."""

from __future__ import annotations

import pytest

from robot_rl_hardware.camera import WINDOW, ClockMap, DeviceCameraConfig, Gaps


def test_a_stamp_is_mapped_by_the_picture_that_came_with_the_least_delay() -> None:
    clock = ClockMap()
    delays_s = (0.030, 0.012, 0.050, 0.020)
    stamps_s = [clock.system_s(5.0 + i, 105.0 + i + d) for i, d in enumerate(delays_s)]
    assert stamps_s == pytest.approx([105.030, 106.012, 107.012, 108.012])


def test_a_device_clock_that_drifts_is_followed() -> None:
    clock, fast = ClockMap(), 1.0 + 1e-4  # 0.1 ms a second
    for i in range(10 * WINDOW):
        taken_s = i / 30
        stamp_s = clock.system_s(taken_s * fast, taken_s + 0.01)
    assert stamp_s == pytest.approx(taken_s + 0.01, abs=2e-3)


def test_a_device_clock_that_was_set_anew_begins_anew() -> None:
    clock = ClockMap()
    clock.system_s(50.0, 1000.0)
    assert clock.system_s(0.0, 1001.0) == pytest.approx(1001.0)
    assert clock.system_s(1.0, 1002.0) == pytest.approx(1002.0)


def test_pictures_that_never_arrived_are_counted() -> None:
    gaps = Gaps(30.0)
    assert [gaps.lost(n / 30) for n in (0, 1, 2.2, 5, 6, 6)] == [0, 0, 0, 2, 0, 0]


def test_a_rate_that_no_camera_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fps must lie in \[1, 240\], got 0"):
        DeviceCameraConfig(fps=0)
