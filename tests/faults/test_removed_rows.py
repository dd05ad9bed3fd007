"""A learner that lacks rows which the actor has removed: refused, or given what is left."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from robot_rl.bench.samples import episode_rows, sample_spec, start_row
from robot_rl.errors import LinkError
from robot_rl.link import client as link_client
from robot_rl.link.auth import keys_for
from robot_rl.link.client import LinkClient
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import Hello, Message, Welcome, decode, encode
from robot_rl.link.server import LinkServer
from robot_rl.link.session import LinkSession
from robot_rl.link.wire import Change
from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Row

SPEC = sample_spec(images=1, image_size=32)
LINK = LinkConfig(port=0, reply_timeout_s=0.5, backoff_max_s=0.1, keep_gb=0.0001, keep_episodes=2)
EPISODES, STEPS, DEMO = 8, 9, 1


def rows_of(episode: int) -> list[Row]:
    id_ = EpisodeId("run", "actor-0", episode)
    _, *rows = episode_rows(SPEC, id_, STEPS)
    return [start_row(SPEC, id_, "demo" if episode == DEMO else "train"), *rows]


class Machines:
    """The robot's folder and the learner's; the learner's store may be lost and put back."""

    def __init__(self, folder: Path, link: LinkConfig) -> None:
        self.folder, self.link = folder, link
        self.actor, self.learner = folder / "actor.sqlite", folder / "learner.sqlite"

    @contextmanager
    def running(self) -> Iterator[tuple[Store, Store, LinkClient]]:
        keys = [keys_for(self.link, self.folder, name) for name in ("learner", "actor")]
        with (
            Store(self.actor, spec=SPEC, reserve_bytes=0) as store,
            Store(self.learner, spec=SPEC, reserve_bytes=0) as learner,
            LinkServer(self.link, keys[0], SPEC, learner) as self.server,
        ):
            link = dataclasses.replace(self.link, port=self.server.port)
            client = LinkClient(link, keys[1], SPEC, self.actor)
            client.start()
            try:
                yield store, learner, client
            finally:
                client.stop(drain_s=0.0)

    def wait(self, condition: object) -> None:
        end_s = time.monotonic() + 20
        while not condition():  # type: ignore[operator]
            self.server.poll(5)
            assert time.monotonic() < end_s

    def lose_the_learners_store(self) -> Path:
        kept = self.folder / "kept"
        kept.mkdir()
        for path in self.folder.glob("learner.sqlite*"):
            shutil.move(path, kept)
        return kept


def removed(store: Store) -> list[int]:
    return [r.id.episode for r in store.episode_summaries() if r.removed]


@pytest.fixture
def machines(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: object) -> Machines:
    monkeypatch.setattr(link_client, "ROOM_S", 0.01)  # type: ignore[attr-defined]
    made = Machines(tmp_path, dataclasses.replace(LINK, if_removed=request.param))
    with made.running() as (store, learner, client):
        for episode in range(EPISODES):
            store.append(rows_of(episode))
        made.wait(lambda: len(removed(store)) >= 3 and client.status()["pending_rows"] == 0)
        assert removed(learner) == [] and DEMO not in removed(store)
        size = store._db.execute("PRAGMA page_count").fetchone()[0] * 4096
        assert size > 1e5  # the demonstration and two episodes at least
    return made


@pytest.mark.parametrize("machines", ["refuse"], indirect=True)
def test_it_is_refused_with_what_to_do_until_its_store_is_back(machines: Machines) -> None:
    kept = machines.lose_the_learners_store()
    with machines.running() as (store, learner, client):
        before = store.pending_count(), removed(store)
        machines.wait(lambda: client.status()["refused"])
        with pytest.raises(LinkError, match=r"removed here[\s\S]*put the learner's store back"):
            client.raise_if_refused()
        assert learner.last_seq() == 0 and removed(store) == before[1]
    for path in kept.glob("learner.sqlite*"):
        shutil.copy(path, machines.folder)
    for path in machines.folder.glob("learner.sqlite-*"):
        if not (kept / path.name).exists():
            path.unlink()
    with machines.running() as (store, learner, client):
        store.append(rows_of(EPISODES))
        machines.wait(lambda: client.status()["connected"] and store.pending_count() == 0)
        client.raise_if_refused()
        assert [r.steps for r in learner.episode_summaries()] == [STEPS] * (EPISODES + 1)


@pytest.mark.parametrize("machines", ["go_on"], indirect=True)
def test_it_gets_what_is_left_where_that_was_chosen(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    machines.lose_the_learners_store()
    with machines.running() as (store, learner, client):
        gone = removed(store)
        machines.wait(lambda: learner.last_seq() and store.pending_count() == 0)
        client.raise_if_refused()
        found = {r.id.episode: r.steps for r in learner.episode_summaries()}
        assert found == {n: STEPS for n in range(EPISODES) if n not in gone} and DEMO in found
        learner.verify()
        assert [flatten(f) for f in learner.frames(EpisodeId("run", "actor-0", DEMO))] == [
            flatten(f) for f in store.frames(EpisodeId("run", "actor-0", DEMO))
        ]
    assert "it gets what is left" in caplog.text


class Quiet:
    """Implements `link.wire.Wire`; the test says what arrives."""

    def __init__(self) -> None:
        self.coming: list[Change] = [Change.ATTACHED]
        self.inbox: list[bytes] = []
        self.sent: list[tuple[int, Message]] = []

    def wait(self, timeout_s: float) -> None:
        """See `Wire`."""

    def changes(self) -> Iterator[Change]:
        """See `Wire`."""
        coming, self.coming = self.coming, []
        return iter(coming)

    def received(self) -> Iterator[bytes]:
        """See `Wire`."""
        inbox, self.inbox = self.inbox, []
        return iter(inbox)

    def send(self, data: bytes) -> bool:
        """See `Wire`."""
        self.sent.append(decode(data))
        return True

    def reopen(self) -> None:
        """See `Wire`."""

    def close(self) -> None:
        """See `Wire`."""


@pytest.mark.parametrize("machines", ["refuse"], indirect=True)
def test_a_late_answer_to_an_older_question_refuses_nobody(machines: Machines) -> None:
    wire, now = Quiet(), [0.0]
    keys = keys_for(machines.link, machines.folder, "actor")
    with Store(machines.actor, spec=SPEC, reserve_bytes=0) as store:
        names = {"run": "run", "actor": "actor-0"}
        session = LinkSession(LINK, keys, SPEC, store, **names, wire=wire, clock=lambda: now[0])

        def ask() -> tuple[int, tuple[object, ...]]:
            now[0] += LINK.reply_timeout_s + 0.1
            for _ in range(3):
                session.tick()
            number, hello = wire.sent[-1]
            assert isinstance(hello, Hello)
            return number, hello.newest

        lost, found = Welcome("s", -1, 9, False), Welcome("s", -1, 9, True)
        (first, newest), (second, same) = ask(), ask()
        assert newest == same
        wire.inbox = [encode(lost, second)]
        third, boundary = ask()
        assert boundary != newest
        wire.inbox = [encode(lost, first)]  # late
        session.tick()
        assert session.refusal is None
        wire.inbox = [encode(found, third)]
        session.tick()
        assert session.refusal is None and session.status["pending_rows"] > 0
        session.close()


@pytest.mark.parametrize("machines", ["refuse"], indirect=True)
def test_the_same_learner_with_new_keys_is_no_new_learner(machines: Machines) -> None:
    shutil.rmtree(machines.folder / "keys")  # others are made: the receiver has another name
    with machines.running() as (store, learner, client):
        store.append(rows_of(EPISODES))
        machines.wait(lambda: client.status()["connected"] and store.pending_count() == 0)
        client.raise_if_refused()
        assert [r.steps for r in learner.episode_summaries()] == [STEPS] * (EPISODES + 1)
