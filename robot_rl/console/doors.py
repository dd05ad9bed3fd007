"""Who comes in: known host, this page's origin, a session's cookie. For every route and socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, WebSocket
from fastapi.requests import HTTPConnection

from robot_rl.console.access import Access
from robot_rl.console.certificate import PageCertificate
from robot_rl.console.feed import Feed
from robot_rl.console.notes import Notes
from robot_rl.console.records import Records
from robot_rl.console.remembered import PageSession, Role
from robot_rl.errors import did_you_mean
from robot_rl.system.audit import audit

REFUSED = 4403  # close code of a socket that was not let in
SECRET = "x-robot-rl-page"  # header of a request that writes
SUBPROTOCOL = "page-"  # and before the secret among a socket's protocols
FRAGMENT = "page"  # of the address to which a link leads: no server ever sees it
NO_SESSION = "open the link that the terminal printed"


@dataclass(frozen=True, kw_only=True)
class Doors:
    """What every page of ours has.

    hosts: `name:port` under which the page is served; cookie: name of its cookie; certificate: the
    page is served over HTTPS.
    """

    access: Access
    hosts: frozenset[str]
    cookie: str
    certificate: PageCertificate | None = None

    @property
    def scheme(self) -> str:
        """http or https."""
        return "https" if self.certificate else "http"

    def foreign(self, host: str | None, origin: str | None) -> str:
        """Why a request is not one of this page's own, or ""; a None is not checked."""
        if host is not None and host not in self.hosts:
            return f"unknown host '{host}'"
        if origin is None:
            return ""
        parts = urlsplit(origin)
        if parts.netloc not in self.hosts or parts.scheme != self.scheme:
            return f"foreign origin '{origin}'"
        return ""

    def session(self, connection: HTTPConnection) -> PageSession | None:
        """The session that sends this request, or None."""
        browser = connection.headers.get("user-agent", "")
        return self.access.session(connection.cookies.get(self.cookie), browser)

    def page(self, connection: HTTPConnection) -> PageSession | None:
        """The session of a page of ours: it knows more than the cookie. None for anybody else.

        A browser sends the cookie to every port of this host, so whoever listens on another one
        can learn it; it is good for looking at pages and pictures, and for nothing that acts.
        """
        session = self.session(connection)
        if connection.scope["type"] == "websocket":
            told = offered(connection).removeprefix(SUBPROTOCOL)
        else:
            told = connection.headers.get(SECRET, "")
        return session if session is not None and session.knows(told) else None


@dataclass(frozen=True, kw_only=True)
class Console(Doors):
    """What routes and sockets of the operator's page share."""

    feed: Feed
    records: Records
    notes: Notes
    arm: str = ""  # which of several arms; "" = the only one

    def who(self, session: PageSession) -> str:
        """Who says something, and to which of several arms: for the audit log."""
        return f"{session.name}, {self.arm}" if self.arm else session.name


def cookie_name(page: str, port: int, certificate: PageCertificate | None = None) -> str:
    """Of a page at a port: cookies ignore ports and schemes, and a page keeps a secret for each."""
    return f"robot_rl_{page}_{port}{'_https' if certificate else ''}"


def offered(socket: HTTPConnection) -> str:
    """The protocol that a socket offers; a browser closes it unless it gets the same one back."""
    return socket.headers.get("sec-websocket-protocol", "")


def doors_of(connection: HTTPConnection) -> Doors:
    """The doors of this application."""
    return connection.app.state.doors


def console_of(connection: HTTPConnection) -> Console:
    """The console that this application is; with several arms, of the one that `?arm=` names.

    Raises:
        HTTPException: there is no such arm.
    """
    arms: Mapping[str, Console] = connection.app.state.arms
    name = connection.query_params.get("arm") or next(iter(arms))
    if name not in arms:
        raise HTTPException(404, f"no arm '{name}': {did_you_mean(name, arms)}")
    return arms[name]


def watcher(connection: HTTPConnection) -> PageSession:
    """A session of any role, or 401."""
    session = doors_of(connection).session(connection)
    if session is None:
        raise HTTPException(401, NO_SESSION)
    return session


def operator(session: Annotated[PageSession, Depends(watcher)]) -> PageSession:
    """A session that may drive and label, or 403."""
    if session.role is not Role.OPERATOR:
        raise HTTPException(403, "this link may only watch, and stop the robot")
    return session


async def accept(socket: WebSocket) -> PageSession | None:
    """Open a socket for a session of this page; close it for anybody else."""
    doors = doors_of(socket)
    session = doors.page(socket)
    refusal = doors.foreign(socket.headers.get("host", ""), socket.headers.get("origin", ""))
    try:
        if socket.app.state.arms:
            console_of(socket)
    except HTTPException as error:
        refusal = refusal or str(error.detail)
    if session is None or refusal:
        audit.warning("socket refused: %s", refusal or "no session")
        await socket.close(REFUSED, refusal or "no session")
        return None
    await socket.accept(subprotocol=offered(socket))
    return session


TheDoors = Annotated[Doors, Depends(doors_of)]
TheConsole = Annotated[Console, Depends(console_of)]
Watcher = Annotated[PageSession, Depends(watcher)]
Operator = Annotated[PageSession, Depends(operator)]
