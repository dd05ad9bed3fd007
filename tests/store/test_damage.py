"""Changed bits of a store: found by `verify`, or they have changed nothing; old files are read."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.errors import ReadOnlyError, StoreError
from robot_rl.run.verify import parts
from robot_rl.store import schema
from robot_rl.store.rows import TABLES, FlatRow, flatten
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Event, Label, Row

SPEC = sample_spec()
FLIPS = 492


def some_rows() -> list[Row]:
    rows: list[Row] = []
    for number in range(4):
        id_ = EpisodeId("run", "actor-0", number)
        rows += episode_rows(SPEC, id_, 20, ending=None if number == 2 else Ending.TERMINATED)
        rows += [Event(id_, 0, 2, "takeover", "stuck", 5)]
        rows += [Label(id_, k, k, "success_score", k / 9, "classifier", "c", 6) for k in range(9)]
        rows += [Label(id_, 0, None, "success", 1.0, "person", "ada", 6)]
    return rows


def make(path: Path) -> Path:
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        store.append(some_rows())
        store.recover("run", "actor-0")
        store.set_meta("session", {"practice_s": 12.5})
        store.acknowledge(flatten(row).key for row in some_rows()[:50])
    return path


def content(path: Path) -> tuple[object, ...]:
    """Everything that anybody reads of a store."""
    with Store(path, spec=SPEC) as store:
        store.verify()
        rows = [flatten(row) for row in store.rows_since(0, 10**6)[0]]
        meta = [store.meta(key) for key in ("spec", "session", "acked_seq")]
        ends = [store.ending(start.id) for start in store.episodes()]
        return rows, meta, store.episode_summaries(), ends, store.pending_count()


def test_a_store_in_a_folder_that_cannot_be_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "a #1? %20" / "store.sqlite")
    whole, files = content(path), list(path.parent.iterdir())
    opened: list[str] = []
    connect = sqlite3.connect

    def watched(address: str, **options: Any) -> sqlite3.Connection:
        opened.append(address)
        return connect(address, **options)

    monkeypatch.setattr(schema, "may_write", lambda _: False)
    monkeypatch.setattr(schema.sqlite3, "connect", watched)
    link = tmp_path / "actor.sqlite"
    link.symlink_to(path)
    assert content(path) == content(link) == whole
    stores = [address for address in opened if address != ":memory:"]
    assert len(stores) == 2 and all("immutable=1" in address for address in stores)
    with Store(path) as store, pytest.raises(ReadOnlyError, match="cannot be written"):
        store.set_meta("session", {})
    assert list(path.parent.iterdir()) == files


def test_a_log_that_cannot_be_taken_in_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "store.sqlite")
    path.with_name("store.sqlite-wal").write_bytes(b"")
    path.with_name("store.sqlite-shm").mkdir()  # as on a disk where none can be made
    with pytest.raises(StoreError, match="check the permissions"):
        Store(path)
    monkeypatch.setattr(schema, "may_write", lambda _: False)
    with pytest.raises(ReadOnlyError, match="copy the whole run folder"):
        Store(path)
    status, text, fix = parts(tmp_path)["store.sqlite"]()
    assert status == "warn" and "read-only" in text and "copy" in fix


def test_every_changed_bit_is_found_or_has_changed_nothing(tmp_path: Path) -> None:
    path = make(tmp_path / "store.sqlite")
    whole, data = content(path), path.read_bytes()
    rng = np.random.default_rng(17)
    found = 0
    for _ in range(FLIPS):
        damaged = bytearray(data)
        damaged[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            assert content(path) == whole
        except StoreError as error:  # and nothing else, whatever SQLite raises
            assert error.expected and error.got and error.fix
            found += 1
        for left in (path.with_name("store.sqlite-wal"), path.with_name("store.sqlite-shm")):
            left.unlink(missing_ok=True)
    assert found > FLIPS // 4  # the other bits belong to no row


def test_a_change_of_any_column_is_found(tmp_path: Path) -> None:
    path = make(tmp_path / "store.sqlite")
    for table in TABLES.values():
        for column in (*(c.name for c in table.columns), "crc", "seq"):
            with sqlite3.connect(path, isolation_level=None) as raw:
                name, kind = (
                    table.name,
                    raw.execute(
                        f"SELECT typeof({column}) FROM {table.name} ORDER BY seq"
                    ).fetchone(),
                )
                new = {
                    "text": f"{column} || 'x'",
                    "blob": f"{column} || x'00'",
                    "null": "1",
                }.get(kind[0], f"{column} + 1000")
                where = f"WHERE seq=(SELECT min(seq) FROM {name})"
                raw.execute("BEGIN")
                (seq, old) = raw.execute(f"SELECT seq, {column} FROM {name} {where}").fetchone()
                raw.execute(f"UPDATE {name} SET {column}={new} {where}")
                raw.execute("COMMIT")
            with Store(path) as store, pytest.raises(StoreError, match="damaged"):
                store.verify()
            with sqlite3.connect(path, isolation_level=None) as raw:
                moved = seq + 1000 if column == "seq" else seq
                raw.execute(f"UPDATE {name} SET {column}=? WHERE seq=?", (old, moved))
    with Store(path) as store:
        store.verify()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE results SET human_steps=human_steps+1 WHERE episode=1",
        "DELETE FROM results WHERE episode=1",
        "UPDATE meta SET value='7' WHERE key='acked_seq'",
    ],
)
def test_figures_and_values_that_were_changed_are_found(tmp_path: Path, sql: str) -> None:
    path = make(tmp_path / "store.sqlite")
    with sqlite3.connect(path) as raw:
        raw.execute(sql)
    with Store(path) as store, pytest.raises(StoreError, match="damaged"):
        store.verify()


def test_another_description_of_the_tables_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "store.sqlite")
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE INDEX mine ON steps (driver)")
    with pytest.raises(StoreError, match="damaged"):
        Store(path)


def old_store(path: Path) -> list[FlatRow]:
    """A file as version 1 of the schema wrote it."""
    rows = [flatten(row) for row in some_rows()]
    raw = sqlite3.connect(path, isolation_level=None)
    schema._make_old(raw)
    for seq, row in enumerate(rows, 1):
        table = TABLES[row.kind]
        marks = ", ".join("?" * (len(row.values) + 1))
        raw.execute(f"INSERT INTO {table.name} VALUES ({marks})", (seq, *row.values))
    raw.execute("""INSERT INTO meta VALUES ('session', '{"mastered": true}')""")
    raw.close()
    return rows


def test_a_store_of_the_version_before_is_read_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    rows = old_store(path)
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        assert [flatten(row) for row in store.rows_since(0, 1000)[0]] == rows
        assert store.meta("session") == {"mastered": True}
        records = store.episode_summaries()
        assert [r.steps for r in records] == [20] * 4 and records[2].ending is None
        store.recover("run", "actor-0")
        store.append(episode_rows(SPEC, EpisodeId("run", "actor-0", 9), 3))
        store.verify()
    with Store(path, spec=SPEC) as store:
        store.verify()
        assert store.ending(EpisodeId("run", "actor-0", 2)) is Ending.ABORTED
    with sqlite3.connect(path) as raw:  # only old rows may lack a checksum
        raw.execute("UPDATE steps SET crc=NULL WHERE episode=9")
    with Store(path) as store, pytest.raises(StoreError, match="CRC"):
        store.verify()


def test_figures_of_episodes_follow_from_rows_in_any_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = some_rows()
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        for part in np.array_split(rng.permutation(len(rows)), 25):
            store.append([rows[i] for i in part])
            store.append([rows[i] for i in part[:3]])  # a second time
        store.verify()
        assert [r.steps for r in sorted(store.episode_summaries(), key=lambda r: r.id)] == [20] * 4


def test_a_read_is_bounded_in_bytes(tmp_path: Path) -> None:
    with Store(make(tmp_path / "store.sqlite")) as store:
        cursor, seen = 0, 0
        while True:
            rows, cursor = store.rows_since(cursor, 1000, max_bytes=2000)
            if not rows:
                break
            assert len(rows) < 40
            seen += len(rows)
        assert seen == store.last_seq()
