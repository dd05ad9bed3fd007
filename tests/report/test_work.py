"""Time at work and the time that practice still takes: stops, exams, and both budgets."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from robot_rl.control.statistics import work_s
from robot_rl.control.work import Work
from robot_rl.learn.metrics import MetricSink
from robot_rl.report.dashboard import Dashboard
from robot_rl.studio.figures import Figures

BEGAN_S = 1_700_000_000.0


def practice(
    episodes: int, *, since_s: float = BEGAN_S, first: int = 0
) -> Iterator[dict[str, Any]]:
    """Lines of episodes of 6 s; 50 of them use the steps up, 15 minutes are the other budget."""
    for index in range(first, first + episodes):
        yield {
            "time_s": since_s + 6.0 * (index - first),
            "env_steps": 20 * (index + 1),
            "episode/index": index,
            "episode/success": 1.0,
            "progress": (index + 1) / 50,
            "time_left_s": 900.0 - 6.0 * index,
            "state": "practice",
        }


def exam(episodes: int, before: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Lines of an exam after this one, of 20 s each: nothing of the budget is told anew."""
    kept = {key: before[key] for key in ("env_steps", "progress", "time_left_s")}
    for index in range(episodes):
        end_s = before["time_s"] + 20.0 * (index + 1)
        yield {
            "time_s": end_s, "eval_episode/index": before["episode/index"] + index + 1,
            "eval_episode/success": 1.0, "state": "exam", **kept,
        }  # fmt: skip


def test_between_two_processes_nobody_worked_however_short_it_was() -> None:
    assert work_s(10.0, 15.0) == 5.0 and work_s(10.0, 1000.0) == 0.0
    assert work_s(10.0, 15.0, (10.5,)) == work_s(10.0, 15.0, {15.0}) == 0.0
    assert work_s(10.0, 15.0, (10.0, 15.5)) == 5.0


def test_a_process_says_in_its_first_line_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, work, path = [BEGAN_S], Work(), tmp_path / "metrics.jsonl"
    monkeypatch.setattr(time, "time", lambda: now_s[0])
    for _ in range(2):
        sink = MetricSink(path)
        for _ in range(3):
            now_s[0] += 10.0
            sink.write(1, {"episode/success": 1.0}, state="practice")
        sink.close()
        now_s[0] += 500.0  # finished, and begun again
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    began_s = [line.get("began_s") for line in lines]
    assert began_s == [BEGAN_S, None, None, BEGAN_S + 530.0, None, None]
    for line in lines:
        work.add(line)
    assert work.worked_s == 2 * 20.0


def test_an_exam_leaves_the_pace_of_practice() -> None:
    work = Work()
    for line in (lines := [*practice(40)]):
        work.add(line)
    assert work.left_s == pytest.approx(10 * 6.0)
    for line in exam(60, lines[-1]):
        work.add(line)
        assert work.left_s == pytest.approx(10 * 6.0)
    for line in practice(2, since_s=work.newest_s + 6.0, first=40):
        work.add(line)
    assert work.left_s == pytest.approx(8 * 6.0)


def test_a_run_that_goes_on_with_a_larger_budget_has_a_new_pace() -> None:
    work = Work()
    for line in practice(40):
        work.add(line)
    for line in practice(10, since_s=work.newest_s + 30.0, first=40):
        work.add(line | {"progress": line["progress"] / 10, "time_left_s": 9000.0})
    assert work.left_s == pytest.approx(450 * 6.0)


def test_terminal_and_studio_say_the_same_time_left() -> None:
    """The steps end practice long before the minutes do."""
    board, figures = Dashboard("reach", Console(file=io.StringIO(), width=100)), Figures()
    for line in (lines := [*practice(40)]):
        for _ in range(2):  # the same episode may be sent again
            board.update(line)
        figures.add(line)
    assert "time left 1:00" in board.line() and figures.work.left_s == pytest.approx(60.0)
    for line in exam(3, lines[-1]):
        board.update(line)
        figures.add(line)
    assert "time left 1:00" in board.line() and figures.work.left_s == pytest.approx(60.0)
    board.update({"state": "evaluation", "time_left_s": 700.0, "eval_episode/index": 99})
    assert "time left" not in board.line()  # practice is over


def test_minutes_end_practice_where_they_are_used_up_first() -> None:
    board = Dashboard("reach", Console(file=io.StringIO(), width=100))
    for line in practice(10):
        board.update(line | {"time_left_s": 90.0 - 6.0 * line["episode/index"]})
    assert "time left 0:36" in board.line()


def test_learning_before_practice_tells_its_own_time_left() -> None:
    board = Dashboard("reach", Console(file=io.StringIO(), width=100))
    board.update({"state": "learning, 5 of 10 updates", "time_left_s": 65.0, "progress": 0.5})
    assert "time left 1:05" in board.line()
