"""Builds the console of a run and serves it until it is told to end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from robot_rl.console.access import Access, Role
from robot_rl.console.app import make_app
from robot_rl.console.doors import Console, audit
from robot_rl.console.feed import Feed
from robot_rl.console.records import Records
from robot_rl.experiment import Experiment

SHUTDOWN_S = 1  # sockets of open pages do not keep the process alive
MAX_MESSAGE = 4096  # bytes of one WebSocket message from a page


def about(experiment: Experiment) -> dict[str, Any]:
    """What a page must know once: names, cameras, rates."""
    task = experiment.task
    images = list(getattr(task, "images", ()))
    return {
        "task": task.name,
        "run": experiment.run_dir.name,
        "cameras": [*images, "video"] if experiment.is_simulated else images,
        "control_hz": task.spec.control_hz,
    }


def server_of(run_dir: Path, host: str, port: int) -> tuple[uvicorn.Server, Access]:
    """A server that is not running yet, and who may come in."""
    experiment, access = Experiment.load(run_dir), Access()
    names = {host, "localhost"} if host in ("127.0.0.1", "::1") else {host}
    hosts = frozenset(f"[{n}]:{port}" if ":" in n else f"{n}:{port}" for n in names)
    console = Console(Feed(run_dir, about(experiment)), Records(run_dir), access, hosts)
    config = uvicorn.Config(
        make_app(console),
        host=host,
        port=port,
        log_level="warning",
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        server_header=False,
    )
    return uvicorn.Server(config), access


def serve(run_dir: Path, host: str, port: int, started: Callable[[Any], None]) -> None:
    """Serve; `started` gets a function that makes links (role -> token).

    Every command of every session becomes a line of the run's audit.log.
    """
    lines = logging.FileHandler(run_dir / "audit.log")
    lines.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    audit.addHandler(lines)
    audit.setLevel(logging.INFO)
    server, access = server_of(run_dir, host, port)
    started(lambda role: access.invite(Role(role)))
    server.run()
