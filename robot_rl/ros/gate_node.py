"""The gate's process: the only publisher of `target_pose` (or `target_joints`, in a run of joint
actions) and `gripper/command`.

Every decision is a pure function of `robot_rl.safety.gate`; this shell feeds it (requests, operator
heartbeats, robot state, time) and carries out its verdicts. It drains everything that has arrived
before it judges any age, so that waking late never looks like somebody else's silence. On SIGTERM
the last message it sends is a hold, if it sees the arm.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque

from std_msgs.msg import String, UInt64

from robot_rl.errors import LinkError, SafetyError
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.census import Census
from robot_rl.ros.endpoints import Newest, publisher, serve, subscribe
from robot_rl.ros.ports import Horizon
from robot_rl.ros.reader import StateReader
from robot_rl.ros.runtime import Shell
from robot_rl.safety import gate as rules
from robot_rl.safety.advice import explained
from robot_rl.safety.limits import Limits
from robot_rl.safety.states import Engagement, Mode
from robot_rl.system.jumps import JUMP_S, Jumps
from robot_rl.system.presence import Presence
from robot_rl.types import Command, Outcome, RobotState, Verdict

log = logging.getLogger(__name__)

WAKE_S = 0.01  # wall; the watchdogs run at >= 100 Hz, and at every /clock in simulation
RESEND_S = 0.05  # wall; a hold pose is sent again this often
BLIND_S = 0.5  # run time; an older state is told as none (`gate/state`: blind)
AHEAD_S = 0.1  # run time; a reading of the person's device from further ahead has a wrong stamp
GIVEN_S = 0.01  # run time; a simulated clock goes on by this much without us: then we judge again
AGAIN_S = 0.2  # wall; a simulated clock that has not moved meanwhile is told its horizon again
LASTS_S = 3.0  # wall; a refusal that lasts longer is none of a start, and is logged
AFTER_HALT_S = 0.2  # run time; clocks differ by a few ticks: an ask stamped in it may be older
MAX_WAITING = 50  # requests kept between two wake-ups
GONE = "driver: its process has ended"


class GateNode:
    """State of the gate's process: one `GateState`, one reader, the two command topics."""

    def __init__(self, shell: Shell, limits: Limits, reader: StateReader) -> None:
        self.shell, self.limits, self.params = shell, limits, shell.params
        self.gate = rules.initial(limits, doubts=True)
        self.rejected = 0
        node = shell.node
        self._reader = reader
        self._joy = Newest(node, topics.OPERATOR_JOY, wakes=True)
        self._stopped = Newest(node, topics.CONTROLLER_STOPPED, "changes", wakes=True)
        self._watchdog = Newest(node, topics.WATCHDOG_PROBLEM)
        needs_arm = self.params["needs_arm"]
        self._arm_node = Newest(node, topics.ARM_PROBLEM, "changes") if needs_arm else None
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING)
        self._target_topic = topics.TARGET_JOINTS if limits.joint_arm else topics.TARGET_POSE
        self._target = publisher(node, self._target_topic)
        self._gripper = publisher(node, topics.GRIPPER_COMMAND)
        self._answers = publisher(node, topics.GATE_VERDICT)
        self._reports = publisher(node, topics.GATE_STATE)
        self._beats = publisher(node, topics.GATE_HEARTBEAT)
        subscribe(node, topics.GATE_REQUEST, self._on_request)
        serve(node, topics.GATE_HOLD, self._hold_for_a_person)
        serve(node, topics.GATE_RESUME, self._resume)
        serve(node, topics.GATE_STOP, self._stop_for_a_person)
        serve(node, topics.GATE_ACKNOWLEDGE, self._acknowledge)
        serve(node, topics.GATE_CLEAR, self._clear)
        self._horizon = Horizon(shell) if shell.is_simulated else None
        self._jumps = Jumps(shell.now_s, None if shell.is_simulated else time.monotonic)
        self._census = self._single_publishers()
        self._given_s = self._give_s = 0.0
        self._count = 0
        self._halted_s = -math.inf
        self._beat_s = self._report_s = self._resend_s = 0.0
        self._told: tuple[Mode, str, str, str, str] | None = None
        self._refusal = ""  # why whoever asked last may not drive
        self._warn_s = math.inf
        self._blind = "no state yet"  # why there is no fresh state of the arm
        self._waits = ""  # "person" | "device": nothing arms until a person lets it go on
        self._presses = 0  # of hold and stop, of which something is left
        self._held: Verdict | None = None
        self._rivals = ""
        self._driver = Presence()  # of the process that armed last
        self._stood = False  # somebody else than this gate moved the arm, or nobody could
        self._stands = False  # the controller, now
        self._was_stopped, self._was_problem = False, ""  # since the last turn, and perhaps over

    def _single_publishers(self) -> Census:
        """Who must be alone: this gate, the driver, and whoever's word lets the arm go on."""
        single = [self._target_topic, topics.GRIPPER_COMMAND, *self._reader.topics]
        single += [topics.CLOCK] if self.shell.is_simulated else []
        heard = [topics.GATE_HEARTBEAT, topics.OPERATOR_JOY, topics.WATCHDOG_PROBLEM]
        heard += [topics.ARM_PROBLEM] if self._arm_node is not None else []
        return Census(self.shell.node, single, heard)

    def _log_what_changed(self) -> None:
        """Log mode and reason; what a person has to do something about reaches the terminal."""
        gate = self.gate
        if gate.mode is Mode.PROTECTIVE_STOP or self._waits:
            stopped = gate.mode is Mode.PROTECTIVE_STOP
            reason = gate.reason or "until a person lets it go on"
            what = "protective stop" if stopped else "holding"
            log.warning("%s", explained(what, reason, stopped=stopped))
        else:
            log.info("%s%s", gate.mode.value, f" ({gate.reason})" if gate.reason else "")

    def _refuse(self, refusal: str) -> None:
        """Remember why whoever asked may not drive; one that lasts reaches the terminal, once."""
        wall_s = time.monotonic()
        if refusal != self._refusal:
            self._refusal, self._warn_s = refusal, wall_s + LASTS_S if refusal else math.inf
        if wall_s >= self._warn_s and not self._waits:
            self._warn_s = math.inf
            log.warning("%s", explained("nobody may drive", refusal))

    # --- what arrives ----------------------------------------------------------------------------

    def _on_request(self, msg: String) -> None:
        self._waiting.append(msg.data)

    def _acknowledge(self, *, by_person: bool = True) -> str:
        if self._controller_stands():
            raise LinkError("not acknowledged: the controller is stopped; resume it first")
        if problem := self._not_ready():
            raise LinkError(f"not acknowledged: {problem}"[: wire.MAX_TEXT])
        self.gate, refusal = rules.acknowledge(self.gate, by_person=by_person)
        if refusal:
            raise LinkError(f"not acknowledged: {refusal}")
        self._forget_presses()
        return self._halt(self.gate)

    def _clear(self) -> str:
        """What a script may undo: its own vanishing, and a stop that no person has caused.

        Decided here and not by the script: a person may press while its call is under way.
        """
        if self.gate.mode is Mode.PROTECTIVE_STOP:
            return self._acknowledge(by_person=False)
        if self._waits != "device":
            raise LinkError(f"not cleared: it waits for {self._waits or 'nobody'}")
        return self._resume()

    def _hold_for_a_person(self) -> str:
        self._waits, self._presses = "person", self._presses + 1
        return self._halt(rules.hold(self.gate, "person: hold"))

    def _stop_for_a_person(self) -> str:
        self._presses += 1
        return self._halt(rules.stop(self.gate, "person: stop"))

    def _resume(self) -> str:
        self._waits = ""
        self._forget_presses()
        return f"{self.gate.mode.value}: whoever asks next may arm"

    def _forget_presses(self) -> None:
        """Once nothing is left of them: until then one more press has to be told (`_reason`)."""
        if not self._waits and self.gate.mode is not Mode.PROTECTIVE_STOP:
            self._presses = 0

    def _halt(self, gate: rules.GateState) -> str:
        self.gate, self._halted_s = gate, self.shell.now_s()
        self._refusal, self._warn_s = "", math.inf
        self._waiting.clear()  # requests from before a person's decision are dropped
        return f"{gate.mode.value}: {gate.reason}"

    def _read_joy(self, now_s: float) -> None:
        """Heartbeats of the person's device, at the time they were made.

        Each is judged by its own age, never by the stamps before it: one wrong stamp costs one
        heartbeat, and a clock that was set costs those that were under way.
        """
        for msg in self._joy.arrived():
            stamp_s = convert.from_stamp(msg.header.stamp)
            if stamp_s > now_s + AHEAD_S:
                ahead = f"{topics.OPERATOR_JOY.name} is stamped {stamp_s - now_s:.1f} s ahead"
                self.shell.diagnostics.error(f"{ahead}: ignored; look at the clocks")
            elif len(msg.buttons) > 0:
                self.gate = rules.heartbeat(self.gate, min(stamp_s, now_s), bool(msg.buttons[0]))

    # --- what goes out ---------------------------------------------------------------------------

    def _send(self, command: Command) -> None:
        now_s, joints_rad = self.shell.now_s(), command.joint_target_rad
        if joints_rad is None:
            frame = self.params["base_frame"]
            target = convert.pose_to(command.tcp_target_in_base, now_s, frame)
        else:
            target = convert.joints_to(self.params["joint_names"], joints_rad.tolist(), (), now_s)
        self._target.publish(target)
        if command.gripper_width_m is not None:
            self._gripper.publish(convert.gripper_to(command.gripper_width_m))

    def _answer(self, answer: Verdict | wire.ArmAnswer) -> None:
        self._answers.publish(convert.text_to(wire.encode_answer(answer)))

    def _beat(self) -> None:
        wall_s = time.monotonic()
        if wall_s >= self._beat_s:
            self._count += 1
            self._beats.publish(UInt64(data=self._count))
            self._beat_s = wall_s + 1.0 / self.params["heartbeat_hz"]

    def _report(self) -> None:
        """Publish the latched gate/state: at once on a change, else now and then."""
        wall_s = time.monotonic()
        shown = self.gate.mode, self._reason(), self.gate.lease, self._waits, self._refusal
        if shown == self._told and wall_s < self._report_s:
            return
        if self._told is None or shown[:-1] != self._told[:-1]:
            self._log_what_changed()
        self._told, self._report_s = shown, wall_s + 1.0 / self.params["report_hz"]
        stamp_s = max(self.shell.now_s(), 0.0)
        report = wire.GateReport(
            shown[0].value,
            shown[1],
            shown[2],
            stamp_s,
            self.rejected,
            self._waits,
            self._blind,
            self._refusal,
        )
        self._reports.publish(convert.text_to(wire.encode_report(report)))
        self.shell.diagnostics.set("mode", shown[0].value)
        self.shell.diagnostics.set("reason", shown[1])
        self.shell.diagnostics.set("rejected_requests", self.rejected)

    def _reason(self) -> str:
        """The gate's reason, and what has come since without changing it.

        Whoever moves the arm instead of this gate (`arm/home`) has to hear of it.
        """
        reason = self.gate.reason
        more = f"; a person pressed {self._presses} times" if self._presses > 1 else ""
        if self._stands and not reason.startswith("controller"):
            more += "; controller: stopped"
        return reason[: wire.MAX_TEXT - len(more)] + more

    # --- one turn --------------------------------------------------------------------------------

    def turn(self) -> None:
        """After a drain: read, judge what waits, run the watchdogs, report."""
        self._read_joy(self._look_at_the_clock())  # first: a person's hand counts before requests
        self._watchdog.read()  # now, so that its silence is its own and not ours
        state = self._reader.read()
        now_s = self._now_s(state)
        self._blind = self._why_blind(state, now_s)
        if self._check_rivals():
            state = None  # it may be somebody else's: the pose to hold stays
        self._stands = self._controller_stands()
        if self._stands or self._was_stopped:  # when it goes on, nothing moves unasked
            self.gate = rules.stand(self.limits, self.gate, state, now_s)
            self._stood, self._was_stopped = True, False
        elif problem := self._not_ready() or self._was_problem:
            self._was_problem = ""
            if self.gate.mode.is_armed:
                self.gate = rules.stop(self.gate, problem)
            self.gate = rules.follow(self.limits, self.gate, state, now_s)
            self._stood = True
        elif self._stood:  # the arm may have moved since the last turn
            self.gate = rules.follow(self.limits, self.gate, state, now_s)
            self._stood = not self._sees(now_s)
        while self._waiting:
            self._handle(self._waiting.popleft(), state, now_s)
        if self.gate.mode.is_armed and self._driver.gone():  # sooner than its silence tells
            self.gate = rules.hold(self.gate, GONE)
        self.gate, held = rules.tick(self.limits, self.gate, state, now_s)
        if self.gate.engagement is Engagement.SILENT:
            self._waits = (
                self._waits or "device"
            )  # whoever drove has vanished: nothing goes on by itself
        self._hold(held, now_s)
        self._beat()
        self._report()
        self._give()

    def _give(self) -> None:
        """Let a simulated clock go on: all that had arrived is judged."""
        if self._horizon is None:
            return
        now_s, wall_s = self.shell.now_s(), time.monotonic()
        if now_s != self._given_s or wall_s >= self._give_s:
            self._horizon.tell("gate", now_s + GIVEN_S)
            self._given_s, self._give_s = now_s, wall_s + AGAIN_S

    def _now_s(self, state: RobotState | None) -> float:
        """Run time. In simulation states and /clock have one source, so a state that is ahead of
        the clock (we were not scheduled between reading the two) tells the time; it is no fault."""
        now_s = self._look_at_the_clock()
        if state is not None and self.shell.is_simulated and 0.0 < state.stamp_s - now_s < JUMP_S:
            return state.stamp_s
        return now_s

    def _look_at_the_clock(self) -> float:
        """Run time. A clock that was set tells no ages, and a simulated one that leaps means a
        restarted robot: whoever drove must look first. Nothing is compared with stamps of before.
        """
        now_s, set_s = self._jumps.look()
        if set_s:
            log.warning("the clock jumped by %.2f s", set_s)
            self.gate = rules.stop(self.gate, f"clock: jumped by {set_s:.2f} s")
            self._waiting.clear()
            self._halted_s = now_s
        return now_s

    def _check_rivals(self) -> bool:
        """Stop if somebody else publishes commands, or what the gate judges them by.

        The controller would ignore everything; a second state (a recording that is played back)
        would be measured against instead of the arm, and held at.
        """
        self._rivals = self._census.rivals()[: wire.MAX_TEXT]
        self.shell.diagnostics.warn(self._rivals)
        if self._rivals and self.gate.mode.is_armed:
            self.gate = rules.stop(self.gate, self._rivals)
        return bool(self._rivals)

    def _controller_stands(self) -> bool:
        """Whether the controller was stopped and ignores commands.

        One that was started again before this gate looked (it was frozen) is remembered.
        """
        for stopped in self._stopped.arrived():
            self._was_stopped |= bool(stopped.data)
        return self._stopped.value is not None and bool(self._stopped.value.data)

    def _not_ready(self) -> str:
        """Why the driver would not move the arm; "" when it would, or when nobody is asked."""
        if self._arm_node is None:
            return ""
        for told in (t for t in self._arm_node.arrived() if t.data):
            self._was_problem = f"arm: {told.data}"[: wire.MAX_TEXT]
        problem = self._arm_node.value
        if problem is None or self._arm_node.silent_s > self.params["watchdog_age_s"]:
            return "arm: the arm node is silent"
        return f"arm: {problem.data}"[: wire.MAX_TEXT] if problem.data else ""

    def _why_blind(self, state: RobotState | None, now_s: float) -> str:
        """Why there is no fresh state of the arm; "" when there is one."""
        if state is not None and abs(now_s - state.stamp_s) < BLIND_S:
            return ""
        why = self._reader.why_not()
        return (why or "the stamps of its parts do not fit together, or are old")[: wire.MAX_TEXT]

    def _unwatched(self) -> str:
        """Why nobody would stop the controller if this process died; "" when somebody would."""
        problem = self._watchdog.value
        if problem is None or self._watchdog.silent_s > self.params["watchdog_age_s"]:
            return "watchdog: silent; nothing moves unwatched"
        return f"watchdog: {problem.data}" if problem.data else ""

    def _handle(self, text: str, state: RobotState | None, now_s: float) -> None:
        """Handle one request: arm, or judge and send. A malformed one is counted and dropped."""
        try:
            request = wire.decode_request(text)
        except LinkError as error:
            self.rejected += 1
            self.shell.diagnostics.error(str(error))
            return
        if isinstance(request, wire.ArmRequest):
            self._arm(request, state, now_s)
            return
        try:
            self.gate, verdict = rules.judge(self.limits, self.gate, request, state, now_s)
        except SafetyError as error:  # no trustworthy pose to hold yet: nothing can be sent
            self.rejected += 1
            self.shell.diagnostics.error(str(error))
            return
        if verdict.outcome is not Outcome.HOLD:
            self._send(verdict.command)
        self._answer(verdict)

    def _arm(self, request: wire.ArmRequest, state: RobotState | None, now_s: float) -> None:
        refusal = self._rivals
        if abs(now_s - request.stamp_s) > self.limits.command_timeout_s:
            refusal = "age"
        elif request.stamp_s <= self._halted_s + AFTER_HALT_S:  # a person's hold is newer
            refusal = "age: asked before the last stop"
        elif self._waits:
            refusal = "person: a person holds; gate/resume lets it go on"
        unwatched = self._unwatched()
        refusal = refusal or unwatched or self._not_ready()
        if not refusal:
            self.gate, refusal = rules.arm(self.limits, self.gate, request.lease, state, now_s)
            if not refusal:
                self._driver.watch(request.process)
        elif refusal == unwatched and self.gate.mode is Mode.PAUSE:
            # a watchdog that was started again makes its dry run once nobody is armed
            self.gate = rules.hold(self.gate, refusal)
        if refusal.startswith("state:") and (why := self._reader.why_not()):
            refusal = f"state: {why}"[: wire.MAX_TEXT]
        self._refuse(refusal)
        self._answer(wire.ArmAnswer(request.lease, not refusal, refusal))

    def _sees(self, now_s: float) -> bool:
        """Whether the arm is seen now, where it is believed to be."""
        seen, timeout_s = self.gate.seen, self.limits.state_timeout_s
        fresh = seen is not None and abs(now_s - seen.stamp_s) <= timeout_s
        return fresh and self.gate.odd is None

    def _hold(self, held: Verdict | None, now_s: float) -> None:
        """Send the hold pose when it is new, and again now and then while the arm is seen.

        Unseen it may be elsewhere: the controller keeps what it was sent, and one that is started
        again, perhaps with its driver, must not find an old pose.
        """
        wall_s = time.monotonic()
        again = wall_s >= self._resend_s and self._sees(now_s)
        if held is not None and (self._held is None or again):
            self._send(held.command)
            self._resend_s = wall_s + RESEND_S
        self._held = held

    def last_hold(self) -> None:
        """Hold before the process ends, wherever the robot is."""
        self.gate = rules.hold(self.gate, "gate: shutting down")
        state = None if self._rivals else self._reader.read()
        now_s = self._now_s(state)
        self.gate, held = rules.tick(self.limits, self.gate, state, now_s)
        self._resend_s = 0.0
        self._hold(held, now_s)
        self._report()


def run_gate(shell: Shell, limits: Limits, reader: StateReader) -> None:
    """Judge commands until the node is told to end; the last thing it sends is a hold."""
    gate = GateNode(shell, limits, reader)
    while shell.running:
        shell.spin(WAKE_S)
        gate.turn()
    gate.last_hold()
    time.sleep(0.05)  # reliable delivery needs the writer alive for a moment
