"""One action per control tick out of a base policy's chunks.

    begin_episode()   forget the last episode
    interrupt()       drop what was planned: somebody else drove
    annotate(obs)     -> {"base/action": [ahead, A]}, the next actions of the plan in force
    problem           why there is none ("" = there is); the episode then ends, and nothing moves

`annotate` is called once per tick, before anybody decides who drives; what it returns is recorded
with the frame, so that the learner sees what the base said at the time (asking again would give
another sample, and a served base is far too slow for that).

`ChunkSchedule` asks the base within the tick. `AsyncSchedule` asks a slower base beside the loop: a
chunk that was asked for at tick k and arrives d ticks later begins with its action d, the newest
plan is carried out until a newer one is here; the change may be blended over a few ticks.
(Real-time chunking, arXiv 2506.07339, inpaints instead; it did not pay: docs/results.md.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import RobotRLError, SpecError
from robot_rl.policy.base.mapping import SlowConfig, answer_of
from robot_rl.policy.base.spec import BaseConfig, BasePolicy
from robot_rl.spec import BASE_ACTION, BASE_AGE, BASE_NOISE, Spec
from robot_rl.types import Observation

log = logging.getLogger(__name__)

PAUSE_S = 2.0  # after a base failed within a tick, until an episode may begin again
T = TypeVar("T")
Chunk = NDArray[np.float32]
Choice = tuple[NDArray[np.float32], NDArray[np.float32]]
"""A decision [d] and the noise made from it; noise of shape [0] = the base draws its own."""
Choose = Callable[[Observation], Choice]


class Planner(Protocol):
    """What the policy runtime needs of a schedule; see the module docstring."""

    problem: str
    base: BasePolicy
    choose: Choose | None  # decides the noise of each chunk; see `PolicyRuntime`

    def ready(self) -> str:
        """Why no episode may begin, "" when one may. May take seconds."""
        ...

    def begin_episode(self) -> None:
        """Forget the last episode."""
        ...

    def interrupt(self) -> None:
        """Drop the plan: somebody else drives now."""
        ...

    def annotate(self, observation: Observation) -> Observation:
        """What the base would do in the next ticks."""
        ...

    def close(self) -> None:
        """End the thread or the connection that the schedule keeps, if it has one."""
        ...


def schedule_of(config: BaseConfig, spec: Spec, seed: int, *, real_time: bool) -> Planner:
    """Open the base of a config; on a simulated clock the loop waits even for a slow base.

    Raises:
        RobotRLError: as `BaseConfig.open`.
    """
    base = config.open(spec, seed)
    if real_time and isinstance(config, SlowConfig):
        return AsyncSchedule(base, execute=config.execute, ahead=config.ahead, blend=config.blend)
    return ChunkSchedule(base, execute=config.execute, ahead=config.ahead, goes_on=real_time)


class ChunkSchedule:
    """Asks the base within the tick.

    goes_on: a base that fails is a `problem`, as with `AsyncSchedule`, and no error.
    """

    def __init__(
        self, base: BasePolicy, *, execute: int, ahead: int, goes_on: bool = False
    ) -> None:
        self.problem, self._goes_on, self._not_before_s = "", goes_on, 0.0
        self.base, self._execute, self._ahead = base, execute, ahead
        self._plan: Chunk | None = None
        self._at = 0  # index into the plan
        self.choose: Choose | None = None
        self._choice = _NO_CHOICE

    def ready(self) -> str:
        """Why no episode may begin just now: the base failed a moment ago; else ""."""
        return self.problem if time.monotonic() < self._not_before_s else ""

    def begin_episode(self) -> None:
        """Forget the last episode."""
        self.problem = ""
        try:
            _answered(self.base.reset)
        except RobotRLError as error:
            self._fail(error)
        self.interrupt()

    def interrupt(self) -> None:
        """Drop the plan, so that the next `annotate` asks the base again."""
        self._plan = None

    def annotate(self, observation: Observation) -> Observation:
        """What the base would do in the next ticks, one tick after the last call.

        Raises:
            RobotRLError: the base failed, or its chunk has another shape or is not finite; unless
                the schedule `goes_on`. Such a chunk is never executed.
        """
        try:
            return self._annotated(observation)
        except RobotRLError as error:
            self._fail(error)
        nothing = np.zeros((self._ahead, self.base.spec.action_size), np.float32)
        seen = {BASE_ACTION: nothing}
        return seen | (_said(self.choose(observation), 1) if self.choose else {})

    def _fail(self, error: RobotRLError) -> None:
        if not self._goes_on:
            raise error
        self._plan, self.problem = None, f"base policy: {error.summary}"
        self._not_before_s = time.monotonic() + PAUSE_S
        log.warning("base policy: %s", error)

    def _annotated(self, observation: Observation) -> Observation:
        self._at += 1
        if (
            self._plan is None
            or self._at >= self._execute
            or self._at + self._ahead > len(self._plan)
        ):
            self._choice = self.choose(observation) if self.choose else _NO_CHOICE
            self._plan, self._at = _sample(self.base, observation, self._choice), 0
        seen = {BASE_ACTION: self._plan[self._at : self._at + self._ahead]}
        return seen | (_said(self._choice, self._at) if self.choose else {})

    def close(self) -> None:
        """Nothing to close."""


def checked(base: BasePolicy, chunk: NDArray) -> Chunk:
    """A chunk float32 [H, A] within [-1, 1].

    Raises:
        SpecError: it has another shape, or is not finite.
    """
    want = (base.spec.chunk, base.spec.action_size)
    if chunk.shape != want or not np.isfinite(chunk).all():
        raise SpecError(
            "the base policy's chunk cannot be used",
            expected=f"finite float32 {list(want)}",
            got=f"{list(chunk.shape)}, finite: {bool(np.isfinite(chunk).all())}",
            fix="check that the base was made for this task and its action",
        )
    return np.clip(chunk, -1.0, 1.0).astype(np.float32)


_NO_CHOICE: Choice = (np.zeros(0, np.float32), np.zeros(0, np.float32))


def _sample(base: BasePolicy, observation: Observation, choice: Choice) -> Chunk:
    """A checked chunk, from the noise that was chosen."""
    noise = choice[1] if choice[1].size else None
    return _answered(lambda: checked(base, base.sample(observation, noise)))


def _answered(ask: Callable[[], T]) -> T:
    """What a base answers; whatever it raises is an error of ours. Raises `RobotRLError`."""
    with answer_of("the base policy"):
        return ask()


def _said(choice: Choice, age: int) -> Observation:
    """What a frame records of a choice; where nobody chose the noise, the age is at least 1."""
    decided = age if choice[1].size else age + 1
    return {BASE_NOISE: choice[0], BASE_AGE: np.array([decided], np.float32)}


@dataclass(frozen=True, slots=True)
class _Plan:
    """A chunk whose first action belongs to tick `tick`, and the choice that it came from."""

    chunk: Chunk
    tick: int
    choice: Choice = _NO_CHOICE

    def at(self, tick: int) -> Chunk | None:
        """The action of a tick, None beyond the end."""
        index = tick - self.tick
        return self.chunk[index] if 0 <= index < len(self.chunk) else None


def longest_answer_ticks(chunk: int, ahead: int) -> int:
    """How many ticks every answer may take so that the plan of an `AsyncSchedule` never runs out.

    A plan begins in the tick in which it was asked for; it arrives d ticks later, when the next one
    is asked for, and has to last until that one arrives: 2 d ticks, less the one that is replaced.
    """
    return max(0, (chunk - ahead + 1) // 2)


class AsyncSchedule:
    """Asks the base beside the loop; see the module docstring.

    Args:
        execute: ticks after which a newer chunk is asked for; earlier where answers take long.
        ahead: actions recorded with each frame.
        blend: ticks over which the change from one chunk to the next is spread.
        first_s: how long the first `annotate` of an episode may wait; nothing has moved yet.
        retry_s: pause after an answer that was an error.
    """

    def __init__(
        self,
        base: BasePolicy,
        *,
        execute: int,
        ahead: int,
        blend: int = 0,
        first_s: float = 10.0,
        retry_s: float = 0.2,
    ) -> None:
        self.base, self._execute, self._ahead, self._blend = base, execute, ahead, blend
        self._first_s, self._retry_s = first_s, retry_s
        self._pool = ThreadPoolExecutor(1, "base policy")  # one question at a time, in order
        self.choose: Choose | None = None
        self._asked: Future[Chunk] | None = None
        self._choice = _NO_CHOICE  # of the question on its way
        self._asked_tick = self._tick = 0
        self._asked_s = self._answered_s = self._not_before_s = 0.0
        self._plan: _Plan | None = None
        self._old: _Plan | None = None  # what the newest one replaced, and since when
        self._since = 0
        self._hurry = False
        self._answer_ticks: int | None = None  # how long answers took lately; None = not known yet
        self._failure = ""
        self.problem = ""
        self.latency_s = 0.0  # of the newest answer

    def ready(self) -> str:
        """Reset the base policy; return why that fails, "" if it does not."""
        try:
            self._pool.submit(_answered, self.base.reset).result(self._first_s)
        except RobotRLError as error:
            return error.summary
        except NotYet:
            return f"the base policy has not answered for {self._first_s:.0f} s"
        return ""

    def begin_episode(self) -> None:
        """Drop every plan, also the one that was asked for and has not arrived."""
        self._asked = self._plan = self._old = None
        self._failure = self.problem = ""
        self._not_before_s = 0.0

    def interrupt(self) -> None:
        """Ask again as soon as an answer is here, so that the next driver gets a fresh plan."""
        self._hurry, self._old = True, None

    def annotate(self, observation: Observation) -> Observation:
        """What the base would do in the next ticks; with a `problem`, zeros for what is not known.

        Waits in the first tick of an episode only.
        """
        self._tick += 1
        self._collect(0.0)
        if (
            self._asked is None
            and (self._is_time() or self._hurry)
            and time.monotonic() >= self._not_before_s
        ):
            self._ask(observation)
        if self._plan is None and self._asked is not None:
            self._collect(self._first_s)
        self._hurry = False
        actions = [self._action(self._tick + k) for k in range(self._ahead)]
        if any(action is None for action in actions):
            silent_s = time.monotonic() - max(self._answered_s, self._asked_s)
            self.problem = "base policy: " + (self._failure or f"no answer for {silent_s:.1f} s")
            nothing = np.zeros(self.base.spec.action_size, np.float32)
            actions = [nothing if action is None else action for action in actions]
        seen = {BASE_ACTION: np.stack([a for a in actions if a is not None])}
        if self.choose is None:
            return seen
        if self._plan is None:
            return seen | _said(self.choose(observation), 1)
        return seen | _said(self._plan.choice, self._tick - self._since)

    def _is_time(self) -> bool:
        """Whether to ask now: after `execute` ticks, or in time before the plan runs out."""
        if self._plan is None or self._answer_ticks is None:
            return True
        at = self._tick - self._plan.tick
        left = len(self._plan.chunk) - self._ahead - at
        return at >= self._execute or left <= self._answer_ticks + 1

    def close(self) -> None:
        """End the thread; an answer on its way is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, observation: Observation) -> None:
        choice = self.choose(observation) if self.choose else _NO_CHOICE
        self._choice = choice
        self._asked = self._pool.submit(lambda: _sample(self.base, observation, choice))
        self._asked_tick, self._asked_s = self._tick, time.monotonic()

    def _collect(self, wait_s: float) -> None:
        """Take the answer if it is here within `wait_s`."""
        asked = self._asked
        if asked is None or (not wait_s and not asked.done()):
            return
        try:
            chunk = asked.result(wait_s)
        except NotYet:
            return
        except RobotRLError as error:
            self._asked, self._failure = None, error.summary
            self._not_before_s = time.monotonic() + self._retry_s
            log.warning("base policy: %s", error)
            return
        self._asked, self._failure = None, ""
        self._answered_s = time.monotonic()
        self.latency_s = self._answered_s - self._asked_s
        if not wait_s:  # no tick passes while the first look waits
            took = self._tick - self._asked_tick
            self._answer_ticks = max(took, (self._answer_ticks or 0) - 1)
        self._old, self._since = (None if self._hurry else self._plan), self._tick
        self._plan = _Plan(chunk, self._asked_tick, self._choice)

    def _action(self, tick: int) -> Chunk | None:
        """Action for a tick: the newest plan's, blended with the plan before; None = no action."""
        new = self._plan.at(tick) if self._plan is not None else None
        old = self._old.at(tick) if self._old is not None else None
        if new is None or old is None or tick - self._since >= self._blend:
            return new
        share = np.float32((tick - self._since + 1) / (self._blend + 1))
        return (old + share * (new - old)).astype(np.float32)
