"""A session teaches one skill: demonstrations -> practice with corrections -> evaluation.

The same phases run in lockstep and over ROS 2, and every phase continues from the store: kill the
actor at any moment, start it again, and it goes on with the next episode of the same phase.

    demos      the person drives whole episodes until `train.demos` of them have succeeded
    practice   the policy drives, the person corrects, until the skill is mastered or time is up.
               Mastered = an exam of deterministic, unaided episodes is passed (`mastery`); one is
               held every `exam_every_steps`, once nearly all recent episodes needed no help
    evaluation deterministic and stochastic episodes on held-out seeds, nobody helps
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from robot_rl.control import mastery
from robot_rl.control.loop import Policy
from robot_rl.control.statistics import wilson
from robot_rl.control.summary import EpisodeSummary
from robot_rl.errors import RobotRLError
from robot_rl.operate.scripted import NoOperator, ScriptedOperator
from robot_rl.ports import ResetPlan
from robot_rl.spec import Spec
from robot_rl.types import ONLY_ACTOR, Ending, EpisodeId, EpisodeStart

log = logging.getLogger(__name__)

ACTOR = ONLY_ACTOR  # identity of this robot's rows in the store
EXAM_RETRIES = 30  # aborted episodes of an exam that are run again
EVAL_TRIES = (
    4  # of one start: where the gate stops a policy each time, that is what the policy does
)
WINDOW = 20  # episodes in "success over the last 20", the figure operators watch
FEWEST = 5  # of them, where several arms share the window
EVAL_SEED = 1_000_000  # evaluation and exam starts never coincide with practice starts
EXAM_SEED = 2_000_000
FAILED_DEMOS = 25  # in a row: a poor operator succeeds now and then, with a broken reward nobody
UNJUDGED = 3  # in a row: a rule that raises in each episode will not mend itself
PAUSED_S = 0.2  # between two looks at whether a pause has ended
EXAM_AUTONOMY = 0.9  # share of recent episodes without help before an exam is worth its time
REMEMBERED = ("next_exam", "practice_s", "trained_s", "mastered", "mastered_steps")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """When a session moves on and when it ends. An env step is one control tick of practice."""

    demos: int = 20  # HIL-SERL records about 20 per task; 0 = learn without
    dataset: str = ""  # run folder or store whose episodes are learned from as well, offline
    dataset_successes: bool = False  # only those that succeeded
    max_env_steps: int = 20_000  # at 10 Hz, 600 are a minute of robot time
    max_minutes: float = 15.0  # wall time of practice, exams included
    min_env_steps: int = 1_000  # no exam before
    exam_every_steps: int = 500  # the next exam needs something new learned
    target_success: float = 0.95  # an exam ends practice when its interval lies above this
    exam_failures: int = 1  # more, and an exam is failed; how often exams err: robot-rl bench exam
    eval_episodes: int = 100  # 95 of 100 has a Wilson interval of about +-4 points
    stochastic_eval_episodes: int = 50  # how much exploration noise costs
    video: bool = True  # film a few episodes at the end

    def __post_init__(self) -> None:
        """Check ranges."""
        for name in ("demos", "max_env_steps", "min_env_steps", "stochastic_eval_episodes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.eval_episodes < 1 or self.exam_failures < 0:
            raise ValueError("eval_episodes must be at least 1, exam_failures not negative")
        if self.max_minutes <= 0 or not 0.0 < self.target_success < 1.0:
            raise ValueError("max_minutes must be positive, target_success in (0, 1)")


class Metrics(Protocol):
    """Where figures go; `learn.metrics.MetricSink`."""

    def write(self, env_steps: int, values: dict[str, float], **text: str) -> None:
        """Append one line."""
        ...


class SessionLoop(Protocol):
    """What runs the episodes: `control.loop.ControlLoop`, or a wrapper around one."""

    @property
    def task(self) -> Any:
        """`ports.Task` or `tasks.gym.GymTask`; a session uses `name`, `spec` and `sample_reset`."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy that drives when nobody else does."""
        ...

    def run_episode(self, start: EpisodeStart, *, deterministic: bool = False) -> EpisodeSummary:
        """Drive one episode; a reset has been done."""
        ...


@dataclass(frozen=True, slots=True)
class Others:
    """What the learner says of a run's other arms; of one arm there are none.

    env_steps: practice steps of the whole run that have reached the learner; mastered: another arm
    has passed its exam.
    """

    env_steps: int = 0
    mastered: bool = False


class SessionStore(Protocol):
    """The part of `store.Store` that a session needs."""

    def meta(self, key: str) -> Any:
        """A value kept with the store, or None."""
        ...

    def set_meta(self, key: str, value: Any) -> None:
        """Keep a JSON value under a key, across restarts."""
        ...

    def episode_summaries(self, run: str, actor: str) -> Iterable[Any]:
        """Summaries in order: id, purpose, steps, human_steps, ending, success."""
        ...


@dataclass(slots=True)
class SessionProgress:
    """What the store already holds of this run; a restarted actor continues from it."""

    next_episode: int = 0
    demos: int = 0
    env_steps: int = 0  # practice steps only
    human_steps: int = 0
    next_exam: int = 0
    practice_s: float = 0.0  # wall time spent practising, restarts included
    trained_s: float = 0.0  # the same with demonstrations and all between
    mastered: bool = False
    mastered_steps: int = 0  # practice steps of the run when the exam began that was passed
    recent: deque[tuple[bool, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def success_rate(self) -> float:
        """Success over the last `WINDOW` practice episodes."""
        return float(np.mean([s for s, _ in self.recent])) if self.recent else 0.0

    def autonomy(self, last: int = WINDOW) -> float:
        """Share of the `last` practice episodes that succeeded without a human step."""
        alone = [s and r == 0.0 for s, r in self.recent][-last:]
        return float(np.mean(alone)) if alone else 0.0

    @property
    def intervention_rate(self) -> float:
        """Mean share of human steps in the last `WINDOW` practice episodes."""
        return float(np.mean([r for _, r in self.recent])) if self.recent else 0.0


def restore_progress(store: SessionStore, run: str, actor: str) -> SessionProgress:
    """Rebuild what a session needs from the store, so that a restart continues where it was."""
    progress = SessionProgress(**(store.meta("session") or {}))
    progress.trained_s = max(progress.trained_s, progress.practice_s)  # of an older run
    for episode in store.episode_summaries(run, actor):
        progress.next_episode = max(progress.next_episode, episode.id.episode + 1)
        if (
            episode.purpose == "train"
        ):  # cut short or not, its steps were practised and learned from
            progress.env_steps += episode.steps
            progress.human_steps += episode.human_steps
        if episode.ending in (None, Ending.ABORTED, Ending.STALE):
            continue
        if episode.purpose == "demo":
            progress.demos += bool(episode.success)
        if episode.purpose == "train":
            progress.recent.append((bool(episode.success), episode.human_steps / episode.steps))
    return progress


@dataclass(slots=True)
class EvalResult:
    """Outcome of an evaluation: one entry per episode."""

    successes: list[bool] = field(default_factory=list)
    cycle_times_s: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    jerks: list[float] = field(default_factory=list)  # of episodes long enough to have one
    success_known: bool = True  # False: nobody says what success is; only the return counts

    def as_dict(self) -> dict[str, Any]:
        """Figures with their 95 % Wilson interval; cycle time over successful episodes."""
        wins, episodes = sum(self.successes), len(self.successes)
        low, high = wilson(wins, episodes)
        times = [t for t, ok in zip(self.cycle_times_s, self.successes, strict=True) if ok]
        return {
            "successes": wins,
            "episodes": episodes,
            "success": wins / max(episodes, 1),
            "wilson_low": low,
            "wilson_high": high,
            "cycle_time_s_mean": float(np.mean(times)) if times else None,
            "cycle_time_s_std": float(np.std(times)) if times else None,
            "action_jerk": float(np.mean(self.jerks)) if self.jerks else None,
            "success_known": self.success_known,
            "return_mean": float(np.mean(self.returns)) if self.returns else None,
            "return_std": float(np.std(self.returns)) if self.returns else None,
        }


class Session:
    """Runs the phases. `reset` puts the robot at a plan's start, armed; `adopt` takes new weights.

    Args:
        run: name of the run, in the identity of its rows; spec: of the rows.
        limits_hash: hash of the limits that the gate enforces.
        figures: more figures for each episode's line (age of weights, queues).
        stopping: non-empty reason = stop now (operator, SIGTERM); polled between episodes.
        paused: while it says True no episode begins; polled between episodes.
        store: holds the run's episodes; with a store, a restarted session goes on where it was.
        on_stuck: called with the error when a reset fails; returns True to try again.
        arms: how many arms practise; one looks at its share of the run's newest episodes.
        others: asked for what the other arms on this learner have done.
        free_from: asked for the first episode number that nobody else knows as used.
    """

    def __init__(
        self,
        loop: SessionLoop,
        reset: Callable[[Any, EpisodeStart], None],
        train: TrainConfig,
        *,
        run: str,
        seed: int,
        spec: Spec,
        limits_hash: str,
        metrics: Metrics,
        store: SessionStore | None = None,
        actor: str = ACTOR,
        before_episode: Callable[[], None] = lambda: None,
        on_episode: Callable[[dict[str, Any]], None] = lambda _stats: None,
        figures: Callable[[], dict[str, float]] = dict,
        on_stuck: Callable[[RobotRLError], bool] = lambda _error: False,
        stopping: Callable[[], str] = lambda: "",
        paused: Callable[[], bool] = lambda: False,
        arms: int = 1,
        others: Callable[[], Others] = Others,
        free_from: Callable[[], int] = lambda: 0,
    ) -> None:
        self._others, self._window = others, max(WINDOW // arms, FEWEST)
        self.loop, self.reset, self.store, self.metrics = loop, reset, store, metrics
        self.train, self.seed, self.spec, self.limits_hash = train, seed, spec, limits_hash
        self.run_name, self.actor = run, actor
        self.progress = (
            restore_progress(store, self.run_name, actor) if store else SessionProgress()
        )
        self._opened_s = time.monotonic() - self.progress.trained_s
        self.progress.next_exam = max(self.progress.next_exam, self.train.min_env_steps)
        self.before_episode, self.on_stuck, self.stopping = before_episode, on_stuck, stopping
        self.on_episode, self.figures, self._free_from = on_episode, figures, free_from
        self._paused = paused
        self._judged: dict[str, float] = {}  # which episode of an evaluation it is
        self.state = "demos"  # | practice | exam | evaluation | evaluation with noise
        self._unjudged = 0  # episodes in a row whose rule or reward raised
        self.purpose = ""  # of the episode that runs, or ran last
        self._start: dict[str, float] = {}  # of that episode
        self._began_s, self._end_s = 0.0, math.inf  # of practice, on the monotonic clock

    @property
    def env_steps(self) -> int:
        """Practice steps of the run, those of other arms included."""
        return max(self.progress.env_steps, self._others().env_steps)

    @property
    def mastered(self) -> bool:
        """Whether an exam was passed, by this arm or by another."""
        return self.progress.mastered or self._others().mastered

    def episode(self, purpose: str, seed: int, *, deterministic: bool = False) -> EpisodeSummary:
        """Reset and run one episode; a reset that fails is retried while `on_stuck` agrees.

        Raises:
            RobotRLError: the task's rule or the reward raised in `UNJUDGED` episodes in a row, or a
                start failed for good.
        """
        plan = self.loop.task.sample_reset(np.random.default_rng((self.seed, seed)))
        self._start = start_figures(plan)
        self.progress.next_episode = max(self.progress.next_episode, self._free_from())
        start = EpisodeStart(
            id=EpisodeId(self.run_name, self.actor, self.progress.next_episode),
            purpose=purpose,
            task=self.loop.task.name,
            spec_hash=self.spec.hash,
            limits_hash=self.limits_hash,
            seed=seed,
            stamp_ns=time.time_ns(),
        )
        self.purpose = purpose
        self.before_episode()
        while True:
            try:
                self._await_policy()
                self.reset(plan, start)
            except RobotRLError as error:
                if self.stopping() or not self.on_stuck(error):
                    raise
                continue
            summary = self.loop.run_episode(start, deterministic=deterministic)
            if summary.steps or summary.ending is not Ending.STALE:
                break
            error = _blind(summary.reason)  # before the first step: nothing was recorded
            if self.stopping() or not self.on_stuck(error):
                raise error
        if not summary.begun:
            log.info("%s %d: not begun (%s)", purpose, start.id.episode, summary.reason)
            return summary
        self.progress.next_episode += 1
        self._log(summary)
        self._unjudged = self._unjudged + 1 if summary.unjudged else 0
        if self._unjudged == UNJUDGED:
            raise RobotRLError(
                "no episode can be judged",
                expected="a rule of success and a reward that answer in every moment",
                got=f"{summary.unjudged}, in {UNJUDGED} episodes in a row",
                fix="mend the task or the reward; the run goes on where it was (the log has more)",
            )
        return summary

    def _stops(self) -> str:
        """Why no episode begins any more, "" = one may begin; waits while the run is paused.

        A pause is no time of practice.
        """
        if self._paused() and not self.stopping():
            log.info("paused: no episode begins until `robot-rl pause RUN --end`")
            since_s = time.monotonic()
            while self._paused() and not self.stopping():
                time.sleep(PAUSED_S)
            waited_s = time.monotonic() - since_s
            self._began_s += waited_s
            self._end_s += waited_s
            log.info("the pause has ended after %.0f s", waited_s)
        return self.stopping()

    def _await_policy(self) -> None:
        """Raise `RobotRLError` if the policy cannot drive now: the robot need not move for that."""
        problem = self.loop.policy.ready()
        if problem:
            expected = "a base policy that answers"
            fix = "start its server again; the session goes on by itself where it waits"
            if getattr(self.loop.policy, "refused", None) is not None:  # the run's own network
                expected = "a network whose actions are numbers"
                fix = "mend the network, or a lower algo.learning_rate (the log has more)"
            raise RobotRLError("the policy is not ready", expected=expected, got=problem, fix=fix)

    def demos(self) -> None:
        """Record demonstrations until enough have succeeded.

        Raises:
            RobotRLError: `FAILED_DEMOS` tries in a row failed, or nobody says whether one did.
        """
        self.state, failed = "demos", 0
        while self.progress.demos < self.train.demos and not self._stops():
            if failed == FAILED_DEMOS:
                raise RobotRLError(
                    "the demonstrations keep failing",
                    expected=f"{self.train.demos} successful demonstrations",
                    got=f"{self.progress.demos}, and {failed} failed tries in a row",
                    fix="check the reward, the task and the operator (operator.skill); "
                    "operator=none demonstrates nothing and needs train.demos=0",
                )
            summary = self.episode("demo", self.progress.next_episode)
            if self._is_unsaid(summary):
                raise RobotRLError(
                    "nobody says whether a demonstration succeeded",
                    expected="success in the environment's last info, or a return that is one",
                    got=f"a return of {summary.total_reward:g}, and no word of success",
                    fix="task.success_return=... or task.success_key=..., in a new run_dir "
                    "(docs/gym.md)",
                )
            self.progress.demos += summary.success
            failed = 0 if summary.success else failed + summary.begun
            self.remember()

    def _is_unsaid(self, summary: EpisodeSummary) -> bool:
        """Whether an episode came to its end, and neither the task nor a person can judge it."""
        over = summary.ending in (Ending.TERMINATED, Ending.TRUNCATED)
        operator = getattr(self.loop, "operator", None)
        nobody = isinstance(operator, NoOperator | ScriptedOperator)  # they cannot say it
        return over and nobody and not summary.success_known

    def practice(self) -> None:
        """Let the policy drive and the person correct until mastered, or the budget is spent."""
        progress, train = self.progress, self.train
        self._began_s = time.monotonic() - progress.practice_s
        self._end_s = self._began_s + 60 * train.max_minutes
        while self.env_steps < train.max_env_steps and not self.mastered:
            stops = self._stops()
            progress.practice_s = time.monotonic() - self._began_s
            if stops or time.monotonic() > self._end_s:
                return
            self.state = "practice"
            summary = self.episode("train", progress.next_episode)
            progress.env_steps += summary.steps
            progress.human_steps += summary.human_steps
            if summary.ending not in (Ending.ABORTED, Ending.STALE):
                progress.recent.append((summary.success, summary.human_steps / summary.steps))
            alone = progress.autonomy(self._window)
            if self.env_steps >= progress.next_exam and alone >= EXAM_AUTONOMY:
                self._exam()
            self.remember()

    def remember(self) -> float:
        """Keep what the store's rows do not tell; return the training's wall time until now (s)."""
        self.progress.trained_s = time.monotonic() - self._opened_s
        if self.store:
            self.store.set_meta("session", {k: getattr(self.progress, k) for k in REMEMBERED})
        return self.progress.trained_s

    def _exam(self) -> None:
        """Hold an exam: unaided, deterministic, on starts never seen before.

        An exam that is undecided when the time for practice is up ends there and is not passed: the
        evaluation that follows says what the policy is worth. One that somebody stops says nothing:
        whoever goes on holds it again.
        """
        progress, train = self.progress, self.train
        steps = self.env_steps
        seed = EXAM_SEED + steps  # other starts each time
        self.state = "exam"
        exam = self.evaluate(None, seed, decide=self._decide)
        if self.stopping():
            return
        wins, held = sum(exam.successes), len(exam.successes)
        progress.mastered = bool(self._decide(exam))
        progress.mastered_steps = steps if progress.mastered else 0
        progress.next_exam = steps + train.exam_every_steps
        self.metrics.write(steps, {"exam/success": wins / max(held, 1)})
        word = "passed" if progress.mastered else "not passed"
        log.info("exam after %d steps: %d of %d, %s", steps, wins, held, word)

    def _decide(self, exam: EvalResult) -> bool | None:
        """Whether an exam is passed; None = it goes on."""
        wins = sum(exam.successes)
        failures = len(exam.successes) - wins
        verdict = mastery.decide(
            wins, failures, self.train.target_success, self.train.exam_failures
        )
        over = time.monotonic() > self._end_s or self._others().mastered
        return False if verdict is None and over else verdict

    def evaluate(
        self,
        episodes: int | None,
        seed: int = EVAL_SEED,
        *,
        deterministic: bool = True,
        decide: Callable[[EvalResult], bool | None] = lambda _result: None,
    ) -> EvalResult:
        """Run evaluation episodes on held-out starts; nobody helps, nothing is learned from them.

        An aborted episode (a process was killed, a stop was pressed) says nothing about the policy:
        it is run again, and stays in the store as aborted. So is one in which a person drove, as
        some Gymnasium environments let them at any time; it never counts as a success. After
        `EVAL_TRIES` of one start it counts as it ended.

        Args:
            episodes: how many; None = until `decide` has come to a decision.
            decide: asked after each episode; ends the evaluation when the answer is not None.
        """
        result = EvalResult()
        index = retries = tries = 0
        while (episodes is None or index < episodes) and not self._stops():
            self._judged = {"episode/number": index + 1.0, "episode/of": float(episodes or 0)}
            summary = self.episode("eval", seed + index, deterministic=deterministic)
            helped = summary.human_steps > 0
            aborted = helped or summary.ending in (Ending.ABORTED, Ending.STALE)
            tries += 1
            if aborted and tries < EVAL_TRIES and retries < (episodes or EXAM_RETRIES):
                retries += 1
                continue
            tries = 0
            result.successes.append(summary.success and not helped)
            result.cycle_times_s.append(round(summary.duration_s, 6))  # the clock's own rounding
            result.returns.append(summary.total_reward)
            result.success_known &= summary.success_known
            if summary.jerk is not None:
                result.jerks.append(summary.jerk)
            index += 1
            if decide(result) is not None:
                break
        return result

    def _budget(self) -> dict[str, float]:
        """How much of the practice budget is used, and the wall time left of it."""
        progress, train = self.progress, self.train
        spent = progress.practice_s / (60 * train.max_minutes)
        return {
            "progress": min(1.0, max(self.env_steps / max(train.max_env_steps, 1), spent)),
            "time_left_s": max(0.0, 60 * train.max_minutes - progress.practice_s),
        }

    def _log(self, summary: EpisodeSummary) -> None:
        """One metrics line per episode."""
        steps = max(summary.steps, 1)
        late_ms = 1100.0 / self.loop.task.spec.control_hz
        values: dict[str, float] = {
            "episode/index": summary.id.episode,
            "episode/success": float(summary.success),
            "episode/length": summary.steps,
            "episode/return": summary.total_reward,
            "episode/duration_s": summary.duration_s,
            "episode/intervention_rate": summary.human_steps / steps,
            "episode/takeovers": summary.takeovers,
            "episode/aborted": float(summary.ending in (Ending.ABORTED, Ending.STALE)),
            "weights/version": self.loop.policy.version,
            "session/demos": self.progress.demos
            + float(summary.purpose == "demo" and summary.success),
            **self._budget(),
            **self.figures(),
            **{f"episode/driver_steps_{k}": v for k, v in summary.driver_steps.items()},
            **{f"gate/{k}_steps": v for k, v in summary.outcome_steps.items()},
            **_percentiles("loop/period_ms", summary.period_ms),
            **_percentiles("loop/wall_ms", summary.wall_ms),
            "loop/late_ticks": float(sum(p > late_ms for p in summary.period_ms)),
            **self._start,
            **(self._judged if summary.purpose == "eval" else {}),
        }
        if summary.true_success is not None:
            values["episode/true_success"] = float(summary.true_success)
        practice = self.progress.env_steps
        if summary.purpose == "train":
            practice += summary.steps
        practice = max(practice, self._others().env_steps)
        prefixed = {
            f"{summary.purpose}_{k}" if k.startswith("episode/") else k: v
            for k, v in values.items()
        }
        figures = values if summary.purpose == "train" else prefixed
        self.metrics.write(practice, figures, state=self.state)
        self.on_episode(figures | {"env_steps": practice, "state": self.state})
        log.info(
            "%s %d: %s in %d steps (%s)",
            summary.purpose,
            summary.id.episode,
            "success" if summary.success else str(summary.ending),
            summary.steps,
            summary.reason or f"{summary.takeovers} takeovers",
        )


def start_figures(plan: object) -> dict[str, float]:
    """Where the tool ("tcp") and each object start, in base; nothing without an arm."""
    if not isinstance(plan, ResetPlan):
        return {}
    poses = {"tcp": plan.tcp_in_base, **plan.objects}
    return {
        f"start/{name}/{axis}_m": float(pose.position_m[i])
        for name, pose in poses.items()
        for i, axis in enumerate("xy")
    }


def _percentiles(key: str, values: Iterable[float]) -> dict[str, float]:
    """p50, p99 and max of `values`; empty when there are none."""
    data = np.asarray(list(values))
    if not data.size:
        return {}
    return {
        key: float(np.percentile(data, 50)),
        f"{key}_p99": float(np.percentile(data, 99)),
        f"{key}_max": float(data.max()),
    }


def _blind(reason: str) -> RobotRLError:
    """The error that says that an episode cannot begin because its observation is too old."""
    return RobotRLError(
        "no episode can begin: what the policy sees is too old",
        expected="a state and pictures of now, stamped on the run's clock",
        got=reason,
        fix="look at that driver and its stamps; the session goes on by itself where it waits",
    )
