"""UVC cameras: a film in place of the camera, and doubles of /sys and of the capture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")

import cv2

from robot_rl.errors import SetupError
from robot_rl_hardware import uvc
from robot_rl_hardware.reader import FoundDevice
from robot_rl_hardware.uvc import UvcConfig, connect, find_uvc

SIZE = {"width": 64, "height": 48}
FPS, PICTURES = 30, 12


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """Pictures that are red, and a little brighter each."""
    path = tmp_path / "film.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), FPS, (64, 48))
    for number in range(PICTURES):
        writer.write(np.full((48, 64, 3), (0, 0, 100 + 10 * number), np.uint8))
    writer.release()
    return path


class Capture:
    """A `cv2.VideoCapture` of a camera that has one size; `age_s` old pictures."""

    def __init__(self, *, opens: bool = True, age_s: float = 0.02, locks: bool = True) -> None:
        self.said: dict[int, float] = {}
        self.opens, self.age_s, self.locks, self.released = opens, age_s, locks, False
        self._has = {cv2.CAP_PROP_FRAME_WIDTH: 64.0, cv2.CAP_PROP_FRAME_HEIGHT: 48.0}
        self._has |= {cv2.CAP_PROP_FPS: 30.0, cv2.CAP_PROP_EXPOSURE: 156.0}
        self._has |= {cv2.CAP_PROP_WB_TEMPERATURE: 4600.0}

    def isOpened(self) -> bool:  # noqa: N802  # OpenCV's name
        return self.opens

    def set(self, key: int, value: float) -> bool:
        self.said[key] = value
        return self.locks

    def get(self, key: int) -> float:
        if key == cv2.CAP_PROP_POS_MSEC:
            return 1e3 * (time.monotonic() - self.age_s)
        return self._has[key]

    def read(self) -> tuple[bool, Any]:
        return not self.released, np.zeros((48, 64, 3), np.uint8)

    def release(self) -> None:
        self.released = True


def one() -> list[FoundDevice]:
    return [FoundDevice("uvc", "C920", "/dev/video0")]


def test_a_film_is_read_in_rgb_with_stamps_at_its_rate(film: Path) -> None:
    camera = connect(UvcConfig(device=str(film), **SIZE))
    began_s, shots = time.time(), []
    with pytest.raises(OSError, match="no pictures any more"):
        while True:
            shots.append(camera.read())
    camera.close()
    assert len(shots) == PICTURES
    first, *_, last = [shot for shot in shots if shot is not None]
    assert first.rgb.shape == (48, 64, 3) and first.rgb.dtype == np.uint8
    red, green, blue = first.rgb.mean((0, 1))
    assert red == pytest.approx(100, abs=6) and max(green, blue) < 6
    assert last.rgb[..., 0].mean() > first.rgb[..., 0].mean() + 80
    assert last.stamp_s - first.stamp_s >= (PICTURES - 1) / FPS - 0.02
    assert began_s - 0.1 < first.stamp_s <= last.stamp_s <= time.time()


def test_pictures_of_another_size_are_refused_with_what_is_sent(film: Path) -> None:
    with pytest.raises(SetupError) as refused:
        connect(UvcConfig(device=str(film), width=640, height=480))
    assert refused.value.expected.startswith("640 x 480") and refused.value.got == "64 x 48"


def test_stamps_of_the_kernel_are_taken_as_they_are() -> None:
    camera = connect(UvcConfig(**SIZE), one, lambda _: Capture(age_s=0.5))
    shot = camera.read()
    assert shot is not None and time.time() - shot.stamp_s == pytest.approx(0.5, abs=0.2)


def test_exposure_and_white_balance_stay_as_they_have_settled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uvc, "SETTLE_S", -1.0)
    capture = Capture()
    connect(UvcConfig(white_balance_k=5000.0, **SIZE), one, lambda _: capture).read()
    said = capture.said
    assert said[cv2.CAP_PROP_AUTO_EXPOSURE] == 1 and said[cv2.CAP_PROP_EXPOSURE] == 156.0
    assert said[cv2.CAP_PROP_AUTO_WB] == 0 and said[cv2.CAP_PROP_WB_TEMPERATURE] == 5000.0
    free = Capture()
    connect(UvcConfig(lock=False, **SIZE), one, lambda _: free).read()
    assert cv2.CAP_PROP_AUTO_EXPOSURE not in free.said
    connect(UvcConfig(**SIZE), one, lambda _: Capture(locks=False)).read()
    assert "does not let exposure be locked" in caplog.text


def test_cameras_are_found_by_the_path_that_stays_the_same(tmp_path: Path) -> None:
    sysfs, dev = tmp_path / "sys", tmp_path / "dev"
    for number, index, name in ((0, 0, "C920"), (1, 1, "C920"), (2, 0, "Endoscope")):
        about = sysfs / f"video{number}"
        about.mkdir(parents=True)
        (about / "index").write_text(f"{index}\n")
        (about / "name").write_text(f"{name}\n")
    (dev / "v4l" / "by-id").mkdir(parents=True)
    for number in (0, 1):
        (dev / f"video{number}").touch()
    (dev / "v4l" / "by-id" / "usb-C920-index0").symlink_to(dev / "video0")
    found = find_uvc(sysfs, dev)
    assert [(f.name, Path(f.path).name, f.problem) for f in found] == [
        ("C920", "usb-C920-index0", ""),
        ("Endoscope", "video2", "no read permission"),
    ]
    assert find_uvc(tmp_path / "none", dev) == []


def test_a_camera_that_is_not_there_or_not_the_only_one_is_told() -> None:
    with pytest.raises(SetupError, match="no UVC camera found"):
        connect(UvcConfig(), list)
    two = [*one(), FoundDevice("uvc", "C922", "/dev/video2")]
    with pytest.raises(SetupError) as which:
        connect(UvcConfig(device="C92"), lambda: two)
    assert "which UVC camera? 2 of 2 fit 'C92'" in str(which.value)
    assert which.value.fix == "e.g. cameras.NAME.device=/dev/video0"
    locked = [FoundDevice("uvc", "C920", "/dev/video0", "no read permission")]
    with pytest.raises(SetupError, match="usermod -aG video"):
        connect(UvcConfig(), lambda: locked)


def test_a_camera_that_another_program_has_is_told() -> None:
    with pytest.raises(SetupError) as taken:
        connect(UvcConfig(**SIZE), one, lambda _: Capture(opens=False))
    assert "C920 cannot be opened" in str(taken.value) and "fuser /dev/video0" in taken.value.fix


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"k": (600.0, 600.0)}, "k is fx, fy, cx, cy"),
        ({"distortion": (0.1,)}, "k is fx, fy, cx, cy"),
        ({"fourcc": "MJPEG"}, "fourcc has four letters"),
        ({"crop": (0, 0, 700, 100)}, "leaves the picture"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        UvcConfig(**given)


def test_a_calibration_is_told_of_the_whole_picture() -> None:
    calibration = UvcConfig(
        k=(600.0, 601.0, 320.0, 240.0), distortion=(0.1, 0, 0, 0, 0)
    ).calibration
    assert calibration is not None and calibration.k[0].tolist() == [600.0, 0.0, 320.0]
    assert UvcConfig().calibration is None
