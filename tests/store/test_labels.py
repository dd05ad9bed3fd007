"""Labels folded into one verdict: the newest word stands, an undo takes a word back."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.errors import StoreError
from robot_rl.store.labels import KINDS, Review, check_label, review
from robot_rl.types import EpisodeId, Label

ID = EpisodeId("run", "actor-0", 3)


def said(*words: tuple[str, float, int | None], author: str = "ada", start: int = 0) -> list[Label]:
    """Labels of one author, one second apart; (kind, value, step)."""
    return [
        Label(ID, start + i, step, kind, value, "person", author, (start + i) * 10**9)
        for i, (kind, value, step) in enumerate(words)
    ]


def test_nothing_said_keeps_everything_and_claims_no_success() -> None:
    assert review([]) == Review()
    assert review([]).keeps(0) and review([]).keeps(10_000)
    assert review([]).success is None


def test_the_newest_word_stands_whatever_the_order_of_arrival() -> None:
    words = said(("success", 1, None), ("exclude", 1, None), ("success", 0, None))
    for order in itertools.permutations(words):
        assert review(order) == Review(excluded=True, success=False)


def test_an_undo_takes_back_its_authors_label_and_no_other() -> None:
    ada = said(("success", 1, None), ("success", 0, None), ("undo", 1, None))
    assert review(ada).success is True
    ben = said(("success", 0, None), author="ben", start=1)
    assert review([*ada[:1], *ben, *said(("undo", 1, None), start=5)]).success is False


def test_trimming_keeps_the_middle_and_exclusion_nothing() -> None:
    trimmed = review(said(("keep_from", 0, 3), ("keep_to", 0, 7)))
    assert [s for s in range(10) if trimmed.keeps(s)] == [3, 4, 5, 6, 7]
    out = review(said(("keep_from", 0, 3), ("exclude", 1, None)))
    assert not any(out.keeps(s) for s in range(10))
    assert review(said(("exclude", 1, None), ("exclude", 0, None))).keeps(0)


def test_single_steps_are_left_out_and_taken_back() -> None:
    out = review(said(("leave_out", 1, 3), ("leave_out", 1, 5), ("leave_out", 0, 3)))
    assert out.left_out == {5} and out.keeps(5)  # exports keep it
    assert review(said(("leave_out", 1, 3), ("undo", 0, None))).left_out == set()


def test_scores_of_models_are_no_word_of_a_person() -> None:
    assert review(said(("classifier", 0.9, 4), ("reward", 1.0, 4))) == Review(rewards={4: 1.0})


def test_what_a_moment_shows_is_said_for_many_steps_at_once_and_taken_back_at_once() -> None:
    press = [replace(x, stamp_ns=5) for x in said(*(("shows", 0, s) for s in (3, 4, 5)))]
    later = said(("shows", 1, 4), start=7)
    assert review([*press, *later]).shows == {3: False, 4: True, 5: False}
    for number in (0, 2):
        undo = said(("undo", number, None), start=9)
        assert review([*press, *later, *undo]) == Review(shows={4: True})
    other = [replace(x, author="ben") for x in press]
    assert review([*other, *press, *undo]).shows == {3: False, 4: False, 5: False}


def test_a_model_counts_only_where_nothing_else_is_known() -> None:
    """person > predicate or classifier, as recorded > vlm"""
    model = [Label(ID, 0, None, "vlm_success", 1.0, "vlm", "model-x", 10**12)]  # newer than people
    silent = review(model)
    assert silent == Review(model_success=True) and silent.success is None
    assert [silent.outcome(x) for x in (None, False, True)] == [True, False, True]
    person = review([*model, *said(("success", 0, None))])
    assert [person.outcome(x) for x in (None, False, True)] == [False] * 3
    neutral = review([*model, *said(("neutral", 1, None))])
    assert [neutral.outcome(x) for x in (None, False, True)] == [None] * 3
    newer = [Label(ID, 1, None, "vlm_success", 0.0, "vlm", "model-x", 10**13)]
    assert review([*newer, *model]).model_success is False


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("sucess", None),
        ("reward", None),
        ("reward", 9),
        ("keep_to", -1),
        ("exclude", 2),
        ("shows", None),
        ("vlm_success", None),
    ],
)
def test_a_label_that_says_nothing_is_refused(kind: str, step: int | None) -> None:
    with pytest.raises(StoreError, match="says nothing"):
        check_label(said((kind, 1.0, step))[0], steps=9)


@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS[:-1]), st.integers(0, 1), st.integers(0, 8)), max_size=12
    )
)
def test_undoing_everything_leaves_nothing_said(words: list[tuple[str, int, int]]) -> None:
    labels = said(*((k, float(v), s) for k, v, s in words))
    undos = said(*(("undo", float(x.label), None) for x in labels), start=len(labels))
    assert review([*labels, *undos]) == Review()
