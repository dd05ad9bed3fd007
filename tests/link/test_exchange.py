"""Client and server over a real CURVE socket: handshake, rows, weights, status, refusals."""

from __future__ import annotations

import dataclasses
import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from robot_rl.bench.samples import episode_rows, sample_spec, start_row
from robot_rl.errors import ConfigError, LinkError, StoreError
from robot_rl.link import answers as answers_module
from robot_rl.link import session as session_module
from robot_rl.link.answers import FRAME_BYTES, MAX_STRIKES
from robot_rl.link.auth import keys_for, load_keys, make_keys
from robot_rl.link.client import NOT_STARTED, LinkClient
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import Message, encode
from robot_rl.link.server import LinkServer
from robot_rl.run.actor import BACKLOG_ROWS, BACKLOG_STEPS, Actor
from robot_rl.run.experiment import Experiment
from robot_rl.spec import Spec
from robot_rl.store import schema
from robot_rl.store.rows import flatten
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Event, Label, Weights

SPEC = sample_spec(images=1, image_size=16)
QUICK = LinkConfig(
    port=0, weights_period_s=0.02, status_period_s=0.05, reply_timeout_s=0.5, backoff_max_s=0.2
)


def weights(version: int, data: bytes = b"safetensors") -> Weights:
    """Weights with a right hash."""
    return Weights(version, hashlib.sha256(data).hexdigest(), data)


class Pair:
    """A learner polled by the test, and an actor in its thread."""

    def __init__(self, folder: Path, actor_spec: Spec = SPEC, config: LinkConfig = QUICK) -> None:
        self.folder = folder
        self.actor_store = Store(folder / "actor.sqlite", spec=actor_spec, reserve_bytes=0)
        self.learner_store = Store(folder / "learner.sqlite", spec=SPEC, reserve_bytes=0)
        keys = keys_for(config, folder, "learner")
        self.server = LinkServer(config, keys, SPEC, self.learner_store)
        self.config = dataclasses.replace(config, port=self.server.port)
        actor_keys = keys_for(config, folder, "actor")
        self.client = LinkClient(self.config, actor_keys, actor_spec, self.actor_store.path)

    def until(self, condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        """Poll the learner until the condition holds."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            self.server.poll(5)
            assert time.monotonic() < deadline_s, self.client.status()

    def close(self) -> None:
        self.client.stop(drain_s=0.0)
        self.server.close()
        self.actor_store.close()
        self.learner_store.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def test_rows_arrive_once_and_in_order(pair: Pair) -> None:
    rows = [r for k in range(3) for r in episode_rows(SPEC, EpisodeId("run", "actor-0", k), 20)]
    pair.actor_store.append(rows[:50])
    pair.client.start()
    pair.until(lambda: pair.learner_store.last_seq() == 50)
    pair.actor_store.append(rows[50:])
    pair.until(lambda: pair.actor_store.pending_count() == 0)
    back, _ = pair.learner_store.rows_since(0, 1000)
    assert [flatten(r) for r in back] == [flatten(r) for r in rows]
    peer = pair.server.peers()["actor"]
    assert (peer.rows, peer.duplicates, peer.strikes) == (len(rows), 0, 0)
    pair.until(lambda: pair.client.status()["pending_rows"] == 0)
    assert pair.client.drain(2.0) and pair.client.status()["last_ack_age_s"] < 5


def test_an_ack_comes_only_after_the_commit(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_rows: object) -> int:
        raise StoreError("the disk is full", fix="free some space")

    pair.actor_store.append(episode_rows(SPEC, EpisodeId("run", "actor-0", 0), 5))
    with monkeypatch.context() as patch:
        patch.setattr(pair.learner_store, "append", fail)
        pair.client.start()
        pair.until(lambda: pair.client.status()["refused"])
        assert pair.actor_store.pending_count() == 12
        assert "the disk is full" in pair.client.status()["refused"]
        pair.client.raise_if_refused()  # passes by itself: not an error of the actor
    pair.until(lambda: pair.actor_store.pending_count() == 0)
    pair.until(lambda: pair.client.status()["refused"] is None)


def test_newest_weights_only_and_never_older_ones(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def count(message: Message, sequence: int) -> bytes:
        if isinstance(message, Weights):
            sent.append(message.version)
        return encode(message, sequence)

    monkeypatch.setattr(answers_module, "encode", count)
    assert pair.client.newest_weights() is None
    for version in range(5):
        pair.server.publish(weights(version, b"w%d" % version))
    pair.client.start()
    pair.until(pair.client.newest_weights)
    first = pair.client.newest_weights()
    assert first is not None and (first.version, first.data) == (4, b"w4")
    pair.until(lambda: pair.client.status()["weights_version"] == 4)
    pair.server.publish(weights(3))
    asked = pair.client.status()["weights_version"]
    for _ in range(30):
        pair.server.poll(5)
    assert pair.client.newest_weights() is first and asked == 4
    pair.server.publish(weights(9))
    pair.until(lambda: pair.client.status()["weights_version"] == 9)
    assert sent == [4, 9]  # asked for many times, sent once


def test_weights_that_do_not_match_their_hash_are_rejected(pair: Pair) -> None:
    good = weights(1, b"good")
    pair.server.publish(dataclasses.replace(good, data=b"evil"))
    pair.client.start()
    pair.until(lambda: pair.client.status()["weights_rejected"] >= 2)
    assert pair.client.newest_weights() is None
    pair.server.publish(good)
    pair.until(pair.client.newest_weights)
    assert pair.client.newest_weights() == good


def test_weights_too_large_for_an_actor_are_an_error_of_the_learner(tmp_path: Path) -> None:
    limit = 100_000
    config = dataclasses.replace(QUICK, max_weights_bytes=limit)
    with closing(Pair(tmp_path, config=config)) as pair:
        with pytest.raises(LinkError, match=r"raise link\.max_weights_bytes"):
            pair.server.publish(weights(1, bytes(limit)))
        largest = weights(2, bytes(limit - FRAME_BYTES))
        pair.server.publish(largest)
        pair.client.start()
        pair.until(pair.client.newest_weights)
        assert pair.client.newest_weights() == largest


def test_a_restarted_learner_that_counts_lower_is_still_heard(pair: Pair) -> None:
    pair.server.publish(weights(100))
    pair.client.start()
    pair.until(lambda: pair.client.status()["weights_version"] == 100)
    pair.server.close()
    keys = keys_for(QUICK, pair.folder, "learner")
    pair.server = LinkServer(pair.config, keys, SPEC, pair.learner_store)
    pair.server.publish(weights(7))
    pair.until(lambda: pair.client.status()["weights_version"] == 7)


def test_status_goes_both_ways(pair: Pair) -> None:
    assert pair.client.status() == NOT_STARTED
    pair.server.set_status({"updates": 12, "utd": 0.5})
    pair.client.start()
    pair.until(lambda: pair.client.status()["learner"] == {"updates": 12, "utd": 0.5})
    pair.until(lambda: pair.server.peers()["actor"].status.get("pending_rows") == 0)
    status = pair.client.status()
    assert set(status) == set(NOT_STARTED) and status["connected"]
    assert 0 < status["round_trip_ms"] < 1000
    deadline_s = time.monotonic() + 20
    while pair.client.status()["connected"]:  # the learner is silent: nobody polls it
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_another_spec_is_refused_with_a_readable_diff(tmp_path: Path) -> None:
    other = dataclasses.replace(SPEC, control_hz=20.0)
    pair = Pair(tmp_path, actor_spec=other)
    pair.actor_store.append([start_row(other, EpisodeId("run", "actor-0", 0))])
    pair.client.start()
    pair.until(lambda: pair.client.status()["refused"])
    with pytest.raises(LinkError, match=r"control_hz: 10\.0 -> 20\.0"):
        pair.client.raise_if_refused()
    assert pair.learner_store.last_seq() == 0 and pair.actor_store.pending_count() == 1
    pair.close()


def test_an_episode_number_used_twice_is_said_loudly_and_holds_nothing_up(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (EpisodeId("run", "actor-0", number) for number in range(2))
    pair.learner_store.append(episode_rows(SPEC, first, 9))
    kept = [flatten(r) for r in pair.learner_store.rows_since(0, 100)[0]]
    said = [Label(first, 0, None, "success", 1.0, "person", "ada", 5)]
    pair.actor_store.append([*episode_rows(SPEC, first, 20), *said])
    pair.actor_store.append(rows := episode_rows(SPEC, second, 2))
    pair.client.start()
    pair.until(lambda: pair.actor_store.pending_count() == 0)
    pair.actor_store.append([Event(first, 7, 0, "late", "", 9)])  # stays here, too
    pair.actor_store.append(more := episode_rows(SPEC, EpisodeId("run", "actor-0", 2), 2))
    pair.until(lambda: pair.actor_store.pending_count() == 0)
    stored = [flatten(r) for r in pair.learner_store.rows_since(0, 100)[0]]
    assert stored == [*kept, *map(flatten, [*rows, *more])]  # no mixture of two episodes
    assert "episode 0 is not learned from" in caplog.text
    assert pair.client.status()["rows_left_out"] == pair.server.peers()["actor"].left_out == 25
    assert len(pair.actor_store.steps(first)) == 20  # all of it is still at the robot
    pair.client.raise_if_refused()  # which goes on


def test_a_row_too_large_for_a_message_is_said_and_not_sent(tmp_path: Path) -> None:
    small = dataclasses.replace(QUICK, max_message_bytes=512, batch_bytes=256)
    pair = Pair(tmp_path, config=small)
    pair.actor_store.append(episode_rows(SPEC, EpisodeId("run", "actor-0", 0), 1))
    pair.client.start()
    pair.until(lambda: pair.client.status()["refused"])
    with pytest.raises(LinkError, match=r"raise link\.max_message_bytes"):
        pair.client.raise_if_refused()
    pair.close()


def test_rows_of_a_broken_actor_are_refused_and_its_key_is_ignored_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path, config=dataclasses.replace(QUICK, backoff_max_s=0.02))
    other = sample_spec(images=1, image_size=8)
    with Store(tmp_path / "loose.sqlite", reserve_bytes=0) as loose:  # no spec: checks nothing
        loose.append(episode_rows(other, EpisodeId("run", "actor-0", 0), 2))
        rows = loose.pending(10**6, 10)
    monkeypatch.setattr(Store, "pending", lambda *_: rows)
    pair.client.start()
    peer = pair.server.peers()["actor"]
    pair.until(lambda: peer.banned)
    assert peer.strikes == MAX_STRIKES and pair.learner_store.last_seq() == 0
    with pytest.raises(LinkError, match="does not fit the spec"):
        pair.client.raise_if_refused()
    pair.close()


def test_a_port_in_use_and_a_foreign_address_are_clear_errors(pair: Pair, tmp_path: Path) -> None:
    keys = keys_for(QUICK, tmp_path, "learner")
    with pytest.raises(LinkError, match=r"the port is in use[\s\S]*set link\.port"):
        LinkServer(pair.config, keys, SPEC, pair.learner_store)
    far = dataclasses.replace(QUICK, host="192.0.2.7")
    with pytest.raises(LinkError, match="robot-rl keys"):
        LinkServer(far, keys, SPEC, pair.learner_store)
    made = dataclasses.replace(far, key_folder=str(tmp_path / "keys"))
    with pytest.raises(LinkError, match="IP address of this machine"):
        LinkServer(made, keys, SPEC, pair.learner_store)


def test_a_missing_learner_key_is_said_before_the_thread_starts(tmp_path: Path) -> None:
    make_keys(tmp_path, ("actor",))
    with pytest.raises(LinkError, match=r"learner\.public"):
        LinkClient(QUICK, load_keys(tmp_path, "actor"), SPEC, tmp_path / "a.sqlite")


def test_a_thread_that_fails_is_an_error_and_not_silence(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(session_module.LinkSession, "tick", broken)
    pair.client.start()
    pair.until(lambda: pair.client.status()["refused"])
    with pytest.raises(LinkError, match="the link has stopped"):
        pair.client.raise_if_refused()


def test_a_store_that_is_busy_for_long_does_not_end_the_link(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[Path] = []
    connect = schema.connect

    def count(path: Path) -> sqlite3.Connection:
        opened.append(path)
        return connect(path)

    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(schema, "connect", count)
    pair.server.publish(weights(1))
    pair.client.start()
    pair.until(pair.client.newest_weights)
    pair.actor_store.append(episode_rows(SPEC, EpisodeId("run", "actor-0", 0), 5))
    other = sqlite3.connect(pair.actor_store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # the acknowledgement cannot be noted, nor the store opened
    pair.until(lambda: "another process holds" in (pair.client.status()["refused"] or ""))
    pair.until(lambda: len(opened) >= 3)
    assert not pair.client.status()["connected"]
    pair.client.raise_if_refused()  # passes by itself
    other.execute("ROLLBACK")
    other.close()
    pair.until(lambda: pair.actor_store.pending_count() == 0)
    assert pair.client.drain(2.0) and pair.client.status()["refused"] is None
    pair.until(pair.client.newest_weights)
    assert caplog.text.count("the link begins anew") == 1


def test_practice_waits_while_the_learner_refuses_and_says_why(pair: Pair) -> None:
    announced: list[str] = []
    actor: Any = Actor.__new__(Actor)
    actor.link = pair.client
    actor._starts = lambda _plan, start: announced.append(start.purpose)
    start = start_row(SPEC, EpisodeId("run", "actor-0", 0))
    demo, train, exam = (dataclasses.replace(start, purpose=p) for p in ("demo", "train", "eval"))
    pair.client.start()
    actor._reset(None, train)
    pair.actor_store.append(episode_rows(SPEC, EpisodeId("run", "actor-7", 0), 2))
    pair.until(lambda: pair.client.status()["refused"])
    with pytest.raises(LinkError, match="use the key that belongs to this actor"):
        actor._reset(None, train)
    actor._reset(None, demo)
    actor._reset(None, exam)
    assert announced == ["train", "demo", "eval"]


def test_what_an_actor_tells_reaches_the_learner_and_the_next_one(pair: Pair) -> None:
    assert pair.server.told("demonstrated") == []
    pair.client.tell(demonstrated=True)  # before the first connection
    pair.client.start()
    pair.until(lambda: pair.server.told("demonstrated") == [True])
    pair.client.tell(demonstrated=False)
    pair.until(lambda: pair.server.told("demonstrated") == [False])


@pytest.mark.parametrize(
    ("link", "lag", "keeps_up"),
    [
        ({}, 0, True),  # it has said nothing yet
        ({"learner": {"updates_owed": 0}}, 0, True),
        ({"learner": {"updates_owed": 8 * BACKLOG_STEPS}}, 0, True),
        ({"learner": {"updates_owed": 8 * BACKLOG_STEPS + 1}}, 0, False),
        ({"learner": {"updates_owed": 0}, "pending_rows": BACKLOG_ROWS}, 0, True),
        ({"learner": {"updates_owed": 0}, "pending_rows": BACKLOG_ROWS}, 1, False),
        # away: the robot does not wait, rows lie in the store
        ({"learner": {"updates_owed": 10**6}, "connected": False}, 10**6, True),
    ],
)
def test_simulated_time_waits_for_a_learner_that_is_there_and_behind(
    link: dict[str, Any], lag: int, keeps_up: bool
) -> None:
    actor: Any = Actor.__new__(Actor)
    status = {"connected": True, "pending_rows": 0, "learner": {}} | link
    actor.link = SimpleNamespace(status=lambda: status)
    actor.writer = SimpleNamespace(lag=lambda: lag)
    actor._backlog_updates = 8.0 * BACKLOG_STEPS
    assert actor._learner_keeps_up() is keeps_up


@pytest.mark.parametrize("steps", [0, 500])
@pytest.mark.parametrize("shown", [0, 20])
def test_where_nothing_can_be_cloned_practice_begins_or_the_run_ends(
    shown: int, steps: int
) -> None:
    words = ["experiment=reach", "algo=bc", "train.demos=20", f"train.max_env_steps={steps}"]
    actor: Any = Actor.__new__(Actor)
    actor.experiment = Experiment.compose([*words, "learner.pretrain_updates=50"])
    actor.session = SimpleNamespace(progress=SimpleNamespace(demos=shown))  # 20 failures, say
    learner = {"published_updates": 0, "published_version": 0, "demonstrated": True, "demo_rows": 0}
    actor.link = SimpleNamespace(
        raise_if_refused=lambda: None, status=lambda: {"connected": True, "learner": learner}
    )
    actor._adopt, actor.policy = lambda: None, SimpleNamespace(version=0)
    actor.ports = SimpleNamespace(stopping=lambda: False)
    if steps:
        actor._await_weights()
    else:
        with pytest.raises(ConfigError, match="nothing to learn from in 50 updates"):
            actor._await_weights()


def test_a_learner_is_at_work_while_its_updates_become_more() -> None:
    actor: Any = Actor.__new__(Actor)
    said: dict[str, Any] = {"learner": {"updates": 7}}
    actor.link, actor._updates_seen = SimpleNamespace(status=lambda: said), -1
    assert actor._learner_is_at_work() and not actor._learner_is_at_work()
    said["learner"] = {"updates": 8}
    assert actor._learner_is_at_work() and not actor._learner_is_at_work()
    said["learner"] = {}  # it has just gone
    assert not actor._learner_is_at_work()


def test_a_learner_that_is_still_loading_does_not_fail_the_handshake(pair: Pair) -> None:
    keys = keys_for(QUICK, pair.folder, "actor")
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        peer.curve_publickey, peer.curve_secretkey = keys.public, keys.secret
        peer.curve_serverkey = keys.public_of("learner")
        with peer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED) as monitor:
            peer.connect(pair.config.endpoint)
            assert monitor.poll(5_000)  # nobody polls the server
            peer.disable_monitor()


def test_a_server_may_be_closed_twice(pair: Pair) -> None:
    pair.server.close()
    pair.server.close()


def test_poll_without_peers_returns_at_once(pair: Pair) -> None:
    began_s = time.perf_counter()
    assert pair.server.poll(0) == 0
    assert time.perf_counter() - began_s < 1.0
