"""`robot-rl console`: the operator's web page for a run."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, existing_run, say
from robot_rl.errors import ConfigError, SetupError

TEXT = """
Serve the operator's page for a run: watch, take over, label, stop, review. The run is started by
somebody else (`robot-rl train ... runtime=ros operator=console`); the console may come and go.
It prints a link that works once; press Enter for another one, "o" Enter for one that only watches.
"""
EXAMPLES = """
robot-rl console runs/peg_insert/20260101-120000-s0
robot-rl console RUN --port 8088 --no-browser
ssh -L 8080:127.0.0.1:8080 robot-pc          from another machine; then open the link there
"""
AUDIT_FORMAT = "%(asctime)s %(message)s"


def run(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C."""
    parser = Parser("console", TEXT, EXAMPLES).with_run()
    parser.add_argument("--port", type=int, default=8080, metavar="N", help="default: 8080")
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address (default)")
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    args = parser.read(argv)
    run_dir = existing_run(args.run)
    check_loopback(args.host)
    check_free(args.host, args.port)
    serve = engine("robot_rl.console.serve:serve")
    _audit_to(run_dir / "audit.log")

    def started(invite: Any) -> None:
        link = f"http://{args.host}:{args.port}/enter?token="
        say(f"console of {run_dir}\n  {link}{invite('operator')}")
        if not args.no_browser:
            webbrowser.open(link + invite("operator"))
        if sys.stdin.isatty():
            threading.Thread(target=_more_links, args=(link, invite), daemon=True).start()

    serve(run_dir, args.host, args.port, started)
    return 0


def _more_links(link: str, invite: Any) -> None:
    """Another link for each line on the terminal."""
    for line in sys.stdin:
        role = "observer" if line.strip().startswith("o") else "operator"
        say(f"  {role}: {link}{invite(role)}")


def check_loopback(host: str) -> None:
    """Refuse to listen to the network: the page is plain HTTP and moves a robot.

    Raises:
        ConfigError: `host` is not a loopback address.
    """
    try:
        fine = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        fine = False
    if not fine:
        raise ConfigError(
            "the console listens to this machine only",
            expected="127.0.0.1, ::1 or localhost",
            got=host,
            fix="from another machine: ssh -L 8080:127.0.0.1:8080 robot-pc, then open the link",
        )


def check_free(host: str, port: int) -> None:
    """Raise `SetupError` when somebody else has the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SetupError(
                f"port {port} is taken",
                expected="a free port",
                got=str(error),
                fix=f"close the other console, or: robot-rl console RUN --port {port + 1}",
            ) from error


def _audit_to(path: Path) -> None:
    """Every command of every session, one line each."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(AUDIT_FORMAT))
    logging.getLogger("robot_rl.audit").addHandler(handler)
