"""What a vision-language model is asked, and what its replies mean: never a number for nonsense."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.errors import ConfigError, RobotRLError, SpecError
from robot_rl.reward.vlm.questions import (
    LATER,
    PROMPTS,
    Answer,
    ParsedReply,
    Question,
    QuestionKind,
    Reply,
    both_orders,
    integrate,
    load_prompts,
    read,
    reply_of,
)

TASK = "put the {red} peg into the hole"
IMAGE = np.zeros((8, 12, 3), np.uint8)
OURS = load_prompts()
WORDS = {kind: {a.casefold() for a in prompt.answers} for kind, prompt in OURS.items()}


def says(text: str, **top: float) -> Reply:
    """A reply with these probabilities; "_" in a name is a space."""
    first = {name.replace("_", " "): math.log(p) for name, p in top.items()}
    return Reply(text, first, -0.5)


# -- questions and their words ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "images", "task", "error"),
    [
        ("success", (), TASK, SpecError),
        ("progress", (IMAGE,), TASK, SpecError),
        ("change", (IMAGE,) * 3, TASK, SpecError),
        ("preference", (IMAGE,) * 3, TASK, SpecError),
        ("success", (IMAGE.astype(np.float32),), TASK, SpecError),
        ("success", (IMAGE[0],), TASK, SpecError),
        ("success", (IMAGE.transpose(2, 0, 1),), TASK, SpecError),
        ("success", (IMAGE[:0],), TASK, SpecError),
        ("success", ([[1, 2, 3]],), TASK, SpecError),
        ("success", (IMAGE,), "  ", ConfigError),
        ("success", (IMAGE,), "x" * 3000, ConfigError),
        ("sucess", (IMAGE,), TASK, ConfigError),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_way_out(
    kind: Any, images: Any, task: str, error: type[RobotRLError]
) -> None:
    with pytest.raises(error) as raised:
        Question(kind, images, task)
    assert raised.value.fix


def test_a_changed_prompt_is_a_new_version() -> None:
    """Scores of two wordings must not mix: give the file a new version, then change these."""
    assert {k: (p.version, p.id) for k, p in OURS.items()} == {
        QuestionKind.SUCCESS: (1, "success@8c472dca69"),
        QuestionKind.PROGRESS: (1, "progress@3167f1bcb3"),
        QuestionKind.CHANGE: (1, "change@e3ab1df940"),
        QuestionKind.PREFERENCE: (1, "preference@d0a7e4038e"),
    }


def test_prompts_ship_with_the_package() -> None:
    assert sorted(p.stem for p in PROMPTS.glob("*.yaml")) == sorted(QuestionKind)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert "robot_rl" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    extras = project["project"]["optional-dependencies"]
    assert any(p.startswith("httpx") for p in extras["vlm"]) and "vlm" in extras["all"][0]


def test_pictures_have_tags_and_braces_of_a_task_mean_nothing() -> None:
    progress = Question(QuestionKind.PROGRESS, (IMAGE,) * 3, TASK)
    prompt = OURS[QuestionKind.PROGRESS]
    assert prompt.tags(progress) == ["The start of the episode:", "Later:", "Now:"]
    assert TASK in prompt.ask(progress) and prompt.again not in prompt.ask(progress)
    assert prompt.ask(progress, again=True).endswith(prompt.again)
    clips = Question(QuestionKind.PREFERENCE, (IMAGE,) * 4, TASK)
    tags = OURS[QuestionKind.PREFERENCE].tags(clips)
    assert [t[:15] for t in tags] == ["Clip A, picture"] * 2 + ["Clip B, picture"] * 2
    assert ["1 of 2" in t for t in tags] == [True, False, True, False]


def test_clips_change_places() -> None:
    a, b = np.full_like(IMAGE, 1), np.full_like(IMAGE, 2)
    swapped = Question(QuestionKind.PREFERENCE, (a, a, b, b), TASK).swapped
    assert [int(i.max()) for i in swapped.images] == [2, 2, 1, 1]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("- a\n- b", "not a prompt"),
        ("name: [", "not a prompt"),
        ("name: x\nwhat: 1", "unknown config key"),
        ("!!python/object/apply:os.getcwd []", "not a prompt"),
    ],
)
def test_a_damaged_prompt_is_refused(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "success.yaml").write_text(text)
    with pytest.raises(ConfigError, match=match):
        load_prompts(tmp_path)


def test_own_words_replace_ours_file_by_file(tmp_path: Path) -> None:
    text = (PROMPTS / "success.yaml").read_text().replace("version: 1", "version: 2")
    (tmp_path / "success.yaml").write_text(text)
    prompts = load_prompts(tmp_path)
    assert prompts[QuestionKind.SUCCESS].hash != OURS[QuestionKind.SUCCESS].hash
    assert prompts[QuestionKind.CHANGE].hash == OURS[QuestionKind.CHANGE].hash
    (tmp_path / "success.yaml").write_text(text.replace('["no", "yes"]', '["no", "yes", "maybe"]'))
    with pytest.raises(ConfigError, match="not a prompt"):
        load_prompts(tmp_path)


# -- yes and no ------------------------------------------------------------------------------------


def test_yes_is_the_sigmoid_of_what_its_spellings_have_over_no() -> None:
    got = read(
        says("Yes", Yes=0.5, yes=0.2, _yes=0.1, no=0.1, The=0.05), OURS[QuestionKind.SUCCESS]
    )
    assert got.value == pytest.approx(0.8 / 0.9) and got.sure == pytest.approx(0.8 / 0.9)
    marks = Reply("**No.**", {"\u0120No": math.log(0.9), "\u2581yes": math.log(0.1)}, -0.1)
    assert read(marks, OURS[QuestionKind.SUCCESS]).value == pytest.approx(0.1)


def test_a_side_that_is_missing_is_bounded_by_what_is_left_over() -> None:
    got = read(says("yes", yes=0.7, The=0.1, It=0.01), OURS[QuestionKind.SUCCESS])
    assert got.value == pytest.approx(0.7 / 0.71)  # the smallest that was told
    got = read(says("yes", yes=0.9), OURS[QuestionKind.SUCCESS])
    assert got.value == pytest.approx(0.9)  # what 0.9 leaves


@pytest.mark.parametrize(
    "reply",
    [
        says("yes", yes=0.3, The=0.6),  # it was not answering
        says("yes", The=0.9),
        says("yes", no=0.9),  # text and probabilities say different things
        says("I cannot say", yes=0.9),
        says("Yes, but the peg", yes=0.9),
        says("", yes=0.9),
        Reply("1", {}, None),
        Reply("0.9", {}, None),
        Reply("yesno", {}, None),
    ],
)
def test_what_is_no_answer_has_no_value(reply: Reply) -> None:
    got = read(reply, OURS[QuestionKind.SUCCESS])
    assert got.value is None and got.sure is None and got.problem.startswith("not an answer")


def test_words_alone_are_read_where_nothing_else_is_told() -> None:
    assert read(Reply(" Yes.\n", {}, None), OURS[QuestionKind.SUCCESS]) == ParsedReply(1.0)
    assert read(Reply("no", {}, None), OURS[QuestionKind.SUCCESS]) == ParsedReply(0.0)
    assert read(Reply("C", {}, None), OURS[QuestionKind.PROGRESS]) == ParsedReply(0.2)


# -- numbers ---------------------------------------------------------------------------------------


def test_progress_is_the_expectation_over_the_bins() -> None:
    got = read(says("I", I=0.5, J=0.3, K=0.1, The=0.1), OURS[QuestionKind.PROGRESS])
    assert got.value == pytest.approx((0.5 * 0.8 + 0.3 * 0.9 + 0.1) / 0.9)
    certain = read(says("K", K=1.0), OURS[QuestionKind.PROGRESS])
    assert certain == ParsedReply(1.0, sure=1.0)
    assert got.sure is not None and 0.0 < got.sure < 1.0
    refusal = says("I am sorry, I", I=0.99)  # the word I is a bin only when it is the whole reply
    assert read(refusal, OURS[QuestionKind.PROGRESS]).value is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("+35", 0.35), ("-20%", -0.2), ("0", 0.0), ("\u22127 %", -0.07), ("100.", 1.0), ("-0", 0.0)],
)
def test_a_change_is_a_signed_share(text: str, value: float) -> None:
    got = read(Reply(text, {}, math.log(0.5)), OURS[QuestionKind.CHANGE])
    assert got.value == value and got.sure == pytest.approx(0.5)
    assert got.value is not None and math.copysign(1.0, got.value) == (-1.0 if value < 0 else 1.0)


@pytest.mark.parametrize(
    "text", ["", "+", "101", "+-3", "3.5", "1e2", "nan", "35 mm", "\u0663", "A"]
)
def test_what_is_no_share_is_no_change(text: str) -> None:
    assert read(Reply(text, {}, None), OURS[QuestionKind.CHANGE]).value is None


# -- replies as they come --------------------------------------------------------------------------


def completion(tokens: Any, text: Any = "yes") -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}, "logprobs": {"content": tokens}}]}


def test_the_first_word_is_where_the_probabilities_are_read() -> None:
    top = [{"token": "yes", "logprob": -0.1}, {"token": "no", "logprob": -3}]
    tokens = [
        {"token": "\n", "logprob": -0.2},
        {"token": "yes", "logprob": -0.1, "top_logprobs": top},
    ]
    got = reply_of(completion(tokens))
    assert got == Reply("yes", {"yes": -0.1, "no": -3.0}, pytest.approx(-0.3))


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": None}]},
        completion([{"token": "yes", "logprob": math.nan}]),
        completion([{"token": "yes", "logprob": -math.inf}]),
        completion([{"token": "yes", "logprob": 0.5}]),
        completion([{"token": "yes", "logprob": True}]),
        completion([{"token": "yes", "logprob": "-1"}]),
        completion([{"token": "yes", "logprob": -(10**400)}]),
        completion([{"token": 3, "logprob": -0.1}]),
        completion([{"token": " ", "logprob": -0.1}]),
        completion([{"token": "yes", "logprob": -0.1, "top_logprobs": [{"token": None}]}]),
        completion([{"token": "yes", "logprob": -0.1,
                     "top_logprobs": [{"token": "no", "logprob": -0.1}]}]),  # 1.8 in all
        completion("yes"), completion([], None), completion([], 1.0),
        {"choices": [{"message": {"content": "yes"}, "logprobs": 3}]},
    ],
)  # fmt: skip
def test_a_malformed_completion_is_a_problem(data: Any) -> None:
    got = reply_of(data)
    assert isinstance(got, str) and got.startswith("not an answer")


def test_a_refusal_is_named() -> None:
    message = {"content": None, "refusal": "no\ud800"}
    got = reply_of({"choices": [{"message": message}]})
    assert isinstance(got, str) and got.startswith("refused") and got.encode()
    filtered = {"message": {"content": "yes"}, "finish_reason": "content_filter"}
    assert str(reply_of({"choices": [filtered]})).startswith("refused")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["choices", "message", "content", "logprobs", "token", "logprob",
                         "top_logprobs", "refusal"]), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip
TOKEN = st.fixed_dictionaries(
    {"token": st.sampled_from(["yes", "no", " Yes", "A", "K", "73", "\n", "", "I"]) | st.text()},
    optional={"logprob": st.floats(-50, 0) | st.floats() | PLAIN, "top_logprobs": PLAIN},
)


@given(PLAIN | st.builds(completion, st.lists(TOKEN, max_size=4) | PLAIN, st.text() | PLAIN))
def test_no_reply_whatsoever_raises_or_becomes_nonsense(data: Any) -> None:
    reply = reply_of(data)
    if isinstance(reply, str):
        assert reply.partition(":")[0] in ("not an answer", "refused")
        return
    for kind, prompt in OURS.items():
        got = read(reply, prompt)
        assert (got.value is None) == bool(got.problem)
        if got.value is None:
            continue
        assert (
            math.isfinite(got.value)
            and (-1.0 if kind is QuestionKind.CHANGE else 0.0) <= got.value <= 1
        )
        assert got.sure is None or 0.0 <= got.sure <= 1.0
        bare = reply.text.strip().lstrip("\u0120\u2581\u010a").strip(" \t\r\n\"'`*.,:;!()[]")
        assert not prompt.answers or bare.casefold() in WORDS[kind]


@given(st.text(max_size=40))
def test_text_is_a_number_only_if_it_is_nothing_but_an_answer(text: str) -> None:
    for kind, prompt in OURS.items():
        value = read(Reply(text, {}, None), prompt).value
        if value is not None and kind is QuestionKind.CHANGE:
            bare = text.strip().rstrip(".").rstrip("% ").replace("\u2212", "-")
            assert float(bare) == pytest.approx(100.0 * value)


# -- of several answers ----------------------------------------------------------------------------


def test_a_preference_holds_in_both_orders_or_is_a_tie() -> None:
    def one(first: float, swapped: float) -> float | None:
        return both_orders(ParsedReply(first, sure=0.9), ParsedReply(swapped, sure=0.7)).value

    assert one(0.9, 0.2) == 1.0  # B, and then A: the second clip each time
    assert one(0.1, 0.8) == -1.0
    assert one(0.9, 0.9) == 0.0  # always the one in second place
    assert one(0.5, 0.2) == 0.0
    assert both_orders(
        ParsedReply(0.9, sure=0.9), ParsedReply(0.2, sure=0.7)
    ).sure == pytest.approx(0.8)
    assert both_orders(ParsedReply(None, "timeout"), ParsedReply(0.2)) == ParsedReply(
        None, "timeout"
    )
    assert both_orders(ParsedReply(0.2), ParsedReply(None, "refused")).problem == "refused"


def test_changes_add_up_to_a_curve_that_stays_inside() -> None:
    assert integrate([0.5, 0.5, 0.0, 1.0]) == [0.0, 0.5, 0.75, 0.75, 1.0]
    assert integrate([0.5, -0.5, -1.0]) == [0.0, 0.5, 0.25, 0.0]
    assert integrate([0.5, None, 0.5]) == [0.0, 0.5, None, None]
    assert integrate([]) == [0.0]


@given(st.lists(st.floats(-1, 1), max_size=50))
def test_no_changes_leave_the_unit_interval(changes: list[float]) -> None:
    assert all(phi is not None and 0.0 <= phi <= 1.0 for phi in integrate(changes))


def test_an_answer_knows_whether_asking_later_helps() -> None:
    for problem in LATER:
        assert Answer(None, f"{problem}: 30 s", None, "m", "p@1", 0.0, "").later
    for problem in ("refused: x", "not an answer: y", ""):
        assert not Answer(None, problem, None, "m", "p@1", 0.0, "").later
