"""Health of one node on `/diagnostics`, once per wall second: rates, ages, drops, last error."""

from __future__ import annotations

import math
import time

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.node import Node

from robot_rl.observe.freshness import Freshness
from robot_rl.ros import topics
from robot_rl.ros.endpoints import publisher

STALE_S = 1.0  # a source silent this long makes the node STALE (wall time)
ERROR_S = 10.0  # an error is shown as ERROR this long, then only as text


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class NodeDiagnostics:
    """Collects what a node knows about itself. `set` keeps a value, `source` watches an input."""

    def __init__(self, node: Node, steady: Clock) -> None:
        self._node = node
        self._publisher = publisher(node, topics.DIAGNOSTICS)
        self._sources: dict[str, Freshness] = {}
        self._values: dict[str, object] = {}
        self._warning, self._error, self._error_s = "", "", -math.inf
        # steady clock: health is reported also while /clock stands still
        self._timer = node.create_timer(1.0, self.publish, clock=steady)

    def source(self, name: str) -> Freshness:
        """The freshness counter of input `name` (made on first use)."""
        return self._sources.setdefault(name, Freshness())

    def set(self, name: str, value: object) -> None:
        """Show `name: value` in the next message."""
        self._values[name] = value

    def warn(self, text: str) -> None:
        """Set the standing warning; "" clears it."""
        self._warning = text

    def error(self, text: str) -> None:
        """Remember the last error."""
        self._error, self._error_s = text, time.monotonic()

    def _level(self, silent: list[str]) -> tuple[bytes, str]:
        if time.monotonic() - self._error_s < ERROR_S:
            return DiagnosticStatus.ERROR, self._error
        if silent:
            return DiagnosticStatus.STALE, f"silent: {', '.join(silent)}"
        if self._warning:
            return DiagnosticStatus.WARN, self._warning
        return DiagnosticStatus.OK, "ok"

    def publish(self) -> None:
        """Send one status now."""
        now_s = time.monotonic()
        values: dict[str, object] = dict(self._values)
        silent: list[str] = []
        for name, source in self._sources.items():
            report = source.report(now_s)
            if report.silent_s > STALE_S:
                silent.append(name)
            values[f"{name}/rate_hz"] = report.rate_hz
            values[f"{name}/age_p50_ms"] = report.age_p50_s * 1e3
            values[f"{name}/age_p99_ms"] = report.age_p99_s * 1e3
            values[f"{name}/dropped"] = report.dropped
        values["last_error"] = self._error
        level, message = self._level(silent)
        status = DiagnosticStatus(
            level=level, name=self._node.get_fully_qualified_name(), message=message
        )
        status.values = [KeyValue(key=k, value=_text(v)) for k, v in values.items()]
        array = DiagnosticArray(status=[status])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)
