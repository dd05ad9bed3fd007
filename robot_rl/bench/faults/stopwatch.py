"""What the arm is told, with the time at which that had arrived on this machine.

The time is the middleware's own, taken in its receiving thread when the message arrives: it does
not depend on when this process's interpreter gets to look. A subscriber gets a message when the arm
does, so "the arm was told to stop at" is read here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from robot_rl.bench.faults.waiting import wait_for
from robot_rl.errors import RobotRLError
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import message_type
from robot_rl.ros.executor import Executor
from robot_rl.ros.graph import CONTROL_PROFILE
from robot_rl.ros.qos import PROFILES
from robot_rl.ros.runtime import visitor
from robot_rl.ros.topics import Topic

# the double's own word, beside what the watchdog tells: a stop that is announced may never come
DRIVER_STOPPED = replace(topics.CONTROLLER_STOPPED, name="driver/stopped")
HEARD = (
    topics.TARGET_POSE,
    topics.GATE_STATE,
    topics.GATE_REQUEST,
    topics.GATE_VERDICT,
    topics.CONTROLLER_STOPPED,
    DRIVER_STOPPED,
    topics.CURRENT_POSE,
    topics.WRENCH,
)
SET, VALUE = "rcl_interfaces/srv/SetParameters", "rcl_interfaces/msg/Parameter"
STRING = 4  # ParameterType.PARAMETER_STRING
ANSWER_S = 10.0  # wall; for an answer of the double
MOVES_M = 1e-4  # targets that are nearer to each other than this are one place


class Stopwatch:
    """Records topics in a thread of its own, as lists of (monotonic seconds, message)."""

    def __init__(
        self,
        domain_id: int,
        remaps: Mapping[str, str],
        heard: Sequence[Topic] = HEARD,
        profile: str = CONTROL_PROFILE,
    ) -> None:
        self._given, self._topics = (domain_id, remaps, profile), heard
        self.heard: dict[str, list[tuple[float, Any]]] = {t.name: [] for t in heard}
        self._stack, self._done = ExitStack(), threading.Event()

    def __enter__(self) -> Self:
        domain_id, remaps, profile = self._given
        name = "stopwatch" if profile == CONTROL_PROFILE else "stopwatch_of_pictures"
        self.node = self._stack.enter_context(
            visitor(name, domain_id, remaps=remaps, profile=profile)
        )
        node = self.node
        self._faults = node.create_client(message_type(SET), "sim/set_parameters")
        for topic in self._topics:
            node.create_subscription(
                message_type(topic.type),
                topic.name,
                self._recorder(topic.name),  # type: ignore[arg-type]  # rclpy hands over the info
                PROFILES[topic.qos],
            )
        executor = Executor(node, self._done.is_set, lambda error: None)
        self._thread = threading.Thread(target=self._spin, args=(executor,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._stack.close()

    def fault(self, **faults: Any) -> None:
        """Break the double's driver as `robot_rl.ros.faults` says; without arguments: mend it.

        Raises:
            RobotRLError: the double does not take it.
        """
        wait_for(self._faults.service_is_ready, ANSWER_S, "the double serves its parameters")
        request = message_type(SET).Request()
        text = json.dumps(faults) if faults else ""
        value = message_type(f"{VALUE}Value")(type=STRING, string_value=text)
        request.parameters = [message_type(VALUE)(name="fault", value=value)]
        future = self._faults.call_async(request)
        wait_for(future.done, ANSWER_S, "the double is broken as asked")
        result = future.result()
        if result is None or not result.results[0].successful:
            raise RobotRLError("the double does not know this fault", got=text)

    def _spin(self, executor: Executor) -> None:
        while not self._done.is_set():
            executor.spin(0.05)

    def _recorder(self, name: str) -> Any:
        kept = self.heard[name]

        def keep(message: Any, info: Any) -> None:
            offset_s = time.time() - time.monotonic()  # the middleware's clock is the system's
            kept.append((info["received_timestamp"] * 1e-9 - offset_s, message))

        return keep

    def since(self, topic: Topic, at_s: float) -> list[tuple[float, Any]]:
        """What arrived on a topic after a moment."""
        return [x for x in list(self.heard[topic.name]) if x[0] > at_s]

    def newest(self, topic: Topic) -> tuple[float, Any] | None:
        """The newest message of a topic, with its time; None before the first."""
        heard = self.heard[topic.name]
        return heard[-1] if heard else None

    def height_m(self) -> float:
        """Where the TCP was last, above the base."""
        newest = self.newest(topics.CURRENT_POSE)
        return 0.0 if newest is None else float(newest[1].pose.position.z)

    def held_s(self, after_s: float) -> float | None:
        """When the arm was told to stand for good after a moment; None = it is not yet.

        That is: the last target that differs from the one before it has arrived, and the gate has
        told that it no longer runs.
        """
        if self.left_run_s(after_s) is None:
            return None
        moved_s, before = after_s, None
        for at_s, message in self.heard[topics.TARGET_POSE.name]:
            where_m = convert.pose_from(message).position_m
            if at_s > after_s and before is not None and abs(where_m - before).max() > MOVES_M:
                moved_s = at_s
            before = where_m
        return moved_s

    def moves(self, from_s: float, to_s: float) -> int:
        """How many targets that came in between were another place than the one before."""
        where_m = [(at_s, convert.pose_from(message).position_m)
                   for at_s, message in list(self.heard[topics.TARGET_POSE.name])
                   if at_s > from_s - 1.0]  # fmt: skip
        return sum(
            from_s < at_s <= to_s and abs(now_m - before_m).max() > MOVES_M
            for (_, before_m), (at_s, now_m) in pairwise(where_m)
        )

    def not_finite(self, after_s: float) -> int:
        """How many targets after a moment hold NaN or infinity."""
        told = [message.pose for _, message in self.since(topics.TARGET_POSE, after_s)]
        return sum(
            not np.isfinite((p.x, p.y, p.z, q.x, q.y, q.z, q.w)).all()
            for p, q in ((where.position, where.orientation) for where in told)
        )

    def left_run_s(self, after_s: float) -> float | None:
        """When the gate told that it no longer runs, and did not run again; None = it does."""
        found: float | None = None
        for at_s, message in self.since(topics.GATE_STATE, after_s):
            running = wire.decode_report(message.data).mode == "run"
            found = None if running else found or at_s
        return found

    def holds(self, after_s: float) -> list[float]:
        """When the gate left RUN after a moment; it ran then."""
        told = [(after_s, "run")]
        told += [(at_s, wire.decode_report(message.data).mode)
                 for at_s, message in self.since(topics.GATE_STATE, after_s)]  # fmt: skip
        return [at_s for (_, was), (at_s, is_) in pairwise(told) if was == "run" != is_]

    def forget(self) -> None:
        """Drop what was recorded: a table runs for long."""
        for kept in self.heard.values():
            del kept[:-1]
