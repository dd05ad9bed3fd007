"""The report's map of starts: which episodes, in which colours, and when there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.control.session import start_figures
from robot_rl.ports import ResetPlan
from robot_rl.report.report import render
from robot_rl.report.rundata import RunData
from robot_rl.report.starts import MOST, starts
from robot_rl.tasks.common import upright


def row(number: int, *, practice: bool = False, success: bool = True) -> dict[str, Any]:
    prefix = "" if practice else "eval_"
    return {
        "state": "practice" if practice else "evaluation",
        f"{prefix}episode/index": number,
        f"{prefix}episode/success": float(success),
        "start/tcp/x_m": 0.4 + 0.01 * (number % 7),
        "start/tcp/y_m": -0.02 + 0.01 * (number % 5),
        "start/box/x_m": 0.5,
        "start/box/y_m": 0.1,
    }


def map_of(*rows: dict) -> str:
    return starts(RunData(Path(), rows=rows))


def test_a_dot_for_a_success_a_ring_for_a_failure_and_what_stays_in_place_has_no_map() -> None:
    page = map_of(*(row(i, success=i % 3 > 0) for i in range(12)))
    assert page.count('class="won"') == 8 and page.count('class="lost"') == 4
    assert "8 successes" in page and "4 failures" in page and "newest 12 episodes of eval" in page
    assert "<h3>tool (TCP)</h3>" in page and "box" not in page
    assert "<title>episode 3: failure</title>" in page


def test_both_axes_have_one_scale() -> None:
    rows = [row(i) for i in range(11)]
    rows[0] |= {"start/tcp/x_m": 0.0, "start/tcp/y_m": 0.0}
    rows[1] |= {"start/tcp/x_m": 0.5, "start/tcp/y_m": 0.5}
    found = re.findall(
        r'cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+"><title>episode [01]:', map_of(*rows)
    )
    (x0, y0), (x1, y1) = (map(float, pair) for pair in found)
    assert x1 - x0 == pytest.approx(y0 - y1, abs=0.2) and x1 > x0


def test_practice_is_shown_while_there_is_no_evaluation_without_the_episodes_that_were_helped() -> (
    None
):
    practised = [row(i, practice=True) | {"episode/takeovers": i % 2} for i in range(40)]
    page = map_of(*practised, *(row(i) for i in range(5)))
    assert "newest 20 episodes of practice" in page
    page = map_of(*practised, *(row(i) | {"eval_episode/aborted": i < 5} for i in range(30)))
    assert "newest 25 episodes of evaluation" in page
    assert f"newest {MOST} episodes" in map_of(*(row(i) for i in range(3 * MOST)))


def test_only_the_newest_attempt_at_an_evaluation_and_no_aborted_practice_is_shown() -> None:
    numbered = [row(i) | {"eval_episode/number": i + 1.0} for i in range(12)]
    assert "newest 12 episodes of evaluation" in map_of(*(row(i) for i in range(9)), *numbered)
    practised = [row(i, practice=True) | {"episode/aborted": i % 2} for i in range(40)]
    assert "newest 20 episodes of practice" in map_of(*practised, *numbered, numbered[0])


@pytest.mark.parametrize("key", ["start/tcp/x_m", "start/tcp/y_m"])
def test_a_run_without_such_figures_has_no_map(key: str) -> None:
    rows = [row(i) for i in range(12)]
    assert not map_of(*({k: v for k, v in r.items() if k != key} for r in rows))
    assert not map_of(*rows[:9]) and not map_of()


def test_names_are_escaped() -> None:
    rows = [row(i) | {"start/<b>/x_m": 0.01 * i, "start/<b>/y_m": 0.0} for i in range(12)]
    page = render(RunData(Path(), rows=tuple(rows)))
    assert "&lt;b&gt;" in page and "<h3><b>" not in page


def test_where_a_plan_starts() -> None:
    assert start_figures(12345) == {}  # of an environment without an arm
    here, there = upright(np.array([0.4, 0.1, 0.2])), upright(np.array([0.5, -0.1, 0.0]))
    assert start_figures(ResetPlan(here, {"cube": there}, 0.08)) == {
        "start/tcp/x_m": 0.4,
        "start/tcp/y_m": 0.1,
        "start/cube/x_m": 0.5,
        "start/cube/y_m": -0.1,
    }
