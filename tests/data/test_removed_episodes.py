"""Whoever reads a robot's store says which episodes only the learner has, and reads them there."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from robot_rl.bench.samples import episode_rows, sample_spec, start_row
from robot_rl.console.records import Records
from robot_rl.data.episodes import choose, read
from robot_rl.errors import StoreError
from robot_rl.run import replay
from robot_rl.run.verify import _store as verified
from robot_rl.store.dataset import import_dataset, open_store
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId

SPEC = sample_spec(images=1, image_size=16)
STEPS, EPISODES, DEMO = 5, 4, 1
LEFT, GONE = [DEMO, 3], [0, 2]


def number(episode: int) -> EpisodeId:
    return EpisodeId("run", "actor-0", episode)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    with (
        Store(folder / "actor.sqlite", spec=SPEC, reserve_bytes=0) as actor,
        Store(folder / "learner.sqlite", spec=SPEC, reserve_bytes=0) as learner,
    ):
        for episode in range(EPISODES):
            _, *rows = episode_rows(SPEC, number(episode), STEPS, ending=Ending.TERMINATED)
            purpose = "demo" if episode == DEMO else "train"
            actor.append([start_row(SPEC, number(episode), purpose), *rows])
        while batch := actor.pending(10**7, 512):
            learner.append(batch)
            actor.acknowledge(row.key for row in batch)
        while actor.remove_some(0, 1):
            pass
    return folder


def without_learner(run: Path) -> Path:
    for path in run.glob("learner.sqlite*"):
        path.unlink()
    return run


def test_an_export_takes_the_learners_or_says_what_it_leaves_out(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(run) as store:
        assert len(choose(store)) == EPISODES
    with caplog.at_level(logging.INFO), open_store(without_learner(run)) as store:
        chosen = choose(store)
        assert [c.start.id.episode for c in chosen] == LEFT
        assert all(len(read(store, c).steps) == STEPS for c in chosen)
    assert "2 only at the learner" in caplog.text


def test_a_new_run_begins_from_what_is_left(run: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "new.sqlite", spec=SPEC, reserve_bytes=0) as new:
        assert import_dataset(new, str(without_learner(run)), SPEC) == len(LEFT)
        assert [(r.id.episode, r.purpose, r.steps) for r in new.episode_summaries()] == [
            (episode, "data", STEPS) for episode in LEFT
        ]
        new.verify()


def test_replay_takes_the_learners_or_says_so(run: Path) -> None:
    with open_store(replay._store_of(run)) as store:
        assert [r.id.episode for r in replay.choose(store, "run", [0])] == [0]
    with open_store(replay._store_of(without_learner(run))) as store:
        every = replay.choose(store, "run", every=True)
        assert [r.id.episode for r in every] == LEFT
        with pytest.raises(StoreError, match="were removed from the actor's store"):
            replay.choose(store, "run", [2])


def test_the_page_shows_the_learners_pictures_or_says_so(run: Path) -> None:
    records = Records(run)
    assert [len(records.episode(number(e))["steps"]) for e in range(EPISODES)] == [STEPS] * 4
    assert records.picture(number(0), STEPS, "0")[:2] == b"\xff\xd8"
    records.close()
    records = Records(without_learner(run))
    assert [e["steps"] for e in records.episodes()] == [STEPS] * 4
    for episode in GONE:
        with pytest.raises(StoreError, match="not on this machine"):
            records.episode(number(episode))
        with pytest.raises(StoreError, match="not on this machine"):
            records.picture(number(episode), 0, "0")
        said = {"run": "run", "actor": "actor-0", "episode": episode}
        records.label(said | {"kind": "success", "value": 0.0}, "ada")
        records.label(said | {"kind": "keep_to", "step": STEPS - 1}, "ada")
        with pytest.raises(StoreError, match="says nothing"):
            records.label(said | {"kind": "keep_to", "step": STEPS}, "ada")
    assert len(records.episode(number(DEMO))["steps"]) == STEPS
    records.close()


def test_verification_counts_them(run: Path) -> None:
    said = verified(run / "actor.sqlite", lambda done, total: None)
    assert said[0] == "ok" and "the steps of 2 were removed" in said[1]
    assert "removed" not in verified(run / "learner.sqlite", lambda done, total: None)[1]
