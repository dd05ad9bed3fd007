"""The report of a run with several arms: rows of all of them, and what each has brought."""

from __future__ import annotations

import json
from pathlib import Path

from robot_rl.report.report import write_report
from robot_rl.report.rundata import read_run


def write_lines(path: Path, count: int, success: float) -> None:
    """Metric lines of practice episodes of 10 steps each."""
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for i in range(count):
            line = {
                "time_s": float(i),
                "env_steps": 10 * i,
                "episode/success": success,
                "episode/length": 10,
                "episode/intervention_rate": 0.5,
                "episode/takeovers": 1,
            }
            file.write(json.dumps(line) + "\n")


def test_the_report_adds_the_arms_up_and_shows_each(tmp_path: Path) -> None:
    write_lines(tmp_path / "arms" / "left" / "metrics.jsonl", 3, 1.0)
    write_lines(tmp_path / "arms" / "right" / "metrics.jsonl", 2, 0.0)
    part = {"successes": 9, "episodes": 10}
    arms = {"left": {"deterministic": part}}
    (tmp_path / "eval.json").write_text(json.dumps({"deterministic": part, "arms": arms}))
    run = read_run(tmp_path)
    assert run.total("episode/length") == 50 and len(run.episodes()) == 5
    assert {name: len(rows) for name, rows in run.by_arm().items()} == {"left": 3, "right": 2}
    text = write_report(tmp_path).read_text()
    left = "<td>left</td><td>3</td><td>30</td><td>100 %</td><td>50 %</td><td>9 of 10</td>"
    right = "<td>right</td><td>2</td><td>20</td><td>0 %</td><td>50 %</td><td>-</td>"
    assert left in text and right in text


def test_aborted_episodes_do_not_lower_the_success_of_an_arm(tmp_path: Path) -> None:
    path = tmp_path / "arms" / "left" / "metrics.jsonl"
    write_lines(path, 3, 1.0)
    with path.open("a") as file:
        aborted = {"episode/success": 0.0, "episode/aborted": 1.0, "episode/length": 10}
        file.write(json.dumps(aborted | {"time_s": 9.0, "env_steps": 40}) + "\n")
    text = write_report(tmp_path).read_text()
    assert "<td>left</td><td>4</td><td>40</td><td>100 %</td>" in text


def test_one_arm_has_no_table(tmp_path: Path) -> None:
    write_lines(tmp_path / "run" / "metrics.jsonl", 3, 1.0)
    assert read_run(tmp_path / "run").by_arm() == {}
    assert "<h2>Arms</h2>" not in write_report(tmp_path / "run").read_text()
