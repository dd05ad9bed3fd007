"""Protocols: how a question becomes an HTTP request, and a reply an answer.

There are two: `chat` (a model that answers in words) and `heads` (one that answers in numbers).
Tries, breaker, budget, cache and limits belong to the client, and are the same for both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.reward.vlm.questions import ParsedReply, Question, QuestionKind

PROBE_SIDE = 56  # pixels of the grey picture of the first question
GREY = np.full((PROBE_SIDE, PROBE_SIDE, 3), 128, np.uint8)
KEY_FIX = "give its key: reward.server.key=NAME (docs/vlm.md)"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST; tokens: a guess at what it costs, rather high, where the server counts in tokens."""

    path: str
    body: bytes
    content_type: str
    tokens: float = 0.0


Exchange = Callable[[HttpRequest], Awaitable[tuple[Any, str]]]
"""Send, with all tries -> (decoded JSON, "") or (None, problem)."""
Get = Callable[[str], Awaitable[tuple[int, bytes]]]
"""Fetch a path, once -> (status, body), or (0, the problem)."""


class Wire(Protocol):
    """A protocol; it remembers what it has found out about the server."""

    def prompt_id(self, kind: QuestionKind) -> str:
        """NAME@VERSION of what is asked: part of the author of a label."""
        ...

    def facts(self, question: Question) -> list[Any]:
        """Everything but model and pictures that an answer depends on."""
        ...

    def request(self, question: Question, again: bool) -> HttpRequest:
        """The request that asks a question; again: the first reply was no answer."""
        ...

    def reading(self, question: Question, data: Any) -> tuple[ParsedReply, str]:
        """What the decoded reply says, and its words; never raises."""
        ...

    def spent(self, data: Any) -> float | None:
        """Tokens that the request cost, where the reply tells."""
        ...

    async def probe(self, questions: Sequence[Question], exchange: Exchange, get: Get) -> str:
        """Find out whether the server can answer; return a problem that may go away, or "".

        Raises:
            ConfigError: it refuses, is of another kind, or lacks what is needed.
            SpecError: pictures that this protocol cannot carry.
        """
        ...

    def forget(self) -> None:
        """Forget what is known of the server, so that the next question finds out what is wrong."""
        ...


def shrunk(image: NDArray[np.uint8], px: int) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] with its longer side at most `px` pixels."""
    import cv2

    height, width = image.shape[:2]
    if (side := max(height, width)) > px:
        size = max(round(width * px / side), 1), max(round(height * px / side), 1)
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    return np.ascontiguousarray(image)


def encoded(image: NDArray[np.uint8], px: int, quality: int) -> bytes:
    """JPEG of uint8 [H, W, 3] RGB, its longer side at most `px` pixels."""
    import cv2

    bgr = cv2.cvtColor(shrunk(image, px), cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert done
    return data.tobytes()
