"""`robot-rl bench store`: what a store of many steps costs to write, to read and to begin from.

Everything is real: rows with a state of 24 numbers (or with pictures) in a file on disk, read by a
learner that has died and does its first update again. Rows are made up.

Beside that, an actor's store: steps with two pictures are written by one thread, twenty times as
fast as a loop at 10 Hz, while another reads and acknowledges them as the link does. Once everything
is kept; once all but a quarter is removed on the way. What is timed is one commit, which must be on
the disk. Between episodes the writer waits for the reader, which at 10 Hz is never behind.
"""

from __future__ import annotations

import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.bench.samples import frame_row, sample_spec, start_row, step_row
from robot_rl.config.registry import resolve
from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.link.client import ROOM_S
from robot_rl.link.config import LinkConfig
from robot_rl.spec import Spec
from robot_rl.store.rows import FlatRow, flatten
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId

EPISODE_STEPS = 100
ALGO = {"name": "hil_serl", "hidden": [64, 64], "batch_size": 128}
KEPT = 64  # different frames and steps; more would measure how rows are made up
PERIOD_S = 0.005  # between two steps with pictures
CATCH_UP_S = 10.0  # for a reader that has died: the benchmark ends all the same
TARGETS = {"restart_s": 30.0}  # to the first update
TARGET_STEPS = 1_000_000  # of the smallest store with these targets


def bench(seconds: float, steps: int) -> dict[str, Any]:
    """Write `steps` steps, then read them in every way that somebody waits for.

    seconds: not used; the number of steps says how long it takes.
    """
    del seconds
    spec, algo = sample_spec(), resolve("algo", ALGO)
    with tempfile.TemporaryDirectory(prefix="robot-rl-bench-") as name:
        folder = Path(name)
        path = folder / LEARNER_STORE
        figures: dict[str, Any] = {"steps": steps}
        with Store(path, spec=spec, reserve_bytes=0) as store:
            began_s = time.perf_counter()
            rows = _write(store, spec, steps)
            write_s = time.perf_counter() - began_s
        figures |= {"rows": rows, "write_rows_per_s": rows / write_s}
        figures["megabytes"] = path.stat().st_size / 1e6
        before_mb = _peak_mb()
        began_s = time.perf_counter()
        with Store(path, spec=spec, reserve_bytes=0) as store:
            figures["open_s"] = time.perf_counter() - began_s
            config = LearnerConfig(tensorboard=False)
            learner = Learner(config, algo, spec, store, run_dir=folder, seed=0)
            learner.load()
            learner.ingest()
            figures["read_s"] = time.perf_counter() - began_s
            learner.update(1)
            figures["restart_s"] = time.perf_counter() - began_s
            held = learner.replay.len_online + learner.replay.len_demo
            figures["restart_steps"] = held  # a full replay leaves out what it would forget
            figures["restart_steps_per_s"] = held / figures["read_s"]
            figures["restart_megabytes"] = _peak_mb() - before_mb
            learner.close()
            began_s = time.perf_counter()
            found = store.episode_summaries()
            figures["summaries_ms"] = (time.perf_counter() - began_s) * 1e3
            began_s = time.perf_counter()
            store.verify()
            figures["verify_s"] = time.perf_counter() - began_s
        assert len(found) == -(-steps // EPISODE_STEPS)
    for name, share in (("all", None), ("a_quarter", 0.25)):
        found = _recorded(steps // 10, share)
        figures |= {f"keep_{name}/{key}": value for key, value in found.items()}
    return figures


def _recorded(steps: int, share: float | None) -> dict[str, float]:
    """Write steps with pictures in their time; share: how much of them is kept, None = all."""
    spec, id_ = sample_spec(images=2), EpisodeId("bench", "actor-0", 0)
    rng = np.random.default_rng(0)
    frames = [flatten(frame_row(spec, id_, k, rng)) for k in range(KEPT)]
    keep_bytes = None if share is None else int(share * steps * frames[0].size)
    took_s: list[float] = []
    sizes = [0]
    with tempfile.TemporaryDirectory(prefix="robot-rl-bench-") as name:
        path = Path(name) / ACTOR_STORE
        with (
            Store(path, spec=spec, reserve_bytes=0) as store,
            _linked(path, keep_bytes) as caught_up,
        ):
            due_s = time.perf_counter()
            for count in range(steps):
                episode, k = divmod(count, EPISODE_STEPS)
                id_ = EpisodeId("bench", "actor-0", episode)
                if k == 0:
                    caught_up.clear()
                    caught_up.wait(CATCH_UP_S)
                    store.insert([flatten(start_row(spec, id_)), _moved(frames[0], id_, 0)])
                last = Ending.TRUNCATED if k == EPISODE_STEPS - 1 else None
                step = flatten(step_row(spec, id_, k, rng, ending=last))
                rows = [step, _moved(frames[k % KEPT], id_, k + 1)]
                due_s = max(due_s + PERIOD_S, time.perf_counter())
                time.sleep(max(0.0, due_s - time.perf_counter()))
                began_s = time.perf_counter()
                store.insert(rows)
                took_s.append(time.perf_counter() - began_s)
                if k == 0:
                    sizes.append(sum(file.stat().st_size for file in path.parent.iterdir()))
    p50, p99 = np.percentile(took_s, (50, 99)) * 1e3
    return {
        "steps": steps,
        "megabytes": max(sizes) / 1e6,
        "write_p50_ms": float(p50),
        "write_p99_ms": float(p99),
        "write_max_ms": max(took_s) * 1e3,
    }


@contextmanager
def _linked(path: Path, keep_bytes: int | None) -> Iterator[threading.Event]:
    """Run `_link` in a thread; yields an event that is set whenever it has read everything."""
    done, caught_up = threading.Event(), threading.Event()
    link = threading.Thread(target=_link, args=(path, keep_bytes, done, caught_up))
    link.start()
    try:
        yield caught_up
    finally:
        done.set()
        link.join()


def _link(
    path: Path, keep_bytes: int | None, done: threading.Event, caught_up: threading.Event
) -> None:
    """Read rows, acknowledge them, and remove old ones, as the link's thread does."""
    removed_s, link = 0.0, LinkConfig()
    with Store(path) as store:
        while not done.wait(link.poll_s):
            batch = store.pending(link.batch_bytes, link.batch_rows)
            store.acknowledge(row.key for row in batch)
            if keep_bytes is not None and time.perf_counter() > removed_s + ROOM_S:
                store.remove_some(keep_bytes, 1)
                removed_s = time.perf_counter()
            if not batch:
                caught_up.set()


def _moved(frame: FlatRow, id_: EpisodeId, number: int) -> FlatRow:
    """The same picture as another frame."""
    return frame._replace(values=(*_key(id_, number), *frame.values[4:]))


def _write(store: Store, spec: Spec, steps: int) -> int:
    """Write episodes as a link does, some hundred rows at a time; returns the number of rows."""
    rng = np.random.default_rng(0)
    pattern = EpisodeId("bench", "actor-0", 0)
    frames = [flatten(frame_row(spec, pattern, k, rng)) for k in range(KEPT)]
    middle = [flatten(step_row(spec, pattern, k, rng)) for k in range(KEPT)]
    last = flatten(step_row(spec, pattern, 0, rng, ending=Ending.TRUNCATED))
    rows = done = episode = 0
    while done < steps:
        id_ = EpisodeId("bench", "actor-0", episode)
        length = min(EPISODE_STEPS, steps - done)
        made = [flatten(start_row(spec, id_))]
        for k in range(length + 1):
            frame = frames[k % KEPT]
            made.append(_moved(frame, id_, k))
            if k < length:
                step = last if k == length - 1 else middle[k % KEPT]
                place = (*_key(id_, k), k, k + 1)
                made.append(step._replace(values=(*place, *step.values[6:])))
        store.insert(made)
        rows, done, episode = rows + len(made), done + length, episode + 1
    return rows


def _key(id_: EpisodeId, number: int) -> tuple[str, str, int, int]:
    return id_.run, id_.actor, id_.episode, number


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
