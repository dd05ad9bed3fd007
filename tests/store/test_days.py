"""A deployment has a file for each day; whoever reads its store finds all of them."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.store.daily import DailyStore, day_files
from robot_rl.store.dataset import import_dataset, open_store
from robot_rl.store.left_out import leave_out
from robot_rl.store.store import RESERVE_VARIABLE, Store
from robot_rl.types import EpisodeId, Label, Row

SPEC = sample_spec()
NOON_S, DAY_S = 1_795_608_000.0, 86_400.0
IDS = [EpisodeId("run", "actor", number) for number in range(6)]


@pytest.fixture(autouse=True)
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RESERVE_VARIABLE, "0")


def deployed(folder: Path, days: int = 3) -> Path:
    """Two episodes a day."""
    folder.mkdir()
    now_s = [NOON_S]
    with DailyStore(folder, SPEC, now_s=lambda: now_s[0]) as store:
        for number in range(2 * days):
            id_ = EpisodeId("run", "actor", number)
            store.record(episode_rows(SPEC, id_, 2 + number % 5))
            now_s[0] += DAY_S * (number % 2)
            store.turn()
    return folder


def every_row(folder: Path) -> list[Row]:
    found: list[Row] = []
    for path in day_files(folder):
        with Store(path) as store:
            found += store.rows_since(0, 10_000)[0]
    return found


def test_what_is_read_is_every_day(tmp_path: Path) -> None:
    folder = deployed(tmp_path / "d")
    assert len(day_files(folder)) == 4  # the newest one is empty
    with open_store(folder) as store:
        assert [start.id for start in store.episodes()] == IDS
        assert [record.id for record in store.episode_summaries("run")] == IDS
        assert store.episodes("another") == []
        for id_ in IDS:
            steps = store.steps(id_)
            assert len(steps) == 2 + id_.episode % 5 == len(store.frames(id_)) - 1
            assert store.ending(id_) is steps[-1].ending and store.frame(id_, 1) is not None
            assert store.events(id_) == []


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_rows_follow_one_another_from_day_to_day(tmp_path: Path, limit: int) -> None:
    folder = deployed(tmp_path / "d")
    wanted = [(type(row), row.id) for row in every_row(folder)]
    found, cursor = [], 0
    with open_store(folder) as store:
        while rows := store.rows_since(cursor, limit):
            if not rows[0]:
                break
            found += [(type(row), row.id) for row in rows[0]]
            cursor = rows[1]
        with Store(day_files(folder)[0]) as first:  # somebody judges an old episode meanwhile
            first.append([Label(IDS[0], 0, None, "success", 1.0, "vlm", "m", 1)])
        with Store(day_files(folder)[-1]) as newest:
            newest.append(episode_rows(SPEC, EpisodeId("run", "actor", 6), 1))
        rows = store.rows_since(cursor, 1000)
        assert {row.id.episode for row in rows[0]} == {6}  # nothing twice, nothing skipped
    assert found == wanted


def test_what_is_said_is_kept_in_the_file_of_its_episode(tmp_path: Path) -> None:
    folder = deployed(tmp_path / "d")
    with open_store(folder) as store:
        assert leave_out(store, {IDS[1]: [0], IDS[4]: [1]}, "filter") == (2, 0)
        assert store.next_label(IDS[4], "filter") == 1
        assert [label.id for label in store.all_labels()] == [IDS[1], IDS[4]]
    for path, id_ in zip(day_files(folder)[::2], (IDS[1], IDS[4]), strict=True):
        with Store(path) as day:
            assert [label.id for label in day.all_labels()] == [id_]


def test_all_days_are_learned_from(tmp_path: Path) -> None:
    folder = deployed(tmp_path / "d")
    with Store(tmp_path / "new.sqlite", spec=SPEC, reserve_bytes=0) as store:
        assert import_dataset(store, str(folder), SPEC) == len(IDS)
        assert [start.id for start in store.episodes()] == IDS
        assert len(store.rows_since(0, 10_000)[0]) == len(every_row(folder))


def test_a_year_of_days_is_not_open_at_once(tmp_path: Path) -> None:
    folder = deployed(tmp_path / "d", days=40)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, before[1]))
    try:
        with open_store(folder) as store:
            assert len(store.episode_summaries()) == 80
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
