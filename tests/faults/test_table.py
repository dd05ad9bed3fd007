"""The whole fault table, against the real processes: `robot-rl faults`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from robot_rl.bench.faults import running, table
from robot_rl.bench.faults.case import (
    FULL_S,
    MET,
    NOT_MET,
    NOT_RUN,
    Figure,
    Measured,
    Result,
    broken,
)
from tests.support.ros import HAS_ROS, NO_ROS

pytestmark = [
    pytest.mark.ros,
    pytest.mark.alone,
    pytest.mark.skipif(not HAS_ROS, reason=NO_ROS),
]

SHORT_S = 60.0  # with starting graphs and the least samples, a little more than a minute and a half
MOST = 0.8  # of the full samples
AGAIN_S = 20.0  # for cases of time that a busy test machine has disturbed
TIMED = {  # counts and shares of what comes too late where others use the processor
    *("control ticks missed", "commands in the outage, fewest", "false holds in the graph"),
    *("false time-outs", "commands less than half a tick apart", "pictures behind the newest, max"),
    *("steps whose picture was not heard", "updates per step, of the target"),
    *("commands of the first", "refused for their age, number or lease"),
    # something else comes first: a late state of the arm, a late command
    *("without a protective stop", "without a protective stop that names the cause"),
    "episodes not marked as stale",
}


def again(results: list[Result]) -> list[Result]:
    """Those that were disturbed, twice more: figures in wall time need one undisturbed attempt."""
    for _ in range(2):
        missed = [r.case for r in results if r.verdict == NOT_MET and disturbed(r)]
        renewed = {r.case.number: r for r in (running.run(missed, AGAIN_S) if missed else [])}
        results = [renewed.get(r.case.number, r) for r in results]
    return results


def disturbed(result: Result) -> bool:
    """Whether a busy machine alone can have broken the promise.

    Rows, bytes and commands are counted the same on any machine: a count that is too high or too
    low is a defect, also when it comes once. A figure without a value is one of trials that did not
    count; a case that was never measured is disturbed when something took too long.
    """
    if not result.measured.figures:
        return "not within" in result.reason
    return all(
        value is None or math.isnan(value) or limit.unit in {"ms", "s"} or limit.figure in TIMED
        for limit, value in broken(result.case, result.measured)
    )


def told(results: list[Result]) -> str:
    return "\n".join(f"{r.case.number} {r.case.name}: {table.line(r)}" for r in results)


def test_only_what_a_busy_machine_can_have_broken_is_tried_again() -> None:
    (killed,) = table.chosen(["learner_killed"])

    def result(reason: str = "", **values: float) -> Result:
        kept = {lim.figure: lim.at_most or lim.at_least or 0.0 for lim in killed.limits}
        found = kept | {name.replace("_", " "): value for name, value in values.items()}
        figures = tuple(Figure(name, value, "") for name, value in found.items())
        measured = Measured(() if reason else figures, 1)
        return Result(case=killed, verdict=NOT_MET, measured=measured, reason=reason)

    assert {limit.figure for case in table.cases() for limit in case.limits} >= TIMED
    assert disturbed(result(control_ticks_missed=2.0))
    assert disturbed(result("the arm moves: not within 30 s"))
    assert not disturbed(result("KeyError: a defect of the case"))
    assert not disturbed(result(control_ticks_missed=2.0, rows_lost=1.0))
    assert disturbed(result(rows_lost=math.nan))


@pytest.mark.timeout(400)
def test_every_promise_of_the_short_table_is_kept(tmp_path: Path) -> None:
    results = again(running.run(table.cases(), SHORT_S))
    assert [r.case.number for r in results] == list(range(1, 35))
    by_verdict = {v: [r for r in results if r.verdict == v] for v in (MET, NOT_MET, NOT_RUN)}
    assert not by_verdict[NOT_RUN], told(by_verdict[NOT_RUN])
    assert not by_verdict[NOT_MET], told(by_verdict[NOT_MET])
    assert all(r.measured.n >= r.case.least for r in by_verdict[MET])
    facts: dict[str, Any] = table.facts(results, SHORT_S)
    assert len(json.loads(json.dumps(facts, allow_nan=False))["cases"]) == 34


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_every_promise_of_the_full_table_is_kept() -> None:
    results = running.run(table.cases(), FULL_S)
    missed = [r for r in results if r.verdict != MET]
    assert not missed, told(missed)
    # trials that something disturbed are not counted
    short = [r for r in results if r.measured.n < MOST * r.case.full]
    assert not short, told(short)
