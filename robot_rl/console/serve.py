"""Builds the console of a run and serves it until it is told to end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from robot_rl.console.access import Access, Role, Seat
from robot_rl.console.app import make_app
from robot_rl.console.certificate import PageCertificate
from robot_rl.console.doors import Console
from robot_rl.console.feed import Feed
from robot_rl.console.records import Records
from robot_rl.link.panel import seat_file
from robot_rl.system.audit import audit_into

SHUTDOWN_S = 1  # sockets of open pages do not keep the process alive
MAX_MESSAGE = 4096  # bytes of one WebSocket message from a page


def server_of(
    run_dir: Path,
    host: str,
    port: int,
    about: Mapping[str, Any],
    mirror: Callable[[], Any],
    *,
    certificate: PageCertificate | None = None,
) -> tuple[uvicorn.Server, Access]:
    """A server that is not running yet, and its `Access`. Arguments: see `serve`."""
    access = Access(Seat(seat_file(run_dir)))
    records = Records(run_dir, mirror)
    feed = Feed(run_dir, about, records.score)
    cookie = f"robot_rl_console_{port}"  # cookies ignore ports, and a host may have two consoles
    console = Console(
        feed=feed,
        records=records,
        access=access,
        hosts=hosts_of(host, port, certificate),
        cookie=cookie,
        certificate=certificate,
    )
    return server_for(make_app(console), host, port, certificate), access


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
        **tls,
    )
    return uvicorn.Server(config)


def serve(
    run_dir: Path,
    host: str,
    port: int,
    *,
    about: Mapping[str, Any],
    mirror: Callable[[], Any],
    started: Callable[[Any], None],
    certificate: PageCertificate | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Every command of every session becomes a line of audit.log.

    Args:
        about: what a page must know once: names, cameras, rates (`robot_rl.run.console.about`).
        mirror: makes the mirror that draws a simulated run's scenes; called when somebody looks.
        started: gets a function that makes links (role -> token).
        certificate: serve over HTTPS; None = plain HTTP, for this machine only.
    """
    audit_into(run_dir)
    server, access = server_of(run_dir, host, port, about, mirror, certificate=certificate)
    started(lambda role: access.invite(Role(role)))
    gc.freeze()  # as the nodes do (ros.runtime)
    server.run()
