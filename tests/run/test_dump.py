"""The file that says what a policy did before it was frozen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from robot_rl.run.dump import DUMPS, STEPS, write_dump
from robot_rl.store.store import Store
from tests.support.replay_rows import SPEC, episode


def test_the_last_hundred_steps_are_written_with_what_was_refused(tmp_path: Path) -> None:
    refused = np.array((0.5, np.nan, np.inf), np.float32)
    with Store(tmp_path / "s.sqlite", spec=SPEC, reserve_bytes=0) as store:
        assert write_dump(store, tmp_path, "why", refused) is None  # nothing was done yet
        store.append(episode(0, 3))
        store.append(episode(1, 130))
        path = write_dump(store, tmp_path, "weights 3 proposed NaN", refused)
        steps = store.steps(store.episode_summaries()[-1].id)
    assert path is not None and path == tmp_path / DUMPS / "episode-1.json"
    facts = json.loads(path.read_text())
    assert facts["why"] == "weights 3 proposed NaN"
    assert facts["refused_action"] == [0.5, "nan", "inf"]
    assert [s["step"] for s in facts["steps"]] == list(range(130 - STEPS, 130))
    last = facts["steps"][-1]
    np.testing.assert_allclose(last["action"], steps[-1].action)
    assert set(last["observation"]) == {"state"}  # pictures stay in the store
