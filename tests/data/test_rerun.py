"""Rerun recordings, read back with Rerun's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_rl.data.episodes import choose
from tests.support.data_samples import made_spec, made_store

pytest.importorskip("rerun.chunk")  # Rerun's reader in Python


def test_a_recording_holds_every_frame_and_step_on_both_timelines(tmp_path: Path) -> None:
    from rerun.chunk import RrdReader

    from robot_rl.data.per_episode import write_episodes
    from robot_rl.data.rerun_write import rerun_file

    spec = made_spec(((16, 24),))
    with made_store(tmp_path / "s.sqlite", spec, [5, 3]) as store:
        figures = write_episodes(
            store, choose(store), tmp_path / "out", kind="rrd", encode=rerun_file
        )
    assert figures == {"episodes": 2, "steps": 8}
    rows: dict[str, int] = {}
    for chunk in RrdReader(str(tmp_path / "out" / "episode-000000.rrd")).stream().to_chunks():
        if chunk.timeline_names:
            assert set(chunk.timeline_names) == {"step", "time"}
            rows[chunk.entity_path] = rows.get(chunk.entity_path, 0) + chunk.num_rows
    assert rows["/image/cam0"] == rows["/state"] == 6
    assert rows["/action"] == rows["/policy_action"] == rows["/driver"] == rows["/outcome"] == 5
    assert rows["/ending"] == 1
