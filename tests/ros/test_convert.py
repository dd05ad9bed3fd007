"""Messages <-> our types, in one process."""

from __future__ import annotations

import array
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState, Joy

from robot_rl.errors import LinkError
from robot_rl.geometry import pose
from robot_rl.ports import OperatorInput
from robot_rl.ros import convert
from robot_rl.types import Driver

pytestmark = pytest.mark.ros

ARM, FINGERS = ("a1", "a2"), ("f1", "f2")


def test_stamps_keep_their_nanoseconds() -> None:
    for seconds in (0.0, 1.999999999, 123456.000000001, 0.9999999999):
        assert convert.from_stamp(convert.to_stamp(seconds)) == pytest.approx(seconds, abs=1e-9)


def test_joints_are_matched_by_name_not_by_index() -> None:
    msg = convert.joints_to(
        ["f2", "a2", "x", "a1", "f1"], [0.01, 2.0, 9.0, 1.0, 0.03], [0, 20, 90, 10, 0], 1.0
    )
    position, velocity, width_m = convert.joints_from(msg, ARM, FINGERS)
    assert position.tolist() == [1.0, 2.0] and velocity.tolist() == [10.0, 20.0]
    assert width_m == pytest.approx(0.04)


def test_a_driver_without_velocities_counts_as_standing_still() -> None:
    msg = JointState(name=["a1", "a2"], position=array.array("d", [1.0, 2.0]))
    assert convert.joints_from(msg, ARM, ())[1].tolist() == [0.0, 0.0]


def test_velocities_that_are_all_nan_are_none() -> None:
    """joint_state_broadcaster fills the interfaces that a driver does not have with NaN."""
    nan = float("nan")
    msg = convert.joints_to(["f1", "a1", "a2"], [0.03, 1.0, 2.0], [0.1, nan, nan], 1.0)
    msg.effort = array.array("d", [nan] * 3)
    position, velocity, _ = convert.joints_from(msg, ARM, ())
    assert position.tolist() == [1.0, 2.0] and velocity.tolist() == [0.0, 0.0]
    assert convert.positions_from(msg, ("a1", "f1")).tolist() == [1.0, 0.03]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_velocity_that_is_missing_beside_others_is_an_error(wrong: float) -> None:
    msg = convert.joints_to(["a1", "a2"], [1.0, 2.0], [0.1, wrong], 1.0)
    with pytest.raises(LinkError, match="joint velocity"):
        convert.joints_from(msg, ARM, ())
    with pytest.raises(LinkError, match="joint velocity"):
        convert.joints_from(convert.joints_to(ARM, [1.0, 2.0], [float("inf")] * 2, 1.0), ARM, ())


@pytest.mark.parametrize(
    ("names", "positions", "words"),
    [
        (["a1"], [1.0], "joints"),
        (["a1", "a2"], [1.0], "positions"),
        (["a1", "a2"], [1.0, float("nan")], "NaN"),
    ],
)
def test_joint_states_of_another_robot_are_refused(
    names: list[str], positions: list[float], words: str
) -> None:
    msg = JointState(name=names, position=array.array("d", positions))
    with pytest.raises(LinkError, match=words):
        convert.joints_from(msg, ARM, ())


def test_poses_survive_and_an_unset_orientation_is_refused() -> None:
    value = pose((0.1, -0.2, 0.3), (0.1, 0.2, 0.3, 0.9))
    back = convert.pose_from(convert.pose_to(value, 2.0, "base"))
    assert np.allclose(back.position_m, value.position_m)
    assert np.allclose(back.quaternion_xyzw, value.quaternion_xyzw)
    msg = convert.pose_to(value, 2.0, "base")
    msg.pose.orientation.w = msg.pose.orientation.x = 0.0
    with pytest.raises(LinkError, match="unit quaternion"):
        convert.pose_from(msg)


def test_images_survive_with_row_padding_and_either_channel_order() -> None:
    rgb = np.random.default_rng(0).integers(0, 255, (4, 5, 3), dtype=np.uint8)
    assert np.array_equal(convert.image_from(convert.image_to(rgb, 1.0, "c")), rgb)
    padded = np.zeros((4, 20), np.uint8)
    padded[:, :15] = rgb[..., ::-1].reshape(4, 15)
    msg = Image(height=4, width=5, step=20, encoding="bgr8")
    msg.data = array.array("B", padded.tobytes())
    assert np.array_equal(convert.image_from(msg), rgb)
    msg.data = array.array("B", b"short")
    with pytest.raises(LinkError, match="bytes"):
        convert.image_from(msg)


@pytest.mark.parametrize(
    ("encoding", "pixel", "rgb"),
    [
        ("rgba8", (10, 20, 30, 255), (10, 20, 30)),
        ("bgra8", (30, 20, 10, 255), (10, 20, 30)),
        ("mono8", (77,), (77, 77, 77)),
        ("yuv422_yuy2", (126, 128), (128, 128, 128)),  # BT.601: Y from 16 to 235, U = V = 128: grey
        ("yuyv", (126, 128), (128, 128, 128)),
        ("yuv422", (128, 126), (128, 128, 128)),
        ("uyvy", (128, 126), (128, 128, 128)),
    ],
)
def test_what_drivers_send_is_read(
    encoding: str, pixel: tuple[int, ...], rgb: tuple[int, int, int]
) -> None:
    row = bytes(pixel) * 6 + b"padding"
    msg = Image(height=4, width=6, step=len(row), encoding=encoding)
    msg.data = array.array("B", row * 4)
    image = convert.image_from(msg)
    assert image.shape == (4, 6, 3) and image.flags.owndata
    assert np.abs(image.astype(int) - rgb).max() <= 1


def test_yuv_keeps_its_colours() -> None:
    """A red pixel pair: Y 81, U 90, V 240 (BT.601)."""
    for encoding, pair in (("yuyv", (81, 90, 81, 240)), ("uyvy", (90, 81, 240, 81))):
        msg = Image(height=2, width=4, step=8, encoding=encoding)
        msg.data = array.array("B", bytes(pair) * 4)
        assert np.abs(convert.image_from(msg).astype(int) - (255, 0, 0)).max() <= 3


@pytest.mark.parametrize(
    "wrong", [{"encoding": "bayer_rggb8"}, {"width": 5, "encoding": "yuyv"}, {"height": 0}]
)
def test_a_picture_that_cannot_be_read_is_refused(wrong: dict[str, Any]) -> None:
    msg = Image(**{"height": 4, "width": 6, "step": 24, "encoding": "rgba8"} | wrong)
    msg.data = array.array("B", bytes(96))
    with pytest.raises(LinkError, match="cannot read this image"):
        convert.image_from(msg)


@pytest.mark.parametrize("kind", [".jpg", ".png"])
def test_compressed_pictures_are_read(kind: str) -> None:
    cv2 = pytest.importorskip("cv2")
    ramp = np.zeros((24, 32, 3), np.uint8)
    ramp[..., 0], ramp[..., 2] = np.arange(32) * 8, 40  # red grows to the right, a little blue
    data = cv2.imencode(kind, ramp[..., ::-1])[1]
    msg = CompressedImage(format=kind, data=array.array("B", data.tobytes()))
    assert np.abs(convert.picture_from(msg).astype(int) - ramp).max() <= 8
    grey = cv2.imencode(kind, ramp[..., 0])[1]
    msg = CompressedImage(format=kind, data=array.array("B", grey.tobytes()))
    assert convert.picture_from(msg).shape == (24, 32, 3)


def test_what_our_double_compresses_comes_back() -> None:
    rgb = np.full((24, 32, 3), (200, 30, 90), np.uint8)
    back = convert.picture_from(convert.compressed_to(rgb, 1.0, "c"))
    assert np.abs(back.astype(int) - rgb).max() <= 8


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff\xe0 broken", b"PNG?", b"\0" * 12])
def test_a_compressed_picture_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(LinkError, match="compressed image"):
        convert.picture_from(CompressedImage(format="jpeg", data=array.array("B", data)))


def test_intrinsics_come_back_and_a_camera_without_any_says_so() -> None:
    pinhole = convert.pinhole(480, 640, 0.8)
    msg = convert.camera_info_to((480, 640), pinhole, 1.0, "c")
    assert np.array_equal(convert.intrinsics_from(msg), pinhole.k)
    assert (msg.height, msg.width, msg.distortion_model) == (480, 640, "plumb_bob")
    assert convert.intrinsics_from(convert.camera_info_to((480, 640), None, 1.0, "c")) is None
    assert convert.intrinsics_from(CameraInfo()) is None


def test_a_vga_image_takes_the_fast_path_both_ways() -> None:
    rgb = np.zeros((480, 640, 3), np.uint8)
    took_s = []
    for _ in range(20):
        began_s = time.perf_counter()
        convert.image_from(convert.image_to(rgb, 1.0, "c"))
        took_s.append(time.perf_counter() - began_s)
    assert min(took_s) < 0.005  # a list or an ndarray field takes 15-65 ms


@pytest.mark.parametrize("success", [None, True, False])
@pytest.mark.parametrize("driver", list(Driver))
def test_operator_input_survives_as_joy(driver: Driver, success: bool | None) -> None:
    action = np.linspace(-1, 1, 6, dtype=np.float32)
    value = OperatorInput(True, action, driver, success, True, stamp_s=3.25)
    back, call = convert.joy_from(convert.joy_to(value, 2**31 - 1), 6)
    assert (back.driving, back.driver, back.success, back.abort) == (True, driver, success, True)
    assert np.array_equal(back.action, action) and back.stamp_s == 3.25 and call == 2**31 - 1


def test_a_foreign_joy_is_refused() -> None:
    with pytest.raises(LinkError, match="operator/joy"):
        convert.joy_from(Joy(axes=array.array("f", [0.0] * 8)), 6)
    bad = convert.joy_to(OperatorInput(True, np.full(6, np.nan, np.float32)), 1)
    with pytest.raises(LinkError, match="operator/joy"):
        convert.joy_from(bad, 6)


def test_depth_keeps_its_millimetres() -> None:
    depth_mm = np.arange(12, dtype=np.uint16).reshape(3, 4) * 1000
    msg = convert.depth_to(depth_mm, 1.0, "camera")
    assert (msg.encoding, msg.height, msg.width, msg.step) == ("16UC1", 3, 4, 8)
    assert np.frombuffer(msg.data, np.uint16).reshape(3, 4).tolist() == depth_mm.tolist()
