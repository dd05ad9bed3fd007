"""The watchdog: its own small process that stops the controller when the gate falls silent.

Common controllers hold their last target for ever; if the gate dies, nobody sends a new one. The
watchdog never publishes a target itself. Mechanism: age of `gate/heartbeat` in wall time (any
publisher, any clock); DDS liveliness is the second witness.
"""

from __future__ import annotations

import logging
import time

from rclpy.event_handler import QoSLivelinessChangedInfo, SubscriptionEventCallbacks
from std_msgs.msg import UInt64

from robot_rl.ros import topics
from robot_rl.ros.endpoints import Caller, subscribe
from robot_rl.ros.runtime import Shell

log = logging.getLogger(__name__)


class Watchdog:
    """Calls stop when the heartbeat is too old, until one call is answered; once per silence."""

    def __init__(self, shell: Shell) -> None:
        self._shell, params = shell, shell.params
        self._silence_s = params["silence_s"]
        # until the first beat the gate has the grace time to come up
        self._last_beat_s = time.monotonic() + params["grace_s"] - self._silence_s
        self._stop = Caller(shell.node, params["stop_service"], params["retry_s"])
        self._beats = shell.diagnostics.source("gate/heartbeat")
        self.tripped = self.stopped = False
        self.trips = 0
        events = SubscriptionEventCallbacks(liveliness=self._on_liveliness)
        subscribe(shell.node, topics.GATE_HEARTBEAT, self._on_beat, events)

    def _on_beat(self, _: UInt64) -> None:
        self._last_beat_s = time.monotonic()
        self._beats.saw(self._last_beat_s)

    def _on_liveliness(self, event: QoSLivelinessChangedInfo) -> None:
        """Show in the diagnostics what DDS says of the gate; only the heartbeat's age decides."""
        self._shell.diagnostics.set("gate_alive_witness", event.alive_count)

    def tick(self) -> None:
        """Look at the age; keep calling stop while it is due."""
        silent_s = time.monotonic() - self._last_beat_s
        if silent_s <= self._silence_s:
            if self.tripped:
                log.warning("the gate is back; the controller stays stopped until resumed")
                self._stop.forget()
                self.tripped = self.stopped = False
                self._shell.diagnostics.warn("")
            return
        if not self.tripped:
            self.tripped = True
            self.trips += 1
            text = f"gate silent for {silent_s * 1e3:.0f} ms: stopping the controller"
            log.error("%s", text)
            self._shell.diagnostics.warn(text)
            self._shell.diagnostics.set("trips", self.trips)
        if not self.stopped:
            response = self._stop.poll()
            if response is not None and response.success:
                self.stopped = True
                log.warning("controller stopped: %s", response.message)


def run_watchdog(shell: Shell) -> None:
    """Look 100 times a second (wall time): a trip comes at most 10 ms after `silence_s`."""
    watchdog = Watchdog(shell)
    while shell.running:
        shell.spin(0.01)
        watchdog.tick()
