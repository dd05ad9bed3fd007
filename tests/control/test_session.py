"""Session: phases, exams, and going on after a kill from what the store holds."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows
from robot_rl.control.session import (
    EVAL_SEED,
    EVAL_TRIES,
    EXAM_SEED,
    FAILED_DEMOS,
    WINDOW,
    EvalResult,
    Others,
    restore_progress,
)
from robot_rl.control.summary import EpisodeSummary
from robot_rl.errors import RobotRLError
from robot_rl.ports import RewardResult
from robot_rl.run.parts import session_of
from robot_rl.store.store import Store
from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart, Observation, RobotState
from tests.support.fakes import TASK, make_loop
from tests.support.session import TRAIN, Lines, experiment, make_session

EXAM_EPISODES = 3  # three of three: a Wilson interval from 0.44


def test_demos_stop_when_enough_have_succeeded() -> None:
    session, starts, _ = make_session()
    session.demos()
    assert [s.purpose for s in starts] == ["demo", "demo"]
    session.demos()
    assert len(starts) == 2


def test_demonstrations_that_keep_failing_are_an_error_with_a_fix() -> None:
    session, starts, _ = make_session(succeeds=False)
    with pytest.raises(RobotRLError, match=r"operator\.skill"):
        session.demos()
    assert len(starts) == FAILED_DEMOS


@pytest.mark.parametrize(("refused", "fix"), [(None, "its server"), (np.zeros(7), "the network")])
def test_a_policy_that_is_not_ready_is_a_base_or_its_own_network(refused: Any, fix: str) -> None:
    session, starts, _ = make_session()
    session.loop.policy = SimpleNamespace(ready=lambda: "it raised", refused=refused)  # type: ignore[assignment]
    with pytest.raises(RobotRLError) as caught:
        session.demos()
    assert fix in caught.value.fix and ("base" in caught.value.expected) == (refused is None)
    assert not starts


def test_a_person_who_is_away_ends_no_run_and_leaves_no_episode() -> None:
    session, starts, lines = make_session()
    run, waits = session.loop.run_episode, 3 * FAILED_DEMOS

    def run_episode(start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        if len(starts) <= waits:
            return EpisodeSummary(start.id, "demo", begun=False, reason="held by the gate")
        return run(start, deterministic=deterministic)

    session.loop.run_episode = run_episode  # type: ignore[method-assign]
    session.demos()
    assert session.progress.demos == TRAIN.demos == session.progress.next_episode
    assert len(lines.lines) == TRAIN.demos


def test_a_poor_operator_gets_there_in_more_tries() -> None:
    session, starts, _ = make_session(every=10)
    session.demos()
    assert session.progress.demos == TRAIN.demos and len(starts) == 10 * TRAIN.demos


def test_practice_ends_with_an_exam_on_starts_it_never_practised() -> None:
    session, starts, lines = make_session()
    session.practice()
    assert session.progress.mastered
    exams = [s.seed for s in starts if s.purpose == "eval"]
    assert len(exams) == EXAM_EPISODES and min(exams) >= EXAM_SEED
    assert any(line.get("exam/success") == 1.0 for line in lines.lines)
    assert all(s.seed < EVAL_SEED for s in starts if s.purpose == "train")


def test_practice_stops_at_its_step_budget_without_success() -> None:
    session, starts, _ = make_session(succeeds=False)
    session.practice()
    assert not session.progress.mastered
    assert session.progress.env_steps >= TRAIN.max_env_steps
    assert all(s.purpose == "train" for s in starts)  # no autonomy, so no exam is worth its time


def test_a_pause_waits_between_two_episodes_and_is_no_time_of_practice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, starts, _ = make_session()
    looks = iter([True] * 5)
    clock_s = [100.0]
    monkeypatch.setattr("robot_rl.control.session.time.monotonic", lambda: clock_s[0])

    def sleep(_seconds: float) -> None:
        assert starts == []  # nothing moves
        clock_s[0] += 3600.0

    monkeypatch.setattr("robot_rl.control.session.time.sleep", sleep)
    session._paused = lambda: next(looks, False)
    session.practice()
    assert clock_s[0] > 3 * 3600.0
    assert session.progress.mastered and session.progress.practice_s < 60.0


def test_a_paused_run_can_be_stopped_and_nothing_moves() -> None:
    session, starts, _ = make_session()
    session._paused = lambda: True
    session.stopping = lambda: "asked to stop"
    session.demos()
    session.practice()
    assert starts == [] and session.evaluate(1).successes == []


def test_the_step_budget_is_that_of_all_arms_together() -> None:
    told = [Others(env_steps=steps) for steps in (0, 0, TRAIN.max_env_steps)]
    session, starts, lines = make_session(succeeds=False, others=lambda: told[min(len(starts), 2)])
    session.practice()
    assert len(starts) == 2 and session.progress.env_steps < TRAIN.max_env_steps
    assert lines.lines[-1]["env_steps"] == TRAIN.max_env_steps  # the axis of all arms


def test_an_arm_stops_when_another_has_passed_the_exam() -> None:
    session, starts, _ = make_session(
        succeeds=False, others=lambda: Others(mastered=len(starts) >= 3)
    )
    session.practice()
    assert len(starts) == 3 and session.mastered and not session.progress.mastered


def test_an_exam_that_another_arm_was_faster_at_ends() -> None:
    train = dataclasses.replace(TRAIN, target_success=0.999, exam_failures=1000)

    def others() -> Others:
        return Others(mastered=sum(s.purpose == "eval" for s in starts) >= 4)

    session, starts, _ = make_session(train=train, others=others)
    session.practice()
    assert sum(s.purpose == "eval" for s in starts) == 4
    assert session.mastered and not session.progress.mastered


@pytest.mark.parametrize(("arms", "window"), [((), 20), (("a", "b"), 10), (tuple("abcdefgh"), 5)])
def test_readiness_for_an_exam_is_judged_by_the_share_of_an_arm(
    arms: tuple[str, ...], window: int
) -> None:
    session, _, _ = make_session(actors=arms)
    for number in range(40):
        session.progress.recent.append((number >= 40 - window, 0.0))
    assert session.progress.autonomy(session._window) == 1.0
    assert session.progress.autonomy(session._window + 1) < 1.0 or window == 20


def test_the_time_budget_counts_practice_before_a_restart() -> None:
    session, starts, _ = make_session()
    session.progress.practice_s = TRAIN.max_minutes * 60 + 1
    session.practice()
    assert starts == []


@pytest.mark.parametrize("always", [False, True])
def test_an_evaluation_in_which_a_person_drove_is_run_again_and_is_no_success(always: bool) -> None:
    session, starts, _ = make_session()
    real = session.loop.run_episode

    def run(start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        summary = real(start, deterministic=deterministic)
        if always or len(starts) == 1:
            summary.driver_steps = {Driver.CORRECTION: 1}
        return summary

    session.loop.run_episode = run  # type: ignore[method-assign]
    assert session.evaluate(2).successes == [not always] * 2
    assert len(starts) == (4 if always else 3)


def test_evaluation_repeats_what_was_aborted_and_counts_it_once() -> None:
    session, starts, _ = make_session()
    real, aborted = session.loop.run_episode, []

    def run(start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        summary = real(start, deterministic=deterministic)
        if not aborted:
            aborted.append(start.seed)
            summary.ending, summary.success = Ending.ABORTED, False
        return summary

    session.loop.run_episode = run  # type: ignore[method-assign]
    result = session.evaluate(3)
    assert result.successes == [True, True, True]
    assert [s.seed for s in starts] == [EVAL_SEED, EVAL_SEED, EVAL_SEED + 1, EVAL_SEED + 2]


def test_a_start_that_aborts_every_time_is_given_up_and_is_no_success() -> None:
    """In lockstep the gate stops the same policy at the same place; it was tried 51 times."""
    session, starts, _ = make_session()
    real = session.loop.run_episode

    def run(start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        summary = real(start, deterministic=deterministic)
        if start.seed == EVAL_SEED + 1:
            summary.ending, summary.success = Ending.ABORTED, False
        return summary

    session.loop.run_episode = run  # type: ignore[method-assign]
    assert session.evaluate(20).successes == [True, False, *[True] * 18]
    assert [s.seed for s in starts].count(EVAL_SEED + 1) == EVAL_TRIES


def test_an_exam_that_is_lost_does_not_go_on() -> None:
    train = dataclasses.replace(TRAIN, max_env_steps=51)  # one more episode, one exam
    session, starts, lines = make_session(succeeds=False, train=train)
    session.progress.recent.extend([(True, 0.0)] * WINDOW)  # as if practice had gone well
    session.progress.env_steps = session.progress.next_exam = 50
    session.practice()
    exams = [s for s in starts if s.purpose == "eval"]
    assert len(exams) == TRAIN.exam_failures + 1 and not session.progress.mastered
    assert [x["exam/success"] for x in lines.lines if "exam/success" in x] == [0.0]


@pytest.mark.parametrize("succeeds", [True, False])
def test_an_exam_that_somebody_stops_is_held_again(succeeds: bool, tmp_path: Path) -> None:
    train = dataclasses.replace(TRAIN, target_success=0.999, exam_failures=1000)
    session, starts, lines = make_session(train=train, succeeds=succeeds)
    session.progress.recent.extend([(True, 0.0)] * WINDOW)
    session.progress.env_steps = session.progress.next_exam = 50

    def exams() -> int:
        return sum(s.purpose == "eval" for s in starts)

    session.stopping = lambda: "asked to stop" if exams() == 4 else ""
    with Store(tmp_path / "s.sqlite", spec=TASK.spec, reserve_bytes=0) as store:
        session.store = store
        session.practice()
        assert exams() == 4 and not session.progress.mastered
        assert restore_progress(store, "r", "a").next_exam == session.progress.next_exam == 50
    assert not any("exam/success" in line for line in lines.lines)


def test_an_exam_that_is_undecided_when_the_time_is_up_ends_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = SimpleNamespace(s=100.0, exams=0)
    clock = SimpleNamespace(monotonic=lambda: now.s, time_ns=time.time_ns)
    monkeypatch.setattr("robot_rl.control.session.time", clock)
    train = dataclasses.replace(TRAIN, target_success=0.999)  # needs thousands of episodes
    session, _, _ = make_session(train=train)
    session.progress.recent.extend([(True, 0.0)] * WINDOW)
    session.progress.env_steps = session.progress.next_exam = 50
    run = session.loop.run_episode

    def run_for_long(start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        now.exams += start.purpose == "eval"
        now.s += 61 * train.max_minutes * (now.exams == 5)
        return run(start, deterministic=deterministic)

    session.loop.run_episode = run_for_long  # type: ignore[method-assign]
    session.practice()
    assert now.exams == 5 and not session.progress.mastered


def test_a_restarted_session_continues_from_the_store(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite", spec=TASK.spec, reserve_bytes=0) as store:
        loop, robot, _ = make_loop()
        loop.record = store.append

        def reset(plan: object, start: EpisodeStart) -> None:
            robot.tcp = robot.objects["target"]

        session = session_of(
            experiment(dataclasses.replace(TRAIN, max_env_steps=5, min_env_steps=10)),
            loop,
            reset,
            metrics=Lines(),
            store=store,
        )
        session.demos()
        session.practice()
        again = restore_progress(store, "r", "a")
        assert again.next_episode == session.progress.next_episode == 7
        assert (again.demos, again.env_steps) == (2, 5)
        assert again.practice_s == pytest.approx(session.progress.practice_s)
        assert list(again.recent) == list(session.progress.recent)
        session.progress.trained_s = 0.0
        session._opened_s -= 600.0  # ten minutes of work
        session.remember()
        anew = session_of(experiment(TRAIN), loop, reset, metrics=Lines(), store=store)
        assert anew.remember() == pytest.approx(600.0, abs=30.0)  # goes on where it stopped
        # killed in the middle of an episode: its steps were practised all the same
        store.append(episode_rows(TASK.spec, EpisodeId("r", "a", 7), 3, ending=None))
        store.recover("r", "a")
        after = restore_progress(store, "r", "a")
        assert (after.next_episode, after.env_steps) == (8, 8)
        assert list(after.recent) == list(again.recent)


def test_an_episode_that_is_cut_short_says_nothing_about_the_policy() -> None:
    session, starts, _ = make_session(train=dataclasses.replace(TRAIN, max_env_steps=6))
    run = session.loop.run_episode

    def cut(start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        summary = run(start, deterministic=deterministic)
        if start.id.episode % 2:
            summary.ending, summary.success = Ending.ABORTED, False
        return summary

    session.loop.run_episode = cut  # type: ignore[method-assign]
    session.practice()
    assert len(starts) >= 6 and session.progress.success_rate == 1.0
    assert len(session.progress.recent) < len(starts)


def test_cycle_time_is_over_successes_only() -> None:
    result = EvalResult([True, False, True], [2.0, 10.0, 4.0]).as_dict()
    assert (result["successes"], result["episodes"], result["cycle_time_s_mean"]) == (2, 3, 3.0)
    assert result["wilson_low"] < 2 / 3 < result["wilson_high"]
    assert np.isfinite(result["cycle_time_s_std"])


def test_no_episode_begins_before_the_camera_is_back() -> None:
    session, starts, _ = make_session(on_stuck=lambda error: asked.append(error) or len(asked) < 3)
    asked: list[RobotRLError] = []
    run = session.loop.run_episode

    def blind(start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        summary = run(start, deterministic=deterministic)
        if len(asked) < 2:
            summary.steps, summary.ending, summary.reason = 0, Ending.STALE, "stale: camera front"
        return summary

    session.loop.run_episode = blind  # type: ignore[method-assign]
    assert session.episode("train", 1).steps > 0
    assert [s.id.episode for s in starts] == [0, 0, 0] and session.progress.next_episode == 1
    assert "camera front" in str(asked[0])


def test_a_rule_that_raises_in_each_episode_ends_the_run_in_words() -> None:
    session, starts, _ = make_session(succeeds=False, on_stuck=lambda _error: True)
    loop: Any = session.loop
    score = loop.reward.score
    broken = [True, True, False, True, True, True]  # of each episode

    def rule(state: RobotState, observation: Observation) -> RewardResult:
        if broken[len(starts) - 1]:
            raise KeyError("peg")
        return score(state, observation)

    loop.reward.score = rule
    endings = [session.episode("train", i).ending for i in range(5)]
    assert [e is Ending.ABORTED for e in endings] == broken[:5]
    with pytest.raises(RobotRLError, match="no episode can be judged") as caught:
        session.episode("train", 5)
    assert "KeyError('peg')" in str(caught.value) and "3 episodes in a row" in str(caught.value)
    assert session.progress.next_episode == 6  # and it is recorded, too
