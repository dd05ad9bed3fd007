"""Actor's and learner's ends of the link in one process, with a bad network between them."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.bench.faults.network import Network
from robot_rl.bench.samples import sample_spec
from robot_rl.console.address import HOST
from robot_rl.errors import LinkError, RobotRLError
from robot_rl.link.auth import keys_for
from robot_rl.link.client import LinkClient
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import Hello, Message, Welcome, decode, encode
from robot_rl.link.server import LinkServer
from robot_rl.spec import Spec
from robot_rl.store.rows import FlatRow, flatten
from robot_rl.store.store import Store
from robot_rl.system.ports import probe
from robot_rl.types import ONLY_ACTOR

SPEC = sample_spec()
CONFIG = LinkConfig(
    port=0, poll_s=0.005, weights_period_s=0.05, status_period_s=0.05, reply_timeout_s=2.0,
    backoff_max_s=0.2,
)  # fmt: skip
DRAIN_S = 60.0  # wall; more than it takes until a connection that hangs is given up
ALL = 10**13  # rows, and bytes


@dataclass(frozen=True, slots=True)
class Pair:
    """Both stores, both ends and what is between them. The learner answers while it is polled."""

    actor: Store
    learner: Store
    server: LinkServer
    client: LinkClient
    network: Network

    def serve(self, seconds: float, turn: Callable[[], object] = lambda: None) -> None:
        """Answer for a while; turn: called between two looks."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.server.poll(5)
            turn()

    def until(self, done: Callable[[], object], what: str, timeout_s: float = DRAIN_S) -> None:
        """Answer until something is so. Raises `RobotRLError`."""
        give_up_s = time.monotonic() + timeout_s
        while not done():
            self.server.poll(5)
            if time.monotonic() > give_up_s:
                status = str(self.client.status())
                raise RobotRLError(f"{what}: not within {timeout_s:g} s", got=status)

    def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Answer until every row has arrived."""
        self.until(lambda: not self.actor.pending_count(), "all rows arrive", timeout_s)

    def lost_and_doubled(self, sent: list[FlatRow]) -> tuple[int, int, bool]:
        """Of what was recorded: rows that the learner lacks, or has twice, and whether in order."""
        got = [flatten(row) for row in self.learner.rows_since(0, ALL, ALL)[0]]
        keys = [row.key for row in got]
        known = {row.key: row for row in got}
        lost = sum(known.get(row.key) != row for row in sent)
        return lost, len(keys) - len(set(keys)), got == sent


@contextmanager
def pair(
    folder: Path, *, spec: Spec = SPEC, actor_spec: Spec | None = None, start: bool = True
) -> Iterator[Pair]:
    """A new pair in a folder; actor_spec: another than the learner's."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        actor = stack.enter_context(
            Store(folder / "actor.sqlite", spec=actor_spec or spec, reserve_bytes=0)
        )
        learner = stack.enter_context(Store(folder / "learner.sqlite", spec=spec, reserve_bytes=0))
        server = stack.enter_context(
            LinkServer(CONFIG, keys_for(CONFIG, folder, "learner"), spec, learner)
        )
        port = probe(HOST, 0)
        network = stack.enter_context(Network((HOST, port), (HOST, server.port)))
        config = dataclasses.replace(CONFIG, port=port)
        client = LinkClient(
            config, keys_for(config, folder, "actor"), actor_spec or spec, actor.path
        )
        stack.callback(lambda: client.stop(drain_s=0.0))
        if start:
            client.start()
        yield Pair(actor, learner, server, client, network)


@contextmanager
def peer(both: Pair) -> Iterator[tuple[Any, Any]]:
    """A program that speaks to the learner frame by frame, welcomed as the actor.

    Yields a function that sends a message (or bytes) and returns the answer, None without one, and
    the socket.
    """
    import zmq

    keys = keys_for(CONFIG, both.actor.path.parent, "actor")
    with zmq.Context() as zmq_context, zmq_context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.curve_publickey, socket.curve_secretkey = keys.public, keys.secret
        socket.curve_serverkey = keys.public_of("learner")
        socket.connect(f"tcp://127.0.0.1:{both.server.port}")
        counter = itertools.count(1)

        def say(message: Message | bytes, timeout_s: float = 5.0) -> Message | None:
            raw = isinstance(message, bytes)
            socket.send(message if raw else encode(message, next(counter)))  # type: ignore[arg-type]
            give_up_s = time.monotonic() + timeout_s
            while time.monotonic() < give_up_s:
                both.server.poll(2)
                if socket.poll(0):
                    return decode(socket.recv())[1]
            return None

        hello = Hello("actor", SPEC.hash, SPEC.as_dict(), "run", ONLY_ACTOR, ())
        welcome = say(hello)
        if not isinstance(welcome, Welcome):
            raise LinkError("the learner does not welcome its actor", got=str(welcome))
        yield say, socket
