"""Switching and listing the controllers of `ros2_control` (controller_manager_msgs)."""

from __future__ import annotations

from collections.abc import Sequence

from rclpy.node import Node

from robot_rl.ros.endpoints import Caller, message_type

SWITCH_S = 2  # whole seconds; the manager gives up a switch that takes longer


def switch(
    node: Node,
    manager: str,
    *,
    on: Sequence[str] = (),
    off: Sequence[str] = (),
    timeout_s: float,
) -> Caller:
    """A call that activates `on` and deactivates `off`.

    Best effort, because a strict call fails where a controller is already as it should be; whether
    it is, the arm node sees in the listing.

    Raises:
        SetupError: the messages of controller_manager_msgs are not there.
    """
    request = message_type("controller_manager_msgs/srv/SwitchController").Request()
    request.activate_controllers, request.deactivate_controllers = list(on), list(off)
    request.strictness = request.BEST_EFFORT
    request.activate_asap = True
    request.timeout.sec = SWITCH_S
    return Caller(node, f"{manager}/switch_controller", timeout_s, request)


def listing(node: Node, manager: str, timeout_s: float) -> Caller:
    """A call that lists the controllers and their states. Raises like `switch`."""
    request = message_type("controller_manager_msgs/srv/ListControllers").Request()
    return Caller(node, f"{manager}/list_controllers", timeout_s, request)
