"""Pictures and videos in and out with PyAV: mp4 (AV1 or H.264), JPEG, PNG. RGB uint8 [H, W, 3]."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import av
import av.error
import numpy as np
from av.codec import Codec
from av.container import InputContainer
from av.video.reformatter import Interpolation
from av.video.stream import VideoStream
from numpy.typing import NDArray

from robot_rl.errors import SpecError, StoreError
from robot_rl.system import priority

log = logging.getLogger(__name__)

Image = NDArray[np.uint8]
"""RGB, [H, W, 3]."""

ENCODERS = {"av1": "libsvtav1", "h264": "h264"}
OPTIONS = {"av1": {"preset": "12"}, "h264": {}}  # 12: as fast as h264, as LeRobot uses it
GOP = 2  # every second picture is a key frame: any frame is decoded from at most two
CRF = 30  # LeRobot's quality; lower is better and larger
PIXEL_FORMAT = "yuv420p"
EARLY = 0.1  # how far the time of a picture may be off that of its step, in periods

DECODERS = ("h264", "hevc", "av1", "libdav1d", "libaom-av1", "vp9")
PICTURES = {b"\xff\xd8\xff": "mjpeg", b"\x89PNG\r\n\x1a\n": "png"}
MAX_PIXELS = 1 << 24  # of one picture: 4096 x 4096
MAX_STILL_BYTES = 64 << 20
STILLS = {
    "jpeg": ("mjpeg", "yuvj444p", {"qmin": "2", "qmax": "2", "flags": "+qscale"}),
    "png": ("png", "rgb24", {}),
}


def available(codec: str) -> str:
    """`codec` if this machine can encode it, else h264, with a log line.

    Raises:
        SpecError: unknown codec.
    """
    if codec not in ENCODERS:
        raise SpecError(
            "unknown video codec", expected=" or ".join(ENCODERS), got=codec, fix="choose one"
        )
    try:
        Codec(ENCODERS[codec], "w")
    except av.error.FFmpegError:
        log.warning("this build of PyAV cannot encode %s; using h264", codec)
        return "h264"
    return codec


class VideoWriter:
    """Encodes images of one size into an mp4 in memory; picture k is shown at k / fps seconds.

    Raises:
        SpecError: the codec cannot take images of this size.
    """

    def __init__(
        self, height: int, width: int, fps: int, codec: str = "av1", crf: int = CRF
    ) -> None:
        os.environ.setdefault("SVT_LOG", "1")  # errors only: the encoder greets on stderr
        options = {"g": str(GOP), "crf": str(crf), **OPTIONS[codec]}
        self.count = 0
        self._packets: list[av.Packet] = []
        self._bytes = io.BytesIO()
        self._container = av.open(self._bytes, "w", format="mp4")
        self._stream: Any = self._container.add_stream(ENCODERS[codec], fps, options=options)
        self._stream.width, self._stream.height = width, height
        self._stream.pix_fmt = PIXEL_FORMAT
        self._stream.codec_context.max_b_frames = 0  # pictures are stored in the order of time
        try:
            with priority.kept():
                self._stream.codec_context.open()
        except av.error.FFmpegError as error:
            raise SpecError(
                f"{codec} cannot encode images of {height}x{width}",
                expected="even height and width of at least 4"
                if codec == "h264"
                else "height and width of at least 4",
                got=f"{height}x{width}",
                fix="change the image size, or try --codec av1",
            ) from error

    def add(self, image: Image) -> None:
        """Append one picture, uint8 [H, W, 3]."""
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
        frame.pts = self.count
        frame.time_base = 1 / self._stream.codec_context.framerate
        self._packets += self._stream.encode(frame)
        self.count += 1

    def close(self) -> bytes:
        """Finish, and return the mp4 file.

        Pictures are put in order here. SVT-AV1 (in FFmpeg 8) gives back picture k + 25 in the place
        of picture k, and k in the place of k + 25, when its threads get too little of the machine:
        31 of 1,347 videos with its threads at lower priority than other programs'. Each packet
        still says which picture it is, and holds the right one.

        Raises:
            StoreError: the encoder gave back other pictures than it was given.
        """
        self._packets += self._stream.encode()
        packets = sorted(self._packets, key=lambda packet: -1 if packet.pts is None else packet.pts)
        self._packets = []
        if [packet.pts for packet in packets] != list(range(self.count)):
            raise StoreError(
                "the video encoder lost pictures",
                expected=f"{self.count} pictures, each once",
                got=f"{len(packets)}, {len({packet.pts for packet in packets})} of them different",
                fix="repeat the command, or try --codec h264",
            )
        for packet in packets:
            packet.dts, packet.duration = packet.pts, 1
            self._container.mux(packet)
        self._container.close()
        return self._bytes.getvalue()


def read_video(
    path: Path, start_s: float, count: int, fps: float, size: tuple[int, int] | None = None
) -> list[Image]:
    """`count` pictures from `start_s` on, one every 1 / fps seconds.

    Args:
        size: (height, width) to which they are resized; None keeps theirs.

    Raises:
        StoreError: no such file, not a video, or pictures are missing.
    """
    found: dict[int, Image] = {}
    try:
        for time_s, frame in _frames_from(path, start_s):
            place = (time_s - start_s) * fps
            if round(place) >= count:
                break
            if place > -EARLY and abs(place - round(place)) < EARLY:
                found[round(place)] = _rgb(frame, size)
    except (av.error.FFmpegError, OSError, ValueError, IndexError, MemoryError) as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else "is damaged"
        raise _bad_video(path, what, f"{type(error).__name__}: {error}") from error
    if len(found) != count:
        end_s = start_s + count / fps
        got = f"{len(found)} of {count} pictures from {start_s:.2f} to {end_s:.2f} s"
        raise _bad_video(path, "lacks pictures", got)
    return [found[index] for index in range(count)]


def pictures_of(path: Path, most: int, size: tuple[int, int]) -> list[Image]:
    """Pictures of a video from beginning to end, at most `most` of them, evenly over it.

    size: (height, width) to which they are resized.

    Raises:
        StoreError: no such file, or not a video.
    """
    try:
        times = [time_s for time_s, _ in _frames_from(path, 0.0)]
        places = np.linspace(0, len(times) - 1, min(most, len(times))).round().astype(int)
        wanted = {times[place] for place in places}
        return [_rgb(f, size) for time_s, f in _frames_from(path, 0.0) if time_s in wanted]
    except (av.error.FFmpegError, OSError, ValueError, IndexError, MemoryError) as error:
        raise _bad_video(path, "is damaged", f"{type(error).__name__}: {error}") from error


def resized(image: Image, height: int, width: int) -> Image:
    """The whole image at another size (stretched if the shape differs); unchanged if it fits."""
    if image.shape[:2] == (height, width):
        return image
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
    return _rgb(frame, (height, width))


def encode_still(image: Image, kind: str) -> bytes:
    """One picture as "jpeg" (no chroma subsampling, best quality) or "png" (exact)."""
    encoder, pixels, options = STILLS[kind]
    context: Any = av.CodecContext.create(encoder, "w")
    context.height, context.width = image.shape[:2]
    context.pix_fmt, context.framerate = pixels, 1
    context.options = options
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
    frame = frame.reformat(format=pixels)
    frame.pts = 0
    return b"".join(bytes(p) for p in [*context.encode(frame), *context.encode(None)])


def decode_still(data: bytes) -> Image:
    """The picture in the bytes of a JPEG or PNG file. Raises `StoreError` when it is neither.

    The decoder is chosen by the first bytes, and no demuxer is asked: among FFmpeg's are some that
    open network ports or other files (SDP, HLS, concat).
    """
    codec = next((name for start, name in PICTURES.items() if data.startswith(start)), "")
    try:
        if not codec or len(data) > MAX_STILL_BYTES:
            raise ValueError("no such picture" if not codec else "too large")
        context: Any = av.CodecContext.create(codec, "r")
        context.options = {"max_pixels": str(MAX_PIXELS)}
        frames = [*context.decode(av.Packet(data)), *context.decode(None)]
        return _rgb(frames[0])
    except (av.error.FFmpegError, ValueError, IndexError, MemoryError) as error:
        raise StoreError(
            "an image cannot be decoded",
            expected="a JPEG or PNG picture",
            got=f"{len(data)} bytes: {error}",
            fix="get the dataset again",
        ) from error


def _rgb(frame: av.VideoFrame, size: tuple[int, int] | None = None) -> Image:
    if size is not None and size != (frame.height, frame.width):
        height, width = size
        frame = frame.reformat(width, height, "rgb24", interpolation=Interpolation.AREA)
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


def _frames_from(path: Path, start_s: float) -> Iterator[tuple[float, av.VideoFrame]]:
    """(time, frame) in order of time, from the key frame before `start_s` on."""
    with path.open("rb") as file, _mp4(file) as container:
        stream: VideoStream = container.streams.video[0]
        decoder: Any = stream.codec_context  # None: FFmpeg knows none for this stream
        if decoder is None or decoder.name not in DECODERS:
            raise ValueError("an unknown codec" if decoder is None else f"codec {decoder.name}")
        stream.codec_context.options = {"max_pixels": str(MAX_PIXELS)}
        stream.thread_type = "AUTO"
        time_base = float(stream.time_base or 0.0)
        if time_base <= 0.0:
            raise av.error.InvalidDataError(0, "the video has no time base")
        container.seek(max(0, round(start_s / time_base)), stream=stream)
        for frame in container.decode(stream):
            if frame.pts is not None:
                yield frame.pts * time_base, frame


def _mp4(file: IO[bytes]) -> InputContainer:
    """An mp4 file, by its first bytes; no other demuxer is asked, and it opens nothing else.

    Raises:
        ValueError: it is something else.
    """
    if file.read(8)[4:] != b"ftyp":
        raise ValueError("no mp4")
    file.seek(0)
    return av.open(file, "r", format="mp4", container_options={"enable_drefs": "0"})


def _bad_video(path: Path, what: str, got: str) -> StoreError:
    return StoreError(
        f"the video {path.name} {what}",
        expected=f"every picture of the episode in {path}",
        got=got,
        fix="get this file again, then repeat the command: it goes on where it was",
    )
