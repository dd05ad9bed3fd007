"""The actor's process over ROS 2: builds the ports, then hands over to `robot_rl.actor`.

The control loop runs in the main thread on absolute deadlines of the run's clock; one daemon thread
spins the executor (clock, parameters, diagnostics).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robot_rl.actor import Actor, ActorPorts
from robot_rl.experiment import Experiment
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
from robot_rl.ros.runtime import Shell, run_node

START_S = 30.0  # the robot driver may start after us


def build_ports(shell: Shell, experiment: Experiment) -> ActorPorts:
    """The core's ports over this node; starts the executor thread and waits for the robot.

    Raises:
        RobotRLError: no clock or no robot state within `START_S`.
    """
    task = experiment.task
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


def body(shell: Shell) -> int:
    """Load the run, build the ports, run the actor."""
    run_dir = Path(shell.params["run_dir"])
    experiment = Experiment.load(run_dir)
    ports = build_ports(shell, experiment)
    return Actor(experiment, ports, run_dir, demos_only=shell.params["demos_only"]).run()


def main(args: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_node("actor", body, args)


if __name__ == "__main__":
    raise SystemExit(main())
