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
