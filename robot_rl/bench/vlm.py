"""`robot-rl bench reward`: what asking a vision-language model costs on this side.

Frames are labelled through the stand-in (not a model), which runs in a process of its own and
answers after a fixed time: with `batch` requests at once, batch / latency is the highest rate.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.bench.vlm_standin import MODEL
from robot_rl.errors import SetupError
from robot_rl.reward.vlm.client import VlmClient, needed
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.questions import Question
from robot_rl.reward.vlm.wire import encoded

TASK = "put the peg into the hole"
TARGETS = {"cpu_ms_per_image": 5.0, "unlabelled": 0.0}
GROUP = 16  # batches per call of `ask`: some work has to wait while others are under way


def bench(
    seconds: float,
    *,
    frames: int = 10_000,
    px: int = 256,
    batch: int = 16,
    latency_ms: float = 100.0,
) -> dict[str, float]:
    """Measure `frames` questions about one square picture each (0: as many as fit into `seconds`).

    Figures: images_per_s beside bound_images_per_s; cpu_ms_per_image of this process, and the part
    of it that is JPEG; wall_over_bound_ms_per_image; then the same pictures from the cache.
    """
    pool = _pictures(px)
    with (
        _stand_in(latency_ms) as url,
        tempfile.TemporaryDirectory(prefix="robot-rl-bench-") as name,
    ):
        config = VlmConfig(
            url=url,
            model=MODEL,
            in_flight=batch,
            image_px=px,
            cache=str(Path(name) / "cache.sqlite"),
        )
        with VlmClient(config) as client:
            client.ask([Question("success", (pool[0],), TASK)])  # type: ignore[arg-type]
            done, wall_s, cpu_s, missed = 0, 0.0, 0.0, 0
            while done < frames if frames else wall_s < seconds:
                count = min(batch * GROUP, frames - done) if frames else batch * GROUP
                asked = _questions(pool, done, count)
                began_s, began_cpu_s = time.perf_counter(), time.process_time()
                answers = client.ask(asked)
                wall_s += time.perf_counter() - began_s
                cpu_s += time.process_time() - began_cpu_s
                done += count
                missed += sum(a.value is None for a in answers)
            again = _questions(pool, 0, min(done, 1000))
            began_s = time.perf_counter()
            client.ask(again)
            cached_s = time.perf_counter() - began_s
    began_s = time.process_time()
    sizes = [len(encoded(picture, px, config.jpeg_quality)) for picture in pool]
    jpeg_s = (time.process_time() - began_s) / len(pool)
    return {
        "images": done,
        "unlabelled": missed,
        "jpeg_kilobytes": float(np.mean(sizes)) / 1000,
        "images_per_s": done / wall_s,
        "bound_images_per_s": batch / latency_ms * 1000,
        "cpu_ms_per_image": cpu_s / done * 1000,
        "cpu_ms_per_image/jpeg": jpeg_s * 1000,
        "wall_over_bound_ms_per_image": wall_s / done * 1000 - latency_ms / batch,
        "cached_images_per_s": len(again) / cached_s,
    }


def _pictures(px: int, count: int = 64) -> list[NDArray[np.uint8]]:
    """Made-up scenes: soft light, some edges, a camera's noise."""
    cv2 = needed("cv2")
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        image = cv2.resize(rng.uniform(60, 200, (6, 6, 3)), (px, px), interpolation=cv2.INTER_CUBIC)
        for _ in range(8):
            (x, y), size = rng.integers(0, px, 2).tolist(), int(rng.integers(px // 16, px // 4))
            cv2.rectangle(image, (x, y), (x + size, y + size), rng.uniform(0, 255, 3).tolist(), -1)
        image += rng.normal(0, 2, image.shape)
        found.append(np.clip(image, 0, 255).astype(np.uint8))
    return found


def _questions(pool: list[NDArray[np.uint8]], first: int, count: int) -> list[Question]:
    """Each about another picture: a few pixels carry its number."""
    asked = []
    for number in range(first, first + count):
        image = pool[number % len(pool)].copy()
        image[0, :4, 0] = np.frombuffer(np.uint32(number).tobytes(), np.uint8)
        asked.append(Question("success", (image,), TASK))  # type: ignore[arg-type]
    return asked


@contextmanager
def _stand_in(latency_ms: float) -> Iterator[str]:
    """Yield the url of a stand-in in another process."""
    for package in ("fastapi", "uvicorn"):
        needed(package, "console")
    words = [sys.executable, "-m", "robot_rl.bench.vlm_standin", "--latency-ms", str(latency_ms)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().partition(" ")[0]
            if not url.startswith("http"):
                raise SetupError(
                    "the stand-in does not start",
                    expected="its address in its first line",
                    got=url or "nothing",
                    fix="python -m robot_rl.bench.vlm_standin",
                )
            yield url
        finally:
            process.terminate()
