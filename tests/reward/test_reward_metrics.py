"""Figures of reward models, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.reward.metrics import auc, calibration_error, held, operating_point

NUMBERS = st.lists(st.integers(-5, 5), min_size=1, max_size=20)


def test_a_score_is_held_when_all_of_the_last_ones_reach_it() -> None:
    scores = [0.1, 0.9, 0.8, 0.2, 0.7]
    assert held(scores, 1).tolist() == scores
    assert held(scores, 2).tolist() == [-np.inf, 0.1, 0.8, 0.2, 0.2]
    assert held(scores, 3).tolist() == [-np.inf, -np.inf, 0.1, 0.2, 0.2]
    assert held(scores, 6).tolist() == [-np.inf] * 5
    assert held([], 2).tolist() == []


@given(NUMBERS, NUMBERS)
def test_auc_is_how_often_a_positive_scores_above_a_negative(yes: list[int], no: list[int]) -> None:
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in yes for b in no]
    assert auc(yes, no) == pytest.approx(np.mean(pairs))


def test_auc_of_one_kind_alone_is_not_a_number() -> None:
    assert np.isnan(auc([], [1.0])) and np.isnan(auc([1.0], []))


def test_calibration_error_is_the_mean_gap_between_sure_and_true() -> None:
    assert calibration_error([0.25] * 4, [1, 0, 0, 0]) == pytest.approx(0.0)
    assert calibration_error([0.95] * 4, [0, 0, 0, 0]) == pytest.approx(0.95)
    assert calibration_error([0.05, 0.05, 1.0, 1.0], [0, 1, 1, 1]) == pytest.approx(0.225)
    assert np.isnan(calibration_error([], []))


@pytest.mark.parametrize(
    ("yes", "no", "allowed", "expected"),
    [
        ([3.0, 5.0], [-4.0, -1.0], 0.0, (1.0, 1.0, 0.0)),  # in the middle of the gap
        ([3.0, 5.0], [-4.0, 4.0], 0.0, (4.5, 0.5, 0.0)),  # a success is given up
        ([3.0, 5.0], [-4.0, 4.0], 0.5, (-0.5, 1.0, 0.5)),  # or a mistake is allowed
        ([1.0], [2.0], 1.0, (1.0, 1.0, 1.0)),
    ],
)
def test_the_operating_point_recognises_most_with_no_more_mistakes_than_allowed(
    yes: list[float], no: list[float], allowed: float, expected: tuple[float, float, float]
) -> None:
    assert operating_point(yes, no, allowed) == pytest.approx(expected)


def test_what_cannot_be_told_apart_is_not_recognised() -> None:
    threshold, true, false = operating_point([1.0, 2.0], [3.0, 4.0], 0.0)
    assert threshold > 4.0 and (true, false) == (0.0, 0.0)
    with pytest.raises(ValueError, match="both kinds"):
        operating_point([], [1.0], 0.0)


@given(NUMBERS, NUMBERS, st.floats(0.0, 1.0))
def test_an_operating_point_keeps_its_word(yes: list[int], no: list[int], allowed: float) -> None:
    threshold, true, false = operating_point(yes, no, allowed)
    assert false <= allowed + 1e-9
    assert true == np.mean(np.array(yes) >= threshold)
    assert false == np.mean(np.array(no) >= threshold)
