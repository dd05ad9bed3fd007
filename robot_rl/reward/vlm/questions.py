"""What a vision-language model can be asked, in which words, and what its reply says.

    success      1+ frames                        p in [0, 1] that the task is done
    progress     start, ..., now                  phi in [0, 1] of the last frame
    change       before, after                    in [-1, 1]: share of what was left, or was reached
    preference   clip A's frames, then clip B's   +1 B is nearer to the goal, -1 A, 0 neither

Where the server tells log-probabilities, a value is an expectation over the words w_k that are
answers, of any spelling:

    S_k = logsumexp of w_k's tokens;   value = sum_k softmax(S)_k * k / (n - 1)

which for yes and no is sigmoid(S_yes - S_no). Nothing else becomes a number: the whole reply must
be one of these words, and together they must hold half of the probability. A reply that is no
answer is *unlabelled*, never 0.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from robot_rl.config.registry import build
from robot_rl.config.yaml_file import read_yaml
from robot_rl.errors import ConfigError, SpecError, did_you_mean
from robot_rl.reward.assembly import after_change

PROMPTS = Path(__file__).parent / "prompts"
MIN_MASS = 0.5  # share of the probability on answers; below, another question was answered
MAX_TEXT = 200  # characters of a reply that are kept
MAX_TASK = 2000
TOLERANCE = 1e-2  # servers round log-probabilities

# problems: why there is no value; more may follow after a colon
TIMEOUT, DOWN, BUSY = "timeout", "server does not answer", "server is busy"
SHUT = "server refuses"  # every question, not this one
BREAKER_OPEN, OVER_BUDGET, STOPPED = "breaker open", "over budget", "stopped"
REFUSED, NOT_AN_ANSWER, TOO_LARGE = "refused", "not an answer", "reply too large"
LATER = frozenset((TIMEOUT, DOWN, BUSY, SHUT, BREAKER_OPEN, OVER_BUDGET, STOPPED))
"""Problems that say nothing about the question: it is worth asking again."""


class QuestionKind(StrEnum):
    """What is asked; see the module."""

    SUCCESS = "success"
    PROGRESS = "progress"
    CHANGE = "change"
    PREFERENCE = "preference"


@dataclass(frozen=True, eq=False, slots=True)
class Question:
    """One question about pictures, uint8 [H, W, 3] RGB, in the order of the module's table.

    Raises:
        ConfigError: no such kind, or the task has no words.
        SpecError: a picture of another type or shape, or too few or too many of them.
    """

    kind: QuestionKind
    images: tuple[NDArray[np.uint8], ...]
    task: str

    def __post_init__(self) -> None:
        """Check everything before anything is asked."""
        if self.kind not in list(QuestionKind):
            raise ConfigError(
                f"unknown question '{self.kind}'",
                expected=", ".join(QuestionKind),
                got=repr(self.kind),
                fix=did_you_mean(str(self.kind), list(QuestionKind)),
            )
        object.__setattr__(self, "kind", QuestionKind(self.kind))
        object.__setattr__(self, "images", tuple(self.images))
        if not self.task.strip() or len(self.task) > MAX_TASK:
            raise ConfigError(
                "a vision-language model has to be told the task",
                expected=f"1 to {MAX_TASK} characters of what the robot shall do",
                got=f"{len(self.task)} characters" if self.task.strip() else "none",
                fix="say it as you would to a person: 'put the peg into the hole'",
            )
        for image in self.images:
            ok = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3
            if not ok or image.shape[2] != 3 or not image.size:
                shape = getattr(image, "shape", "")
                raise SpecError(
                    "this is no picture",
                    expected="uint8 [H, W, 3], RGB",
                    got=f"{getattr(image, 'dtype', type(image).__name__)} {shape}",
                    fix="give the camera's frame as it is recorded, not normalised, channels last",
                )
        count = len(self.images)
        fits, expected = {
            QuestionKind.SUCCESS: (count >= 1, "1 or more"),
            QuestionKind.PROGRESS: (count >= 2, "2 or more: the start of the episode, ..., now"),
            QuestionKind.CHANGE: (count == 2, "2: before, after"),
            QuestionKind.PREFERENCE: (
                count >= 2 and count % 2 == 0,
                "as many of one clip as of the other",
            ),
        }[self.kind]
        if not fits:
            raise SpecError(
                f"a question of {self.kind} has the wrong number of pictures",
                expected=expected,
                got=str(count),
                fix="see robot_rl/reward/vlm/questions.py",
            )

    @property
    def swapped(self) -> Question:
        """The two clips of a preference in the other order."""
        half = len(self.images) // 2
        return Question(self.kind, self.images[half:] + self.images[:half], self.task)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, or why there is none.

    value: see the module, None = unlabelled; problem: why, "" with a value; sure: in [0, 1], None
    where the server tells no probabilities (success, preference: that of the likelier word;
    progress: 1 - entropy / log 11; change: that of this very reply); prompt: name@hash; latency_s:
    0 from the cache; text: the reply, shortened.
    """

    value: float | None
    problem: str
    sure: float | None
    model: str
    prompt: str
    latency_s: float
    text: str

    @property
    def later(self) -> bool:
        """Whether it is unlabelled for a reason that may go away by itself."""
        return self.problem.partition(":")[0] in LATER

    @property
    def author(self) -> str:
        """Author of the label that is made of this answer."""
        return f"{self.model} {self.prompt}"


# -- the words ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Tags:
    """Text before each picture; {n}, {count} are replaced. A preference: clip A first, B last."""

    first: str
    last: str
    between: str = ""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A file of `prompts/`.

    text: after the pictures, {task} is replaced; answers: the words, lowest value first; no words =
    a signed number; again: added when the first reply was no answer.
    """

    name: str
    version: int
    frames: Tags
    text: str
    answers: tuple[str, ...]
    max_tokens: int
    again: str
    system: str = ""

    def __post_init__(self) -> None:
        """Check what the parsers rely on."""
        if "{task}" not in self.text or self.max_tokens < 1 or not self.name:
            raise ValueError("text needs {task}, max_tokens at least 1, name a word")
        words = {_word(answer) for answer in self.answers} - {""}
        if len(words) != len(self.answers) or len(words) == 1:
            raise ValueError("answers must be two or more different words, or none")

    @cached_property
    def hash(self) -> str:
        """First 10 hex digits of a hash over every word of the file."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:10]

    @property
    def id(self) -> str:
        """name@hash: part of the author of a label."""
        return f"{self.name}@{self.hash}"

    def tags(self, question: Question) -> list[str]:
        """The text before each picture."""
        total = len(question.images)
        two_clips = question.kind is QuestionKind.PREFERENCE
        count = total // 2 if two_clips else total
        found = []
        for index in range(total):
            first = index < count if two_clips else index == 0
            last = not first if two_clips else index == total - 1
            # a single picture is the last one; of two clips each has its own tag
            text = self.frames.last if last else self.frames.first if first else self.frames.between
            found.append(_filled(text, n=index % count + 1, count=count))
        return found

    def ask(self, question: Question, again: bool = False) -> str:
        """The text after the pictures."""
        return _filled(self.text, task=question.task) + (f"\n{self.again}" if again else "")


def load_prompts(folder: Path = PROMPTS) -> dict[QuestionKind, Prompt]:
    """Load `success.yaml` and so on from a folder; ours where the folder has none.

    Raises:
        ConfigError: a file is not a prompt, or is for another kind of answer.
    """
    prompts = {}
    for kind in QuestionKind:
        path = folder / f"{kind}.yaml"
        path = path if path.is_file() else PROMPTS / path.name
        try:
            data = read_yaml(path)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise _no_prompt(path, str(error)) from error
        if not isinstance(data, Mapping):
            raise _no_prompt(path, type(data).__name__)
        prompt = build(Prompt, data, f"prompt {path.name}")
        counts = {QuestionKind.CHANGE: (0,), QuestionKind.PROGRESS: range(2, 12)}.get(kind, (2,))
        if len(prompt.answers) not in counts:
            raise _no_prompt(path, f"{len(prompt.answers)} answers")
        prompts[kind] = prompt
    return prompts


def _no_prompt(path: Path, got: str) -> ConfigError:
    return ConfigError(
        f"{path.name} is not a prompt",
        expected="YAML as in robot_rl/reward/vlm/prompts",
        got=got,
        fix="copy ours, change words and version; answers: 2, of progress up to 11, of change none",
    )


def _filled(text: str, **words: object) -> str:
    """Plain replacement in one pass: a task's own braces mean nothing."""
    return re.sub(r"\{(\w+)\}", lambda m: str(words.get(m[1], m[0])), text)


# -- replies --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """The parts of a chat completion that matter.

    first: token -> log-probability at the place of the first word, empty where none are told;
    logprob: of the whole text.
    """

    text: str
    first: Mapping[str, float]
    logprob: float | None


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """value or problem, and how sure; see `Answer`."""

    value: float | None
    problem: str = ""
    sure: float | None = None


def reply_of(data: Any) -> Reply | str:
    """The reply in a decoded chat completion, or the problem with it; never raises."""
    try:
        choice = data["choices"][0]
        message = choice["message"]
        text, told = message.get("content"), choice.get("logprobs")
        if message.get("refusal") or choice.get("finish_reason") == "content_filter":
            return f"{REFUSED}: {message.get('refusal') or 'content filter'!r}"[:MAX_TEXT]
        if not isinstance(text, str):
            return f"{NOT_AN_ANSWER}: no text (is this a model that thinks aloud first?)"
        tokens = (told or {}).get("content") or []
        if not tokens:
            return Reply(text, {}, None)
        return Reply(text, _first(tokens), math.fsum(_logprob(t) for t in tokens))
    except (
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        ValueError,
        StopIteration,
    ) as e:
        return f"{NOT_AN_ANSWER}: not a chat completion ({e!r})"[:MAX_TEXT]


def _first(tokens: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """`Reply.first`. Raises ValueError and others when the tokens are not what they should be."""
    start = next(t for t in tokens if _bare(t["token"]))
    first: dict[str, float] = {}
    for token in (start, *(start.get("top_logprobs") or ())):
        name = token["token"]
        if not isinstance(name, str):
            raise ValueError("a token that is no text")
        first[name] = max(_logprob(token), first.get(name, -math.inf))
    if math.fsum(math.exp(x) for x in first.values()) > 1.0 + TOLERANCE:
        raise ValueError("probabilities of more than 1")
    return first


def read(reply: Reply, prompt: Prompt) -> ParsedReply:
    """Return what a reply says, in the terms of the module; never raises."""
    if not prompt.answers:
        return _number(reply)
    words = [_word(answer) for answer in prompt.answers]
    said, top = _word(reply.text), len(words) - 1
    if said not in words:
        return ParsedReply(None, f"{NOT_AN_ANSWER}: {reply.text[:60]!r}")
    if not reply.first:
        return ParsedReply(words.index(said) / top)
    scores = dict.fromkeys(words, -math.inf)
    for token, logprob in reply.first.items():
        word = _word(token)
        if word in scores:
            scores[word] = float(np.logaddexp(scores[word], logprob))
    mass = math.fsum(math.exp(s) for s in scores.values())
    if mass < MIN_MASS or scores[said] == -math.inf:
        return ParsedReply(
            None, f"{NOT_AN_ANSWER}: only {mass:.2f} of the probability is on answers"
        )
    if len(words) == 2:  # a word that was not among the likeliest has at most what they leave over
        rest = 1.0 - math.fsum(math.exp(x) for x in reply.first.values())
        bound = min(*reply.first.values(), math.log(max(rest, 1e-12)), 0.0)
        scores = {word: s if s > -math.inf else bound for word, s in scores.items()}
    weights = np.exp(np.array(list(scores.values())) - max(scores.values()))
    share = weights / weights.sum()
    value = float(share @ np.arange(len(words)) / top)
    if len(words) == 2:
        sure = float(share.max())
    else:
        seen = share[share > 0.0]
        sure = 1.0 + float(seen @ np.log(seen)) / math.log(len(words))
    return ParsedReply(min(max(value, 0.0), 1.0), sure=min(max(sure, 0.0), 1.0))


def both_orders(first: ParsedReply, swapped: ParsedReply) -> ParsedReply:
    """One preference from readings in both orders; two that contradict each other are a tie."""
    if first.value is None or swapped.value is None:
        return ParsedReply(None, first.problem or swapped.problem)
    b = first.value, 1.0 - swapped.value  # how sure that the second clip is nearer, each time
    value = 1.0 if min(b) > 0.5 else -1.0 if max(b) < 0.5 else 0.0
    if first.sure is None or swapped.sure is None:
        return ParsedReply(value)
    return ParsedReply(value, sure=(first.sure + swapped.sure) / 2)


def _number(reply: Reply) -> ParsedReply:
    """A signed percentage as a share."""
    found = re.fullmatch(r"([+\-\u2212]?)([0-9]{1,3}) ?%?\.?", reply.text.strip())
    if found is None or int(found[2]) > 100:
        return ParsedReply(None, f"{NOT_AN_ANSWER}: {reply.text[:60]!r}")
    value = int(found[2]) / 100.0 * (1.0 if found[1] in ("", "+") else -1.0)
    return ParsedReply(value + 0.0, sure=None if reply.logprob is None else math.exp(reply.logprob))


def _logprob(token: Mapping[str, Any]) -> float:
    """The log probability of a token. Raises ValueError when it has none."""
    value = token["logprob"]
    if type(value) not in (int, float) or not math.isfinite(value) or value > TOLERANCE:
        raise ValueError(f"log-probability {value!r}")
    return min(float(value), 0.0)


def _bare(token: str) -> str:
    """A token without the marks that tokenisers put before a word."""
    return token.strip().lstrip("\u0120\u2581\u010a").strip()


def _word(text: str) -> str:
    """A word as it is compared: without marks, quotes, stops and capitals."""
    return _bare(text).strip("\"'`*.,:;!()[] \t\r\n").casefold()


# -- of several answers ---------------------------------------------------------------------------


def integrate(changes: Sequence[float | None]) -> list[float | None]:
    """Progress phi_0 = 0, phi_1, ... [T + 1] of the changes [T] between frames (VLAC).

    After an unlabelled change the progress is unknown: None from there on.
    """
    curve: list[float | None] = [0.0]
    for change in changes:
        last = curve[-1]
        curve.append(None if last is None or change is None else after_change(last, change))
    return curve
