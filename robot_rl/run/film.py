"""A film of the scene, for people: mp4 that any browser plays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robot_rl.control.gym_ports import GymRig
    from robot_rl.data.video import VideoWriter
    from robot_rl.run.lockstep import Rig

SIZE = (480, 640)
CRF = 23  # what x264 calls good; lower is better and larger
PAUSE_S = 0.6  # the last picture of an episode stays, so that the eye sees how it ended


class Film:
    """What `film` yields, to show one episode after the other."""

    def __init__(self, camera: Any, rate_hz: float) -> None:
        self._camera, self._rate_hz = camera, rate_hz
        self._picture: Any = None
        self._writer: VideoWriter | None = None

    def show(self) -> None:
        """Add the scene as it is now, for one control tick."""
        self._picture = self._camera.render_video_frame()
        self._add(1)

    def pause(self) -> None:
        """End an episode: its last picture stays for a while."""
        if self._picture is not None:
            self._add(round(PAUSE_S * self._rate_hz))

    def close(self) -> bytes:
        """The mp4 file; empty when nothing was shown."""
        return b"" if self._writer is None else self._writer.close()

    def _add(self, ticks: int) -> None:
        from robot_rl.data.video import VideoWriter

        if self._writer is None:  # a Gymnasium environment says no size beforehand
            height, width = self._picture.shape[:2]
            self._writer = VideoWriter(height, width, round(self._rate_hz), "h264", CRF)
        for _ in range(ticks):
            self._writer.add(self._picture)


@contextmanager
def film(rig: Rig | GymRig, path: Path, rate_hz: float) -> Iterator[Film]:
    """A film of `rig`; the file is written at the end, whole or not at all.

    Raises:
        SetupError: pictures cannot be made here.
        StoreError: the file cannot be written.
    """
    from robot_rl.data.folder import write_file

    camera = rig.camera(*SIZE)
    try:
        made = Film(camera, rate_hz)
        yield made
        write_file(path, made.close())
    finally:
        camera.close()
