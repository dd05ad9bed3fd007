"""The client of an OpenAI-compatible server (vLLM, SGLang, or a vendor's) that sees pictures.

    client = VlmClient(VlmConfig(url="http://127.0.0.1:8000/v1", model="Qwen/Qwen3-VL-8B-Instruct"))
    answers = client.ask([Question("success", (frame,), "put the peg into the hole")])

`ask` blocks, so it is never called in a control loop. What goes wrong on the way makes an answer
*unlabelled*, with the problem; what was set up wrongly raises before anything is asked.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import hashlib
import ipaddress
import json
import logging
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, SetupError, did_you_mean
from robot_rl.reward.vlm.guards import Breaker, Budget, Cache
from robot_rl.reward.vlm.questions import (
    BREAKER_OPEN,
    BUSY,
    DOWN,
    MAX_TEXT,
    NOT_AN_ANSWER,
    OVER_BUDGET,
    PROMPTS,
    REFUSED,
    SHUT,
    STOPPED,
    TIMEOUT,
    TOO_LARGE,
    Answer,
    Kind,
    Question,
    Reading,
    Reply,
    both_orders,
    load_prompts,
    read,
    reply_of,
)

log = logging.getLogger(__name__)

CONNECT_S = 5.0
MAX_REPLY_BYTES = 1 << 20
TOP_LOGPROBS = 20  # the most that servers give
BACKOFF_S, MAX_BACKOFF_S = 0.5, 20.0
PROBE_SIDE = 56  # pixels of the grey picture of the first question
RETRIED = frozenset((408, 409, 425, 429))  # and all of 500 and above
UNFIT = frozenset((400, 413, 415, 422))  # about this request; other refusals are about all of them
OURS = frozenset(("model", "messages", "logprobs", "top_logprobs", "max_tokens", "temperature"))


@dataclass(frozen=True, kw_only=True)
class VlmConfig:
    """Where the model is and what it may cost. The key itself is never in a config."""

    url: str = "http://127.0.0.1:8000/v1"
    model: str = ""  # as the server calls it; there is no default
    key_file: str = ""  # a file with the key, readable by its owner only
    key_env: str = ""  # or the name of the environment variable that holds it
    plain_http: bool = False  # allow http beyond this machine: pictures and key in clear
    proxy: str = ""  # those of the environment are not used
    timeout_s: float = 30.0  # of one try, whole
    retries: int = 3
    in_flight: int = 16  # requests at once
    image_px: int = 256  # longer side of what is sent; 32 x 32 are one token for Qwen3-VL
    jpeg_quality: int = 90
    logprobs: str = "require"  # | prefer | never
    budget_per_hour: float = 0.0  # of one robot; 0 = no limit
    budget_unit: str = "requests"  # | tokens
    breaker_failures: int = 8  # tries in a row without an answer
    breaker_pause_s: float = 30.0
    cache: str = ""  # file with earlier answers; "" = forget them at the end
    prompts: str = ""  # folder with other words; "" = ours
    extra: dict[str, Any] = field(default_factory=dict)  # more fields of the request

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.timeout_s <= 0.0 or self.breaker_pause_s < 0.0 or self.budget_per_hour < 0.0:
            raise ValueError("timeout_s must be positive, pause and budget not negative")
        if self.retries < 0 or min(self.in_flight, self.breaker_failures) < 1:
            raise ValueError("retries must not be negative; in_flight, breaker_failures at least 1")
        if not 16 <= self.image_px <= 4096 or not 1 <= self.jpeg_quality <= 100:
            raise ValueError("image_px must lie in 16..4096, jpeg_quality in 1..100")
        if self.logprobs not in ("require", "prefer", "never"):
            raise ValueError("logprobs must be require, prefer or never")
        if self.budget_unit not in ("requests", "tokens"):
            raise ValueError("budget_unit must be requests or tokens")
        if OURS & set(self.extra):
            raise ValueError(f"extra must not set {', '.join(sorted(OURS & set(self.extra)))}")


class VlmClient:
    """Asks; see the module. Its methods may be called from any thread; questions take turns.

    Args:
        now_s, sleep: for tests.

    Raises:
        ConfigError: url, key, prompts or cache cannot be used.
        SetupError: httpx or OpenCV is not installed.
    """

    def __init__(
        self,
        config: VlmConfig,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._httpx, _ = needed("httpx"), needed("cv2")
        self._config, self._now_s, self._sleep = config, now_s, sleep
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request is too much
        self._url = _checked_url(config)
        self._key = _read_key(config)
        self.prompts = load_prompts(Path(config.prompts) if config.prompts else PROMPTS)
        self.breaker = Breaker(config.breaker_failures, config.breaker_pause_s, now_s)
        self.budget = Budget(config.budget_per_hour, now_s)
        self.requests = 0  # sent so far
        self._cache = Cache(config.cache)
        self._over_budget = False
        self._probed = 0  # pictures at once that the server has taken
        self._logprobs = config.logprobs != "never"
        self._http: Any = None
        self._room = asyncio.Semaphore(config.in_flight)
        self._turn = threading.Lock()
        self._running: concurrent.futures.Future[list[Answer]] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vlm", daemon=True)
        self._thread.start()

    def ask(self, questions: Sequence[Question], *, fresh: bool = False) -> list[Answer]:
        """One answer per question, in order; `config.in_flight` requests at once.

        Args:
            fresh: ask even what was answered before, and do not keep the answers.

        Raises:
            ConfigError: the server does not know the model or the key, or does not tell the
                log-probabilities that the config requires; nothing was asked.
        """
        with self._turn:
            if self._loop.is_closed():
                return [self._unlabelled(q, STOPPED) for q in questions]
            work = self._ask_all(questions, fresh)
            self._running = asyncio.run_coroutine_threadsafe(work, self._loop)
            try:
                return self._running.result()
            except concurrent.futures.CancelledError:
                return [self._unlabelled(q, STOPPED) for q in questions]
            except KeyboardInterrupt:
                self._running.cancel()
                raise
            finally:
                self._running = None

    def author(self, kind: Kind) -> str:
        """Of the labels that its answers make: MODEL PROMPT@HASH."""
        return f"{self._config.model} {self.prompts[kind].id}"

    @property
    def trouble(self) -> str:
        """Why nothing is answered now, for people; "" = it is."""
        wait_s, silent_s = self.breaker.wait_s, self.breaker.silent_s
        if silent_s is not None and (wait_s or self.breaker.doubts):
            return f"server does not answer since {silent_s:.0f} s, next try in {wait_s:.0f} s"
        if self._over_budget:
            return f"over budget, next question in {self.budget.wait_s:.0f} s"
        return ""

    @property
    def wait_s(self) -> float:
        """Until it makes sense to ask again."""
        return max(self.breaker.wait_s, self.budget.wait_s if self._over_budget else 0.0)

    def interrupt(self) -> None:
        """Give up what is being asked, from another thread: it stays unlabelled."""
        running = self._running
        if running is not None:
            running.cancel()

    def close(self) -> None:
        """Give up what is being asked and close everything; calling it twice does no harm."""
        self.interrupt()
        with self._turn:
            if self._loop.is_closed():
                return
            if self._http is not None:
                closing = asyncio.run_coroutine_threadsafe(self._http.aclose(), self._loop)
                with suppress(Exception):  # a line that is dead already
                    closing.result(CONNECT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- questions -------------------------------------------------------------------------------

    async def _ask_all(self, questions: Sequence[Question], fresh: bool) -> list[Answer]:
        digests = [self._digest(q) for q in questions]
        answers = [
            None if fresh else self._known(q, k) for q, k in zip(questions, digests, strict=True)
        ]
        left = [i for i, answer in enumerate(answers) if answer is None]
        if not left:
            return [a for a in answers if a is not None]
        problem = await self._probe(max(len(questions[i].images) for i in left))
        if problem:
            return [
                a or self._unlabelled(q, problem) for q, a in zip(questions, answers, strict=True)
            ]

        async def one(index: int) -> None:
            key = None if fresh else digests[index]
            answers[index] = await self._answer(questions[index], key)

        if self.breaker.doubts:  # one goes first: a server that is back is not met with all at once
            await one(left.pop(0))
        async with asyncio.TaskGroup() as group:
            for index in left:
                group.create_task(one(index))
        return [a for a in answers if a is not None]

    def _digest(self, question: Question) -> bytes:
        """Digest of everything that an answer depends on."""
        config, prompt = self._config, self.prompts[question.kind]
        facts = [config.model, prompt.hash, question.task, config.image_px, config.jpeg_quality]
        facts += [config.logprobs, sorted(config.extra.items()), [i.shape for i in question.images]]
        digest = hashlib.sha256(json.dumps(facts, default=str).encode())
        for image in question.images:
            digest.update(np.ascontiguousarray(image).data)
        return digest.digest()

    def _known(self, question: Question, key: bytes) -> Answer | None:
        found = self._cache.get(key)
        return (
            None
            if found is None
            else self._made(question, Reading(found[0], "", found[1]), found[2])
        )

    async def _answer(self, question: Question, key: bytes | None) -> Answer:
        if question.kind is Kind.PREFERENCE:
            (a, text, took_s), (b, _, other_s) = await asyncio.gather(
                self._reading(question), self._reading(question.swapped)
            )
            reading, took_s = both_orders(a, b), max(took_s, other_s)
        else:
            reading, text, took_s = await self._reading(question)
        if reading.value is not None and key is not None:
            self._cache.put(key, reading.value, reading.sure, text)
        return self._made(question, reading, text, took_s)

    async def _reading(self, question: Question) -> tuple[Reading, str, float]:
        """What the model says, its words, seconds; a reply that is no answer is asked once more."""
        prompt, reading, text = self.prompts[question.kind], Reading(None, STOPPED), ""
        async with self._room:
            began_s = self._now_s()
            pictures = [self._part(image) for image in question.images]
            for again in (False, True):
                content = []
                for tag, picture in zip(prompt.tags(question), pictures, strict=True):
                    content += [{"type": "text", "text": tag}, picture]
                content.append({"type": "text", "text": prompt.ask(question, again)})
                reply = await self._complete(prompt.system, content, prompt.max_tokens)
                if isinstance(reply, str):
                    reading, text = Reading(None, reply), ""
                elif self._config.logprobs == "require" and not reply.first:
                    reading, text = Reading(None, f"{NOT_AN_ANSWER}: no logprobs"), reply.text
                else:
                    reading, text = read(reply, prompt), reply.text
                if reading.problem.partition(":")[0] != NOT_AN_ANSWER:
                    break
            return reading, text[:MAX_TEXT], self._now_s() - began_s

    def _made(
        self, question: Question, reading: Reading, text: str = "", latency_s: float = 0.0
    ) -> Answer:
        prompt = self.prompts[question.kind].id
        value, problem, sure = reading.value, reading.problem, reading.sure
        return Answer(value, problem, sure, self._config.model, prompt, latency_s, text)

    def _unlabelled(self, question: Question, problem: str) -> Answer:
        return self._made(question, Reading(None, problem))

    def _part(self, image: NDArray[np.uint8]) -> dict[str, Any]:
        data = encoded(image, self._config.image_px, self._config.jpeg_quality)
        url = "data:image/jpeg;base64," + base64.b64encode(data).decode()
        return {"type": "image_url", "image_url": {"url": url}}

    # -- the first question of all ---------------------------------------------------------------

    async def _probe(self, images: int) -> str:
        """Whether so many pictures and the model's probabilities can be had; a problem, or "".

        Raises:
            ConfigError: the server refuses, or lacks what the config requires.
        """
        if images <= self._probed:
            return ""
        grey = self._part(np.full((PROBE_SIDE, PROBE_SIDE, 3), 128, np.uint8))
        content = [grey] * images + [{"type": "text", "text": "Are these grey? Say yes or no."}]
        reply = await self._complete("", content, 4)
        told = self._logprobs
        if told and isinstance(reply, str) and reply.startswith(REFUSED):
            self._logprobs = False  # is it the log-probabilities that it refuses?
            without = await self._complete("", content, 4)
            if isinstance(without, str):
                self._logprobs = True
            else:
                reply = without
        if isinstance(reply, str):
            if reply.startswith((REFUSED, SHUT)):
                raise await self._refusal(reply, images)
            return reply
        self._logprobs = told and bool(reply.first)
        if self._config.logprobs == "require" and not self._logprobs:
            self._logprobs = True
            raise ConfigError(
                "the server does not tell log-probabilities",
                expected=f"logprobs and top_logprobs={TOP_LOGPROBS} in the reply",
                got="a reply without",
                fix="serve the model with vLLM or SGLang, or vlm.logprobs=prefer: words alone then",
            )
        self._probed = images
        return ""

    async def _refusal(self, problem: str, images: int) -> ConfigError:
        fix = f"can it take {images} pictures at once (vLLM: --limit-mm-per-prompt)? see its log"
        try:
            status, models = await self._send("GET", "/models", None)
        except _FailedError:
            status, models = 0, b""
        if "status 401" in problem or "status 403" in problem:
            fix = "give its key: vlm.key_file=FILE or vlm.key_env=NAME"
        elif status == 200:
            try:
                names = [str(entry["id"]) for entry in json.loads(models)["data"]]
            except (ValueError, LookupError, TypeError, RecursionError):
                names = []
            if names and self._config.model not in names:
                fix = f"vlm.model={names[0]}: {did_you_mean(self._config.model, names[:20])}"
        return ConfigError(
            "the server of the vision-language model refuses questions",
            expected=f"answers of '{self._config.model}' at {self._url}",
            got=problem,
            fix=fix,
        )

    # -- the wire --------------------------------------------------------------------------------

    async def _complete(
        self, system: str, content: list[dict[str, Any]], max_tokens: int
    ) -> Reply | str:
        """One chat completion, tried again as configured; or the problem."""
        config = self._config
        messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        body = {"model": config.model, "messages": messages, "max_tokens": max_tokens}
        body |= {"temperature": 0, **config.extra}
        if self._logprobs:
            body |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        data, problem = json.dumps(body).encode(), ""
        guess = 1.0 if config.budget_unit == "requests" else _tokens(config, content, max_tokens)
        for attempt in range(config.retries + 1):
            if self.breaker.wait_s:
                return problem or BREAKER_OPEN
            paid = self.budget.take(guess)
            self._over_budget = paid is None
            if paid is None:
                return problem or OVER_BUDGET
            try:
                status, reply = await self._send("POST", "/chat/completions", data)
            except _FailedError as failure:
                problem, wait_s = failure.problem, failure.wait_s
                self.breaker.failed(wait_s if wait_s > MAX_BACKOFF_S else 0.0)
                if attempt < config.retries and not self.breaker.wait_s:
                    backoff_s = min(BACKOFF_S * 2**attempt, MAX_BACKOFF_S)
                    await self._sleep(max(backoff_s * random.uniform(0.5, 1.0), wait_s))
                continue
            self.breaker.worked()
            if status != 200:
                said = repr(reply[:MAX_TEXT].decode("utf-8", "replace"))
                if status in UNFIT:
                    return f"{REFUSED}: status {status} {said}"
                self._probed = 0  # the next question finds out, and says, what is wrong
                return f"{SHUT}: status {status} {said}"
            return self._replied(reply, paid)
        return problem

    def _replied(self, body: bytes, paid: list[float]) -> Reply | str:
        if len(body) > MAX_REPLY_BYTES:
            return f"{NOT_AN_ANSWER}: {TOO_LARGE}"
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            return f"{NOT_AN_ANSWER}: no JSON"
        if self._config.budget_unit == "tokens":
            usage = data.get("usage") if isinstance(data, dict) else None
            total = usage.get("total_tokens") if isinstance(usage, dict) else None
            if type(total) is int and 0 <= total < 10**9:
                self.budget.settle(paid, float(total))
        return reply_of(data)

    async def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """(status, body) of one request; no more than one byte above the limit is kept.

        Raises:
            _FailedError: no answer, or one that asks to come again.
        """
        config, httpx = self._config, self._httpx
        if self._http is None:
            self._http = httpx.AsyncClient(
                trust_env=False,  # no proxy, no .netrc that nobody has named
                proxy=config.proxy or None,
                timeout=httpx.Timeout(config.timeout_s, connect=min(CONNECT_S, config.timeout_s)),
                limits=httpx.Limits(max_connections=config.in_flight + 1),
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"}
                | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            )
        self.requests += 1
        try:
            async with (
                asyncio.timeout(config.timeout_s),
                self._http.stream(method, self._url + path, content=body) as reply,
            ):
                status, wait_s = reply.status_code, _retry_after_s(reply.headers)
                if status in RETRIED or status >= 500:
                    raise _FailedError(f"{BUSY}: status {status}", wait_s)
                data = bytearray()
                async for part in reply.aiter_raw():  # as it is: nothing is unpacked
                    data += part[: MAX_REPLY_BYTES + 1 - len(data)]
                    if len(data) > MAX_REPLY_BYTES:
                        break
                return status, bytes(data)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _FailedError(f"{TIMEOUT}: {config.timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise _FailedError(f"{DOWN}: {type(error).__name__}") from error


class _FailedError(Exception):
    """A try that may be repeated after `wait_s`."""

    def __init__(self, problem: str, wait_s: float = 0.0) -> None:
        super().__init__(problem)
        self.problem, self.wait_s = problem, wait_s


def encoded(image: NDArray[np.uint8], px: int, quality: int) -> bytes:
    """JPEG of uint8 [H, W, 3] RGB, its longer side at most `px` pixels."""
    import cv2

    height, width = image.shape[:2]
    if (side := max(height, width)) > px:
        size = max(round(width * px / side), 1), max(round(height * px / side), 1)
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    bgr = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert done
    return data.tobytes()


def needed(name: str, extra: str = "vlm") -> Any:
    """A package of an extra. Raises `SetupError` when it is not installed."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SetupError(
            f"reward from a vision-language model needs the package '{name}'",
            expected=f"import {name} works",
            got=str(error),
            fix=f"run make setup, or: pip install 'robot-rl[{extra}]'",
        ) from error


def _checked_url(config: VlmConfig) -> str:
    try:
        parts = urlsplit(config.url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    clean = parts.scheme in ("http", "https") and host and port != 0 and config.model
    if not clean or parts.username or parts.query or parts.fragment:
        raise ConfigError(
            "vlm.url or vlm.model cannot be used",
            expected="vlm.url=https://HOST/v1 without name, key or question in it, and vlm.model",
            got=f"model '{config.model}', {parts.scheme or 'no'} url" if host else config.url,
            fix="e.g. vlm.url=http://127.0.0.1:8000/v1 vlm.model=Qwen/Qwen3-VL-8B-Instruct",
        )
    if parts.scheme == "http" and not config.plain_http and not _is_loopback(host):
        raise ConfigError(
            "pictures would cross the network in clear",
            expected="https, or a server on this machine",
            got=config.url,
            fix=f"ssh -N -L 8000:127.0.0.1:{port or 80} {host}, then vlm.url=http://127.0.0.1:8000/v1",
        )
    return config.url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_key(config: VlmConfig) -> str:
    if not config.key_file and not config.key_env:
        return ""
    key, got = "", ""
    if config.key_file and config.key_env:
        got = "key_file and key_env; say one"
    elif config.key_env:
        key = os.environ.get(config.key_env, "")
        got = "" if key else f"no variable {config.key_env}"
    else:
        path = Path(config.key_file).expanduser()
        try:
            others = path.stat().st_mode & 0o077
            key = path.read_text().strip()
            got = "a file that others may read" if others else "" if key else "an empty file"
        except (OSError, ValueError) as error:
            got = type(error).__name__
    if not got and not (key.isascii() and key.isprintable() and " " not in key):
        got = "something that is no key"  # and is not shown
    if got:
        raise ConfigError(
            "no key for the server of the vision-language model",
            expected="one line of ASCII, in a file that its owner alone may read or a variable",
            got=got,
            fix="put it into a file, chmod 600 FILE, vlm.key_file=FILE; or vlm.key_env=NAME",
        )
    return key


def _tokens(config: VlmConfig, content: Sequence[Mapping[str, Any]], max_tokens: int) -> float:
    """A guess at what a request costs, rather high; settled when the server tells."""
    images = sum(part["type"] == "image_url" for part in content)
    text = sum(len(part.get("text", "")) for part in content)
    return images * (config.image_px / 28) ** 2 + text / 3 + 100 + max_tokens


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds of a Retry-After header; 0 where there is none that can be read."""
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0
