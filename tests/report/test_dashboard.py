"""The terminal dashboard: right figures, plain lines without a terminal, logs given back."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from robot_rl.report.dashboard import WINDOW, Dashboard, sparkline


def _board(width: int = 100) -> tuple[Dashboard, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, height=40)
    return Dashboard("lift", console), screen


def _text(board: Dashboard) -> str:
    out = Console(file=io.StringIO(), width=100, record=True)
    out.print(board.render())
    return out.export_text()


def test_success_is_counted_over_the_last_twenty_episodes() -> None:
    board, _ = _board()
    for index in range(40):
        board.update({"episode/index": index, "episode/success": float(index >= 25)})
    assert "75 %" in _text(board)  # 15 of the last 20
    assert WINDOW == 20


def test_the_same_episode_sent_twice_counts_once() -> None:
    board, _ = _board()
    for _ in range(5):
        board.update({"episode/index": 3, "episode/success": 1.0, "learner/utd": 2.0})
    assert "episodes 1" in board.line()


def test_episodes_of_several_arms_are_all_counted() -> None:
    board, _ = _board()
    for _ in range(3):
        for arm, success in (("left", 1.0), ("right", 0.0)):
            board.update({"arm": arm, "episode/index": 3, "episode/success": success})
    assert "episodes 2" in board.line() and "success, last 20 50 %" in board.line()


def test_an_aborted_episode_is_neither_success_nor_failure() -> None:
    board, _ = _board()
    board.update({"episode/index": 0, "episode/success": 1.0, "episode/aborted": 0.0})
    board.update({"episode/index": 1, "episode/success": 0.0, "episode/aborted": 1.0})
    assert "episodes 2" in board.line() and "success, last 20 100 %" in board.line()


def test_state_word_is_on_top_and_missing_figures_are_dashes() -> None:
    board, _ = _board()
    board.update({"state": "protective stop", "nobody/knows": 3})
    text = _text(board)
    assert "PROTECTIVE STOP" in text.splitlines()[1]
    assert " - " in text
    assert "nobody" not in text


def test_how_fast_time_goes_is_shown_with_whom_it_waits_for() -> None:
    board, _ = _board()
    board.update({"state": "practice"})
    assert "real time" not in _text(board)
    board.update({"clock/factor": 3.21, "clock/waited_gate": 0.02, "clock/waited_learner": 0.51})
    assert "3.2 x real time, 51 % waiting for the learner" in _text(board)
    assert board.line().endswith("3.2 x real time, 51 % waiting for the learner")
    board.update({"clock/without_learner": 1.0, "clock/waited_learner": 0.0})
    assert board.line().endswith("waiting for the gate, no longer waits for: learner")
    board.update({"clock/without_learner": 0.0})
    assert "no longer" not in board.line()


def test_without_a_terminal_it_writes_plain_lines(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        Dashboard("lift", Console(file=io.StringIO(), force_terminal=False)) as board,
    ):
        board.update({"state": "practice", "learner/utd": 2.0})
        board.update({"learner/utd": 2.1})  # too soon for another line
    assert [r.message for r in caplog.records] == ["practice | updates per env step (UTD) 2"]


def test_how_far_an_evaluation_is() -> None:
    board = Dashboard("reach", Console(file=io.StringIO(), width=100))
    board.update({"state": "exam", "eval_episode/number": 3.0, "eval_episode/of": 0.0})
    assert board.line().startswith("exam 3 |") or board.line() == "exam 3"
    board.update({"state": "practice", "env_steps": 7})
    assert board.line().startswith("practice |")
    board.update({"state": "evaluation", "eval_episode/number": 12.0, "eval_episode/of": 50.0})
    assert board.line().startswith("evaluation 12 of 50 |")


def test_log_lines_move_into_the_panel_and_back() -> None:
    root = logging.getLogger()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root.addHandler(handler)
    try:
        board, screen = _board()
        with board:
            logging.getLogger("x").warning("weights 7 arrived")
        assert "weights 7 arrived" in screen.getvalue()
        assert stream.getvalue() == ""
        logging.getLogger("x").warning("afterwards")
        assert "afterwards" in stream.getvalue()
    finally:
        root.removeHandler(handler)


def test_it_draws_in_a_narrow_terminal() -> None:
    board, screen = _board(width=40)
    with board:
        board.update({"progress": 0.5, "episode/success": 1.0})
    assert screen.getvalue()


def test_sparkline_spans_the_range() -> None:
    assert sparkline([0.0, 0.5, 1.0, 2.0], 10) == "▁▅██"
    assert len(sparkline([0.1] * 100, 30)) == 30


TROUBLE = {
    "diagnostics/labels": 2.0,
    "diagnostics/labels/what": "every step has the same reward, 0",
    "diagnostics/labels/fix": "check the success predicate",
    "diagnostics/time_limit": 1.0,
    "diagnostics/time_limit/what": "the time limit ends 60 % of the episodes",
    "diagnostics/time_limit/fix": "raise task.max_steps",
    "diagnostics/gripper": 0.0,
}


def test_findings_stand_in_the_panel_with_their_fix_until_they_are_gone() -> None:
    board, _ = _board()
    board.update(TROUBLE)
    text = _text(board)
    assert text.index("problem: every step") < text.index("warning: the time limit")
    assert "fix: check the success predicate" in text
    assert "gripper" not in text
    board.update({"diagnostics/labels": 0.0, "diagnostics/time_limit": 0.0})
    assert "fix:" not in _text(board)


def test_problems_are_red_and_warnings_yellow() -> None:
    board, screen = _board()
    with board:
        board.update(TROUBLE)
    shown = screen.getvalue()
    assert "\x1b[1;31mproblem: every" in shown
    assert "\x1b[1;33mwarning: the time" in shown


def test_without_a_terminal_a_finding_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    board = Dashboard("lift", Console(file=io.StringIO(), force_terminal=False))
    for _ in range(3):
        board.update(TROUBLE)
    warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == [
        "problem: every step has the same reward, 0; fix: check the success predicate",
        "warning: the time limit ends 60 % of the episodes; fix: raise task.max_steps",
    ]
