"""Store, link, actor, learner and gate in one process, on a simulated clock, network and disk.

A seed decides everything: when rows are written, when each message arrives (late, overtaken or
never), which process is killed, which machine loses its power and what its disk keeps of what was
not synced. What runs are the real store, `LinkSession`, `Answers`, `Roster`, `CheckpointFolder`,
`Versions` and `LocalGate`; only sockets, clocks, gradient steps and the arm are simulated. A seed
gives the same schedule each time: nothing here reads a clock or draws from another source. The
actor's store removes what the learner has as soon as it may, a few rows at a time.

The disk is SQLite's own files. What it must keep is read off its write-ahead log: a commit that ran
with `synchronous=FULL` has synced the log up to its end; bytes behind that may be lost or torn.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from robot_rl.bench.faults.gate_bench import DOWN, HOME, robot_state
from robot_rl.bench.samples import frame_row, sample_spec, start_row, step_row
from robot_rl.geometry import pose
from robot_rl.learn import checkpoint as checkpoints
from robot_rl.learn.checkpoint import Checkpoint, CheckpointFolder
from robot_rl.learn.versions import Versions
from robot_rl.link.answers import Answers
from robot_rl.link.auth import Keys
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import Ack, decode
from robot_rl.link.session import LinkSession
from robot_rl.safety.limits import Limits
from robot_rl.safety.local import LocalGate
from robot_rl.store import removal
from robot_rl.store.rows import FlatRow, flatten
from robot_rl.store.store import Store
from robot_rl.types import Command, Driver, Ending, EpisodeId, Outcome, Row, Weights
from tests.support.ledger import Ledger
from tests.support.simulated_parts import Clock, Disk, Network, PowerCut, SimulatedWire

SPEC = sample_spec(state_size=2)
SPEC_HASH = SPEC.hash
RUN, ACTOR = "run", "actor-0"
CONFIG = LinkConfig(
    batch_rows=6,
    poll_s=0.05,
    weights_period_s=0.4,
    status_period_s=0.4,
    reply_timeout_s=1.5,
    backoff_max_s=0.5,
    if_removed="go_on",
)
_LEARNER, _ROBOT = b"L" * 40, b"A" * 40
KEYS = {
    "actor": Keys("actor", _ROBOT, b"", {_LEARNER: "learner"}),
    "learner": Keys("learner", _LEARNER, b"", {_ROBOT: "actor"}),
}
LIMITS = Limits()
PEACE = (0, 0, 0, 16)  # turns of work before anything happens: some have much to lose
TURNS = 8  # in which anything may happen
QUIET = 3  # turns of work without faults behind them
SETTLE = 300  # turns at most until everything has arrived afterwards


class Arm:
    """The gate with an arm that stands still, and a person who now and then lets it drive."""

    def __init__(self, clock: Clock, random: random.Random, ledger: Ledger) -> None:
        self._clock, self._random, self._ledger = clock, random, ledger
        self._gate = LocalGate(LIMITS, clock)
        self._late: list[tuple[float, Command]] = []
        self._sequence = 0

    def arm(self, lease: str) -> None:
        """A person lets this lease drive."""
        if self._gate.arm(lease):
            self._ledger.granted = lease

    def stop(self) -> None:
        """A person presses STOP; a moment later it is released, which lets nobody drive."""
        self._gate.stop("person")
        self._gate.acknowledge()
        self._ledger.granted = ""

    def command(self, lease: str) -> None:
        """A command leaves an actor; it arrives when it arrives."""
        self._sequence += 1
        target = pose(HOME + np.array((0.004, 0.0, 0.0)), DOWN)
        made = Command(self._sequence, self._clock.now_s(), Driver.POLICY, lease, target)
        delay_s = self._random.choice((0.0, 0.0, 0.05, 0.4))
        self._late.append((made.stamp_s + delay_s, made))

    def turn(self) -> None:
        """Commands arrive; the gate looks at the clock."""
        now_s = self._clock.now_s()
        due = [entry for entry in self._late if entry[0] <= now_s]
        if not due:
            return
        self._late = [entry for entry in self._late if entry[0] > now_s]
        self._random.shuffle(due)
        state = robot_state(now_s)
        for _, command in due:
            moves = self._gate.request(command, state).outcome is not Outcome.HOLD
            self._ledger.require(
                not moves or command.lease == self._ledger.granted, "it moves without a lease"
            )
        self._gate.watch(state)
        if not self._gate.mode.is_armed:
            self._ledger.granted = ""


class Robot:
    """The actor: writes episodes, sends them, takes weights, asks the gate."""

    def __init__(self, world: Simulation) -> None:
        self.world, self.disk = world, Disk(world.folder / "robot", world.random, SPEC)
        self.lives = 0
        self.up_s: float | None = 0.0  # when it starts; None = it runs
        self.is_new = False  # the disk was replaced

    def start(self) -> None:
        """Begin a life, as `run.actor` does."""
        world = self.world
        self.lives += 1
        self.store = self.disk.open()
        rows = self.rows()
        world.ledger.check_actor(rows)
        world.ledger.kept |= {row.key: row.values for row in rows}
        before = self.store.last_seq()
        self.store.recover(RUN, ACTOR)
        self.note([flatten(row) for row in self.store.rows_since(before, 1000)[0]], kept=True)
        self.store.rows_since(0, 10_000)  # raises where a row lacks that was not removed
        self.wire = SimulatedWire(world.network)
        self.session = LinkSession(
            CONFIG,
            KEYS["actor"],
            SPEC,
            self.store,
            run=RUN,
            actor=ACTOR,
            wire=self.wire,
            clock=world.clock.now_s,
        )
        self.id: EpisodeId | None = None
        self.step, self.version, self.up_s = 0, -1, None

    def rows(self) -> list[FlatRow]:
        """Everything in the store."""
        return all_rows(self.store)

    def note(self, rows: Sequence[FlatRow], kept: bool = False) -> None:
        """Enter rows in the ledger."""
        ledger = self.world.ledger
        ledger.made |= {(row.key, row.values) for row in rows}
        if kept:
            ledger.kept |= {row.key: row.values for row in rows}

    def record(self, *, dies: bool = False) -> None:
        """Write the next rows of an episode; `dies`: in the middle of the commit."""
        rng, new, id = self.world.rng, [], self.id
        if id is None:
            heard = self.session.next_episode
            if self.is_new and heard is None:
                return  # `run.actor` waits for a learner's word before it uses a number
            number = max(self.store.next_episode(RUN, ACTOR), heard or 0)
            id, self.step = EpisodeId(RUN, ACTOR, number), 0
            shown = self.world.random.random() < 0.2
            new = [start_row(SPEC, id, "demo" if shown else "train"), frame_row(SPEC, id, 0, rng)]
        ends = self.world.random.random() < 0.3
        ending = Ending.TRUNCATED if ends else None
        more: list[Row] = [
            *new,
            step_row(SPEC, id, self.step, rng, ending=ending),
            frame_row(SPEC, id, self.step + 1, rng),
        ]
        flats = [flatten(row) for row in more]
        self.note(flats)
        self.store.append(flats)
        if not dies:
            self.note(flats, kept=True)
        self.step += 1
        self.id = None if ends else id

    def make_room(self) -> None:
        """Remove a few rows, as `link.client` does when the file is too long."""
        before = self.rows()
        if self.store.remove_some(0, 1):
            self.world.ledger.remove(before, self.rows())

    def turn(self) -> None:
        """One tick of the link; sometimes rows and a command."""
        draw, world = self.world.random.random, self.world
        if draw() < 0.5 and not world.settling:
            self.record()
        if draw() < 0.2 and not world.settling:
            if draw() < 0.4:
                world.arm.arm(f"actor-{self.lives}")
            world.arm.command(f"actor-{self.lives}")
        self.session.tick()
        if self.session.status["connected"] and draw() < 0.7:
            self.make_room()
        weights = self.session.weights
        if weights is not None and weights.version != self.version:
            known = world.ledger.published.get(weights.version, set())
            world.ledger.require(weights.sha256 in known, "weights that nobody published")
            rises = weights.version > self.version or not world.trainer.is_honest
            world.ledger.require(rises, "versions went back")
            self.version = weights.version

    def end(self, down_s: float, cut: Callable[[], None]) -> None:
        """Die; `cut` does to the disk what happens then."""
        self.wire.close()
        cut()
        self.up_s = self.world.clock.now_s() + down_s


class Trainer:
    """The learner: answers, reads its rows, publishes, saves."""

    def __init__(self, world: Simulation) -> None:
        self.world, self.disk = world, Disk(world.folder / "learner", world.random, SPEC)
        self.up_s: float | None = 0.0
        self.lives, self.saved = 0, -1
        self.is_honest = True  # False once its disk has lost what it had synced

    def start(self) -> None:
        """Begin a life, as `run.learner` does."""
        world = self.world
        self.lives += 1
        self.store = self.disk.open()
        self.answers = Answers(CONFIG, KEYS["learner"], SPEC, self.store)
        world.network.learner_starts()
        world.ledger.check_learner(self.rows())
        self.folder = CheckpointFolder(self.disk.folder / "checkpoints", keep=2)
        self.versions = Versions(self.store)
        self.updates = self.cursor = 0
        loaded = self.folder.load(SPEC_HASH) if self.folder.paths() else None
        if loaded is not None:
            self.updates, self.cursor = loaded.facts["updates"], loaded.facts["cursor"]
            self.versions.at_least(loaded.facts["version"])
        world.ledger.require(self.updates >= self.saved, "a checkpoint is gone")
        fits = self.cursor <= self.store.last_seq() or not self.is_honest
        world.ledger.require(fits, "a checkpoint knows rows that are gone")
        self.cursor = min(self.cursor, self.store.last_seq())
        self.up_s = None

    def rows(self) -> list[FlatRow]:
        """Everything in the store."""
        return all_rows(self.store)

    def turn(self) -> None:
        """Answer what has arrived, then learn a little."""
        draw = self.world.random.random
        for routing, data in self.world.network.at_learner():
            self.answer(routing, data)
        if draw() < 0.3:
            _, self.cursor = self.store.rows_since(self.cursor, 1000)
        self.updates += 1
        if draw() < 0.3:
            self.publish()
        if draw() < 0.08:
            self.save()

    def answer(self, routing: bytes, data: bytes, *, dies: bool = False) -> None:
        """Handle one message; `dies`: before the answer leaves."""
        reply = self.answers.answer(routing, "actor", [data])
        if reply is None or dies:
            return
        _, message = decode(reply)
        if isinstance(message, Ack):
            self.world.ledger.require(not message.left_out, "a good row was left out")
            values = {row.key: row.values for row in decode(data)[1].rows}  # type: ignore[attr-defined]
            stored = {key: values[key] for key in message.keys}
            self.world.ledger.acknowledged |= stored
            self.world.ledger.received |= stored
        self.world.network.to_actor(routing, reply)

    def publish(self) -> None:
        """Give new weights the next version."""
        data = f"{self.lives} {self.updates}".encode()
        version, digest = self.versions.next(), hashlib.sha256(data).hexdigest()
        published = self.world.ledger.published
        rises = version > max(published, default=-1) or not self.is_honest
        self.world.ledger.require(rises, f"version {version} again")
        published.setdefault(version, set()).add(digest)
        self.answers.publish(Weights(version, digest, data))

    def save(self) -> None:
        """Write a checkpoint."""
        facts = {"updates": self.updates, "cursor": self.cursor, "version": self.versions.newest}
        tensors = {"w": torch.full((2,), float(self.updates))}
        self.folder.save(Checkpoint(tensors, facts, SPEC_HASH))
        self.saved = self.updates

    def end(self, down_s: float, cut: Callable[[], None]) -> None:
        """Die; `cut` does to the disk what happens then."""
        self.world.network.learner_ends()
        cut()
        self.up_s = self.world.clock.now_s() + down_s


def all_rows(store: Store) -> list[FlatRow]:
    """Everything in a store, in commit order."""
    with store._transaction("DEFERRED") as db:
        return [flat for _, flat in store._scan(db, 0, 10_000)]


class Simulation:
    """One schedule. Raises `AssertionError` where an invariant is broken."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.random, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.ledger, self.clock = Ledger(), Clock()
        self.network = Network(self.clock, self.random)
        self.arm = Arm(self.clock, self.random, self.ledger)
        self.robot, self.trainer = Robot(self), Trainer(self)
        self.settling = self.is_spoilt = False
        self.faults: tuple[Callable[[], None], ...] = (
            self.kill_actor,
            self.kill_learner,
            self.power_cut_actor,
            self.power_cut_learner,
            self.actor_dies_in_commit,
            self.learner_dies_in_commit,
            self.learner_dies_in_checkpoint,
            self.partition,
            *[self.disk_replaced, self.learner_store_is_older] * 2,  # once in a schedule at most
            self.arm.stop,
        )

    def run(self) -> None:
        """Faults, then peace, then everything must have arrived."""
        try:
            with patched_checkpoints(self.trainer.disk), patch.object(removal, "BATCH_ROWS", 2):
                for _ in range(self.random.choice(PEACE)):
                    self.turn()
                for left in reversed(range(TURNS + QUIET)):
                    self.turn()
                    if left >= QUIET and self.random.random() < 0.3:
                        fault = self.random.choice(self.faults)
                        self.note(getattr(fault, "__name__", "fault"))
                        fault()
                self.settling, self.network.is_cut = True, False
                for _ in range(SETTLE):
                    self.turn()
                    if self.is_settled():
                        break
                self.ledger.require(self.is_settled(), "rows do not arrive")
                rows = self.trainer.rows()
                self.ledger.check_learner(rows)
                self.ledger.check_actor(self.robot.rows())
                found = {row.key: row.values for row in rows}
                # what is left of such an episode is not sent to a learner that has lost it
                gone = set() if self.trainer.is_honest else self.ledger.removed
                kept = {k: v for k, v in self.ledger.kept.items() if k[1:4] not in gone}
                missing = [k for k, v in kept.items() if found.get(k) != v]
                self.ledger.require(not missing, f"never sent: {missing[:3]}")
                self.note(f"{len(rows)} rows, {len(self.ledger.published)} weights")
        finally:
            for end in (self.robot, self.trainer):
                end.disk.close()

    def turn(self) -> None:
        """Time passes, and each part that runs does a little."""
        self.clock.time_s += 0.6 if self.settling else self.random.choice((0.02, 0.1, 0.1, 0.6))
        self.network.turn()
        for part in self.random.sample((self.robot, self.trainer), 2):
            if part.up_s is not None and part.up_s <= self.clock.now_s():
                part.start()
            if part.up_s is None:
                part.turn()
        self.arm.turn()

    def is_settled(self) -> bool:
        """Whether both run, have met since the learner's last death, and nothing is to be sent."""
        robot = self.robot
        if robot.up_s is not None or self.trainer.up_s is not None:
            return False
        have_met = robot.wire.life == self.network.life and robot.session.status.get("connected")
        return bool(have_met) and not robot.store.pending_count()

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        self.ledger.trace.append(f"{self.clock.now_s():.2f} {what}")

    # -- faults ----------------------------------------------------------------------------------

    def _down_s(self) -> float:
        return self.random.choice((0.0, 0.3, 2.0))

    def kill_actor(self) -> None:
        """SIGKILL: what was written stays."""
        if self.robot.up_s is None:
            self.robot.end(self._down_s(), self.robot.disk.close)

    def kill_learner(self) -> None:
        """SIGKILL: what was written stays."""
        if self.trainer.up_s is None:
            self.trainer.end(self._down_s(), self.trainer.disk.close)

    def power_cut_actor(self) -> None:
        """What was not synced may be lost or torn."""
        if self.robot.up_s is None:
            self.robot.end(self._down_s(), self.robot.disk.power_cut)

    def power_cut_learner(self) -> None:
        """What was not synced may be lost or torn."""
        if self.trainer.up_s is None:
            self.trainer.end(self._down_s(), self.trainer.disk.power_cut)

    def actor_dies_in_commit(self) -> None:
        """The machine stops while rows are written."""
        if self.robot.up_s is None:
            before = self.robot.disk.synced
            self.robot.record(dies=True)
            self.robot.end(self._down_s(), lambda: self.robot.disk.power_cut(before))

    def learner_dies_in_commit(self) -> None:
        """The machine stops while rows are written: no answer leaves."""
        waiting = list(self.network.at_learner()) if self.trainer.up_s is None else []
        if waiting:
            before = self.trainer.disk.synced
            self.trainer.answer(*waiting[0], dies=True)
            self.trainer.end(self._down_s(), lambda: self.trainer.disk.power_cut(before))

    def learner_dies_in_checkpoint(self) -> None:
        """The machine stops at one of the steps of writing a checkpoint."""
        trainer = self.trainer
        if trainer.up_s is not None:
            return
        trainer.disk.dies_after = self.random.randrange(5)
        try:
            trainer.save()
        except PowerCut:
            trainer.end(self._down_s(), trainer.disk.power_cut)
        trainer.disk.dies_after = None

    def partition(self) -> None:
        """The cable is pulled, or put back."""
        self.network.is_cut = not self.network.is_cut

    def disk_replaced(self) -> None:
        """The robot's disk is lost, with what had not been acknowledged; once in a schedule."""
        robot = self.robot
        if robot.up_s is None and not self.is_spoilt:
            self.is_spoilt = robot.is_new = True
            robot.end(0.3, robot.disk.replace)
            self.network.lose_all()
            self.ledger.kept.clear()

    def learner_store_is_older(self) -> None:
        """The learner's disk has lied about what it synced, or is empty; once in a schedule."""
        trainer = self.trainer
        if trainer.up_s is None and not self.is_spoilt:
            self.is_spoilt, trainer.is_honest = True, False
            is_new = self.random.random() < 0.5
            lose = trainer.disk.replace if is_new else lambda: trainer.disk.power_cut(0)
            trainer.end(self._down_s(), lose)
            self.ledger.acknowledged.clear()


@contextmanager
def patched_checkpoints(disk: Disk) -> Iterator[None]:
    """Checkpoints are written through the simulated disk."""
    with (
        patch.object(checkpoints, "write_synced", disk.write_synced),
        patch.object(checkpoints, "sync_folder", disk.sync_folder),
    ):
        yield
