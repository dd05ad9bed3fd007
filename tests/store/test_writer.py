"""The writer thread: the caller never waits for the disk, and nothing is dropped in silence."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows, frame_row, sample_spec, start_row, step_row
from robot_rl.errors import CodecError, StoreError
from robot_rl.store.store import Store
from robot_rl.store.writer import StoreWriter
from robot_rl.types import EpisodeId

SPEC = sample_spec(images=1, image_size=8)
ID = EpisodeId("run", "actor-0", 0)


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as opened:
        yield opened


def stall(store: Store, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make the disk hang until the event is set."""
    go, insert = threading.Event(), store.insert
    monkeypatch.setattr(store, "insert", lambda flats: (go.wait(10), insert(flats))[1])
    return go


def test_rows_are_committed_in_order_and_seen_by_other_connections(store: Store) -> None:
    rows = episode_rows(SPEC, ID, 50)
    with StoreWriter(store) as writer:
        for row in rows:
            writer.put([row])
        writer.flush()
        assert writer.lag() == 0
        with Store(store.path) as reader:
            assert reader.last_seq() == len(rows)
    back, _ = store.rows_since(0, 1000)
    assert [type(r) for r in back] == [type(r) for r in rows]


def test_put_returns_at_once_while_the_disk_hangs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = stall(store, monkeypatch)
    rng = np.random.default_rng(0)
    with StoreWriter(store) as writer:
        for k in range(100):
            rows = [step_row(SPEC, ID, k, rng), frame_row(SPEC, ID, k, rng)]
            writer.put(rows)
        assert writer.lag() == 200  # nothing has been written, and nobody waited for it
        with pytest.raises(StoreError, match="200 rows waiting"):
            writer.flush(timeout_s=0.01)
        go.set()
    assert store.last_seq() == 200


def test_a_full_queue_raises_and_keeps_what_was_accepted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = stall(store, monkeypatch)
    rng = np.random.default_rng(0)
    writer = StoreWriter(store, max_bytes=10_000)
    accepted = 0
    with pytest.raises(StoreError, match="slower than the rows"):
        for k in range(1000):
            writer.put([frame_row(SPEC, ID, k, rng)])
            accepted += 1
    go.set()
    writer.close()
    assert 0 < accepted == store.last_seq()


def test_a_failed_disk_is_reported_by_every_later_call(store: Store) -> None:
    writer = StoreWriter(store)
    writer.put(episode_rows(SPEC, ID, 5))
    writer.flush()
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count={pages}")
    writer.put(episode_rows(SPEC, EpisodeId("run", "a", 1), 200))
    for call in (writer.flush, lambda: writer.put([start_row(SPEC, ID)]), writer.close):
        with pytest.raises(StoreError, match=r"402 rows are not stored: .*disk is full"):
            call()
    store.verify()
    assert store.last_seq() == 12


def test_bad_rows_and_a_nearly_full_disk_stop_the_caller_not_the_writer(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with (
        Store(tmp_path / "s.sqlite", spec=SPEC, reserve_bytes=10**18) as store,
        StoreWriter(store) as writer,
    ):
        with pytest.raises(StoreError, match="too little disk space"):
            writer.put([start_row(SPEC, ID)])
        with pytest.raises(CodecError):
            writer.put([step_row(SPEC, EpisodeId("run", "a", -1), 0, rng)])
        writer.put([step_row(SPEC, ID, 0, rng)])
        writer.flush()
        assert store.last_seq() == 1


def test_put_after_close_raises(store: Store) -> None:
    writer = StoreWriter(store)
    writer.close()
    writer.close()
    with pytest.raises(StoreError, match="closed"):
        writer.put([start_row(SPEC, ID)])
