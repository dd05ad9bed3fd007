"""THE control loop: observe -> act -> gate -> apply -> record, one tick per control period.

The same object runs a real arm over ROS 2 and MuJoCo in lockstep; it does not know which, because
robot, gate, operator and clock are ports. Deadlines are absolute: a late tick is recorded and never
followed by a burst. Nothing in a tick waits for the learner, the disk or the console: `record`
hands rows to a queue, `policy` reads weights that are already here.

    tick k:  observe   newest state and images -> observation k; if too old, the episode ends
             record    step k-1 is complete now: what the gate really sent, reward, frame k
             act       policy proposes; the arbiter decides who drives
             gate      the only door: pass / clipped / hold
             apply     the verdict's command (over ROS 2 the gate process has sent it already)
             sleep     until the absolute deadline of tick k+1
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.actions import Actions, Target, TcpActions
from robot_rl.control.arbiter import Arbiter, Decision
from robot_rl.control.awaiting import HELD, MAX_HELD_TICKS, await_hand
from robot_rl.control.summary import EpisodeSummary, jerk_of
from robot_rl.errors import ConfigError
from robot_rl.observe.frozen import Frozen
from robot_rl.ports import (
    Camera,
    Clock,
    Gate,
    InputDevice,
    RewardResult,
    RewardSource,
    RobotPort,
    Task,
)
from robot_rl.store.labels import PREDICATE, PROGRESS, SUCCESS_SCORE, of_frame, of_step
from robot_rl.types import (
    Command,
    Driver,
    Ending,
    EpisodeStart,
    Event,
    Frame,
    Label,
    Observation,
    Outcome,
    Pose,
    RobotState,
    Row,
    Step,
    Verdict,
)

log = logging.getLogger(__name__)

MAX_STATE_AGE_S = 0.1  # an older state is not acted on or learned from; the gate allows half of it
MAX_PICTURE_AGE_S = 0.18  # five pictures of a 30 Hz camera; the last command within 0.2 s of them
MAX_AHEAD_S = 1.0  # what is from further ahead has a wrong stamp: nobody knows how old it is
MAX_MISSED_VERDICTS = 3  # gate silent this many ticks in a row: the episode is aborted

FAULTS = {"force": 1, "joint": MAX_HELD_TICKS}  # check -> held ticks that lose the episode


class Policy(Protocol):
    """What the loop needs of a policy; `policy.runtime.PolicyRuntime` in production.

    A policy that plans nothing inherits everything but `version` and `act`.
    """

    @property
    def version(self) -> int:
        """Version of the weights in use, -1 before any."""
        ...

    @property
    def problem(self) -> str:
        """Why there is no action ("" = there is one); the episode then ends, and nothing moves."""
        return ""

    def ready(self) -> str:
        """Why no episode may begin, "" when one may. May take seconds."""
        return ""

    def begin_episode(self, deterministic: bool = False) -> None:
        """Forget the last episode. deterministic: `annotate` must not draw what it decides."""

    def annotate(self, observation: Observation) -> Observation:
        """The observation to record, with what a base policy adds to it. Called once per tick."""
        return observation

    def act(self, observation: Observation, deterministic: bool) -> NDArray[np.float32]:
        """Action [A] in [-1, 1]."""
        ...

    def interrupt(self) -> None:
        """Somebody else drives in this tick: drop what was planned."""


@dataclass(slots=True)
class _Pending:
    """A step whose result is not known yet."""

    command: Command
    decision: Decision
    policy_action: NDArray[np.float32]
    state: RobotState
    verdict: Verdict | None
    weights_version: int


class ControlLoop:
    """Runs episodes. One instance per actor process; `lease` is its right to drive.

    Args:
        record: takes rows and returns at once (`StoreWriter.put`, or `Store.append` in lockstep).
        on_step: called after each recorded step (lockstep learning, weight adoption); must be
            quick in real time.
        on_frame: called with each new frame and the state it was made from; must be as quick.
        stopping: polled each tick; a non-empty reason aborts the episode.
        actions: how actions become commands (`control.actions.actions_of`); None = they move the
            TCP.
        awaits_hand: a demonstration begins when the person begins to drive, however long that
            takes; until then the robot stands still and nothing is recorded.
    """

    def __init__(
        self,
        *,
        task: Task,
        robot: RobotPort,
        cameras: Sequence[Camera],
        gate: Gate,
        clock: Clock,
        policy: Policy,
        operator: InputDevice,
        arbiter: Arbiter,
        reward: RewardSource,
        record: Callable[[list[Row]], object],
        lease: str,
        on_step: Callable[[Step], None] = lambda _step: None,
        on_frame: Callable[[Frame, RobotState], None] = lambda _frame, _state: None,
        stopping: Callable[[], str] = lambda: "",
        actions: Actions | None = None,
        awaits_hand: bool = False,
    ) -> None:
        self.actions = actions or TcpActions(task.spec.pose_action)
        self.task, self.robot, self.cameras, self.gate, self.clock = (
            task,
            robot,
            cameras,
            gate,
            clock,
        )
        self.policy, self.operator, self.arbiter, self.reward = policy, operator, arbiter, reward
        self.record, self.lease, self.on_step, self.stopping = record, lease, on_step, stopping
        self.on_frame, self.awaits_hand = on_frame, awaits_hand
        self._period_s = 1.0 / task.spec.control_hz
        self._sequence, self._frozen = 0, Frozen()
        self._pictures: dict[str, tuple[float, NDArray[np.uint8]]] = {}  # the last ones
        self._raised: dict[str, str] = {}  # camera -> why it gave no picture in this tick

    def next_command(
        self, action: NDArray[np.float32], driver: Driver, state: RobotState
    ) -> Command:
        """Turn an action into the next numbered command of this lease."""
        width_m = self.task.spec.action.gripper_width_m(action)
        return self._command(self.actions.target(action, state), width_m, driver)

    def command_to(
        self, tcp: Pose, gripper_width_m: float | None, driver: Driver, state: RobotState
    ) -> Command:
        """The next numbered command of this lease, to an explicit pose of the TCP in base."""
        return self._command(self.actions.towards(tcp, state), gripper_width_m, driver)

    def _command(self, target: Target, gripper_width_m: float | None, driver: Driver) -> Command:
        self._sequence += 1
        return Command(
            sequence=self._sequence,
            stamp_s=self.clock.now_s(),
            driver=driver,
            lease=self.lease,
            tcp_target_in_base=target.tcp_in_base,
            gripper_width_m=gripper_width_m,
            joint_target_rad=target.joints_rad,
        )

    def run_episode(self, start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        """Drive one episode from where the robot stands now (a reset has been done)."""
        episode = _Episode(self, start, deterministic)
        return episode.run()

    def observe(self) -> tuple[RobotState, Observation, str]:
        """Newest state, the observation built from it, and what in it is too old ("" = nothing)."""
        state = self.robot.read()
        seen = {camera.name: self._picture(camera) for camera in self.cameras}
        images = {name: image for name, (_, image) in seen.items()}
        new_s = {n: self._frozen.new_s(n, *seen[n], state.tcp_in_base) for n in seen}
        return state, self.task.observe(state, images), self._stale(state, new_s)

    def _picture(self, camera: Camera) -> tuple[float, NDArray[np.uint8]]:
        """A camera's newest picture; of one that raises the last, until that is too old."""
        name = camera.name
        try:
            self._pictures[name] = camera.read()
            self._raised.pop(name, None)
        except Exception as error:  # a driver's own; before the first picture nothing has moved
            if name not in self._pictures:
                raise
            if name not in self._raised:
                log.warning("camera %s gives no picture", name, exc_info=error)
            self._raised[name] = f" ({error!r:.200})"
        return self._pictures[name]

    def _stale(self, state: RobotState, new_s: Mapping[str, float]) -> str:
        now_s, why = self.clock.now_s(), self._raised.get
        ages = [("the robot's state", now_s - state.stamp_s, MAX_STATE_AGE_S)]
        ages += [
            (f"camera {n}{why(n, '')}", now_s - s, MAX_PICTURE_AGE_S) for n, s in new_s.items()
        ]
        old = [
            f"{name}, {age_s:.2f} s old" if age_s > 0.0 else f"{name}, {-age_s:.2f} s ahead"
            for name, age_s, limit_s in ages
            if not -MAX_AHEAD_S <= age_s <= limit_s
        ]
        return f"stale: {'; '.join(old)}" if old else ""


class _Episode:
    """State of one running episode."""

    def __init__(self, loop: ControlLoop, start: EpisodeStart, deterministic: bool) -> None:
        self.loop, self.start, self.deterministic = loop, start, deterministic
        self.summary = EpisodeSummary(start.id, start.purpose)
        self._events = self._segment = self._missed = self._held = 0
        self._driver: Driver | None = None
        self._mover = Driver.POLICY  # who drove when the gate last let the arm move
        self._taken_behind = False  # whether a person drives through the environment itself
        self._stale = ""  # what in the newest observation is too old
        self._said: bool | None = None  # success or failure, by the person, in the newest tick
        self._before: bool | None = None  # whether a key was down before: one press is one word
        self._executed: list[NDArray[np.float32]] = []

    def run(self) -> EpisodeSummary:
        """Tick until the episode ends."""
        loop, summary = self.loop, self.summary
        if not self._begin():
            summary.begun = False
            return summary
        began_s = tick_s = previous_s = loop.clock.now_s()
        wall_s = time.perf_counter()
        pending: _Pending | None = None
        step = 0
        while True:
            state, observation, self._stale = loop.observe()
            observation = loop.policy.annotate(observation)
            frame = Frame(self.start.id, step, int(state.stamp_s * 1e9), observation)
            loop.on_frame(frame, state)
            if loop.policy.problem:
                summary.reason = loop.policy.problem  # aborted: not one row is learned from
            if pending is None:
                if self._stale:  # nothing is recorded: there was no step
                    summary.ending, summary.reason = Ending.STALE, self._stale
                    break
                loop.record([self.start, frame])
                if summary.reason:
                    break
            elif self._finish(step - 1, pending, state, frame):
                break
            pending = self._act(state, observation, step)
            tick_s += loop._period_s
            loop.clock.sleep_until_s(tick_s)
            now_s = loop.clock.now_s()
            if tick_s - now_s > loop._period_s / 2:  # the clock was set back
                tick_s = now_s
            elif now_s - tick_s > loop._period_s / 2:  # very late: give the lost time up, no burst
                tick_s = max(now_s, pending.command.stamp_s + loop._period_s)
                loop.clock.sleep_until_s(tick_s)
                now_s = loop.clock.now_s()
            summary.period_ms.append((now_s - previous_s) * 1e3)
            previous_wall_s, wall_s = wall_s, time.perf_counter()
            summary.wall_ms.append((wall_s - previous_wall_s) * 1e3)
            previous_s = now_s
            step += 1
        summary.duration_s = loop.clock.now_s() - began_s
        summary.jerk = jerk_of(self._executed, loop.task.spec.action.motion)
        self._record_events(loop.arbiter.end_episode(), step)
        if self._taken_behind:
            self._record_events([_behind("release")], step)
        return summary

    def _begin(self) -> bool:
        """Tell everybody; False where nobody begins to drive, who should."""
        loop, purpose = self.loop, self.start.purpose
        loop.operator.begin_episode(self.start.seed, purpose)
        loop.arbiter.begin_episode()
        loop.policy.begin_episode(self.deterministic)
        if loop.awaits_hand and purpose == "demo" and not await_hand(loop, self.summary):
            return False
        loop.reward.begin_episode(purpose)
        return True

    def _act(self, state: RobotState, observation: Observation, step: int) -> _Pending:
        """Propose, arbitrate, ask the gate, apply."""
        loop = self.loop
        policy_action = loop.policy.act(observation, self.deterministic)
        human = loop.operator.poll(state)
        if human.driving:
            human = replace(human, action=loop.actions.of_hand(human.action, state))
        decision = loop.arbiter.decide(policy_action, human, state, loop.clock.now_s())
        self._record_events(decision.events, step)
        if decision.driver is not Driver.POLICY:
            loop.policy.interrupt()
        command = loop.next_command(decision.action, decision.driver, state)
        verdict = loop.gate.request(command, state)
        if verdict is not None:
            loop.robot.apply(verdict.command)
        if human.abort:
            self.summary.reason = "operator abort"
        self._said = human.success if human.success != self._before else None
        self._before = human.success
        return _Pending(command, decision, policy_action, state, verdict, loop.policy.version)

    def _finish(self, index: int, pending: _Pending, state: RobotState, frame: Frame) -> bool:
        """Complete step `index`, whose result is `frame`. True when the episode is over."""
        loop, summary = self.loop, self.summary
        verdict = pending.verdict or loop.gate.verdict(pending.command.sequence)
        self._missed = 0 if verdict is not None else self._missed + 1
        held = verdict is None or verdict.outcome is Outcome.HOLD
        self._held = self._held + 1 if held else 0
        result = self._judged(state, frame.observation)
        if self._said is not None and not self._rules(result):
            said = self._said  # a person's word ends the episode, whatever the score says
            result = replace(result, reward=float(said), success=said, terminated=True)
            summary.reason = "operator: success" if self._said else "operator: failure"
        driver = self._driven_by(pending, verdict, index)
        self._mover = self._mover if held else driver
        fault = self._fault(verdict) if driver is self._mover is Driver.POLICY else ""
        if fault and not result.terminated:
            result = replace(result, reward=0.0, success=False, terminated=True)
            summary.reason = fault
        ending = self._ending(index, pending, result)
        if driver != self._driver:
            self._segment += self._driver is not None
            self._driver = driver
        step = Step(
            id=self.start.id,
            step=index,
            frame=index,
            next_frame=index + 1,
            segment=self._segment,
            driver=driver,
            action=self._action(pending, verdict, state),
            policy_action=np.nan_to_num(pending.policy_action),  # the reason says it was not finite
            outcome=verdict.outcome if verdict else Outcome.HOLD,
            reason=verdict.reason if verdict else "no verdict from the gate",
            reward=result.reward,
            ending=ending,
            success=result.success if ending and not self._stale else None,
            weights_version=pending.weights_version,
            stamp_ns=int(pending.state.stamp_s * 1e9),
        )
        loop.record([step, frame, *self._scores(step, result)])
        self._executed.append(step.action)
        summary.steps += 1
        summary.total_reward += result.reward or 0.0
        summary.driver_steps[driver] = summary.driver_steps.get(driver, 0) + 1
        summary.outcome_steps[step.outcome] = summary.outcome_steps.get(step.outcome, 0) + 1
        if ending:
            summary.ending, summary.success = ending, bool(step.success)
            summary.success_known = result.success is not None or bool(summary.unjudged)
            summary.true_success = result.truth
        loop.on_step(step)
        return ending is not None

    def _rules(self, result: RewardResult) -> bool:
        """Whether the task's own rule decides: in evaluations, which nobody helps.

        What a person says there is a label beside it; review shows where the two disagree.
        """
        ruled = result.success is not None and result.source in ("", PREDICATE)
        knows = getattr(self.loop.reward, "knows", True)  # or a person is the judge
        return self.start.purpose == "eval" and ruled and knows

    def _judged(self, state: RobotState, observation: Observation) -> RewardResult:
        """What the reward says of a moment; one that raises aborts the episode."""
        try:
            return self.loop.reward.score(state, observation)
        except ConfigError:  # a setting is wrong in each episode: say so now
            raise
        except Exception as error:  # a task's rule may be anybody's code
            log.error("the task's rule or the reward raised", exc_info=error)
            self.summary.reason = f"the task's rule or the reward raised {error!r:.200}"
            self.summary.unjudged = self.summary.reason
            return RewardResult(None, None, False)

    def _scores(self, step: Step, result: RewardResult) -> list[Label]:
        """Labels about the moment that a step led to: score, truth, progress, a person's word."""
        at, after = step.step, step.step + 1
        number = of_step(at)
        said = []
        if result.score is not None:
            said.append((number, at, SUCCESS_SCORE, result.score, result.source, result.author))
        if result.truth is not None:
            said.append((number, at, SUCCESS_SCORE, float(result.truth), PREDICATE, PREDICATE))
        if result.progress is not None:
            known = [(0, 0.0)] if at == 0 else []  # the frame that the first step starts from
            known.append((after, result.progress))
            said += [(of_frame(f), f, PROGRESS, v, PREDICATE, PREDICATE) for f, v in known]
        if self._said is not None:  # the step holds this, too, but not who said it
            said.append((number, None, "success", float(self._said), "person", "operator"))
        return [
            Label(
                id=step.id,
                label=number,
                step=place,
                kind=kind,
                value=value,
                source=source,
                author=author,
                stamp_ns=step.stamp_ns,
            )
            for number, place, kind, value, source, author in said
        ]

    def _ending(self, index: int, pending: _Pending, result: RewardResult) -> Ending | None:
        """Why the episode ends after step `index`, or None."""
        if self._stale:  # what it led to, success included, is not known
            self.summary.reason = self._stale
            return Ending.STALE
        if result.terminated:
            return Ending.TERMINATED
        reason = self.summary.reason or self.loop.stopping()
        over = pending.decision.over
        if self._missed >= MAX_MISSED_VERDICTS:
            reason = "no verdict from the gate"
        elif self._held >= MAX_HELD_TICKS:
            reason = HELD
        if reason:
            self.summary.reason = reason
            return Ending.ABORTED
        if over:
            self.summary.reason = over
        over = over or result.truncated or index + 1 >= self.loop.task.max_steps
        return Ending.TRUNCATED if over else None

    def _fault(self, verdict: Verdict | None) -> str:
        """Why the gate ends the episode as the policy's failure; "" when it does not.

        The critic must learn that hitting things is worth nothing, so these episodes are kept,
        unlike aborted ones. A hold that a person or a dead process causes teaches nothing, nor does
        one that goes on when the person has let go.
        """
        if verdict is None or verdict.outcome is not Outcome.HOLD:
            return ""
        ticks = FAULTS.get(verdict.reason.partition(":")[0], math.inf)
        return verdict.reason if self._held >= ticks else ""

    def _driven_by(self, pending: _Pending, verdict: Verdict | None, step: int) -> Driver:
        """Who really drove. Behind the gate, an environment may have let a person drive."""
        taken, driver = False, pending.decision.driver
        if verdict is not None and verdict.taken:
            taken, driver = True, verdict.command.driver
            self.loop.policy.interrupt()
        if taken != self._taken_behind:
            self._taken_behind = taken
            self._record_events([_behind("takeover" if taken else "release")], step)
        return driver

    def _action(
        self, pending: _Pending, verdict: Verdict | None, after: RobotState
    ) -> NDArray[np.float32]:
        """The action that was really sent: what the critic learns from.

        Where a person guided the arm by hand, it is the action that asks for the motion that was
        measured, up to `after`.
        """
        asked, guided = pending.decision.action, pending.decision.guided
        if verdict is None:
            return np.zeros_like(asked)
        if verdict.outcome is Outcome.PASS and not (guided or verdict.taken):
            return asked
        loop, before = self.loop, pending.state
        moved = loop.task.spec.action.gripper and verdict.command.gripper_width_m is not None
        gripper = float(asked[-1]) if moved else 0.0
        if guided:
            return loop.actions.measured(before, after, gripper)
        return loop.actions.sent(verdict.command, before, gripper)

    def _record_events(self, events: Sequence[tuple[str, str]], step: int) -> None:
        """Append arbiter events beside the steps."""
        for name, detail in events:
            self.summary.takeovers += name == "takeover"
            stamp_ns = int(self.loop.clock.now_s() * 1e9)
            self.loop.record([Event(self.start.id, self._events, step, name, detail, stamp_ns)])
            self._events += 1


def _behind(name: str) -> tuple[str, str]:
    """Event of a person who drives behind the gate, through the environment itself."""
    return name, "device=environment"
