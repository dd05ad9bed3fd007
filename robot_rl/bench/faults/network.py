"""A network between two machines, as a TCP proxy: delay, lost segments, an outage.

    python -m robot_rl.bench.faults.network LISTEN:PORT TARGET:PORT

then on standard input "delay S" (one way), "loss P", "down", "up"; each is answered with the counts
of segments and of lost ones so far.

The kernel here has no `tc netem`, so a lost segment is what TCP makes of one: everything behind it
in its direction waits until it has been sent again. Each 1,448 bytes are a segment; with the chance
`loss` one is lost and costs a retransmission time-out, which in Linux is at least 200 ms (RFC 6298
and the kernel's TCP_RTO_MIN). That is the worst case: with fast retransmission most losses cost one
round trip. In an outage nothing passes, in either direction, and nobody is told.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import sys
import threading
import time
from collections import deque
from typing import Self

SEGMENT = 1448  # bytes of payload in a frame of 1,500
RTO_S = 0.2
BUFFER = 4 << 20  # bytes under way in one direction; then the sender has to wait


class _Way:
    """One direction of one connection: bytes that are under way."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.under_way: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.free_s = 0.0  # nothing arrives before what was sent earlier
        self.ended = False


class Network:
    """Forwards TCP connections from `listen` to `target`, badly. A thread; use with `with`.

    Args:
        delay_s: one way.
        loss: chance that a segment has to be sent again.
    """

    def __init__(
        self,
        listen: tuple[str, int],
        target: tuple[str, int],
        delay_s: float = 0.0,
        loss: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.delay_s, self.loss = delay_s, loss
        self.down = False
        self.lost = self.segments = 0
        self._target, self._random = target, random.Random(seed)
        self._listener = socket.create_server(listen)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ways: dict[socket.socket, _Way] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._closing:
            if self.down:
                time.sleep(0.01)
                continue
            for key, _ in self._selector.select(0.001):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._ways:
                    self._take(self._ways[key.fileobj])  # type: ignore[index]
            for way in list(self._ways.values()):
                self._deliver(way)
        for way in list(self._ways.values()):
            self._drop(way)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target, timeout=1.0)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ways[one] = _Way(one, other)
            self._selector.register(one, selectors.EVENT_READ)

    def _take(self, way: _Way) -> None:
        if way.ended or way.size > BUFFER:
            return
        try:
            data = way.source.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            way.ended = True
            self._selector.unregister(way.source)
            return
        segments = -(-len(data) // SEGMENT)
        lost = sum(self._random.random() < self.loss for _ in range(segments))
        self.segments, self.lost = self.segments + segments, self.lost + lost
        way.free_s = max(way.free_s, time.monotonic() + self.delay_s) + lost * RTO_S
        way.under_way.append((way.free_s, data))
        way.size += len(data)

    def _deliver(self, way: _Way) -> None:
        now_s = time.monotonic()
        while way.under_way and way.under_way[0][0] <= now_s:
            due_s, data = way.under_way.popleft()
            try:
                sent = way.target.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop(way)
                return
            way.size -= sent
            if sent < len(data):
                way.under_way.appendleft((due_s, data[sent:]))
                return
        if way.ended and not way.under_way:
            self._drop(way)

    def _drop(self, way: _Way) -> None:
        for end in (way.source, way.target):
            if self._ways.pop(end, None) is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(end)
                end.close()


def _address(text: str) -> tuple[str, int]:
    host, port = text.rsplit(":", 1)
    return host, int(port)


def main() -> None:
    """Forward until standard input ends."""
    listen, target = sys.argv[1:]
    with Network(_address(listen), _address(target)) as net:
        for line in sys.stdin:
            word, *values = line.split()
            if word == "delay":
                net.delay_s = float(values[0])
            elif word == "loss":
                net.loss = float(values[0])
            else:
                net.down = word == "down"
            sys.stdout.write(f"{net.segments} {net.lost}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
