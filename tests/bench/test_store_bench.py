"""`bench store` counts what was read, not what lies in the file."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import pytest

from robot_rl.bench import store
from robot_rl.cli.bench import _targets
from robot_rl.learn.learner import LearnerConfig
from robot_rl.store.rows import FlatRow


@pytest.mark.parametrize(("capacity", "read"), [(100_000, 300), (200, 200)])
def test_steps_that_are_left_out_do_not_count(
    capacity: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LearnerConfig", partial(LearnerConfig, capacity=capacity))
    figures = store.bench(0.0, 300)
    assert figures["steps"] == 300 and figures["restart_steps"] == read
    assert figures["restart_steps_per_s"] == pytest.approx(read / figures["read_s"])
    assert 0.0 < figures["read_s"] <= figures["restart_s"]
    assert figures["keep_all/steps"] == figures["keep_a_quarter/steps"] == 30


def test_the_file_of_an_actor_that_removes_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "EPISODE_STEPS", 10)
    monkeypatch.setattr(store, "ROOM_S", 0.0)
    monkeypatch.setattr(store, "PERIOD_S", 0.004)
    everything, quarter = (store._recorded(300, share) for share in (None, 0.25))
    assert quarter["megabytes"] < 0.8 * everything["megabytes"]
    for found in (everything, quarter):
        assert 0.0 < found["write_p50_ms"] <= found["write_p99_ms"] <= found["write_max_ms"]


def test_an_error_while_writing_ends_the_reader_too(monkeypatch: pytest.MonkeyPatch) -> None:
    insert, calls = store.Store.insert, [0]

    def fails_at_step_3(self: store.Store, rows: Sequence[FlatRow]) -> object:
        calls[0] += 1
        if calls[0] > 3:
            raise KeyboardInterrupt
        return insert(self, rows)

    monkeypatch.setattr(store.Store, "insert", fails_at_step_3)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        store._recorded(50, None)
    assert threading.active_count() == before


def test_a_small_store_has_no_target() -> None:
    """Half a minute is for a million steps; a few are back at once on any machine."""
    assert not _targets("store", {"steps": 20_000, "restart_s": 1.0})
    assert not _targets("store", {"steps": 1_000_000, "restart_s": 31.0})["restart_s"]["met"]
