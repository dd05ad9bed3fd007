"""The joint controller of a double: what the forward and trajectory controllers do with targets.

A position controller holds the newest position for ever. A velocity controller goes on with the
newest velocity for ever, until it is switched off or an end of the range is reached: none of them
has a time-out. They obey whoever publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from robot_rl.errors import LinkError
from robot_rl.robots.driver import JointDriver
from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import Newest
from robot_rl.ros.ik_node import TARGETS, joint_order
from robot_rl_sim.robot import MujocoRobot

F64 = NDArray[np.float64]


class Servos:
    """Takes joint targets and moves the drives of the simulated arm.

    Args:
        robot: with `joint_control`.
    """

    def __init__(self, node: Node, robot: MujocoRobot, driver: JointDriver) -> None:
        self._robot, self._kind = robot, driver.kind
        names = list(robot.robot.joint_names)
        order = joint_order(names, driver.names)
        self._ordered = [names[i] for i in order]
        self._places = np.argsort(order)  # in a command, of each of the robot's joints
        self._names = names
        self._newest = Newest(node, replace(topics.JOINT_TARGET, type=TARGETS[driver.kind]))
        self._way: tuple[float, float, F64, F64] | None = None  # begun, ended (s), from, to
        self.taken = 0

    def take(self, *, stopped: bool) -> str:
        """Carry out the newest target; what is wrong with it, or ""."""
        self._go_on()  # first: the newest point begins now, the one before had its time
        messages = list(self._newest.arrived())
        wrong = ""
        if messages and not stopped:
            try:
                self._obey(messages[-1])
                self.taken += len(messages)
            except LinkError as error:
                wrong = str(error)
        return wrong

    def _obey(self, message: Any) -> None:
        robot, joints = self._robot, len(self._names)
        if self._kind == "trajectory":
            goal_rad, within_s = convert.trajectory_from(message, self._names)
            self._begin(goal_rad, within_s)
            return
        self._way = None
        values = convert.values_from(message, joints)[self._places]
        if self._kind == "position":
            robot.drive_joints(values)
        else:
            robot.drive_joints(robot.driven_to_rad, values)

    def _begin(self, goal_rad: F64, within_s: float) -> None:
        now_s = self._robot.now_s()
        self._way = now_s, now_s + max(within_s, 1e-3), self._robot.driven_to_rad, goal_rad

    def _go_on(self) -> None:
        """Along the straight line to a trajectory's point."""
        if self._way is None:
            return
        begun_s, ended_s, start, goal = self._way
        share = min((self._robot.now_s() - begun_s) / (ended_s - begun_s), 1.0)
        self._robot.drive_joints(start + share * (goal - start))
        if share >= 1.0:
            self._way = None

    def go(self, goal_rad: F64, within_s: float) -> Callable[[], bool]:
        """As an action of the joint trajectory controller; returns whether the arm is there."""
        self._robot.drive_joints(None)
        self._begin(goal_rad, within_s)
        return lambda: self._way is None

    def stop(self) -> None:
        """Hold the joints where they are; forget what was commanded."""
        self._way = None
        for _ in self._newest.arrived():
            pass
        self._robot.drive_joints(None)
