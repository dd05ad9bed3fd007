"""Clock, network and disk of `simulation`: everything that happens follows from one `Random`."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from robot_rl.bench.faults.power import no_checkpoints, wal_of
from robot_rl.link.wire import Change
from robot_rl.spec import Spec
from robot_rl.store.store import Store

FULL = 2  # PRAGMA synchronous
TORN_BYTES = 4096


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.time_s = 1000.0

    def now_s(self) -> float:
        """See `ports.Clock`."""
        return self.time_s

    def sleep_until_s(self, deadline_s: float) -> None:
        """See `ports.Clock`."""
        self.time_s = max(self.time_s, deadline_s)


class PowerCut(BaseException):
    """The machine is off: no code of ours may catch this."""


class WatchedStore(Store):
    """A store that knows how much of its log is on the disk, from what SQLite is set to."""

    written = synced = 0  # bytes of the log

    @contextmanager
    def _transaction(
        self, mode: str = "IMMEDIATE", *, durable: bool = True
    ) -> Iterator[sqlite3.Connection]:
        with super()._transaction(mode, durable=durable) as db:
            yield db
        if mode == "DEFERRED":
            return
        size = wal_of(self.path).stat().st_size
        if size > self.written:
            self.written = size
            (level,) = self._db.execute("PRAGMA synchronous").fetchone()
            if level >= FULL:
                self.synced = size


_empty_stores: dict[str, bytes] = {}  # hash of a spec -> the file of an empty store


def _empty(spec: Spec) -> bytes:
    if spec.hash not in _empty_stores:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "store.sqlite"
            Store(path, spec=spec).close()
            _empty_stores[spec.hash] = path.read_bytes()
    return _empty_stores[spec.hash]


class Disk:
    """One machine's folder."""

    def __init__(self, folder: Path, random: Random, spec: Spec) -> None:
        self.folder, self._random, self._spec = folder, random, spec
        self.path = folder / "store.sqlite"
        self._store: WatchedStore | None = None
        self.dies_after: int | None = None  # operations on files until the power goes
        folder.mkdir(parents=True)
        self.replace()

    @property
    def synced(self) -> int:
        """Bytes of the store's log that are on the disk."""
        return 0 if self._store is None else self._store.synced

    def open(self) -> WatchedStore:
        """Open the store as a new process does; its log starts empty and grows only."""
        store = WatchedStore(self.path, spec=self._spec, reserve_bytes=0)
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        no_checkpoints(store._db)
        store.written = store.synced = 0
        self._store = store
        return store

    def close(self) -> None:
        """The process ends; the kernel has everything that it wrote."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def power_cut(self, synced: int | None = None) -> None:
        """Of the log, what was synced stays, and a random part of the rest, perhaps torn.

        synced: bytes that stay in any case; None = what really was.
        """
        store, log = self._store, wal_of(self.path)
        if store is None:
            return
        data, pages = log.read_bytes(), self.path.read_bytes()
        least = store.synced if synced is None else synced
        self.close()
        end = self._random.randint(least, len(data))
        noise = b""
        if self._random.random() < 0.5:
            noise = self._random.randbytes(min(len(data) - end, TORN_BYTES))
        self.path.write_bytes(pages)
        log.write_bytes(data[:end] + noise)

    def replace(self) -> None:
        """An empty store instead of what was there."""
        self.close()
        wal_of(self.path).unlink(missing_ok=True)
        self.path.write_bytes(_empty(self._spec))

    def write_synced(self, path: Path, data: bytes) -> None:
        """See `system.files`."""
        if self._dies():
            path.write_bytes(data[: self._random.randrange(len(data))])
            raise PowerCut
        path.write_bytes(data)

    def sync_folder(self, path: Path) -> None:
        """See `system.files`; without it, a name that was just given may be lost."""
        if not self._dies():
            return
        newest = max((p for p in path.glob("[0-9]*") if p.is_dir()), default=None)
        if newest is not None and self._random.random() < 0.5:
            lost = path / f".{newest.name}.partial"
            shutil.rmtree(lost, ignore_errors=True)
            newest.rename(lost)
        raise PowerCut

    def _dies(self) -> bool:
        if self.dies_after is None:
            return False
        self.dies_after -= 1
        return self.dies_after < 0


class Network:
    """Messages arrive late and overtake each other; what is under way at a cut may be lost."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock, self._random = clock, random
        self._is_cut = False
        self._life, self._is_up = 0, False  # of the learner
        self._connections = 0
        self._wire: SimulatedWire | None = None
        self._up: list[tuple[float, bytes, bytes]] = []
        self._down: list[tuple[float, bytes, bytes]] = []

    @property
    def life(self) -> int:
        """How often the learner has begun."""
        return self._life

    @property
    def is_cut(self) -> bool:
        """Whether nothing passes."""
        return self._is_cut

    @is_cut.setter
    def is_cut(self, value: bool) -> None:
        self._is_cut = value
        if value:
            self._up = [m for m in self._up if self._random.random() < 0.5]
            self._down = [m for m in self._down if self._random.random() < 0.5]

    def learner_starts(self) -> None:
        """A learner listens; nothing of before reaches it."""
        self._life, self._is_up = self._life + 1, True
        self._up.clear()

    def learner_ends(self) -> None:
        """Nobody listens."""
        self._is_up = False
        self._up.clear()

    def lose_all(self) -> None:
        """Nothing that is under way arrives."""
        self._up.clear()
        self._down.clear()

    def opened(self, wire: SimulatedWire | None) -> None:
        """The actor's newest connection, which replaces the one before."""
        self._wire = wire

    def turn(self) -> None:
        """Connections begin and end."""
        wire = self._wire
        if wire is None:
            return
        alive = self._is_up and not self._is_cut
        if wire.life is None:
            if alive and not wire.is_over and self._random.random() < 0.7:
                self._connections += 1
                wire.begin(self._life, b"%d" % self._connections)
        elif (wire.life != self._life or not alive) and self._random.random() < 0.4:
            wire.end()

    def to_learner(self, life: int, routing: bytes, data: bytes) -> None:
        """Send a message up."""
        if self._is_up and life == self._life and not self._is_cut:
            self._up.append((self._arrival_s(), routing, data))

    def to_actor(self, routing: bytes, data: bytes) -> None:
        """Send a message down."""
        if not self._is_cut:
            self._down.append((self._arrival_s(), routing, data))

    def at_learner(self) -> Iterator[tuple[bytes, bytes]]:
        """What has arrived there."""
        due = sorted(m for m in self._up if m[0] <= self._clock.now_s())
        self._up = [m for m in self._up if m[0] > self._clock.now_s()]
        return iter([(routing, data) for _, routing, data in due])

    def at_actor(self, routing: bytes) -> list[bytes]:
        """What has arrived over one connection."""
        due = sorted(m for m in self._down if m[0] <= self._clock.now_s())
        self._down = [m for m in self._down if m[0] > self._clock.now_s()]
        return [data for _, to, data in due if to == routing]

    def _arrival_s(self) -> float:
        return self._clock.now_s() + self._random.choice((0.0, 0.01, 0.1, 0.1, 0.8, 2.0))


class SimulatedWire:
    """Implements `link.wire.Wire` over a `Network`."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._changes: list[Change] = []
        self.life: int | None = None  # of the learner at the other end
        self.is_over = False  # until it is opened again
        self._routing = b""
        network.opened(self)

    def begin(self, life: int, routing: bytes) -> None:
        """Both ends have proved their keys."""
        self.life, self._routing = life, routing
        self._changes.append(Change.ATTACHED)

    def end(self) -> None:
        """The operating system says that the connection is gone."""
        self.life, self.is_over = None, True
        self._changes.append(Change.ENDED)

    def wait(self, timeout_s: float) -> None:
        """See `Wire`."""

    def changes(self) -> Iterator[Change]:
        """See `Wire`."""
        changes, self._changes = self._changes, []
        return iter(changes)

    def received(self) -> Iterator[bytes]:
        """See `Wire`."""
        return iter(self._network.at_actor(self._routing))

    def send(self, data: bytes) -> bool:
        """See `Wire`."""
        if self.life is None:
            return False
        self._network.to_learner(self.life, self._routing, data)
        return True

    def reopen(self) -> None:
        """See `Wire`."""
        self.life, self.is_over, self._changes = None, False, []

    def close(self) -> None:
        """See `Wire`."""
        self._network.opened(None)
