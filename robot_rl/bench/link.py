"""How fast rows travel from the actor's disk to the learner's, and what the machine allows.

    bench(seconds)["images/steps_per_s"]

Everything is real: two stores on disk, CURVE over loopback TCP, the client's thread, `poll` in this
one; both ends share one process, so this is the floor of what two machines do.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path

import numpy as np
import zmq

from robot_rl.bench.samples import frame_row, sample_spec, start_row, step_row
from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE
from robot_rl.link.auth import keys_for
from robot_rl.link.client import LinkClient
from robot_rl.link.config import LinkConfig
from robot_rl.link.server import LinkServer
from robot_rl.spec import Spec
from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Row

CONFIG = LinkConfig(port=0, status_period_s=0.02)  # status is the ping of the round-trip figure
MAX_STEPS = 20_000  # 2 GB of images: what fits a small disk


def bench(seconds: float) -> dict[str, float]:
    """Measure each case for about `seconds`; returns figure -> number.

    Cases: `state` (24 float32) and `images` (the same with two 128x128 uint8 images), each with
    steps_per_s, rows_per_s, megabytes_per_s, and p50 and p99 of prepare_ms, commit_ms (one step and
    its frame) and round_trip_ms (idle link); `floor`: memcpy, and a plain ZeroMQ socket without
    CURVE, store or codec.
    """
    cases = {
        "state": _replicate(sample_spec(), seconds),
        "images": _replicate(sample_spec(images=2), seconds),
        "floor": _floor(seconds),
    }
    return {f"{case}/{name}": value for case, all_ in cases.items() for name, value in all_.items()}


def _replicate(spec: Spec, duration_s: float) -> dict[str, float]:
    """Record for a third of the time, replicate that, then measure idle round trips."""
    with tempfile.TemporaryDirectory(prefix="robot-rl-bench-") as name:
        folder = Path(name)
        with (
            Store(folder / ACTOR_STORE, spec=spec, reserve_bytes=0) as actor,
            Store(folder / LEARNER_STORE, spec=spec, reserve_bytes=0) as learner,
        ):
            written, size = _record(actor, spec, duration_s / 3)
            keys = keys_for(CONFIG, folder, "learner")
            with LinkServer(CONFIG, keys, spec, learner) as server:
                config = dataclasses.replace(CONFIG, port=server.port)
                own = keys_for(config, folder, "actor")
                client = LinkClient(config, own, spec, actor.path)
                client.start()
                sent = _until_drained(server, learner, actor.last_seq(), size)
                round_trip = _round_trips(server, client, duration_s / 3)
                client.stop(drain_s=0.0)
    return sent | written | round_trip


def _record(store: Store, spec: Spec, duration_s: float) -> tuple[dict[str, float], int]:
    """Append steps to the actor's store; return times to prepare and to commit one, and bytes."""
    rng = np.random.default_rng(0)
    id = EpisodeId("bench", "actor", 0)
    store.append([start_row(spec, id), frame_row(spec, id, 0, rng)])
    pairs: list[list[Row]] = [
        [step_row(spec, id, k, rng), frame_row(spec, id, k + 1, rng)] for k in range(50)
    ]
    prepare_s, commit_s, size, step = [], [], 0, 0
    end_s = time.perf_counter() + duration_s
    while time.perf_counter() < end_s and step < MAX_STEPS:
        template = pairs[step % len(pairs)]
        rows = [
            dataclasses.replace(template[0], step=step),  # type: ignore[call-overload]
            dataclasses.replace(template[1], frame=step + 1),  # type: ignore[call-overload]
        ]
        began_s = time.perf_counter()
        flats = [store.prepare(row) for row in rows]
        prepared_s = time.perf_counter()
        store.insert(flats)
        commit_s.append(time.perf_counter() - prepared_s)
        prepare_s.append(prepared_s - began_s)
        size += sum(flat.size for flat in flats)
        step += 1
    return _quantiles("prepare_ms", prepare_s) | _quantiles("commit_ms", commit_s), size


def _until_drained(server: LinkServer, store: Store, rows: int, size: int) -> dict[str, float]:
    """Poll until every row has arrived; the clock starts before the poll that brings the first."""
    began_s = time.perf_counter()
    while store.last_seq() == 0:
        began_s = time.perf_counter()
        server.poll(20)
    while store.last_seq() < rows:
        server.poll(20)
    took_s = time.perf_counter() - began_s
    return {
        "rows_per_s": rows / took_s,
        "steps_per_s": rows / 2 / took_s,
        "megabytes_per_s": size / 1e6 / took_s,
    }


def _round_trips(server: LinkServer, client: LinkClient, duration_s: float) -> dict[str, float]:
    """Request to reply, as the client measures it, on an idle link."""
    seen: list[float] = []
    end_s = time.perf_counter() + duration_s
    while time.perf_counter() < end_s:
        server.poll(5)
        value = client.status()["round_trip_ms"]
        if value is not None and (not seen or value != seen[-1]):
            seen.append(value)
    return _quantiles("round_trip_ms", [ms / 1e3 for ms in seen])


def _floor(duration_s: float) -> dict[str, float]:
    """What the machine allows: copying memory, and a plain ZeroMQ socket, with one image step."""
    spec = sample_spec(images=2)
    id = EpisodeId("bench", "actor", 0)
    blob = flatten(frame_row(spec, id, 0, np.random.default_rng(0))).values[-1]
    assert isinstance(blob, bytes)
    large = np.frombuffer(blob * 200, np.uint8)
    began_s, copies = time.perf_counter(), 0
    while time.perf_counter() - began_s < duration_s / 3:
        large.copy()
        copies += 1
    copied = copies * large.nbytes / 1e6 / (time.perf_counter() - began_s)
    with zmq.Context() as context, context.socket(zmq.PAIR) as a, context.socket(zmq.PAIR) as b:
        a.linger = b.linger = 0
        port = a.bind_to_random_port("tcp://127.0.0.1")
        b.connect(f"tcp://127.0.0.1:{port}")
        rate = _pump(a, b, blob, duration_s / 3)
        times_s = _ping(a, b, duration_s / 3)
    return {
        "memcpy_megabytes_per_s": copied,
        "zmq_megabytes_per_s": rate,
    } | _quantiles("zmq_round_trip_ms", times_s)


def _pump(a: zmq.Socket[bytes], b: zmq.Socket[bytes], blob: bytes, duration_s: float) -> float:
    """MB/s of one message after another, 16 in flight."""
    began_s, received = time.perf_counter(), 0
    for _ in range(16):
        b.send(blob)
    while time.perf_counter() - began_s < duration_s:
        received += len(a.recv())
        b.send(blob)
    for _ in range(16):
        a.recv()
    return received / 1e6 / (time.perf_counter() - began_s)


def _ping(a: zmq.Socket[bytes], b: zmq.Socket[bytes], duration_s: float) -> list[float]:
    """Seconds of 64-byte round trips through two sockets of this thread."""
    times_s: list[float] = []
    end_s = time.perf_counter() + duration_s
    while time.perf_counter() < end_s:
        began_s = time.perf_counter()
        b.send(bytes(64))
        a.send(a.recv())
        b.recv()
        times_s.append(time.perf_counter() - began_s)
    return times_s


def _quantiles(name: str, times_s: list[float]) -> dict[str, float]:
    """`name_p50` and `name_p99` in milliseconds; NaN when nothing was measured."""
    p50, p99 = np.percentile(times_s, [50, 99]) if times_s else (np.nan, np.nan)
    return {f"{name}_p50": float(p50) * 1e3, f"{name}_p99": float(p99) * 1e3}
