"""Calling one ROS 2 action without ever blocking."""

from __future__ import annotations

import time
from typing import Any

from action_msgs.msg import GoalStatus
from rclpy.action.client import ActionClient
from rclpy.node import Node

from robot_rl.errors import LinkError
from robot_rl.ros.endpoints import message_type


class ActionCall:
    """One goal at a time of one action; polled, from one thread.

    Args:
        type_name: "package/action/Type".
        timeout_s: without an answer to a goal, or to a cancellation, for this long (wall time), the
            server counts as lost.
    """

    def __init__(self, node: Node, name: str, type_name: str, timeout_s: float) -> None:
        self.name, self._timeout_s = name, timeout_s
        self._action = message_type(type_name)
        self._client = ActionClient(node, self._action, name)
        self._asked: Any = None  # future of the goal's acceptance
        self._goal: Any = None  # the accepted goal
        self._result: Any = None  # future of its result
        self._asked_s = 0.0
        self.sent = 0  # goals so far

    @property
    def is_served(self) -> bool:
        """Whether somebody serves it."""
        return self._client.server_is_ready()

    @property
    def is_busy(self) -> bool:
        """Whether a goal is under way."""
        return self._asked is not None or self._result is not None

    def send(self, **fields: Any) -> None:
        """Send a goal with these fields; one that is under way is forgotten, not cancelled."""
        goal = self._action.Goal()
        for name, value in fields.items():
            setattr(goal, name, value)
        self._asked, self._asked_s = self._client.send_goal_async(goal), time.monotonic()
        self._goal = self._result = None
        self.sent += 1

    def poll(self) -> Any:
        """The result of the goal once it is here, else None.

        Raises:
            LinkError: the server refused, aborted or cancelled the goal, or does not answer.
        """
        if self._asked is not None:
            self._accepted()
        if self._result is None or not self._result.done():
            return None
        answer, self._result, self._goal = self._result.result(), None, None
        if answer.status != GoalStatus.STATUS_SUCCEEDED:
            raise LinkError(
                f"{self.name} did not succeed",
                expected="a goal that is reached",
                got=_words(answer),
                fix="look at the driver's log",
            )
        return answer.result

    def _accepted(self) -> None:
        """Look whether the server has taken the goal."""
        if not self._asked.done():
            if time.monotonic() - self._asked_s > self._timeout_s:
                self._asked = None
                raise LinkError(f"{self.name} does not answer")
            return
        self._goal, self._asked = self._asked.result(), None
        if not self._goal.accepted:
            raise LinkError(f"{self.name} refused the goal")
        self._result = self._goal.get_result_async()

    def cancel(self) -> None:
        """Ask the server to give the goal up; nobody waits for its result any more."""
        if self._goal is not None and self._result is not None:
            self._goal.cancel_goal_async()
        self._asked = self._goal = self._result = None


def _words(answer: Any) -> str:
    """How a goal ended, as far as the driver says."""
    said = getattr(answer.result, "error", "") or getattr(answer.result, "error_string", "")
    ends = {GoalStatus.STATUS_ABORTED: "aborted", GoalStatus.STATUS_CANCELED: "cancelled"}
    return " ".join(filter(None, (ends.get(answer.status, f"status {answer.status}"), said)))
