"""Videos and pictures: order, times, sizes, and what is not a video."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.data.video import (
    ENCODERS,
    VideoWriter,
    available,
    decode_still,
    encode_still,
    read_video,
    resized,
)
from robot_rl.errors import SpecError, StoreError


def colours(count: int, height: int = 16, width: int = 24) -> list[np.ndarray]:
    """Plain pictures, each brighter than the one before."""
    return [np.full((height, width, 3), 5 + 240 * k // count, np.uint8) for k in range(count)]


def write(path: Path, images: list[np.ndarray], fps: int = 10, codec: str = "av1") -> Path:
    writer = VideoWriter(*images[0].shape[:2], fps, codec)
    for image in images:
        writer.add(image)
    path.write_bytes(writer.close())
    return path


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize("fps", [1, 10, 30, 50])
def test_any_stretch_of_a_video_gives_its_own_pictures(
    tmp_path: Path, codec: str, fps: int
) -> None:
    images = colours(40)
    path = write(tmp_path / "v.mp4", images, fps, available(codec))
    for first, count in ((0, 40), (0, 1), (7, 5), (39, 1), (20, 20)):
        found = read_video(path, first / fps, count, fps)
        assert len(found) == count
        for image, expected in zip(found, images[first : first + count], strict=True):
            assert abs(image.mean() - expected.mean()) < 2.5, "the neighbour is 6 away"


class Reordering:
    """An encoder that gives packets back as `order` says, all of them at the end."""

    def __init__(self, encoder: Any, order: Callable[[list[Any]], list[Any]]) -> None:
        self._encoder, self._order, self._held = encoder, order, list[Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode(self, frame: Any = None) -> list[Any]:
        self._held += self._encoder.encode(frame)
        return [] if frame is not None else self._order(self._held)


@pytest.mark.parametrize("codec", ENCODERS)
def test_pictures_that_an_encoder_gives_back_in_another_order_are_put_right(
    tmp_path: Path, codec: str
) -> None:
    """SVT-AV1 swaps packets k and k + 25 when its threads wait for the processor."""

    def swapped(packets: list[Any]) -> list[Any]:
        packets[13], packets[38] = packets[38], packets[13]
        return packets

    writer = VideoWriter(16, 24, 30, available(codec))
    writer._stream = Reordering(writer._stream, swapped)
    images = colours(40)
    for image in images:
        writer.add(image)
    path = tmp_path / "v.mp4"
    path.write_bytes(writer.close())
    found = read_video(path, 0.0, 40, 30)
    assert all(abs(a.mean() - b.mean()) < 2.5 for a, b in zip(found, images, strict=True))


@pytest.mark.parametrize(
    "order", [lambda packets: packets[:-1], lambda packets: [*packets[:-1], packets[0]]]
)
def test_a_video_that_lacks_a_picture_is_not_written(
    order: Callable[[list[Any]], list[Any]],
) -> None:
    writer = VideoWriter(16, 24, 10, "h264")
    writer._stream = Reordering(writer._stream, order)
    for image in colours(3):
        writer.add(image)
    with pytest.raises(StoreError, match="lost pictures"):
        writer.close()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "v.mp4", colours(10))
    with pytest.raises(StoreError, match="4 of 9 pictures from 0"):
        read_video(path, 0.6, 9, 10)
    path.write_bytes(b"not a video")
    with pytest.raises(StoreError, match="is damaged"):
        read_video(path, 0.0, 1, 10)
    with pytest.raises(StoreError, match="is missing"):
        read_video(tmp_path / "none.mp4", 0.0, 1, 10)


def test_unknown_codecs_and_impossible_sizes_are_refused() -> None:
    with pytest.raises(SpecError, match="av1 or h264"):
        available("theora")
    with pytest.raises(SpecError, match="even height"):
        VideoWriter(15, 16, 10, "h264")


def test_png_is_exact_and_jpeg_close() -> None:
    image = np.random.default_rng(0).integers(0, 256, (31, 17, 3), np.uint8)
    assert np.array_equal(decode_still(encode_still(image, "png")), image)
    assert np.abs(decode_still(encode_still(image, "jpeg")) - image.astype(float)).mean() < 6
    with pytest.raises(StoreError, match="cannot be decoded"):
        decode_still(b"\x89PNG nothing")


def test_resizing_keeps_colours_and_returns_a_fitting_image_itself() -> None:
    image = colours(1, 64, 48)[0]
    assert resized(image, 64, 48) is image
    assert resized(image, 20, 30).shape == (20, 30, 3)
    assert abs(int(resized(image, 20, 30).mean()) - int(image.mean())) <= 1


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="Linux tells what each thread has")
def test_an_encoder_takes_no_real_time_priority() -> None:
    """SVT-AV1 does, as root: its threads and ours would go before the gate."""

    def scheduling() -> set[int]:
        found = set()
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                found.add(os.sched_getscheduler(int(thread.name)))
        return found

    before = scheduling()
    writer = VideoWriter(64, 64, 10, "av1")
    for _ in range(3):
        writer.add(np.zeros((64, 64, 3), np.uint8))
    assert scheduling() == before
    writer.close()
    assert scheduling() == before
