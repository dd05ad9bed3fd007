"""A vendor's driver as a process: serves a controller manager and a gripper, sends tf."""

from __future__ import annotations

import rclpy
from geometry_msgs.msg import TransformStamped
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup

from robot_rl.ros import vendor
from robot_rl.ros.runtime import prepare_environment

SwitchController = vendor.interface("controller_manager_msgs/srv/SwitchController")
GripperCommand = vendor.interface("control_msgs/action/GripperCommand")
TFMessage = vendor.interface("tf2_msgs/msg/TFMessage")


def switch(request, response):
    """Answer with what was asked for."""
    response.ok = request.strictness == SwitchController.Request.STRICT
    response.message = f"+{list(request.activate_controllers)} {request.timeout.sec} s"
    return response


async def close(goal):
    """Tell feedback until the client cancels (or 20 s have passed)."""
    for count in range(2000):
        goal.publish_feedback(
            GripperCommand.Feedback(position=goal.request.command.position + count)
        )
        if goal.is_cancel_requested:
            goal.canceled()
            return GripperCommand.Result(position=0.03, effort=1.5, stalled=True)
        await pause()
    goal.abort()
    return GripperCommand.Result()


def pause():
    """Let the executor run other callbacks for about 10 ms."""
    future = rclpy.task.Future()
    timer = node.create_timer(0.01, lambda: (timer.destroy(), future.set_result(None)))
    return future


if __name__ == "__main__":
    prepare_environment()
    rclpy.init()
    node = rclpy.create_node("driver")
    node.create_service(SwitchController, "controller_manager/switch_controller", switch)
    ActionServer(
        node, GripperCommand, "gripper/gripper_cmd", close,
        cancel_callback=lambda goal: CancelResponse.ACCEPT,
        callback_group=ReentrantCallbackGroup(),
    )  # fmt: skip
    tf = node.create_publisher(TFMessage, "tf", 10)
    step = TransformStamped(child_frame_id="tool0")
    step.header.frame_id, step.transform.translation.z = "base_link", 0.5
    node.create_timer(0.05, lambda: tf.publish(TFMessage(transforms=[step, step])))
    rclpy.spin(node)  # until the test kills this process
