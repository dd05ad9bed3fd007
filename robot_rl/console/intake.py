"""What anybody may ask of the page's server before it is known who asks: little, and soon.

People stop robots at this server. Nobody may use it up, neither a web page in some tab of the
operator's browser nor, over HTTPS, a machine of the network:

- A request has to be whole within `REQUEST_S`, a TLS handshake too.
- Connections that have not shown a session (`KNOWN` in a request's state) are counted; one too many
  ends the oldest. A person with a session is never turned away for the number of the others.
- Bodies are refused by their head, before a byte of them is read: `checked_body`.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Sequence
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 5.0
MAX_STRANGERS = 4096  # as far as the system allows as many open files
MAX_CONNECTIONS = MAX_STRANGERS + 1024  # with sockets; beyond, even a session gets status 503
KEPT_S = 600  # how long a connection of a session may be idle
MAX_BODY = 16 << 10  # bytes; the longest word of a page is a label
ACCEPTED = 16  # connections between two looks at the others: each can bring its session in time
QUEUE = 1024  # connections that wait to be accepted
FILES = 8192  # open files that the server may have, where the system allows it
KNOWN = "known"  # key of a request's state: it has shown a session
Headers = Sequence[tuple[bytes, bytes]]


class PageProtocol(H11Protocol):
    """HTTP/1.1 of the page, with an end to requests that do not come and to strangers.

    strangers: those of a server, oldest first; all its connections share it.
    """

    def __init__(self, *args: Any, strangers: dict[PageProtocol, None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.strangers = strangers
        self._most = min(MAX_STRANGERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._late: asyncio.TimerHandle | None = None
        self._is_socket = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A stranger comes; the oldest one too many goes."""
        super().connection_made(transport)
        self.strangers[self] = None
        if len(self.strangers) > self._most:
            next(iter(self.strangers)).end()
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the time that a request may take runs from its first part."""
        super().data_received(data)
        if self._is_socket:  # which h11 was not told: for it the request has not ended
            return
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._expect()
        else:
            self._came()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget this connection."""
        self._came()
        self.strangers.pop(self, None)
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Become a socket, which `doors.accept` keeps for a session only."""
        self._came()
        self._is_socket = True
        self.strangers.pop(self, None)
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """After the first request with a session, the connection is a stranger's no more."""
        if self.scope.get("state", {}).get(KNOWN):
            self.strangers.pop(self, None)
            self.timeout_keep_alive = KEPT_S  # so that a stop need not connect first
        super().on_response_complete()

    def end(self) -> None:
        """Close this connection now, whatever it is doing."""
        self.strangers.pop(self, None)
        self.transport.abort()

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self.end)

    def _came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class PageLoop(asyncio.SelectorEventLoop):
    """The event loop of the page's server."""

    async def create_server(self, *args: Any, **kwargs: Any) -> asyncio.Server:  # type: ignore[override]
        """As asyncio's; few connections are accepted between two looks at what known ones say."""
        kwargs["backlog"] = ACCEPTED
        if kwargs.get("ssl"):
            kwargs["ssl_handshake_timeout"] = REQUEST_S
        server = await super().create_server(*args, **kwargs)
        for listening in server.sockets:
            with listening.dup() as queue:
                queue.listen(QUEUE)  # asyncio waits for as many as it accepts at once
        return server


def allow_files() -> None:
    """Raise this process's limit of open files to `FILES`, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def checked_body(headers: Headers) -> tuple[int, str] | None:
    """(status, words) of a request whose body is refused; None if it may be read."""
    named = dict(headers)
    if b"transfer-encoding" in named:
        return 411, "a body without a length is not read"
    length = named.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 9 or int(length) > MAX_BODY:
        return 413, f"a body may have {MAX_BODY} bytes"
    return None
