"""The step store: append-only typed rows in SQLite, one global commit order, a sent cursor.

Every row has two names. Its *identity* (run, actor, episode, index) is the same on every machine
and is UNIQUE, so a row that arrives twice is stored once. Its `seq` is local: 1, 2, 3 ... over all
tables in commit order, without gaps; replay reads "everything after seq", and the sender's progress
is one number.

What survives: WAL mode loses nothing that was committed when a process is killed, at any
instruction. A power cut or kernel crash loses nothing either, as each commit is on the disk when it
returns and before another connection can read it (`synchronous="full"`). With "episode", which a
run without a link can afford, that is true of the commits that begin or end an episode; what came
after the last of them may be gone, and the file is intact. Opening the file undoes a half-written
transaction. The sent cursor is not synced: when it is lost, rows are sent again and dropped.
"""

from __future__ import annotations

import heapq
import json
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

from robot_rl.errors import CodecError, ConflictError, StoreError
from robot_rl.spec import Spec, diff, spec_from_dict
from robot_rl.store import schema, summary
from robot_rl.store.labels import PER_STEP, SUCCESS_SCORE
from robot_rl.store.rows import (
    TABLES,
    FlatRow,
    Key,
    RowKind,
    Value,
    check_against,
    flatten,
    restore,
)
from robot_rl.store.summary import EPISODE_ABORTED, EpisodeRecord
from robot_rl.types import Ending, EpisodeId, EpisodeStart, Event, Frame, Label, Row, Step

log = logging.getLogger(__name__)

RESERVE_BYTES = 2_000_000_000  # room to finish any running episode, checkpoints and logs
RESERVE_VARIABLE = "ROBOT_RL_DISK_RESERVE_BYTES"
ACKED = "acked_seq"  # meta key of the sent cursor
RECEIVER = "receiver"  # meta key: to whom the cursor belongs
ASIDE = "set_aside"  # meta key: episodes that are not sent, as the receiver has others by that name
FORGOTTEN = "forgotten"  # meta key: seq up to which frames and steps may have been removed
ABORT_MARK = 2**31 - 1  # number of that event: one that no other event has
ALONE = (RowKind.EVENT, RowKind.LABEL)  # rows that say something about an episode
READ_BYTES = 64 << 20  # of rows in one read: what bounds the memory of whoever reads a store
NEWEST_ROWS = 200  # how far back the newest score may lie: some seconds of a run

# an episode's last score is among the last `labels.PER_STEP` numbers of its author
_NEWEST = f"""
SELECT x.seq FROM episodes AS e CROSS JOIN labels AS x
ON x.run=e.run AND x.actor=e.actor AND x.episode=e.episode AND x.author=?1
AND x.label > -{PER_STEP} + (
  SELECT max(label) FROM labels AS y
  WHERE y.run=e.run AND y.actor=e.actor AND y.episode=e.episode AND y.author=?1
)
"""

_ENDING = [column.name for column in TABLES[RowKind.STEP].columns].index("ending")

Progress = Callable[[int, int], object]


def ignore(done: int, total: int) -> None:
    """A `Progress` that nobody sees."""


class Store:
    """One store file. All methods may be called from any thread; they take turns.

    Args:
        path: file; made if absent (parents too).
        spec: the run's contract; saved in a new store, compared with the spec of an old one. Rows
            appended are checked against it. None = whatever the file holds.
        reserve_bytes: free space below which no episode starts; None = environment variable
            ROBOT_RL_DISK_RESERVE_BYTES, or 2 GB.
        synchronous: "full" or "episode" (see the module text).

    Raises:
        StoreError: not a store, another schema version, another spec, or no access.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        spec: Spec | None = None,
        reserve_bytes: int | None = None,
        synchronous: str = "full",
    ) -> None:
        self.path = Path(path)
        default = int(os.environ.get(RESERVE_VARIABLE, RESERVE_BYTES))
        self.reserve_bytes = default if reserve_bytes is None else reserve_bytes
        self._lock = threading.RLock()
        self._acked_ahead: set[int] = set()
        self._always = schema.is_full(synchronous)
        self._db = schema.connect(self.path)
        try:
            with self._transaction() as db:
                schema.create_or_check(db, self.path)
                self._unchecked = schema.read_number(db, schema.UNCHECKED)
            self.spec = self._agree(spec)
        except BaseException:
            self._db.close()
            raise

    # -- writing ---------------------------------------------------------------------------------

    def append(self, rows: Iterable[Row | FlatRow]) -> int:
        """Commit rows in one transaction and return how many were new (duplicates are skipped).

        Raises:
            StoreError: too little disk space to start an episode, disk full, or damaged file;
                nothing of this call was stored.
            ConflictError: a row with this identity but other content exists.
            SpecError, CodecError: a row does not fit the spec, or holds an invalid value.
        """
        flats = [self.prepare(row) for row in rows]
        if any(flat.kind == RowKind.EPISODE for flat in flats):
            self.check_reserve()
        return self.insert(flats)

    def prepare(self, row: Row | FlatRow) -> FlatRow:
        """Check a row against the spec and flatten it. Raises like `append`."""
        known = restore(row) if isinstance(row, FlatRow) else row
        if self.spec is not None:
            check_against(known, self.spec)
        return row if isinstance(row, FlatRow) else flatten(row)

    def insert(self, flats: Sequence[FlatRow]) -> int:
        """`append` for rows that went through `prepare`; never refuses for the disk reserve."""
        durable = self._always or any(map(_is_mark, flats))
        with self._transaction(durable=durable) as db:
            first = schema.last_seq(db)
            new: list[FlatRow] = []
            for flat in flats:
                seq = first + len(new) + 1
                values = (seq, *flat.values, flat.checksum(seq))
                if db.execute(schema.INSERT[flat.kind], values).rowcount == 1:
                    new.append(flat)
                else:
                    _require_same(db, flat)
            summary.add(db, new)
        return len(new)

    def append_fitting(self, rows: Sequence[FlatRow]) -> tuple[int, list[Key]]:
        """`append`, leaving out rows that contradict what is here; returns new ones and those.

        A row that contradicts takes the later rows of its episode in this call with it, except an
        event or a label, which stands alone.
        """
        left_out: list[Key] = []
        apart: set[tuple[Value, ...]] = set()
        new = 0
        for row in rows:
            episode = row.values[:3]
            try:
                if episode not in apart:
                    new += self.append([row])
                    continue
            except ConflictError:
                if row.kind not in ALONE:
                    apart.add(episode)
            left_out.append(row.key)
        return new, left_out

    def check_reserve(self) -> None:
        """Raise `StoreError` when the disk is too full to start an episode."""
        free = shutil.disk_usage(self.path.parent).free
        if free < self.reserve_bytes:
            raise StoreError(
                "too little disk space to start an episode",
                expected=f">= {self.reserve_bytes / 1e9:.1f} GB free beside {self.path.name}",
                got=f"{free / 1e9:.2f} GB",
                fix=f"free some space, or lower the reserve with {RESERVE_VARIABLE}",
            )

    def recover(self, run: str, actor: str) -> list[EpisodeId]:
        """Mark every episode that nobody ended as aborted; call once when an actor starts.

        Rows are never changed: the mark is one more event, replicated like any other row. It is
        the same whatever was left of the episode, so that it cannot contradict itself.
        """
        dead = [r for r in self.episode_summaries(run, actor) if r.ending is None]
        for record in dead:
            event = Event(
                id=record.id,
                event=ABORT_MARK,
                step=-1,
                name=EPISODE_ABORTED,
                detail="the actor stopped before the episode ended",
                stamp_ns=record.stamp_ns,
            )
            self.insert([flatten(event)])
            log.warning("episode %d was cut short; marked aborted", record.id.episode)
        return [record.id for record in dead]

    # -- reading ---------------------------------------------------------------------------------

    def rows_since(
        self, cursor: int, limit: int, max_bytes: int = READ_BYTES
    ) -> tuple[list[Row], int]:
        """Up to `limit` rows committed after `cursor` (0 = all), in commit order; the new cursor.

        max_bytes: about how much they may hold; there is at least one if there is any.

        Raises:
            StoreError: a row is damaged or missing.
        """
        found: list[FlatRow] = []
        size, reached = 0, cursor
        with self._transaction("DEFERRED") as db:
            forgotten = schema.read_number(db, FORGOTTEN)
            last = schema.last_seq(db)
            for seq, flat in self._scan(db, cursor, limit):
                if seq != reached + 1 and seq > forgotten + 1:
                    raise self._damaged(f"row {reached + 1}", f"row {seq}")
                found.append(flat)
                reached, size = seq, size + flat.size
                if size >= max_bytes:
                    break
        if not found and last > max(cursor, forgotten):
            raise self._damaged(f"rows up to {last}", f"none after {cursor}")
        return [self._restore(flat) for flat in found], reached

    def rows_of(self, id: EpisodeId, until: int) -> list[Row]:
        """All rows of one episode up to commit number `until`, in commit order."""
        found: list[tuple[int, FlatRow]] = []
        with self._transaction("DEFERRED") as db:
            for kind in RowKind:
                sql = f"{schema.SELECT[kind]} WHERE run=? AND actor=? AND episode=? AND seq <= ?"
                values = (id.run, id.actor, id.episode, until)
                found += [self._checked(kind, row) for row in db.execute(sql, values)]
        return [self._restore(flat) for _, flat in sorted(found, key=itemgetter(0))]

    def last_seq(self) -> int:
        """Commit number of the newest row, 0 in an empty store."""
        with self._transaction("DEFERRED") as db:
            return schema.last_seq(db)

    def episodes(
        self, run: str | None = None, actor: str | None = None, purpose: str | None = None
    ) -> list[EpisodeStart]:
        """Episode headers in commit order, filtered by what is given."""
        given = {"run": run, "actor": actor, "purpose": purpose}
        where = {k: v for k, v in given.items() if v is not None}
        clause = " AND ".join(f"{k}=?" for k in where) or "1"
        return self._rows(RowKind.EPISODE, clause, tuple(where.values()), "seq")

    def episode_summaries(
        self, run: str | None = None, actor: str | None = None
    ) -> list[EpisodeRecord]:
        """The result of each episode, in commit order, without reading its observations."""
        with self._transaction("DEFERRED") as db:
            return summary.episode_records(db, run, actor)

    def steps(self, id: EpisodeId) -> list[Step]:
        """Steps of an episode by index."""
        return self._of(RowKind.STEP, id)

    def frames(self, id: EpisodeId) -> list[Frame]:
        """Frames of an episode by index."""
        return self._of(RowKind.FRAME, id)

    def events(self, id: EpisodeId) -> list[Event]:
        """Events of an episode by index."""
        return self._of(RowKind.EVENT, id)

    def labels(self, id: EpisodeId) -> list[Label]:
        """Labels of an episode, in commit order per author."""
        return self._of(RowKind.LABEL, id)

    def all_labels(self, kinds: Sequence[str] = (), after: int = 0) -> list[Label]:
        """Labels of all episodes in commit order; kinds: only these, () = all; after: seq."""
        clause = f"kind IN ({', '.join('?' * len(kinds))})" if kinds else "1"
        return self._rows(RowKind.LABEL, f"seq > ? AND {clause}", (after, *kinds), "seq")

    def select(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """The result of one SELECT: for figures that need no observations (`store.cycles`)."""
        with self._transaction("DEFERRED") as db:
            return db.execute(sql, values).fetchall()

    def newest_score(self, source: str) -> Label | None:
        """The newest success score of a source, if it is among the newest rows of the store."""
        clause = "seq > ? AND kind=? AND source=?"
        values = (self.last_seq() - NEWEST_ROWS, SUCCESS_SCORE, source)
        found = self._rows(RowKind.LABEL, clause, values, "seq DESC LIMIT 1")
        return found[0] if found else None

    def last_scores(self, author: str) -> dict[EpisodeId, Label]:
        """The success score with which an author ended each episode.

        Found by its number, not by its kind, so that the other scores need not be read.
        """
        clause = f"seq IN ({_NEWEST}) AND kind=?2"
        found = self._rows(RowKind.LABEL, clause, (author, SUCCESS_SCORE), "seq")
        return {label.id: label for label in found}

    def ending(self, id: EpisodeId) -> Ending | None:
        """Why the episode ended; ABORTED if it was cut short; None while nobody has ended it."""
        with self._transaction("DEFERRED") as db:
            return summary.episode_ending(db, id)

    def next_episode(self, run: str, actor: str) -> int:
        """First episode number that this run and actor have not used."""
        with self._transaction("DEFERRED") as db:
            sql = "SELECT max(episode) FROM episodes WHERE run=? AND actor=?"
            (last,) = db.execute(sql, (run, actor)).fetchone()
        return 0 if last is None else last + 1

    def next_label(self, id: EpisodeId, author: str) -> int:
        """First label number that this author has not used in the episode."""
        with self._transaction("DEFERRED") as db:
            sql = "SELECT max(label) FROM labels WHERE run=? AND actor=? AND episode=? AND author=?"
            (last,) = db.execute(sql, (id.run, id.actor, id.episode, author)).fetchone()
        return 0 if last is None else last + 1

    # -- replication -----------------------------------------------------------------------------

    def pending(self, max_bytes: int, max_rows: int) -> list[FlatRow]:
        """The oldest unacknowledged rows, in commit order; at least one if there is any."""
        batch: list[FlatRow] = []
        size = 0
        with self._transaction("DEFERRED") as db:
            aside = schema.read_episodes(db, ASIDE)
            passed = _acked(db)
            for seq, flat in self._scan(db, passed, max_rows):
                if flat.values[:3] in aside:
                    self._acked_ahead.add(seq)
                    continue
                size += flat.size
                if batch and size > max_bytes:
                    break
                batch.append(flat)
        if aside and not batch:  # nothing but rows that stay here: look behind them
            self.acknowledge(())
            with self._transaction("DEFERRED") as db:
                moved = _acked(db) > passed
            return self.pending(max_bytes, max_rows) if moved else []
        return batch

    def set_aside(self, keys: Iterable[Key]) -> list[EpisodeId]:
        """Keep the episodes of these rows here, unsent: the receiver has others by that name.

        Events and labels are passed over alone. Returns the episodes that are set aside from now.
        """
        episodes = {key[1:4] for key in keys if key[0] not in ALONE}
        with self._transaction() as db:
            known = schema.read_episodes(db, ASIDE)
            new = sorted(episodes - known)
            if new:
                schema.write_meta(db, ASIDE, [*map(list, known), *map(list, new)])
        return [EpisodeId(*episode) for episode in new]  # type: ignore[misc]

    def newest_acknowledged(self) -> Key | None:
        """Identity of the row at the sent cursor; None when nothing was acknowledged."""
        with self._transaction("DEFERRED") as db:
            acked = _acked(db)
            found = list(self._scan(db, acked - 1, 1)) if acked else []
        return found[0][1].key if found and found[0][0] == acked else None

    def has(self, key: Key) -> bool:
        """Whether there is a row with this identity."""
        with self._transaction("DEFERRED") as db:
            return _seq_of(db, key) is not None

    def send_again(self) -> None:
        """Every row is sent once more: the receiver has lost some that it had acknowledged."""
        with self._transaction() as db:
            schema.write_meta(db, ACKED, 0)
        self._acked_ahead = set()

    def acknowledge(self, keys: Iterable[Key]) -> None:
        """Record that the other side has committed the rows with these identities."""
        with self._transaction(durable=False) as db:
            acked = before = _acked(db)
            seqs = (_seq_of(db, key) for key in keys)
            ahead = self._acked_ahead | {seq for seq in seqs if seq is not None}
            while acked + 1 in ahead:
                acked += 1
            if acked > before:
                schema.write_meta(db, ACKED, acked)
        self._acked_ahead = {seq for seq in ahead if seq > acked}

    def send_to(self, receiver: str) -> None:
        """Rows go to this receiver from now on; one that is new gets them all."""
        with self._transaction() as db:
            before = schema.read_meta(db, RECEIVER)
            if before == receiver:
                return
            schema.write_meta(db, RECEIVER, receiver)
            if before is not None:
                schema.write_meta(db, ACKED, 0)
        self._acked_ahead = set()

    def pending_count(self) -> int:
        """Rows that nobody has acknowledged."""
        with self._transaction("DEFERRED") as db:
            return schema.last_seq(db) - _acked(db)

    # -- housekeeping ----------------------------------------------------------------------------

    def meta(self, key: str) -> Any:
        """JSON value kept under `key`, None if absent."""
        with self._transaction("DEFERRED") as db:
            return schema.read_meta(db, key)

    def set_meta(self, key: str, value: Any) -> None:
        """Keep a JSON value under `key`."""
        with self._transaction() as db:
            schema.write_meta(db, key, value)

    def verify(self, progress: Progress = ignore) -> None:
        """Read the whole file; raise `StoreError` when anything in it has changed.

        progress: called with (rows read, rows in all).

        Looked at are SQLite's structures, the CRC of each row and each value, gaps in the commit
        order, and whether the figures of the episodes follow from their steps.
        """
        with self._transaction("DEFERRED") as db:
            (answer,) = db.execute("PRAGMA integrity_check").fetchone()
            if answer != "ok":
                raise self._damaged("integrity_check: ok", str(answer))
            schema.check_meta(db)
            summary.check(db, schema.read_number(db, FORGOTTEN))
        cursor, last = 0, self.last_seq()
        while cursor < last:
            before = cursor
            _, cursor = self.rows_since(cursor, 256)
            if cursor == before:
                break
            progress(cursor, last)

    def close(self) -> None:
        """Close the file; calling it twice does no harm."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _transaction(
        self, mode: str = "IMMEDIATE", *, durable: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """One transaction; any error rolls it back, errors of SQLite become `StoreError`.

        durable: it is on the disk when it has ended, if it writes.
        """
        with self._lock:
            try:
                if mode != "DEFERRED":  # those only read
                    self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._db.execute(f"BEGIN {mode}")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):  # a full disk or a closed file has ended it already
                    self._db.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error | UnicodeDecodeError):
                    raise schema.store_error(error, self.path) from error
                raise

    def _agree(self, spec: Spec | None) -> Spec | None:
        """Save the spec in a new store; compare it with the one of an old store."""
        saved = self.meta("spec")
        if saved is None:
            if spec is not None:
                self.set_meta("spec", spec.as_dict())
            return spec
        if spec is None:
            return spec_from_dict(saved)
        lines = diff(saved, json.loads(json.dumps(spec.as_dict())))
        if lines:
            raise StoreError(
                f"{self.path.name} was recorded with another spec",
                expected="the spec saved in the store",
                got="; ".join(lines),
                fix="start a new run, or restore the settings listed above (saved -> now)",
            )
        return spec

    def _of(self, kind: RowKind, id: EpisodeId) -> list[Any]:
        clause = "run=? AND actor=? AND episode=?"
        order = TABLES[kind].columns[3].name
        return self._rows(kind, clause, (id.run, id.actor, id.episode), order)

    def _rows(self, kind: RowKind, clause: str, values: tuple[Any, ...], order: str) -> list[Any]:
        sql = f"{schema.SELECT[kind]} WHERE {clause} ORDER BY {order}"
        with self._transaction("DEFERRED") as db:
            found = db.execute(sql, values).fetchall()
        return [self._restore(self._checked(kind, row)[1]) for row in found]

    def _scan(
        self, db: sqlite3.Connection, after: int, limit: int
    ) -> Iterator[tuple[int, FlatRow]]:
        """(seq, row) of up to `limit` rows after `after`, in seq order across all tables."""

        def of(kind: RowKind) -> Iterator[tuple[int, FlatRow]]:
            sql = f"{schema.SELECT[kind]} WHERE seq > ? ORDER BY seq LIMIT ?"
            return (self._checked(kind, row) for row in db.execute(sql, (after, limit)))

        return islice(heapq.merge(*map(of, RowKind), key=itemgetter(0)), limit)

    def _checked(self, kind: RowKind, row: tuple[Any, ...]) -> tuple[int, FlatRow]:
        """(seq, row) of what a SELECT has found. Raises `StoreError` for another CRC."""
        seq, *values, crc = row
        flat = FlatRow(kind, tuple(values))
        if crc != flat.checksum(seq) and not (crc is None and seq <= self._unchecked):
            raise self._damaged("a matching CRC-32", f"row {seq} of {TABLES[kind].name}")
        return seq, flat

    def _restore(self, flat: FlatRow) -> Row:
        try:
            return restore(flat)
        except CodecError as error:
            raise self._damaged(error.expected, f"{flat.key}: {error.got}") from error

    def _damaged(self, expected: str, got: str = "something else") -> StoreError:
        return StoreError(
            f"{self.path.name} is damaged",
            expected=expected,
            got=got,
            fix="keep a copy, then restore the file from the other machine's store",
        )


def _is_mark(flat: FlatRow) -> bool:
    """Whether a row begins an episode or ends it."""
    if flat.kind is RowKind.STEP:
        return flat.values[_ENDING] is not None
    return flat.kind is RowKind.EPISODE or flat.key[-1] == ABORT_MARK


def _acked(db: sqlite3.Connection) -> int:
    """The seq up to which every row is on the other side."""
    return schema.read_number(db, ACKED)


def _seq_of(db: sqlite3.Connection, key: Key) -> int | None:
    kind, *identity = key
    found = db.execute(schema.SEQ_OF[RowKind(kind)], identity).fetchone()
    return None if found is None else found[0]


def _require_same(db: sqlite3.Connection, flat: FlatRow) -> None:
    """Raise `ConflictError` unless the stored row with this identity is the same as `flat`."""
    sql = f"{schema.SELECT[flat.kind]} WHERE {schema.IDENTITY[flat.kind]}"
    found = db.execute(sql, flat.key[1:]).fetchone()
    if tuple(found[1:-1]) != flat.values:
        raise ConflictError(
            f"two different rows claim to be {TABLES[flat.kind].name} {flat.key[1:]}",
            expected="one actor process per run and actor name, with its own store kept",
            got="the same identity with other content",
            fix="start a new run, or give this actor another name",
        )
