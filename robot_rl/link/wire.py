"""How the bytes of the actor's end travel: over ZeroMQ, or over whatever a test puts there.

A `Wire` carries whole messages in order while a connection lasts, and says when one begins or ends.
What was sent may be lost with a connection; `LinkSession` expects that.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Protocol

import zmq
from zmq.utils.monitor import parse_monitor_message

from robot_rl.link.auth import Keys
from robot_rl.link.config import LinkConfig


class Change(Enum):
    """What became of a connection."""

    ATTACHED = "attached"  # both ends have proved their keys
    REFUSED = "refused"  # the learner does not know this key
    FAILED = "failed"  # another end of a handshake
    ENDED = "ended"


_CHANGES = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: Change.ATTACHED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: Change.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: Change.FAILED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: Change.FAILED,
    zmq.EVENT_DISCONNECTED: Change.ENDED,
}


class Wire(Protocol):
    """One connection at a time to the learner. Call everything from one thread."""

    def wait(self, timeout_s: float) -> None:
        """Return when there is news, or after `timeout_s`."""

    def changes(self) -> Iterator[Change]:
        """What has become of the connection since the last call."""
        ...

    def received(self) -> Iterator[bytes | memoryview]:
        """Messages that have arrived."""
        ...

    def send(self, data: bytes) -> bool:
        """Send a message; False when there is no connection. Never waits."""
        ...

    def reopen(self) -> None:
        """Forget the connection, and begin another."""

    def close(self) -> None:
        """End it."""


class ZmqWire:
    """A DEALER socket with CURVE, and its monitor."""

    def __init__(self, config: LinkConfig, keys: Keys) -> None:
        self._config, self._keys = config, keys
        self._learner_key = keys.public_of("learner")
        self._context = zmq.Context()
        self._open()

    def wait(self, timeout_s: float) -> None:
        """See `Wire`."""
        self._poller.poll(int(timeout_s * 1e3))

    def changes(self) -> Iterator[Change]:
        """See `Wire`."""
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())["event"]
            yield _CHANGES[zmq.Event(event)]

    def received(self) -> Iterator[bytes | memoryview]:
        """See `Wire`."""
        while self._socket.poll(0):
            yield self._socket.recv(copy=False).buffer

    def send(self, data: bytes) -> bool:
        """See `Wire`."""
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def reopen(self) -> None:
        """See `Wire`."""
        self._close_socket()
        self._open()

    def close(self) -> None:
        """See `Wire`."""
        self._close_socket()
        self._context.term()

    def _open(self) -> None:
        """Open a socket. Every option is set before connect: ZeroMQ silently ignores later ones."""
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0  # unsent rows are in the store
        socket.immediate = True  # queue nothing for a learner that is not there
        socket.sndhwm = socket.rcvhwm = 16
        socket.maxmsgsize = self._config.max_weights_bytes
        socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 1_000  # ms
        socket.handshake_ivl = 5_000  # ms; ends a handshake that a damaged byte left waiting
        socket.heartbeat_ivl, socket.heartbeat_timeout = 5_000, 30_000  # ms
        socket.curve_serverkey = self._learner_key
        socket.curve_publickey, socket.curve_secretkey = self._keys.public, self._keys.secret
        self._monitor = socket.get_monitor_socket(sum(_CHANGES))
        socket.connect(self._config.endpoint)
        self._socket = socket
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    def _close_socket(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
