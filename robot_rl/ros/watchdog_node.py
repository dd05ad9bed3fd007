"""The watchdog: its own small process that stops the controller when the gate falls silent.

Common controllers hold their last target for ever; if the gate dies, nobody sends a new one. Beside
an arm that takes joint targets, silence of the node `ik` counts as much (`with_ik`). The watchdog
never publishes a target itself. Mechanism: age of `gate/heartbeat` in wall time, whatever the
clock; DDS liveliness is the second witness. A second node that publishes a heartbeat could keep the
watchdog quiet while the gate is dead, so it counts as silence.

It tells on `watchdog/problem` whether it could stop the controller now, and the gate arms nobody
while it could not. Beside a real arm it stops and starts the controller once before anything may
move (`dry_run`), tells everybody when it has stopped the controller, and starts it again when a
person says so.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from rclpy.event_handler import QoSLivelinessChangedInfo, SubscriptionEventCallbacks
from std_msgs.msg import Bool, UInt64

from robot_rl.errors import LinkError
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.census import Census
from robot_rl.ros.endpoints import Caller, Newest, publisher, serve, subscribe
from robot_rl.ros.runtime import Shell
from robot_rl.safety.advice import explained
from robot_rl.safety.states import Mode

log = logging.getLogger(__name__)

LASTS_S = 3.0  # wall; a problem that lasts longer is none of a start, and is logged
TELL_S = 0.5  # wall; `watchdog/problem` is told again this often
WAKE_S = 0.1  # wall; what a watchdog that slept itself waits to hear what the gate said meanwhile


class Silence:
    """How long the gate has been silent, in wall time, as heard by a process that may sleep itself.

    Whoever was frozen or starved finds an old beat where newer ones wait to be taken in. So the
    first look after a sleep of its own gives the gate `WAKE_S`, once until the next beat: a
    watchdog that is starved all the time still stops the controller at its second look.
    """

    def __init__(self, silence_s: float, wall_s: float, grace_s: float) -> None:
        """Until the first beat the gate has `grace_s` to come up."""
        self._silence_s = silence_s
        self._heard_s = wall_s + grace_s - silence_s
        self._looked_s = wall_s
        self._excused = False  # this silence was given its `WAKE_S`, or is known to be one

    def heard(self, wall_s: float) -> None:
        """A beat arrived."""
        self._heard_s, self._excused = wall_s, False

    def too_long_s(self, wall_s: float) -> float:
        """The length of the silence [s], where it is longer than it may be; 0.0 otherwise."""
        slept_s, self._looked_s = wall_s - self._looked_s, wall_s
        silent_s = wall_s - self._heard_s
        if silent_s <= self._silence_s:
            return 0.0
        excused, self._excused = self._excused, True
        if slept_s > WAKE_S and not excused:
            self._heard_s = wall_s + WAKE_S - self._silence_s
            return 0.0
        return silent_s


class Watchdog:
    """Calls stop when a heartbeat is too old, until one call is answered; once per silence."""

    def __init__(self, shell: Shell) -> None:
        self._shell, params = shell, shell.params
        self._silences: dict[str, Silence] = {}
        self._stop, self._start = _chain(shell)
        self._gate = Newest(shell.node, topics.GATE_STATE)
        self._problems = publisher(shell.node, topics.WATCHDOG_PROBLEM)
        self._problem, self._tell_s = "starting", 0.0
        self._warn_s = math.inf
        self._stands: Callable[[bool], None] = lambda _stopped: None
        self._starting = False  # a person asked for the controller
        self._dry_run = "stop" if params["dry_run"] and self._start else ""  # what it tries next
        if params["tells_stopped"]:
            topic = publisher(shell.node, topics.CONTROLLER_STOPPED)
            self._stands = lambda stopped: topic.publish(Bool(data=stopped))
            serve(shell.node, topics.CONTROLLER_RESUME, self._resume)
        self.tripped = self.stopped = False
        self.trips, self._silent = 0, ""
        events = SubscriptionEventCallbacks(liveliness=self._on_liveliness)
        self._listen("gate", topics.GATE_HEARTBEAT, events)
        if params["with_ik"]:
            self._listen("ik", topics.IK_HEARTBEAT)
        beats = [topics.GATE_HEARTBEAT] + [topics.IK_HEARTBEAT] * params["with_ik"]
        self._census = Census(shell.node, (), beats)  # one that is started again may beat on

    def _listen(
        self, who: str, topic: topics.Topic, events: SubscriptionEventCallbacks | None = None
    ) -> None:
        """Listen to the heartbeat of one whose silence stops the controller."""
        params, beats = self._shell.params, self._shell.diagnostics.source(topic.name)
        silence = Silence(params["silence_s"], time.monotonic(), params["grace_s"])
        self._silences[who] = silence

        def on_beat(_: UInt64) -> None:
            wall_s = time.monotonic()
            silence.heard(wall_s)
            beats.saw(wall_s)

        subscribe(self._shell.node, topic, on_beat, events)

    def _on_liveliness(self, event: QoSLivelinessChangedInfo) -> None:
        """Show what DDS says about the gate; only the age of the heartbeat decides."""
        self._shell.diagnostics.set("gate_alive_witness", event.alive_count)

    def tick(self) -> None:
        """Look at the age; keep calling stop while it is due."""
        wall_s = time.monotonic()
        looked = [(silence.too_long_s(wall_s), who) for who, silence in self._silences.items()]
        silent_s, who = max(looked)
        rivals = self._census.rivals()
        if silent_s or rivals:
            self._trip(who, f"{who} silent for {silent_s * 1e3:.0f} ms" if silent_s else rivals)
        else:
            if self.tripped:
                who = self._silent
                log.warning("the %s is back; the controller stays stopped until resumed", who)
                self._stop.forget()
                self.tripped = self.stopped = False
                self._shell.diagnostics.warn("")
            self._try_chain()
            self._start_controller()
        self._tell()

    def _trip(self, who: str, why: str) -> None:
        """Somebody is silent, or has a rival: stop the controller until one call has succeeded."""
        self._starting = False
        if not self.tripped:
            self._stands(True)  # now: the call may be carried out although its answer is lost
            self.tripped, self._silent = True, who
            self.trips += 1
            text = f"{why}: stopping the controller"
            log.error("%s", text)
            self._shell.diagnostics.warn(text)
            self._shell.diagnostics.set("trips", self.trips)
        if not self.stopped:
            response = self._stop.poll()
            if response is not None and Caller.succeeded(response):
                self.stopped = True
                log.warning("controller stopped: %s", getattr(response, "message", "deactivated"))

    def _try_chain(self) -> None:
        """One dry run of stop and start, while the gate lets nobody move the arm."""
        if not self._dry_run or self._start is None or self._gate_armed():
            return
        caller = self._stop if self._dry_run == "stop" else self._start
        response = caller.poll()
        if response is not None and Caller.succeeded(response):
            self._dry_run = "start" if self._dry_run == "stop" else ""
            if not self._dry_run:
                self._stands(False)  # not before: a watchdog that was restarted cannot know
                log.info("dry run: the controller was stopped and started")

    def _gate_armed(self) -> bool:
        """Whether somebody may move the arm, at the next command; also while nobody has told."""
        msg = self._gate.read()
        try:
            return msg is None or Mode(wire.decode_report(msg.data).mode).is_armed
        except (LinkError, ValueError):
            return True

    def _resume(self) -> str:
        """Answer of `controller/resume`: a person wants the controller to go on."""
        if self.tripped:
            why = self._census.rivals() or f"the {self._silent} is silent"
            raise LinkError(f"{why}: the controller stays stopped")
        if self._start is None:
            self._stands(False)
            return "noted: you have started the controller"
        self._starting = True
        return f"calling {self._start.name}"

    def _start_controller(self) -> None:
        """Call the start service, when a person asked for it, until one call has succeeded."""
        if not self._starting or self._start is None:
            return
        response = self._start.poll()
        if response is not None and Caller.succeeded(response):
            self._starting = False
            self._stands(False)
            log.info("controller started: %s", getattr(response, "message", "activated"))

    def _tell(self) -> None:
        """Tell why the controller could not be stopped now; a change is told at once."""
        problem = self._why_not()
        wall_s = time.monotonic()
        if problem == self._problem and wall_s < self._tell_s:
            return
        if problem != self._problem:
            self._warn_s = wall_s + LASTS_S if problem else math.inf
        if wall_s >= self._warn_s:
            log.warning("%s", explained("nothing may move", f"watchdog: {problem}"))
            self._warn_s = math.inf
        self._problem, self._tell_s = problem, wall_s + TELL_S
        self._problems.publish(convert.text_to(problem))

    def _why_not(self) -> str:
        if not self._stop.is_served:
            return f"nobody serves {self._stop.name}, so nobody can stop the arm"
        if self._dry_run and self._start is not None:
            service = (self._stop if self._dry_run == "stop" else self._start).name
            return f"the dry run waits for {service} to {self._dry_run} the controller"
        return ""


def _chain(shell: Shell) -> tuple[Caller, Caller | None]:
    """What stops the controller and what starts it again: its manager's switch, or two Triggers."""
    params, node = shell.params, shell.node
    if params["manager"]:
        from robot_rl.ros.controllers import switch  # a vendor's messages

        manager, names, retry_s = params["manager"], params["controllers"], params["retry_s"]
        stop = switch(node, manager, off=names, timeout_s=retry_s)
        return stop, switch(node, manager, on=names[:1], timeout_s=retry_s)
    stop = Caller(node, params["stop_service"], params["retry_s"])
    start = params["start_service"]
    return stop, Caller(node, start, params["retry_s"]) if start else None


def run_watchdog(shell: Shell) -> None:
    """Look 100 times a second (wall time): a trip comes at most 10 ms after `silence_s`."""
    watchdog = Watchdog(shell)
    while shell.running:
        shell.spin(0.01)
        watchdog.tick()
