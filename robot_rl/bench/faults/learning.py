"""Cases of the learner: killed, restarted, NaN losses, no memory, a reward service that fails."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured, spread
from robot_rl.bench.faults.driving import SETTLE_S, commands, let_live, until_moving
from robot_rl.bench.faults.soak_rows import Ledger
from robot_rl.bench.faults.worlds import RunWorld
from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.config.registry import resolve
from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE
from robot_rl.errors import ConfigError
from robot_rl.learn.learner import MAX_BAD_STEPS, Learner, LearnerConfig
from robot_rl.store.store import Store
from robot_rl.types import ONLY_ACTOR, EpisodeId

SPEC = sample_spec()
ALGO = {"name": "hil_serl", "hidden": [32, 32], "batch_size": 32}
CONFIG = LearnerConfig(min_steps=1, publish_period_s=0.0, checkpoint_updates=0, prefetch=False)
EPISODE = 50  # steps
RESTART_STEPS, RESTART_SHORT = 20_000, 1_000  # steps in the store of a learner that restarts
RESUME_S = 10.0
OUTAGE_S = 2.0  # wall; in most of it there is no learner
LOST_S = 60.0  # wall; rows that have not come by then are lost
LATE = 1.5  # control periods between two commands: a tick was missed


def number(episode: int) -> EpisodeId:
    """Identity of an episode."""
    return EpisodeId("run", ONLY_ACTOR, episode)


@contextmanager
def learning(
    folder: Path, store: Store, seed: int = 0, config: LearnerConfig = CONFIG
) -> Iterator[Learner]:
    """A learner of made-up rows, in this process, on the processor."""
    algo = resolve("algo", ALGO)
    learner = Learner(config, algo, SPEC, store, run_dir=folder, seed=seed)
    try:
        yield learner
    finally:
        learner.close()


@contextmanager
def recorded(folder: Path, steps: int) -> Iterator[Store]:
    """A store with that many steps of practice."""
    folder.mkdir(parents=True, exist_ok=True)
    with Store(folder / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        for episode in range(max(1, steps // EPISODE)):
            store.append(episode_rows(SPEC, number(episode), min(steps, EPISODE)))
        yield store


# --- 1: the learner is killed --------------------------------------------------------------------


def learner_killed(context: Context) -> Measured:
    """kill -9 of the learner while the policy drives; it is started again and gets all rows."""
    world, missed, asked, resumed_s, waiting = context.world(), 0, [], [], []
    assert isinstance(world, RunWorld)
    period_s = 1.0 / world.experiment.task.spec.control_hz
    ledger = Ledger(world.run_dir / ACTOR_STORE, world.run_dir / LEARNER_STORE)
    for i in context.trials():
        world.until_policy()
        let_live(i)
        until_moving(world)
        killed_s = time.monotonic()
        os.kill(world.supervisor.pids()["learner"], signal.SIGKILL)
        waiting.append(_most_waiting(world.run_dir / ACTOR_STORE, killed_s + OUTAGE_S))
        ledger.read()  # what the actor has recorded until now is what the learner must get
        while ledger.waiting and time.monotonic() < killed_s + LOST_S:
            time.sleep(0.02)
            ledger.read_learner()
        resumed_s.append(time.monotonic() - killed_s)
        time.sleep(SETTLE_S)  # an actor that goes on has asked again by now
        heard = commands(world, killed_s - period_s)
        gaps_s = np.diff([command.stamp_s for _, command in heard])
        stopped = all(at_s < killed_s + resumed_s[-1] for at_s, _ in heard)
        missed += int((gaps_s > LATE * period_s).sum()) + stopped
        asked.append(sum(killed_s < at_s <= killed_s + OUTAGE_S for at_s, _ in heard))
        world.stopwatch.forget()
    return Measured.of(
        Figure("control ticks missed", missed, ""),
        Figure("commands in the outage, fewest", 100 * min(asked) * period_s / OUTAGE_S, "%"),
        Figure("rows lost", ledger.counts()["rows_lost"], ""),
        spread("time until the learner has every row", resumed_s, "s"),
        Figure("rows that waited meanwhile, most", max(waiting), ""),
        n=len(resumed_s),
    )


def _most_waiting(path: Path, until_s: float) -> int:
    """The most rows of the actor that waited for a learner."""
    most = 0
    while time.monotonic() < until_s:
        with Store(path) as store:
            most = max(most, store.pending_count())
        time.sleep(0.05)
    return most


# --- 2: the learner restarts ---------------------------------------------------------------------


def learner_restarted(context: Context) -> Measured:
    """A new learner beside one that goes on: from the checkpoint to the next weights."""
    steps = RESTART_STEPS if context.is_full else RESTART_SHORT
    differ, older, took_s = 0, 0, []
    with recorded(context.folder, steps) as store:
        for i in context.trials():
            folder = context.folder / str(i)
            folder.mkdir()
            with learning(folder, store) as before:
                before.ingest()
                before.update(10)
                version = before.weights().version
                before.save()
                before.update(10)
                begun_s = time.monotonic()
                with learning(folder, store, seed=99) as after:
                    after.load()
                    after.ingest()
                    after.update(10)
                    older += after.weights().version <= version
                    took_s.append(time.monotonic() - begun_s)
                    one, other = before.algo.state_dict(), after.algo.state_dict()
                    same = all(torch.equal(value, other[key]) for key, value in one.items())
                    differ += not same or before.updates != after.updates
    return Measured.of(
        Figure("learners that differ from one that went on", differ, ""),
        Figure("weights that are not newer", older, ""),
        spread("time to the next weights", took_s, "s"),
        n=len(took_s),
        note=f"{steps:,} steps in the store",
    )


# --- 20: NaN -------------------------------------------------------------------------------------


def nan_loss(context: Context) -> Measured:
    """Rewards that are infinite for some updates; then a policy that is NaN."""
    published = stayed = skipped = n = 0
    with recorded(context.folder, 200) as store, learning(context.folder, store) as learner:
        learner.ingest()
        learner.update(4)
        learner.save()
        for _ in context.trials():
            good = learner.weights()
            rewards = learner.replay.steps.reward.copy()
            before = _skipped(learner)
            learner.replay.steps.reward.fill(np.inf)
            learner.update(1 + n % (MAX_BAD_STEPS - 1))
            skipped += _skipped(learner) - before
            learner.replay.steps.reward[:] = rewards
            published += not _is_finite(learner)
            with torch.no_grad():
                learner.algo.actor["policy"].fill_(float("nan"))  # type: ignore[attr-defined]
            learner.updates += 1
            published += learner.weights().version > good.version + 1 or not _is_finite(learner)
            learner.update(4 * MAX_BAD_STEPS)
            stayed += not torch.isfinite(learner.algo.actor_state()["policy"]).all()
            learner.save()
            n += 1
    return Measured.of(
        Figure("weights published with NaN", published, ""),
        Figure("states that were not rolled back", stayed, ""),
        Figure("steps skipped", skipped, ""),
        n=n,
    )


def _skipped(learner: Learner) -> int:
    """Steps that its optimisers have skipped so far."""
    return sum(int(v) for k, v in learner.algo.state_dict().items() if k.endswith("skipped"))


def _is_finite(learner: Learner) -> bool:
    import safetensors.torch

    tensors = safetensors.torch.load(learner.weights().data)
    return all(bool(torch.isfinite(value).all()) for value in tensors.values())


# --- 29: no memory -------------------------------------------------------------------------------


def no_memory(context: Context) -> Measured:
    """The update raises what torch raises when a GPU is full: once, and then again and again."""
    halved = went_on = stopped = intact = n = 0
    with recorded(context.folder, 200) as store:
        for i in context.trials():
            folder = context.folder / str(i)
            folder.mkdir()
            with learning(folder, store) as learner:
                learner.ingest()
                whole = _short_of_memory(learner, times=0)
                learner.update(4)
                learner.save()
                half = _short_of_memory(learner, times=1)
                before = learner.updates
                with suppress(torch.OutOfMemoryError):  # a learner that does not know it
                    learner.update(4)
                went_on += learner.updates > before
                halved += bool(half) and half[-1] == whole[-1] // 2
                _short_of_memory(learner, times=99)
                try:
                    learner.update(4)
                except (ConfigError, torch.OutOfMemoryError) as error:
                    stopped += "algo.batch_size" in getattr(error, "fix", "")
                learner.save_or_warn()  # as the learner's process does on its way out
            with learning(folder, store) as again:
                intact += again.load() and again.updates == learner.updates
            n += 1
    return Measured.of(
        Figure("went on with half of a batch", 100.0 * min(halved, went_on) / n, "%"),
        Figure("stopped with one error the second time", 100.0 * stopped / n, "%"),
        Figure("checkpoints intact", 100.0 * intact / n, "%"),
        n=n,
        note="the error is raised in place of a full GPU's",
    )


def _short_of_memory(learner: Learner, times: int) -> list[int]:
    """Let the next updates fail that often; returns the sizes of batches that are drawn then."""
    update, draw = type(learner.algo).update.__get__(learner.algo), type(learner.replay).sample
    left, sizes = itertools.count(), list[int]()

    def fails(sample: object) -> object:
        if next(left) < times:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return update(sample)  # type: ignore[arg-type]

    def noted(size: int, *more: object) -> object:
        sizes.append(size)
        return draw(learner.replay, size, *more)  # type: ignore[arg-type]

    learner.algo.update, learner.replay.sample = fails, noted  # type: ignore[method-assign, assignment]
    return sizes


CASES = (
    Case(
        number=1,
        name="learner_killed",
        title="learner killed",
        injection="kill -9 of the learner while the policy drives",
        promise="the actor goes on without missing a tick and keeps what it records; within 10 s "
        "the learner has every row",
        limits=(
            Limit("control ticks missed", "", at_most=0.0),
            Limit("commands in the outage, fewest", "%", at_least=90.0),
            Limit("rows lost", "", at_most=0.0),
            Limit("time until the learner has every row, p99", "s", at_most=RESUME_S),
            Limit("rows that waited meanwhile, most", "", at_least=1.0),
        ),
        fails_if="a loop that waits for the learner misses ticks, or stops; rows that are sent and "
        "forgotten are never there",
        full=20,
        measure=learner_killed,
        world="run",
    ),
    Case(
        number=2,
        name="learner_restarted",
        title="learner restarts",
        injection="a new learner takes over from the newest checkpoint and the store",
        promise="it goes on as if nothing had happened, to the bit, and publishes newer weights "
        "within 30 s",
        limits=(
            Limit("learners that differ from one that went on", "", at_most=0.0),
            Limit("weights that are not newer", "", at_most=0.0),
            Limit("time to the next weights, p99", "s", at_most=30.0),
        ),
        fails_if="a checkpoint without random state, optimiser or place in the store leads to "
        "other networks",
        full=20,
        measure=learner_restarted,
    ),
    Case(
        number=20,
        name="nan_loss",
        title="NaN loss",
        injection="infinite rewards for one or two updates, then a policy that is NaN",
        promise="such steps are skipped, after three in a row the last good state is back, and no "
        "weights with NaN are published",
        limits=(
            Limit("weights published with NaN", "", at_most=0.0),
            Limit("states that were not rolled back", "", at_most=0.0),
            Limit("steps skipped", "", at_least=1.0),
        ),
        fails_if="an optimiser that takes the step has NaN in every network afterwards",
        full=200,
        least=2,
        measure=nan_loss,
    ),
    Case(
        number=29,
        name="no_memory",
        title="GPU out of memory",
        injection="an update raises torch's error of a GPU without memory, once and again",
        promise="the learner says so and goes on with half of a batch, once; then it stops with "
        "one error, and its checkpoint is intact",
        limits=(
            Limit("went on with half of a batch", "%", at_least=100.0),
            Limit("stopped with one error the second time", "%", at_least=100.0),
            Limit("checkpoints intact", "%", at_least=100.0),
        ),
        fails_if="a learner that does not know the error ends with a traceback and is started "
        "again for ever",
        full=50,
        measure=no_memory,
    ),
)
