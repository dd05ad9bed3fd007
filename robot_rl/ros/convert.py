"""ROS messages <-> our types. Bulk data goes through `array.array` only, joints by name only.

Filling `msg.data` from a numpy array or a list costs 16-65 ms per VGA frame, from an `array.array`
0.07 ms (measured). Malformed messages raise `LinkError`; callers count and skip them.
"""

from __future__ import annotations

import array
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Pose as PoseMsg
from geometry_msgs.msg import PoseStamped, TwistStamped, WrenchStamped
from numpy.typing import NDArray
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState, Joy
from std_msgs.msg import Float64MultiArray, String
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robot_rl.errors import LinkError
from robot_rl.geometry import pose
from robot_rl.observe.cameras import Calibration
from robot_rl.ports import OperatorInput
from robot_rl.ros.picture_size import MOST_PIXELS, pixels_of
from robot_rl.types import Driver, Pose

F64 = NDArray[np.float64]

DRIVERS: tuple[Driver, ...] = tuple(Driver)
"""Driver codes of `operator/joy`: position in this tuple (the order of `types.Driver`)."""


def to_stamp(seconds: float) -> Time:
    """Seconds -> builtin_interfaces/Time, rounded to the nanosecond."""
    nanoseconds = round(seconds * 1e9)
    return Time(sec=nanoseconds // 1_000_000_000, nanosec=nanoseconds % 1_000_000_000)


def from_stamp(stamp: Time) -> float:
    """builtin_interfaces/Time -> seconds."""
    return stamp.sec + stamp.nanosec * 1e-9


def _finite(values: Sequence[float] | F64, what: str) -> F64:
    out = np.array(values, np.float64)
    if not np.isfinite(out).all():
        raise LinkError(
            f"{what} holds NaN or infinity",
            expected="finite numbers",
            got=str(out),
            fix="look at the driver that publishes it",
        )
    return out


def _pose_from(msg: PoseMsg) -> Pose:
    p, q = msg.position, msg.orientation
    xyzw = _finite((q.x, q.y, q.z, q.w), "orientation")
    if abs(math.sqrt(float(xyzw @ xyzw)) - 1.0) > 1e-3:
        raise LinkError(
            "orientation is not a unit quaternion",
            expected="norm 1",
            got=str(xyzw),
            fix="normalise it in the driver (ROS messages default to all zeros)",
        )
    return pose(_finite((p.x, p.y, p.z), "position"), xyzw)


def pose_from(msg: PoseStamped) -> Pose:
    """PoseStamped -> Pose. Raises `LinkError` on NaN or a quaternion that is not unit."""
    return _pose_from(msg.pose)


def pose_to(value: Pose, stamp_s: float, frame: str) -> PoseStamped:
    """Pose -> PoseStamped in `frame`."""
    msg = PoseStamped()
    msg.header.stamp, msg.header.frame_id = to_stamp(stamp_s), frame
    p, q = msg.pose.position, msg.pose.orientation
    p.x, p.y, p.z = value.position_m.tolist()
    q.x, q.y, q.z, q.w = value.quaternion_xyzw.tolist()
    return msg


def twist_from(msg: TwistStamped) -> F64:
    """TwistStamped -> float64 [6], linear m/s then angular rad/s."""
    v, w = msg.twist.linear, msg.twist.angular
    return _finite((v.x, v.y, v.z, w.x, w.y, w.z), "twist")


def twist_to(twist: F64, stamp_s: float, frame: str) -> TwistStamped:
    """float64 [6] -> TwistStamped."""
    msg = TwistStamped()
    msg.header.stamp, msg.header.frame_id = to_stamp(stamp_s), frame
    v, w = msg.twist.linear, msg.twist.angular
    v.x, v.y, v.z, w.x, w.y, w.z = twist.tolist()
    return msg


def wrench_from(msg: WrenchStamped) -> F64:
    """WrenchStamped -> float64 [6], force N then torque Nm."""
    f, t = msg.wrench.force, msg.wrench.torque
    return _finite((f.x, f.y, f.z, t.x, t.y, t.z), "wrench")


def wrench_to(wrench: F64, stamp_s: float, frame: str) -> WrenchStamped:
    """float64 [6] -> WrenchStamped."""
    msg = WrenchStamped()
    msg.header.stamp, msg.header.frame_id = to_stamp(stamp_s), frame
    f, t = msg.wrench.force, msg.wrench.torque
    f.x, f.y, f.z, t.x, t.y, t.z = wrench.tolist()
    return msg


def joints_from(
    msg: JointState, arm_names: Sequence[str], finger_names: Sequence[str]
) -> tuple[F64, F64, float]:
    """JointState -> (position [J] rad, velocity [J] rad/s, gripper width m), matched by name.

    Velocities that a driver does not have count as zero: it leaves the array empty, or, as
    joint_state_broadcaster does, fills it with NaN. Without `finger_names` the width is 0.

    Raises:
        LinkError: a joint is missing, array lengths disagree, or a value is not finite (of the
            velocities: not all are NaN).
    """
    index = _index(msg, (*arm_names, *finger_names))
    position = np.frombuffer(msg.position, np.float64)
    rows = [index[n] for n in arm_names]
    velocity = np.zeros(len(rows))
    if len(msg.velocity) == len(msg.name):
        told = np.frombuffer(msg.velocity, np.float64)[rows]
        if not np.isnan(told).all():
            velocity = _finite(told, "joint velocity")
    width_m = float(sum(position[index[n]] for n in finger_names))
    return _finite(position[rows], "joint position"), velocity, width_m


def positions_from(msg: JointState, names: Sequence[str]) -> F64:
    """Positions of the joints `names`, matched by name; what else is in the message is not read.

    Raises:
        LinkError: a joint is missing, or a value is not finite.
    """
    index = _index(msg, names)
    position = np.frombuffer(msg.position, np.float64)
    return _finite(position[[index[n] for n in names]], "joint position")


def _index(msg: JointState, names: Sequence[str]) -> dict[str, int]:
    """Joint -> its place in the message. Raises `LinkError` when one of `names` is missing."""
    index = {name: i for i, name in enumerate(msg.name)}
    missing = [n for n in names if n not in index]
    if missing or len(msg.position) != len(msg.name):
        raise LinkError(
            "joint_states does not describe this robot",
            expected=f"joints {list(names)} with one position each",
            got=f"{list(msg.name)} with {len(msg.position)} positions",
            fix="set joint_names and finger_joint_names to the names of this robot",
        )
    return index


def joints_to(
    names: Sequence[str], position: Sequence[float], velocity: Sequence[float], stamp_s: float
) -> JointState:
    """Arm joints and fingers -> JointState."""
    msg = JointState()
    msg.header.stamp = to_stamp(stamp_s)
    msg.name = list(names)
    msg.position = array.array("d", position)
    msg.velocity = array.array("d", velocity)
    return msg


def text_to(text: str) -> String:
    """Text -> std_msgs/String."""
    return String(data=text)


def gripper_from(msg: Float64MultiArray) -> float:
    """[width] -> finger distance in metres. Raises `LinkError`."""
    if len(msg.data) != 1:
        raise LinkError(
            "gripper command has the wrong length",
            expected="[finger distance in metres]",
            got=str(list(msg.data)),
            fix="send one number",
        )
    return float(_finite(msg.data, "gripper command")[0])


def values_to(values: F64) -> Float64MultiArray:
    """float64 [N] -> Float64MultiArray, as the forward controllers of ros2_control take it."""
    return Float64MultiArray(data=array.array("d", values))


def values_from(msg: Float64MultiArray, count: int) -> F64:
    """Inverse of `values_to`. Raises `LinkError` for another count, or what is not finite."""
    if len(msg.data) != count:
        raise LinkError(
            "a joint target for another number of joints",
            expected=f"{count} values",
            got=f"{len(msg.data)}",
            fix="driver.joints.names: the controller's joints, in its order",
        )
    return _finite(np.array(msg.data), "joint target")


def trajectory_to(names: Sequence[str], position_rad: F64, within_s: float) -> JointTrajectory:
    """One point that is to be reached `within_s` from now, at rest."""
    point = JointTrajectoryPoint(positions=array.array("d", position_rad))
    seconds = int(within_s)
    point.time_from_start = Duration(sec=seconds, nanosec=round((within_s - seconds) * 1e9))
    return JointTrajectory(joint_names=list(names), points=[point])


def trajectory_from(msg: JointTrajectory, names: Sequence[str]) -> tuple[F64, float]:
    """(positions [J] of the last point in the order of `names`, rad; time to it, s).

    Raises:
        LinkError: no point, other joints, or a value that is not finite.
    """
    if not msg.points or sorted(msg.joint_names) != sorted(names):  # each of them once
        raise LinkError(
            "a trajectory that does not fit the arm",
            expected=f"at least one point of {list(names)}",
            got=f"{len(msg.points)} points of {list(msg.joint_names)}",
        )
    last = tuple(msg.points)[-1]
    if len(last.positions) != len(names):
        raise LinkError("a point without a position for each joint", got=str(last.positions))
    rows = [list(msg.joint_names).index(name) for name in names]
    within = last.time_from_start
    position_rad = _finite(np.array(last.positions)[rows], "joint target")
    return position_rad, within.sec + within.nanosec * 1e-9


def gripper_to(width_m: float) -> Float64MultiArray:
    """Finger distance in metres -> [width]."""
    return Float64MultiArray(data=array.array("d", [width_m]))


def image_to(rgb: NDArray[np.uint8], stamp_s: float, frame: str) -> Image:
    """RGB uint8 [H, W, 3] -> sensor_msgs/Image (rgb8)."""
    return _image(rgb, "rgb8", stamp_s, frame)


def depth_to(depth_mm: NDArray[np.uint16], stamp_s: float, frame: str) -> Image:
    """Depth uint16 [H, W] in millimetres -> sensor_msgs/Image (16UC1)."""
    return _image(depth_mm, "16UC1", stamp_s, frame)


def _image(pixels: NDArray[Any], encoding: str, stamp_s: float, frame: str) -> Image:
    height, width = pixels.shape[:2]
    step = pixels.nbytes // height
    msg = Image(height=height, width=width, encoding=encoding, step=step)
    msg.header.stamp, msg.header.frame_id = to_stamp(stamp_s), frame
    msg.data = _bytes(np.ascontiguousarray(pixels).data)
    return msg


def _bytes(data: Any) -> array.array[int]:
    out = array.array("B")
    out.frombytes(memoryview(data).cast("B"))  # depth has two bytes a pixel
    return out


def compressed_to(rgb: NDArray[np.uint8], stamp_s: float, frame: str) -> CompressedImage:
    """RGB uint8 [H, W, 3] -> sensor_msgs/CompressedImage (jpeg)."""
    import cv2

    _, data = cv2.imencode(".jpg", rgb[..., ::-1])
    msg = CompressedImage(format="rgb8; jpeg compressed bgr8", data=_bytes(data.data))
    msg.header.stamp, msg.header.frame_id = to_stamp(stamp_s), frame
    return msg


ENCODINGS = {
    "rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4, "mono8": 1,
    "yuv422": 2, "yuv422_yuy2": 2, "uyvy": 2, "yuyv": 2,
}  # fmt: skip
"""Encodings of `sensor_msgs/Image` that are read -> bytes per pixel. Names as in
`sensor_msgs/image_encodings.hpp`; there, yuv422 has the bytes in the order of uyvy."""


def picture_from(msg: Image | CompressedImage) -> NDArray[np.uint8]:
    """A picture of either kind -> RGB uint8 [H, W, 3]. Raises `LinkError` like its two halves."""
    return image_from(msg) if isinstance(msg, Image) else compressed_from(msg)


def compressed_from(msg: CompressedImage) -> NDArray[np.uint8]:
    """sensor_msgs/CompressedImage (jpeg, png) -> RGB uint8 [H, W, 3]; grey is repeated.

    Raises:
        LinkError: neither JPEG nor PNG (depth images have a header of their own), broken, or of
            more than `MOST_PIXELS`.
    """
    import cv2  # drivers that send raw pictures need no OpenCV

    data = np.frombuffer(msg.data, np.uint8)
    known = 0 < pixels_of(data.tobytes()) <= MOST_PIXELS
    bgr = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION) if known else None
    if bgr is None:
        raise LinkError(
            "cannot read this compressed image",
            expected=f"a whole JPEG or PNG of at most {MOST_PIXELS} pixels",
            got=f"format '{msg.format}', {len(data)} bytes",
            fix="have the driver send jpeg or png, or read its raw topic (cameras.<name>.topic)",
        )
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), np.uint8)


def image_from(msg: Image) -> NDArray[np.uint8]:
    """sensor_msgs/Image -> RGB uint8 [H, W, 3], copied; honours `step` (foreign drivers pad rows).

    Raises:
        LinkError: an encoding that is not in `ENCODINGS`, or fewer bytes than the header promises.
    """
    size = ENCODINGS.get(msg.encoding)
    need = msg.step * msg.height
    whole = min(need, msg.width) > 0 and len(msg.data) >= need
    odd = size == 2 and msg.width % 2 == 1  # two pixels share their colour
    if size is None or not whole or msg.step < msg.width * size or odd:
        raise LinkError(
            "cannot read this image",
            expected=f"{', '.join(ENCODINGS)}; height x step bytes",
            got=f"{msg.encoding}, {msg.width} x {msg.height} pixels, {len(msg.data)} bytes for "
            f"{msg.height} rows of {msg.step}",
            fix="set the camera driver to rgb8",
        )
    rows = np.frombuffer(msg.data, np.uint8, count=need).reshape(msg.height, msg.step)
    image = rows[:, : msg.width * size].reshape(msg.height, msg.width, size)
    if size == 1:
        return np.repeat(image, 3, axis=2)
    if size == 2:
        import cv2  # drivers that send RGB need no OpenCV

        luma_first = msg.encoding in ("yuv422_yuy2", "yuyv")
        code = cv2.COLOR_YUV2RGB_YUY2 if luma_first else cv2.COLOR_YUV2RGB_UYVY
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), code), np.uint8)
    rgb = image[..., :3] if msg.encoding.startswith("rgb") else image[..., 2::-1]
    return np.ascontiguousarray(rgb).copy()


def camera_info_to(
    size: tuple[int, int], calibration: Calibration | None, stamp_s: float, frame: str
) -> CameraInfo:
    """Intrinsics of pictures of `size` (height, width); None = not calibrated, k stays 0."""
    height, width = size
    msg = CameraInfo(height=height, width=width)
    msg.header.stamp, msg.header.frame_id = to_stamp(stamp_s), frame
    if calibration is not None:
        msg.distortion_model, msg.d = calibration.model, list(calibration.distortion)
        msg.k = calibration.k.ravel()
        msg.r = np.eye(3).ravel()
        msg.p = np.hstack((calibration.k, np.zeros((3, 1)))).ravel()
    return msg


def pinhole(height: int, width: int, fovy_rad: float) -> Calibration:
    """An ideal camera (square pixels, centred) from its vertical angle of view."""
    focal = height / (2.0 * math.tan(fovy_rad / 2.0))
    middle = (width - 1) / 2.0, (height - 1) / 2.0
    k = np.array(((focal, 0.0, middle[0]), (0.0, focal, middle[1]), (0.0, 0.0, 1.0)))
    return Calibration(k, (0.0,) * 5)


def intrinsics_from(msg: CameraInfo) -> F64 | None:
    """CameraInfo -> pinhole matrix [3, 3] of the whole picture; None when not calibrated.

    Raises:
        LinkError: a number that is not finite.
    """
    k = _finite(msg.k, "camera_info.k").reshape(3, 3)
    return k if k[0, 0] > 0.0 else None


JOY_BUTTONS = 6  # of `joy_to`


def joy_to(value: OperatorInput, call: int) -> Joy:
    """OperatorInput -> Joy: axes = action; buttons = driving, success (0 unset, 1 yes, 2 no),
    abort, driver code, episode call (says which episode the input belongs to), guided."""
    success = 0 if value.success is None else 1 if value.success else 2
    msg = Joy()
    msg.header.stamp = to_stamp(value.stamp_s)
    msg.axes = array.array("f", np.asarray(value.action, np.float32).tobytes())
    buttons = [value.driving, success, value.abort, DRIVERS.index(value.driver), call]
    buttons.append(value.guided)
    msg.buttons = array.array("i", [int(b) for b in buttons])
    return msg


def joy_from(msg: Joy, action_size: int) -> tuple[OperatorInput, int]:
    """Inverse of `joy_to`: (input, episode call).

    Raises:
        LinkError: wrong lengths, unknown codes, or an action that is not finite.
    """
    buttons = list(msg.buttons)
    action = np.array(msg.axes, np.float32)
    known = (
        len(buttons) == JOY_BUTTONS and buttons[1] in (0, 1, 2) and 0 <= buttons[3] < len(DRIVERS)
    )
    if not known or action.shape != (action_size,) or not np.isfinite(action).all():
        raise LinkError(
            "malformed operator/joy",
            expected=f"{action_size} finite axes; buttons driving, success, abort, driver, call,"
            " guided",
            got=f"{action.tolist()}, {buttons}"[:160],
            fix="drive through robot_rl.ros.operator_node of the same version",
        )
    driving, success, abort, driver, call, guided = buttons
    return OperatorInput(
        driving=bool(driving),
        action=np.clip(action, -1.0, 1.0),
        driver=DRIVERS[driver],
        success=None if success == 0 else success == 1,
        abort=bool(abort),
        stamp_s=from_stamp(msg.header.stamp),
        guided=bool(guided),
    ), call
