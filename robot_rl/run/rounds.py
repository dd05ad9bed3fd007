"""Episodes without a learner, on a robot or in lockstep: recorded by day, counted from the stores.

`Side` is where the episodes run; `Rounds` runs one after another. `run.deploy` and `run.compare`
decide which.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from robot_rl.config.run_folder import METRICS
from robot_rl.control.loop import ControlLoop, Policy
from robot_rl.control.session import ACTOR
from robot_rl.control.summary import EpisodeSummary
from robot_rl.errors import RobotRLError, SetupError, StoreError
from robot_rl.learn.metrics import MetricSink
from robot_rl.operate.devices import make_operator
from robot_rl.ports import ActorPorts, RewardResult, RewardSource
from robot_rl.report.tally import Ledger, Tally
from robot_rl.reward.predicate import PredicateReward
from robot_rl.reward.vlm.source import VlmReward
from robot_rl.run.lockstep import Rig, make_rig
from robot_rl.run.parts import scene_log, session_of
from robot_rl.run.robot_side import Starts, loop_on
from robot_rl.store.cycles import ENDED
from robot_rl.store.daily import DailyStore
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, EpisodeStart, Event, Observation, RobotState

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

Watch = Callable[[dict[str, Any]], None]
"""Receives the line of figures of each episode."""

LABELLED_DAYS = 2  # whose episodes a model may still be asked about


class Unsaid(RewardSource):
    """Leaves open how an episode ended where the task's state cannot tell and nobody has said it.

    In training such an episode counts as no success; here it is unlabelled, which is no failure.
    """

    def __init__(self, rule: PredicateReward | VlmReward) -> None:
        self._rule = rule

    def begin_episode(self, purpose: str) -> None:
        """See `ports.RewardSource`."""
        self._rule.begin_episode(purpose)

    def score(self, state: RobotState, observation: Observation) -> RewardResult:
        """See `ports.RewardSource`."""
        said = self._rule.score(state, observation)
        open_ = not self._rule.knows and not said.terminated
        return replace(said, success=None, reward=None) if open_ else said


def reward_of(experiment: Experiment) -> RewardSource:
    """Who says how an episode ended: the run's source of rewards; see `Unsaid`."""
    source = experiment.reward.open(experiment.task)
    return Unsaid(source) if isinstance(source, PredicateReward | VlmReward) else source


@dataclass(frozen=True, kw_only=True)
class Side:
    """Where episodes run.

    reset: puts the robot at the start of an episode; ask: shows words to a person and waits until
    they say "ready", None where there is nobody; retry: whether a failed start is tried again;
    figures: of the runtime, for each line.
    """

    loop: ControlLoop
    reset: Callable[[Any, EpisodeStart], None]
    ask: Callable[[str], None] | None
    retry: Callable[[RobotRLError], bool]
    stopping: Callable[[], str]
    figures: Callable[[], dict[str, float]] = dict


class Recording:
    """The stores of a deployment's folder, what they say, and the models that label them.

    Args:
        background: a thread commits, so that no tick waits for the disk.
        now_s: seconds since 1970, UTC; names the files of the days.
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        background: bool = False,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.run, self._reward = experiment.run_name, experiment.reward
        self.now_s = now_s
        self.scenes = scene_log(experiment)
        self._stack = ExitStack()
        self._labelling: list[ExitStack] = []
        self.store = DailyStore(
            experiment.run_dir,
            experiment.spec,
            background=background,
            now_s=now_s,
            after=self.scenes.flush,
        )
        self._stack.callback(self.store.close)
        self.store.recover(self.run, ACTOR)
        self.ledger = Ledger(experiment.run_dir, self.run, ACTOR)
        self._stack.callback(self.ledger.close)
        self._label()

    def tally(self) -> Tally:
        """What is recorded until now."""
        self.store.flush()
        return self.ledger.read()

    def turn(self) -> None:
        """Between episodes: room on the disk, and a new file on a new day.

        Raises:
            SetupError: too little disk space; to start again would not help.
        """
        self.scenes.flush()
        try:
            if self.store.turn():
                self._label()
        except StoreError as error:
            raise SetupError(
                error.summary, expected=error.expected, got=error.got, fix=error.fix
            ) from error

    def note(self, id_: EpisodeId, step: int, name: str, detail: str = "") -> None:
        """Record an event beside the steps of an episode that has ended, in the file of its day."""
        self.store.flush()
        with self.store.holding(id_) as store:
            number = len(store.events(id_))
            store.append([Event(id_, number, step, name, detail[:1000], time.time_ns())])

    def close(self) -> None:
        """Commit what waits and close everything."""
        for labelling in self._labelling:
            labelling.close()
        self._stack.close()
        self.scenes.flush()

    def _label(self) -> None:
        """Let the source of rewards label today's store where it does so beside the loop."""
        while len(self._labelling) >= LABELLED_DAYS:
            self._labelling.pop(0).close()
        with ExitStack() as opened:
            store = opened.enter_context(Store(self.store.path))
            opened.enter_context(self._reward.beside(store))
            self._labelling.append(opened.pop_all())


class _Noted:
    """A loop that also records in words why each episode ended."""

    def __init__(self, loop: ControlLoop, recording: Recording) -> None:
        self.loop, self._recording = loop, recording

    @property
    def task(self) -> Any:
        """The loop's."""
        return self.loop.task

    @property
    def policy(self) -> Policy:
        """The loop's, at the moment."""
        return self.loop.policy

    def run_episode(self, start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        """See `ControlLoop`."""
        summary = self.loop.run_episode(start, deterministic=deterministic)
        if summary.steps or summary.ending is not Ending.STALE:
            reason = summary.reason or _in_words(summary)
            self._recording.note(start.id, summary.steps - 1, ENDED, reason)
        return summary


def _in_words(summary: EpisodeSummary) -> str:
    if summary.success:
        return "success"
    return "time limit" if summary.ending is Ending.TRUNCATED else "the task is lost"


class _Told:
    """`Metrics` that adds the figures of the stores to each line, and passes it on."""

    def __init__(
        self, sink: MetricSink, add: Callable[[], Mapping[str, Any]], watch: Watch
    ) -> None:
        self._sink, self._add, self._watch = sink, add, watch
        self.hidden: tuple[str, ...] = ("progress", "time_left_s")  # of a training

    def write(self, env_steps: int, values: dict[str, float], **text: str) -> None:
        """Append one line."""
        more = self._add()
        kept = {k: v for k, v in values.items() if not k.startswith(self.hidden)}
        numbers = {k: float(v) for k, v in more.items() if isinstance(v, int | float)}
        words = {k: v for k, v in more.items() if isinstance(v, str)}
        self._sink.write(env_steps, kept | numbers, **text, **words)
        self._watch(kept | numbers | text | words)


class Rounds:
    """Runs episodes and lets the figures of each be told.

    Args:
        add: figures and words for each line, after the episode has been recorded.
        watch: gets each line, where no other process reads them.
    """

    def __init__(
        self,
        experiment: Experiment,
        side: Side,
        recording: Recording,
        add: Callable[[], Mapping[str, Any]],
        watch: Watch = lambda _line: None,
    ) -> None:
        self.recording, self._side = recording, side
        self._sink = MetricSink(experiment.run_dir / METRICS)
        self.told = _Told(self._sink, add, watch)
        self.session = session_of(
            experiment,
            _Noted(side.loop, recording),
            side.reset,
            metrics=self.told,
            before_episode=self._between,
            figures=side.figures,
            on_stuck=side.retry,
            stopping=side.stopping,
        )
        self.session.progress.next_episode = recording.store.next_episode(recording.run, ACTOR)

    @property
    def next_episode(self) -> int:
        """Number of the next episode."""
        return self.session.progress.next_episode

    def one(self, purpose: str, seed: int, *, deterministic: bool = True) -> EpisodeSummary:
        """Reset and run one episode. Raises as `Session.episode` and `Recording.turn`."""
        return self.session.episode(purpose, seed, deterministic=deterministic)

    def close(self) -> None:
        """Close the file of figures."""
        self._sink.close()

    def _between(self) -> None:
        self.recording.turn()
        if not gc.isenabled():  # in real time: here, so that it never happens in a tick
            gc.collect()


def robot_side(
    experiment: Experiment,
    ports: ActorPorts,
    policy: Policy,
    recording: Recording,
    placed: Callable[[], None] = lambda: None,
) -> Side:
    """Episodes on the ports of an actor process. placed: see `Starts`."""
    loop = loop_on(
        experiment,
        ports,
        policy,
        recording.store.record,
        reward_of(experiment),
        on_frame=recording.scenes.saw,
    )
    starts = Starts(ports, loop, placed)
    figures: Callable[[], dict[str, float]] = lambda: {  # noqa: E731
        "store/lag": float(recording.store.lag()),
        **ports.figures(),
    }
    return Side(
        loop=loop,
        reset=starts,
        ask=ports.ask,
        retry=starts.retry,
        stopping=ports.stopping,
        figures=figures,
    )


@contextmanager
def lockstep_side(
    experiment: Experiment,
    policy: Policy,
    recording: Recording,
    placed: Callable[[], None] = lambda: None,
    stopping: Callable[[], str] = lambda: "",
) -> Iterator[Side]:
    """Episodes in a simulator in this process, as fast as they go; nobody can be asked."""
    rig = make_rig(
        experiment,
        policy,
        record=recording.store.record,
        operator=make_operator(experiment.operator, experiment.task),
        on_frame=recording.scenes.saw,
        stopping=stopping,
    )
    assert isinstance(rig, Rig)  # a Gymnasium environment was refused
    rig.loop.reward = reward_of(experiment)

    def reset(plan: Any, start: EpisodeStart) -> None:
        rig.reset(plan, start)
        placed()

    yield Side(loop=rig.loop, reset=reset, ask=None, retry=lambda _error: False, stopping=stopping)
