"""A base policy slower than a tick: nothing waits for it, and nothing moves without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from robot_rl.errors import LinkError, RobotRLError
from robot_rl.learn.algos.resfit import ResFitConfig
from robot_rl.learn.replay import Replay
from robot_rl.policy.base.fit import Fit, latency_finding
from robot_rl.policy.base.mapping import SlowConfig
from robot_rl.policy.base.schedule import AsyncSchedule
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.policy.runtime import PolicyRuntime
from robot_rl.spec import BASE_ACTION
from robot_rl.types import Ending, Observation, Step
from tests.support.fakes import TASK, make_loop, start

H = 10


class Slow:
    """Action i of a chunk says for which tick it is: 0.01 times the observation's tick plus i.

    Every answer waits until the test lets it go (`answer`).
    """

    spec = BaseSpec(chunk=H, action_size=6)

    def __init__(self) -> None:
        self.go, self.asked, self.away = threading.Semaphore(0), 0, False
        self.value: float | None = None

    def reset(self) -> None:
        if self.away:
            raise LinkError("the server does not answer")

    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        self.asked += 1
        assert self.go.acquire(timeout=20)
        if self.away:
            raise LinkError("the server does not answer")
        ticks = 0.01 * (float(observation["tick"][0]) + np.arange(H))
        if self.value is not None:
            ticks = np.full(H, self.value)
        return np.repeat(ticks[:, None], 6, 1).astype(np.float32)


@pytest.fixture
def base() -> Slow:
    return Slow()


@pytest.fixture
def schedule(base: Slow) -> Iterator[AsyncSchedule]:
    made = AsyncSchedule(base, execute=1, ahead=1, blend=0, first_s=2.0, retry_s=0.0)
    yield made
    for _ in range(50):
        base.go.release()
    made.close()


def look(schedule: AsyncSchedule, tick: int) -> int:
    """Which tick the action in force is for."""
    seen = schedule.annotate({"tick": np.array([tick], np.float32)})[BASE_ACTION]
    return round(float(seen[0, 0]) * 100)


def answer(base: Slow, schedule: AsyncSchedule) -> None:
    """Let the answer on its way arrive."""
    base.go.release()
    end_s = time.monotonic() + 5.0
    while schedule._asked is not None and not schedule._asked.done():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_an_answer_that_took_four_ticks_begins_with_its_fourth_action(
    base: Slow, schedule: AsyncSchedule
) -> None:
    schedule.begin_episode()
    base.go.release()  # the first look waits
    ticks = [look(schedule, 0)]
    for tick in range(1, 30):
        if tick % 4 == 0:
            answer(base, schedule)
        ticks.append(look(schedule, tick))
        assert not schedule.problem
    assert ticks == list(range(30))  # whatever the delay, tick t carries out the action for t
    assert base.asked in (8, 9)  # one question at a time; the ninth is on its way


@pytest.mark.parametrize("execute", [1, 4, 8])
@pytest.mark.parametrize("late", range(2, H))
def test_base_check_tells_that_one_late_answer_aborts_an_episode(
    base: Slow, execute: int, late: int
) -> None:
    schedule, questions = AsyncSchedule(base, execute=execute, ahead=1), set[int]()
    schedule.begin_episode()
    base.go.release()
    for tick in range(60):  # each answer takes a tick, and the fifth takes longer
        look(schedule, tick)
        questions.add(schedule._asked_tick)
        takes = late if len(questions) == 5 else 1
        if schedule._asked is not None and schedule._tick + 1 - schedule._asked_tick >= takes:
            answer(base, schedule)
        if schedule.problem:
            break
    base.go.release()
    schedule.close()
    period_s = 1.0 / TASK.spec.control_hz
    took_s = [0.5 * period_s] * 19 + [(late - 0.5) * period_s]
    found = latency_finding(took_s, period_s, H, SlowConfig(execute=execute), TASK.spec)
    assert found.fit is (Fit.UNSAID if schedule.problem else Fit.YES)
    assert ("1 of 20 answers came too late" in found.said) == bool(schedule.problem)


def test_the_next_chunk_is_asked_for_when_it_is_time(base: Slow) -> None:
    schedule = AsyncSchedule(base, execute=6, ahead=1, blend=0)
    schedule.begin_episode()
    base.go.release()
    look(schedule, 0)
    look(schedule, 1)  # asks at once, to know how long an answer takes
    answer(base, schedule)
    for tick in range(2, 7):  # the plan is of tick 1
        look(schedule, tick)
    assert base.asked == 2
    look(schedule, 7)
    time.sleep(0.05)
    assert base.asked == 3
    base.go.release()
    schedule.close()


def test_a_new_plan_replaces_the_old_one_gradually(base: Slow) -> None:
    schedule = AsyncSchedule(base, execute=1, ahead=1, blend=3, first_s=2.0)
    schedule.begin_episode()
    base.value = 0.0
    base.go.release()
    look(schedule, 0)
    base.value = 0.8
    look(schedule, 1)  # asks
    answer(base, schedule)
    got = [look(schedule, t) for t in range(2, 7)]
    assert got == [20, 40, 60, 80, 80]
    base.go.release()
    schedule.close()


def test_a_base_that_is_silent_too_long_is_a_problem_with_a_reason(
    base: Slow, schedule: AsyncSchedule
) -> None:
    schedule.begin_episode()
    base.go.release()
    for tick in range(H):
        assert look(schedule, tick) == tick and not schedule.problem
    look(schedule, H)
    assert "no answer for" in schedule.problem
    base.away = True
    answer(base, schedule)  # the answer is an error now
    assert "does not answer" in schedule.ready()
    base.away = False
    assert schedule.ready() == ""
    schedule.begin_episode()
    assert not schedule.problem
    base.go.release()
    assert look(schedule, 70) == 70


def test_an_error_is_asked_again_while_the_plan_lasts(base: Slow, schedule: AsyncSchedule) -> None:
    schedule.begin_episode()
    base.go.release()
    look(schedule, 0)
    base.away = True
    look(schedule, 1)
    answer(base, schedule)
    assert look(schedule, 2) == 2 and not schedule.problem
    base.away = False
    answer(base, schedule)
    assert look(schedule, 3) == 3 and not schedule.problem


def test_a_base_that_never_answers_its_first_question_stops_the_episode(base: Slow) -> None:
    schedule = AsyncSchedule(base, execute=1, ahead=1, first_s=0.2)
    schedule.begin_episode()
    began_s = time.monotonic()
    look(schedule, 0)
    assert schedule.problem and time.monotonic() - began_s < 5.0
    base.go.release()
    schedule.close()


def test_while_a_person_drives_fresh_plans_keep_coming(base: Slow) -> None:
    schedule = AsyncSchedule(base, execute=100, ahead=1, blend=2, first_s=2.0)
    schedule.begin_episode()
    base.go.release()
    look(schedule, 0)
    for tick in range(1, 9):
        schedule.interrupt()
        look(schedule, tick)
        answer(base, schedule)
    assert base.asked == 9  # not after 100 ticks: at once
    assert look(schedule, 9) == 9
    base.go.release()
    schedule.close()


# -- in the loop ---------------------------------------------------------------------------------


class Fails:
    """Answers `good` times, then its server is gone."""

    spec = BaseSpec(chunk=4, action_size=6)

    def __init__(self, good: int) -> None:
        self.good = good

    def reset(self) -> None:
        if self.good <= 0:
            raise LinkError("the server does not answer")

    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        self.good -= 1
        if self.good < 0:
            raise LinkError("the server does not answer")
        return np.zeros((4, 6), np.float32)


def runtime(base: Fails) -> PolicyRuntime:
    schedule = AsyncSchedule(base, execute=4, ahead=1, first_s=2.0, retry_s=0.0)
    config = ResFitConfig(hidden=(8,))
    return PolicyRuntime(config, TASK.spec.with_base(1), base=schedule)


def test_a_dead_server_ends_the_episode_and_not_one_row_is_learned_from() -> None:
    loop, _, rows = make_loop()
    loop.policy = policy = runtime(Fails(good=1))
    summary = loop.run_episode(start())
    steps = [r for r in rows if isinstance(r, Step)]
    assert summary.ending is Ending.ABORTED and summary.reason.startswith("base policy")
    assert 1 <= len(steps) <= 5 and steps[-1].ending is Ending.ABORTED
    assert all(np.isfinite(s.action).all() for s in steps)
    replay = Replay(TASK.spec.with_base(1), 100)
    replay.ingest(rows)
    assert not replay.can_sample
    assert "does not answer" in policy.ready()
    policy.close()


def test_without_a_first_plan_nothing_is_commanded() -> None:
    loop, robot, rows = make_loop()
    loop.policy = policy = runtime(Fails(good=0))
    before = robot.tcp
    summary = loop.run_episode(start())
    assert summary.ending is Ending.ABORTED and summary.steps == 0
    assert not [r for r in rows if isinstance(r, Step)] and robot.tcp is before
    policy.close()


def test_a_session_waits_for_the_base_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    from tests.support.session import make_session

    session, starts, _ = make_session()
    base = Fails(good=0)
    session.loop.policy = policy = runtime(base)  # type: ignore[misc]
    tries = []

    def on_stuck(error: RobotRLError) -> bool:
        tries.append(error.got)
        assert not starts  # no reset motion without a base
        if len(tries) == 3:
            base.good = 1000
        return True

    session.on_stuck = on_stuck
    session.episode("train", 0)
    assert tries == ["the server does not answer"] * 3 and len(starts) == 1
    session.on_stuck = lambda _error: False
    base.good = 0
    with pytest.raises(RobotRLError, match="not ready"):
        session.episode("train", 1)
    policy.close()


class Jittery:
    """A chunk of small steps after 30 ms, give or take 5."""

    spec = BaseSpec(chunk=30, action_size=6)

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def reset(self) -> None: ...

    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        time.sleep(float(self.rng.normal(0.030, 0.005)))
        side = self.rng.choice([-0.5, 0.5])
        return np.full((30, 6), side, np.float32)


def test_a_base_ten_times_slower_than_the_tick_delays_no_tick() -> None:
    """A tenth of the real thing's times: 300 ms and 50 ms at 20 Hz, 5 ms of work a tick allowed."""
    schedule = AsyncSchedule(Jittery(), execute=8, ahead=1, blend=2, first_s=2.0)
    schedule.begin_episode()
    period_s, spent, actions = 0.005, [], []
    next_s = time.monotonic()
    for tick in range(1000):
        began_s = time.perf_counter()
        seen = schedule.annotate({"tick": np.array([tick], np.float32)})
        spent.append(time.perf_counter() - began_s)
        actions.append(float(seen[BASE_ACTION][0, 0]))
        next_s = max(next_s + period_s, time.monotonic() - period_s)
        time.sleep(max(0.0, next_s - time.monotonic()))
        assert not schedule.problem
    assert np.percentile(spent[1:], 99) < period_s  # the first look waits for the first plan
    largest = np.abs(np.diff(actions)).max()
    assert largest <= 1.0 / 3 + 1e-6  # from -0.5 to 0.5 in three steps, never at once
    schedule.close()


def test_a_short_chunk_is_asked_for_early_enough() -> None:
    """Asking when all of a chunk is used up, as `execute` says, would be too late."""
    schedule = AsyncSchedule(Jittery(), execute=30, ahead=1, first_s=2.0)  # as long as the chunk
    schedule.begin_episode()
    for tick in range(150):
        schedule.annotate({"tick": np.array([tick], np.float32)})
        time.sleep(0.005)
        assert not schedule.problem, tick
    schedule.close()
