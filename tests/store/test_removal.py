"""What an actor's store removes: only what the learner has, and all that it needs is left."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from robot_rl.bench.faults.power import cut, no_checkpoints, page_ends
from robot_rl.bench.samples import episode_rows, sample_spec, start_row
from robot_rl.errors import StoreError
from robot_rl.store import removal
from robot_rl.store.labels import PREDICATE, SUCCESS_SCORE
from robot_rl.store.rows import FlatRow, flatten
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Event, Label, Row

SPEC = sample_spec(images=1, image_size=32)
RUN, ACTOR = "run", "actor-0"
STEPS = 6
EVERYTHING = 10**9


def number(episode: int) -> EpisodeId:
    return EpisodeId(RUN, ACTOR, episode)


def rows_of(episode: int, purpose: str = "train") -> list[Row]:
    """An episode with scores of each step, an event, and what a person said."""
    id_ = number(episode)
    _, *rows = episode_rows(SPEC, id_, STEPS, ending=Ending.TERMINATED)
    scores = [
        Label(id_, 2 * k + 1, k, SUCCESS_SCORE, k / STEPS, PREDICATE, PREDICATE, k)
        for k in range(STEPS)
    ]
    said = Label(id_, 0, None, "success", 1.0, "person", "ada", 6)
    event = Event(id_, 0, 2, "takeover", "", 5)
    return [start_row(SPEC, id_, purpose), *scores, *rows, event, said]


def acknowledge_all(store: Store) -> None:
    while batch := store.pending(EVERYTHING, 512):
        store.acknowledge(row.key for row in batch)


def remove_all(store: Store, keep_bytes: int = 0, keep_episodes: int = 1) -> int:
    """Remove until nothing is to be removed; returns in how many small steps."""
    steps = 0
    while store.remove_some(keep_bytes, keep_episodes):
        steps += 1
        assert steps < 10_000
    return steps


def removed(store: Store) -> list[int]:
    return [r.id.episode for r in store.episode_summaries() if r.removed]


def all_rows(store: Store) -> list[FlatRow]:
    return [flatten(row) for row in store.rows_since(0, 10**6)[0]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "actor.sqlite", spec=SPEC, reserve_bytes=0) as opened:
        yield opened


def test_nothing_goes_before_it_is_acknowledged_or_while_there_is_room(store: Store) -> None:
    for episode in range(4):
        store.append(rows_of(episode))
    whole = all_rows(store)
    assert remove_all(store) == 0
    first = [flatten(row) for row in rows_of(0)]
    store.acknowledge(row.key for row in first[:-3])  # the last frame is missing
    assert remove_all(store) == 0
    store.acknowledge(row.key for row in first[-3:])
    assert remove_all(store, keep_bytes=EVERYTHING) == 0
    assert remove_all(store, keep_episodes=4) == 0
    assert all_rows(store) == whole
    remove_all(store)
    assert removed(store) == [0]


def test_what_is_left_of_an_episode_says_what_it_said_before(store: Store) -> None:
    for episode in range(5):
        store.append(rows_of(episode))
    before = store.episode_summaries()
    scores, said = store.last_scores(PREDICATE), store.all_labels(["success"])
    acknowledge_all(store)
    remove_all(store, keep_episodes=2)
    assert removed(store) == [0, 1, 2]
    for old, new in zip(before, store.episode_summaries(), strict=True):
        assert (old.steps, old.ending, old.success) == (new.steps, new.ending, new.success)
    assert store.last_scores(PREDICATE) == scores and store.all_labels(["success"]) == said
    assert store.next_episode(RUN, ACTOR) == 5 and store.recover(RUN, ACTOR) == []
    assert store.steps(number(2)) == [] and store.frames(number(2)) == []
    assert len(store.labels(number(2))) == 2  # the last score, and the person's word
    assert len(store.steps(number(3))) == STEPS and len(store.frames(number(3))) == STEPS + 1
    store.verify()
    last = store.last_seq()
    store.append([Label(number(0), 1, None, "exclude", 1.0, "person", "ada", 7)])
    assert store.last_seq() == last + 1 and len(store.pending(EVERYTHING, 512)) == 1


def test_demonstrations_data_and_what_is_set_aside_stay(store: Store) -> None:
    for episode, purpose in enumerate(("demo", "train", "data", "train", "train", "eval", "train")):
        store.append(rows_of(episode, purpose))
    store.set_aside([flatten(rows_of(3)[0]).key])
    acknowledge_all(store)
    remove_all(store)
    assert removed(store) == [1, 4, 5]
    store.verify()


def test_damage_behind_and_among_removed_rows_is_still_found(store: Store) -> None:
    for episode, purpose in enumerate(("demo", "train", "train")):
        store.append(rows_of(episode, purpose))
    acknowledge_all(store)
    remove_all(store)
    assert removed(store) == [1]
    for episode in (0, 2):
        copy = store.path.with_name(f"damaged-{episode}.sqlite")
        with sqlite3.connect(copy) as raw:
            store._db.backup(raw)
            raw.execute("DELETE FROM steps WHERE episode=? AND step=3", (episode,))
        raw.close()
        with Store(copy) as damaged, pytest.raises(StoreError, match="damaged"):
            damaged.verify()


@pytest.mark.parametrize("has_room_at_the_end", [False, True])
def test_the_file_stays_within_its_bounds(
    store: Store, has_room_at_the_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "SPARE_BYTES", 1 << 18)
    keep, sizes = 1_000_000, []
    for episode in range(120):  # 25 kB each
        store.append(rows_of(episode))
        if not has_room_at_the_end or episode >= 80:  # until then, nobody acknowledges
            acknowledge_all(store)
            remove_all(store, keep, 3)
        sizes.append(store._db.execute("PRAGMA page_count").fetchone()[0] * 4096)
    assert max(sizes) < 1.2 * keep if not has_room_at_the_end else max(sizes[:80]) > 2 * keep
    assert sizes[-1] < keep + 1.5 * (1 << 18)
    store.verify()
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert store.path.stat().st_size <= sizes[-1]


def test_an_older_file_takes_new_rows_where_the_removed_ones_were(tmp_path: Path) -> None:
    path = tmp_path / "actor.sqlite"
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        store._db.execute("PRAGMA auto_vacuum=NONE")
        store._db.execute("PRAGMA journal_mode=DELETE")
        store._db.execute("VACUUM")
    sizes = []
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        for episode in range(60):
            store.append(rows_of(episode))
            acknowledge_all(store)
            remove_all(store, 500_000, 3)
            sizes.append(store._db.execute("PRAGMA page_count").fetchone()[0] * 4096)
        assert store._db.execute("PRAGMA auto_vacuum").fetchone() == (0,)
        assert sizes[20] < 600_000 and sizes[-1] < 1.1 * sizes[20] and len(removed(store)) > 20


def test_small_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "BATCH_BYTES", 7000)  # two frames
    for episode in range(3):
        store.append(rows_of(episode))
    acknowledge_all(store)
    assert store.remove_some(0, 1)
    assert removed(store) == [0] and len(store.frames(number(0))) == STEPS + 1 - 3
    store.verify()
    with Store(store.path, spec=SPEC) as again:  # which goes on where the other was killed
        assert remove_all(again, keep_bytes=EVERYTHING) == 2  # to the end of this episode
        assert removed(again) == [0] and again.frames(number(0)) == []


def test_a_power_cut_at_any_page_of_the_log_leaves_an_episode_that_is_there_or_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "BATCH_BYTES", 7000)
    rng, path = np.random.default_rng(0), tmp_path / "store.sqlite"
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        for episode in range(4):
            store.append(rows_of(episode, "demo" if episode == 1 else "train"))
        whole = {row.key: row.values for row in all_rows(store)}
        acknowledge_all(store)
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        no_checkpoints(store._db)
        remove_all(store)
        store.append(rows_of(4))
        acknowledge_all(store)
        remove_all(store)
        whole |= {flatten(row).key: flatten(row).values for row in rows_of(4)}
        ends = page_ends(path)
        cuts = [(at, torn) for at in ends[:: max(1, len(ends) // 20)] for torn in (None, rng)]
        assert len(cuts) > 30
        found: set[tuple[int, ...]] = set()
        for at, torn in cuts:
            left = cut(path, tmp_path / "cut" / "store.sqlite", at, torn)
            with Store(left, spec=SPEC, reserve_bytes=0) as after:
                after.verify()
                there = {row.key: row.values for row in all_rows(after)}
                assert there.items() <= whole.items()
                found.add(tuple(removed(after)))
                for record in after.episode_summaries():
                    if not record.removed:
                        assert len(after.steps(record.id)) == record.steps == STEPS
                        assert len(after.frames(record.id)) == STEPS + 1
                acknowledge_all(after)
                remove_all(after)  # goes on by itself
                after.verify()
        assert {(), (0,), (0, 2), (0, 2, 3)} <= found


def test_a_receiver_that_lost_its_end_gets_it_again_and_one_that_is_new_what_is_left(
    store: Store, tmp_path: Path
) -> None:
    for episode in range(5):
        store.append(rows_of(episode, "demo" if episode == 1 else "train"))
    store.send_to("one")
    acknowledge_all(store)
    remove_all(store, keep_episodes=2)
    assert removed(store) == [0, 2]
    newest = store.begin_sending()
    assert newest is not None and newest[:4] == (4, RUN, ACTOR, 4)
    assert store.rewind()  # it lost something: has it the newest row that was removed?
    boundary = store.begin_sending()
    assert boundary is not None and boundary[:4] == (1, RUN, ACTOR, 2)
    assert not store.has(boundary)
    sent = {row.key[3] for row in store.pending(EVERYTHING, 512)}
    assert sent == {2, 3, 4}  # of 2, what came after its steps
    assert not store.rewind()  # it has not: nothing can be done but to send what is left
    store.send_to("two")
    assert store.begin_sending() == boundary  # the same question to a new one
    store.send_again()
    got: list[FlatRow] = []
    while batch := store.pending(EVERYTHING, 5):
        got += batch
        store.acknowledge(row.key for row in batch)
        if len(got) == 10:
            assert store.begin_sending() is None  # cut short: from the beginning
            got.clear()
    assert {row.key[3] for row in got if row.kind <= 2} == {1, 3, 4}
    assert store.pending_count() == 0 and store.begin_sending() == newest
    with Store(tmp_path / "new.sqlite", spec=SPEC, reserve_bytes=0) as new:
        new.append(got)
        new.verify()
        assert [r.steps for r in new.episode_summaries()] == [STEPS] * 3


def test_a_store_of_two_actors_removes_nothing(store: Store) -> None:
    other = [start_row(SPEC, EpisodeId(RUN, "other", 0))]
    first = rows_of(0)
    store.append([*first[:5], *other, *first[5:]])
    for episode in range(1, 4):
        store.append(rows_of(episode))
    acknowledge_all(store)
    assert remove_all(store) == 0


def test_to_look_into_a_store_changes_no_byte_of_it(tmp_path: Path) -> None:
    path = tmp_path / "actor.sqlite"
    with Store(path, spec=SPEC, reserve_bytes=0) as store:
        store.append(rows_of(0))
        assert store._db.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    before = path.read_bytes()
    with Store(path) as again:
        assert len(again.steps(number(0))) == STEPS
        assert again._db.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert path.read_bytes() == before


def test_the_copy_of_a_file_goes_on_alike(store: Store, tmp_path: Path) -> None:
    for episode in range(3):
        store.append(rows_of(episode))
    acknowledge_all(store)
    remove_all(store)
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(store.path, tmp_path / "copy.sqlite")
    with Store(tmp_path / "copy.sqlite", spec=SPEC) as copy:
        assert all_rows(copy) == all_rows(store) and removed(copy) == [0, 1]
