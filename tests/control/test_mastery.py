"""The exam: what passes, what fails, and how often it errs."""

from __future__ import annotations

import pytest

from robot_rl.bench.exam import bench
from robot_rl.control.mastery import decide, simulate
from robot_rl.control.statistics import wilson


def test_an_exam_goes_on_until_its_interval_or_its_failures_decide() -> None:
    assert decide(30, 0, 0.95, 1) is None  # what mastered a skill before
    assert decide(72, 0, 0.95, 1) is None
    assert decide(73, 0, 0.95, 1) is True
    assert decide(73, 1, 0.95, 1) is None
    assert decide(109, 1, 0.95, 1) is True
    assert decide(200, 2, 0.95, 1) is False
    assert decide(0, 0, 0.95, 0) is None
    assert decide(0, 1, 0.95, 0) is False


@pytest.mark.parametrize("target", [0.5, 0.9, 0.95, 0.99])
def test_every_exam_ends(target: float) -> None:
    for failures in (0, 1):
        wins = 0
        while decide(wins, failures, target, 1) is None:
            wins += 1
        assert decide(wins, failures, target, 1) and wilson(wins, wins + failures)[0] >= target


def test_the_rule_ends_practice_too_early_in_one_exam_of_thirty_at_most() -> None:
    """One that deserves to pass needs no more than two; the figures of docs/design.md."""
    assert simulate(0.85, 0.95, 1)[0] == 0.0
    assert simulate(0.90, 0.95, 1)[0] < 0.002
    assert simulate(0.95, 0.95, 1)[0] < 0.04
    passed, episodes = simulate(0.99, 0.95, 1)
    assert 0.68 < passed < 0.76 and 70 < episodes < 90


def test_the_benchmark_shows_the_default_rule() -> None:
    figures = bench(0.0)
    assert figures["true_0.95/passed_percent"] == pytest.approx(100 * simulate(0.95, 0.95, 1)[0])
