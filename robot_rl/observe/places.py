"""Where a picture was taken from, as plain data for the page: keys follow it, and the tip is drawn.

A place is frame, position_m, rotation (three rows) and fovy_deg. frame: "base", or "tool" where the
camera moves with the TCP, whose frame it then is. The columns of the rotation are right, up and
back of the picture in that frame. fovy_deg: vertical angle of view; 0 where a point's place in the
picture is not known.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import quat_to_matrix
from robot_rl.observe.cameras import CameraConfig

Place = dict[str, Any]
F64 = NDArray[np.float64]
TO_PICTURE = np.diag((1.0, -1.0, -1.0))  # an optical frame has y down and z ahead
SAME_SHAPE = 0.01  # a picture that is stretched by less is drawn on


def place(frame: str, position_m: F64, rotation: F64, fovy_deg: float) -> Place:
    """A place as plain data. rotation: [3, 3]."""
    return {
        "frame": frame,
        "position_m": [round(float(v), 5) for v in position_m],
        "rotation": [[round(float(v), 5) for v in row] for row in rotation],
        "fovy_deg": round(fovy_deg, 3),
    }


def place_of(camera: CameraConfig, size: tuple[int, int]) -> Place | None:
    """The measured place of a camera whose pictures are shown at `size`, (height, width).

    None where nobody has measured it.
    """
    where = camera.calibrated_pose
    if where is None:
        return None
    stretch = (size[1] / size[0]) / (camera.width / camera.height)
    known = camera.calibration is not None and camera.crop is None
    whole = known and abs(stretch - 1.0) < SAME_SHAPE
    fovy_rad = camera.fovy_rad if whole else 0.0
    frame = "tool" if camera.mount == "hand" else "base"
    rotation = quat_to_matrix(where.quaternion_xyzw) @ TO_PICTURE
    return place(frame, where.position_m, rotation, math.degrees(fovy_rad))
