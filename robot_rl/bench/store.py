"""`robot-rl bench store`: what a store of many steps costs to write, to read and to begin from.

Everything is real: rows with a state of 24 numbers (or with pictures) in a file on disk, read by a
learner that has died and does its first update again. Rows are made up.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.bench.samples import frame_row, sample_spec, start_row, step_row
from robot_rl.config.registry import resolve
from robot_rl.config.run_folder import LEARNER_STORE
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.spec import Spec
from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId

EPISODE_STEPS = 100
ALGO = {"name": "hil_serl", "hidden": [64, 64], "batch_size": 128}
KEPT = 64  # different frames and steps; more would measure how rows are made up
TARGETS = {"restart_s": 30.0}  # to the first update, at a million steps


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
    return figures


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
            made.append(frame._replace(values=(*_key(id_, k), *frame.values[4:])))
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
