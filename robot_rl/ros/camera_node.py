"""A camera as a node: whole pictures with intrinsics, stamped with the time they were taken at.

Whoever reads crops and scales (`robot_rl.ros.cameras`). A camera that is pulled out is looked for
again until it is back; its pictures age meanwhile, which ends the episode.
"""

from __future__ import annotations

import logging
import time

from robot_rl.errors import SetupError
from robot_rl.observe.cameras import Device, OpenCamera, Shot
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import publisher
from robot_rl.ros.runtime import Shell

log = logging.getLogger(__name__)

RETRY_S, LONGEST_S = 0.2, 2.0  # pause after a failed attempt to open a camera: doubled each time
LOOK_S = 0.1  # while we pause, services and signals are looked at this often


class CameraNode:
    """Reads one camera and publishes what it sends."""

    def __init__(self, shell: Shell, name: str, device: Device) -> None:
        self._shell, self._name, self._device = shell, name, device
        self._frame = topics.CAMERA_IMAGE.named(camera=name).frame
        self._images, self._infos, self._depths = (
            publisher(shell.node, topic.named(camera=name))
            for topic in (topics.CAMERA_IMAGE, topics.CAMERA_INFO, topics.CAMERA_DEPTH)
        )
        self._freshness = shell.diagnostics.source("pictures")
        self._losses = 0
        self._give_up_s = time.monotonic() + shell.params["start_s"]
        self._was_open = False

    def run(self) -> None:
        """Until the node is told to end.

        Raises:
            SetupError: the camera was never there.
        """
        while (camera := self._connect()) is not None:
            log.info("camera %s: %s", self._name, camera.name)
            self._shell.diagnostics.set("device", camera.name)
            try:
                self._read(camera)
            except OSError as error:
                self._losses += 1
                self._shell.diagnostics.set("losses", self._losses)
                self._shell.diagnostics.error(str(error))
                log.warning("camera %s is lost: %s", self._name, error)
            finally:
                camera.close()

    def _connect(self) -> OpenCamera | None:
        """Open the camera, as often as it takes; None when the node is told to end."""
        pause_s, said = RETRY_S, ""
        while self._shell.running:
            try:
                camera = self._device.connect()
            except SetupError as error:
                if not self._was_open and time.monotonic() > self._give_up_s:
                    raise
                if str(error) != said:
                    said = str(error)
                    log.warning("camera %s: %s", self._name, said)
                self._shell.diagnostics.error(said)
                self._pause(pause_s)
                pause_s = min(2.0 * pause_s, LONGEST_S)
            else:
                self._was_open = True
                return camera
        return None

    def _pause(self, for_s: float) -> None:
        until_s = time.monotonic() + for_s
        while self._shell.running and time.monotonic() < until_s:
            self._shell.spin(LOOK_S)

    def _read(self, camera: OpenCamera) -> None:
        """Pass on pictures. Raises `OSError` once the camera is gone."""
        while self._shell.running:
            shot = camera.read()
            if shot is not None:
                self._publish(shot, camera)
            self._shell.spin(0.0)

    def _publish(self, shot: Shot, camera: OpenCamera) -> None:
        stamp_s, size = shot.stamp_s, shot.rgb.shape[:2]
        self._images.publish(convert.image_to(shot.rgb, stamp_s, self._frame))
        self._infos.publish(convert.camera_info_to(size, camera.calibration, stamp_s, self._frame))
        if shot.depth_mm is not None:
            self._depths.publish(convert.depth_to(shot.depth_mm, stamp_s, self._frame))
        self._freshness.saw(time.monotonic(), self._shell.now_s() - stamp_s)
        self._freshness.dropped += shot.lost


def run_camera(shell: Shell, name: str, device: Device) -> None:
    """Run the node of camera `name`. Raises `SetupError` when it was never there."""
    CameraNode(shell, name, device).run()
