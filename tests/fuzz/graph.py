"""Targets: messages of the ROS graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robot_rl.errors import LinkError
from tests.fuzz.target import Cursor, Open, target


def _texts(name: str) -> None:
    """Target of a text topic of ours."""

    def opened(_folder: Path) -> Any:
        from robot_rl.ros import wire

        decode = getattr(wire, f"decode_{name}")
        encode = getattr(wire, f"encode_{name}")

        def run(data: bytes) -> None:
            found = decode(data.decode("utf-8", "replace"))
            if not isinstance(found, int):
                encode(found)

        return run

    opener: Open = opened
    target(f"ros_{name}", f"ros.wire.decode_{name}", LinkError, weight=1.5, tree="json")(opener)


for _name in ("request", "answer", "report", "readiness", "pace", "episode", "plan"):
    _texts(_name)


@target("ros_fault", "ros.faults.read", LinkError, tree="json")
def _(_folder: Path) -> Any:
    from robot_rl.ros.faults import read

    return lambda data: read(data.decode("utf-8", "replace"))


@target("ros_image", "ros.convert.image_from", LinkError, weight=1)
def _(_folder: Path) -> Any:
    import array

    from sensor_msgs.msg import Image

    from robot_rl.ros.convert import ENCODINGS, picture_from

    names = [*ENCODINGS, "16UC1", "", "bayer_rggb8"]

    def run(data: bytes) -> None:
        take = Cursor(data)
        encoding = names[take.count(len(names) - 1)]
        height, width = (int(take.number("I")) >> take.count(31) for _ in "hw")
        msg = Image(encoding=encoding, height=height, width=width, step=int(take.number("I")))
        if take.count(1):
            msg.step = min(width * ENCODINGS.get(encoding, 1), 2**32 - 1)
        msg.data = array.array("B", take.rest() * (1 + take.count(3)))
        image = picture_from(msg)
        assert image.shape == (height, width, 3)

    return run


@target("ros_compressed", "ros.convert.compressed_from", LinkError, weight=0.2, spare_mb=256)
def _(_folder: Path) -> Any:
    import array

    from sensor_msgs.msg import CompressedImage

    from robot_rl.ros.convert import picture_from

    def run(data: bytes) -> None:
        picture_from(CompressedImage(format="jpeg", data=array.array("B", data)))

    return run


@target("ros_joints", "ros.convert.joints_from, joy_from, trajectory_from, ...", LinkError)
def _(_folder: Path) -> Any:
    import array

    from geometry_msgs.msg import PoseStamped, TwistStamped, WrenchStamped
    from sensor_msgs.msg import CameraInfo, JointState, Joy
    from std_msgs.msg import Float64MultiArray
    from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

    from robot_rl.ros import convert

    arm, fingers = ("j1", "j2"), ("f1",)
    known = (*arm, *fingers, "j3", "")

    def named(take: Cursor) -> list[str]:
        return [known[take.count(4)] for _ in range(take.count(5))]

    def joints(take: Cursor) -> Any:
        msg = JointState(name=named(take))
        msg.position = array.array("d", take.numbers("d", 5))
        msg.velocity = array.array("d", take.numbers("d", 5))
        return convert.joints_from(msg, arm, fingers)

    def joy(take: Cursor) -> Any:
        msg = Joy(buttons=array.array("i", [int(x) for x in take.numbers("i", 7)]))
        msg.axes = array.array("f", take.numbers("f", 8))
        return convert.joy_from(msg, 7)

    def trajectory(take: Cursor) -> Any:
        points = [
            JointTrajectoryPoint(positions=array.array("d", take.numbers("d", 3)))
            for _ in range(take.count(2))
        ]
        return convert.trajectory_from(JointTrajectory(joint_names=named(take), points=points), arm)

    def pose(take: Cursor) -> Any:
        msg = PoseStamped()
        p, q = msg.pose.position, msg.pose.orientation
        p.x, p.y, p.z, q.x, q.y, q.z, q.w = (take.number("d") for _ in range(7))
        return convert.pose_from(msg)

    def six(take: Cursor) -> Any:
        twist, wrench = TwistStamped(), WrenchStamped()
        for vector in (twist.twist.linear, twist.twist.angular, wrench.wrench.force):
            vector.x, vector.y, vector.z = (take.number("d") for _ in range(3))
        return convert.twist_from(twist), convert.wrench_from(wrench)

    def numbers(take: Cursor) -> Any:
        msg = Float64MultiArray(data=array.array("d", take.numbers("d", 3)))
        return convert.gripper_from(msg) if take.count(1) else convert.values_from(msg, 2)

    def camera(take: Cursor) -> Any:
        return convert.intrinsics_from(CameraInfo(k=[take.number("d") for _ in range(9)]))

    kinds = (joints, joy, trajectory, pose, six, numbers, camera)

    def run(data: bytes) -> None:
        take = Cursor(data)
        kinds[take.count(len(kinds) - 1)](take)

    return run
