"""Is every row of the actor at the learner, once, with the same content?

    ledger = Ledger(actor_path, learner_path)
    ledger.read()            # now and then, while both are written
    ledger.counts()

The files are read as plain SQLite, without the code that has written them.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from robot_rl.errors import StoreError
from robot_rl.store import schema
from robot_rl.store.codec import pack
from robot_rl.store.rows import TABLES, FlatRow, Key, RowKind
from robot_rl.store.store import Store

Digest = bytes


class Side:
    """One store, read on from where it was read last. missing: gaps in its commit order."""

    def __init__(self, path: Path) -> None:
        self.path, self.reached, self.missing = path, 0, 0

    def new_rows(self) -> Iterator[tuple[Key, Digest, Digest]]:
        """Identity, hash of identity and content, hash of the content alone, of each new row."""
        if not self.path.is_file():
            return
        with closing(_opened(self.path)) as db:
            db.execute("BEGIN")  # one state of the file for all tables
            last, count = _last(db), 0
            if not last:
                return
            for kind in RowKind:
                size = TABLES[kind].key_size
                sql = f"{schema.SELECT[kind]} WHERE seq > ? ORDER BY seq"
                for _, *values, _ in db.execute(sql, (self.reached,)):
                    count += 1
                    yield FlatRow(kind, tuple(values)).key, _hash(values), _hash(values[size:])
            self.missing += max(0, last - self.reached - count)
            self.reached = max(last, self.reached)

    def last(self) -> int:
        """Commit number of the newest row; 0 while there is none, or no table yet."""
        if not self.path.is_file():
            return 0
        with closing(_opened(self.path)) as db:
            return _last(db)


class Ledger:
    """Both sides of a link, row by row."""

    def __init__(self, actor: Path, learner: Path) -> None:
        self.actor, self.learner = Side(actor), Side(learner)
        self.rows = self.differ = self.doubled = 0
        self._sent: dict[Key, Digest] = {}
        self._stored: dict[Key, Digest] = {}
        self._steps: set[int] = set()

    def read(self) -> None:
        """Read what has come since; the actor's side first, so that the learner may be ahead."""
        for key, row, content in self.actor.new_rows():
            self.rows += 1
            self.doubled += self._put(self._sent, key, row) or self._again(key, content)
        self.read_learner()

    def read_learner(self) -> None:
        """Read what has come to the learner since, and compare."""
        for key, row, _ in self.learner.new_rows():
            self.doubled += self._put(self._stored, key, row)
        for key in [key for key in self._sent if key in self._stored]:
            self.differ += self._sent.pop(key) != self._stored.pop(key)

    @staticmethod
    def _put(where: dict[Key, Digest], key: Key, row: Digest) -> bool:
        """Whether the row was there already."""
        again = key in where
        where[key] = row
        return again

    def _again(self, key: Key, content: Digest) -> bool:
        """Whether a step with this content was there already, under another number."""
        if key[0] != RowKind.STEP:
            return False
        number, before = int.from_bytes(content), len(self._steps)
        self._steps.add(number)
        return len(self._steps) == before

    @property
    def waiting(self) -> int:
        """Rows of the actor that have not been seen at the learner."""
        return len(self._sent)

    def counts(self) -> dict[str, int]:
        """What is wrong, when both sides have ended; 0 everywhere if nothing is.

        foreign: the learner has them, the actor has not; a second copy of a row is one of these
        when it comes after the first was compared.
        """
        return {
            "rows_lost": self.waiting + self.actor.missing + self.learner.missing,
            "rows_doubled": self.doubled,
            "rows_foreign": len(self._stored),
            "rows_that_differ": self.differ,
        }


def damage(*paths: Path) -> list[str]:
    """What `Store.verify` has against these files; it reads every row of them."""
    found = []
    for path in paths:
        try:
            with Store(path) as store:
                store.verify()
        except StoreError as error:
            found.append(f"{path.name}: {error.summary}: {error.got}")
    return found


def _opened(path: Path) -> sqlite3.Connection:
    """A connection that only reads; whoever writes the file may die meanwhile."""
    db = sqlite3.connect(path, timeout=10.0, isolation_level=None)
    db.execute("PRAGMA query_only=1")
    return db


def _last(db: sqlite3.Connection) -> int:
    if not db.execute("PRAGMA user_version").fetchone()[0]:  # somebody is making the tables
        return 0
    newest = [db.execute(f"SELECT max(seq) FROM {t.name}").fetchone()[0] for t in TABLES.values()]
    return max(seq or 0 for seq in newest)


def _hash(values: list[object]) -> Digest:
    return hashlib.blake2b(pack(values), digest_size=8).digest()
