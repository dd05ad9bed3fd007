"""A key brings the rows of its own actor and no others; the true actor is never held up by them."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from robot_rl.bench.samples import episode_rows, sample_spec, start_row
from robot_rl.errors import LinkError
from robot_rl.link.answers import MAX_STRIKES
from robot_rl.link.auth import load_keys, make_keys
from robot_rl.link.client import LinkClient
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import Ack, Hello, Message, Refused, Rows, Welcome, decode, encode
from robot_rl.link.roster import Roster
from robot_rl.link.server import LinkServer
from robot_rl.run.experiment import Experiment
from robot_rl.store.rows import FlatRow, flatten
from robot_rl.store.store import Store
from robot_rl.system.audit import AUDIT, audit, audit_into
from robot_rl.types import EpisodeId, Label, Row, Step

SPEC = sample_spec()
CONFIG = LinkConfig(port=0, reply_timeout_s=0.5, backoff_max_s=0.2)
LEFT, RIGHT, OTHER = (EpisodeId("run", f"actor-{who}", 0) for who in ("left", "right", "other"))
ROSTER = {"actor-left": "actor-left", "actor-right": "actor-right"}


class Learner:
    """A learner of two arms, in a run folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_keys(folder / "keys", ("learner", "actor-left", "actor-right", "actor-other"))
        self.store = Store(folder / "learner.sqlite", spec=SPEC, reserve_bytes=0)
        keys = load_keys(folder / "keys", "learner")
        roster = Roster(ROSTER, run="run", data_by="actor-left")
        self.server = LinkServer(CONFIG, keys, SPEC, self.store, roster)
        self.config = dataclasses.replace(CONFIG, port=self.server.port)

    @contextmanager
    def peer(self, name: str) -> Iterator[zmq.Socket[bytes]]:
        """A socket that has this key and says what it likes."""
        keys = load_keys(self.folder / "keys", name)
        with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
            peer.linger = 0
            peer.curve_publickey, peer.curve_secretkey = keys.public, keys.secret
            peer.curve_serverkey = keys.public_of("learner")
            peer.connect(self.config.endpoint)
            yield peer

    def ask(self, peer: zmq.Socket[bytes], message: Message) -> Message | None:
        peer.send(encode(message))
        end_s = time.monotonic() + 2.0
        while time.monotonic() < end_s:
            self.server.poll(5)
            if peer.poll(0):
                return decode(peer.recv())[1]
        return None

    def hello(self, actor: str) -> Hello:
        return Hello("actor", SPEC.hash, SPEC.as_dict(), "run", actor, ())

    def audited(self) -> str:
        path = self.folder / AUDIT
        return path.read_text() if path.exists() else ""


@pytest.fixture
def learner(tmp_path: Path) -> Iterator[Learner]:
    before = list(audit.handlers)
    audit_into(tmp_path)
    made = Learner(tmp_path)
    yield made
    made.server.close()
    made.store.close()
    for handler in set(audit.handlers) - set(before):
        audit.removeHandler(handler)
        logging.Handler.close(handler)


def said_of(id_: EpisodeId, source: str = "person") -> Label:
    return Label(id_, 0, None, "success", 1.0, source, "operator 1", 5)


def rows(*of: Row) -> Rows:
    return Rows(tuple(flatten(row) for row in of))


def test_a_key_stores_neither_rows_of_another_actor_nor_a_persons_word_on_them(
    learner: Learner,
) -> None:
    foreign = [rows(*episode_rows(SPEC, LEFT, 3)), rows(said_of(LEFT)), rows(said_of(OTHER))]
    mixed = rows(start_row(SPEC, RIGHT), said_of(LEFT))
    with learner.peer("actor-right") as right:
        assert isinstance(learner.ask(right, learner.hello("actor-right")), Welcome)
        for message in (*foreign, mixed):
            reply = learner.ask(right, message)
            assert isinstance(reply, Refused) and reply.code == "identity"
            assert "actor-right is 'actor-right'" in reply.reason
    assert learner.store.last_seq() == 0  # and of the mixed message nothing either
    peer = learner.server.peers()["actor-right"]
    assert (peer.foreign, peer.strikes) == (4, 4)
    assert learner.audited().count("actor-right") == 2  # one line: the key, and whose it is
    with learner.peer("actor-left") as left:  # the true actor's rows come in as ever
        assert isinstance(learner.ask(left, learner.hello("actor-left")), Welcome)
        reply = learner.ask(left, rows(*episode_rows(SPEC, LEFT, 3), said_of(LEFT)))
        assert isinstance(reply, Ack) and reply.new == 9 and not reply.left_out


def test_numbers_that_no_table_holds_cost_the_learner_one_message(learner: Learner) -> None:
    """The first ended its process, the second each one that read the store afterwards."""
    hello = learner.hello("actor-right")
    step = next(row for row in episode_rows(SPEC, RIGHT, 1) if isinstance(row, Step))
    with learner.peer("actor-right") as right:
        newest = (0, "run", "actor-right", 2**63)
        assert learner.ask(right, dataclasses.replace(hello, newest=newest)) is None
        assert isinstance(learner.ask(right, hello), Welcome)
        for number in (2**63 - 1, -1):
            odd = dataclasses.replace(step, next_frame=number)
            reply = learner.ask(right, rows(start_row(SPEC, RIGHT), odd))
            assert isinstance(reply, Refused) and reply.code == "rows"
        assert learner.store.last_seq() == 0
        assert isinstance(learner.ask(right, rows(*episode_rows(SPEC, RIGHT, 1))), Ack)


@pytest.mark.parametrize(
    ("key", "says"), [("actor-right", "actor-left"), ("actor-other", "actor-other")]
)
def test_who_says_to_be_another_actor_or_of_another_run_is_not_let_in(
    learner: Learner, key: str, says: str
) -> None:
    with learner.peer(key) as peer:
        for _ in range(MAX_STRIKES):
            reply = learner.ask(peer, learner.hello(says))
            assert isinstance(reply, Refused) and reply.code == "identity"
        assert learner.server.peers()[key].banned
    assert f"the key {key} is ignored" in learner.audited()


def test_a_model_of_the_learners_cannot_be_spoken_for(learner: Learner) -> None:
    with learner.peer("actor-left") as left:
        learner.ask(left, learner.hello("actor-left"))
        reply = learner.ask(left, rows(start_row(SPEC, LEFT), said_of(LEFT, "vlm")))
        assert isinstance(reply, Refused) and "which the learner gives" in reply.reason


def test_one_key_brings_the_data_of_other_runs_but_no_row_of_this_one(learner: Learner) -> None:
    data = EpisodeId("last-week", "actor-right", 0)
    message = rows(*episode_rows(SPEC, data, 2), said_of(data, "vlm"))
    with learner.peer("actor-left") as left, learner.peer("actor-right") as right:
        learner.ask(left, learner.hello("actor-left"))
        learner.ask(right, learner.hello("actor-right"))
        assert isinstance(learner.ask(left, message), Ack)
        assert isinstance(learner.ask(left, rows(start_row(SPEC, RIGHT))), Refused)
        assert isinstance(
            learner.ask(right, rows(start_row(SPEC, EpisodeId("last-week", "actor-x", 1)))), Refused
        )


def test_an_actor_with_anothers_key_reads_one_clear_error(learner: Learner) -> None:
    path = learner.folder / "actor.sqlite"
    keys = load_keys(learner.folder / "keys", "actor-right")
    with LinkClient(learner.config, keys, SPEC, path, actor="actor-left") as client:
        end_s = time.monotonic() + 20
        while client.status()["refused"] is None:
            learner.server.poll(5)
            assert time.monotonic() < end_s
        with pytest.raises(LinkError, match="use the key that belongs to this actor"):
            client.raise_if_refused()


def test_the_roster_of_a_run_follows_its_configuration(tmp_path: Path) -> None:
    words = ["experiment=reach", f"run_dir={tmp_path / 'here'}"]
    one = Experiment.compose([*words, "link.actor_key=actor-x", f"link.key_folder={tmp_path}"])
    assert one.roster.identity("actor-x") == "actor-0" and one.roster.identity("actor") is None
    several = Experiment.compose([*words, "actors=left,right", "operator=none"])
    for key, actor in ROSTER.items():
        assert several.roster.identity(key) == actor
    assert several.roster.identity("actor") is None
    of_another_run = [flatten(start_row(SPEC, OTHER))]
    assert not several.roster.foreign("actor-left", of_another_run)
    assert several.roster.foreign("actor-right", of_another_run)


def test_a_reward_that_float32_does_not_hold_is_not_taken(learner: Learner) -> None:
    good = flatten(Label(LEFT, 0, 1, "reward", 1.0, "person", "operator 1", 5))
    huge = FlatRow(good.kind, tuple(1e308 if value == 1.0 else value for value in good.values))
    assert huge != good
    with learner.peer("actor-left") as left:
        learner.ask(left, learner.hello("actor-left"))
        stored = learner.ask(left, rows(*episode_rows(SPEC, LEFT, 3)))
        assert isinstance(stored, Ack)
        before = learner.store.last_seq()
        assert not isinstance(learner.ask(left, Rows((huge,))), Ack)
    assert learner.store.last_seq() == before
    assert learner.server.peers()["actor-left"].strikes == 1
