"""What the preflight makes of observations, without a graph."""

from __future__ import annotations

import re

import numpy as np
import pytest

from robot_rl.geometry import compose, inverse, pose, quat_from_rotvec
from robot_rl.robots import Fr3, Robot, Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.ros.preflight import Finding, Heard, Needed, Seen, judge, kinematics, tool_of
from robot_rl.types import Pose


def tcp_of(robot: Robot) -> Pose:
    """Where the robot's TCP is at home."""
    return Chain(robot).tcp_in_base(np.array(robot.home_rad))


def found(seen: Seen, robot: Robot, **frames: str) -> dict[str, Finding]:
    needed = Needed(min_hz={}, frames=frames, joints=robot.joint_names, tool=tool_of(robot))
    return {finding.name: finding for finding in judge(seen, needed)}


@pytest.mark.parametrize("robot", [Ur5e(), Fr3()], ids=lambda robot: robot.name)
def test_a_driver_whose_tcp_is_the_flange_is_not_ready(robot: Robot) -> None:
    """Or the gate would keep the flange in the box, and not the fingers."""
    tcp = tcp_of(robot)
    flange = compose(tcp, inverse(tool_of(robot)))
    finding = found(Seen(heard={}, tcp=(flange, tcp)), robot)["kinematics"]
    assert finding.status == "fail" and "tool frame" in finding.fix
    expected_mm = ", ".join(f"{1e3 * v:.0f}" for v in tcp.position_m)
    assert f"the robot's TCP is at [{expected_mm}] mm" in finding.text
    apart_mm = re.findall(r"(\d+) mm and [\d.]+ degrees apart", finding.text)
    assert float(apart_mm[0]) == pytest.approx(1e3 * robot.gripper.tcp_m, abs=1.0)


@pytest.mark.parametrize(
    ("off_m", "off_deg", "status"),
    [(0.0, 0.0, "ok"), (0.008, 1.5, "ok"), (0.012, 0.0, "fail"), (0.0, 2.5, "fail")],
)
def test_two_models_of_one_arm_may_differ_a_little(
    off_m: float, off_deg: float, status: str
) -> None:
    own = tcp_of(Ur5e())
    off = pose((off_m, 0.0, 0.0), quat_from_rotvec((0.0, np.radians(off_deg), 0.0)))
    finding = kinematics(compose(own, off), own)
    assert finding.status == status
    assert f"{1e3 * off_m:.0f} mm and {off_deg:.1f} degrees" in finding.text


def test_a_base_that_is_turned_is_told_though_the_tool_is_right() -> None:
    """UR's `base` is half a turn from `base_link`."""
    own = tcp_of(Ur5e())
    told = compose(pose((0.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)), own)
    assert kinematics(told, own).status == "fail"


def test_what_is_in_another_unit_is_told_once() -> None:
    own = tcp_of(Ur5e())
    told = pose(1e3 * own.position_m, own.quaternion_xyzw)
    names = found(Seen(heard={}, tcp=(told, own), reach_m=500.0), Ur5e())
    assert names["units"].status == "fail" and "kinematics" not in names


def test_a_driver_that_knows_no_tcp_is_not_asked_for_it() -> None:
    assert "kinematics" not in found(Seen(heard={}), Ur5e())


def test_a_wrench_about_a_flange_that_nothing_connects_has_the_line_that_does() -> None:
    heard = Heard(
        topic="wrench",
        wanted_type="geometry_msgs/msg/WrenchStamped",
        publishers=("broadcaster",),
        count=100,
        rate_hz=500.0,
        frames=("tool0",),
    )
    finding = found(Seen(heard={"wrench": heard}), Ur5e(), wrench="gripper_tcp")["wrench"]
    assert finding.status == "fail" and "tool0, which nothing connects" in finding.text
    assert "if tool0 is at the TCP: driver.tcp_frame=tool0;" in finding.fix
    assert "--z 0.1545 --yaw 0 --frame-id tool0 --child-frame-id gripper_tcp" in finding.fix
    known = Seen(heard={"wrench": heard}, frames_known=frozenset({"tool0"}))
    assert found(known, Ur5e(), wrench="gripper_tcp")["wrench"].status == "ok"
