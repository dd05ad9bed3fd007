"""The whole fault table, against the real processes: `robot-rl faults`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robot_rl.bench.faults import running, table
from robot_rl.bench.faults.case import FULL_S, MET, NOT_MET, NOT_RUN, Case, Result
from tests.support.ros import HAS_ROS, NO_ROS

pytestmark = [
    pytest.mark.ros,
    pytest.mark.alone,
    pytest.mark.skipif(not HAS_ROS, reason=NO_ROS),
]

SHORT_S = 60.0  # with starting graphs and the least samples, a little more than a minute and a half
MOST = 0.8  # of the full samples
AGAIN_S = 20.0  # for cases of time that a busy test machine has disturbed


def again(results: list[Result]) -> list[Result]:
    """Those that were not met once more: figures in wall time need one undisturbed attempt."""
    missed = [r.case for r in results if r.verdict == NOT_MET and timed(r.case)]
    renewed = {r.case.number: r for r in (running.run(missed, AGAIN_S) if missed else [])}
    return [renewed.get(r.case.number, r) for r in results]


def timed(case: Case) -> bool:
    """Whether a busy machine can break the promise; rows and bytes are counted the same on any."""
    return bool(case.world) or any(limit.unit in {"ms", "s", "%"} for limit in case.limits)


def told(results: list[Result]) -> str:
    return "\n".join(f"{r.case.number} {r.case.name}: {table.line(r)}" for r in results)


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
