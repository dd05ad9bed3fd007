"""Who has no key, the wrong key or the wrong role gets nowhere; who talks nonsense is ignored."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.errors import LinkError
from robot_rl.link import server as server_module
from robot_rl.link.auth import Keys, load_keys, make_keys
from robot_rl.link.client import LinkClient
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import GetWeights, Hello, Message, Refused, Welcome, decode, encode
from robot_rl.link.server import MAX_STRIKES, LinkServer
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId

SPEC = sample_spec()
CONFIG = LinkConfig(
    port=0, max_message_bytes=1 << 20, batch_bytes=1 << 18, reply_timeout_s=0.5, backoff_max_s=0.2
)


def hello(actor: str, role: str = "actor") -> bytes:
    """The first words of an actor."""
    return encode(Hello(role, SPEC.hash, SPEC.as_dict(), "run", actor, ()))


HELLO = hello("actor-0")
PICKLE = b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."


class Learner:
    """A server that counts how many frames reach its decoder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        make_keys(folder / "keys", ("learner", "actor", "actor-b"))
        make_keys(folder / "strangers", ("learner", "actor"))
        self.store = Store(folder / "learner.sqlite", spec=SPEC, reserve_bytes=0)
        self.server = LinkServer(CONFIG, load_keys(folder / "keys", "learner"), SPEC, self.store)
        self.config = dataclasses.replace(CONFIG, port=self.server.port)
        self.decoded = 0
        monkeypatch.setattr(server_module, "decode", self._decode)

    def _decode(self, data: bytes) -> tuple[int, Message]:
        self.decoded += 1
        return decode(data)

    def keys(self, name: str, folder: str = "keys") -> Keys:
        return load_keys(self.folder / folder, name)

    def poll(self, duration_s: float) -> None:
        """Serve for a while."""
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            self.server.poll(5)

    def ask(self, peer: zmq.Socket[bytes], frame: bytes, timeout_s: float = 2.0) -> Message | None:
        """Send a frame and return the reply, None when there is none."""
        peer.send(frame)
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            self.server.poll(5)
            if peer.poll(0):
                return decode(peer.recv())[1]
        return None


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learner]:
    made = Learner(tmp_path, monkeypatch)
    yield made
    made.server.close()
    made.store.close()


@contextmanager
def raw_peer(
    learner: Learner, keys: Keys | None, learner_public: bytes | None = None
) -> Iterator[zmq.Socket[bytes]]:
    """A bare DEALER socket, with CURVE when `keys` are given."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        if keys is not None:
            peer.curve_publickey, peer.curve_secretkey = keys.public, keys.secret
            peer.curve_serverkey = learner_public or keys.public_of("learner")
        peer.connect(learner.config.endpoint)
        yield peer


def test_strangers_plain_clients_and_wrong_learner_keys_never_reach_the_decoder(
    learner: Learner, caplog: pytest.LogCaptureFixture
) -> None:
    known, stranger = learner.keys("actor"), learner.keys("actor", "strangers")
    right = known.public_of("learner")
    for keys, learner_key in ((None, None), (stranger, right), (known, stranger.public)):
        with raw_peer(learner, keys, learner_key) as peer:
            assert learner.ask(peer, HELLO, timeout_s=0.3) is None
    assert learner.decoded == 0
    assert f"refused an unknown key: {stranger.public.decode()}" in caplog.text
    assert known.public.decode() not in caplog.text
    with raw_peer(learner, known) as peer:
        assert isinstance(learner.ask(peer, HELLO), Welcome)


def test_a_stolen_public_key_is_useless_without_its_secret(learner: Learner) -> None:
    known, stranger = learner.keys("actor"), learner.keys("actor", "strangers")
    forged = Keys("actor", known.public, stranger.secret, known.peers)
    with raw_peer(learner, forged) as peer:
        assert learner.ask(peer, HELLO, timeout_s=0.3) is None
    assert learner.decoded == 0


def test_an_unknown_actor_reads_why_and_gets_in_once_its_key_is_there(learner: Learner) -> None:
    with Store(learner.folder / "actor.sqlite", spec=SPEC, reserve_bytes=0) as store:
        store.append(episode_rows(SPEC, EpisodeId("run", "actor-new", 0), 3))
    make_keys(learner.folder / "mine", ("actor-new",))
    shutil.copy(learner.folder / "keys/learner.public", learner.folder / "mine")
    keys = load_keys(learner.folder / "mine", "actor-new")
    path = learner.folder / "actor.sqlite"
    with LinkClient(learner.config, keys, SPEC, path, actor="actor-new") as client:
        end_s = time.monotonic() + 20
        while client.status()["refused"] is None:
            learner.server.poll(5)
            assert time.monotonic() < end_s
        with pytest.raises(LinkError, match="does not know this key"):
            client.raise_if_refused()
        assert learner.decoded == 0 and not client.status()["connected"]
        shutil.copy(learner.folder / "mine/actor-new.public", learner.folder / "keys")
        learner.server.close()
        learner.server = LinkServer(learner.config, learner.keys("learner"), SPEC, learner.store)
        end_s = time.monotonic() + 20
        while learner.store.last_seq() < 8:
            learner.server.poll(5)
            assert time.monotonic() < end_s, client.status()
        client.raise_if_refused()


def test_an_actor_with_another_learners_key_reads_why(learner: Learner) -> None:
    keys = learner.keys("actor")
    other = learner.keys("learner", "strangers").public
    wrong = dataclasses.replace(keys, peers={other: "learner"})
    with LinkClient(learner.config, wrong, SPEC, learner.folder / "actor.sqlite") as client:
        end_s = time.monotonic() + 20
        while client.status()["refused"] is None:
            learner.server.poll(5)
            assert time.monotonic() < end_s
        with pytest.raises(LinkError, match=r"copy learner\.public"):
            client.raise_if_refused()


def test_oversized_messages_are_cut_off_before_the_decoder(learner: Learner) -> None:
    with raw_peer(learner, learner.keys("actor")) as peer:
        assert isinstance(learner.ask(peer, HELLO), Welcome)
        before = learner.decoded
        assert learner.ask(peer, b"x" * (2 << 20), timeout_s=0.3) is None
        assert learner.decoded == before


def test_nonsense_is_counted_and_its_key_ignored_while_others_are_served(
    learner: Learner,
) -> None:
    actor, other = learner.keys("actor"), learner.keys("actor-b")
    with raw_peer(learner, actor) as bad, raw_peer(learner, other) as good:
        assert isinstance(learner.ask(bad, HELLO), Welcome)
        junk = [PICKLE, b"", HELLO[:-1], HELLO[:40] + b"?" + HELLO[41:], b"\x00" * 100]
        for k in range(MAX_STRIKES):
            bad.send(junk[k % len(junk)])
        bad.send_multipart([HELLO, HELLO])
        learner.poll(0.2)
        assert learner.server.peers()["actor"].banned
        before = learner.decoded
        assert learner.ask(bad, HELLO, timeout_s=0.2) is None and learner.decoded == before
        assert isinstance(learner.ask(good, hello("actor-b")), Welcome)


def test_a_role_may_say_only_what_belongs_to_it(learner: Learner) -> None:
    with raw_peer(learner, learner.keys("actor")) as peer:
        reply = learner.ask(peer, hello("actor-0", role="learner"))
        assert isinstance(reply, Refused) and reply.code == "role"
        assert isinstance(learner.ask(peer, HELLO), Welcome)
        for message in (Welcome("fake", 9, 0, True), Refused("role", "fake")):  # a server's words
            reply = learner.ask(peer, encode(message))
            assert isinstance(reply, Refused) and reply.code == "role"
    assert learner.server.peers()["actor"].strikes == 2


def test_nothing_is_served_before_hello(learner: Learner) -> None:
    with raw_peer(learner, learner.keys("actor")) as peer:
        reply = learner.ask(peer, encode(GetWeights(-1), 5))
        assert isinstance(reply, Refused) and reply.code == "hello"


def test_another_protocol_version_reads_why(learner: Learner) -> None:
    import struct
    import zlib

    start = struct.pack("<4sHBBQI", b"RRL1", 999, 1, 0, 1, 1)
    frame = start + struct.pack("<I", zlib.crc32(b"\x90", zlib.crc32(start))) + b"\x90"
    with raw_peer(learner, learner.keys("actor")) as peer:
        reply = learner.ask(peer, frame)
        assert isinstance(reply, Refused) and reply.code == "protocol" and "999" in reply.reason


def test_options_are_set_before_connect_so_an_oversized_answer_never_arrives(
    learner: Learner,
) -> None:
    import hashlib

    from robot_rl.types import Weights

    data = bytes(300_000)
    learner.server.publish(Weights(1, hashlib.sha256(data).hexdigest(), data))
    small = dataclasses.replace(learner.config, max_weights_bytes=100_000, weights_period_s=0.02)
    actor = learner.keys("actor")
    with LinkClient(small, actor, SPEC, learner.folder / "actor.sqlite") as client:
        learner.poll(0.4)
        assert client.newest_weights() is None
