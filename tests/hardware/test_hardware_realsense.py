"""RealSense cameras: the SDK's software device in place of the camera, and a recording of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyrealsense2", reason="pyrealsense2 is not installed")

import pyrealsense2 as rs

from robot_rl.errors import SetupError
from robot_rl_hardware import realsense
from robot_rl_hardware.reader import FoundDevice
from robot_rl_hardware.realsense import RealSenseCamera, RealSenseConfig, connect, find_realsense

WIDTH, HEIGHT, FPS = 64, 48, 30
SIZE = {"width": WIDTH, "height": HEIGHT}


class Soft:
    """A `software_device` with a colour stream and, if asked, one of depth at the same place."""

    def __init__(self, *, depth: bool = False) -> None:
        self.device = rs.software_device()
        self.device.create_matcher(rs.matchers.default)
        self.device.register_info(rs.camera_info.name, "Soft D435")
        self.device.register_info(rs.camera_info.serial_number, "0042")
        self.colour = self._stream("RGB Camera", rs.stream.color, 3)
        self.depth: tuple[Any, Any] | None = None
        if depth:
            self.depth = self._stream("Stereo Module", rs.stream.depth, 2)
            same = rs.extrinsics()
            same.rotation, same.translation = np.eye(3).ravel().tolist(), [0.0, 0.0, 0.0]
            self.depth[1].register_extrinsics_to(self.colour[1], same)

    def _stream(self, name: str, kind: Any, bytes_per_pixel: int) -> tuple[Any, Any]:
        """(sensor, profile) of a new stream."""
        sensor, stream, about = self.device.add_sensor(name), rs.video_stream(), rs.intrinsics()
        about.width, about.height, about.fx, about.fy = WIDTH, HEIGHT, 60.0, 61.0
        about.ppx, about.ppy, about.model = 31.5, 23.5, rs.distortion.brown_conrady
        about.coeffs = [0.1, 0.0, 0.0, 0.0, 0.0]
        stream.type, stream.index, stream.uid = kind, 0, bytes_per_pixel
        stream.width, stream.height, stream.fps = WIDTH, HEIGHT, FPS
        stream.bpp, stream.intrinsics = bytes_per_pixel, about
        stream.fmt = rs.format.rgb8 if kind == rs.stream.color else rs.format.z16
        return sensor, sensor.add_video_stream(stream).as_video_stream_profile()

    def send(self, number: int) -> None:
        """A picture whose pixels are its number, at the camera's own clock; depth 500 + number."""
        self._send(self.colour, number, np.full((HEIGHT, WIDTH, 3), number, np.uint8))
        if self.depth is not None:
            raw = np.full((HEIGHT, WIDTH), 5 * (500 + number), np.uint16)
            self._send(self.depth, number, raw.view(np.uint8))

    def _send(self, stream: tuple[Any, Any], number: int, pixels: np.ndarray[Any, Any]) -> None:
        frame = rs.software_video_frame()
        frame.pixels, frame.stride = pixels, pixels.nbytes // HEIGHT
        frame.bpp, frame.frame_number = frame.stride // WIDTH, number
        frame.timestamp, frame.depth_units = 1e3 * number / FPS, 2e-4  # as a D405: 0.2 mm a count
        frame.domain, frame.profile = rs.timestamp_domain.hardware_clock, stream[1]
        stream[0].on_video_frame(frame)


def test_pictures_come_with_system_time_intrinsics_and_what_was_lost() -> None:
    soft = Soft()
    camera = RealSenseCamera(soft.device, RealSenseConfig(**SIZE))
    assert camera.name == "Soft D435 0042"
    assert camera.calibration.k.tolist() == [[60.0, 0.0, 31.5], [0.0, 61.0, 23.5], [0.0, 0.0, 1.0]]
    assert camera.calibration.distortion[0] == pytest.approx(0.1)
    shots = []
    for number in (1, 2, 5):
        soft.send(number)
        shots.append(camera.read())
    assert [shot.rgb[0, 0, 0] for shot in shots if shot] == [1, 2, 5]
    assert [shot.lost for shot in shots if shot] == [0, 0, 2]
    assert all(abs(shot.stamp_s - time.time()) < 5.0 for shot in shots if shot)
    assert camera.read() is None  # nothing came within 0.1 s: that is no loss yet
    camera.close()


def test_depth_comes_beside_the_colours_in_millimetres() -> None:
    soft = Soft(depth=True)
    camera = RealSenseCamera(soft.device, RealSenseConfig(depth=True, **SIZE))
    shots = []
    for number in range(60):
        time.sleep(1.0 / FPS)  # the SDK pairs what comes at the rate that was announced
        soft.send(number)
        shots += [shot for shot in [camera.read()] if shot is not None]
        if len(shots) == 3:
            break
    camera.close()
    assert len(shots) == 3
    for shot in shots:
        assert shot.depth_mm is not None and shot.depth_mm.dtype == np.uint16
        assert shot.depth_mm[24, 32] == 500 + int(shot.rgb[24, 32, 0])


def test_a_camera_that_falls_silent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realsense, "SILENT_S", 0.15)
    camera = RealSenseCamera(Soft().device, RealSenseConfig(**SIZE))
    with pytest.raises(OSError, match="has sent nothing"):
        for _ in range(20):
            camera.read()
    camera.close()
    camera.close()  # twice does no harm


def test_what_a_camera_does_not_let_be_locked_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(realsense, "SETTLE_S", -1.0)
    soft = Soft()
    camera = RealSenseCamera(soft.device, RealSenseConfig(**SIZE))
    for number in (1, 2):
        soft.send(number)
        camera.read()
    camera.close()
    assert caplog.text.count("does not let exposure be locked") == 1


def test_a_size_that_the_camera_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(SetupError) as refused:
        RealSenseCamera(Soft().device, RealSenseConfig())
    assert refused.value.expected == "640x480 at 30 Hz (color)"
    assert refused.value.got == "64x48 at 30 Hz"
    with pytest.raises(SetupError, match="no depth stream"):
        RealSenseCamera(Soft().device, RealSenseConfig(depth=True, **SIZE))


def test_a_recording_is_played_in_place_of_the_camera(tmp_path: Path) -> None:
    path, soft = tmp_path / "soft.db3", Soft()
    recorder = rs.recorder(str(path), soft.device)
    sensor, queue = recorder.query_sensors()[0], rs.frame_queue(10)
    sensor.open(soft.colour[1])
    sensor.start(queue)
    for number in range(1, 16):
        soft.send(number)
        time.sleep(0.01)
    sensor.stop()
    sensor.close()
    del recorder
    camera = connect(RealSenseConfig(recording=str(path), **SIZE))
    numbers = []
    while len(numbers) < 5:
        shot = camera.read()
        if shot is not None:
            numbers.append(int(shot.rgb[0, 0, 0]))
            assert abs(shot.stamp_s - time.time()) < 5.0
    camera.close()
    assert numbers == sorted(set(numbers))


def test_a_recording_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no such file"):
        connect(RealSenseConfig(recording=str(tmp_path / "none.db3")))
    (tmp_path / "text.db3").write_text("no recording")
    with pytest.raises(SetupError, match=r"cannot be played"):
        connect(RealSenseConfig(recording=str(tmp_path / "text.db3")))


def test_a_camera_that_is_not_there_or_was_pulled_out_is_told() -> None:
    assert all(f.kind == "realsense" for f in find_realsense())  # of this machine: most have none
    with pytest.raises(SetupError, match="no RealSense camera found"):
        connect(RealSenseConfig(), list)
    with pytest.raises(SetupError, match="no RealSense camera found"):
        connect(RealSenseConfig(), lambda: [FoundDevice("realsense", "D435", "no-such-serial")])
    two = [FoundDevice("realsense", "D435", serial) for serial in ("11", "22")]
    with pytest.raises(SetupError, match=r"cameras\.NAME\.serial"):
        connect(RealSenseConfig(), lambda: two)


def test_without_the_sdk_the_fix_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "pyrealsense2", missing)
    with pytest.raises(SetupError) as told:
        connect(RealSenseConfig())
    assert told.value.fix == "pip install 'robot-rl[hardware]'"
