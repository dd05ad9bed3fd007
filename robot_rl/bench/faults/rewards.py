"""The case of a reward service that is down or slow."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_rl.bench.faults.case import Case, Context, Figure, Limit, Measured, NotHereError
from robot_rl.bench.samples import sample_spec, start_row, step_row
from robot_rl.store.labels import PROGRESS, SUCCESS_SCORE, VLM_SUCCESS
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Frame, Row

CAMERA, TASK, STEPS = "image/0", "put the peg into the hole", 25
SPEC = sample_spec(images=1, image_size=16)
RNG = np.random.default_rng(0)


def id_of(number: int) -> EpisodeId:
    return EpisodeId("run", "actor-0", number)


def picture(level: float) -> np.ndarray:
    return np.full((16, 16, 3), round(255 * level), np.uint8)


def episode(
    number: int,
    levels: Any = None,
    *,
    top: float = 1.0,
    ending: Ending | None = Ending.TERMINATED,
    purpose: str = "train",
) -> list[Row]:
    """Frames whose brightness, and so what is true of them, grows to `top`."""
    levels = np.linspace(0.0, top, STEPS + 1) if levels is None else levels
    id_ = id_of(number)

    def frame(index: int) -> Frame:
        image = picture(levels[index])
        image[0, 0, 0] = number  # or an earlier episode would answer, from the cache
        seen = {"state": np.zeros(24, np.float32), CAMERA: image}
        return Frame(id_, index, index * 10**8, seen)

    rows: list[Row] = [start_row(SPEC, id_, purpose), frame(0)]
    for step in range(len(levels) - 1):
        last = ending if step == len(levels) - 2 else None
        rows += [step_row(SPEC, id_, step, RNG, ending=last), frame(step + 1)]
    return rows


# --- 33: the reward service fails ----------------------------------------------------------------

FAILURES = ("500", "hang", "malformed", "429", "empty")
TIMEOUT_S = 0.5  # of the client; what takes longer is the 10 s of a service that is too slow
TURNS = 60
KINDS = {VLM_SUCCESS, SUCCESS_SCORE, PROGRESS}  # of labels that each episode gets
CLOSE = 0.1  # a label of progress may be off by this: a picture is sent as a JPEG


def service_fails(context: Context) -> Measured:
    """The server of a vision-language model fails, is slow, talks nonsense; then it is mended."""
    try:
        from robot_rl.bench.vlm_standin import MODEL, StandIn, brightness, serving
    except ImportError as error:
        raise NotHereError("a package of the extra 'vlm' is missing", got=str(error)) from error
    from robot_rl.reward.vlm.client import VlmClient
    from robot_rl.reward.vlm.config import VlmConfig
    from robot_rl.reward.vlm.worker import RewardWorker, WorkerConfig

    invented = wrong = missing = n = 0
    now_s = [0.0]

    async def sleep(seconds: float) -> None:
        now_s[0] += seconds

    stand_in = StandIn(brightness)
    with (
        serving(stand_in) as url,
        Store(context.folder / "rewards.sqlite", spec=SPEC, reserve_bytes=0) as store,
    ):
        client = VlmClient(
            VlmConfig(url=url, model=MODEL, retries=0, timeout_s=TIMEOUT_S, breaker_failures=2),
            now_s=lambda: now_s[0],
            sleep=sleep,
        )
        worker = RewardWorker(
            store, client, None, WorkerConfig(), task=TASK, camera=CAMERA, now_s=lambda: now_s[0]
        )
        for _ in context.trials():
            top = (1.0, 0.6)[n % 2]
            stand_in.faults = {FAILURES[n % len(FAILURES)]: 1.0}
            store.append(episode(n, top=top))
            worker.turn()
            invented += len(store.labels(id_of(n)))
            stand_in.faults = {}
            for _ in range(TURNS):
                now_s[0] += 60.0
                worker.turn()
                if not worker.waiting:
                    break
            false, right = _judged(store, n, top)
            wrong, missing, n = wrong + false, missing + (right != KINDS), n + 1
        client.close()
    return Measured.of(
        Figure("labels while it failed", invented, ""),
        Figure("wrong labels", wrong, ""),
        Figure("episodes without a label of each kind at last", missing, ""),
        n=n,
        note=f"the client waits {TIMEOUT_S:g} s in place of 10 s",
    )


def _judged(store: Store, number: int, top: float) -> tuple[int, set[str]]:
    """How many labels of an episode are wrong, and of which kinds one is right."""
    levels = np.linspace(0.0, top, STEPS + 1)
    wrong, right = 0, set[str]()
    for label in store.labels(id_of(number)):
        if label.kind == VLM_SUCCESS:
            good = label.value == float(top >= 0.9)
        elif label.kind == SUCCESS_SCORE and label.step is not None:
            good = (label.value > 0.5) == (levels[label.step + 1] >= 0.9)
        elif label.kind == PROGRESS and label.step is not None and "held" not in label.author:
            good = abs(label.value - levels[label.step]) < CLOSE
        else:
            continue
        wrong += not good
        right |= {label.kind} if good else set()
    return wrong, right


CASES = (
    Case(
        number=33,
        name="service_fails",
        title="reward service down or slow",
        injection="the server of a vision-language model answers 500 or 429, hangs, or answers "
        "nonsense; then it is mended",
        promise="no label is invented, and every episode is labelled rightly at last",
        limits=(
            Limit("labels while it failed", "", at_most=0.0),
            Limit("wrong labels", "", at_most=0.0),
            Limit("episodes without a label of each kind at last", "", at_most=0.0),
        ),
        fails_if="a client that takes a failure for 0 writes wrong labels; one that drops the "
        "question leaves the episode without any",
        full=100,
        least=len(FAILURES),
        measure=service_fails,
    ),
)
