"""The actor's ports over ROS 2.

The control loop runs in the main thread on absolute deadlines of the run's clock; one daemon thread
spins the executor (clock, parameters, diagnostics).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from robot_rl.config.run_folder import CAMERAS
from robot_rl.errors import RobotRLError, SetupError
from robot_rl.observe.cameras import CameraConfig
from robot_rl.ports import ActorPorts, Camera, RobotPort, Task
from robot_rl.ros.cameras import RosCamera, figures, keep_intrinsics
from robot_rl.ros.ports import (
    RosClock,
    RosGate,
    RosJudge,
    RosOperator,
    RosPace,
    RosReset,
    RosRobot,
)
from robot_rl.ros.reader import StateReader
from robot_rl.ros.runtime import Shell
from robot_rl.tasks import DescribedTask


def actor_ports(
    shell: Shell, task: Task, cameras: Mapping[str, CameraConfig], reader: StateReader
) -> ActorPorts:
    """The core's ports over this node; starts the executor thread, waits for robot and cameras.

    What is known of the cameras is written to `CAMERAS` of the run folder.

    Raises:
        RobotRLError: no clock within `start_s`.
        SetupError: no state, or no picture of a camera; a restart of this process is no help.
    """
    clock, gate = RosClock(shell, "actor"), RosGate(shell)
    clock.wait_for("actor", gate.has_answered)
    told = isinstance(task, DescribedTask) and task.judge == "topic"
    robot = RosRobot(reader, RosJudge(shell) if told else None)
    operator = RosOperator(shell, clock, task.spec.pose_action.size)
    eyes = [RosCamera(shell, n, c, task.spec.picture_size(n)) for n, c in cameras.items()]
    pace, reset = RosPace(shell), RosReset(shell)
    ports = ActorPorts(
        robot=robot,
        cameras=eyes,
        gate=gate,
        clock=clock,
        operator=operator,
        place_objects=reset,
        ask=reset.ask,
        announce=operator.announce,
        time_waits_for=clock.wait_for,
        figures=lambda: pace.figures() | figures(eyes),
        stopping=lambda: "" if shell.running else "asked to stop",
    )
    shell.spin_in_background()
    clock.wait_started(shell.params["start_s"])
    await_sources(shell, (robot, *eyes), shell.params["start_s"])
    if eyes and shell.running:  # else a camera may have sent nothing
        keep_intrinsics(eyes, Path(shell.params["run_dir"]) / CAMERAS)
    return ports


def await_sources(shell: Shell, sources: Sequence[RobotPort | Camera], timeout_s: float) -> None:
    """Wait for the first reading of each source, before a person prepares anything.

    Raises:
        SetupError: one has none after `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    for source in sources:
        while shell.running:
            try:
                source.read()
                break
            except RobotRLError as error:
                if time.monotonic() > deadline_s:
                    raise SetupError(
                        error.summary, expected=error.expected, got=error.got, fix=error.fix
                    ) from error
            time.sleep(0.02)
