"""The step store: identity, commit order, sent cursor, refusals, damage, full disk."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from robot_rl.bench.samples import (
    episode_rows,
    frame_row,
    sample_spec,
    start_row,
    step_row,
)
from robot_rl.errors import CodecError, ConflictError, RobotRLError, SpecError, StoreError
from robot_rl.store.labels import PREDICATE, PROGRESS, SUCCESS_SCORE
from robot_rl.store.rows import FlatRow, RowKind, flatten, restore
from robot_rl.store.store import ABORT_MARK, EPISODE_ABORTED, RESERVE_VARIABLE, Store
from robot_rl.types import Driver, Ending, EpisodeId, Event, Frame, Label, Row, Step

SPEC = sample_spec(images=1, image_size=8)
ID = EpisodeId("run", "actor-0", 0)
RNG = np.random.default_rng(0)


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as opened:
        yield opened


def same(a: Row, b: Row) -> bool:
    """Equal rows; arrays make `==` of dataclasses useless."""
    return type(a) is type(b) and flatten(a) == flatten(b)


def every_kind() -> list[Row]:
    rows = episode_rows(SPEC, ID, 3)
    return [
        *rows,
        Event(ID, 0, 2, "takeover", "stuck", 5),
        Label(ID, 0, None, "success", 1.0, "person", "ada", 6),
        Label(ID, 0, 2, "progress", 0.5, "vlm", "model-x", 7),
    ]


def test_rows_come_back_as_they_were_in_commit_order(store: Store) -> None:
    rows = every_kind()
    assert store.append(rows[:4]) == 4 and store.append(rows[4:]) == len(rows) - 4
    back, cursor = store.rows_since(0, 100)
    assert cursor == len(rows) == store.last_seq()
    assert all(same(a, b) for a, b in zip(rows, back, strict=True))
    step = next(r for r in back if isinstance(r, Step))
    assert step.action.dtype == np.float32 and step.driver is Driver.POLICY
    assert step.ending is None and step.success is None


def test_a_duplicate_is_stored_once_and_order_has_no_gaps(store: Store) -> None:
    rows = every_kind()
    store.append(rows[:3])
    assert store.append(rows) == len(rows) - 3
    assert store.append(rows) == 0
    back, _ = store.rows_since(0, 100)
    assert all(same(a, b) for a, b in zip(rows, back, strict=True))


def test_the_same_identity_with_other_content_is_an_error_and_stores_nothing(store: Store) -> None:
    rows = episode_rows(SPEC, ID, 2)
    store.append(rows)
    changed = dataclasses.replace(rows[2], reason="another")  # type: ignore[call-overload]
    fresh = step_row(SPEC, ID, 9, RNG)
    with pytest.raises(ConflictError, match="give this actor another name"):
        store.append([fresh, changed])
    assert store.last_seq() == len(rows)


def test_two_authors_label_the_same_step_without_conflict(store: Store) -> None:
    labels = [Label(ID, 0, 1, "success", v, "person", who, 1) for v, who in ((1, "ada"), (0, "bo"))]
    assert store.append(labels) == 2
    assert store.next_label(ID, "ada") == 1 and store.next_label(ID, "eve") == 0


def scores(id_: EpisodeId, values: list[float], author: str = PREDICATE) -> list[Label]:
    """As the loop numbers them: of each step its score, and of the frame its progress."""
    return [
        Label(id_, 2 * i + of_frame, i + of_frame, kind, value, author, author, i)
        for i, value in enumerate(values)
        for of_frame, kind in enumerate((SUCCESS_SCORE, PROGRESS))
    ]


def test_labels_are_chosen_by_their_kind(store: Store) -> None:
    said = Label(ID, 0, None, "success", 1.0, "person", "ada", 6)
    store.append([*scores(ID, [0.5, 0.25]), said])
    assert store.all_labels(["success", "exclude"]) == [said]
    assert [x.value for x in store.all_labels([PROGRESS])] == [0.5, 0.25]
    assert len(store.all_labels()) == 5 and store.all_labels(["neutral"]) == []


def test_the_score_that_ended_each_episode(store: Store) -> None:
    other, silent = (EpisodeId("run", "actor-0", number) for number in (1, 2))
    for id_ in (ID, other, silent):
        store.append([start_row(SPEC, id_)])
    without_progress = [x for x in scores(other, [1.0, 0.0, 1.0]) if x.kind == SUCCESS_SCORE]
    store.append([*scores(ID, [0.0, 1.0, 0.0]), *without_progress])
    store.append(scores(ID, [0.5] * 9, "classifier"))  # of another author, and longer
    found = store.last_scores(PREDICATE)
    assert {id_: (x.step, x.value) for id_, x in found.items()} == {ID: (2, 0.0), other: (2, 1.0)}


def test_the_newest_score_is_of_this_moment(store: Store) -> None:
    assert store.newest_score("classifier") is None
    store.append([*scores(ID, [0.5, 0.75], "classifier"), *scores(ID, [0.0] * 5)])
    newest = store.newest_score("classifier")
    assert newest is not None and (newest.step, newest.value) == (1, 0.75)
    store.append(scores(EpisodeId("run", "actor-0", 1), [0.0] * 100))
    assert store.newest_score("classifier") is None  # nobody has scored anything for some time


def test_paging_over_tables_keeps_commit_order(store: Store) -> None:
    rng = np.random.default_rng(3)
    rows: list[Row] = []
    for episode in range(5):
        rows += episode_rows(SPEC, EpisodeId("run", "a", episode), int(rng.integers(1, 9)))
    for part in np.array_split(np.arange(len(rows)), 7):
        store.append([rows[i] for i in part])
    for page in (1, 2, 7, 1000):
        cursor, seen = 0, []
        while True:
            more, cursor = store.rows_since(cursor, page)
            if not more:
                break
            seen += more
        assert all(same(a, b) for a, b in zip(rows, seen, strict=True))


def test_a_missing_row_is_noticed(store: Store) -> None:
    store.append(every_kind())
    with sqlite3.connect(store.path) as raw:
        raw.execute("DELETE FROM frames WHERE frame=1")
    with pytest.raises(StoreError, match="damaged"):
        store.rows_since(0, 100)


def test_episode_readers(store: Store) -> None:
    for episode, ending in enumerate((Ending.TERMINATED, Ending.TRUNCATED, None)):
        store.append(episode_rows(SPEC, EpisodeId("run", "a", episode), 4, ending=ending))
    human = EpisodeId("run", "b", 0)
    store.append([start_row(SPEC, human, "demo")])
    store.append([step_row(SPEC, human, k, RNG, driver=Driver.DEMO) for k in range(2)])
    assert [e.id.episode for e in store.episodes("run", "a")] == [0, 1, 2]
    assert [e.id for e in store.episodes(purpose="demo")] == [human]
    assert store.next_episode("run", "a") == 3 and store.next_episode("run", "new") == 0
    ids = [EpisodeId("run", "a", k) for k in range(3)]
    assert [s.step for s in store.steps(ids[1])] == [0, 1, 2, 3]
    assert [f.frame for f in store.frames(ids[1])] == [0, 1, 2, 3, 4]
    assert [store.ending(i) for i in ids] == [Ending.TERMINATED, Ending.TRUNCATED, None]
    first, second, third, fourth = store.episode_summaries("run")
    assert (first.steps, first.ending, first.success) == (4, Ending.TERMINATED, True)
    assert (second.success, third.ending, third.success) == (False, None, None)
    assert (fourth.purpose, fourth.steps, fourth.human_steps) == ("demo", 2, 2)


def test_recover_marks_cut_episodes_as_aborted_once_and_replicates_the_mark(store: Store) -> None:
    whole, cut, empty = (EpisodeId("run", "a", k) for k in range(3))
    store.append(episode_rows(SPEC, whole, 3))
    store.append([*episode_rows(SPEC, cut, 3, ending=None), Event(cut, 0, 1, "takeover", "", 1)])
    store.append([start_row(SPEC, empty), start_row(SPEC, EpisodeId("run", "other", 0))])
    before = store.last_seq()
    assert store.recover("run", "a") == [cut, empty]
    assert store.recover("run", "a") == []
    assert store.ending(cut) is Ending.ABORTED and store.ending(whole) is Ending.TRUNCATED
    assert [r.ending for r in store.episode_summaries("run", "a")][1:] == [Ending.ABORTED] * 2
    marks, _ = store.rows_since(before, 10)
    assert [(m.event, m.step, m.name) for m in marks if isinstance(m, Event)] == [
        (ABORT_MARK, -1, EPISODE_ABORTED),
        (ABORT_MARK, -1, EPISODE_ABORTED),
    ]


def test_pending_and_acknowledge_walk_through_the_store_once(store: Store) -> None:
    rows = every_kind()
    store.append(rows)
    sent: list[FlatRow] = []
    while batch := store.pending(max_bytes=600, max_rows=4):
        assert len(batch) <= 4
        assert len(batch) == 1 or sum(r.size for r in batch) <= 600
        assert store.pending_count() == len(rows) - len(sent)
        sent += batch
        store.acknowledge(r.key for r in batch)
    assert sent == [flatten(r) for r in rows] and store.pending_count() == 0
    with Store(store.path) as again:  # the cursor is on disk
        assert again.pending(10**6, 100) == []
        again.append([Event(ID, 7, 0, "hold", "", 9)])
        assert [r.kind for r in again.pending(10**6, 100)] == [RowKind.EVENT]


def test_acknowledgements_out_of_order_never_skip_a_row(store: Store) -> None:
    rows = every_kind()
    store.append(rows)
    keys = [flatten(r).key for r in rows]
    store.acknowledge(keys[3:])
    assert store.pending_count() == len(rows)
    store.acknowledge([keys[0], keys[0], (2, "run", "nobody", 5, 5)])
    assert store.pending_count() == len(rows) - 1
    store.acknowledge(keys[1:3])
    assert store.pending_count() == 0


def test_a_sent_row_is_restored_and_checked_on_the_other_side(store: Store, tmp_path: Path) -> None:
    store.append(every_kind())
    flats = store.pending(10**6, 100)
    with Store(tmp_path / "learner.sqlite", spec=SPEC, reserve_bytes=0) as other:
        assert other.append(flats) == len(flats)
        assert other.pending(10**6, 100) == flats
        blob = flats[1].values[-1]
        assert isinstance(blob, bytes)
        broken = FlatRow(RowKind.FRAME, (*flats[1].values[:3], 99, 0, blob[:-1] + b"?"))
        with pytest.raises(CodecError):
            other.append([broken])


def test_rows_that_do_not_fit_the_spec_are_refused_before_they_are_stored(store: Store) -> None:
    frame = frame_row(SPEC, ID, 0, RNG)
    step = step_row(SPEC, ID, 0, RNG)
    nan = {**frame.observation, "state": np.full(24, np.nan, np.float32)}
    bad: list[tuple[Row, type[RobotRLError]]] = [
        (dataclasses.replace(frame, observation={"state": np.zeros(3, np.float32)}), SpecError),
        (dataclasses.replace(frame, observation=nan), SpecError),
        (dataclasses.replace(step, action=np.zeros(3, np.float32)), CodecError),
        (dataclasses.replace(step, action=np.full(7, np.inf, np.float32)), CodecError),
        (dataclasses.replace(step, action=np.zeros(7)), CodecError),
        (dataclasses.replace(step, reward=float("nan")), CodecError),
        (dataclasses.replace(step, reward=1e308), CodecError),  # infinite where float32 counts it
        (dataclasses.replace(step, reason="x" * 5000), CodecError),
        (dataclasses.replace(step, step=-1), CodecError),
        (Label(ID, 0, None, "success", float("nan"), "vlm", "m", 0), CodecError),
        (Label(ID, 0, 3, "reward", -1e308, "human", "m", 0), CodecError),
    ]
    for row, error in bad:
        with pytest.raises(error):
            store.append([start_row(SPEC, ID), row])
    assert store.last_seq() == 0


def test_restore_refuses_unknown_words_and_counts() -> None:
    good = flatten(step_row(SPEC, ID, 0, RNG))
    wrong = [(7, "robot"), (8, "maybe"), (11, "over"), (12, 2), (3, True), (3, "0")]
    wrong += [(4, -1), (5, -1), (4, 2**31), (5, 2**63 - 1)]  # frames that replay cannot number
    for index, value in wrong:
        values = (*good.values[:index], value, *good.values[index + 1 :])
        with pytest.raises(CodecError):
            restore(FlatRow(RowKind.STEP, values))
    with pytest.raises(CodecError):
        restore(FlatRow(RowKind.STEP, good.values[:-1]))


def test_opening_with_another_spec_names_what_differs(store: Store) -> None:
    other = dataclasses.replace(SPEC, control_hz=20.0)
    with pytest.raises(StoreError, match=r"control_hz: 10\.0 -> 20\.0"):
        Store(store.path, spec=other)
    with Store(store.path) as again:
        assert again.spec is not None and again.spec.hash == SPEC.hash


def test_other_schema_versions_and_other_files_are_refused(store: Store, tmp_path: Path) -> None:
    store.close()
    with sqlite3.connect(store.path) as raw:
        raw.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="version 99"):
        Store(store.path)
    text = tmp_path / "notes.sqlite"
    text.write_text("these are my notes, not a database" * 50)
    with pytest.raises(StoreError, match="not a store"):
        Store(text)
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as raw:
        raw.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="no step store"):
        Store(foreign)
    with pytest.raises(StoreError, match="cannot make the folder"):
        Store(text / "inside" / "store.sqlite")
    with pytest.raises(StoreError, match="was closed"):
        store.append(every_kind())


def test_no_episode_starts_on_a_nearly_full_disk_but_a_running_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESERVE_VARIABLE, str(10**18))
    with Store(tmp_path / "store.sqlite", spec=SPEC) as store:
        with pytest.raises(StoreError, match="too little disk space"):
            store.append([start_row(SPEC, ID)])
        assert store.append([step_row(SPEC, ID, 0, RNG), frame_row(SPEC, ID, 1, RNG)]) == 2


def test_a_really_full_database_is_one_clear_error_and_stays_whole(store: Store) -> None:
    store.append(episode_rows(SPEC, ID, 20))
    held = store.last_seq()
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count={pages + 3}")
    with pytest.raises(StoreError, match="the disk is full"):
        store.append(episode_rows(SPEC, EpisodeId("run", "a", 1), 200))
    store.verify()
    assert store.last_seq() == held
    with Store(store.path, reserve_bytes=0) as again:  # space was freed: recording goes on
        again.verify()
        assert again.append(episode_rows(SPEC, EpisodeId("run", "a", 1), 200)) == 402


def test_damage_on_disk_is_found_by_verify(store: Store) -> None:
    store.append(every_kind())
    with sqlite3.connect(store.path) as raw:
        ((blob,),) = raw.execute("SELECT observation FROM frames WHERE frame=0")
        damaged = bytearray(blob)
        damaged[-1] ^= 1
        raw.execute("UPDATE frames SET observation=? WHERE frame=0", (bytes(damaged),))
    with pytest.raises(StoreError, match="is damaged"):
        store.verify()


def test_meta_survives(store: Store) -> None:
    store.set_meta("note", {"a": [1, 2]})
    with Store(store.path) as again:
        assert again.meta("note") == {"a": [1, 2]} and again.meta("absent") is None


def test_frames_do_not_share_memory_with_the_caller(store: Store) -> None:
    frame = frame_row(SPEC, ID, 0, RNG)
    flat = store.prepare(frame)
    frame.observation["state"][:] = 0
    kept = restore(flat)
    assert isinstance(kept, Frame) and kept.observation["state"].any()
