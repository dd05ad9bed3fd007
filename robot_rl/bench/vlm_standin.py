"""A stand-in for a vision-language model's server: NOT a model. For tests, the bench and demos.

It looks up what is true of a picture, by the bytes that the client sends or by a function of its
pixels, and says this in the words it is asked for, over the same protocol (`/v1/chat/completions`
with log-probabilities, `/v1/models`), or in numbers, as `heads` describes (`/evaluate_batch_npy`,
`/model_info`). It can be noisy, slow, broken and dishonest on purpose. Its faults are drawn from
what was asked and how often, so that it does the same in every run.

    python -m robot_rl.bench.vlm_standin --run runs/x --camera image/front --fault malformed=0.1
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import io
import json
import math
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.reward.vlm.client import needed
from robot_rl.reward.vlm.config import PROTOCOLS, VlmConfig
from robot_rl.reward.vlm.heads import FIELDS
from robot_rl.reward.vlm.questions import QuestionKind
from robot_rl.reward.vlm.wire import encoded
from robot_rl.store.dataset import open_store
from robot_rl.store.labels import PREDICATE, PROGRESS, SUCCESS_SCORE
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId

HOST = "127.0.0.1"
MODEL = "stand-in"
FAULTS = ("malformed", "prose", "empty", "refusal", "nan", "oversized", "429", "500", "hang")
SURE = 0.97  # probability that it puts on what it says
BINS = "ABCDEFGHIJK"
_AS_SENT = VlmConfig().image_px, VlmConfig().jpeg_quality  # one `Knows` serves both protocols


@dataclass(frozen=True, slots=True)
class Truth:
    """What one picture really shows; progress in [0, 1]."""

    success: bool
    progress: float


Knows = Callable[[bytes], Truth | None]
"""JPEG bytes -> what is true of the picture, None = nobody knows."""


def brightness(data: bytes) -> Truth:
    """The mean of the pixels is the progress; it is done from 0.9 on."""
    import cv2

    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    progress = float(image.mean()) / 255.0
    return Truth(progress >= 0.9, progress)


def table(
    pictures: Iterable[tuple[NDArray[np.uint8], Truth]], config: VlmConfig | None = None
) -> Knows:
    """What is true of each picture, by the JPEG that a client of this config makes of it."""
    config = config or VlmConfig()
    known = {
        hashlib.sha256(encoded(image, config.image_px, config.jpeg_quality)).digest(): truth
        for image, truth in pictures
    }
    return lambda data: known.get(hashlib.sha256(data).digest())


def recorded(
    store: Store, camera: str, shows: int = 5, known: Container[EpisodeId] = ()
) -> Iterator[tuple[NDArray[np.uint8], Truth]]:
    """Frames of the finished episodes of a store that are not `known`.

    What is true of them is what the simulator said, where that was recorded beside the steps. Else
    it is made up: the last `shows` frames of a success show it, progress grows evenly, to 1 in a
    success and to 0.5 in a failure.
    """
    for record in store.episode_summaries():
        if record.id in known or record.ending is None:
            continue
        frames = store.frames(record.id)
        said = [x for x in store.labels(record.id) if x.source == PREDICATE]
        done_at = {
            x.step + 1: x.value > 0.5
            for x in said
            if x.kind == SUCCESS_SCORE and x.step is not None
        }
        progress_at = {x.step: x.value for x in said if x.kind == PROGRESS}
        top = 1.0 if record.success else 0.5
        for index, frame in enumerate(frames):
            done = bool(record.success) and index >= len(frames) - shows
            progress = top * index / max(len(frames) - 1, 1)
            if done_at:
                done = done_at.get(frame.frame, False)
                progress = progress_at.get(frame.frame, 0.0)
            yield frame.observation[camera], Truth(done, progress)


class Following:
    """`Knows` of a run that is being recorded.

    A picture that it does not know is looked for in the episodes that have come in since.
    """

    def __init__(self, run: Path, camera: str, config: VlmConfig | None = None) -> None:
        self._run, self._camera, self._config = run, camera, config
        self._truths: list[Knows] = []
        self._episodes: set[EpisodeId] = set()
        self._turn = threading.Lock()

    def __call__(self, data: bytes) -> Truth | None:
        with self._turn:
            return self._look(data) or (self._look(data, -1) if self._read() else None)

    def _look(self, data: bytes, first: int = 0) -> Truth | None:
        return next((t for k in self._truths[first:] if (t := k(data)) is not None), None)

    def _read(self) -> bool:
        with open_store(self._run) as store:
            over = {r.id for r in store.episode_summaries() if r.ending is not None}
            new = over - self._episodes
            if new:
                found = recorded(store, self._camera, known=self._episodes)
                self._truths.append(table(found, self._config))
        self._episodes |= new
        return bool(new)


class StandIn:
    """The stand-in; its attributes may be set while it runs.

    knows: see `Knows`; flip: share of pictures about which it errs; lying: it says the opposite of
    everything; faults: name of `FAULTS` -> share of requests; latency_s: of each answer; logprobs:
    whether it tells them; protocol: what it speaks; lacks: kinds that it has no head for; key: what
    requests must show; asked: requests so far, by what became of them; most_at_once: most requests
    that waited together.
    """

    def __init__(self, knows: Knows, **settings: Any) -> None:
        self.knows = knows
        self.flip, self.latency_s, self.retry_after_s = 0.0, 0.0, 1
        self.faults: Mapping[str, float] = {}
        self.logprobs, self.lying, self.key, self.model = True, False, "", MODEL
        self.protocol, self.lacks = "chat", frozenset[QuestionKind]()
        self.max_images = 16
        self.asked: Counter[str] = Counter()
        self.at_once, self.most_at_once = 0, 0
        self.heard: dict[str, Any] = {}  # the last request: JSON, or the form's fields and arrays
        self._times: Counter[bytes] = Counter()
        for name, value in settings.items():
            if name not in vars(self) or name.startswith("_"):
                raise TypeError(f"no setting '{name}'")
            setattr(self, name, value)

    def app(self) -> Any:
        """The ASGI application."""
        needed("fastapi", "console")
        from fastapi import FastAPI
        from starlette.routing import Route

        return FastAPI(
            title="stand-in, not a model",
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/evaluate_batch_npy", self._heads, methods=["POST"]),
                Route("/model_info", self._model_info, methods=["GET"]),
            ],
        )

    # -- what it serves --------------------------------------------------------------------------

    async def _models(self, request: Any) -> Any:
        listed = {"object": "list", "data": [{"id": self.model, "object": "model"}]}
        return self._refusal(request, "chat") or _json(200, listed)

    async def _model_info(self, request: Any) -> Any:
        info = {"model_path": self.model, "num_gpus": 0, "experiment_config": {}}
        return self._refusal(request, "heads") or _json(200, info)

    def _refusal(self, request: Any, protocol: str) -> Any:
        """The refusal of a request; None = it is admitted."""
        if protocol != self.protocol:
            return _json(404, {"detail": "Not Found"})
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return _json(401, {"error": {"message": "wrong key"}})
        return None

    async def _chat(self, request: Any) -> Any:
        if (refusal := self._refusal(request, "chat")) is not None:
            return refusal
        raw = await request.body()
        self.heard = asked = json.loads(raw)
        if asked["model"] != self.model:
            return _json(404, {"error": {"message": f"no model {asked['model']}"}})
        pictures, text = _contents(asked["messages"])
        instead, fault = await self._late(request, raw, len(pictures))
        if instead is not None:
            return instead
        if fault:
            return _json(200, self._wrong_words(fault))
        shares = self._says(text, pictures)
        return _json(200, self._completion(shares, bool(asked.get("logprobs"))))

    async def _heads(self, request: Any) -> Any:
        if (refusal := self._refusal(request, "heads")) is not None:
            return refusal
        raw = await request.body()
        self.heard = _form(raw, request.headers["content-type"])
        sample = self.heard["sample_0"]
        names = [
            n for n in ("trajectory", "chosen_trajectory", "rejected_trajectory") if n in sample
        ]
        clips = [self.heard[sample[name]["frames"]["__numpy_file__"]] for name in names]
        instead, fault = await self._late(request, raw, sum(len(clip) for clip in clips))
        if instead is not None:
            return instead
        if fault == "refusal":
            return _json(422, {"detail": "I will not look at this."})
        return _json(200, self._numbers(clips, fault))

    async def _late(self, request: Any, raw: bytes, pictures: int) -> tuple[Any, str]:
        """Wait for the latency, then decide what goes wrong.

        Returns (what is sent instead of an answer, None = nothing; the fault of the answer).
        """
        if pictures > self.max_images:
            return _json(400, {"error": {"message": f"at most {self.max_images} images"}}), ""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.latency_s)
        self.at_once -= 1
        fault = self._fault(raw)
        self.asked[fault or "answered"] += 1
        if fault == "hang":
            while not await request.is_disconnected():
                await asyncio.sleep(0.02)
        if fault in ("429", "500"):
            headers = {"Retry-After": str(self.retry_after_s)} if fault == "429" else {}
            return _json(int(fault), {"error": {"message": "later"}}, headers), ""
        broken = {
            "hang": b"",
            "oversized": b'{"choices": "' + b"x" * (2 << 20) + b'"}',
            "malformed": b'{"choices": [{"mess',
        }
        return (_raw(200, broken[fault]), "") if fault in broken else (None, fault)

    def _fault(self, raw: bytes) -> str:
        """Which fault this request gets; it depends on what was asked, and how often."""
        self._times[digest := hashlib.sha256(raw).digest()] += 1
        point = _uniform(digest + bytes([self._times[digest] % 256]))
        for name, share in self.faults.items():
            if point < share:
                return name
            point -= share
        return ""

    def _wrong_words(self, fault: str) -> dict[str, Any]:
        if fault == "refusal":
            choice = {"message": {"content": None, "refusal": "I will not look at this."}}
            return {"choices": [choice]}
        if fault == "nan":
            token = {"token": "yes", "logprob": math.nan, "top_logprobs": []}
            choice = {"message": {"content": "yes"}, "logprobs": {"content": [token]}}
            return {"choices": [choice]}
        if fault == "prose":
            shares = {"Well": 0.9, "yes": 0.05, "A": 0.05}
            return self._completion(shares, True, text="Well, yes and no: 73 or A")
        return {"choices": []}

    def _says(self, text: str, pictures: Sequence[bytes]) -> dict[str, float]:
        """Word -> probability, in the words that the question asks for."""
        truths = [self._truth(data) for data in pictures]
        known = [t for t in truths if t is not None]
        if len(known) < len(truths):
            return {"unknown": 1.0}
        if "from A to K" in text:
            at = known[-1].progress * (len(BINS) - 1)
            low = min(int(at), len(BINS) - 2)
            return {BINS[low]: 1.0 - (at - low), BINS[low + 1]: at - low}
        if "signed whole number" in text:
            before, after = known[0].progress, known[-1].progress
            way = 1.0 - before if after >= before else before
            return {f"{round(100 * (after - before) / way) if way else 0:+d}": 1.0}
        if "A or B" in text:
            a, b = known[len(known) // 2 - 1].progress, known[-1].progress
            share = 0.5 if a == b else SURE if b > a else 1.0 - SURE
            return {"B": share, "A": 1.0 - share}
        share = SURE if known[-1].success else 1.0 - SURE
        return {"yes": share, "no": 1.0 - share}

    def _numbers(self, clips: Sequence[NDArray[np.uint8]], fault: str) -> dict[str, Any]:
        """The answer of every head; null for a picture that nobody knows."""
        truths = [[self._truth(encoded(frame, *_AS_SENT)) for frame in clip] for clip in clips]
        last = [clip[-1] for clip in truths]
        parts: dict[str, Any] = dict.fromkeys(part for part, _ in FIELDS.values())
        if len(clips) == 1:
            done = [t and (SURE if t.success else 1.0 - SURE) for t in truths[0]]
            parts["outputs_progress"] = {"progress_pred": [[t and t.progress for t in truths[0]]]}
            parts["outputs_success"] = {"success_probs": [done]}
        else:
            a, b = (math.nan if t is None else t.progress for t in last)
            share = 0.5 if a == b else SURE if a > b else 1.0 - SURE
            pair = [None if None in last else share]
            parts["outputs_preference"] = {"prediction_probs": pair, "preference_labels": [1.0]}
        for part, key in FIELDS.values():
            if fault in ("nan", "prose") and parts[part]:
                wrong = math.nan if fault == "nan" else "Well, 73"
                row = [wrong] * len(clips[0])
                parts[part] |= {key: [row] if len(clips) == 1 else [wrong]}
            if fault == "empty":
                parts[part] = None
        return parts | {FIELDS[kind][0]: None for kind in self.lacks}

    def _truth(self, data: bytes) -> Truth | None:
        truth = self.knows(data)
        if truth is None:
            return None
        wrong = _uniform(hashlib.sha256(b"flip" + data).digest()) < self.flip
        if wrong != self.lying:
            return Truth(not truth.success, 1.0 - truth.progress)
        return truth

    def _completion(
        self, shares: Mapping[str, float], wanted: bool, text: str = ""
    ) -> dict[str, Any]:
        said = max(shares, key=lambda word: shares[word])
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": text or said},
            "finish_reason": "stop",
        }
        if wanted and self.logprobs:
            # as models do: part of it on the word with a space or a capital, a little on others
            top = {"\n": 0.005, "The": 0.005}
            for word, share in shares.items():
                top |= {word: 0.9 * 0.99 * share, f" {word}": 0.1 * 0.99 * share}
            entries = [
                {"token": word, "logprob": math.log(share)}
                for word, share in sorted(top.items(), key=lambda e: -e[1])
                if share > 0.0
            ]
            start = next(e for e in entries if e["token"] == said)
            choice["logprobs"] = {"content": [{**start, "top_logprobs": entries[:20]}]}
        usage = {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101}
        return {
            "object": "chat.completion",
            "model": self.model,
            "choices": [choice],
            "usage": usage,
        }


def _contents(messages: Sequence[Mapping[str, Any]]) -> tuple[list[bytes], str]:
    """The pictures of a request as JPEG, and its last words."""
    pictures, text = [], ""
    for part in messages[-1]["content"]:
        if part["type"] == "image_url":
            head, _, data = part["image_url"]["url"].partition(",")
            assert head == "data:image/jpeg;base64"
            pictures.append(base64.b64decode(data, validate=True))
        else:
            text = part["text"]
    return pictures, text


def _form(raw: bytes, content_type: str) -> dict[str, Any]:
    """The fields of multipart/form-data: arrays, and JSON."""
    boundary = content_type.partition("boundary=")[2].encode()
    found: dict[str, Any] = {}
    for part in raw.split(b"--" + boundary)[1:-1]:
        head, _, body = part.partition(b"\r\n\r\n")
        name = re.search(rb'; name="([^"]*)"', head)
        assert name is not None and body.endswith(b"\r\n")
        body, is_file = body[:-2], b'filename="' in head
        found[name[1].decode()] = np.load(io.BytesIO(body)) if is_file else json.loads(body)
    return found


def _uniform(digest: bytes) -> float:
    """A number in [0, 1), from bytes."""
    return int.from_bytes(hashlib.sha256(digest).digest()[:7], "big") / 2**56


def _json(status: int, data: Any, headers: Mapping[str, str] | None = None) -> Any:
    return _raw(status, json.dumps(data).encode(), headers)


def _raw(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Any:
    from starlette.responses import Response

    return Response(body, status, headers, "application/json")


# -- running it -----------------------------------------------------------------------------------


def _server(stand_in: StandIn, port: int) -> tuple[Any, socket.socket, str]:
    """(uvicorn server, its listening socket, url), on loopback."""
    uvicorn = needed("uvicorn", "console")
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((HOST, port))
    config = uvicorn.Config(
        stand_in.app(), log_level="warning", lifespan="off", timeout_graceful_shutdown=1
    )
    url = f"http://{HOST}:{listening.getsockname()[1]}"
    return uvicorn.Server(config), listening, url + "/v1" * (stand_in.protocol == "chat")


@contextmanager
def serving(stand_in: StandIn, port: int = 0) -> Iterator[str]:
    """Serve a stand-in from a thread in this context; yields its url."""
    server, listening, url = _server(stand_in, port)
    listening.listen(128)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; the first line of stdout says where."""
    parser = argparse.ArgumentParser(description="A stand-in for a VLM server. It is not a model.")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (default: a free one)")
    parser.add_argument("--run", type=Path, help="what is true of its frames (default: brightness)")
    parser.add_argument("--camera", default="image/front")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--flip", type=float, default=0.0, help="share of pictures it errs about")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=SHARE")
    parser.add_argument("--protocol", choices=list(PROTOCOLS), default="chat")
    parser.add_argument("--no-logprobs", action="store_true")
    parser.add_argument("--lying", action="store_true")
    args = parser.parse_args(argv)
    faults = {}
    for item in args.fault:
        name, _, share = item.partition("=")
        try:
            faults[name] = float(share)
        except ValueError:
            name = ""
        if name not in FAULTS:
            raise ConfigError(
                f"no fault '{item}'",
                expected=f"NAME=SHARE of {', '.join(FAULTS)}",
                got=item,
                fix=did_you_mean(name, FAULTS),
            )
    knows: Knows = brightness
    if args.run is not None:
        knows = Following(args.run, args.camera)
    stand_in = StandIn(
        knows,
        latency_s=args.latency_ms / 1000.0,
        flip=args.flip,
        faults=faults,
        protocol=args.protocol,
        logprobs=not args.no_logprobs,
        lying=args.lying,
    )
    server, listening, url = _server(stand_in, args.port)
    listening.listen(128)
    sys.stdout.write(f"{url} (stand-in, not a model; it calls itself '{MODEL}')\n")
    sys.stdout.flush()
    server.run(sockets=[listening])
    return 0


if __name__ == "__main__":
    sys.exit(main())
