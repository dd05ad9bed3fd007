"""One store file: opening it, one transaction at a time, rows read with their checksums.

`store.Store` is what everybody uses; `sending.Sending` is the part of it that the link needs.
"""

from __future__ import annotations

import heapq
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

from robot_rl.errors import CodecError, StoreError
from robot_rl.spec import Spec, diff, spec_from_dict
from robot_rl.store import schema
from robot_rl.store.rows import TABLES, FlatRow, RowKind, restore
from robot_rl.types import Row

RESERVE_BYTES = 2_000_000_000  # room to finish any running episode, checkpoints and logs
RESERVE_VARIABLE = "ROBOT_RL_DISK_RESERVE_BYTES"


class StoreFile:
    """One store file. All methods may be called from any thread; they take turns.

    Args:
        path: file; made if absent (parents too).
        spec: the run's contract; saved in a new store, compared with the spec of an old one. Rows
            appended are checked against it. None = whatever the file holds.
        reserve_bytes: free space below which no episode starts; None = environment variable
            ROBOT_RL_DISK_RESERVE_BYTES, or 2 GB.
        synchronous: "full" or "episode" (see `store.store`).

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

    def meta(self, key: str) -> Any:
        """JSON value kept under `key`, None if absent."""
        with self._transaction("DEFERRED") as db:
            return schema.read_meta(db, key)

    def set_meta(self, key: str, value: Any) -> None:
        """Keep a JSON value under `key`."""
        with self._transaction() as db:
            schema.write_meta(db, key, value)

    def last_seq(self) -> int:
        """Commit number of the newest row, 0 in an empty store."""
        with self._transaction("DEFERRED") as db:
            return schema.last_seq(db)

    def close(self) -> None:
        """Close the file; calling it twice does no harm."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
