"""The part of a store that the link needs: what is to be sent, and what may go afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from robot_rl.store import removal, schema
from robot_rl.store.file import StoreFile
from robot_rl.store.removal import Episode, Limits
from robot_rl.store.rows import FlatRow, Key, RowKind
from robot_rl.types import EpisodeId

ACKED = "acked_seq"  # meta key of the sent cursor
RECEIVER = "receiver"  # meta key: to whom the cursor belongs
ASIDE = "set_aside"  # meta key: episodes that are not sent, as the receiver has others by that name
ALONE = (RowKind.EVENT, RowKind.LABEL)  # rows that say something about an episode


class Sending(StoreFile):
    """Rows are sent in commit order, and the sent cursor moves as they are acknowledged."""

    _ahead: frozenset[int] = frozenset()  # rows behind the cursor that are done with

    def pending(self, max_bytes: int, max_rows: int) -> list[FlatRow]:
        """The oldest unacknowledged rows, in commit order; at least one if there is any."""
        while True:
            batch: list[FlatRow] = []
            stay: set[int] = set()
            size = 0
            with self._transaction("DEFERRED") as db:
                aside, passed, removed = _aside(db), _acked(db), removal.removed_to(db)
                # what is left of episodes whose steps are gone is of no use to a new learner
                gone = removal.removed_episodes(db) if passed < removed else set()
                for seq, flat in self._scan(db, passed, max_rows):
                    episode = flat.values[:3]
                    if episode in aside or (seq <= removed and episode in gone):
                        stay.add(seq)
                        continue
                    size += flat.size
                    if batch and size > max_bytes:
                        break
                    batch.append(flat)
            self._ahead |= stay
            if batch or not stay:
                return batch
            self.acknowledge(())  # nothing but rows that stay here: look behind them
            if self.cursor() == passed:
                return []

    def set_aside(self, keys: Iterable[Key]) -> list[EpisodeId]:
        """Keep the episodes of these rows here, unsent: the receiver has others by that name.

        Events and labels are passed over alone. Returns the episodes that are set aside from now.
        """
        episodes = {key[1:4] for key in keys if key[0] not in ALONE}
        with self._transaction() as db:
            known = _aside(db)
            new = sorted(episodes - known)
            if new:
                schema.write_meta(db, ASIDE, [*map(list, known), *map(list, new)])
        return [EpisodeId(*episode) for episode in new]  # type: ignore[misc]

    def cursor(self) -> int:
        """Commit number up to which every row is on the other side."""
        with self._transaction("DEFERRED") as db:
            return _acked(db)

    def removed_to(self) -> int:
        """Commit number up to which rows may have been removed, 0 = none was (`store.removal`)."""
        with self._transaction("DEFERRED") as db:
            return removal.removed_to(db)

    def begin_sending(self) -> Key | None:
        """Identity of the newest row that the other side must have; None where there is none.

        What is sent again to a receiver that lacks removed rows begins anew each time that it is
        interrupted: then nothing says what the receiver has of it.
        """
        with self._transaction("DEFERRED") as db:
            acked, removed = _acked(db), removal.removed_to(db)
            found = list(self._scan(db, acked - 1, 1)) if acked > removed else []
            key = removal.boundary(db) if acked == removed else None
        if acked < removed:
            self._move_to(0)
        return found[0][1].key if found and found[0][0] == acked else key

    def has(self, key: Key) -> bool:
        """Whether there is a row with this identity."""
        with self._transaction("DEFERRED") as db:
            return _seq_of(db, key) is not None

    def rewind(self) -> bool:
        """Send everything again that lies behind the removed rows; False: that is so already.

        For a receiver that has lost rows: whether it has the newest removed row says whether it
        lacks anything that nobody can send.
        """
        with self._transaction("DEFERRED") as db:
            acked, removed = _acked(db), removal.removed_to(db)
        if acked > removed:
            self._move_to(removed)
        return acked > removed

    def send_again(self) -> None:
        """Every row that is here is sent once more: the receiver has lost what it acknowledged."""
        self._move_to(0)

    def acknowledge(self, keys: Iterable[Key]) -> None:
        """Record that the other side has committed the rows with these identities."""
        with self._transaction(durable=False) as db:
            acked = before = _acked(db)
            removed = removal.removed_to(db)
            seqs = (_seq_of(db, key) for key in keys)
            ahead = self._ahead | {seq for seq in seqs if seq is not None}
            while True:
                if acked + 1 in ahead:
                    acked += 1
                elif acked < removed and acked + 1 != (next_ := removal.following(db, acked)):
                    acked = min(removed, (next_ or removed + 1) - 1)  # rows that were removed
                else:
                    break
            if acked > before:
                schema.write_meta(db, ACKED, acked)
        self._ahead = frozenset(seq for seq in ahead if seq > acked)

    def send_to(self, receiver: str) -> None:
        """Rows go to this receiver from now on; one that is new gets them all.

        Rows that were removed are taken for granted until it says that it lacks them (`rewind`).
        """
        with self._transaction() as db:
            before = schema.read_meta(db, RECEIVER)
            if before == receiver:
                return
            schema.write_meta(db, RECEIVER, receiver)
            if before is not None:
                schema.write_meta(db, ACKED, removal.removed_to(db))
        self._ahead = frozenset()

    def pending_count(self) -> int:
        """Rows that nobody has acknowledged; where removed rows lie between, they are counted."""
        with self._transaction("DEFERRED") as db:
            return schema.last_seq(db) - _acked(db)

    def remove_some(self, keep_bytes: int, keep_episodes: int) -> bool:
        """Remove a few rows that the other side has, or make the file a little shorter.

        A few milliseconds; see `store.removal` for what goes and what stays. False = nothing to do.
        """
        limits = Limits(keep_bytes, keep_episodes)

        def found(db: sqlite3.Connection) -> tuple[Episode, Key | None, int] | None:
            return removal.candidate(db, limits, _acked(db), _aside(db))

        with self._transaction("DEFERRED") as db:  # nearly always nothing: nobody has to wait
            some, spare = found(db), removal.has_spare_pages(db)
        if some is None and not spare:
            return False
        with self._transaction(durable=False) as db:  # what is lost of it is done again
            some = found(db)
            if some is not None:
                removal.remove(db, *some)
            elif removal.has_spare_pages(db):
                removal.give_back(db)
        return True

    def _move_to(self, seq: int) -> None:
        with self._transaction() as db:
            schema.write_meta(db, ACKED, seq)
        self._ahead = frozenset()


def _acked(db: sqlite3.Connection) -> int:
    """The seq up to which every row is on the other side."""
    return schema.read_number(db, ACKED)


def _aside(db: sqlite3.Connection) -> set[Episode]:
    return schema.read_episodes(db, ASIDE)


def _seq_of(db: sqlite3.Connection, key: Key) -> int | None:
    kind, *identity = key
    found = db.execute(schema.SEQ_OF[RowKind(kind)], identity).fetchone()
    return None if found is None else found[0]
