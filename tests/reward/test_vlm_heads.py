"""What the numbers of a reward model with heads say, and that what is none becomes no number."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.heads import Heads, read
from robot_rl.reward.vlm.questions import Question, QuestionKind

PROGRESS, SUCCESS, PAIR = QuestionKind.PROGRESS, QuestionKind.SUCCESS, QuestionKind.PREFERENCE


def reply(progress: Any = None, success: Any = None, pair: Any = None) -> dict[str, Any]:
    """As Robometer's server makes it."""
    return {
        "outputs_preference": pair,
        "outputs_progress": None if progress is None else {"progress_pred": progress},
        "outputs_success": None if success is None else {"success_probs": success},
    }


def judged(p: Any, first: Any) -> dict[str, Any]:
    return reply(pair={"predictions": [1], "prediction_probs": [p], "preference_labels": first})


def test_the_last_frame_is_the_answer() -> None:
    both = reply([[0.0, 0.25]], [[0.9, 0.2]])
    assert [read(kind, 2, both)[0].value for kind in (PROGRESS, SUCCESS)] == [0.25, 0.2]
    assert [read(kind, 2, both)[0].sure for kind in (PROGRESS, SUCCESS)] == [None, 0.8]
    assert read(PROGRESS, 2, both)[1] == "[0.0, 0.25]"
    assert read(PROGRESS, 1, reply([[1]]))[0].value == 1.0  # JSON has no other 1.0


def test_a_little_beyond_is_rounding() -> None:
    assert read(PROGRESS, 2, reply([[-0.0005, 1.0005]]))[0].value == 1.0
    assert read(PROGRESS, 1, reply([[-0.0005]]))[0].value == 0.0
    assert read(PROGRESS, 1, reply([[1.002]]))[0].value is None


@pytest.mark.parametrize(("first", "value"), [([1.0], 0.25), ([0.0], 0.75)])
def test_a_preference_is_about_the_clip_that_was_shown_first(first: Any, value: float) -> None:
    """0.75 that the first is better; the value is how sure it is of clip B."""
    reading, _ = read(PAIR, 3, judged(0.75, first))
    assert reading.value == value and reading.sure == 0.75


@pytest.mark.parametrize("first", [None, [], [2.0], 1.0, [1.0, 1.0], "A"])
def test_a_preference_without_its_order_says_nothing(first: Any) -> None:
    reading, _ = read(PAIR, 1, judged(0.75, first))
    assert reading.value is None and "which clip" in reading.problem


@pytest.mark.parametrize(
    "data",
    [
        {},
        reply(),
        reply(success=[[0.5, 0.5]]),
        reply(progress=[]),
        reply(progress=[[]]),
        {"outputs_progress": {}},
        {"outputs_progress": {"progress_pred": None}},
    ],
)
def test_a_head_that_is_not_there_is_said_and_is_not_0(data: Any) -> None:
    reading, _ = read(PROGRESS, 2, data)
    assert reading.value is None and reading.problem == "not an answer: no head for progress"


@pytest.mark.parametrize(
    ("progress", "problem"),
    [
        ([[0.1]], "1 numbers, not 2"),
        ([[0.1, 0.2, 0.3]], "3 numbers, not 2"),
        ([0.1, 0.2], "another shape"),
        ([[0.1, 0.2], [0.1, 0.2]], "another shape"),
        ({"0": [0.1, 0.2]}, "another shape"),
        (0.2, "another shape"),
        ("0.2", "another shape"),
        ([[0.1, None]], "None for"),
        ([[None, 0.1]], "None for"),
        ([[0.1, "0.2"]], "'0.2' for"),
        ([[0.1, True]], "True for"),
        ([[0.1, [0.2]]], "[0.2] for"),
        ([[0.1, math.nan]], "nan for"),
        ([[math.nan, 0.1]], "nan for"),
        ([[0.1, math.inf]], "inf for"),
        ([[0.1, -0.2]], "-0.2 for"),
        ([[0.1, 1.2]], "1.2 for"),
        ([[0.1, 10**400]], "00"),
    ],
)
def test_what_is_no_answer_becomes_no_number(progress: Any, problem: str) -> None:
    data = json.loads(json.dumps(reply(progress)))  # as it comes: NaN passes Python's JSON
    reading, text = read(PROGRESS, 2, data)
    assert reading.value is None and reading.sure is None and text == ""
    assert reading.problem.startswith("not an answer: ") and problem in reading.problem
    assert len(reading.problem) <= 200


@pytest.mark.parametrize("data", [None, 3, "progress", [[0.1, 0.2]], True])
def test_something_else_than_an_object_is_no_answer(data: Any) -> None:
    for whole in (data, {"outputs_progress": data}):
        reading, _ = read(PROGRESS, 2, whole)
        assert reading.value is None and reading.problem.startswith("not an answer: ")


def test_the_same_question_is_the_same_request() -> None:
    """Boundaries of forms are random elsewhere; what is sent, and which fault it meets, is not."""
    pytest.importorskip("httpx")
    pytest.importorskip("cv2")
    image = np.full((24, 32, 3), 7, np.uint8)
    heads = Heads(VlmConfig(model="m", protocol="heads"))
    task = 'say "hi" \r\n--x'
    made = [heads.request(Question(PROGRESS, (image, image), t), False) for t in (task, task, "go")]
    assert made[0] == made[1] != made[2]
    assert made[0].path == "/evaluate_batch_npy"
