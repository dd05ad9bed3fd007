"""The person's device as a node: `operator/joy` at 50 Hz of run time, driving or not.

The device is what `operator=...` names (`operate.devices`). If it falls silent while it is held,
that is passed on as silence, not as a release, so that the gate holds. With `unattended` the
scripted person also does what a person at a stopped robot does: look, acknowledge, resume; but
where a real one has the device, that is left to them. Simulation only.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from std_msgs.msg import Bool

from robot_rl.errors import LinkError
from robot_rl.operate.devices import make_operator
from robot_rl.ports import HandDevice, InputDevice, OperatorInput, Task
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Caller, Newest, publisher
from robot_rl.ros.ports import RosClock
from robot_rl.ros.reader import StateReader
from robot_rl.ros.runtime import Shell
from robot_rl.safety.states import Mode
from robot_rl.system.clock import next_tick_s
from robot_rl.system.jumps import JUMP_S

log = logging.getLogger(__name__)

LOOK_S = 0.1  # run time; how often the person looks at the gate's lamp
CALL_S = 1.0  # wall; an unanswered service call is given up
RELEASE_S, AGAIN_S = 0.2, 0.5  # run time; for how long the person lets go, and how often
NEWS_S, MOST_S = 0.001, 0.02  # wall; how long to wait at a time for news of a device
SET_S = 0.1  # run time; a reading's moment moves by more than this only when the clock is set
GATE_ALIVE_S = 0.5  # wall; the gate is alive while its heartbeat is no older than this


class Person:
    """Watches the gate and the controller; acknowledges and resumes after `acknowledge_s`."""

    def __init__(self, shell: Shell) -> None:
        self._shell, node = shell, shell.node
        self._wait_s = shell.params["acknowledge_s"]
        self._state = Newest(node, topics.GATE_STATE)
        self._beats = Newest(node, topics.GATE_HEARTBEAT)
        self._stopped = Newest(node, topics.CONTROLLER_STOPPED)
        self._resume = Caller(node, topics.CONTROLLER_RESUME.name, CALL_S)
        self._clear = Caller(node, topics.GATE_CLEAR.name, CALL_S)  # it refuses what is a person's
        self._since_s: dict[str, float] = {}
        self._look_s = 0.0
        self.hands_off = False

    def read(self, *, attended: bool) -> None:
        """At most every `LOOK_S`: read the lamps and act on what has been lit long enough.

        attended: a real person has the device. They are told what to press, and nothing moves
        before they do.
        """
        now_s = self._shell.now_s()
        if now_s < self._look_s:
            return
        self._look_s = now_s + LOOK_S
        report = self._report()
        mode, reason = (report.mode, report.reason) if report is not None else ("", "")
        stop = mode == Mode.PROTECTIVE_STOP.value
        silent = reason.startswith("operator_silent")
        # a person lets go of a device that the gate has given up on, then presses it again
        since_s = self._since("silent", silent)
        lets_go = since_s is not None and since_s % AGAIN_S < RELEASE_S
        self.hands_off = (stop or lets_go) and not attended
        self._beats.read()
        acts = self._beats.silent_s < GATE_ALIVE_S and not attended
        if self._lit("waits", acts and report is not None and report.waits == "device"):
            self._try(self._clear, "clear")  # only the scripted device had vanished
        stopped = self._stopped.read()
        theirs = reason.startswith("person")  # the person who stopped the robot lets it go on
        stands = stopped is not None and bool(stopped.data)
        if self._lit("controller", stands and acts):
            self._try(self._resume, "resume")
        if self._lit("gate", stop and acts and not theirs and not stands):
            self._try(self._clear, "clear")

    def _report(self) -> wire.GateReport | None:
        msg = self._state.read()
        try:
            return wire.decode_report(msg.data) if msg is not None else None
        except LinkError:
            return None

    def _since(self, lamp: str, lit: bool) -> float | None:
        """Seconds that a lamp has been lit, None when it is not."""
        if not lit:
            self._since_s.pop(lamp, None)
            return None
        return self._shell.now_s() - self._since_s.setdefault(lamp, self._shell.now_s())

    def _lit(self, lamp: str, lit: bool) -> bool:
        since_s = self._since(lamp, lit)
        return since_s is not None and since_s >= self._wait_s

    def _try(self, caller: Caller, verb: str) -> None:
        response = caller.poll()
        if response is not None:
            log.info("%s: %s", verb, response.message.splitlines()[0] if response.message else "")


class OperatorNode:
    """Polls the device and publishes its heartbeat."""

    def __init__(self, shell: Shell, task: Task, device: InputDevice, reader: StateReader) -> None:
        self._shell, self._device = shell, device
        self._hand = device if isinstance(device, HandDevice) else None
        self._reader = reader
        self._episodes = Newest(shell.node, topics.OPERATOR_EPISODE)
        self._joy = publisher(shell.node, topics.OPERATOR_JOY)
        self._person = Person(shell) if shell.params["unattended"] else None
        self._still = np.zeros(task.spec.pose_action.size, np.float32)
        self._call = wire.EpisodeCall(0, 0, "", active=False)
        self._problems = publisher(shell.node, topics.OPERATOR_PROBLEM)
        self._problem: str | None = None  # as it was told last
        self._presence = publisher(shell.node, topics.OPERATOR_PRESENT)
        self._present: bool | None = None  # as it was told last
        self._clock = RosClock(shell, "operator")
        self._hold = Caller(shell.node, topics.GATE_HOLD.name, CALL_S)
        self._heard_s = 0.0  # stamp of the reading that was last passed on
        self._made_s = 0.0  # when it was made, as it was passed on
        self._driving = False  # whether that reading drove

    def _listen(self) -> None:
        """Follow the actor: a new episode is being prepared, or begins."""
        for msg in self._episodes.arrived():
            try:
                self._call = wire.decode_episode(msg.data)
            except LinkError as error:
                self._shell.diagnostics.error(str(error))
                continue
            if self._call.active:
                self._device.begin_episode(self._call.seed, self._call.purpose)

    def turn(self) -> None:
        """Poll and publish once."""
        self._listen()
        if self._person is not None:
            self._person.read(attended=self._hand is not None and self._hand.present)
        state = self._reader.read()
        away = self._person is not None and self._person.hands_off
        value, age_s, again = OperatorInput(False, self._still), 0.0, False
        said = self._device.poll(state) if state is not None else value
        if self._hand is not None and "hold" in self._hand.held:
            self._hold.poll()  # the pad's own button; in a reset, too, and repeated while held
        if state is not None and self._call.active and not away:
            value = said
            older_s = self._heard_s - value.stamp_s  # much older: the clock was set back
            if self._driving and not value.driving and 0.0 <= older_s < JUMP_S:
                return  # nobody let go: the device is gone
            again = value.stamp_s == self._heard_s
            self._heard_s, age_s = value.stamp_s, max(state.stamp_s - value.stamp_s, 0.0)
        self._tell()
        self._driving = value.driving
        made_s = self._clock.now_s() - age_s
        # One reading is of one moment, however old the state is beside which it is seen again:
        # told a few milliseconds older, it would make the gate hold before its time.
        if not (again and abs(made_s - self._made_s) < SET_S):
            self._made_s = made_s
        self._joy.publish(convert.joy_to(replace(value, stamp_s=self._made_s), self._call.call))

    def _tell(self) -> None:
        """Publish why the device does not drive, and whether a person is at the device."""
        present = self._hand is not None and self._hand.present
        if present != self._present:
            self._present = present
            self._presence.publish(Bool(data=present))
        problem = self._hand.problem if self._hand is not None else ""
        if problem != self._problem:
            self._problem = problem
            self._problems.publish(convert.text_to(problem))

    def run(self) -> None:
        """Take turns at absolute deadlines of the run's clock, never a burst after a stall."""
        period_s = 1.0 / self._shell.params["rate_hz"]
        next_s = self._clock.now_s()
        while self._shell.running:
            try:
                self.turn()
            except Exception as error:  # no heartbeat this turn: the gate sees a silent device
                self._shell.diagnostics.error(f"{type(error).__name__}: {error}")
                log.exception("the input device failed")
            next_s = next_tick_s(next_s, period_s, self._clock.now_s())
            if self._pause(next_s):  # news is passed on at once; the next period starts there
                next_s = self._clock.now_s()

    def _pause(self, until_s: float) -> bool:
        """Sleep to a deadline of the run's clock; True when the device has news before it."""
        if self._hand is None:
            self._clock.sleep_until_s(until_s)
            return False
        self._clock.give_until_s(until_s)
        while self._shell.running and not self._clock.has_reached(until_s):
            # simulated time keeps to wall time while somebody has the device, and hurries without
            hurries = self._clock.is_simulated and not self._hand.present
            rest_s = min(max(until_s - self._clock.now_s(), NEWS_S), MOST_S)
            if self._hand.wait(0.0 if hurries else rest_s):
                return True
            if hurries:
                self._clock.doze(NEWS_S)
        return False


def run_operator(shell: Shell, operator: object, task: Task, reader: StateReader) -> None:
    """Poll the device that `operator` (a config of that group) opens: in the main thread, with the
    executor beside it."""
    node = OperatorNode(shell, task, make_operator(operator, task, shell.node), reader)
    shell.spin_in_background()
    node.run()
