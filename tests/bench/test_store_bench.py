"""`bench store` counts what was read, not what lies in the file."""

from __future__ import annotations

from functools import partial

import pytest

from robot_rl.bench import store
from robot_rl.learn.learner import LearnerConfig


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
