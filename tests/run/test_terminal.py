"""What the terminal tells of a run's processes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from robot_rl.run import graph


def test_why_the_arm_stands_still_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(graph.time, "monotonic", lambda: now_s)
    caplog.set_level(logging.WARNING)
    path = graph.log_file(tmp_path, "gate")
    path.parent.mkdir()
    path.write_text("WARNING robot_rl.ros.gate_node: of an earlier run\n")
    stops = graph._Stops(tmp_path, ["gate", "watchdog"])
    line = (
        "WARNING robot_rl.ros.gate_node: protective stop: force: too much. What to do: free it.\n"
    )
    with path.open("a") as log:
        log.write("INFO robot_rl.ros.gate_node: run\n" + line + line + "WARNING robot_rl: torn")
    stops.look()
    told = "gate: protective stop: force: too much. What to do: free it."
    assert caplog.messages == [told]
    now_s += graph.AGAIN_S + 1
    with path.open("a") as log:
        log.write(" no more\n" + line)
    stops.look()
    assert caplog.messages == [told, "gate: torn no more", told]
