"""The actor's end of the link as a single-threaded state machine; `client` runs it in a thread.

    detached --CURVE handshake--> attached --HELLO, WELCOME--> welcomed --disconnect, silence--> ...

It reads committed rows from the actor's own store and sends them in commit order, one batch at a
time, until each is acknowledged: whatever dies, the next HELLO continues after the last ACK, and
the learner's store drops what it has already. Weights are asked for ("newer than N"), never pushed,
so a paused actor never replays old ones (a known trap of pushing: CONFLATE does nothing when it is
set after connect).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robot_rl.errors import CodecError, LinkError
from robot_rl.link.auth import Keys, LinkSetupError, role_of
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
from robot_rl.link.wire import Change, Wire, ZmqWire
from robot_rl.spec import Spec
from robot_rl.store.store import Store
from robot_rl.types import Weights

log = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.2
FAILED_HANDSHAKES = 3  # one may be a learner that died in the middle of it
_FIXES = {
    "auth": "copy this machine's .public key into the learner's key folder, restart the learner",
    "learner_key": "copy learner.public from the learner's machine, restart this process; check "
    "that no other program listens on that port",
    "too_big": "raise link.max_message_bytes on both sides",
    "spec": "use the same experiment config on both sides (learner -> actor above)",
    "protocol": "install the same robot-rl version on both machines",
    "identity": "use the key that belongs to this actor (docs/several_arms.md)",
    "rows": "use the same experiment config on both sides",
    "role": "use the key that belongs to this process",
    "removed": "put the learner's store back (learner.sqlite in its run folder), or begin a new "
    "run from the demonstrations and the newest practice of this one: train.dataset=RUN",
    "store": "free space on the learner's disk; rows wait here meanwhile",
}
_AGAIN = "pair the machines again: robot-rl pair RUN on this machine"
_PAIRED_FIXES = {"auth": _AGAIN, "learner_key": f"{_AGAIN}, if no other program listens there"}
# a WELCOME settles these
_HANDSHAKE = ("auth", "learner_key", "spec", "protocol", "role", "identity", "removed")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the link does not work now. permanent: a person must change something."""

    code: str
    error: LinkError
    permanent: bool


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that waits for its reply; times on the monotonic clock."""

    sequence: int
    sent_s: float


class LinkSession:
    """One actor's conversation with the learner. Call everything from one thread.

    `weights`, `refusal` and `status` are replaced whole, so other threads may read them.

    wire: how bytes travel; None = over ZeroMQ. clock: seconds that only grow.
    """

    def __init__(
        self,
        config: LinkConfig,
        keys: Keys,
        spec: Spec,
        store: Store,
        *,
        run: str,
        actor: str,
        wire: Wire | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._keys, self._spec, self._store = config, keys, spec, store
        self._run, self._actor = run, actor
        self._learner_key = keys.public_of("learner")
        store.send_to(self._learner_key.decode())
        self.weights: Weights | None = None
        self.refusal: Refusal | None = None
        self.status: dict[str, Any] = {}
        self.word: dict[str, Scalar] = {}  # what else the learner is told; replaced whole
        self.next_episode: int | None = None  # first number that the learner has not; None: unheard
        self.ticks = 0
        self._now_s = clock
        self._attached = self._welcomed = self._key_was_right = self._has_drained = False
        self._waiting: dict[type, _Request] = {}
        self._due_s: dict[type, float] = {}
        self._sequence = self._failed_handshakes = self._rejected = self._left_out = 0
        self._newer_than = -1
        self._learner_session = ""
        self._last_ack_s: float | None = None
        self._last_reply_s = 0.0
        self._round_trip_s: float | None = None
        self._learner: dict[str, Scalar] = {}
        self._backoff_s = FIRST_BACKOFF_S
        self._reopen_s: float | None = None
        self._wire = wire or ZmqWire(config, keys)

    def tick(self) -> None:
        """Wait for news (at most `poll_s`), take replies, send what is due."""
        self._wire.wait(self._config.poll_s)
        self._watch()
        self._receive()
        now_s = self._now_s()
        if self._reopen_s is not None and now_s >= self._reopen_s:
            self._wire.reopen()
            self._attached = self._welcomed = False
            self._reopen_s = None
        elif self._attached:
            self._send_due(now_s)
        self._publish_status(now_s)
        self.ticks += 1

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    # -- connection ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Follow the CURVE handshake; reopen after each end of a connection.

        libzmq itself reconnects after some ends, but never after a refused key or a damaged byte.
        """
        for change in self._wire.changes():
            self._forget()
            self._attached = change is Change.ATTACHED
            if self._attached:
                self._failed_handshakes, self._key_was_right, self._reopen_s = 0, True, None
                continue
            if change is Change.REFUSED:
                self._refuse("auth", "the learner does not know this key", self._keys.name)
            elif change is Change.FAILED:
                self._failed_handshakes += 1
                if self._failed_handshakes >= FAILED_HANDSHAKES:
                    self._refuse("learner_key", "the handshake fails", "closed connections")
            self._reopen_s = self._now_s() + self._next_backoff_s()

    def _forget(self) -> None:
        """Start over with HELLO; rows that were in flight are still in the store."""
        self._welcomed = False
        self._waiting.clear()
        self._due_s.clear()

    def _next_backoff_s(self) -> float:
        now, self._backoff_s = self._backoff_s, min(2 * self._backoff_s, self._config.backoff_max_s)
        return now

    # -- sending ---------------------------------------------------------------------------------

    def _send_due(self, now_s: float) -> None:
        timeout_s = self._config.reply_timeout_s
        if any(now_s - request.sent_s > timeout_s for request in self._waiting.values()):
            self._forget()
        if not self._welcomed:
            if self._is_due(Hello, now_s):
                self._send(self._hello())
            return
        if self._is_due(Rows, now_s):
            self._send_rows()
        if self._is_due(GetWeights, now_s):
            self._send(GetWeights(self._newer_than))
            self._due_s[GetWeights] = now_s + self._config.weights_period_s
        if self._is_due(Status, now_s):
            shown = ("pending_rows", "weights_version", "weights_rejected")
            # what is said of the rows is true once the rows are there
            word = self.word if self._has_drained else {}
            self._send(Status({k: self.status.get(k) for k in shown} | word))
            self._due_s[Status] = now_s + self._config.status_period_s

    def _hello(self) -> Hello:
        role, spec = role_of(self._keys.name), self._spec
        newest = self._store.begin_sending() or ()
        return Hello(role, spec.hash, spec.as_dict(), self._run, self._actor, newest)

    def _is_due(self, kind: type, now_s: float) -> bool:
        return kind not in self._waiting and now_s >= self._due_s.get(kind, 0.0)

    def _send_rows(self) -> None:
        batch = self._store.pending(self._config.batch_bytes, self._config.batch_rows)
        if not batch:
            return
        size = sum(row.size for row in batch)
        if size > self._config.max_message_bytes - 64 * len(batch) - 1024:  # headers of each row
            self._refuse("too_big", "a row is larger than a message may be", f"{size} bytes")
            self._due_s[Rows] = self._now_s() + self._config.backoff_max_s
            return
        self._send(Rows(tuple(batch)))

    def _send(self, message: Message) -> None:
        self._sequence += 1
        if not self._wire.send(encode(message, self._sequence)):
            return  # the connection has just gone; a change will say so
        self._waiting[type(message)] = _Request(self._sequence, self._now_s())

    # -- receiving -------------------------------------------------------------------------------

    def _receive(self) -> None:
        for data in self._wire.received():
            try:
                sequence, message = decode(data)
            except CodecError:
                log.warning("dropped a malformed message of the learner", exc_info=True)
                continue
            except LinkError as error:
                self._refuse("protocol", error.summary, error.got)
                continue
            self._last_reply_s = now_s = self._now_s()
            is_awaited = False
            for kind, request in list(self._waiting.items()):
                if request.sequence == sequence:
                    self._round_trip_s, is_awaited = now_s - request.sent_s, True
                    del self._waiting[kind]
            if isinstance(message, Welcome) and not (message.has_newest or is_awaited):
                continue  # the learner lacks what an older HELLO named; a newer one names another
            self._take(message, now_s)

    def _take(self, message: Message, now_s: float) -> None:
        if isinstance(message, Welcome):
            self._take_welcome(message)
        elif isinstance(message, Refused):
            self._take_refusal(message, now_s)
        elif isinstance(message, Ack):
            self._take_ack(message, now_s)
        elif isinstance(message, Weights):
            self._take_weights(message)
        elif isinstance(message, Status):
            self._learner = dict(message.values)
        elif not isinstance(message, NoWeights):
            log.warning("the learner sent an unexpected %s", type(message).__name__)

    def _take_welcome(self, message: Welcome) -> None:
        if not message.has_newest and not self._go_back():
            return
        self._welcomed = True
        self.next_episode = message.next_episode
        self._backoff_s = FIRST_BACKOFF_S
        if message.session != self._learner_session:  # a restarted learner may count lower again
            self._learner_session, self._newer_than = message.session, -1
        if self.refusal is not None and self.refusal.code in _HANDSHAKE:
            self.refusal = None
        log.info("connected to the learner at %s", self._config.endpoint)

    def _go_back(self) -> bool:
        """The learner has lost rows; False: it is asked again which, or refused."""
        if self._store.rewind():
            log.error("the learner has lost rows that it had acknowledged: they are sent again")
            self._forget()  # the next HELLO asks for the newest row that was removed here
            return False
        if self._config.if_removed == "refuse":
            self._refuse("removed", "it lacks rows that were removed here", "no such rows there")
            self._due_s[Hello] = self._now_s() + self._config.backoff_max_s
            return False
        log.error("the learner lacks rows that were removed here: it gets what is left")
        self._store.send_again()
        return True

    def _take_ack(self, message: Ack, now_s: float) -> None:
        """Move the cursor; what the learner left out stays here, and is said loudly once."""
        for episode in self._store.set_aside(message.left_out) if message.left_out else ():
            log.error(
                "episode %d is not learned from: the learner has another one of that number. It "
                "stays in this store. Two actors with one name, or a store that was lost, cause "
                "this",
                episode.episode,
            )
        self._store.acknowledge(message.keys)
        self._left_out += len(message.left_out)
        self._last_ack_s = now_s
        self.refusal = None

    def _take_refusal(self, message: Refused, now_s: float) -> None:
        if message.code == "hello":
            self._forget()
            return
        got = "; ".join(message.diff) or message.reason
        summary = message.reason.splitlines()[0] if message.diff else REFUSALS.get(message.code, "")
        self._refuse(message.code, summary or "the learner refused", got)
        for kind in (Hello, Rows, Status, GetWeights):
            self._due_s[kind] = now_s + self._config.backoff_max_s

    def _take_weights(self, weights: Weights) -> None:
        if hashlib.sha256(weights.data).hexdigest() != weights.sha256:
            self._rejected += 1
            log.warning("weights %d do not match their hash; asking again", weights.version)
        elif weights.version > self._newer_than:
            self._newer_than = weights.version
            self.weights = weights

    def _refuse(self, code: str, summary: str, got: str) -> None:
        # a full disk is temporary; a tunnel whose far end is away looks like a wrong learner key,
        # and so does a machine that is just being paired
        passes = code == "store" or (
            code == "learner_key" and (self._key_was_right or self._config.paired)
        )
        error = (LinkError if passes else LinkSetupError)(
            f"the link to the learner is refused: {summary}",
            expected=f"the learner at {self._config.endpoint} accepts {self._keys.name}",
            got=got,
            fix=(_PAIRED_FIXES if self._config.paired else {}).get(code)
            or _FIXES.get(code, "see the learner's log"),
        )
        if self.refusal is None or self.refusal.code != code:
            log.error("%s", error)
        self.refusal = Refusal(code, error, permanent=not passes)

    def _publish_status(self, now_s: float) -> None:
        silent_s = now_s - self._last_reply_s
        round_trip, pending = self._round_trip_s, self._store.pending_count()
        self._has_drained |= self._welcomed and not pending
        self.status = {
            "connected": self._welcomed and silent_s < self._config.reply_timeout_s,
            "pending_rows": pending,
            "last_ack_age_s": None if self._last_ack_s is None else now_s - self._last_ack_s,
            "refused": None if self.refusal is None else str(self.refusal.error),
            "weights_version": self.weights.version if self.weights else -1,
            "weights_rejected": self._rejected,
            "rows_left_out": self._left_out,
            "round_trip_ms": None if round_trip is None else round_trip * 1e3,
            "learner": self._learner,
        }
