"""The protocol of OpenAI-compatible servers (vLLM, SGLang, a vendor's): answers in words."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.questions import (
    NOT_AN_ANSWER,
    PROMPTS,
    REFUSED,
    SHUT,
    ParsedReply,
    Question,
    QuestionKind,
    load_prompts,
    read,
    reply_of,
)
from robot_rl.reward.vlm.wire import GREY, KEY_FIX, Exchange, Get, HttpRequest, encoded
from robot_rl.system import plain_json

TOP_LOGPROBS = 20  # the most that servers give


class Chat:
    """`wire.Wire` in words; see `questions`.

    Raises:
        ConfigError: the prompts cannot be used.
    """

    def __init__(self, config: VlmConfig) -> None:
        self._config = config
        self._prompts = load_prompts(Path(config.prompts) if config.prompts else PROMPTS)
        self._probed = 0  # how many pictures at once the server has taken
        self._logprobs = config.logprobs != "never"

    def prompt_id(self, kind: QuestionKind) -> str:
        """See `Wire`."""
        return self._prompts[kind].id

    def facts(self, question: Question) -> list[Any]:
        """See `Wire`."""
        config, prompt = self._config, self._prompts[question.kind]
        facts = [prompt.hash, question.task, config.image_px, config.jpeg_quality]
        return [*facts, config.logprobs, sorted(config.extra.items())]

    def request(self, question: Question, again: bool) -> HttpRequest:
        """See `Wire`."""
        prompt, content = self._prompts[question.kind], []
        for tag, image in zip(prompt.tags(question), question.images, strict=True):
            content += [_text(tag), self._part(image)]
        content.append(_text(prompt.ask(question, again)))
        return self._completion(prompt.system, content, prompt.max_tokens)

    def reading(self, question: Question, data: Any) -> tuple[ParsedReply, str]:
        """See `Wire`."""
        reply = reply_of(data)
        if isinstance(reply, str):
            return ParsedReply(None, reply), ""
        if self._config.logprobs == "require" and not reply.first:
            return ParsedReply(None, f"{NOT_AN_ANSWER}: no logprobs"), reply.text
        return read(reply, self._prompts[question.kind]), reply.text

    def spent(self, data: Any) -> float | None:
        """See `Wire`."""
        usage = data.get("usage") if isinstance(data, dict) else None
        total = usage.get("total_tokens") if isinstance(usage, dict) else None
        return float(total) if type(total) is int and 0 <= total < 10**9 else None

    async def probe(self, questions: Sequence[Question], exchange: Exchange, get: Get) -> str:
        """See `Wire`; tries so many pictures at once, and whether probabilities are told."""
        images = max(len(q.images) for q in questions)
        if images <= self._probed:
            return ""
        content = [self._part(GREY)] * images + [_text("Are these grey? Say yes or no.")]
        data, problem = await exchange(self._completion("", content, 4))
        told = self._logprobs
        if told and _refuses(data, problem).startswith(REFUSED):
            self._logprobs = False  # is it the log-probabilities that it refuses?
            without, still = await exchange(self._completion("", content, 4))
            if _refuses(without, still):
                self._logprobs = True
            else:
                data, problem = without, ""
        problem = _refuses(data, problem)
        if problem.startswith((REFUSED, SHUT)):
            raise await self._refusal(problem, images, get)
        if problem:
            return problem
        reply = reply_of(data)
        assert not isinstance(reply, str)
        self._logprobs = told and bool(reply.first)
        if self._config.logprobs == "require" and not self._logprobs:
            self._logprobs = True
            raise ConfigError(
                "the server does not tell log-probabilities",
                expected=f"logprobs and top_logprobs={TOP_LOGPROBS} in the reply",
                got="a reply without",
                fix="serve it with vLLM or SGLang; words alone: reward.server.logprobs=prefer",
            )
        self._probed = images
        return ""

    def forget(self) -> None:
        """See `Wire`."""
        self._probed = 0

    async def _refusal(self, problem: str, images: int, get: Get) -> ConfigError:
        fix = f"can it take {images} pictures at once (vLLM: --limit-mm-per-prompt)? see its log"
        status, models = await get("/models")
        if "status 401" in problem or "status 403" in problem:
            fix = KEY_FIX
        elif status == 200:
            try:
                names = [str(entry["id"]) for entry in plain_json.loads(models)["data"]]
            except (ValueError, LookupError, TypeError):
                names = []
            if names and self._config.model not in names:
                meant = did_you_mean(self._config.model, names[:20])
                fix = f"reward.server.model={names[0]}: {meant}"
        return ConfigError(
            "the server of the vision-language model refuses questions",
            expected=f"answers of '{self._config.model}' at {self._config.url.rstrip('/')}",
            got=problem,
            fix=fix,
        )

    def _completion(
        self, system: str, content: list[dict[str, Any]], max_tokens: int
    ) -> HttpRequest:
        config = self._config
        messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        body = {"model": config.model, "messages": messages, "max_tokens": max_tokens}
        body |= {"temperature": 0, **config.extra}
        if self._logprobs:
            body |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        tokens = _tokens(config, content, max_tokens)
        return HttpRequest(
            "/chat/completions", json.dumps(body).encode(), "application/json", tokens
        )

    def _part(self, image: NDArray[np.uint8]) -> dict[str, Any]:
        data = encoded(image, self._config.image_px, self._config.jpeg_quality)
        url = "data:image/jpeg;base64," + base64.b64encode(data).decode()
        return {"type": "image_url", "image_url": {"url": url}}


def _refuses(data: Any, problem: str) -> str:
    """What is wrong with a reply, whether the server or the model says so; "" = nothing."""
    if problem:
        return problem
    reply = reply_of(data)
    return reply if isinstance(reply, str) else ""


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _tokens(config: VlmConfig, content: Sequence[Mapping[str, Any]], max_tokens: int) -> float:
    """A rather high guess at a request's tokens; corrected when the server tells them."""
    images = sum(part["type"] == "image_url" for part in content)
    text = sum(len(part.get("text", "")) for part in content)
    return images * (config.image_px / 28) ** 2 + text / 3 + 100 + max_tokens
