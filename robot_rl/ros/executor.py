"""Waits for a node's messages without rebuilding, at each wake-up, what never changes.

rclpy's executors collect every entity of the node, its QoS events and a timer for the time-out
anew for each wait, in Python, and wait once more to learn that nothing else is there: seven eighths
of what a message costs (`tests/ros/executor_bench.py`). Subscriptions, whose messages come hundreds
of times per second, are taken here, with the calls that `rclpy.wait_for_message` uses; everything
else that wakes (services, clients, actions, timers, guards) is left to rclpy's executor, which then
also looks at QoS events. Such an event (a publisher has come, or its node was killed) ends every
wait of its subscription until it is taken, with nothing that is ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rclpy.action.client import ActionClient
from rclpy.action.server import ActionServer
from rclpy.executors import (
    ConditionReachedException,
    ExternalShutdownException,
    ShutdownException,
    SingleThreadedExecutor,
    TimeoutException,
)
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.subscription import Subscription

DRAIN_LIMIT = 200  # rounds per drain: bounds a flood, far above any burst of ours


class Executor:
    """Runs the callbacks of one node in the thread that calls `spin`.

    Args:
        stopped: asked before each callback that is not a subscription's.
        failed: gets what a callback raised; the next callback runs all the same.
    """

    def __init__(
        self, node: Node, stopped: Callable[[], bool], failed: Callable[[BaseException], None]
    ) -> None:
        self._node, self._stopped, self._failed = node, stopped, failed
        self._rest = SingleThreadedExecutor(context=node.context)
        self._rest.add_node(node)
        self._subscriptions: list[Subscription] = []
        self._others: list[tuple[str, Any]] = []
        self._actions: list[Any] = []
        self._wait_set: Any = None

    def wake(self) -> None:
        """End a wait of another thread."""
        self._rest.wake()

    def spin(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for anything, then run all that is ready. False: shut down."""
        for i in range(DRAIN_LIMIT):
            if not self._node.context.ok():
                return False
            if self._wait_set is None:
                self._collect()
            until_s = time.monotonic() + timeout_s
            ready = self._wait(timeout_s if i == 0 else 0.0)
            if not ready and (i > 0 or time.monotonic() >= until_s):
                break
            if not ready or not self._run(ready):
                self._wait_set = None  # perhaps there is a new subscription
                if not self._run_rest():
                    return False
        return True

    def _collect(self) -> None:
        """Collect what to wait for from now on, without the subscriptions that owners poll."""
        node = self._node
        self._subscriptions = [s for s in node.subscriptions if s.callback_group.can_execute(s)]
        kinds = {"service": node.services, "client": node.clients, "timer": node.timers}
        self._others = [(kind, e.handle) for kind, entities in kinds.items() for e in entities]
        guard = self._rest._guard  # triggered when the node gets a new entity, too
        assert guard is not None
        self._others.append(("guard_condition", guard.handle))
        self._actions = [w for w in node.waitables if isinstance(w, ActionClient | ActionServer)]
        parts = [action.get_num_entities() for action in self._actions]
        sizes = [
            sum(k == kind for k, _ in self._others) + sum(getattr(p, f"num_{kind}s") for p in parts)
            for kind in ("timer", "client", "service")
        ]
        heard = len(self._subscriptions) + sum(p.num_subscriptions for p in parts)
        self._wait_set = rclpy_implementation.WaitSet(heard, 1, *sizes, 0, node.context.handle)

    def _wait(self, timeout_s: float) -> set[int]:
        """Pointers of the entities that are ready."""
        wait_set = self._wait_set
        wait_set.clear_entities()  # a wait forgets what was not ready
        for subscription in self._subscriptions:
            wait_set.add_subscription(subscription.handle)
        for kind, handle in self._others:
            getattr(wait_set, f"add_{kind}")(handle)
        for action in self._actions:
            action.add_to_wait_set(wait_set)
        wait_set.wait(round(timeout_s * 1e9))
        kinds = ("subscription", "guard_condition", "timer", "client", "service")
        return {pointer for kind in kinds for pointer in wait_set.get_ready_entities(kind)}

    def _run(self, ready: set[int]) -> bool:
        """Take one message of each subscription that has any; True when nothing else is ready."""
        for subscription in self._subscriptions:
            pointer = subscription.handle.pointer
            if pointer in ready:
                ready.discard(pointer)
                self._guarded(lambda s=subscription: _deliver(s))
        return not ready

    def _run_rest(self) -> bool:
        """Run all that rclpy's own executor finds ready. False: shut down."""
        if not self._node.context.ok():
            return False
        with suppress(TimeoutException):
            for _ in range(DRAIN_LIMIT):
                try:
                    handler, _, _ = self._rest.wait_for_ready_callbacks(0.0, None, self._stopped)
                except (ConditionReachedException, ShutdownException, ExternalShutdownException):
                    return False
                self._guarded(handler)
                if (error := handler.exception()) is not None:
                    self._failed(error)
        return True

    def _guarded(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception as error:  # one bad callback must not end the node
            self._failed(error)


def _deliver(subscription: Subscription) -> None:
    taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
    if taken is None:
        return
    if subscription._callback_type is Subscription.CallbackType.MessageOnly:
        subscription.callback(taken[0])
    else:
        subscription.callback(*taken)
