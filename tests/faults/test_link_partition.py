"""A bad network between actor and learner: cuts, resets, flipped bytes. Everything arrives once."""

from __future__ import annotations

import dataclasses
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.link.auth import keys_for
from robot_rl.link.client import LinkClient
from robot_rl.link.config import LinkConfig
from robot_rl.link.server import LinkServer
from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from robot_rl.types import ONLY_ACTOR, EpisodeId

SPEC = sample_spec(images=1, image_size=32)
CONFIG = LinkConfig(port=0, batch_rows=8, poll_s=0.005, reply_timeout_s=0.5, backoff_max_s=0.1)


class BadNetwork:
    """A TCP proxy that forwards, and on request cuts, resets at random, or damages bytes."""

    def __init__(self, target_port: int, seed: int) -> None:
        self._target, self._rng = target_port, np.random.default_rng(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.reset_chance = self.flip_chance = self.delay_s = 0.0
        self.resets = self.flips = 0
        self.flip_answers = 0  # so many of the learner's next chunks arrive damaged
        self._far: set[socket.socket] = set()  # the learner's ends
        self._up = True
        self._is_cut = threading.Event()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Drop every connection and refuse new ones; nothing passes once this has returned."""
        self._is_cut.clear()
        self._up = False
        assert self._is_cut.wait(5.0)

    def heal(self) -> None:
        """Let connections through again."""
        self._up = True

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._closing:
            if not self._up:
                self._drop_all()
                self._is_cut.set()
            for key, _ in self._selector.select(0.01):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._pairs:
                    self._forward(key.fileobj)  # type: ignore[arg-type]
        self._drop_all()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            if not self._up:
                raise OSError("cut")
            far = socket.create_connection(("127.0.0.1", self._target), timeout=1)
        except OSError:
            near.close()
            return
        self._far.add(far)
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        try:
            data = bytearray(source.recv(65536))
            if not data or self._rng.random() < self.reset_chance:
                self.resets += bool(data)
                raise OSError("reset")
            is_marked = self.flip_answers > 0 and source in self._far
            self.flip_answers -= is_marked
            if is_marked or self._rng.random() < self.flip_chance:
                data[int(self._rng.integers(len(data)))] ^= 1 << int(self._rng.integers(8))
                self.flips += 1
            time.sleep(self.delay_s)
            self._pairs[source].sendall(data)
        except OSError:
            self._drop(source)

    def _drop(self, source: socket.socket) -> None:
        for one in (source, self._pairs[source]):
            del self._pairs[one]
            self._far.discard(one)
            self._selector.unregister(one)
            one.close()

    def _drop_all(self) -> None:
        while self._pairs:
            self._drop(next(iter(self._pairs)))


class Bench:
    """Actor and learner with the bad network between them."""

    def __init__(self, folder: Path) -> None:
        self.actor = Store(folder / "actor.sqlite", spec=SPEC, reserve_bytes=0)
        self.learner = Store(folder / "learner.sqlite", spec=SPEC, reserve_bytes=0)
        keys = keys_for(CONFIG, folder, "learner")
        self.server = LinkServer(CONFIG, keys, SPEC, self.learner)
        self.network = BadNetwork(self.server.port, seed=7)
        config = dataclasses.replace(CONFIG, port=self.network.port)
        self.client = LinkClient(config, keys_for(config, folder, "actor"), SPEC, self.actor.path)

    def record(self, episode: int) -> None:
        """One more episode on the actor's disk."""
        self.actor.append(episode_rows(SPEC, EpisodeId("run", ONLY_ACTOR, episode), 20))

    def serve(self, duration_s: float) -> None:
        """Poll the learner for a while."""
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            self.server.poll(5)

    def drain(self, timeout_s: float = 60.0) -> None:
        """Poll until everything has arrived; then compare both sides row by row.

        timeout_s: more than the 35 s after which a connection that hangs in the middle of a message
        is given up.
        """
        end_s = time.monotonic() + timeout_s
        while self.actor.pending_count():
            self.server.poll(5)
            assert time.monotonic() < end_s, self.client.status()
        sent, _ = self.actor.rows_since(0, 10**6, 2**40)
        got, _ = self.learner.rows_since(0, 10**6, 2**40)
        assert [flatten(r) for r in sent] == [flatten(r) for r in got]

    def close(self) -> None:
        self.client.stop(drain_s=0.0)
        self.network.close()
        self.server.close()
        self.actor.close()
        self.learner.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.client.start()
    yield made
    made.close()


def test_a_partition_spools_to_disk_and_drains_in_order(bench: Bench) -> None:
    bench.record(0)
    bench.drain()
    bench.network.cut()
    for episode in range(1, 6):
        bench.record(episode)
        bench.serve(0.1)
    assert not bench.client.status()["connected"]
    assert bench.actor.pending_count() == 5 * 42 and bench.learner.last_seq() == 42
    bench.client.raise_if_refused()  # a learner that is away is no error
    bench.network.heal()
    bench.drain()
    assert bench.client.newest_weights() is None


def test_random_resets_and_flipped_bytes_lose_and_double_nothing(bench: Bench) -> None:
    bench.network.reset_chance, bench.network.flip_chance = 0.05, 0.02
    for episode in range(12):
        bench.record(episode)
        bench.serve(0.15)
    bench.drain()
    assert bench.network.resets > 3 and bench.network.flips > 0
    assert bench.server.peers()["actor"].strikes == 0  # damage never reaches the decoder


@pytest.mark.parametrize("is_connected", [False, True])
def test_damaged_answers_end_a_connection_not_the_link(bench: Bench, is_connected: bool) -> None:
    bench.network.flip_answers = 0 if is_connected else 3  # greetings and what follows
    bench.record(0)
    if is_connected:
        bench.drain()
        bench.network.flip_answers = 3
        bench.record(1)
    bench.drain()
    assert bench.network.flip_answers == 0


def test_lost_acknowledgements_make_duplicates_that_are_not_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, lost = bench.actor.acknowledge, []

    def forget(self: Store, keys: object) -> None:
        if len(lost) < 3:
            lost.append(keys)  # as if the answer had never come
        else:
            original.__func__(self, keys)  # type: ignore[attr-defined]

    monkeypatch.setattr(Store, "acknowledge", forget)
    bench.record(0)
    bench.drain()
    assert bench.server.peers()["actor"].duplicates > 0 and len(lost) == 3


def test_a_slow_network_carries_a_robot_at_10_hz(bench: Bench) -> None:
    bench.network.delay_s = 0.02  # each way, per chunk
    bench.record(0)
    began_s = time.monotonic()
    bench.drain()
    assert time.monotonic() - began_s < 10.0  # 1 s alone
