"""Statistics of paired comparisons, against worked examples and by their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from robot_rl.control.statistics import holm, mcnemar, paired_difference


def test_mcnemar_is_a_fair_coin_over_the_pairs_that_differ() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 2**5)
    assert mcnemar(0, 5) == mcnemar(5, 0)
    assert mcnemar(3, 3) == 1.0
    assert mcnemar(1, 7) == pytest.approx(2 * (1 + 8) / 2**8)
    with pytest.raises(ValueError, match="counts"):
        mcnemar(-1, 2)


def test_the_interval_is_symmetric_in_the_policies_and_holds_the_difference() -> None:
    for table in ((36, 12, 2, 0), (10, 0, 0, 10), (0, 5, 5, 0), (20, 0, 0, 0), (0, 20, 0, 0)):
        both, first, second, neither = table
        difference, low, high = paired_difference(both, first, second, neither)
        assert -1.0 <= low <= difference <= high <= 1.0
        swapped = paired_difference(both, second, first, neither)
        assert swapped == pytest.approx((-difference, -high, -low))
        assert high - low > 0.0 or table == (10, 0, 0, 10)
    assert paired_difference(0, 0, 0, 0) == (0.0, -1.0, 1.0)
    with pytest.raises(ValueError, match="counts"):
        paired_difference(1, -1, 0, 0)


def test_worked_examples() -> None:
    """Chapter 8 of Fagerland, Lydersen, Laake, Statistical Analysis of Contingency Tables (2017):
    complete response before and after consolidation therapy, and airway hyper-responsiveness."""
    assert paired_difference(59, 6, 16, 80) == pytest.approx((-0.0621, -0.1186, -0.0046), abs=6e-5)
    assert paired_difference(1, 1, 7, 12) == pytest.approx((-0.2857, -0.5069, -0.0256), abs=6e-5)
    assert mcnemar(1, 7) == pytest.approx(0.0703, abs=5e-5)


def test_agreement_narrows_the_interval() -> None:
    """The same margins (15 and 12 of 20): pairs that agree tell more than pairs that do not."""
    agree, apart = paired_difference(12, 3, 0, 5), paired_difference(8, 7, 4, 1)
    assert agree[0] == pytest.approx(apart[0]) == pytest.approx(0.15)
    assert agree[2] - agree[1] < apart[2] - apart[1]


def test_the_interval_covers_about_95_of_100() -> None:
    """Over 4000 comparisons of 30 starts in which success depends on the start, too."""
    rng = np.random.default_rng(0)
    for p1, p2 in ((0.9, 0.7), (0.95, 0.95), (0.5, 0.2)):
        hard = rng.random((4000, 30)) < 0.3
        one = rng.random((4000, 30)) < np.where(hard, p1 - 0.05, p1)
        two = rng.random((4000, 30)) < np.where(hard, p2 - 0.05, p2)
        inside = 0
        for a, b in zip(one, two, strict=True):
            counts = [int((x & y).sum()) for x, y in ((a, b), (a, ~b), (~a, b), (~a, ~b))]
            _, low, high = paired_difference(*counts)
            inside += low <= p1 - p2 <= high
        assert 0.93 < inside / 4000 <= 0.995, (p1, p2, inside)


def test_holm_raises_p_values_and_keeps_their_order() -> None:
    assert holm([]) == [] and holm([0.03]) == [0.03]
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert math.isclose(max(holm([0.5, 0.9])), 1.0)
