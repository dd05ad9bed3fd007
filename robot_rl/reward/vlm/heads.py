"""The protocol of Robometer's evaluation server: a reward model whose heads answer in numbers.

As read in its source, github.com/robometer/robometer at c7f38e2 (robometer/evals/eval_server.py and
eval_utils.py, scripts/example_inference.py, data/collators/rbm_heads.py); no such server was asked.

    POST /evaluate_batch_npy   a form, of which one sample is used:
        sample_0                      JSON: sample_type, and a trajectory: task, frames_shape, and
                                      as frames {"__numpy_file__": "sample_0_trajectory_frames"}
        sample_0_trajectory_frames    .npy, uint8 [T, H, W, 3]; of a preference there are two
                                      trajectories, chosen_trajectory (clip A), rejected_trajectory
        use_frame_steps               false: one pass over the frames, one number for each of them
    -> {"outputs_progress":   {"progress_pred": [[T numbers]]},
        "outputs_success":    {"success_probs": [[T numbers]]},
        "outputs_preference": {"prediction_probs": [p], "preference_labels": [1.0]}}

    GET /model_info -> {"model_path": ...}    there is one model per server, a request names none

All numbers lie in [0, 1]; p: probability that the trajectory which the model was shown first is
better; preference_labels: 1 if that is clip A. A part is null, empty or missing where the model has
no such head. Robometer's own client turns this into 0; here it is unlabelled.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, SpecError, did_you_mean
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.questions import (
    MAX_TEXT,
    NOT_AN_ANSWER,
    REFUSED,
    SHUT,
    ParsedReply,
    Question,
    QuestionKind,
)
from robot_rl.reward.vlm.wire import GREY, KEY_FIX, Exchange, Get, HttpRequest, shrunk
from robot_rl.system import plain_json

VERSION = "heads-v1"  # of requests; raise it when they change: labels of two versions never mix
SLACK = 1e-3  # heads compute in half precision
NO_HEAD = f"{NOT_AN_ANSWER}: no head for"
FIELDS = {
    QuestionKind.PROGRESS: ("outputs_progress", "progress_pred"),
    QuestionKind.SUCCESS: ("outputs_success", "success_probs"),
    QuestionKind.PREFERENCE: ("outputs_preference", "prediction_probs"),
}
"""Where in a reply the answer is. A change has none: a clip's progress counts from its own first
frame, so "before" has progress 0 whatever has been reached, and a difference says nothing."""


class Heads:
    """`wire.Wire` in numbers; see the module."""

    def __init__(self, config: VlmConfig) -> None:
        self._config = config
        self._answered: dict[QuestionKind, int] = {}  # head -> frames of a clip that it has judged
        self._named = False  # whether the server has told the name in the config

    def prompt_id(self, kind: QuestionKind) -> str:
        """See `Wire`; there are no words but the task's."""
        return f"{kind}@{VERSION}"

    def facts(self, question: Question) -> list[Any]:
        """See `Wire`."""
        return [self.prompt_id(question.kind), question.task, self._config.image_px]

    def request(self, question: Question, again: bool) -> HttpRequest:
        """See `Wire`. There is only one way to ask: with `again`, the same is asked."""
        clips, fields, files = _clips(question), {}, {}
        names = ["trajectory"] if len(clips) == 1 else ["chosen_trajectory", "rejected_trajectory"]
        for name, clip in zip(names, clips, strict=True):
            frames = np.stack([shrunk(image, self._config.image_px) for image in clip])
            file = f"sample_0_{name}_frames"
            files[file] = _npy(frames)
            fields[name] = {
                "frames": {"__numpy_file__": file},
                "frames_shape": frames.shape,
                "task": question.task,
                "id": "0",
                "metadata": {"subsequence_length": len(frames)},
                "video_embeddings": None,
            }
        kind = "progress" if len(clips) == 1 else "preference"
        sample = json.dumps({"sample_type": kind, **fields})
        return _form({"sample_0": sample, "use_frame_steps": "false"}, files)

    def reading(self, question: Question, data: Any) -> tuple[ParsedReply, str]:
        """See `Wire`."""
        return read(question.kind, len(_clips(question)[0]), data)

    def spent(self, data: Any) -> float | None:
        """See `Wire`; such a server does not tell."""
        return None

    async def probe(self, questions: Sequence[Question], exchange: Exchange, get: Get) -> str:
        """See `Wire`; tries each needed head with as many frames, then the model's name."""
        frames: dict[QuestionKind, int] = {}
        for question in questions:
            _check(question)
            frames[question.kind] = max(frames.get(question.kind, 0), len(_clips(question)[0]))
        for kind, count in frames.items():
            if count <= self._answered.get(kind, 0):
                continue
            images = (GREY,) * (count * (2 if kind is QuestionKind.PREFERENCE else 1))
            data, problem = await exchange(
                self.request(Question(kind, images, "stand still"), False)
            )
            if problem.startswith((REFUSED, SHUT)):
                raise await self._refusal(problem, get)
            if problem:
                return problem
            try:
                _row(kind, count, data)  # the values for grey pictures do not matter
            except ValueError as error:
                if not str(error).startswith(NO_HEAD):
                    return str(error)
                raise ConfigError(
                    f"the reward model has no head for {kind}",
                    expected=".".join(FIELDS[kind]) + " in its reply",
                    got=f"a reply without, from {self._config.url}",
                    fix="serve a model that has one, or do not ask: "
                    "worker.success_frames=0 (success), worker.period_s=0 (progress)",
                ) from error
            self._answered[kind] = count
        return await self._name(get)

    def forget(self) -> None:
        """See `Wire`."""
        self._answered.clear()
        self._named = False

    async def _name(self, get: Get) -> str:
        """Check that labels will name the right model; raises ConfigError if it is another one."""
        if self._named:
            return ""
        status, body = await get("/model_info")
        if not status:
            return body.decode()
        try:
            name = plain_json.loads(body)["model_path"] if status == 200 else None
        except (ValueError, LookupError, TypeError):
            name = None
        if name != self._config.model:
            got = f"status {status}, and no model_path"
            fix = "reward.server.model says whose labels they are: the server has to tell the same"
            if isinstance(name, str) and len(name) <= MAX_TEXT:
                got = repr(name)
                fix = f"reward.server.model={name}: {did_you_mean(self._config.model, [name])}"
            raise ConfigError(
                "the reward model is another one",
                expected=f"'{self._config.model}' as model_path of {self._config.url}/model_info",
                got=got,
                fix=fix,
            )
        self._named = True
        return ""

    async def _refusal(self, problem: str, get: Get) -> ConfigError:
        fix = "the address of a Robometer server, without /v1; can it take so many frames? its log"
        if "status 401" in problem or "status 403" in problem:
            fix = KEY_FIX
        elif (await get("/models"))[0] == 200:
            fix = "this server speaks OpenAI's protocol: reward.server.protocol=chat"
        return ConfigError(
            "the server of the reward model refuses questions",
            expected=f"numbers from {self._config.url.rstrip('/')}/evaluate_batch_npy",
            got=problem,
            fix=fix,
        )


def read(kind: QuestionKind, frames: int, data: Any) -> tuple[ParsedReply, str]:
    """Return a reply's reading, for clips of `frames` frames, and its numbers; never raises."""
    try:
        row, head = _row(kind, frames, data)
        numbers = _numbers(row)
    except ValueError as error:
        return ParsedReply(None, str(error)[:MAX_TEXT]), ""
    value, text = numbers[-1], json.dumps([round(x, 4) for x in numbers])
    if kind is QuestionKind.PROGRESS:
        return ParsedReply(value), text
    if kind is QuestionKind.PREFERENCE:
        first = head.get("preference_labels")
        if first not in ([1.0], [0.0]):
            problem = f"{NOT_AN_ANSWER}: preference_labels {first!r}: which clip was the first?"
            return ParsedReply(None, problem[:MAX_TEXT]), text
        value = 1.0 - value if first == [1.0] else value  # for B, as in `both_orders`
    return ParsedReply(value, sure=max(value, 1.0 - value)), text


def _row(kind: QuestionKind, frames: int, data: Any) -> tuple[list[Any], dict[str, Any]]:
    """(one entry per frame, or one of a pair; the head's part of the reply).

    Raises:
        ValueError: the problem.
    """
    part, key = FIELDS[kind]
    head = data.get(part) if isinstance(data, dict) else data
    found = head.get(key) if isinstance(head, dict) else head
    if isinstance(data, dict) and found in (None, [], [[]]):
        raise ValueError(f"{NO_HEAD} {kind}")
    if not isinstance(head, dict):
        raise ValueError(f"{NOT_AN_ANSWER}: not an object with {part}.{key}")
    rows, count = ([found], 1) if kind is QuestionKind.PREFERENCE else (found, frames)
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], list):
        raise ValueError(f"{NOT_AN_ANSWER}: {key} has another shape")
    if len(rows[0]) != count:
        raise ValueError(f"{NOT_AN_ANSWER}: {key} has {len(rows[0])} numbers, not {count}")
    return rows[0], head


def _numbers(row: list[Any]) -> list[float]:
    """Return the numbers of a row, in [0, 1].

    Each has to be valid, though only the last is the answer: a server that sends one impossible
    number is not believed in the others.

    Raises:
        ValueError: the problem.
    """
    for number in row:
        if type(number) not in (int, float) or not -SLACK <= number <= 1.0 + SLACK:
            raise ValueError(f"{NOT_AN_ANSWER}: {number!r} for a number in [0, 1]")
    return [min(max(float(x), 0.0), 1.0) for x in row]


def _clips(question: Question) -> list[tuple[NDArray[np.uint8], ...]]:
    """The frames of each trajectory that a question is about."""
    if question.kind is not QuestionKind.PREFERENCE:
        return [question.images]
    half = len(question.images) // 2
    return [question.images[:half], question.images[half:]]


def _check(question: Question) -> None:
    """Raises ConfigError or SpecError for what cannot be asked in this protocol."""
    if question.kind not in FIELDS:
        raise ConfigError(
            f"a reward model with heads knows no {question.kind}",
            expected=", ".join(FIELDS),
            got=question.kind,
            fix="ask for progress, or ask a chat model: reward.server.protocol=chat",
        )
    for clip in _clips(question):
        shapes = {image.shape for image in clip}
        if len(shapes) > 1:
            raise SpecError(
                "the frames of a clip differ in size",
                expected="one height and width",
                got=", ".join(map(str, sorted(shapes))),
                fix="take them from one camera",
            )


def _npy(frames: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    np.save(file, frames, allow_pickle=False)
    return file.getvalue()


def _form(fields: dict[str, str], files: dict[str, bytes]) -> HttpRequest:
    """multipart/form-data; equal for equal contents, because their hash is the boundary."""
    import httpx

    digest = hashlib.sha256("".join(fields.values()).encode() + b"".join(files.values()))
    content_type = f"multipart/form-data; boundary={digest.hexdigest()}"
    form = httpx.Request(
        "POST",
        "http://127.0.0.1",
        headers={"Content-Type": content_type},
        data=fields,
        files={k: (f"{k}.npy", v, "application/octet-stream") for k, v in files.items()},
    )
    return HttpRequest("/evaluate_batch_npy", form.read(), content_type)
