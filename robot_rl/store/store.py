"""The step store: append-only typed rows in SQLite, one global commit order, a sent cursor.

Every row has two names. Its *identity* (run, actor, episode, index) is the same on every machine
and is UNIQUE, so a row that arrives twice is stored once. Its `seq` is local: 1, 2, 3 ... over all
tables in commit order, without gaps (except where an actor has removed rows that the learner has:
`store.removal`); replay reads "everything after seq", and the sender's progress is one number.

What survives: WAL mode loses nothing that was committed when a process is killed, at any
instruction. A power cut or kernel crash loses nothing either, as each commit is on the disk when it
returns and before another connection can read it (`synchronous="full"`). With "episode", which a
run without a link can afford, that is true of the commits that begin or end an episode; what came
after the last of them may be gone, and the file is intact. Opening the file undoes a half-written
transaction. The sent cursor is not synced: when it is lost, rows are sent again and dropped.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from robot_rl.errors import ConflictError, StoreError
from robot_rl.store import removal, schema, summary
from robot_rl.store.file import RESERVE_BYTES, RESERVE_VARIABLE
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
from robot_rl.store.sending import ALONE, Sending
from robot_rl.store.summary import EPISODE_ABORTED, EpisodeRecord
from robot_rl.types import Ending, EpisodeId, EpisodeStart, Event, Frame, Label, Row, Step

__all__ = ["ABORT_MARK", "EPISODE_ABORTED", "RESERVE_BYTES", "RESERVE_VARIABLE", "Store"]

log = logging.getLogger(__name__)

ABORT_MARK = 2**31 - 1  # number of that event: one that no other event has
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


class Store(Sending):
    """Everything that may be done with one store file; arguments as of `file.StoreFile`."""

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
            removed = removal.removed_to(db)
            last = schema.last_seq(db)
            for seq, flat in self._scan(db, cursor, limit):
                if seq != reached + 1 and seq > removed + 1:
                    raise self._damaged(f"row {reached + 1}", f"row {seq}")
                found.append(flat)
                reached, size = seq, size + flat.size
                if size >= max_bytes:
                    break
        if not found and last > max(cursor, removed):
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

    def frame(self, id: EpisodeId, number: int) -> Frame | None:
        """One frame of an episode; None where there is none."""
        clause = "run=? AND actor=? AND episode=? AND frame=?"
        found = self._rows(RowKind.FRAME, clause, (id.run, id.actor, id.episode, number), "frame")
        return found[0] if found else None

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

    def newest_steps(self, count: int) -> list[Step]:
        """The newest steps, the last one first, if they are among the newest rows of the store."""
        clause = "seq > ?"
        return self._rows(
            RowKind.STEP, clause, (self.last_seq() - NEWEST_ROWS,), f"seq DESC LIMIT {int(count)}"
        )

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

    # -- the whole file ----------------------------------------------------------------------------

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
            summary.check(db, removal.removed_to(db))
        cursor, last = 0, self.last_seq()
        while cursor < last:
            before = cursor
            _, cursor = self.rows_since(cursor, 256)
            if cursor == before:
                break
            progress(cursor, last)

    # -- inside ----------------------------------------------------------------------------------

    def _of(self, kind: RowKind, id: EpisodeId) -> list[Any]:
        clause = "run=? AND actor=? AND episode=?"
        order = TABLES[kind].columns[3].name
        return self._rows(kind, clause, (id.run, id.actor, id.episode), order)


def _is_mark(flat: FlatRow) -> bool:
    """Whether a row begins an episode or ends it."""
    if flat.kind is RowKind.STEP:
        return flat.values[_ENDING] is not None
    return flat.kind is RowKind.EPISODE or flat.key[-1] == ABORT_MARK


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
