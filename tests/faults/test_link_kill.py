"""kill -9 of actor and learner, again and again: count in = count stored, nothing twice.

The actor's store removes what the learner has, all the time.
"""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Collection
from pathlib import Path

import numpy as np

from robot_rl.link.auth import make_keys
from robot_rl.store.rows import FlatRow, RowKind, Value, flatten
from robot_rl.store.store import Store
from tests.support.kills import committed_and_put
from tests.support.link_programs import ACTOR, RUN, SPEC, Program

KILLS = 20


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def every_row(path: Path) -> list[FlatRow]:
    """All rows in commit order (acknowledged or not)."""
    with Store(path, spec=SPEC) as store:
        store.verify()
        return [flatten(row) for row in store.rows_since(0, 10**6, 2**40)[0]]


def left_of(rows: list[FlatRow], removed: Collection[tuple[Value, ...]]) -> list[FlatRow]:
    """Rows without the frames and steps of some episodes."""
    gone = (RowKind.FRAME, RowKind.STEP)
    return [row for row in rows if row.kind not in gone or row.values[:3] not in removed]


def test_twenty_kills_of_either_side_lose_nothing_and_store_nothing_twice(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    make_keys(tmp_path / "keys")
    port = free_port()
    programs = [Program(role, tmp_path, port) for role in ("actor", "learner")]
    actor = programs[0]
    try:
        for program in programs:
            program.start()
        for _ in range(KILLS):
            victim = programs[int(rng.integers(2))]
            time.sleep(rng.uniform(0.0, 0.3))
            victim.kill()
            victim.start()
        (tmp_path / "stop").touch()
        assert actor.wait(40.0) == 0  # drained, and weights had arrived
    finally:
        for program in programs:
            program.kill()
    committed, put = committed_and_put(actor.lines())
    sent, stored = every_row(tmp_path / "actor.sqlite"), every_row(tmp_path / "learner.sqlite")
    with Store(tmp_path / "actor.sqlite") as store:
        # of an episode that was killed before its first step only a frame was there to be removed
        removed = {
            (r.id.run, r.id.actor, r.id.episode)
            for r in store.episode_summaries()
            if r.removed or not r.steps
        }
        assert len(removed) > 2 and len(left_of(sent, removed)) > 100
    # the same rows, in the same order, each once
    assert left_of(stored, removed) == left_of(sent, removed)
    assert {row.key for row in sent} < {row.key for row in stored}
    assert len({row.key for row in stored}) == len(stored)
    with Store(tmp_path / "learner.sqlite") as store:
        steps = {(e.id.episode, s.step) for e in store.episodes() for s in store.steps(e.id)}
        assert committed <= steps <= put and len(committed) > 100
        assert len(put) - len(steps) <= actor.lines().count("ready") - 1  # one in flight per kill
        assert all(r.ending is not None for r in store.episode_summaries(RUN, ACTOR))
    with sqlite3.connect(tmp_path / "learner.sqlite") as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
