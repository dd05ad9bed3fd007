"""SQL of the store: tables made from `rows.TABLES`, opening a file, turning errors readable."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from robot_rl.errors import StoreError
from robot_rl.store.rows import TABLES, Table

SCHEMA_VERSION = 1  # bump when a table changes shape
BUSY_TIMEOUT_S = 5.0  # two connections of one process take turns; a commit lasts milliseconds
JOURNAL_LIMIT_BYTES = 64 << 20  # give the space of a long WAL back after a checkpoint


def _names(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


def _key_names(table: Table) -> list[str]:
    return [column.name for column in table.columns[: table.key_size]]


def _create(table: Table) -> str:
    columns = [f"{c.name} {c.sql}{'' if c.null else ' NOT NULL'}" for c in table.columns]
    unique = f"UNIQUE ({', '.join(_key_names(table))})"
    lines = ",\n  ".join(["seq INTEGER PRIMARY KEY", *columns, unique])
    return f"CREATE TABLE {table.name} (\n  {lines}\n)"


def _insert(table: Table) -> str:
    marks = ", ".join("?" * (len(table.columns) + 1))
    conflict = ", ".join(_key_names(table))
    # not OR IGNORE: that would also swallow a broken NOT NULL
    return (
        f"INSERT INTO {table.name} (seq, {_names(table)}) VALUES ({marks})"
        f" ON CONFLICT ({conflict}) DO NOTHING"
    )


IDENTITY = {k: " AND ".join(f"{name}=?" for name in _key_names(t)) for k, t in TABLES.items()}
INSERT = {k: _insert(t) for k, t in TABLES.items()}
SELECT = {k: f"SELECT seq, {_names(t)} FROM {t.name}" for k, t in TABLES.items()}
SEQ_OF = {k: f"SELECT seq FROM {t.name} WHERE {IDENTITY[k]}" for k, t in TABLES.items()}
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


def connect(path: Path) -> sqlite3.Connection:
    """Open (or make) a database in WAL mode.

    Raises:
        StoreError: no access, not a database, or a file system without WAL.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
        db.execute(f"PRAGMA journal_size_limit={JOURNAL_LIMIT_BYTES}")
    except sqlite3.Error as error:
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
        for table in TABLES.values():
            db.execute(_create(table))
        db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    elif version != SCHEMA_VERSION:
        raise StoreError(
            f"{path.name} has another schema",
            expected=f"schema version {SCHEMA_VERSION}",
            got=f"version {version}" if version else "a database that is no step store",
            fix="open it with the robot-rl version that wrote it, or start a new run",
        )


def last_seq(db: sqlite3.Connection) -> int:
    """Newest commit number over all tables, 0 when empty."""
    return db.execute(_LAST_SEQ).fetchone()[0]


def read_meta(db: sqlite3.Connection, key: str) -> Any:
    """JSON value kept under `key`, None if absent."""
    found = db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
    return None if found is None else json.loads(found[0])


def write_meta(db: sqlite3.Connection, key: str, value: Any) -> None:
    """Keep a JSON value under `key`."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


_FIXES = {
    "SQLITE_FULL": ("the disk is full", "free some space; what was committed is intact"),
    "SQLITE_IOERR": ("the disk failed", "check the disk (dmesg, SMART) and free space"),
    "SQLITE_BUSY": ("another process holds the store", "end the other process using this run"),
    "SQLITE_LOCKED": ("another process holds the store", "end the other process using this run"),
    "SQLITE_CORRUPT": ("the file is damaged", "restore it from the other machine's store"),
    "SQLITE_NOTADB": ("the file is not a store", "check the path; move the other file away"),
    "SQLITE_READONLY": ("the store cannot be written", "check the permissions of file and folder"),
    "SQLITE_CANTOPEN": ("the store cannot be opened", "check the path and its permissions"),
    "SQLITE_MISUSE": ("the store was closed", "open it again; close it last"),
}


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Turn an SQLite error into one with expected, got and fix."""
    name = getattr(error, "sqlite_errorname", "SQLITE_MISUSE")
    key = next((k for k in _FIXES if name.startswith(k)), "SQLITE_IOERR")
    summary, fix = _FIXES[key]
    return StoreError(
        f"{path.name}: {summary}", expected="a working store", got=f"{name}: {error}", fix=fix
    )
