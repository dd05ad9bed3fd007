"""`robot-rl console`: the operator's web page for a run."""

from __future__ import annotations

import sys
import threading
import webbrowser
from collections.abc import Sequence
from typing import Any

from robot_rl.cli.common import Parser, engine, existing_run, say
from robot_rl.console.address import FIRST_PORT, HOST, check_free, check_loopback, free_port

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


def run(argv: Sequence[str]) -> int:
    """Serve the page until Ctrl-C is pressed."""
    return serve_page(Parser("console", TEXT, EXAMPLES), argv)


def serve_page(parser: Parser, argv: Sequence[str], page: str = "") -> int:
    """Serve a run's pages until Ctrl-C; the printed links lead to `page` of `app.PAGES`.

    Without --port the console takes the port that its documentation names; another page, which may
    stand beside a running console, the first free one.

    Raises:
        ConfigError: no such run, or an address that is not this machine's own.
        SetupError: the port is taken, or the console extra is not installed.
    """
    default = "the first free one from" if page else "default:"
    parser.with_run().add_argument("--port", type=int, metavar="N", help=f"{default} {FIRST_PORT}")
    parser.add_argument("--host", default=HOST, help="a loopback address (default)")
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    args = parser.read(argv)
    run_dir = existing_run(args.run)
    check_loopback(args.host)
    port = args.port
    if port is None:
        port = free_port() if page else FIRST_PORT
    check_free(args.host, port)
    serve = engine("robot_rl.run.console:serve_run")
    host = f"[{args.host}]" if ":" in args.host else args.host
    link = f"http://{host}:{port}/enter?{f'page={page}&' if page else ''}token="

    def started(invite: Any) -> None:
        say(f"{page or 'console'} of {run_dir}\n  {link}{invite('operator')}")
        if not args.no_browser:
            webbrowser.open(link + invite("operator"))
        if sys.stdin.isatty():
            threading.Thread(target=_more_links, args=(link, invite), daemon=True).start()

    serve(run_dir, args.host, port, started)
    return 0


def _more_links(link: str, invite: Any) -> None:
    """Another link for each line on the terminal."""
    for line in sys.stdin:
        role = "observer" if line.strip().startswith("o") else "operator"
        say(f"  {role}: {link}{invite(role)}")
