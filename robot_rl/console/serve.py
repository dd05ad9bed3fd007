"""Builds the console of a run and serves it until it is told to end."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from robot_rl.console.access import PEOPLE, PRESENT_S, Access, Numbers, Seat
from robot_rl.console.app import make_app
from robot_rl.console.certificate import PageCertificate
from robot_rl.console.compatible import Agreement
from robot_rl.console.doors import Console, cookie_name
from robot_rl.console.feed import Feed
from robot_rl.console.intake import MAX_CONNECTIONS, QUEUE, PageProtocol, allow_files
from robot_rl.console.notes import Notes
from robot_rl.console.records import Records
from robot_rl.console.remembered import Remembered, Role
from robot_rl.console.shift import Shift
from robot_rl.link.panel import seat_file
from robot_rl.system.audit import audit_into

SHUTDOWN_S = 1  # sockets of open pages do not keep the process alive
MAX_MESSAGE = 4096  # bytes of one WebSocket message from a page


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What the page of one of several arms needs: its name, its folder; the rest as in `serve`."""

    arm: str
    run_dir: Path
    about: Mapping[str, Any]
    mirror: Callable[[], Any]


def server_of(
    run_dir: Path,
    host: str,
    port: int,
    about: Mapping[str, Any],
    mirror: Callable[[], Any],
    *,
    certificate: PageCertificate | None = None,
    arms: Sequence[Desk] = (),
    remembered: Remembered | None = None,
) -> tuple[uvicorn.Server, Access]:
    """A server that is not running yet, and its `Access`.

    remembered: see `Access`; other arguments: see `serve`.
    """
    desks = arms or (Desk(arm="", run_dir=run_dir, about=about, mirror=mirror),)
    cookie = cookie_name("console", port, certificate)
    access = Access(Seat(seat_file(desks[0].run_dir)), remembered, Numbers(run_dir / PEOPLE))
    consoles = []
    for desk in desks:
        records = Records(desk.run_dir, desk.mirror, run_dir)
        own = access.beside(Seat(seat_file(desk.run_dir))) if consoles else access
        consoles.append(
            Console(
                feed=Feed(desk.run_dir, desk.about, _looks(desk.run_dir, records, own), run_dir),
                records=records,
                notes=Notes(desk.run_dir),
                access=own,
                hosts=hosts_of(host, port, certificate),
                cookie=cookie,
                arm=desk.arm,
                certificate=certificate,
            )
        )
    return server_for(make_app(*consoles), host, port, certificate), access


def _looks(run_dir: Path, records: Records, access: Access) -> Callable[[], dict[str, Any]]:
    """What a console reads from the store now and then: who drove, and what models say now."""

    def driver() -> str:
        """Who drives now: not who has closed the page in the seat."""
        person = access.present(PRESENT_S)
        return person.author if person else ""

    shift = Shift(records, driver)
    agreement = Agreement(run_dir)

    def look() -> dict[str, Any]:
        shift.look()
        return {"score": records.score(), "agreement": agreement.read(records.store)}

    return look


def hosts_of(host: str, port: int, certificate: PageCertificate | None = None) -> frozenset[str]:
    """`name:port` under which a page that is served at this address may be asked for."""
    names = {host, "localhost"} if host in ("127.0.0.1", "::1") else {host}
    names |= set(certificate.names) if certificate else set()
    return frozenset(f"[{n}]:{port}" if ":" in n else f"{n}:{port}" for n in names)


def server_for(
    app: FastAPI, host: str, port: int, certificate: PageCertificate | None = None
) -> uvicorn.Server:
    """A server of an application that is not running yet; over HTTPS with a certificate."""
    tls: dict[str, Any] = {}
    if certificate is not None:
        tls = {"ssl_certfile": certificate.chain, "ssl_keyfile": certificate.key}
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        server_header=False,
        proxy_headers=False,
        http=partial(PageProtocol, strangers={}),  # type: ignore[arg-type]
        loop="robot_rl.console.intake:PageLoop",
        limit_concurrency=MAX_CONNECTIONS,
        **tls,
    )
    return uvicorn.Server(config)


def listen(server: uvicorn.Server) -> socket.socket:
    """Its socket, which `run(sockets=[...])` takes over, listens from here on.

    Whoever opens a link as soon as it is told waits for the page then, and is not refused.
    """
    listening = server.config.bind_socket()
    listening.set_inheritable(False)
    # asyncio does this for sockets that it has made itself; without, a short answer waits until the
    # page has said something more, which is a period of the control messages (20 ms)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.listen(QUEUE)
    return listening


def serve(
    run_dir: Path,
    host: str,
    port: int,
    *,
    about: Mapping[str, Any],
    mirror: Callable[[], Any],
    started: Callable[[Any], None],
    certificate: PageCertificate | None = None,
    arms: Sequence[Desk] = (),
) -> None:
    """Serve until SIGTERM or SIGINT. Every command of every session becomes a line of audit.log.

    Args:
        about: what a page must know once: names, cameras, rates (`robot_rl.run.console.about`).
        mirror: makes the mirror that draws a simulated run's scenes; called when somebody looks.
        started: gets a function that makes links (role -> token).
        certificate: serve over HTTPS; None = plain HTTP, for this machine only.
        arms: of a run with several: each gets a tab, with its own seat.
    """
    audit_into(run_dir)
    remembered = Remembered(run_dir, port)
    server, access = server_of(
        run_dir,
        host,
        port,
        about,
        mirror,
        certificate=certificate,
        arms=arms,
        remembered=remembered,
    )
    listening = listen(server)
    started(lambda role: access.invite(Role(role)))
    allow_files()
    gc.freeze()  # as the nodes do (ros.runtime)
    server.run(sockets=[listening])
