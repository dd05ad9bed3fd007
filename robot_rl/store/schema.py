"""SQL of the store: tables made from `rows.TABLES`, opening a file, turning errors readable.

Version 2 keeps a CRC-32 with every row and every meta value, and the figures of each episode in a
table of their own (`store.summary`). A file of version 1 becomes one of version 2 when it is
opened, without being rewritten: its rows have no CRC, and meta key `UNCHECKED` says up to where.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from robot_rl.errors import ReadOnlyError, StoreError
from robot_rl.store import summary
from robot_rl.store.codec import pack
from robot_rl.store.rows import TABLES, Table
from robot_rl.system import plain_json

SCHEMA_VERSION = 2  # bump when a table changes shape
UNCHECKED = "unchecked"  # meta key: seq up to which rows were written without a CRC
BUSY_TIMEOUT_S = 5.0  # two connections of one process take turns; a commit lasts milliseconds
INCREMENTAL = 2  # PRAGMA auto_vacuum: the file can be made shorter (`store.removal`)
JOURNAL_LIMIT_BYTES = 64 << 20  # give the space of a long WAL back after a checkpoint


def _names(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


def _key_names(table: Table) -> list[str]:
    return [column.name for column in table.columns[: table.key_size]]


def _create(table: Table, version: int = SCHEMA_VERSION) -> str:
    columns = [f"{c.name} {c.sql}{'' if c.null else ' NOT NULL'}" for c in table.columns]
    unique = f"UNIQUE ({', '.join(_key_names(table))})"
    crc = ["crc INTEGER NOT NULL"] if version > 1 else []
    lines = ",\n  ".join(["seq INTEGER PRIMARY KEY", *columns, *crc, unique])
    return f"CREATE TABLE {table.name} (\n  {lines}\n)"


def _insert(table: Table) -> str:
    marks = ", ".join("?" * (len(table.columns) + 2))
    conflict = ", ".join(_key_names(table))
    # not OR IGNORE: that would also swallow a broken NOT NULL
    return (
        f"INSERT INTO {table.name} (seq, {_names(table)}, crc) VALUES ({marks})"
        f" ON CONFLICT ({conflict}) DO NOTHING"
    )


IDENTITY = {k: " AND ".join(f"{name}=?" for name in _key_names(t)) for k, t in TABLES.items()}
INSERT = {k: _insert(t) for k, t in TABLES.items()}
SELECT = {k: f"SELECT seq, {_names(t)}, crc FROM {t.name}" for k, t in TABLES.items()}
SEQ_OF = {k: f"SELECT seq FROM {t.name} WHERE {IDENTITY[k]}" for k, t in TABLES.items()}
_OLD_META = "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
_META = _OLD_META.replace(")", ", crc INTEGER NOT NULL)", 1)
_LAST_SEQ = "SELECT max({})".format(
    ", ".join(f"coalesce((SELECT max(seq) FROM {t.name}), 0)" for t in TABLES.values())
)


def is_full(synchronous: str) -> bool:
    """Whether every commit is to be on the disk. Raises `StoreError` for an unknown word."""
    if synchronous not in ("full", "episode"):
        raise StoreError(
            "unknown durability", expected="full or episode", got=synchronous, fix="choose one"
        )
    return synchronous == "full"


def may_write(folder: Path) -> bool:
    """Whether this process may make a file in a folder."""
    return os.access(folder, os.W_OK)


def _is_sealed(path: Path) -> bool:
    """Whether a file can only be read as one that does not change.

    Even who only reads makes files beside a database in WAL mode. On a read-only disk or in
    somebody else's folder that is refused; a file without a log has all rows, and nobody writes it.
    """
    log = path.with_name(f"{path.name}-wal")
    return path.is_file() and not may_write(path.parent) and not log.exists()


def connect(path: Path) -> sqlite3.Connection:
    """Open (or make) a database in WAL mode; to read only, where its folder cannot be written.

    Raises:
        ReadOnlyError: it has a log, and its folder cannot be written.
        StoreError: no access, not a database, or a file system without WAL.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.resolve()  # its log is beside the file, not beside what leads to it
        sealed = _is_sealed(file)
        db = sqlite3.connect(
            file.as_uri() + ("?mode=ro&immutable=1" if sealed else ""),
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        if sealed:
            return db
        if db.execute("PRAGMA page_count").fetchone() == (0,):  # in another file it writes, too
            db.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")
        (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
        db.execute("PRAGMA secure_delete=OFF")  # else whatever is removed is written once more
        db.execute(f"PRAGMA journal_size_limit={JOURNAL_LIMIT_BYTES}")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise store_error(error, path) from error
    except OSError as error:
        raise StoreError(
            f"cannot make the folder of {path.name}",
            expected=f"a writable folder {path.parent}",
            got=str(error),
            fix="check the path and its permissions",
        ) from error
    if mode != "wal":
        db.close()
        raise StoreError(
            f"{path.name} cannot use a write-ahead log",
            expected="a local disk",
            got=f"journal mode {mode}",
            fix="put the run folder on a local disk, not on a network share",
        )
    return db


def create_or_check(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file; refuse a file of another kind or version.

    Raises:
        StoreError: with what was found and what to do.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version == 0 and tables == 0:
        _make(db)
    elif version == 1:
        _upgrade(db)
    elif version != SCHEMA_VERSION:
        raise StoreError(
            f"{path.name} has another schema",
            expected=f"schema version {SCHEMA_VERSION}",
            got=f"version {version}" if version else "a database that is no step store",
            fix="open it with the robot-rl version that wrote it, or start a new run",
        )
    elif _shape(db) not in _shapes():
        raise sqlite3.DatabaseError("the description of the tables has changed")


def _make(db: sqlite3.Connection) -> None:
    for table in TABLES.values():
        db.execute(_create(table))
    db.execute(_META)
    db.execute(summary.CREATE)
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _make_old(db: sqlite3.Connection) -> None:
    """Make the tables of version 1."""
    for table in TABLES.values():
        db.execute(_create(table, 1))
    db.execute(_OLD_META)
    db.execute("PRAGMA user_version=1")


def _upgrade(db: sqlite3.Connection) -> None:
    """Turn version 1 into version 2; takes about 2 s for a million steps."""
    for table in (*(t.name for t in TABLES.values()), "meta"):
        db.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER")
    for key, value in db.execute("SELECT key, value FROM meta").fetchall():
        try:
            write_meta(db, key, plain_json.loads(value))
        except ValueError as error:
            raise sqlite3.DatabaseError(f"the value of {key!r} is no JSON") from error
    db.execute(summary.CREATE)
    summary.fill(db)
    write_meta(db, UNCHECKED, last_seq(db))
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _shape(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    """How the tables and indexes of a file are described in it."""
    return db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 2").fetchall()


@lru_cache(maxsize=1)
def _shapes() -> list[list[tuple[str, ...]]]:
    """Descriptions that a file of this version may have: made so, or upgraded."""
    found = []
    for steps in ((_make,), (_make_old, _upgrade)):
        db = sqlite3.connect(":memory:", isolation_level=None)
        for step in steps:
            step(db)
        found.append(_shape(db))
        db.close()
    return found


def last_seq(db: sqlite3.Connection) -> int:
    """Newest commit number over all tables, 0 when empty."""
    return db.execute(_LAST_SEQ).fetchone()[0]


def read_meta(db: sqlite3.Connection, key: str) -> Any:
    """JSON value kept under `key`, None if absent. Raises `sqlite3.DatabaseError` for damage."""
    found = db.execute("SELECT value, crc FROM meta WHERE key=?", (key,)).fetchone()
    if found is None:
        return None
    if found[1] != _meta_crc(key, found[0]):
        raise sqlite3.DatabaseError(f"the value of {key!r} does not match its CRC")
    try:
        return plain_json.loads(found[0])
    except ValueError as error:
        raise sqlite3.DatabaseError(f"the value of {key!r} is no JSON") from error


def read_number(db: sqlite3.Connection, key: str) -> int:
    """A seq kept under `key`, 0 if absent. Raises `sqlite3.DatabaseError` for anything else."""
    found = read_meta(db, key) or 0
    if type(found) is not int or found < 0:
        raise sqlite3.DatabaseError(f"the value of {key!r} is no place in the commit order")
    return found


def read_episodes(db: sqlite3.Connection, key: str) -> set[tuple[Any, ...]]:
    """(run, actor, episode) of those kept under `key`. Raises as `read_number`."""
    found = read_meta(db, key) or []
    if not isinstance(found, list):
        raise sqlite3.DatabaseError(f"the value of {key!r} is no list")
    kinds = [[type(word) for word in row] if isinstance(row, list) else row for row in found]
    if any(row != [str, str, int] for row in kinds):
        raise sqlite3.DatabaseError(f"the value of {key!r} is no list of episodes")
    return set(map(tuple, found))


def write_meta(db: sqlite3.Connection, key: str, value: Any) -> None:
    """Keep a JSON value under `key`."""
    text = json.dumps(value)
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, text, _meta_crc(key, text)))


def check_meta(db: sqlite3.Connection) -> None:
    """Read every meta value. Raises `sqlite3.DatabaseError` for damage."""
    for (key,) in db.execute("SELECT key FROM meta").fetchall():
        read_meta(db, key)


def _meta_crc(key: str, text: str) -> int:
    return zlib.crc32(pack([key, text]))


_FIXES = {
    "SQLITE_FULL": ("the disk is full", "free some space; what was committed is intact"),
    "SQLITE_IOERR": ("the disk failed", "check the disk (dmesg, SMART) and free space"),
    "SQLITE_BUSY": ("another process holds the store", "end the other process using this run"),
    "SQLITE_LOCKED": ("another process holds the store", "end the other process using this run"),
    "SQLITE_CORRUPT": ("the file is damaged", "restore it from the other machine's store"),
    "SQLITE_ERROR": ("the file is damaged", "restore it from the other machine's store"),
    "SQLITE_FORMAT": ("the file is damaged", "restore it from the other machine's store"),
    "SQLITE_TOOBIG": ("the file is damaged", "restore it from the other machine's store"),
    "SQLITE_NOTADB": ("the file is not a store", "check the path; move the other file away"),
    "SQLITE_READONLY": ("the store cannot be written", "check the permissions of file and folder"),
    "SQLITE_CANTOPEN": ("the store cannot be opened", "check the path and its permissions"),
    "SQLITE_MISUSE": ("the store was closed", "open it again; close it last"),
}


_SEALED = ("SQLITE_CANTOPEN", "SQLITE_READONLY")  # in a folder that cannot be written


def store_error(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> StoreError:
    """Turn an SQLite error into one with expected, got and fix.

    A UnicodeDecodeError comes when a damaged file is quoted in SQLite's own message.
    """
    unnamed = isinstance(error, sqlite3.ProgrammingError)  # of Python's, not of SQLite's
    name = getattr(error, "sqlite_errorname", "SQLITE_MISUSE" if unnamed else "SQLITE_CORRUPT")
    key = next((k for k in _FIXES if name.startswith(k)), "SQLITE_IOERR")
    if key in _SEALED and path.is_file() and not may_write(path.resolve().parent):
        return ReadOnlyError(
            f"{path.name} is in a folder that cannot be written",
            expected="one that can be: a log that was left is taken in before rows are read",
            got=f"read-only; {name}: {error}",
            fix="copy the whole run folder to a place of yours, and give that one",
        )
    summary, fix = _FIXES[key]
    return StoreError(
        f"{path.name}: {summary}", expected="a working store", got=f"{name}: {error}", fix=fix
    )
