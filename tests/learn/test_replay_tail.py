"""A replay that begins late holds what one holds that has read everything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robot_rl.bench.samples import frame_row, sample_spec, start_row, step_row
from robot_rl.learn.replay import Replay
from robot_rl.learn.replay.tail import Tail, tail_of
from robot_rl.store.store import Store
from robot_rl.types import Driver, Ending, EpisodeId, Row

SPEC, OTHER = sample_spec(state_size=3), sample_spec(state_size=4)
CAPACITY = 200  # several times what is under way at any moment, as every real one


def random_rows(rng: np.random.Generator) -> list[Row]:
    """Episodes of two arms side by side: demonstrations, practice, evaluation, aborted ones."""
    streams: list[list[Row]] = []
    for actor in ("actor-0", "actor-1"):
        rows: list[Row] = []
        for number in range(int(rng.integers(3, 60))):
            id_ = EpisodeId("run", actor, number)
            purpose = "demo" if number < 2 else str(rng.choice(["train"] * 6 + ["eval"]))
            ending = Ending.ABORTED if rng.random() < 0.1 else Ending.TRUNCATED
            driver = Driver.DEMO if purpose == "demo" else Driver.POLICY
            length = int(rng.integers(1, 12))
            rows += [start_row(SPEC, id_, purpose), frame_row(SPEC, id_, 0, rng)]
            for k in range(length):
                last = ending if k == length - 1 else None
                rows.append(step_row(SPEC, id_, k, rng, ending=last, driver=driver))
                rows.append(frame_row(SPEC, id_, k + 1, rng))
        streams.append(rows)
    mixed: list[Row] = []
    while any(streams):
        stream = streams[int(rng.integers(2))] or streams[0] or streams[1]
        count = int(rng.integers(1, 30))
        mixed += stream[:count]
        del stream[:count]
    return mixed


def held(replay: Replay) -> dict[EpisodeId, tuple[list[int], list[int]]]:
    return {k: (sorted(e.steps), sorted(e.frames)) for k, e in replay.episodes.items()}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_left_out_would_have_been_forgotten(seed: int, tmp_path: Path) -> None:
    rows = random_rows(np.random.default_rng(seed))
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        store.append(rows)
        whole = Replay(SPEC, CAPACITY)
        whole.ingest(store.rows_since(0, 10**6)[0])
        tail = tail_of(store.episode_summaries(), SPEC.hash, CAPACITY)
        late = Replay(SPEC, CAPACITY)
        late.leave_out(tail.gone, tail.env_steps)
        for episode in tail.early:
            late.ingest(store.rows_of(episode, tail.cursor))
        late.ingest(store.rows_since(tail.cursor, 10**6)[0])
    assert late.env_steps == whole.env_steps
    assert not tail.gone & whole.episodes.keys()
    assert held(late) == held(whole)
    assert (late.len_online, late.len_demo) == (whole.len_online, whole.len_demo)
    assert late.weights_version == whole.weights_version


def test_a_replay_that_is_large_enough_reads_everything(tmp_path: Path) -> None:
    rows = random_rows(np.random.default_rng(0))
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        store.append(rows)
        assert tail_of(store.episode_summaries(), SPEC.hash, 10**6) == Tail()
        assert tail_of(store.episode_summaries(), OTHER.hash, 1) == Tail()
