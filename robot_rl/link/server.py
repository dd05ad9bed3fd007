"""The learner's end of the link: takes rows into the store, hands out weights and status.

One ROUTER socket, CURVE always: `poll` does a bounded amount of work and returns, so the learner
calls it between gradient updates. A peer is known by its key; what it may say follows from its
role, and whose rows it may bring from the roster (`link.roster`). Rows are acknowledged only after
their transaction is on the disk. A row that contradicts one that is here is left out, and the actor
told which: one bad row never holds up all that follow. Handshakes are answered by a
thread (`auth.guard`): a learner that loads or compiles for a minute must not look like a wrong one.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import zmq

from robot_rl.errors import CodecError, ConflictError, LinkError, SpecError, StoreError
from robot_rl.link.auth import Keys, guard, listen, require_key_folder, role_of
from robot_rl.link.config import LinkConfig
from robot_rl.link.frames import (
    REFUSALS,
    Ack,
    GetWeights,
    Hello,
    Message,
    NoWeights,
    Refused,
    Rows,
    Scalar,
    Status,
    Welcome,
    decode,
    encode,
)
from robot_rl.link.roster import Roster
from robot_rl.spec import Spec, diff
from robot_rl.store.rows import Key
from robot_rl.store.store import Store
from robot_rl.system.audit import audit
from robot_rl.types import Weights

log = logging.getLogger(__name__)

MAX_STRIKES = 10  # malformed or forbidden messages before a key is ignored
FRAME_BYTES = 1024  # more than what a frame and CURVE add to the weights
MAX_SESSIONS = 64  # connections remembered; an evicted one is asked to say HELLO again
ALLOWED: dict[str, tuple[type, ...]] = {
    "actor": (Hello, Rows, GetWeights, Status),
}
"""role -> messages it may send."""


@dataclass(slots=True)
class Peer:
    """What the learner knows about one key."""

    name: str
    strikes: int = 0
    rows: int = 0
    duplicates: int = 0
    left_out: int = 0  # rows that contradict those that are here
    foreign: int = 0  # messages with rows that are not this key's to bring
    status: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def banned(self) -> bool:
        """True once the peer has sent too many bad messages; until the learner restarts."""
        return self.strikes >= MAX_STRIKES


class LinkServer:
    """Serves actors; use from one thread.

    Args:
        config: bounds and address; port 0 picks a free one (see `port`).
        keys: the learner's pair and the allow-list.
        spec: contract of the run; peers with another one are refused.
        store: where rows go.
        roster: whose rows each key may bring.

    Raises:
        LinkError: port in use, address not of this machine, or a network address without a
            configured key folder.
    """

    def __init__(
        self,
        config: LinkConfig,
        keys: Keys,
        spec: Spec,
        store: Store,
        roster: Roster | None = None,
    ) -> None:
        require_key_folder(config)
        self._spec, self._store, self._roster = spec, store, roster or Roster()
        self._max_weights_bytes = config.max_weights_bytes - FRAME_BYTES
        self._session = secrets.token_hex(8)
        self._weights: Weights | None = None
        self._status: dict[str, Scalar] = {}
        self._peers = {n: Peer(n) for n in keys.peers.values() if role_of(n) in ALLOWED}
        self._names = {k: n for k, n in keys.peers.items() if n in self._peers}
        self._sessions: OrderedDict[bytes, str] = OrderedDict()  # routing id -> peer name
        self._context = zmq.Context()
        self._guard = guard(self._context, self)
        self._router = router = self._context.socket(zmq.ROUTER)
        router.maxmsgsize = config.max_message_bytes
        router.rcvhwm = router.sndhwm = 16  # a peer has at most one request of each kind waiting
        router.handshake_ivl = 5_000  # ms, all three
        router.heartbeat_ivl = 5_000
        router.heartbeat_timeout = 30_000  # long: weights on a slow network hold up the answers
        try:
            self.port = listen(router, config, keys, "link.port=... on both sides")
        except LinkError:
            self.close()
            raise
        self._handlers: dict[type, Callable[[Peer, Any], Message]] = {
            Rows: self._take_rows,
            GetWeights: self._give_weights,
            Status: self._trade_status,
        }

    def poll(self, timeout_ms: int = 0, max_messages: int = 64) -> int:
        """Wait up to `timeout_ms` for work, do it, return how many messages were handled.

        Never raises for what a peer does. When the store cannot take rows, that is logged and the
        peer is told, which keeps them.
        """
        handled = 0
        while handled < max_messages and self._router.poll(0 if handled else timeout_ms):
            self._handle(self._router.recv_multipart(copy=False))
            handled += 1
        return handled

    def publish(self, weights: Weights) -> None:
        """Make these the newest weights; actors fetch them when they ask.

        Raises:
            LinkError: too large for an actor, whose socket would cut the connection each time.
        """
        if len(weights.data) > self._max_weights_bytes:
            raise LinkError(
                "the weights are too large for the link",
                expected=f"at most {self._max_weights_bytes} bytes",
                got=f"{len(weights.data)} bytes",
                fix="raise link.max_weights_bytes on both sides, or use a smaller network",
            )
        self._weights = weights

    def set_status(self, values: Mapping[str, Scalar]) -> None:
        """Figures that peers see (update count, UTD, ...): scalars only."""
        self._status = dict(values)

    def told(self, key: str) -> list[Scalar]:
        """The values of `key` that peers have sent with their status (`LinkClient.tell`)."""
        return [peer.status[key] for peer in self._peers.values() if key in peer.status]

    def peers(self) -> dict[str, Peer]:
        """What is known about each allowed key, by name."""
        return self._peers

    def close(self) -> None:
        """Close the sockets; twice is fine."""
        self._router.close(linger=200)  # ms: the last ACKs may leave
        self._guard.stop()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- connection ------------------------------------------------------------------------------

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether a public key (Z85) may come in; pyzmq asks, in a thread of its own."""
        if key not in self._names:
            log.warning("refused an unknown key: %s", key.decode(errors="replace"))
        return key in self._names

    # -- messages --------------------------------------------------------------------------------

    def _handle(self, parts: list[zmq.Frame]) -> None:
        peer = self._peers[self._names[str(parts[-1].get("User-Id")).encode()]]  # its public key
        if peer.banned:
            return
        routing = parts[0].bytes
        sequence = 0
        try:
            if len(parts) != 2:
                raise CodecError("not a valid link message", got=f"{len(parts)} parts")
            sequence, message = decode(parts[1].buffer)
            reply = self._reply(routing, peer, message)
        except CodecError as error:
            self._strike(peer, error)
            return
        except LinkError as error:
            reply = Refused("protocol", str(error))
        try:
            self._router.send_multipart([routing, encode(reply, sequence)], zmq.NOBLOCK)
        except zmq.Again:
            log.debug("%s does not read; it will ask again", peer.name)

    def _reply(self, routing: bytes, peer: Peer, message: Message) -> Message:
        role = role_of(peer.name)
        if type(message) not in ALLOWED[role]:
            self._strike(peer, f"role {role} may not send {type(message).__name__}")
            return Refused("role", f"a key of role '{role}' may not send {type(message).__name__}")
        if isinstance(message, Hello):
            return self._welcome(routing, peer, message)
        if routing not in self._sessions:
            return Refused("hello", REFUSALS["hello"])
        return self._handlers[type(message)](peer, message)

    def _welcome(self, routing: bytes, peer: Peer, hello: Hello) -> Message:
        if hello.role != role_of(peer.name):
            return Refused("role", f"the key is {peer.name}'s, but it says it is {hello.role}")
        lines = diff(self._spec.as_dict(), hello.spec)
        if hello.spec_hash != self._spec.hash or lines:
            log.warning("%s has another spec: %s", peer.name, "; ".join(lines))
            return Refused("spec", "actor and learner disagree on the spec", tuple(lines))
        own = self._roster.identity(peer.name)
        if hello.actor != own:
            what = f"it says it is {hello.actor!r}"
            return self._foreign(peer, what, f"{own!r}" if own else "no actor of this run")
        self._roster.begins(hello.run)
        self._sessions[routing] = peer.name
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        log.info("%s is connected", peer.name)
        has_newest = not hello.newest or self._store.has(hello.newest)
        if not has_newest:
            log.error("rows of %s are gone that were acknowledged; it sends them again", peer.name)
        version = self._weights.version if self._weights else -1
        next_episode = self._store.next_episode(hello.run, hello.actor)
        return Welcome(self._session, version, next_episode, has_newest)

    def _take_rows(self, peer: Peer, message: Rows) -> Message:
        if what := self._roster.foreign(peer.name, message.rows):
            return self._foreign(peer, what, f"{self._roster.identity(peer.name)!r}")
        left_out: list[Key] = []
        try:
            try:
                new = self._store.append(message.rows)
            except ConflictError as error:
                log.error("%s: %s", peer.name, error)
                new, left_out = self._store.append_fitting(message.rows)
        except (CodecError, SpecError) as error:
            self._strike(peer, error)
            return Refused("rows", str(error))
        except StoreError as error:
            log.error("rows of %s are not stored: %s", peer.name, error)
            return Refused("store", str(error))
        peer.rows += new
        peer.left_out += len(left_out)
        peer.duplicates += len(message.rows) - new - len(left_out)
        return Ack(tuple(row.key for row in message.rows), new, tuple(left_out))

    def _foreign(self, peer: Peer, what: str, own: str) -> Refused:
        """Count, audit and refuse what a key may not do in another actor's name."""
        if not peer.foreign:
            audit.warning("link: the key %s is %s's, but %s: refused", peer.name, own, what)
        peer.foreign += 1
        self._strike(peer, f"the key is {own}'s, but {what}")
        return Refused("identity", f"the key {peer.name} is {own}'s, but {what}")

    def _give_weights(self, _peer: Peer, message: GetWeights) -> Message:
        newest = self._weights
        if newest is None or newest.version <= message.newer_than:
            return NoWeights(-1 if newest is None else newest.version)
        return newest

    def _trade_status(self, peer: Peer, message: Status) -> Message:
        peer.status = message.values
        return Status(self._status)

    def _strike(self, peer: Peer, why: object) -> None:
        peer.strikes += 1
        log.warning("bad message %d of %s: %s", peer.strikes, peer.name, why)
        if peer.banned:
            log.error("%s is ignored until the learner restarts", peer.name)
            audit.warning("link: the key %s is ignored until the learner restarts", peer.name)
