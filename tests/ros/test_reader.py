"""From a vendor's topics to one state: frames, wrenches, twists and fingers of drivers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robot_rl.geometry import pose, quat_from_rotvec
from robot_rl.robots import Ur5e
from robot_rl.robots.driver import ArmDriver, GripperDriver
from tests.support.ros import new_domain, wait_for

pytestmark = pytest.mark.ros
convert = pytest.importorskip("robot_rl.ros.convert")

HALF_TURN = (0.0, 0.0, 1.0, 0.0)
FINGERS = GripperDriver(
    kind="command",
    name="gripper/gripper_cmd",
    opened=0.0,
    closed=0.8,
    opened_joints=0.0,
    closed_joints=0.8,
    joints=("knuckle",),
)
VENDOR = ArmDriver(title="a vendor's", tcp_frame="tool0", gripper=FINGERS)
ROBOT = Ur5e()


class Arm:
    """A driver in this process: says what the test says."""

    def __init__(self, node: Any, reader: Any) -> None:
        from robot_rl.ros import topics
        from robot_rl.ros.endpoints import publisher

        self.node, self.reader = node, reader
        names = (
            topics.JOINT_STATES,
            topics.CURRENT_POSE,
            topics.CURRENT_TWIST,
            topics.WRENCH,
            topics.TF_STATIC,
        )
        self.says = {topic.name: publisher(node, topic) for topic in names}
        self.frame, self.wrench_frame = "base_link", "tool0"
        self.where, self.twist, self.wrench = pose((0.4, 0.1, 0.2)), np.zeros(6), np.zeros(6)
        self.joints = dict.fromkeys(ROBOT.joint_names, 0.1) | {"knuckle": 0.4}
        self.sent_s = time.time()

    def fix(self, parent: str, child: str, where: Any) -> None:
        """A fixed frame, as robot_state_publisher tells it."""
        from robot_rl.ros.endpoints import message_type

        stamped = message_type("geometry_msgs/msg/TransformStamped")()
        stamped.header.frame_id, stamped.child_frame_id = parent, child
        p, q = stamped.transform.translation, stamped.transform.rotation
        p.x, p.y, p.z = where.position_m.tolist()
        q.x, q.y, q.z, q.w = where.quaternion_xyzw.tolist()
        self.says["/tf_static"].publish(
            message_type("tf2_msgs/msg/TFMessage")(transforms=[stamped])
        )

    def tell(self, dt_s: float = 0.02) -> None:
        """One reading of everything; stamps run ahead of the clock only if they did before."""
        ahead = self.sent_s > time.time()
        now_s = self.sent_s + dt_s if ahead else min(self.sent_s + dt_s, time.time())
        self.sent_s = max(self.sent_s + 1e-3, now_s)
        names, values = list(self.joints), list(self.joints.values())
        self.says["joint_states"].publish(
            convert.joints_to(names, values, [0.0] * len(names), self.sent_s)
        )
        self.says["current_pose"].publish(convert.pose_to(self.where, self.sent_s, self.frame))
        self.says["current_twist"].publish(convert.twist_to(self.twist, self.sent_s, self.frame))
        self.says["wrench"].publish(convert.wrench_to(self.wrench, self.sent_s, self.wrench_frame))

    def state(self) -> Any:
        """The state that the reader makes of the newest reading."""

        def read() -> Any:
            self.tell()
            time.sleep(0.02)  # as far apart as the stamps, which must not run ahead of the clock
            found = self.reader.read()
            return found if found is not None and found.stamp_s > begun_s else None

        begun_s = self.sent_s
        return wait_for(read, 10.0, lambda: f"a state; {self.reader.why_not()}")


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Arm]]:
    """arm(driver, *objects): a reader of that driver's topics, and the driver."""
    import rclpy
    from rclpy.context import Context
    from rclpy.node import Node

    from robot_rl.ros.reader import StateReader
    from robot_rl.ros.runtime import node_shell

    domain_id = new_domain()
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain_id))
    context = Context()
    rclpy.init(context=context, domain_id=domain_id)
    node = Node("driver", context=context)
    joints = f"joint_names:=[{', '.join(ROBOT.joint_names)}]"
    words = ["--ros-args", "-p", joints, "-p", "base_frame:=base_link"]
    with node_shell("view", words) as shell:
        yield lambda driver, *objects: Arm(node, StateReader(shell, objects, ROBOT, driver))
    node.destroy_node()
    rclpy.shutdown(context=context)


def test_fingers_in_radians_are_a_width_in_metres(arm: Any) -> None:
    state = arm(VENDOR).state()
    assert state.gripper_width_m == pytest.approx(ROBOT.gripper.stroke_m / 2)
    assert len(state.joint_position_rad) == 6


def test_poses_in_a_frame_that_is_fixed_to_the_base_are_turned(arm: Any) -> None:
    found = arm(VENDOR)
    found.frame, found.twist = "base", np.array((0.1, 0.0, 0.0, 0.0, 0.2, 0.0))
    found.fix("base_link", "base", pose((0.0, 0.0, 0.0), HALF_TURN))
    state = found.state()
    assert state.tcp_in_base.position_m == pytest.approx((-0.4, -0.1, 0.2))
    assert state.tcp_twist_in_base == pytest.approx((-0.1, 0.0, 0.0, 0.0, -0.2, 0.0), abs=1e-9)


def test_frames_are_found_up_one_branch_and_down_another(arm: Any) -> None:
    found = arm(VENDOR)
    found.frame = "table"
    found.fix("world", "base_link", pose((1.0, 0.0, 0.0)))
    found.fix("world", "table", pose((0.0, 2.0, 0.0)))
    assert found.state().tcp_in_base.position_m == pytest.approx((-0.6, 2.1, 0.2))


def test_a_frame_that_nothing_connects_is_refused_with_the_fix(arm: Any) -> None:
    found = arm(VENDOR)
    found.frame = "elsewhere"

    def said() -> str:
        found.tell()
        assert found.reader.read() is None
        return found.reader.why_not()

    words = wait_for(lambda: "elsewhere" in (text := said()) and text, 10.0, "it says why")
    assert "base_link" in words


def test_a_wrench_in_another_frame_is_turned_and_moved_to_the_tcp(arm: Any) -> None:
    """A force along x, 0.1 m above the TCP along its z, is a torque about y there."""
    found = arm(VENDOR)
    found.wrench, found.wrench_frame = np.array((5.0, 0.0, 0.0, 0.0, 0.0, 0.0)), "sensor"
    turn = quat_from_rotvec((0.0, 0.0, math.pi / 2))
    found.fix("sensor", "tool0", pose((0.0, 0.0, 0.1)))
    assert found.state().wrench_in_tcp == pytest.approx((5.0, 0.0, 0.0, 0.0, -0.5, 0.0))
    found.fix("sensor", "tool0", pose((0.0, 0.0, 0.0), turn))
    wait_for(
        lambda: np.allclose(found.state().wrench_in_tcp, (0.0, -5.0, 0.0, 0.0, 0.0, 0.0)),
        5.0,
        "turned",
    )


def test_a_wrench_about_the_flange_is_moved_to_the_tcp_of_the_profile(arm: Any) -> None:
    """As UR's older drivers give it, in tool0; the TCP is 0.1545 m further out."""
    found = arm(replace(VENDOR, tcp_frame="gripper_tcp"))
    found.wrench = np.array((5.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    found.fix("tool0", "gripper_tcp", pose((0.0, 0.0, ROBOT.gripper.tcp_m)))
    tcp_m = 0.1545
    assert found.state().wrench_in_tcp == pytest.approx((5.0, 0.0, 0.0, 0.0, -5.0 * tcp_m, 0.0))


def test_a_wrench_about_a_flange_that_nothing_connects_is_refused_with_the_fix(
    arm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, told = arm(replace(VENDOR, tcp_frame="gripper_tcp")), list[str]()
    monkeypatch.setattr(found.reader._shell.diagnostics, "error", told.append)

    def refused() -> bool:
        found.tell()
        time.sleep(0.02)
        assert found.reader.read() is None
        return bool(told)

    wait_for(refused, 10.0, "it says why")
    assert "--z 0.1545 --yaw 0 --frame-id tool0 --child-frame-id gripper_tcp" in told[0]


def test_the_sign_of_a_wrench_that_tells_what_the_arm_does(arm: Any) -> None:
    driver = ArmDriver(title="v", tcp_frame="tool0", gripper=FINGERS, wrench_sign=-1.0)
    found = arm(driver)
    found.wrench = np.array((0.0, 0.0, 3.0, 0.0, 0.0, 0.0))
    assert found.state().wrench_in_tcp[2] == -3.0


def test_a_driver_without_wrench_and_twist_has_a_state(
    arm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    driver = ArmDriver(title="v", gripper=FINGERS, twist="derived", wrench="none")
    found = arm(driver)
    assert "no force stops the arm" in caplog.text
    found.says["wrench"].publish = found.says["current_twist"].publish = lambda _: None
    for i in range(20):
        found.where = pose((0.4 + 0.002 * i, 0.1, 0.2), quat_from_rotvec((0.0, 0.0, 0.01 * i)))
        state = found.state()
    assert state.tcp_twist_in_base[0] == pytest.approx(0.1, rel=0.6)
    assert state.tcp_twist_in_base[5] == pytest.approx(0.5, rel=0.6)
    assert not state.wrench_in_tcp.any()


def test_fingers_that_fall_silent_leave_no_state(arm: Any) -> None:
    slow = GripperDriver(kind="command", state_topic="fingers", joints=("knuckle",))
    found = arm(ArmDriver(title="v", tcp_frame="tool0", gripper=slow))
    for _ in range(20):
        found.tell()
        time.sleep(0.01)
        assert found.reader.read() is None
    assert "silent: fingers" in found.reader.why_not()


def test_one_message_from_the_future_hides_nothing_that_comes_after_it(arm: Any) -> None:
    driver = arm(VENDOR)
    driver.state()
    driver.sent_s = time.time() + 3600.0
    for _ in range(3):
        driver.tell()
        time.sleep(0.02)
        driver.reader.read()
    assert "stamped in the future" in driver.reader.why_not()
    driver.sent_s = time.time() - 0.05
    assert driver.state().stamp_s < time.time() + 1.0


def test_an_object_that_is_tracked_no_more_ends_the_episode_as_stale(arm: Any) -> None:
    """Arm and wrench stay fresh; only the object's stamp stays where it was."""
    from robot_rl.control.loop import MAX_STATE_AGE_S
    from robot_rl.ros import topics
    from robot_rl.ros.endpoints import publisher
    from robot_rl.types import Ending, Step
    from tests.support.clock import ManualClock
    from tests.support.fakes import make_loop, start

    driver = arm(VENDOR, "target")
    tracker = publisher(driver.node, topics.OBJECT.named(object="target"))

    def told(tracked: bool) -> Any:
        driver.tell()
        if tracked:
            where = pose((0.5, 0.0, 0.1))
            tracker.publish(convert.pose_to(where, driver.sent_s, "base_link"))
        time.sleep(0.02)
        return driver.reader.read()

    first = wait_for(lambda: told(True), 10.0, lambda: f"a state; {driver.reader.why_not()}")
    loop, robot, rows = make_loop(clock=ManualClock(first.stamp_s))
    gone_s = first.stamp_s + 0.35

    def read() -> Any:
        """What is told in the time of the loop's clock, which waits for the driver."""
        now_s = loop.clock.now_s()
        tracked = now_s < gone_s
        state = told(tracked)
        while (state.stamp_s if tracked else driver.sent_s) < now_s - 0.02:
            state = told(tracked)
        return state

    robot.read = read  # type: ignore[method-assign]
    summary = loop.run_episode(start())
    steps = [row for row in rows if isinstance(row, Step)]
    assert summary.ending is Ending.STALE and "the robot's state" in summary.reason
    assert driver.sent_s - driver.reader.read().stamp_s > MAX_STATE_AGE_S / 2
    assert steps[-1].ending is Ending.STALE and steps[-1].success is None
    assert len(steps) >= 3 and all(step.ending is None for step in steps[:-1])
