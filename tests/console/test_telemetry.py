"""What the page shows of a run's figures."""

from __future__ import annotations

import json
from pathlib import Path

from robot_rl.config.run_folder import METRICS
from robot_rl.console.telemetry import RunFigures


def test_an_aborted_episode_is_in_no_curve(tmp_path: Path) -> None:
    lines = [
        {"env_steps": k, "episode/success": 1.0 - k % 2, "episode/aborted": float(k % 2)}
        for k in range(4)
    ]
    (tmp_path / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    figures = RunFigures(tmp_path, tmp_path)
    assert figures.read() == 4 and figures.numbers["env_steps"] == 3
    assert list(figures.curves["episode/success"]) == [(0, 1.0), (2, 1.0)]
