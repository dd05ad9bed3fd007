"""Steps that a program leaves out of training, by labels, and takes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows
from robot_rl.cli.main import main
from robot_rl.learn.replay import Replay, View
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.left_out import leave_out, take_back
from robot_rl.store.store import Store
from robot_rl.types import Driver, EpisodeId, Frame, Row, Step

SPEC = Spec("sample", 10.0, {"state": TensorSpec((2,), "float32")}, ActionSpec(0.01, 0.1, True))
STEPS = 12
BACK = (5, 6)
EPISODE = EpisodeId("run", "actor", 0)
AUTHOR = "critic"


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """An episode that a person drove; its states say their number."""

    def told(row: Row) -> Row:
        if isinstance(row, Frame):
            return replace(row, observation={"state": np.array((0, row.frame), np.float32)})
        return replace(row, driver=Driver.DEMO, reward=0.0) if isinstance(row, Step) else row

    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as made:
        made.append([told(row) for row in episode_rows(SPEC, EPISODE, STEPS)])
        yield made


def test_steps_are_left_out_once_and_come_back(store: Store) -> None:
    assert leave_out(store, {EPISODE: BACK}, AUTHOR) == (2, 0)
    assert leave_out(store, {EPISODE: BACK}, AUTHOR) == (0, 0)  # said once
    labels = store.labels(EPISODE)
    assert {x.author for x in labels} == {AUTHOR} and {x.step for x in labels} == set(BACK)
    assert leave_out(store, {EPISODE: BACK[:1]}, AUTHOR) == (0, 1)  # another threshold
    assert leave_out(store, {EPISODE: BACK}, AUTHOR) == (1, 0)
    assert take_back(store, "somebody else") == 0
    assert take_back(store, AUTHOR) == 2
    assert take_back(store, AUTHOR) == 0


def test_nobody_learns_from_what_is_left_out(store: Store) -> None:
    def seen() -> dict[int, int]:
        """Step of a person -> how many actions in a row are read from there."""
        replay, cursor = Replay(SPEC, 100, ("state",), view=View(chunk=4, demo_only=True)), 0
        while (read := store.rows_since(cursor, 1000))[0]:
            cursor = read[1]
            replay.ingest(read[0])
        batch = replay.sample(500, 1.0, np.random.default_rng(0))
        assert batch.valid is not None
        steps = batch.observation["state"][:, 1].astype(int)
        return dict(zip(steps.tolist(), batch.valid.sum(1).tolist(), strict=True))

    before = seen()
    assert sorted(before) == list(range(STEPS)) and before[3] == 4
    leave_out(store, {EPISODE: BACK}, AUTHOR)
    after = seen()
    assert sorted(before.keys() - after.keys()) == list(BACK)
    assert (after[3], after[4], after[7]) == (2, 1, 4)  # a chunk ends before them
    take_back(store, AUTHOR)
    assert seen() == before


def test_what_critics_of_older_versions_left_out_comes_back(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_out(store, {EPISODE: BACK}, AUTHOR)
    assert main(["filter", str(store.path), "--undo"]) == 0
    assert "2 taken back in" in capsys.readouterr().out
