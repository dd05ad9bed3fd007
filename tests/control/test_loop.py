"""The control loop: what is recorded is what was executed, and nothing is folded or lost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from robot_rl.control.awaiting import MAX_HELD_TICKS
from robot_rl.control.loop import MAX_MISSED_VERDICTS, ControlLoop
from robot_rl.control.summary import EpisodeSummary
from robot_rl.geometry import compose, pose
from robot_rl.ports import OperatorInput, RewardResult
from robot_rl.reward.predicate import PredicateReward
from robot_rl.store.labels import review
from robot_rl.types import (
    Command,
    Driver,
    Ending,
    EpisodeStart,
    Event,
    Frame,
    Label,
    Outcome,
    RobotState,
    Step,
    Verdict,
)
from tests.support.clock import ManualClock
from tests.support.fakes import TASK, FakeGate, FakeOperator, FakePolicy, make_loop, start

SIZE = TASK.spec.action.size


def unit(value: float = 0.5) -> np.ndarray:
    action = np.zeros(SIZE, np.float32)
    action[2] = -value  # up, away from the table
    return action


def split(rows: list) -> tuple[list[Step], list[Frame], list[Event]]:
    return (
        [r for r in rows if isinstance(r, Step)],
        [r for r in rows if isinstance(r, Frame)],
        [r for r in rows if isinstance(r, Event)],
    )


def test_a_time_limit_is_a_truncation_with_its_true_last_frame() -> None:
    loop, robot, rows = make_loop()
    summary = loop.run_episode(start())
    steps, frames, _ = split(rows)
    assert isinstance(rows[0], EpisodeStart)
    assert summary.ending is Ending.TRUNCATED and summary.steps == TASK.max_steps
    assert [s.ending for s in steps[:-1]] == [None] * (TASK.max_steps - 1)
    assert [f.frame for f in frames] == list(range(TASK.max_steps + 1))
    assert all((s.frame, s.next_frame) == (s.step, s.step + 1) for s in steps)
    assert len(robot.applied) == TASK.max_steps  # one command a tick, none after the end


def test_success_terminates_and_is_rewarded_once() -> None:
    loop, robot, rows = make_loop()
    robot.tcp = robot.objects["target"]
    summary = loop.run_episode(start())
    steps, _, _ = split(rows)
    assert summary.success and summary.ending is Ending.TERMINATED and len(steps) == 1
    assert (steps[0].reward, steps[0].success, steps[0].weights_version) == (1.0, True, 3)


def test_the_executed_action_is_recorded_when_the_gate_clips() -> None:
    def halve(command: Command) -> Verdict:
        here = robot.tcp
        middle = (command.tcp_target_in_base.position_m + here.position_m) / 2
        sent = dataclasses.replace(command, tcp_target_in_base=pose(middle, here.quaternion_xyzw))
        return Verdict(command.sequence, Outcome.CLIPPED, "speed", sent, command.stamp_s)

    loop, robot, rows = make_loop(action=unit(0.8), gate=FakeGate(halve))
    loop.run_episode(start())
    steps, _, _ = split(rows)
    assert steps[0].action == pytest.approx(unit(0.4), abs=1e-5)
    assert steps[0].policy_action == pytest.approx(unit(0.8))
    assert (steps[0].outcome, steps[0].reason) == (Outcome.CLIPPED, "speed")


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.CLIPPED])
def test_of_an_arm_that_is_guided_by_hand_the_measured_motion_is_recorded(outcome: Outcome) -> None:
    """The command is to stay; the person pushes the arm by 4 mm in every tick."""
    asked: list[float] = []

    def push(command: Command) -> Verdict:
        target, here = command.tcp_target_in_base, robot.tcp
        asked.append(float(np.linalg.norm(target.position_m - here.position_m)))
        robot.tcp = pose(here.position_m + np.array((0.0, 0.0, 0.004)), here.quaternion_xyzw)
        return Verdict(command.sequence, outcome, "", command, command.stamp_s)

    class Guide(FakeOperator):
        def poll(self, state: RobotState) -> OperatorInput:
            said = super().poll(state)
            return dataclasses.replace(said, driver=Driver.DEMO, guided=True)

    guide = Guide(lambda _tick: True, np.zeros(SIZE, np.float32))
    loop, robot, rows = make_loop(gate=FakeGate(push), operator=guide)
    robot.apply = lambda command: None  # type: ignore[method-assign]
    loop.run_episode(start())
    steps, _, _ = split(rows)
    moved = 0.004 / TASK.spec.pose_action.translation_m
    assert asked == pytest.approx([0.0] * len(asked), abs=1e-12)
    assert steps[5].driver is Driver.DEMO and steps[5].action == pytest.approx(
        unit(moved), abs=1e-5
    )


def holding(reason: str) -> FakeGate:
    """A gate that holds everything for this reason."""

    def refuse(command: Command) -> Verdict:
        here = TASK.sample_reset(np.random.default_rng(0)).tcp_in_base  # where FakeRobot stands
        sent = dataclasses.replace(command, tcp_target_in_base=here)
        return Verdict(command.sequence, Outcome.HOLD, reason, sent, command.stamp_s)

    return FakeGate(refuse)


def test_a_gate_that_holds_for_a_second_aborts_the_episode() -> None:
    loop, _, rows = make_loop(action=unit(), gate=holding("command_late: the driver is silent"))
    summary = loop.run_episode(start())
    steps, _, _ = split(rows)
    assert summary.ending is Ending.ABORTED and summary.reason == "held by the gate"
    assert len(steps) == MAX_HELD_TICKS and steps[-1].ending is Ending.ABORTED
    assert steps[0].action == pytest.approx(np.zeros(SIZE), abs=1e-5)


@pytest.mark.parametrize(
    ("reason", "ticks"), [("force: contact", 1), ("joint: in its margin", MAX_HELD_TICKS)]
)
def test_what_the_policy_brought_upon_itself_is_a_failure_it_learns_from(
    reason: str, ticks: int
) -> None:
    loop, _, rows = make_loop(action=unit(), gate=holding(reason))
    summary = loop.run_episode(start())
    steps, _, _ = split(rows)
    assert (summary.ending, summary.success) == (Ending.TERMINATED, False)
    assert len(steps) == ticks and summary.reason == reason
    assert (steps[-1].ending, steps[-1].reward) == (Ending.TERMINATED, 0.0)


def test_a_person_who_hits_something_aborts_the_episode() -> None:
    operator = FakeOperator(lambda _tick: True, unit(0.2))
    loop, _, _ = make_loop(operator=operator, gate=holding("force: contact"))
    assert loop.run_episode(start()).ending is Ending.ABORTED


@pytest.mark.parametrize(("person", "ending"), [(True, Ending.ABORTED), (False, Ending.TERMINATED)])
def test_a_person_who_hits_something_and_lets_go_does_not_leave_it_to_the_policy(
    person: bool, ending: Ending
) -> None:
    """The arm touches in tick 3; the gate goes on saying so when the policy has its turn again."""
    gate = holding("force: contact")
    hold = gate.judge
    assert hold is not None
    gate.judge = lambda command: (
        hold(command)
        if operator.tick > 3
        else Verdict(command.sequence, Outcome.PASS, "", command, command.stamp_s)
    )
    operator = FakeOperator(lambda tick: person and tick < 5, unit(0.2))
    loop, _, rows = make_loop(action=unit(0.2), operator=operator, gate=gate)
    summary = loop.run_episode(start())
    steps, _, _ = split(rows)
    assert summary.ending is ending
    assert steps[-1].driver is Driver.POLICY and steps[0].driver.is_human is person


@pytest.mark.parametrize("word", [True, False])
def test_a_persons_word_ends_the_episode_and_is_its_reward(word: bool) -> None:
    operator = FakeOperator(lambda _tick: False, unit(0.2))
    poll = operator.poll

    def saying(state: RobotState) -> OperatorInput:
        value = poll(state)
        return dataclasses.replace(value, success=word if operator.tick == 3 else None)

    operator.poll = saying  # type: ignore[method-assign]
    loop, _, rows = make_loop(operator=operator)
    summary = loop.run_episode(start())
    steps, _, _ = split(rows)
    assert (summary.ending, summary.success) == (Ending.TERMINATED, word)
    assert summary.reason == ("operator: success" if word else "operator: failure")
    assert len(steps) == 4 and steps[-1].reward == float(word)
    assert all(s.reward == 0.0 for s in steps[:-1])
    (label,) = [r for r in rows if isinstance(r, Label)]  # that a person said it, is kept, too
    assert (label.kind, label.value, label.source) == ("success", float(word), "person")
    assert label.step is None and review([label]).success is word


def test_a_gate_that_is_gone_aborts_the_episode_and_nothing_was_executed() -> None:
    gate = FakeGate()
    gate.silent = True
    loop, robot, rows = make_loop(action=unit(), gate=gate)
    summary = loop.run_episode(start())
    steps, _, _ = split(rows)
    assert summary.reason == "no verdict from the gate" and len(steps) == MAX_MISSED_VERDICTS
    assert all(not s.action.any() and s.outcome is Outcome.HOLD for s in steps)
    assert robot.applied == []


def test_segments_follow_the_driver_and_each_takeover_is_released() -> None:
    operator = FakeOperator(lambda tick: 5 <= tick < 9 or tick >= 20, unit(0.2))
    loop, _, rows = make_loop(operator=operator)
    summary = loop.run_episode(start())
    steps, _, events = split(rows)
    names = [e.name for e in events]
    assert names == ["takeover", "release"] * 2 and summary.takeovers == 2
    human = [s.step for s in steps if s.driver is Driver.CORRECTION]
    assert human == [5, 6, 7, 8, *range(20, TASK.max_steps)]
    assert [s.segment for s in steps if s.step in (4, 5, 9, 20)] == [0, 1, 2, 3]
    assert [e.event for e in events] == [0, 1, 2, 3]


def test_a_stall_costs_its_own_tick_and_is_not_followed_by_a_burst() -> None:
    class Stalling(ManualClock):
        def sleep_until_s(self, deadline_s: float) -> None:
            late_s = 0.35 if 0.95 < deadline_s < 1.05 else 0.0
            super().sleep_until_s(deadline_s + late_s)

    loop, _, _ = make_loop(clock=Stalling())
    periods = loop.run_episode(start()).period_ms
    assert max(periods) == pytest.approx(450, abs=1)
    assert sum(p < 99 for p in periods) == 0


def test_a_stall_before_the_command_is_not_followed_by_another_at_once() -> None:
    clock = ManualClock()

    class Stalling(FakePolicy):
        calls = 0

        def act(self, observation: dict, deterministic: bool) -> np.ndarray:
            self.calls += 1
            if self.calls == 10:  # garbage is collected
                clock.sleep_until_s(clock.now_s() + 0.3)
            return super().act(observation, deterministic)

    loop, robot, _ = make_loop(clock=clock)
    loop.policy = Stalling(unit())
    periods = loop.run_episode(start()).period_ms
    sent_s = np.array([c.stamp_s for c in robot.applied])
    assert np.diff(sent_s).min() > 0.099 and np.diff(sent_s).max() == pytest.approx(0.4)
    assert max(periods) == pytest.approx(400, abs=1)  # the late tick is told


def test_stopping_aborts_between_two_ticks() -> None:
    loop, _, rows = make_loop()
    loop.stopping = lambda: "asked to stop" if len(rows) > 10 else ""
    summary = loop.run_episode(start())
    assert (summary.ending, summary.reason) == (Ending.ABORTED, "asked to stop")
    assert summary.steps < TASK.max_steps


def test_sequences_go_on_over_episodes() -> None:
    loop, robot, _ = make_loop()
    loop.run_episode(start())
    loop.run_episode(start())
    numbers = [c.sequence for c in robot.applied]
    assert numbers == list(range(1, 2 * TASK.max_steps + 1))


class Camera:
    """A camera whose last picture was taken at `died_s`."""

    name = "front"

    def __init__(self, loop: ControlLoop, died_s: float) -> None:
        self._loop, self._died_s = loop, died_s

    def read(self) -> tuple[float, np.ndarray]:
        return min(self._loop.clock.now_s(), self._died_s), np.zeros((4, 4, 3), np.uint8)


def test_a_camera_that_dies_ends_the_episode_and_nothing_is_learned_from_the_last_step() -> None:
    loop, _, rows = make_loop()
    loop.cameras = [Camera(loop, died_s=0.5)]
    summary = loop.run_episode(start())
    steps = [row for row in rows if isinstance(row, Step)]
    assert summary.ending is Ending.STALE and "camera front, 0.20 s old" in summary.reason
    assert not summary.success and len(steps) == 7  # 0.7 s: the first moment more than 0.18 s old
    assert steps[-1].ending is Ending.STALE and steps[-1].success is None
    assert all(step.ending is None for step in steps[:-1])


@pytest.mark.parametrize(("moves", "ending"), [(True, Ending.STALE), (False, Ending.TRUNCATED)])
def test_the_same_picture_with_new_stamps_is_stale_once_the_arm_has_moved(
    moves: bool, ending: Ending
) -> None:
    loop, _, rows = make_loop(action=unit() if moves else None)
    loop.cameras = [Camera(loop, died_s=np.inf)]
    summary = loop.run_episode(start())
    assert summary.ending is ending
    if moves:
        steps = [row for row in rows if isinstance(row, Step)]
        assert "camera front" in summary.reason and len(steps) <= 4


def test_a_state_that_stands_still_ends_the_episode_and_none_begins_with_it() -> None:
    loop, robot, rows = make_loop()
    read, clock = robot.read, loop.clock
    robot.read = lambda: dataclasses.replace(  # type: ignore[method-assign]
        read(), stamp_s=min(clock.now_s(), 0.3)
    )
    summary = loop.run_episode(start())
    assert summary.ending is Ending.STALE and "the robot's state" in summary.reason
    rows.clear()
    again = loop.run_episode(start())
    assert again.ending is Ending.STALE and again.steps == 0 and rows == []


class Broken:
    """A camera that raises for some seconds: its driver is gone, or a cable is loose."""

    name = "front"

    def __init__(self, loop: ControlLoop, from_s: float, to_s: float) -> None:
        self._loop, self._from_s, self._to_s, self._count = loop, from_s, to_s, 0

    def read(self) -> tuple[float, np.ndarray]:
        now_s = self._loop.clock.now_s()
        if self._from_s < now_s < self._to_s:
            raise OSError("no such device")
        self._count += 1
        return now_s, np.full((4, 4, 3), self._count, np.uint8)


def test_a_camera_that_raises_once_costs_nothing() -> None:
    loop, _, _ = make_loop(action=unit())
    loop.cameras = [Broken(loop, 0.45, 0.55)]
    assert loop.run_episode(start()).ending is Ending.TRUNCATED


def test_a_camera_that_goes_on_raising_ends_the_episode_as_stale_and_says_why() -> None:
    loop, robot, rows = make_loop(action=unit())
    loop.cameras = [Broken(loop, 0.45, np.inf)]
    summary = loop.run_episode(start())
    steps, _, _ = split(rows)
    assert summary.ending is Ending.STALE and steps[-1].ending is Ending.STALE
    assert "camera front (OSError('no such device')), 0.20 s old" in summary.reason
    commands = len(robot.applied)
    rows.clear()
    again = loop.run_episode(start())
    assert again.ending is Ending.STALE and again.steps == 0 and rows == []
    assert len(robot.applied) == commands  # nothing moves blindly


@pytest.mark.parametrize("what", ["success", "failure", "progress"])
def test_a_rule_that_raises_aborts_the_episode_in_words(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, robot, rows = make_loop(action=unit())
    loop.reward = PredicateReward(loop.task, tells=True)
    own = getattr(TASK, what)

    def rule(_task: object, state: RobotState) -> object:
        if state.stamp_s > 0.45:
            raise ZeroDivisionError("float division by zero")
        return own(state)

    monkeypatch.setattr(type(TASK), what, rule)
    summary = loop.run_episode(start())
    steps, frames, _ = split(rows)
    assert summary.ending is Ending.ABORTED and steps[-1].ending is Ending.ABORTED
    assert (steps[-1].reward, steps[-1].success) == (None, None)
    assert summary.reason == summary.unjudged and "ZeroDivisionError" in summary.reason
    assert len(steps) == 5 and len(frames) == 6 and len(robot.applied) == 5
    monkeypatch.undo()
    assert loop.run_episode(start()).ending is Ending.TRUNCATED  # the loop goes on


# --- a demonstration begins with the person -------------------------------------------------------


def demonstrated(
    operator: FakeOperator, gate: FakeGate | None = None, stopping: str = ""
) -> tuple[list[Step], list, EpisodeSummary, int]:
    """Steps, rows, summary, and how many commands were sent, of a demonstration that is awaited."""
    loop, robot, rows = make_loop(operator=operator, gate=gate)
    loop.awaits_hand, looks = True, iter(range(10_000))
    loop.stopping = lambda: stopping if next(looks) >= 100 else ""
    summary = loop.run_episode(start("demo"))
    return split(rows)[0], rows, summary, len(robot.applied)


def test_nothing_is_recorded_before_the_person_drives() -> None:
    waits = 3 * TASK.max_steps  # far longer than an episode may be
    driver = FakeOperator(lambda tick: tick >= waits, unit())
    steps, rows, summary, sent = demonstrated(driver)
    assert summary.begun and steps[0].step == 0 and len(steps) == summary.steps
    assert all(step.driver.is_human for step in steps)
    assert isinstance(rows[0], EpisodeStart) and sent == waits + len(steps)


def test_the_robot_stands_still_until_then() -> None:
    loop, robot, _ = make_loop(operator=FakeOperator(lambda tick: tick >= 40, unit()))
    loop.awaits_hand = True
    before, obey = robot.read().tcp_in_base, robot.apply

    def apply(command: Command) -> None:  # something pulls at the arm
        obey(command)
        robot.tcp = compose(pose((0.0, 0.0, -0.001)), robot.tcp)

    robot.apply = apply  # type: ignore[method-assign]
    loop.run_episode(start("demo"))
    for command in robot.applied[:40]:  # it is not led after the arm
        assert np.allclose(command.tcp_target_in_base.position_m, before.position_m)


def test_practice_does_not_wait() -> None:
    loop, _, rows = make_loop()
    loop.awaits_hand = True
    assert loop.run_episode(start("train")).steps == len(split(rows)[0]) == TASK.max_steps


def test_a_demonstration_that_was_never_begun_leaves_nothing() -> None:
    nobody = FakeOperator(lambda _tick: False, unit())
    steps, rows, summary, _ = demonstrated(nobody, stopping="the run ends")
    assert not summary.begun and summary.reason == "the run ends"
    assert not steps and not rows


def test_a_gate_that_holds_meanwhile_is_armed_anew() -> None:
    nobody = FakeOperator(lambda _tick: False, unit())
    gate = FakeGate(lambda c: Verdict(c.sequence, Outcome.HOLD, "person", c, c.stamp_s))
    _, rows, summary, _ = demonstrated(nobody, gate)
    assert not summary.begun and summary.reason == "held by the gate" and not rows


# --- a person's word in an evaluation -------------------------------------------------------------


class Says(FakeOperator):
    """Presses a label key in some ticks."""

    def __init__(self, word: bool, ticks: range) -> None:
        super().__init__(lambda _tick: False, unit())
        self.word, self.ticks = word, ticks

    def poll(self, state: RobotState) -> OperatorInput:
        said = super().poll(state)
        return dataclasses.replace(said, success=self.word if self.tick in self.ticks else None)


@pytest.mark.parametrize("knows", [True, False])
def test_in_an_evaluation_the_tasks_rule_decides_and_a_word_is_a_label(knows: bool) -> None:
    loop, _, rows = make_loop(operator=Says(True, range(5, 8)))
    if not knows:  # then the person is the judge
        loop.reward.knows = False  # type: ignore[attr-defined]
        loop.reward.score = lambda _s, _o: RewardResult(0.0, False, False)  # type: ignore[method-assign]
    summary = loop.run_episode(start("eval"))
    labels = [r for r in rows if isinstance(r, Label) and r.kind == "success"]
    assert [(x.value, x.source) for x in labels] == [(1.0, "person")]  # one press, one word
    assert summary.success is not knows
    assert summary.steps == (TASK.max_steps if knows else 6)
    recorded = split(rows)[0][-1].success
    assert recorded is not knows and review(labels).success is True
    assert review(labels).outcome(recorded) is True  # review shows that the two disagree


def test_in_practice_a_word_counts_whatever_the_rule_says() -> None:
    loop, _, _ = make_loop(operator=Says(True, range(5, 8)))
    assert loop.run_episode(start("train")).success
