"""Data of another run comes in once, whatever was said of it here and there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.errors import StoreError
from robot_rl.store.dataset import import_dataset
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Event, Label, Row, Step

SPEC = sample_spec()
ID = EpisodeId("there", "actor", 0)


def said(number: int, kind: str, stamp_ns: int) -> Label:
    return Label(ID, number, None, kind, 1.0, "person", "ada", stamp_ns)


def test_one_person_may_judge_an_episode_here_and_there(tmp_path: Path) -> None:
    """Both words have the same name and number: the run could not be started any more."""
    there = tmp_path / "there" / "store.sqlite"
    here = [said(0, "success", 5), Event(ID, 9, -1, "note", "here", 5)]
    with Store(there, spec=SPEC, reserve_bytes=0) as source:
        source.append(episode_rows(SPEC, ID, 3))
    with Store(tmp_path / "here.sqlite", spec=SPEC, reserve_bytes=0) as store:
        assert import_dataset(store, str(there.parent), SPEC) == 1
        store.append(here)
        with Store(there) as source:
            source.append([said(0, "exclude", 7), said(1, "neutral", 8)])
            source.append([Event(ID, 9, -1, "note", "there", 7)])
        assert import_dataset(store, str(there.parent), SPEC) == 1
        assert store.labels(ID) == [here[0], said(1, "neutral", 8)]
        assert store.events(ID) == [here[1]]
        assert len(store.steps(ID)) == 3


def test_successes_are_those_that_a_person_would_call_so(tmp_path: Path) -> None:
    """What was recorded, then what was said about it; what is neither or excluded is none."""
    words: list[tuple[bool | None, str, float]] = [
        (True, "", 0.0),
        (True, "success", 0.0),
        (False, "success", 1.0),
        (None, "vlm_success", 1.0),
        (True, "neutral", 1.0),
        (True, "exclude", 1.0),
        (False, "", 0.0),
    ]
    there = tmp_path / "there.sqlite"
    with Store(there, spec=SPEC, reserve_bytes=0) as source:
        for number, (recorded, kind, value) in enumerate(words):
            id_ = EpisodeId("there", "actor", number)
            source.append(ended(episode_rows(SPEC, id_, 3), recorded))
            if kind:
                source.append([Label(id_, 0, None, kind, value, "person", "ada", 5)])
    with Store(tmp_path / "here.sqlite", spec=SPEC, reserve_bytes=0) as store:
        assert import_dataset(store, str(there), SPEC, only_successes=True) == 3
        assert [s.id.episode for s in store.episodes()] == [0, 2, 3]


def test_an_episode_that_is_here_hears_that_it_failed(tmp_path: Path) -> None:
    there = tmp_path / "there.sqlite"
    with (
        Store(there, spec=SPEC, reserve_bytes=0) as source,
        Store(tmp_path / "here.sqlite", spec=SPEC, reserve_bytes=0) as store,
    ):
        source.append(ended(episode_rows(SPEC, ID, 3), True))
        import_dataset(store, str(there), SPEC, only_successes=True)
        source.append([Label(ID, 0, None, "success", 0.0, "person", "ada", 5)])
        import_dataset(store, str(there), SPEC, only_successes=True)
        assert [x.value for x in store.labels(ID)] == [0.0]


def test_that_nothing_succeeded_is_said(tmp_path: Path) -> None:
    there = tmp_path / "there.sqlite"
    with Store(there, spec=SPEC, reserve_bytes=0) as source:
        source.append(ended(episode_rows(SPEC, ID, 3), False))
    with (
        Store(tmp_path / "here.sqlite", spec=SPEC, reserve_bytes=0) as store,
        pytest.raises(StoreError, match=r"no episode of (.|\n)* succeeded"),
    ):
        import_dataset(store, str(there), SPEC, only_successes=True)


def ended(rows: list[Row], success: bool | None) -> list[Row]:
    """The rows of an episode whose last step says so."""
    last = max(i for i, row in enumerate(rows) if isinstance(row, Step))
    step = rows[last]
    assert isinstance(step, Step)
    return [
        *rows[:last],
        replace(step, ending=Ending.TERMINATED, success=success),
        *rows[last + 1 :],
    ]
