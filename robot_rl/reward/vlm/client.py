"""The client of a server that sees pictures: retries, limits and cache, alike for all protocols.

    client = VlmClient(VlmConfig(url="http://127.0.0.1:8000/v1", model="Qwen/Qwen3-VL-8B-Instruct"))
    answers = client.ask([Question("success", (frame,), "put the peg into the hole")])

The protocol (`config.protocol`) decides how a question is put: in words (`chat`), to an
OpenAI-compatible server (vLLM, SGLang, or a vendor's), or in pictures alone, to a reward model that
answers in numbers (`heads`). `ask` blocks, so it is never called in a control loop. A failure on
the way makes an answer *unlabelled*, with the problem; a wrong setup raises before anything is
asked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import ipaddress
import json
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

from robot_rl.config.api_key import api_key
from robot_rl.errors import ConfigError, SetupError
from robot_rl.reward.vlm.chat import Chat
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.guards import Breaker, Cache, budget_of
from robot_rl.reward.vlm.heads import Heads
from robot_rl.reward.vlm.questions import (
    BREAKER_OPEN,
    BUSY,
    DOWN,
    MAX_TEXT,
    NOT_AN_ANSWER,
    OVER_BUDGET,
    REFUSED,
    SHUT,
    STOPPED,
    TIMEOUT,
    TOO_LARGE,
    Answer,
    ParsedReply,
    Question,
    QuestionKind,
    both_orders,
)
from robot_rl.reward.vlm.wire import HttpRequest, Wire
from robot_rl.system import plain_json

log = logging.getLogger(__name__)

CONNECT_S = 5.0
MAX_REPLY_BYTES = 1 << 20
BACKOFF_S, MAX_BACKOFF_S = 0.5, 20.0
RETRIED = frozenset((408, 409, 425, 429))  # and all of 500 and above
UNFIT = frozenset((400, 413, 415, 422))  # refuse this request; other codes refuse all requests
WIRES: dict[str, Callable[[VlmConfig], Wire]] = {"chat": Chat, "heads": Heads}


class VlmClient:
    """Asks questions; see the module. Methods may be called from any thread and take turns.

    Args:
        spent: file in which the budget's expenses outlast a restart.
        now_s, sleep: for tests.

    Raises:
        ConfigError: url, key, prompts or cache cannot be used.
        SetupError: httpx or OpenCV is not installed.
    """

    def __init__(
        self,
        config: VlmConfig,
        *,
        spent: Path | None = None,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._httpx, _ = needed("httpx"), needed("cv2")
        self._config, self._now_s, self._sleep = config, now_s, sleep
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request is too much
        self._url = _checked_url(config)
        self._key = _read_key(config, self._url)
        self._wire = WIRES[config.protocol](config)
        self.breaker = Breaker(config.breaker_failures, config.breaker_pause_s, now_s)
        self.budget = budget_of(config.budget_per_hour, spent, now_s)
        self._cache = Cache(config.cache)
        self._over_budget = False
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
            ConfigError: the server is of another kind, does not know the model or the key, or
                lacks what the questions or the config require; or the budget of an hour does not
                pay for one question.
            SpecError: the pictures of a question do not go together; nothing was asked.
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
            except ExceptionGroup as errors:  # of questions that were asked together
                raise errors.exceptions[0] from errors
            except KeyboardInterrupt:
                self._running.cancel()
                raise
            finally:
                self._running = None

    def author(self, kind: QuestionKind) -> str:
        """Author of the labels that answers to such a question make: MODEL PROMPT@HASH."""
        return f"{self._config.model} {self._wire.prompt_id(kind)}"

    @property
    def trouble(self) -> str:
        """Why nothing is answered now, for people; "" = answers come."""
        wait_s, silent_s = self.breaker.wait_s, self.breaker.silent_s
        if silent_s is not None and (wait_s or self.breaker.doubts):
            return f"server does not answer since {silent_s:.0f} s, next try in {wait_s:.0f} s"
        if self._over_budget:
            return f"over budget, next question in {self.budget.wait_s:.0f} s"
        return ""

    @property
    def wait_s(self) -> float:
        """Seconds until it makes sense to ask again."""
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
                with suppress(Exception):  # a connection that is dead already
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
        asked = [questions[i] for i in left]
        problem = await self._wire.probe(asked, self._exchange, self._get)
        if problem:
            return [
                a or self._unlabelled(q, problem) for q, a in zip(questions, answers, strict=True)
            ]

        async def one(index: int) -> None:
            key = None if fresh else digests[index]
            answers[index] = await self._answer(questions[index], key)

        if self.breaker.doubts:  # one goes first: a server that is back is not flooded
            await one(left.pop(0))
        async with asyncio.TaskGroup() as group:
            for index in left:
                group.create_task(one(index))
        return [a for a in answers if a is not None]

    def _digest(self, question: Question) -> bytes:
        """Digest of everything that an answer depends on."""
        facts = [self._config.model, *self._wire.facts(question)]
        facts.append([image.shape for image in question.images])
        digest = hashlib.sha256(json.dumps(facts, default=str).encode())
        for image in question.images:
            digest.update(np.ascontiguousarray(image).data)
        return digest.digest()

    def _known(self, question: Question, key: bytes) -> Answer | None:
        found = self._cache.get(key)
        return (
            None
            if found is None
            else self._made(question, ParsedReply(found[0], "", found[1]), found[2])
        )

    async def _answer(self, question: Question, key: bytes | None) -> Answer:
        if question.kind is QuestionKind.PREFERENCE:
            (a, text, took_s), (b, _, other_s) = await asyncio.gather(
                self._reading(question), self._reading(question.swapped)
            )
            reading, took_s = both_orders(a, b), max(took_s, other_s)
        else:
            reading, text, took_s = await self._reading(question)
        if reading.value is not None and key is not None:
            self._cache.put(key, reading.value, reading.sure, text)
        return self._made(question, reading, text, took_s)

    async def _reading(self, question: Question) -> tuple[ParsedReply, str, float]:
        """Return reading, words and seconds; after a reply that is no answer, ask once more."""
        reading, text = ParsedReply(None, STOPPED), ""
        async with self._room:
            began_s = self._now_s()
            for again in (False, True):
                data, problem = await self._exchange(self._wire.request(question, again))
                if problem:
                    reading, text = ParsedReply(None, problem), ""
                else:
                    reading, text = self._wire.reading(question, data)
                if reading.problem.partition(":")[0] != NOT_AN_ANSWER:
                    break
            return reading, text[:MAX_TEXT], self._now_s() - began_s

    def _made(
        self, question: Question, reading: ParsedReply, text: str = "", latency_s: float = 0.0
    ) -> Answer:
        prompt = self._wire.prompt_id(question.kind)
        value, problem, sure = reading.value, reading.problem, reading.sure
        return Answer(value, problem, sure, self._config.model, prompt, latency_s, text)

    def _unlabelled(self, question: Question, problem: str) -> Answer:
        return self._made(question, ParsedReply(None, problem))

    # -- the wire --------------------------------------------------------------------------------

    async def _exchange(self, request: HttpRequest) -> tuple[Any, str]:
        """`wire.Exchange`: tried again as configured."""
        config, problem = self._config, ""
        guess = 1.0 if config.budget_unit == "requests" else request.tokens
        for attempt in range(config.retries + 1):
            if self.breaker.wait_s:
                return None, problem or BREAKER_OPEN
            paid = self.budget.take(guess)
            self._over_budget = paid is None
            if paid is None:
                return None, problem or OVER_BUDGET
            try:
                status, reply = await self._send("POST", request.path, request)
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
                    return None, f"{REFUSED}: status {status} {said}"
                self._wire.forget()  # the next question finds out, and says, what is wrong
                return None, f"{SHUT}: status {status} {said}"
            return self._replied(reply, paid)
        return None, problem

    def _replied(self, body: bytes, paid: list[float]) -> tuple[Any, str]:
        if len(body) > MAX_REPLY_BYTES:
            return None, f"{NOT_AN_ANSWER}: {TOO_LARGE}"
        try:
            data = plain_json.loads(body)
        except ValueError:
            return None, f"{NOT_AN_ANSWER}: no JSON"
        if self._config.budget_unit == "tokens":
            spent = self._wire.spent(data)
            if spent is not None:
                self.budget.settle(paid, spent)
        return data, ""

    async def _get(self, path: str) -> tuple[int, bytes]:
        """`wire.Get`."""
        try:
            return await self._send("GET", path, None)
        except _FailedError as failure:
            return 0, failure.problem.encode()

    async def _send(self, method: str, path: str, request: HttpRequest | None) -> tuple[int, bytes]:
        """(status, body) of one request; no more than one byte above the limit is kept.

        Raises:
            _FailedError: no answer, or one that asks to try again.
        """
        config, httpx = self._config, self._httpx
        if self._http is None:
            self._http = httpx.AsyncClient(
                trust_env=False,  # no proxy, no .netrc that nobody has named
                proxy=config.proxy or None,
                timeout=httpx.Timeout(config.timeout_s, connect=min(CONNECT_S, config.timeout_s)),
                limits=httpx.Limits(max_connections=config.in_flight + 1),
                headers={"Accept-Encoding": "identity"}
                | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            )
        body, kind = (
            (request.body, {"Content-Type": request.content_type}) if request else (None, {})
        )
        try:
            async with (
                asyncio.timeout(config.timeout_s),
                self._http.stream(method, self._url + path, content=body, headers=kind) as reply,
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
    """A try failed; it may be repeated after `wait_s`."""

    def __init__(self, problem: str, wait_s: float = 0.0) -> None:
        super().__init__(problem)
        self.problem, self.wait_s = problem, wait_s


def author_of(config: VlmConfig, kind: QuestionKind) -> str:
    """`VlmClient.author`, without a client. Raises as the protocol does for its settings."""
    return f"{config.model} {WIRES[config.protocol](config).prompt_id(kind)}"


def needed(name: str, extra: str = "vlm") -> Any:
    """Import a package of an extra. Raises `SetupError` when it is not installed."""
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
            "reward.server.url or reward.server.model cannot be used",
            expected="reward.server.url=https://HOST/v1, no name, key or question in it; a model",
            got=f"model '{config.model}', {parts.scheme or 'no'} url" if host else config.url,
            fix="e.g. reward.server.url=http://127.0.0.1:8000/v1 "
            "reward.server.model=Qwen/Qwen3-VL-8B-Instruct",
        )
    if parts.scheme == "http" and not config.plain_http and not _is_loopback(host):
        raise ConfigError(
            "pictures would cross the network in clear",
            expected="https, or a server on this machine",
            got=config.url,
            fix=f"ssh -N -L 8000:127.0.0.1:{port or 80} {host}, then reward.server.url=http://127.0.0.1:8000/v1",
        )
    return config.url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_key(config: VlmConfig, url: str) -> str:
    """The key for the server at `url`; it goes to that host and, in clear, to nobody else."""
    parts = urlsplit(url)
    if config.key and config.proxy and parts.scheme == "http":
        raise ConfigError(
            "the key would go to the proxy in clear",
            expected="https, or no proxy",
            got=f"reward.server.proxy={config.proxy}",
            fix="leave reward.server.proxy out",
        )
    return api_key(config.key, parts.hostname or "")


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds of a Retry-After header; 0 where there is none that can be read."""
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0
