"""Cases of the link between actor and learner: delays, partitions, flipped bits, intruders."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator
from typing import Any

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured
from robot_rl.bench.faults.pair import SPEC, Pair, pair, peer
from robot_rl.bench.samples import episode_rows, start_row
from robot_rl.config.registry import resolve
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.link.frames import Rows
from robot_rl.run.learner import turn
from robot_rl.spec import Spec
from robot_rl.store.rows import FlatRow, flatten
from robot_rl.types import ONLY_ACTOR, EpisodeId

HZ = 10.0  # steps per second of an actor
STEPS = 50  # per episode
DELAY_S, LOSS = 0.05, 0.05  # one way; of segments
UTD = 4.0
PARTITION_S, PARTITION_SHORT_S = 600.0, 3.0


def number(episode: int) -> EpisodeId:
    """Identity of an episode."""
    return EpisodeId("run", ONLY_ACTOR, episode)


class Recorder:
    """Records made-up steps at `HZ` into the actor's store, when it is called often enough.

    rows: what it has recorded, whatever has become of it in the store.
    """

    def __init__(self, both: Pair) -> None:
        self.steps, self._both, self._due_s = 0, both, time.monotonic()
        self.rows: list[FlatRow] = []
        self._rows = self._endless()

    def _endless(self) -> Iterator[list[Any]]:
        """Rows of one step at a time."""
        for episode in itertools.count():
            rows = episode_rows(SPEC, number(episode), STEPS)
            yield rows[:4]  # header, frame, step, frame
            for i in range(4, len(rows), 2):
                yield rows[i : i + 2]

    def __call__(self) -> None:
        """Record what is due."""
        while time.monotonic() >= self._due_s:
            rows = next(self._rows)
            self._both.actor.append(rows)
            self.rows += map(flatten, rows)
            self.steps += 1
            self._due_s += 1.0 / HZ


# --- 11: a bad network ---------------------------------------------------------------------------


def bad_network(context: Context) -> Measured:
    """A learner that learns from what comes over a network with 100 ms and 5 % loss."""
    seconds = context.seconds(120.0, 8.0)
    config = LearnerConfig(utd=UTD, min_steps=1, checkpoint_updates=0, publish_period_s=0.2)
    algo = resolve("algo", {"name": "hil_serl", "hidden": [32, 32], "batch_size": 32})
    with pair(context.folder, start=False) as both:
        learner = Learner(config, algo, SPEC, both.learner, run_dir=context.folder, seed=0)
        both.network.delay_s, both.network.loss = DELAY_S, LOSS
        both.client.start()
        record = Recorder(both)
        until_s = time.monotonic() + seconds
        versions = {-1}
        while time.monotonic() < until_s:
            record()
            turn(learner, both.server)
            weights = both.client.newest_weights()
            versions |= {weights.version} if weights else set()
        reached = 100.0 * learner.updates / (UTD * record.steps)
        lost = 100.0 * both.network.lost / max(both.network.segments, 1)
        learner.close()
    return Measured.of(
        Figure("updates per step, of the target", reached, "%"),
        Figure("versions of the weights that arrived", len(versions) - 1, ""),
        Figure("segments that had to be sent again", lost, "%"),
        n=record.steps,
        note=f"{seconds:.0f} s",
    )


# --- 12: a partition -----------------------------------------------------------------------------


def partition(context: Context) -> Measured:
    """Nothing passes for a while; the actor goes on recording."""
    seconds = context.seconds(PARTITION_S, PARTITION_SHORT_S)
    with pair(context.folder) as both:
        record = Recorder(both)
        both.serve(1.0, record)
        both.drain()
        before = record.steps
        both.network.down = True
        both.serve(seconds, record)
        spooled = both.actor.pending_count()
        both.network.down = False
        healed_s = time.monotonic()
        both.drain()
        took_s = time.monotonic() - healed_s
        lost, doubled, in_order = both.lost_and_doubled(record.rows)
    return Measured.of(
        Figure("rows lost", lost, ""),
        Figure("rows stored twice", doubled, ""),
        Figure("out of order", float(not in_order), ""),
        Figure("rows that waited on the disk", spooled, ""),
        Figure("time to drain", took_s, "s"),
        n=record.steps - before,
        note=f"{seconds:.0f} s in place of {PARTITION_S / 60:.0f} minutes"
        if seconds < PARTITION_S
        else "",
    )


# --- 13: frames come twice, and in another order -------------------------------------------------


def reordered(context: Context) -> Measured:
    """Batches of rows are sent up to three times, in a random order."""
    wrong = repeats = n = 0
    for i in context.trials(at_least=3):
        if n >= context.case.full:
            break
        with pair(context.folder / str(i), start=False) as both, peer(both) as (say, _):
            rows = [flatten(row) for e in range(3) for row in episode_rows(SPEC, number(e), 8)]
            batches = [Rows(tuple(rows[k : k + 4])) for k in range(0, len(rows), 4)]
            sent = [b for b in batches for _ in range(int(context.rng.integers(1, 4)))]
            repeats += len(sent) - len(batches)
            for k in context.rng.permutation(len(sent)):
                assert say(sent[k]) is not None
            got = [flatten(row) for row in both.learner.rows_since(0, 10**6, 2**40)[0]]
            wrong += sorted(map(repr, got)) != sorted(map(repr, rows))
            n += len(sent)
    return Measured.of(
        Figure("stores that differ", wrong, ""), Figure("repeats sent", repeats, ""), n=n
    )


# --- 18: the two sides disagree ------------------------------------------------------------------


def mismatch(context: Context) -> Measured:
    """An actor whose spec differs in one place, each time another."""
    refused = named = rows = n = 0
    for i in context.trials():
        other, what = _other(SPEC, i)
        with pair(context.folder / str(i), actor_spec=other) as both:
            both.actor.append([start_row(other, number(0))])
            both.until(lambda b=both: b.client.status()["refused"], "the learner refuses", 20.0)
            said = str(both.client.status()["refused"])
            refused += 1
            named += what in said
            rows += both.learner.last_seq()
        n += 1
    return Measured.of(
        Figure("refused with the place that differs", 100.0 * named / n, "%"),
        Figure("rows taken before", rows, ""),
        Figure("refused", 100.0 * refused / n, "%"),
        n=n,
    )


def _other(spec: Spec, i: int) -> tuple[Spec, str]:
    """Another spec, and the word by which the difference must be named."""
    state = spec.observation["state"]
    changes = (
        ({"control_hz": 10.0 + 1.0 * (i + 1)}, "control_hz"),
        ({"observation": {"state": dataclasses.replace(state, shape=(25 + i,))}}, "observation"),
        ({"action": dataclasses.replace(spec.action, translation_m=0.02)}, "translation_m"),
        ({"action": dataclasses.replace(spec.action, gripper=False)}, "gripper"),
    )
    change, word = changes[i % len(changes)]
    return dataclasses.replace(spec, **change), word  # type: ignore[arg-type]


CASES = (
    Case(
        number=11,
        name="bad_network",
        title="100 ms round trip and 5 % loss between actor and learner",
        injection="a proxy that delays by 50 ms each way and has 5 % of the segments sent again, "
        "each after 200 ms",
        promise="training goes on at 90 % of the target of updates per step, and weights arrive",
        limits=(
            Limit("updates per step, of the target", "%", at_least=90.0),
            Limit("versions of the weights that arrived", "", at_least=2.0),
            Limit("segments that had to be sent again", "%", at_least=1.0),
        ),
        fails_if="a link that sends one row and waits for its answer before the next falls behind",
        full=1200,
        least=50,
        measure=bad_network,
        weight=2.0,
    ),
    Case(
        number=12,
        name="partition",
        title="partition for 10 minutes",
        injection="nothing passes between actor and learner, while the actor records 10 steps per "
        "second",
        promise="rows wait on the disk and drain in order; none is lost, none stored twice",
        limits=(
            Limit("rows lost", "", at_most=0.0),
            Limit("rows stored twice", "", at_most=0.0),
            Limit("out of order", "", at_most=0.0),
            Limit("rows that waited on the disk", "", at_least=20.0),
        ),
        fails_if="a queue in memory that is bounded drops rows; a store without identities has "
        "those twice that are sent again",
        full=6000,
        least=20,
        measure=partition,
    ),
    Case(
        number=13,
        name="reordered",
        title="frames reordered and repeated",
        injection="batches of rows are sent to the learner up to three times, in a random order",
        promise="each row is in the store exactly once",
        limits=(
            Limit("stores that differ", "", at_most=0.0),
            Limit("repeats sent", "", at_least=1.0),
        ),
        fails_if="a store without identities has the repeats, too",
        full=20_000,
        least=50,
        measure=reordered,
    ),
    Case(
        number=18,
        name="mismatch",
        title="configuration or schema mismatch",
        injection="an actor whose spec differs in its rate, its observation or its action",
        promise="refused at the handshake, before the first row, with the place that differs",
        limits=(
            Limit("refused with the place that differs", "%", at_least=100.0),
            Limit("rows taken before", "", at_most=0.0),
        ),
        fails_if="a learner that compares nothing takes rows; one that compares hashes names no "
        "place",
        full=40,
        least=4,  # the places in `_other`
        measure=mismatch,
    ),
)
