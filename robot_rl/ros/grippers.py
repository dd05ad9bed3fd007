"""The gate's gripper command -> what a vendor's gripper understands.

One goal per change: actions of grippers are slow and answer once, so a goal per control step would
never let one end. While a goal is under way, only the newest command waits.

After a fault nothing that was asked before is carried out any more: somebody may have their fingers
between the gripper's. The gate stops, and the first command that it passes once a person has
acknowledged is the next that moves the gripper.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from action_msgs.msg import GoalStatus
from rclpy.node import Node

from robot_rl.errors import LinkError
from robot_rl.robots import Robot
from robot_rl.robots.driver import GripperDriver
from robot_rl.ros import convert, topics
from robot_rl.ros.actions import ActionCall
from robot_rl.ros.endpoints import message_type, publisher

CHANGE_M = 0.001  # a command that differs by less is the same
TOLD_S = 1.0  # wall; a problem is told for this long after it was seen last, so that the gate stops
NOBODY = "nobody serves"  # in a problem that lasts until the driver is back
GRASP_EPSILON_M = 0.2  # wider than any gripper: whatever stops the fingers is held


class Hand(Protocol):
    """What one kind of gripper does with a finger distance."""

    def begin(self, width_m: float, closing: bool) -> None:
        """Start to move to a finger distance."""
        ...

    def poll(self) -> bool | None:
        """None while it moves; then whether something is held. Raises `LinkError`."""
        ...

    def missing(self) -> str:
        """What nobody serves; "" when all is there."""
        ...

    def cancel(self) -> None:
        """Give up what is under way."""
        ...


class _GripperCall(ActionCall):
    """A GripperCommand that may end with stalled fingers when they close.

    GripperActionController aborts a goal whose fingers stall, unless its `allow_stalling` is set,
    which it is not by default: that is how it says that it holds something.
    """

    closing = False

    def poll(self) -> Any:
        """As `ActionCall`; also the result of a goal that was aborted because the fingers hold."""
        ended = self._result
        try:
            return super().poll()
        except LinkError:
            if not self.closing or ended is None or not ended.done():
                raise
            answer = ended.result()
            if answer.status != GoalStatus.STATUS_ABORTED or not answer.result.stalled:
                raise
            return answer.result


class CommandHand:
    """control_msgs/GripperCommand: most drivers of ros2_control. A new goal replaces the old."""

    def __init__(self, node: Node, driver: GripperDriver, stroke_m: float, reply_s: float) -> None:
        self._driver, self._stroke_m = driver, stroke_m
        kind = "control_msgs/action/GripperCommand"
        self._action = _GripperCall(node, driver.name, kind, reply_s)

    def begin(self, width_m: float, closing: bool) -> None:
        """Send the position in the driver's unit."""
        command = message_type("control_msgs/msg/GripperCommand")()
        command.position = self._driver.commanded(width_m, self._stroke_m)
        command.max_effort = self._driver.max_effort
        self._action.closing = closing
        self._action.send(command=command)

    def poll(self) -> bool | None:
        """Held means: closing fingers stopped before they were where they should be."""
        result = self._action.poll()
        if result is None:
            return None
        return bool(self._action.closing and result.stalled and not result.reached_goal)

    def missing(self) -> str:
        """The action, while nobody serves it."""
        return "" if self._action.is_served else self._action.name

    def cancel(self) -> None:
        """Give up the goal under way."""
        self._action.cancel()


class TopicHand:
    """Float64MultiArray: a position controller takes it as it comes and answers nothing."""

    def __init__(self, node: Node, driver: GripperDriver, stroke_m: float) -> None:
        self._driver, self._stroke_m = driver, stroke_m
        self._topic = publisher(node, replace(topics.GRIPPER_COMMAND, name=driver.name))

    def begin(self, width_m: float, closing: bool) -> None:
        """Publish the value in the driver's unit."""
        value = self._driver.commanded(width_m, self._stroke_m)
        self._topic.publish(convert.gripper_to(value))

    def poll(self) -> bool | None:
        """Nobody answers: whether something is held is not known."""
        return False

    def missing(self) -> str:
        """The topic, while nobody listens to it."""
        return "" if self._topic.get_subscription_count() else self._driver.name

    def cancel(self) -> None:
        """Nothing to do: the next value replaces this one."""


class FrankaHand:
    """franka_msgs: Move opens, Grasp closes with a force and tells whether it holds something."""

    def __init__(self, node: Node, driver: GripperDriver, reply_s: float) -> None:
        self._driver = driver
        self._move = ActionCall(node, f"{driver.name}/move", "franka_msgs/action/Move", reply_s)
        self._grasp = ActionCall(node, f"{driver.name}/grasp", "franka_msgs/action/Grasp", reply_s)
        self._active: ActionCall = self._move
        self._width_m = math.nan

    def begin(self, width_m: float, closing: bool) -> None:
        """Send Grasp when the fingers close, Move when they open."""
        self._active, self._width_m = (self._grasp if closing else self._move), width_m
        if not closing:
            self._move.send(width=width_m, speed=self._driver.speed_m_s)
            return
        epsilon = message_type("franka_msgs/msg/GraspEpsilon")()
        epsilon.inner = epsilon.outer = GRASP_EPSILON_M
        self._grasp.send(
            width=width_m,
            epsilon=epsilon,
            speed=self._driver.speed_m_s,
            force=self._driver.force_n,
        )

    def poll(self) -> bool | None:
        """Held is what Grasp calls a success."""
        result = self._active.poll()
        return None if result is None else bool(result.success and self._active is self._grasp)

    def missing(self) -> str:
        """The actions that nobody serves."""
        return ", ".join(a.name for a in (self._move, self._grasp) if not a.is_served)

    def cancel(self) -> None:
        """Give up the goal under way: libfranka refuses a second one beside it."""
        self._active.cancel()


class GripperCommands:
    """Sends a goal when the command changes; after a fault, not before a new command.

    A goal that is refused or fails is told for `TOLD_S` and then forgotten, so that a person can
    acknowledge; a server that is missing is told until it is back.

    Args:
        stroke_m: width when open. Before any goal nobody knows where the fingers are: the first one
            closes if it is for less than half of this.
        wall_s: tells the time.
    """

    def __init__(
        self, hand: Hand, stroke_m: float, wall_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._hand, self._stroke_m, self._wall_s = hand, stroke_m, wall_s
        self._asked_m = math.nan  # newest goal that was sent; NaN = none that still counts
        self._wanted_m = math.nan  # newest command; NaN = none that still counts
        self._sent_m, self._closing = math.nan, True  # of the newest goal, whatever came of it
        self._until_s = -math.inf  # the problem is told until then
        self._moving = False
        self.holding = False
        self.goals = 0  # sent so far
        self.problem = ""

    def ask(self, width_m: float) -> None:
        """The gate's newest command."""
        self._wanted_m = width_m

    def tick(self) -> None:
        """Look at the goal under way; send the newest command when it is another."""
        missing = self._hand.missing()
        if missing:
            self._fail(f"{NOBODY} {missing}")
        else:
            self._look()
        if self.problem:  # commands that were under way when the gate stopped are dropped, too
            self._wanted_m = self._asked_m = math.nan
            if self._wall_s() >= self._until_s:
                self.problem = ""
        elif self._is_new():
            self._send()

    def _is_new(self) -> bool:
        if math.isnan(self._wanted_m):
            return False
        return math.isnan(self._asked_m) or abs(self._wanted_m - self._asked_m) > CHANGE_M

    def _look(self) -> None:
        if not self._moving:
            return
        try:
            held = self._hand.poll()
        except LinkError as error:
            self._fail(str(error))
            return
        if held is not None:
            self._moving, self.holding = False, held

    def _fail(self, why: str) -> None:
        self.problem, self._until_s = f"gripper: {why}", self._wall_s() + TOLD_S
        self._moving = self.holding = False

    def _send(self) -> None:
        if self._moving:
            self._hand.cancel()
        if not abs(self._wanted_m - self._sent_m) <= CHANGE_M:  # the same once more: as before
            before_m = self._stroke_m / 2 if math.isnan(self._sent_m) else self._sent_m
            self._closing = self._wanted_m < before_m
        self._hand.begin(self._wanted_m, self._closing)
        self._asked_m = self._sent_m = self._wanted_m
        self._moving, self.holding = True, False
        self.goals += 1


def make_gripper(
    node: Node, robot: Robot, driver: GripperDriver, reply_s: float
) -> GripperCommands | None:
    """What commands the gripper, None where its driver takes the gate's topic or there is none.

    Raises:
        SetupError: the vendor's messages are not there.
    """
    hands: dict[str, Any] = {
        "topic": lambda: TopicHand(node, driver, robot.gripper.stroke_m),
        "command": lambda: CommandHand(node, driver, robot.gripper.stroke_m, reply_s),
        "franka": lambda: FrankaHand(node, driver, reply_s),
    }
    if driver.kind not in hands:
        return None
    return GripperCommands(hands[driver.kind](), robot.gripper.stroke_m)
