"""`robot-rl generate`: demonstrations by policies that have learned a task.

A policy from RL succeeds, but trembles, and a clone of it trembles, too. So each start is driven
with the policy's motion smoothed, at first much, then less, at last not at all:

    a_t = s a_{t-1} + (1 - s) pi(o_t),  s in `SMOOTHED`; the gripper's command stays as it is

The first success is kept, which is the smoothest one. So hard starts are not left out because a
smooth try failed there; where nobody succeeds, nothing is kept. The kept episodes are rows of a run
folder of its own, of purpose "data", under the names of the runs that drove them.

Source: "Diffusion RL policies as data generators" (arXiv 2509.19752), whose data is of one policy,
filtered by success and by smoothness. Deviations: any policies; smoothed, in the place of a filter.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.run_folder import STORE, run_name
from robot_rl.control.loop import Policy
from robot_rl.control.summary import jerk_of
from robot_rl.control.wrapped import Wrapped
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.run.at_work import at_work
from robot_rl.run.evaluate import make_eval_session
from robot_rl.run.experiment import Experiment
from robot_rl.spec import diff, listed, told_apart
from robot_rl.store.dataset import as_data
from robot_rl.store.store import Store
from robot_rl.types import Observation, Row

SMOOTHED = (0.8, 0.6, 0.4, 0.0)  # s of the tries of one start
GENERATE_SEED = 4_000_000  # starts that neither practice, evaluation nor a deployment has seen
DONE = "generate"  # key of the store: what was done, so that a killed command goes on
FRUITLESS = 20  # starts in a row at which nobody succeeded


class Smoothed(Wrapped):
    """A policy whose motion is smoothed; see the module. share: s. motion: numbers that move."""

    def __init__(self, policy: Policy, motion: int) -> None:
        super().__init__(policy)
        self._motion, self.share = motion, 0.0
        self._last = np.zeros(motion, np.float32)

    def begin_episode(self, deterministic: bool = False) -> None:
        """The arm is at rest."""
        self._last = np.zeros(self._motion, np.float32)
        super().begin_episode(deterministic)

    def act(self, observation: Observation, deterministic: bool) -> NDArray[np.float32]:
        """Action [A] in [-1, 1]."""
        action = super().act(observation, deterministic).copy()
        motion = action[: self._motion]
        motion *= 1.0 - self.share
        motion += self.share * self._last
        self._last = motion
        return action


@dataclass(slots=True)
class _Done:
    """What was done: starts used, tries, and the starts at which nobody succeeded."""

    starts: int = 0
    tries: int = 0
    failed: list[int] = dataclasses.field(default_factory=list)


class _Driver:
    """One policy at the controls; the rows of its newest episode stay here until it is judged."""

    def __init__(self, run: Path, seed: int | None) -> None:
        self.rows: list[Row] = []
        self.experiment = Experiment.load(run)
        if self.experiment.is_real:
            raise ConfigError(
                f"{run} was trained on a real arm",
                expected="runs in simulation",
                got="the run of a real arm",
                fix="robot-rl deploy RUN --episodes N records what a policy does on the arm",
            )
        self.session, rig = make_eval_session(self.experiment, run, record=self.rows.extend)
        self._smoothed = Smoothed(rig.loop.policy, self.experiment.task.spec.action.motion)
        rig.loop.policy = self._smoothed
        if seed is not None:
            self.session.seed = seed  # the policies drive from the same starts

    def episode(self, seed: int, number: int, share: float) -> list[Row]:
        """Drive without noise; the episode's rows, none unless it succeeded."""
        self.rows.clear()
        self._smoothed.share = share
        self.session.progress.next_episode = number
        success = self.session.episode("eval", seed, deterministic=True).success
        return [as_data(row) for row in self.rows] if success else []


def generate(
    runs: Sequence[Path],
    folder: Path,
    episodes: int,
    watch: Callable[[int, int], None] = lambda _done, _of: None,
) -> dict[str, Any]:
    """Fill `folder`, which becomes a run folder, with successes of the policies of `runs`.

    A repeated command goes on where it was.

    watch: called with (episodes kept, episodes wanted).

    Returns:
        episodes, by_run (how many each run drove), starts, failed_starts (their seeds), tries, jerk
        (mean of the episodes kept).

    Raises:
        CheckpointError: a run has no usable policy.
        ConfigError: the runs do not fit together; or the folder belongs to something else.
        RobotRLError: nobody succeeded at `FRUITLESS` starts in a row.
    """
    _refuse_twins(runs)
    first = _Driver(runs[0], None)
    drivers = [first, *(_Driver(run, first.session.seed) for run in runs[1:])]
    for run, driver in zip(runs, drivers, strict=True):
        _refuse_other(first.experiment, driver.experiment, run)
    home = Experiment.from_dict({**first.experiment.config, "run_dir": str(folder)})
    with at_work(home.save(), "record"), Store(folder / STORE, spec=home.spec) as store:
        done = _Done(**(store.meta(DONE) or {}))
        kept = {start.seed for start in store.episodes()}
        fruitless = 0
        watch(len(kept), episodes)
        while len(kept) < episodes:
            seed = GENERATE_SEED + done.starts
            rows = [] if seed in kept else _smoothest(drivers, seed, done)
            if rows:
                store.append(rows)
                kept.add(seed)
            elif seed not in kept:  # else it was killed between the two writes
                done.failed.append(seed)
            done.starts += 1
            store.set_meta(DONE, dataclasses.asdict(done))
            fruitless = 0 if seed in kept else fruitless + 1
            if fruitless == FRUITLESS:
                raise _no_success(len(kept), done)
            watch(len(kept), episodes)
        return _figures(store, done, home.task.spec.action.motion)


def _smoothest(drivers: Sequence[_Driver], seed: int, done: _Done) -> list[Row]:
    """The rows of the first success from one start; none without one."""
    most = len(SMOOTHED) * len(drivers)
    for attempt in range(most):
        driver = drivers[(done.starts + attempt) % len(drivers)]  # the policies in turn
        share = SMOOTHED[attempt // len(drivers)]
        done.tries += 1
        rows = driver.episode(seed, done.starts * most + attempt, share)
        if rows:
            return rows
    return []


def _figures(store: Store, done: _Done, motion: int) -> dict[str, Any]:
    """See `generate`."""
    ids = [start.id for start in store.episodes()]
    jerks = [jerk_of([step.action for step in store.steps(id_)], motion) or 0.0 for id_ in ids]
    return {
        "episodes": len(ids),
        "by_run": dict(Counter(id_.run for id_ in ids)),
        "starts": done.starts,
        "failed_starts": done.failed,
        "tries": done.tries,
        "jerk": float(np.mean(jerks)),
    }


def _refuse_twins(runs: Sequence[Path]) -> None:
    """Raise where two runs have one name: their episodes could not be told apart."""
    names = [run_name(run) for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                "two of the runs have the same name",
                expected="a name for each: an episode says which run drove it",
                got=", ".join(map(str, runs)),
                fix=f"give each run once; of a run and its copy, both {name} in their rows, one",
            )


def _refuse_other(first: Experiment, other: Experiment, run: Path) -> None:
    """Raise unless the episodes of both belong into one store."""
    lines = diff(*({k: e.plain_section(k) for k in ("task", "robot")} for e in (first, other)))
    if lines or first.spec.hash != other.spec.hash:
        raise ConfigError(
            f"{run} is of another task than the first run, or of one with other settings",
            expected=f"task {first.task.name}, the same scene, and the same observation and action",
            got="first -> this one: " + (listed(lines) or told_apart(first.spec, other.spec)),
            fix="generate from these runs one by one, each with its own --out",
        )


def _no_success(kept: int, done: _Done) -> RobotRLError:
    return RobotRLError(
        "the policies do not succeed",
        expected="policies that have learned the task",
        got=f"no success at {FRUITLESS} starts in a row, smoothed or not; "
        f"{kept} episodes from {done.starts} starts so far",
        fix="robot-rl eval RUN says how good a policy is; train it further",
    )
