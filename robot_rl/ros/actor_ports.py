"""The actor's ports over ROS 2.

The control loop runs in the main thread on absolute deadlines of the run's clock; one daemon thread
spins the executor (clock, parameters, diagnostics).
"""

from __future__ import annotations

from robot_rl.ports import ActorPorts, Task
from robot_rl.ros.ports import (
    RosCamera,
    RosClock,
    RosGate,
    RosOperator,
    RosPace,
    RosReset,
    RosRobot,
)
from robot_rl.ros.reader import StateReader, tracked_objects
from robot_rl.ros.runtime import Shell

START_S = 30.0  # the robot driver may start after us


def actor_ports(shell: Shell, task: Task) -> ActorPorts:
    """The core's ports over this node; starts the executor thread and waits for the robot.

    Raises:
        RobotRLError: no clock or no robot state within `START_S`.
    """
    clock, gate = RosClock(shell, "actor"), RosGate(shell)
    clock.wait_for("actor", gate.has_answered)
    robot = RosRobot(StateReader(shell, tracked_objects(task)))
    operator = RosOperator(shell, clock, task.spec.action.size)
    ports = ActorPorts(
        robot=robot,
        cameras=[RosCamera(shell, name) for name in task.spec.cameras],
        gate=gate,
        clock=clock,
        operator=operator,
        place_objects=RosReset(shell),
        announce=operator.announce,
        time_waits_for=clock.wait_for,
        figures=RosPace(shell).figures,
        stopping=lambda: "" if shell.running else "asked to stop",
    )
    shell.spin_in_background()
    clock.wait_started(START_S)
    robot.wait_ready(START_S, shell)
    return ports
