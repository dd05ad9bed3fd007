"""Processor time that a message costs: rclpy's executor and ours, on the same node.

python tests/ros/executor_bench.py
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from rclpy.executors import SingleThreadedExecutor, TimeoutException
from rosgraph_msgs.msg import Clock
from std_msgs.msg import String

from robot_rl.ros.runtime import Shell, node_shell

MESSAGES = 1000
ARGS = ["--ros-args", "-p", "use_sim_time:=true", "-p", "run_dir:=."]


def drain(executor: SingleThreadedExecutor) -> Callable[[float], None]:
    """What one must write around rclpy's executor to take everything that has arrived."""

    def spin(timeout_s: float) -> None:
        try:
            while True:
                executor.wait_for_ready_callbacks(timeout_s, None)[0]()
                timeout_s = 0.0
        except TimeoutException:
            return

    return spin


def cost_ms(shell: Shell, spin: Callable[[float], object]) -> tuple[float, float]:
    """Milliseconds of this thread per message, and per look that finds nothing."""
    clock = shell.node.create_publisher(Clock, "/clock", 10)
    used_s = 0.0
    for i in range(MESSAGES):
        message = Clock()
        message.clock.sec = i + 1
        clock.publish(message)
        began_s = time.thread_time()
        spin(0.05)
        used_s += time.thread_time() - began_s
    began_s = time.thread_time()
    for _ in range(MESSAGES):
        spin(0.0)
    return used_s / MESSAGES * 1e3, (time.thread_time() - began_s) / MESSAGES * 1e3


def main() -> None:
    """A node with as many endpoints as the gate's."""
    os.environ["ROS_DOMAIN_ID"] = str(100 + os.getpid() % 100)
    for name in ("rclpy", "ours"):
        with node_shell("gate", ARGS) as shell:
            for i in range(8):
                shell.node.create_publisher(String, f"said_{i}", 1)
            for i in range(4):
                shell.node.create_subscription(String, f"heard_{i}", print, 1)
            theirs = SingleThreadedExecutor(context=shell.node.context)
            if name == "rclpy":
                theirs.add_node(shell.node)
            message, empty = cost_ms(shell, drain(theirs) if name == "rclpy" else shell.spin)
            sys.stdout.write(f"{name:6} {message:.3f} ms a message, {empty:.3f} ms an empty look\n")


if __name__ == "__main__":
    main()
