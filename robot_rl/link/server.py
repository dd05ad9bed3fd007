"""The learner's end of the link: takes rows into the store, hands out weights and status.

One ROUTER socket, CURVE always: `poll` does a bounded amount of work and returns, so the learner
calls it between gradient updates. What is answered is in `link.answers`. Handshakes are answered by
a thread (`auth.guard`): a learner that loads or compiles for a minute must not look like a wrong
one.
"""

from __future__ import annotations

import logging
from typing import Self

import zmq

from robot_rl.errors import LinkError
from robot_rl.link.answers import Answers
from robot_rl.link.auth import Keys, guard, listen, require_key_folder
from robot_rl.link.config import LinkConfig
from robot_rl.link.roster import Roster
from robot_rl.spec import Spec
from robot_rl.store.store import Store

log = logging.getLogger(__name__)


class LinkServer(Answers):
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
        super().__init__(config, keys, spec, store, roster)
        self._names = {k: n for k, n in keys.peers.items() if n in self._peers}
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
        name = self._names[str(parts[-1].get("User-Id")).encode()]  # of its public key
        reply = self.answer(parts[0].bytes, name, [part.buffer for part in parts[1:]])
        if reply is None:
            return
        try:
            self._router.send_multipart([parts[0].bytes, reply], zmq.NOBLOCK)
        except zmq.Again:
            log.debug("%s does not read; it will ask again", name)
