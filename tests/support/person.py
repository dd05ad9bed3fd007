"""A person beside a double, as a process of its own: python -m tests.support.person RUN

Looks at the scene (the double tells where everything is), decides as the scripted person does, and
reaches the arm only through the topics of a teleoperation device (operator=twist) and the services
that a person calls. A script may not drive a real arm; this one drives nothing, it teleoperates.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from geometry_msgs.msg import TwistStamped
from std_msgs.msg import Bool

from robot_rl.operate.scripted import ScriptedOperatorConfig
from robot_rl.ros import topics, wire
from robot_rl.ros.endpoints import Caller, Newest
from robot_rl.ros.graph import ros_arguments
from robot_rl.ros.reader import StateReader
from robot_rl.ros.rehearse import look_after
from robot_rl.ros.runtime import Shell, node_shell
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of
from robot_rl.types import RobotState

RATE_S = 0.02
REST_S = 0.3  # at rest first: a device that is held when the episode begins does not drive
LOOK_S = 0.5


class Person:
    """Prepares, demonstrates, watches and corrects."""

    def __init__(self, shell: Shell, experiment: Experiment) -> None:
        node, task = shell.node, experiment.task
        names = tuple(sorted(task.sample_reset(np.random.default_rng(0)).objects))
        staged = getattr(task, "staged", None)
        if staged is not None:
            names = tuple(sorted(staged.sample_reset(np.random.default_rng(0)).objects))
        self._reader = StateReader(shell, names, experiment.robot, experiment.spoken_driver)
        self._hands = ScriptedOperatorConfig().open(task, node)
        self._action = task.spec.pose_action
        self._hz = task.spec.control_hz
        self._asks = Newest(node, topics.ACTOR_ASKS)
        self._episodes = Newest(node, topics.OPERATOR_EPISODE)
        self._gate = Newest(node, topics.GATE_STATE)
        self._stopped = Newest(node, topics.CONTROLLER_STOPPED)
        self._callers = {s: Caller(node, s.name, 1.0) for s in topics.SERVICES}
        self._twist = node.create_publisher(TwistStamped, "teleop/twist", 1)
        self._enable = node.create_publisher(Bool, "teleop/enable", 1)
        self._call = wire.EpisodeCall(0, 0, "", active=False)
        self._begun_s = self._look_s = 0.0

    def turn(self) -> None:
        """Look, prepare, drive."""
        wall_s = time.monotonic()
        if wall_s > self._look_s:
            self._look_s = wall_s + LOOK_S
            self._look_after()
        for message in self._episodes.arrived():
            call = wire.decode_episode(message.data)
            if call.active and call.call != self._call.call:
                self._hands.begin_episode(call.seed, call.purpose)
                self._begun_s = wall_s
            self._call = call
        state = self._reader.read()
        if state is None or not self._call.active or wall_s < self._begun_s + REST_S:
            self._send(False, np.zeros(6))
            return
        self._drive(state)

    def _drive(self, state: RobotState) -> None:
        said = self._hands.poll(state)
        scale = np.repeat((self._action.translation_m, self._action.rotation_rad), 3)
        self._send(said.driving, np.asarray(said.action[:6], np.float64) * scale * self._hz)

    def _send(self, driving: bool, twist: Any) -> None:
        message = TwistStamped()
        message.header.frame_id = "tcp"
        v, w = message.twist.linear, message.twist.angular
        v.x, v.y, v.z, w.x, w.y, w.z = (float(value) for value in twist)
        self._enable.publish(Bool(data=bool(driving)))
        self._twist.publish(message)

    def _look_after(self) -> None:
        """What a person does at a robot that waits: resume, acknowledge, prepare."""
        asks, stopped, gate = (n.read() for n in (self._asks, self._stopped, self._gate))
        report = None if gate is None else wire.decode_report(gate.data)
        look_after(
            self._callers,
            report,
            stopped=stopped is not None and stopped.data,
            asked=asks is not None and bool(asks.data),
        )


def main(run: Path) -> None:
    """Wait for the run to begin; then help until this process is told to end."""
    while not (run / "run.json").is_file():
        time.sleep(0.1)
    experiment = Experiment.load(run)
    os.environ["ROS_DOMAIN_ID"] = str(experiment.ros.domain_id)
    operator = next(spec for spec in graph_of(experiment) if spec.name == "operator")
    params = experiment.home / "ros" / f"{operator.label}.yaml"
    while not params.is_file():
        time.sleep(0.1)
    words = ros_arguments(operator, str(params))
    words[2] = "__node:=person"
    text = params.read_text().replace("unattended: false", "unattended: false")
    own = params.with_name(f"{operator.label}-person.yaml")
    own.write_text(text)
    words[-1] = str(own)
    with node_shell("operator", words) as shell:
        person = Person(shell, experiment)
        while shell.running:
            shell.spin(RATE_S)
            person.turn()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(Path(sys.argv[1]))
