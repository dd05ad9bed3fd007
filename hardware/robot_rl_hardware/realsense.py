"""A RealSense camera through pyrealsense2: colour, and depth as the colour camera sees it."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.config.registry import register
from robot_rl.errors import SetupError
from robot_rl.observe.cameras import Calibration, Shot
from robot_rl_hardware.camera import SETTLE_S, SILENT_S, WAIT_S, ClockMap, DeviceCameraConfig
from robot_rl_hardware.reader import FoundDevice, pick

log = logging.getLogger(__name__)

KEPT = 2  # pictures that wait for us; older ones are dropped
MODELS = {"brown_conrady": "plumb_bob", "inverse_brown_conrady": "plumb_bob", "none": "plumb_bob"}


@register("camera", "realsense")
@dataclass(frozen=True, kw_only=True)
class RealSenseConfig(DeviceCameraConfig):
    """An Intel RealSense (D400 family) on USB.

    exposure: of the colour camera, in its own unit (100 us on a D435; 1 us on a D405).
    """

    serial: str = ""  # its serial number; "" = the only one there is
    depth: bool = False  # also publish depth, pixel by pixel beside the colours
    recording: str = ""  # a .db3 or .bag of realsense-viewer, played in place of the camera

    def connect(self) -> RealSenseCamera:
        """See `Device`."""
        return connect(self)


def find_realsense() -> list[FoundDevice]:
    """The RealSense cameras of this machine; `path` is the serial number.

    Raises:
        SetupError: pyrealsense2 is not installed.
    """
    rs = _rs()
    return [
        FoundDevice("realsense", _info(d, rs.camera_info.name), _serial(d))
        for d in rs.context().query_devices()
    ]


def _info(device: Any, which: Any) -> str:
    return device.get_info(which) if device.supports(which) else ""


def _serial(device: Any) -> str:
    return _info(device, _rs().camera_info.serial_number)


class RealSenseCamera:
    """`OpenCamera` of a RealSense.

    Args:
        device: `pyrealsense2.device`: a camera, a recording, or a `software_device`.

    Raises:
        SetupError: it has no stream of this size and rate, or another program has it.
    """

    def __init__(self, device: Any, config: RealSenseConfig) -> None:
        rs = self._rs = _rs()
        self.name = f"{_info(device, rs.camera_info.name)} {_serial(device)}".strip()
        self._config, self._clock = config, ClockMap()
        self._locked = not config.lock
        self._number: int | None = None
        self._sensors: list[Any] = []
        kinds = [(rs.stream.color, rs.format.rgb8)]
        kinds += [(rs.stream.depth, rs.format.z16)] if config.depth else []
        streams = [self._stream(device, *kind) for kind in kinds]
        self._colour, profile = streams[0]
        self.calibration = config.calibration or _calibration(profile.get_intrinsics())
        self._syncer = rs.syncer() if config.depth else None
        self._align = rs.align(rs.stream.color) if config.depth else None
        self._queue = rs.frame_queue(KEPT)
        self._start(streams)
        self._began_s = self._heard_s = time.monotonic()

    def _stream(self, device: Any, stream: Any, kind: Any) -> tuple[Any, Any]:
        """(sensor, profile) of a stream. Depth may have another size: it is aligned."""
        config, sizes = self._config, set[str]()
        wanted = (config.width, config.height, config.fps)
        found = []
        for sensor in device.query_sensors():
            for profile in sensor.get_stream_profiles():
                if (profile.stream_type(), profile.format()) != (stream, kind):
                    continue
                video = profile.as_video_stream_profile()
                size = (video.width(), video.height(), video.fps())
                sizes.add("{}x{} at {} Hz".format(*size))
                if size == wanted:
                    return sensor, video
                if stream == self._rs.stream.depth and size[2] == config.fps:
                    found.append((sensor, video))
        if found:
            return found[0]
        raise SetupError(
            f"{self.name} does not send such pictures",
            expected="{}x{} at {} Hz".format(*wanted) + f" ({stream.name})",
            got=", ".join(sorted(sizes)) or f"no {stream.name} stream",
            fix="choose one of these: cameras.NAME.width, height, fps; on USB 2 there are fewer",
        )

    def _start(self, streams: list[tuple[Any, Any]]) -> None:
        """Open each sensor once, with all of its streams (a D405 has both in one)."""
        rs = self._rs
        names = [_info(sensor, rs.camera_info.name) for sensor, _ in streams]
        try:
            for name in dict.fromkeys(names):
                own = [s for s, n in zip(streams, names, strict=True) if n == name]
                sensor = own[0][0]
                _set(sensor, rs.option.global_time_enabled, 1.0)
                sensor.open([profile for _, profile in own])
                self._sensors.append(sensor)
                sensor.start(self._syncer or self._queue)
        except RuntimeError as error:
            self.close()
            raise SetupError(
                f"{self.name} cannot be opened",
                expected="a camera that no other program uses",
                got=str(error),
                fix="end realsense-viewer and other drivers, plug it in again",
            ) from error

    def read(self) -> Shot | None:
        """See `OpenCamera`."""
        try:
            shot = self._next()
        except RuntimeError as error:
            raise OSError(f"{self.name}: {error}") from error
        now_s = time.monotonic()
        if shot is not None:
            self._heard_s = now_s
        elif now_s - self._heard_s > SILENT_S:
            raise OSError(f"{self.name} has sent nothing for {SILENT_S:.0f} s")
        return shot

    def _next(self) -> Shot | None:
        wait_ms = round(WAIT_S * 1e3)
        if self._syncer is None or self._align is None:
            here, frame = self._queue.try_wait_for_frame(wait_ms)
            return self._shot(frame, None) if here else None
        here, frames = self._syncer.try_wait_for_frames(wait_ms)
        if not here or frames.size() < 2:  # depth or colour of this moment is missing
            return None
        frames = self._align.process(frames)
        return self._shot(frames.get_color_frame(), frames.get_depth_frame())

    def _shot(self, frame: Any, depth: Any) -> Shot:
        number: int = frame.get_frame_number()
        before, self._number = self._number, number
        if not self._locked and time.monotonic() - self._began_s > SETTLE_S:
            self._lock(frame)
        return Shot(
            self._system_s(frame),
            np.array(frame.get_data(), np.uint8),
            None if depth is None else _millimetres(depth),
            0 if before is None else max(0, number - before - 1),
        )

    def _system_s(self, frame: Any) -> float:
        """System time at which it was taken; the SDK gives milliseconds of one of three clocks."""
        taken_s, now_s = frame.get_timestamp() * 1e-3, time.time()
        own = frame.get_frame_timestamp_domain() == self._rs.timestamp_domain.hardware_clock
        if own or self._config.recording:
            return self._clock.system_s(taken_s, now_s)
        return taken_s

    def _lock(self, frame: Any) -> None:
        """Keep exposure and white balance as they are, or as the config says."""
        rs, config, self._locked = self._rs, self._config, True
        option, said = rs.option, rs.frame_metadata_value
        for what, automatic, values in (
            (
                "exposure",
                option.enable_auto_exposure,
                (
                    (option.exposure, config.exposure, said.actual_exposure),
                    (option.gain, None, said.gain_level),
                ),
            ),
            (
                "white balance",
                option.enable_auto_white_balance,
                ((option.white_balance, config.white_balance_k, said.white_balance),),
            ),
        ):
            done = _set(self._colour, automatic, 0.0)
            for which, asked, metadata in values:
                settled = asked
                if settled is None and frame.supports_frame_metadata(metadata):
                    settled = float(frame.get_frame_metadata(metadata))
                if settled is not None:
                    done &= _set(self._colour, which, settled)
            if done:
                log.info("%s: %s is locked", self.name, what)
            else:
                log.warning("%s does not let %s be locked", self.name, what)

    def close(self) -> None:
        """See `OpenCamera`."""
        for sensor in self._sensors:
            try:
                sensor.stop()
                sensor.close()
            except RuntimeError as error:  # it was pulled out
                log.debug("%s: %s", self.name, error)
        self._sensors = []


def _millimetres(depth: Any) -> np.ndarray[Any, np.dtype[np.uint16]]:
    unit_mm = depth.as_depth_frame().get_units() * 1e3
    raw = np.array(depth.get_data(), np.uint16)
    if abs(unit_mm - 1.0) < 1e-6:
        return raw
    return np.round(raw * unit_mm).clip(0, 65535).astype(np.uint16)


def _calibration(intrinsics: Any) -> Calibration:
    i = intrinsics
    k = np.array(((i.fx, 0.0, i.ppx), (0.0, i.fy, i.ppy), (0.0, 0.0, 1.0)))
    return Calibration(k, tuple(i.coeffs), str(MODELS.get(i.model.name, i.model.name)))


def _set(sensor: Any, option: Any, value: float) -> bool:
    """Set an option within its range; False when the sensor does not have it."""
    if not sensor.supports(option) or sensor.is_option_read_only(option):
        return False
    bounds = sensor.get_option_range(option)
    sensor.set_option(option, min(max(value, bounds.min), bounds.max))
    return True


def connect(
    config: RealSenseConfig, find: Callable[[], list[FoundDevice]] = find_realsense
) -> RealSenseCamera:
    """Open the camera that `config` means.

    Raises:
        SetupError: none, several, taken, no such stream, or pyrealsense2 is not installed.
    """
    context = _rs().context()
    if config.recording:
        return RealSenseCamera(_recording(context, config.recording), config)
    found = pick(find(), config.serial, "RealSense", none_found(), key="cameras.NAME.serial")
    for device in context.query_devices():
        if _serial(device) == found.path:
            return RealSenseCamera(device, config)
    raise none_found()  # it was pulled out meanwhile


def _recording(context: Any, path: str) -> Any:
    try:
        if not Path(path).is_file():
            raise RuntimeError("no such file")
        return context.load_device(path)
    except RuntimeError as error:
        raise SetupError(
            "the RealSense recording cannot be played",
            expected=f"a .db3 or .bag file: {path}",
            got=str(error),
            fix="record one with realsense-viewer of the same SDK",
        ) from error


def none_found() -> SetupError:
    """What to say when there is no RealSense."""
    return SetupError(
        "no RealSense camera found",
        expected="a RealSense on USB 3",
        got="none that the SDK sees",
        fix="plug it in (USB 3 cable and port), install the udev rules of librealsense; "
        "lsusb shows it as 8086:0b...",
    )


def _rs() -> Any:
    try:
        return importlib.import_module("pyrealsense2")
    except ImportError as error:
        raise SetupError(
            "a RealSense needs the package 'pyrealsense2'",
            expected="import pyrealsense2 works",
            got=str(error),
            fix="pip install 'robot-rl[hardware]'",
        ) from error
