"""A vendor's types between processes: a service, an action with feedback and cancel, a topic."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ros import missing_vendor_types, new_domain, wait_for

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(bool(missing_vendor_types()), reason=missing_vendor_types()),
]
WAIT_S = 20.0


@pytest.fixture(scope="module")
def client() -> Iterator[tuple[Any, Callable[[Callable[[], Any], str], Any]]]:
    """A node beside the driver's process, and how to wait while it spins."""
    import rclpy
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor

    from robot_rl.ros.runtime import prepare_environment

    prepare_environment()
    domain_id = new_domain()
    peer = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("vendor_peer.py"))],
        env=os.environ | {"ROS_DOMAIN_ID": str(domain_id)},
    )
    context = Context()
    rclpy.init(context=context, domain_id=domain_id)
    node = rclpy.create_node("client", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)

    def spin_until(condition: Callable[[], Any], what: str) -> Any:
        def spun() -> Any:
            executor.spin_once(timeout_sec=0.05)
            return condition()

        return wait_for(spun, WAIT_S, what)

    try:
        yield node, spin_until
    finally:
        peer.kill()
        peer.wait()
        node.destroy_node()
        rclpy.shutdown(context=context)


def test_a_service_and_its_answer(client) -> None:
    from robot_rl.ros.vendor import interface

    node, spin_until = client
    switch = interface("controller_manager_msgs/srv/SwitchController")
    service = node.create_client(switch, "controller_manager/switch_controller")
    spin_until(service.service_is_ready, "the controller manager")
    request = switch.Request(
        activate_controllers=["cartesian"],
        deactivate_controllers=[],
        strictness=switch.Request.STRICT,
    )
    request.timeout.sec = 3
    future = service.call_async(request)
    spin_until(future.done, "an answer")
    assert (future.result().ok, future.result().message) == (True, "+['cartesian'] 3 s")


def test_an_action_with_feedback_and_cancel(client) -> None:
    from action_msgs.msg import GoalStatus
    from rclpy.action import ActionClient

    from robot_rl.ros.vendor import interface

    node, spin_until = client
    gripper = interface("control_msgs/action/GripperCommand")
    command = interface("control_msgs/msg/GripperCommand")(position=7.0, max_effort=20.0)
    action = ActionClient(node, gripper, "gripper/gripper_cmd")
    spin_until(action.server_is_ready, "the gripper")
    heard: list[float] = []
    sent = action.send_goal_async(
        gripper.Goal(command=command), lambda msg: heard.append(msg.feedback.position)
    )
    spin_until(lambda: sent.done() and len(heard) >= 2, "feedback")
    assert heard[1] - heard[0] >= 1.0
    assert heard[0] >= 7.0
    handle = sent.result()
    result = handle.get_result_async()
    handle.cancel_goal_async()
    spin_until(result.done, "the result")
    assert result.result().status == GoalStatus.STATUS_CANCELED
    assert (result.result().result.position, result.result().result.stalled) == (0.03, True)
    action.destroy()


def test_a_message_with_messages_of_another_package(client) -> None:
    from robot_rl.ros.vendor import interface

    node, spin_until = client
    heard: list[Any] = []
    node.create_subscription(interface("tf2_msgs/msg/TFMessage"), "tf", heard.append, 10)
    spin_until(lambda: heard, "tf")
    first, second = heard[0].transforms
    assert first == second
    assert (first.header.frame_id, first.child_frame_id) == ("base_link", "tool0")
    assert first.transform.translation.z == 0.5
