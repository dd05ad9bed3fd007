"""Cameras of the graph: where their pictures are, and the one way from a message to what is seen.

Actor and page read through the same `CameraReader`, so a person sees what the network sees.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from robot_rl.errors import LinkError, RobotRLError, SpecError
from robot_rl.observe import Freshness
from robot_rl.observe.cameras import Calibration, CameraConfig, TopicCameraConfig
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.runtime import Shell
from robot_rl.ros.topics import Topic

log = logging.getLogger(__name__)

INFO_S = 1.0  # wall; after the first picture, a CameraInfo is waited for this long
COMPRESSED = "compressed"  # how image_transport ends the names of such topics


def image_topic(name: str, config: CameraConfig) -> Topic:
    """Topic of a camera's pictures."""
    given = config if isinstance(config, TopicCameraConfig) else TopicCameraConfig()
    compressed = given.compressed or given.topic.endswith(f"/{COMPRESSED}")
    topic = topics.CAMERA_COMPRESSED if compressed else topics.CAMERA_IMAGE
    named = topic.named(camera=name)
    return replace(named, name=given.topic) if given.topic else named


def info_topic(name: str, config: CameraConfig) -> Topic:
    """Topic of a camera's intrinsics: `camera_info` beside its pictures, as is usual in ROS."""
    beside = image_topic(name, config).name.removesuffix(f"/{COMPRESSED}").rpartition("/")[0]
    named = topics.CAMERA_INFO.named(camera=name)
    return replace(named, name=f"{beside}/camera_info" if beside else "camera_info")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole picture, RGB uint8 [H, W, 3]; number: counted from 1.

    stamp_s: as its driver says, less what `cameras.NAME.latency_s` says that it is late.
    """

    number: int
    rgb: NDArray[np.uint8]
    stamp_s: float


class CameraReader:
    """The newest picture of one camera, as the network sees it. One thread; never blocks.

    A message that cannot be read is skipped; the picture before it stays the newest, and ages.

    Args:
        size: (height, width) that the network sees.
    """

    def __init__(
        self, shell: Shell, name: str, config: CameraConfig, size: tuple[int, int]
    ) -> None:
        self.name, self.view = name, config.view(size)
        self._latency_s = config.latency_s
        self.number = 0  # of the newest picture, counted from 1
        self.received_s = float("-inf")  # wall time
        self.stamp_s = 0.0
        self.source_size = (0, 0)  # height, width of the whole picture
        self.whole: Whole | None = None  # the newest that could be decoded, whether it fits or not
        self.refusal: LinkError | SpecError | None = None  # why the newest message was not read
        self._shell, self._newest = shell, Newest(shell.node, image_topic(name, config))
        self.seen = Freshness()  # for the metrics; diagnostics have their own
        self._counted = (shell.diagnostics.source(self._newest.topic.name), self.seen)
        self._rgb = np.zeros((*size, 3), np.uint8)

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._newest.topic.name

    @property
    def refused(self) -> str:
        """Why the newest message was not read, on one line; "" when it was."""
        error = self.refusal
        if error is None:
            return ""
        return f"{error.summary} (expected {error.expected}, got {error.got})"

    def read(self) -> NDArray[np.uint8] | None:
        """RGB uint8 [H, W, 3] of the newest picture; None before the first."""
        msg = None
        for msg in self._newest.arrived():
            age_s = self._shell.now_s() - convert.from_stamp(msg.header.stamp) + self._latency_s
            for freshness in self._counted:
                freshness.saw(time.monotonic(), age_s)
        if msg is not None:
            self._take(msg)
        return self._rgb if self.number else None

    def _take(self, msg: Image | CompressedImage) -> None:
        stamp_s = convert.from_stamp(msg.header.stamp) - self._latency_s
        try:
            rgb = convert.picture_from(msg)
            number = 1 if self.whole is None else self.whole.number + 1
            self.whole = Whole(number, rgb, stamp_s)
            self._rgb = self.view.of(rgb)
        except (LinkError, SpecError) as error:
            self.refusal = error
            self._shell.diagnostics.error(str(error))
            for freshness in self._counted:
                freshness.dropped += 1
            return
        self.number, self.refusal = self.number + 1, None
        self.received_s, self.stamp_s = time.monotonic(), stamp_s
        self.source_size = rgb.shape[:2]


class RosCamera:
    """`ports.Camera` from an image topic; pictures that nobody uses are not decoded.

    Arguments: see `CameraReader`.
    """

    def __init__(
        self, shell: Shell, name: str, config: CameraConfig, size: tuple[int, int]
    ) -> None:
        self.name, self.config = name, config
        self._reader = CameraReader(shell, name, config, size)
        self._info = Newest(shell.node, info_topic(name, config))

    def read(self) -> tuple[float, NDArray[np.uint8]]:
        """(stamp_s, RGB uint8 [H, W, 3]). Raises `RobotRLError` before the first frame."""
        rgb = self._reader.read()
        if rgb is None:
            raise RobotRLError(
                f"no image from camera '{self.name}'",
                expected=f"frames on {self._reader.topic}",
                got=self._reader.refused or "nothing",
                fix="start the camera's driver; `robot-rl camera list` shows the topics there are "
                f"(cameras.{self.name}.topic chooses one); simulation: camera_hz > 0",
            )
        return self._reader.stamp_s, rgb

    @property
    def stamp_s(self) -> float:
        """When the newest picture was taken, on the run's clock."""
        return self._reader.stamp_s

    @property
    def whole(self) -> Whole | None:
        """The newest whole picture that `read` has decoded."""
        return self._reader.whole

    def calibration(self, rows: int, columns: int) -> Calibration | None:
        """Intrinsics of whole pictures of this size; None = nobody has said them."""
        return calibration_of(self.config, self._info.read(), rows, columns)

    def figures(self) -> dict[str, float]:
        """Age of the pictures, and how many could not be read, for the metrics of an episode."""
        report = self._reader.seen.report(time.monotonic())
        named = {"age_p99_ms": report.age_p99_s * 1e3, "unread": float(report.dropped)}
        return {f"camera/{self.name}/{key}": value for key, value in named.items()}

    @property
    def has_info(self) -> bool:
        """Whether its intrinsics have been heard."""
        return self._info.read() is not None

    def about(self) -> dict[str, Any]:
        """What is kept of it with the run, after the first picture.

        Sizes in pixels; crop: what the person cut out; part: what of the source is seen, at width
        x height; k: pinhole matrix [3, 3] of what is seen, source_k: of the whole picture (None
        where nobody has said it); mount, pose, latency_s: see `CameraConfig`.
        """
        reader, config = self._reader, self.config
        rows, columns = reader.source_size
        lens = self.calibration(rows, columns)
        source_k = None if lens is None else lens.k
        k = None if source_k is None else reader.view.intrinsics(source_k, rows, columns)
        return {
            "topic": reader.topic,
            "source_width": columns,
            "source_height": rows,
            "source_k": None if source_k is None else source_k.tolist(),
            "distortion_model": "" if lens is None else lens.model,
            "distortion": [] if lens is None else list(lens.distortion),
            "crop": reader.view.crop,
            "part": reader.view.part(rows, columns),
            "width": reader.view.width,
            "height": reader.view.height,
            "k": None if k is None else k.tolist(),
            "mount": config.mount,
            "pose": list(config.pose),
            "latency_s": config.latency_s,
        }


def calibration_of(
    config: CameraConfig, info: CameraInfo | None, rows: int, columns: int
) -> Calibration | None:
    """Intrinsics of whole pictures of this size; None = nobody has said them.

    What a person has measured (`cameras.NAME.k`) counts more than what the driver says, for
    pictures of the size in which it was measured.
    """
    measured = config.calibration_at(rows, columns)
    if measured is not None:
        return measured
    if info is None or (info.height, info.width) != (rows, columns):
        return None  # of pictures of another size: it says nothing about these
    try:
        k = convert.intrinsics_from(info)
    except LinkError:
        return None
    return None if k is None else Calibration(k, tuple(info.d), info.distortion_model)


def figures(cameras: Sequence[RosCamera]) -> dict[str, float]:
    """Figures of all cameras, and how far apart in time their newest pictures are."""
    out = {key: value for camera in cameras for key, value in camera.figures().items()}
    if len(cameras) > 1:
        stamps_s = [camera.stamp_s for camera in cameras]
        out["camera/skew_ms"] = (max(stamps_s) - min(stamps_s)) * 1e3
    return out


def keep_intrinsics(cameras: Sequence[RosCamera], path: Path) -> None:
    """Write what is known of the cameras, once each has sent a picture.

    A driver sends its CameraInfo beside each picture; one that does not is not waited for.
    """
    give_up_s = time.monotonic() + INFO_S
    while not all(c.has_info for c in cameras) and time.monotonic() < give_up_s:
        time.sleep(0.01)
    about = {camera.name: camera.about() for camera in cameras}
    unknown = [name for name, known in about.items() if known["k"] is None]
    if unknown:
        log.warning("nobody says the intrinsics of: %s", ", ".join(unknown))
    path.write_text(json.dumps(about, indent=2) + "\n")
