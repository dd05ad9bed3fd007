"""The TCP drawn into a camera's picture: a right calibration puts it between the fingers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robot_rl.calibrate.refine import project
from robot_rl.geometry import inverse, relative
from robot_rl.observe.cameras import Calibration, CameraConfig
from robot_rl.types import Pose

AXIS_M = 0.03
COLOURS = ((230, 40, 40), (40, 190, 40), (60, 90, 255))  # x, y, z
NEAR_M = 0.01  # nothing nearer than this is drawn


def tcp_in_camera(config: CameraConfig, tcp_in_base: Pose | None) -> Pose | None:
    """The TCP in the optical frame; None without a calibration, or (beside) without the TCP."""
    where = config.calibrated_pose
    if where is None:
        return None
    if config.mount == "hand":
        return inverse(where)
    return None if tcp_in_base is None else relative(tcp_in_base, where)


def draw_frame(
    rgb: NDArray[np.uint8], frame_in_camera: Pose, lens: Calibration, axis_m: float = AXIS_M
) -> NDArray[np.uint8]:
    """A copy of the picture [H, W, 3] with the axes of a frame: x red, y green, z blue.

    Unchanged where the frame is not before the camera.
    """
    import cv2

    out = rgb.copy()
    tips_m = np.vstack((np.zeros(3), axis_m * np.eye(3)))
    if frame_in_camera.position_m[2] < NEAR_M + axis_m:
        return out
    points = project(tips_m, frame_in_camera, lens)
    if not np.isfinite(points).all() or np.abs(points).max() > 1e5:
        return out
    start, *ends = (tuple(round(16 * v) for v in point) for point in points.tolist())
    for end, colour in zip(ends, COLOURS, strict=True):
        cv2.line(out, start, end, colour, 2, cv2.LINE_AA, shift=4)
    cv2.circle(out, start, 5 * 16, (255, 220, 0), 1, cv2.LINE_AA, shift=4)
    return out
