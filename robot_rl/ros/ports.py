"""The core's ports over ROS 2: robot, gate, operator, camera, clock, reset. Used by the actor.

The control loop runs in the main thread and polls (`endpoints.Newest`); one executor thread keeps
the clock, parameters and diagnostics going. Nothing here blocks a control tick.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from rcl_interfaces.srv import SetParameters
from rclpy.client import Client
from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.parameter import Parameter
from std_msgs.msg import Header
from std_srvs.srv import Trigger

from robot_rl.errors import LinkError, RobotRLError
from robot_rl.ports import OperatorInput, ResetPlan
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Newest, publisher, serve
from robot_rl.ros.reader import StateReader
from robot_rl.ros.runtime import Shell
from robot_rl.safety.advice import asked
from robot_rl.system.jumps import Jumps
from robot_rl.system.presence import own_process
from robot_rl.types import Command, EpisodeStart, Outcome, RobotState, Verdict

log = logging.getLogger(__name__)

CLOCK_SLACK_S = 1e-6  # /clock comes in steps: a deadline must not be missed by a rounding error
READY_S = 0.001  # wall; whoever is not ready yet (`RosClock.wait_for`) is asked this often
AGAIN_S = 0.2  # wall; a clock that has not moved meanwhile is told once more
LET_GO_S = 0.02  # run time that we let pass at a time while we wait for others
DOZE_S = 0.2  # wall; a sleeper looks this often whether the run ends, or the clock was set
ASK_S = 0.1  # wall; while we wait for a person, we check this often whether the run ends
TELL_S = 5.0  # wall; a question that stands for longer reaches the terminal
JUDGE_S = 1.0  # wall; an older word on task/success may be about another moment
KEPT_VERDICTS = 64  # newest answers kept, also those that nobody asks for


class Horizon:
    """Tells the simulator until when its clock may go on without us (`robot_rl.ros.release`)."""

    def __init__(self, shell: Shell) -> None:
        self._topic = publisher(shell.node, topics.CLOCK_HORIZON)

    def tell(self, who: str, until_s: float) -> None:
        """Tell that `who` has done all there is to do before `until_s` of run time."""
        self._topic.publish(Header(stamp=convert.to_stamp(until_s), frame_id=who))


class RosClock:
    """`ports.Clock` on the node's clock: /clock with use_sim_time, else ROS system time.

    While /clock stands still (simulator gone), so does `sleep_until_s`; it returns when time goes
    on, or when the process is asked to stop.

    Args:
        who: name by which a simulated clock waits for this process while it does not sleep.
    """

    def __init__(self, shell: Shell, who: str) -> None:
        self._shell = shell
        self._moved = threading.Condition()
        self._simulated = shell.is_simulated
        self._jumps = Jumps(self.now_s)
        self._waits: dict[str, Callable[[], bool]] = {who: lambda: True}
        self._at_work: dict[str, Callable[[], bool]] = {}
        if self._simulated:
            self._horizon = Horizon(shell)
            threshold = JumpThreshold(
                min_forward=Duration(nanoseconds=1), min_backward=Duration(nanoseconds=-1)
            )
            self._handle = shell.node.get_clock().create_jump_callback(
                threshold, post_callback=self._on_jump
            )

    def _on_jump(self, _: object) -> None:
        with self._moved:
            self._moved.notify_all()

    def now_s(self) -> float:
        """Seconds on the run's clock."""
        return self._shell.now_s()

    def give_until_s(self, deadline_s: float) -> None:
        """Let a simulated clock go on without us until then; `sleep_until_s` does this itself."""
        if self._simulated:
            self._give(deadline_s, self._waits)

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `done()` while run time passes; False after `timeout_s` of wall time."""
        give_up_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > give_up_s or not self._shell.running:
                return False
            self.give_until_s(self.now_s() + LET_GO_S)
            time.sleep(0.002)
        return True

    def _give(self, deadline_s: float, whom: Iterable[str]) -> list[str]:
        """Tell the horizon of those who are ready; returns who they are."""
        told = [who for who in whom if self._waits[who]()]
        for who in told:
            self._horizon.tell(who, deadline_s)
        return told

    @property
    def is_simulated(self) -> bool:
        """Whether /clock tells the time."""
        return self._simulated

    def doze(self, timeout_s: float) -> None:
        """Wait until a simulated clock moves, at most this long (wall time)."""
        if self._simulated:
            with self._moved:
                self._moved.wait(timeout_s)

    def has_reached(self, deadline_s: float) -> bool:
        """Whether the clock has reached `deadline_s`; stamps and deadlines are rounded apart.

        Also when the system's clock was set: then the deadline has lost its meaning.
        """
        now_s, set_s = (self.now_s(), 0.0) if self._simulated else self._jumps.look()
        if set_s:
            log.warning("the system's clock was set by %.2f s", set_s)
        return bool(set_s) or now_s >= deadline_s - CLOCK_SLACK_S

    def wait_for(
        self, who: str, ready: Callable[[], bool], at_work: Callable[[], bool] = lambda: False
    ) -> None:
        """Let a simulated clock go on, while we sleep, only when `ready` is true, too.

        who: the name under which the waiting is counted; our own, or that of somebody who cannot
        tell the clock. ready: asked in the thread that sleeps, every millisecond until it is true.
        at_work: asked in between: whether there was progress since, so that nobody gives `who` up.
        """
        before = self._waits.get(who, lambda: True)
        self._waits[who] = lambda: before() and ready()
        self._at_work[who] = at_work

    def sleep_until_s(self, deadline_s: float) -> None:
        """Sleep to an absolute deadline of the run's clock.

        A deadline that has passed is told, too: a simulated clock then waits until we catch up.
        A clock that is set while we sleep ends the sleep: the deadline has lost its meaning.
        """
        if not self._simulated:
            self._sleep(deadline_s)
            return
        if self.has_reached(deadline_s):
            self._give(deadline_s, self._waits)
        untold = list(self._waits)
        while self._shell.running:
            if deadline_s - self.now_s() <= CLOCK_SLACK_S:
                return
            told = self._give(deadline_s, untold or self._waits)
            untold = [who for who in untold if who not in told]
            for who in untold:
                if who in self._at_work and self._at_work[who]():
                    self._horizon.tell(who, self.now_s())
            with self._moved:
                if not self.has_reached(deadline_s):
                    self._moved.wait(READY_S if untold else AGAIN_S)

    def _sleep(self, deadline_s: float) -> None:
        """Sleep to a deadline of the system's clock, unless it is set meanwhile."""
        while self._shell.running and not self.has_reached(deadline_s):
            time.sleep(min(max(deadline_s - self.now_s(), 0.0), DOZE_S))

    def wait_started(self, timeout_s: float) -> None:
        """Wait for the first /clock. Raises `RobotRLError` when none comes."""
        deadline_s = time.monotonic() + timeout_s
        while self._shell.running and self.now_s() <= 0.0:
            if time.monotonic() > deadline_s:
                raise RobotRLError(
                    "no /clock",
                    expected=f"the simulator's clock within {timeout_s:.0f} s",
                    got="nothing",
                    fix="start the sim node, or set use_sim_time to false on a real robot",
                )
            time.sleep(0.02)


class RosPace:
    """What the simulator says of its clock; nothing on a real robot."""

    def __init__(self, shell: Shell) -> None:
        self._shell, self._newest = shell, Newest(shell.node, topics.CLOCK_PACE)

    def figures(self) -> dict[str, float]:
        """`clock/factor`, and of each: the share of wall time in which the clock waited for it,
        and whether it has given it up."""
        msg = self._newest.read()
        if msg is None:
            return {}
        try:
            pace = wire.decode_pace(msg.data)
        except LinkError as error:
            self._shell.diagnostics.error(str(error))
            return {}
        waited = {f"clock/waited_{who}": share for who, share in pace.waited.items()}
        given_up = pace.given_up.split(", ")
        gone = {f"clock/without_{who}": float(who in given_up) for who in pace.waited}
        return {"clock/factor": pace.factor} | waited | gone


class RosJudge:
    """What a program beside ours says of the task's success (`task/success`)."""

    def __init__(self, shell: Shell) -> None:
        self._newest = Newest(shell.node, topics.TASK_SUCCESS)

    def read(self) -> bool:
        """The newest word. Raises `RobotRLError` when there is none of the last second."""
        word = self._newest.read()
        if word is None or self._newest.silent_s > JUDGE_S:
            raise RobotRLError(
                "nobody says whether the task has succeeded",
                expected=f"std_msgs/Bool on {self._newest.topic.name} every {JUDGE_S / 2:g} s",
                got="nothing" if word is None else f"silence for {self._newest.silent_s:.1f} s",
                fix="start the program that judges; another topic's name: ros.remaps",
            )
        return bool(word.data)


class RosRobot:
    """`ports.RobotPort` from the state topics. Only the gate's process sends commands."""

    def __init__(self, reader: StateReader, judge: RosJudge | None = None) -> None:
        self._reader, self._judge = reader, judge

    def read(self) -> RobotState:
        """Newest consistent state. Raises `RobotRLError` before the first, or without a judge."""
        state = self._reader.read()
        if state is None:
            raise RobotRLError(
                "no robot state",
                expected="all state topics of the robot",
                got=self._reader.why_not() or "stamps that never agree",
                fix="start the robot driver (or the sim node); check namespace and remaps",
            )
        return replace(state, told_success=self._judge.read()) if self._judge else state

    def apply(self, command: Command) -> None:
        """Nothing to do: the gate has sent it already."""


class RosGate:
    """`ports.Gate` to the gate node: `request` publishes, `verdict` looks at what came back."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._requests = publisher(shell.node, topics.GATE_REQUEST)
        self._answers = Newest(shell.node, topics.GATE_VERDICT)
        self._verdicts: OrderedDict[int, Verdict] = OrderedDict()
        self._arm_answer: wire.ArmAnswer | None = None
        self._asked: tuple[int, float] | None = None  # newest request, and when (wall time)
        self._lease = self._refusal = ""
        self._process = own_process()
        self._reply_s = shell.params["reply_s"]

    @property
    def reason(self) -> str:
        """Why the gate refused to arm last, "" when it did not."""
        return self._refusal

    def arm(self, lease: str) -> bool:
        """Ask for the right to drive and wait for the answer, at most `reply_s`."""
        self._lease, self._arm_answer = lease, None
        self._verdicts.clear()
        give_up_s = time.monotonic() + self._reply_s
        again_s = 0.0
        while time.monotonic() < give_up_s and self._shell.running:
            if time.monotonic() >= again_s:  # asking twice is harmless, a lost message is not
                self._send(wire.ArmRequest(lease, self._shell.now_s(), self._process))
                again_s = time.monotonic() + 0.25
            self._collect()
            if self._arm_answer is not None:
                self._tell_refusal(self._arm_answer.reason)
                return self._arm_answer.granted
            time.sleep(0.002)
        self._tell_refusal(f"no answer within {self._reply_s} s")
        return False

    def _tell_refusal(self, reason: str) -> None:
        """Log why arming was refused, once per reason: callers ask again and again."""
        if reason and reason != self._refusal:
            log.warning("the gate refuses to arm: %s", reason)
        self._refusal = reason

    def request(self, command: Command, state: RobotState) -> Verdict | None:
        """Publish the request; the answer comes through `verdict`.

        A command that is not finite cannot be written as JSON: it is held here, nothing goes out,
        and the gate's own watchdog holds the robot when no good command follows.
        """
        try:
            self._send(command)
            self._asked = command.sequence, time.monotonic()
        except ValueError:
            log.error("a command that is not finite was not sent: %s", command)
            joints_rad = None if command.joint_target_rad is None else state.joint_position_rad
            held = replace(
                command,
                tcp_target_in_base=state.tcp_in_base,
                gripper_width_m=None,
                joint_target_rad=joints_rad,
            )
            reason = "finite: the driver sent a value that is not finite"
            return Verdict(command.sequence, Outcome.HOLD, reason, held, command.stamp_s)
        return None

    def verdict(self, sequence: int) -> Verdict | None:
        """The answer to request `sequence` if it has arrived."""
        self._collect()
        return self._verdicts.get(sequence)

    def has_answered(self) -> bool:
        """Whether the newest request is answered, or given up (the loop counts it as missed)."""
        if self._asked is None:
            return True
        sequence, asked_s = self._asked
        if self.verdict(sequence) is not None or time.monotonic() - asked_s > self._reply_s:
            self._asked = None
        return self._asked is None

    def _send(self, request: Command | wire.ArmRequest) -> None:
        self._requests.publish(convert.text_to(wire.encode_request(request)))

    def _collect(self) -> None:
        for msg in self._answers.arrived():
            try:
                answer = wire.decode_answer(msg.data)
            except LinkError as error:
                self._shell.diagnostics.error(str(error))
                continue
            if isinstance(answer, wire.ArmAnswer):
                if answer.lease == self._lease:
                    self._arm_answer = answer
            elif answer.command.lease == self._lease:
                self._verdicts[answer.sequence] = answer
                while len(self._verdicts) > KEPT_VERDICTS:
                    self._verdicts.popitem(last=False)


class RosOperator:
    """`ports.InputDevice` from `operator/joy`; a silent device counts as hands off."""

    def __init__(self, shell: Shell, clock: RosClock, action_size: int) -> None:
        self._shell, self._clock, self._action_size = shell, clock, action_size
        self._episodes = publisher(shell.node, topics.OPERATOR_EPISODE)
        self._joy = Newest(shell.node, topics.OPERATOR_JOY)
        self._still = np.zeros(action_size, np.float32)
        self._call = 0

    def announce(self, start: EpisodeStart) -> None:
        """Tell that an episode is being prepared: the person lets go until `begin_episode`."""
        self._tell(start.seed, start.purpose, active=False)

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Tell the operator node and wait (at most `reply_s`) until it has heard."""
        self._tell(seed, purpose, active=True)

    def _tell(self, seed: int, purpose: str, *, active: bool) -> None:
        self._call = (time.monotonic_ns() // 1000) & 0x7FFFFFFF  # fits a Joy button (int32)
        call = wire.EpisodeCall(self._call, seed, purpose, active)
        self._episodes.publish(convert.text_to(wire.encode_episode(call)))
        reply_s = self._shell.params["reply_s"]
        heard = self._clock.wait_until(lambda: self._newest()[1] == self._call, reply_s)
        if not heard and self._shell.running:
            log.warning("the operator node does not answer: nobody will correct the policy")

    def _newest(self) -> tuple[OperatorInput, int]:
        msg = self._joy.read()
        if msg is not None:
            try:
                return convert.joy_from(msg, self._action_size)
            except LinkError as error:
                self._shell.diagnostics.error(str(error))
        return OperatorInput(False, self._still), -1

    def poll(self, state: RobotState) -> OperatorInput:
        """The newest input; hands off when it is old or belongs to another episode."""
        value, call = self._newest()
        fresh = abs(self._shell.now_s() - value.stamp_s) <= self._shell.params["joy_age_s"]
        if call != self._call or not fresh:
            return OperatorInput(False, self._still, stamp_s=value.stamp_s)
        return value


class RosReset:
    """Lets the simulator put the objects where a plan says; on a real robot a person does it.

    The plan travels as the sim's parameter `reset_plan`, which refuses a bad plan with a reason;
    the Trigger `place_objects` then carries it out. The same two calls work from a shell. With
    `ask_reset` the arm waits, above the scene, until a person says `actor/ready`; where there is
    nothing to prepare, before the first start only.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell, self._reply_s = shell, shell.params["reply_s"]
        sim = shell.params["sim_name"]
        self._set: Client | None = None
        if sim:
            self._set = shell.node.create_client(SetParameters, f"{sim}/set_parameters")
            self._place = shell.node.create_client(Trigger, f"{sim}/place_objects")
        self._asks = publisher(shell.node, topics.ACTOR_ASKS)
        self._asks.publish(convert.text_to(""))
        self._question, self._answered = "", threading.Event()
        self._begun = False
        self._service = serve(shell.node, topics.ACTOR_READY, self._ready)

    def __call__(self, plan: ResetPlan) -> None:
        """Place the objects, or wait for the person who does.

        Raises:
            RobotRLError: the simulator refuses or is silent, or the node is told to end.
        """
        if self._set is not None:
            self._place_simulated(self._set, plan)
        if self._shell.params["ask_reset"] and (plan.ask != "" or not self._begun):
            self.ask(checklist(plan))
        self._begun = True

    def _place_simulated(self, client: Client, plan: ResetPlan) -> None:
        request = SetParameters.Request()
        text = wire.encode_plan(plan)
        request.parameters = [Parameter("reset_plan", value=text).to_parameter_msg()]
        result = self._call(client, request).results[0]
        if not result.successful:
            self._refused(result.reason)
        placed = self._call(self._place, Trigger.Request())
        if not placed.success:
            self._refused(placed.message)

    def ask(self, question: str) -> None:
        """Wait for the person's `actor/ready`, however long it takes; nothing moves meanwhile.

        Raises:
            RobotRLError: the node is told to end.
        """
        self._answered.clear()
        self._question = question
        self._asks.publish(convert.text_to(question))
        tell_s = time.monotonic() + TELL_S
        try:
            while not self._answered.wait(ASK_S):
                if not self._shell.running:
                    raise RobotRLError("the run was ended while it waited for a person")
                if time.monotonic() > tell_s:
                    log.warning("%s", asked(question))
                    tell_s = math.inf
        finally:
            self._question = ""
            self._asks.publish(convert.text_to(""))

    def _ready(self) -> str:
        """Answer of the service, in the executor's thread."""
        if not self._question:
            raise LinkError("nothing was asked: the robot waits for nobody")
        self._answered.set()
        return "the robot goes to its start"

    def _call(self, client: Client, request: Any) -> Any:
        """Call a service from the main thread while the executor's thread spins; wait `reply_s`."""
        done = threading.Event()
        future = client.call_async(request)
        future.add_done_callback(lambda _: done.set())
        if not done.wait(self._reply_s):
            client.remove_pending_request(future)
            self._refused(f"no answer from {client.srv_name} within {self._reply_s} s")
        return future.result()

    def _refused(self, reason: str) -> NoReturn:
        raise RobotRLError(
            "the objects were not placed",
            expected="the sim node to place them",
            got=reason,
            fix="look at the sim node's log; it may be restarting",
        )


def checklist(plan: ResetPlan) -> str:
    """What a person has to take care of before an episode, one thing per line."""
    held = [] if plan.held_in_tcp is None else ["the part in the gripper"]
    parts = [*held, *(f"{name} in its place" for name in plan.objects)]
    if plan.ask is not None:
        parts = [plan.ask] if plan.ask else []
    return "\n".join([*parts, "hands out of the way"])
