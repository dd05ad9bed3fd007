"""The console's server, a process of its own: the page, its sockets, its commands.

    GET  /enter?token=...      a one-time link becomes a strict cookie; &page=review: leads there
    GET  /  /review  /xr       the pages; everything they need is served from here, offline
    GET  /trust  /ca.crt       over HTTPS: how a device learns to trust this page
    WS   /ws/...               `sockets.py`
    GET, POST  /api/...        `api.py`

Everything but /enter, /trust, /ca.crt and the static files needs the cookie; sockets and POST also
need the page's secret and an Origin of this page, and every request a host name under which the
page is served (`doors.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.requests import HTTPConnection
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from robot_rl.console import api, intake, sockets
from robot_rl.console.access import NOTE_S, Access
from robot_rl.console.doors import FRAGMENT, NO_SESSION, Console, Doors, TheDoors, Watcher
from robot_rl.errors import LinkError, RobotRLError
from robot_rl.system.audit import audit

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
STATIC = Path(__file__).with_name("static")
PAGES = {
    "": "/",
    "review": "/review",
    "xr": "/xr",
}  # where a link may lead; never an address that a link names
COOKIE_S = 30 * 24 * 3600
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(console: Console, *others: Console) -> FastAPI:
    """The application around a console, or around those of several arms."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for one in (console, *others):
                stack.callback(one.records.close)
                await stack.enter_async_context(one.feed.running())
                stack.callback(asyncio.create_task(_offer_seat(one.access)).cancel)
            yield

    app = guarded(console, "robot-rl console", "index.html", lifespan)
    app.state.arms = {one.arm: one for one in (console, *others)}
    app.include_router(api.router)
    app.include_router(sockets.router)
    app.get("/review")(review)
    app.get("/xr")(headset)
    return app


async def _offer_seat(access: Access) -> None:
    """A page that was closed in the seat keeps no terminal and no other console out for good."""
    while True:
        access.offer()
        await asyncio.sleep(NOTE_S)


def guarded(doors: Doors, title: str, first: str, lifespan: Lifespan | None = None) -> FastAPI:
    """An application behind our doors: links, cookies, origins, strict headers, static files.

    first: file of its first page.
    """

    async def page(request: Request) -> Response:
        """The first page; without a session the page that says how to get one."""
        if doors.session(request) is None:
            return FileResponse(STATIC / "refused.html", 401)
        return FileResponse(STATIC / first)

    app = FastAPI(title=title, lifespan=lifespan, docs_url=None, openapi_url=None)
    app.state.doors = doors
    app.state.arms = {}  # of a page without a run
    app.add_middleware(Guard, doors=doors)
    app.exception_handler(RobotRLError)(_explain)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.get("/enter")(enter)
    app.get("/trust")(trust)
    app.get("/ca.crt")(authority)
    app.get("/")(page)
    return app


async def enter(request: Request, doors: TheDoors, token: str = "", page: str = "") -> Response:
    """Open a session with a token, once. page: one of `PAGES`; any other leads to the first."""
    address = PAGES.get(page, PAGES[""])
    if secret := doors.access.reenter(token, doors.session(request)):
        return RedirectResponse(f"{address}#{FRAGMENT}={secret}", 303)
    entry = doors.access.enter(token, request.headers.get("user-agent", ""))
    if entry is None:
        audit.warning("a link was refused: wrong, or used before")
        return FileResponse(STATIC / "refused.html", 403)
    audit.info("%s entered", entry.session.name)
    response = RedirectResponse(f"{address}#{FRAGMENT}={entry.secret}", 303)
    secure = doors.certificate is not None
    response.set_cookie(
        doors.cookie,
        entry.cookie,
        max_age=COOKIE_S,  # the server decides when a session is over
        httponly=True,
        samesite="strict",
        secure=secure,
    )
    return response


async def review(_: Watcher) -> Response:
    """The review page."""
    return FileResponse(STATIC / "review.html")


async def headset(_: Watcher) -> Response:
    """The page of headsets and phones."""
    return FileResponse(STATIC / "xr.html")


async def trust() -> Response:
    """How a device learns to trust this page; it holds nothing of the run."""
    return FileResponse(STATIC / "trust.html")


async def authority(doors: TheDoors) -> Response:
    """The public certificate that a device installs."""
    if doors.certificate is None:
        raise HTTPException(404, "this page is not served over HTTPS, which --tls does")
    return FileResponse(doors.certificate.ca, media_type="application/x-x509-ca-cert")


class Guard:
    """What every request passes before anything of it is read, as ASGI middleware.

    Known host; writes only from this page, with a session and a short body; strict headers on every
    answer.
    """

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self._app, self._doors = app, doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the class. Sockets pass: they are `doors.accept`'s."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        session = self._doors.session(request)
        scope.setdefault("state", {})[intake.KNOWN] = session is not None

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope, request, session is not None)
        if refusal is None:
            await self._app(scope, receive, strict)
            return
        status, words = refusal
        # what comes after the head of a refused request is not even read
        answer = JSONResponse({"error": words}, status, {"Connection": "close"})
        await answer(scope, receive, strict)

    def _refusal(
        self, scope: Scope, request: HTTPConnection, known: bool
    ) -> tuple[int, str] | None:
        """(status, words) for who is not let in; None for who is."""
        writes = scope["method"] not in ("GET", "HEAD")
        origin = request.headers.get("origin", "") if writes else None
        foreign = self._doors.foreign(request.headers.get("host", ""), origin)
        if foreign:
            audit.warning("%s %s refused: %s", scope["method"], scope["path"], foreign)
            return 403, foreign
        if writes and (not known or self._doors.page(request) is None):
            return 401, NO_SESSION
        return intake.checked_body(scope["headers"])


async def _explain(_: Request, error: Exception) -> Response:
    """Answer with one of our errors: what was expected, what was got, how to fix it."""
    return JSONResponse({"error": str(error)}, 503 if isinstance(error, LinkError) else 409)
