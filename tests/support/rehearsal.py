"""A dress rehearsal: the graph of a real arm beside its double, and a person at the robot."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from geometry_msgs.msg import TwistStamped
from numpy.typing import NDArray
from std_msgs.msg import Bool

from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Caller, subscribe
from robot_rl.ros.rehearse import look_after
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of
from tests.support.probe import Probe
from tests.support.ros import World

TARGET = topics.OBJECT.named(object="target")


@contextmanager
def rehearsal(run: Path, profile: str, *words: str, actor: bool = False) -> Iterator[World]:
    """The graph of `profile` (`robot=PROFILE double=true`); `words` name the task."""
    given = [f"robot={profile}", "double=true", "operator=none", f"run_dir={run}"]
    experiment = Experiment.compose([*given, f"ros.with_actor={actor}".lower(), *words])
    experiment.save()
    world = World(graph_of(experiment), run)
    try:
        yield world
    finally:
        world.close()


class Teacher:
    """A person beside the double: prepares the scene, steers to the target with a twist device.

    steers=False: only looks after the robot, as a person beside a policy at work.

    A process of its own to the graph: reads the double's truth, reaches the arm only through the
    topics of a teleoperation device.
    """

    def __init__(
        self,
        domain_id: int,
        goal_m: NDArray[np.float64] | None = None,
        remaps: Mapping[str, str] | None = None,
        *,
        steers: bool = True,
    ) -> None:
        self.probe, self._steers = Probe(domain_id, remaps), steers
        node = self.probe.node
        self._goal_m = goal_m  # where to steer; None = to the tracked target
        self._judge = node.create_publisher(Bool, "my/checker", 1)
        self.asked: set[str] = set()
        self._twist = node.create_publisher(TwistStamped, "teleop/twist", 1)
        self._enable = node.create_publisher(Bool, "teleop/enable", 1)
        self._newest: dict[str, Any] = {}
        self.domain_id = domain_id
        for topic in (topics.ACTOR_ASKS, topics.OPERATOR_EPISODE, TARGET):
            subscribe(node, topic, partial(self._newest.__setitem__, topic.name))
        self._callers = {s: Caller(node, s.name, 1.0) for s in topics.SERVICES}
        self._answer_s = 0.0
        self._begun_s = time.monotonic()

    @property
    def driven_s(self) -> float:
        """How long this episode has lasted."""
        return time.monotonic() - self._begun_s

    def turn(self) -> None:
        """Look, answer, steer; call it 50 times a second."""
        asks, call = (
            self._newest.get(t.name) for t in (topics.ACTOR_ASKS, topics.OPERATOR_EPISODE)
        )
        wall_s = time.monotonic()
        if wall_s > self._answer_s:
            self._answer_s = wall_s + 0.5
            self._look_after(asks is not None and bool(asks.data))
        begun = call is not None and wire.decode_episode(call.data).active
        self._begun_s = self._begun_s if begun else wall_s
        rested = wall_s > self._begun_s + 0.3  # at first: a device that is held does not drive
        active = self._steers and rested
        target = self._goal_m
        if target is None and TARGET.name in self._newest:
            target = convert.pose_from(self._newest[TARGET.name]).position_m
        knows = active and target is not None
        self.steer(target - self.probe.tcp().position_m if knows else None)
        self._check()

    def steer(self, way_m: NDArray[np.float64] | None) -> None:
        """Hold the device and move it along the way to the target, in base; None = hands off."""
        self._enable.publish(Bool(data=way_m is not None))
        message = TwistStamped()
        message.header.frame_id = "base"
        if way_m is not None:
            speed = np.clip(3.0 * way_m, -0.2, 0.2)
            linear = message.twist.linear
            linear.x, linear.y, linear.z = speed.tolist()
        self._twist.publish(message)

    def _check(self) -> None:
        """Another program that sees whether the tool is at the goal."""
        if self._goal_m is not None and self.probe.newest(topics.CURRENT_POSE) is not None:
            away_m = float(np.linalg.norm(self._goal_m - self.probe.tcp().position_m))
            self._judge.publish(Bool(data=away_m < 0.005))

    def _look_after(self, asked: bool) -> None:
        """What a person does at a robot that waits: resume, acknowledge, prepare."""
        if asked:
            self.asked.add(self._newest[topics.ACTOR_ASKS.name].data)
        report, stopped = self.probe.report(), self.probe.stopped()
        look_after(self._callers, report, stopped=stopped, asked=asked)
