"""`robot-rl console`: the operator's web page for a run."""

from __future__ import annotations

import argparse
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, existing_run, say
from robot_rl.console.address import FIRST_PORT, HOST, check_free, check_loopback, free_port

TEXT = """
Serve the operator's page for a run: watch, take over, label, stop, review. The run is started
separately (`robot-rl train ... runtime=ros operator=console`); the console may be stopped and
started again: pages that are open go on. It prints a link that works once; press Enter for another
link, or "o" and Enter for a link that only lets a person watch.
"""
EXAMPLES = """
robot-rl console runs/peg_insert/20260101-120000-s0
robot-rl console RUN --port 8088 --no-browser
robot-rl console RUN --tls ~/.config/robot-rl/page --host robot-pc.local    for a headset or a phone
ssh -L 8080:127.0.0.1:8080 robot-pc          from another machine; then open the link there
"""


def run(argv: Sequence[str]) -> int:
    """Serve the page until Ctrl-C is pressed."""
    return serve_page(Parser("console", TEXT, EXAMPLES), argv)


def serve_page(parser: Parser, argv: Sequence[str], page: str = "") -> int:
    """Serve a run's pages until Ctrl-C; the printed links lead to `page` of `app.PAGES`.

    Without --port it is the port where this run's pages were last, so that open ones find it again,
    or the first free one.

    Raises:
        ConfigError: there is no such run, or the address is not this machine's own.
        SetupError: the port is taken, or the console extra is not installed.
    """
    lasting_page_options(parser.with_run())
    args = parser.read(argv)
    run_dir = existing_run(args.run)
    port, certificate = place_of(args, run_dir)
    serve = engine("robot_rl.run.console:serve_run")
    title = f"{page or 'console'} of {run_dir}"
    started = link_teller(args, port, title, page=page, certificate=certificate, device="xr")
    serve(run_dir, args.host, port, started, certificate)
    return 0


def port_number(word: str) -> int:
    """The number of a port."""
    if not word.isdecimal() or int(word) > 65535:
        raise argparse.ArgumentTypeError(f"expected a number up to 65535, got {word!r}")
    return int(word)


def page_options(parser: Parser) -> None:
    """Add `--port`, `--host`, `--no-browser`."""
    default = f"default: the first free one from {FIRST_PORT} on"
    parser.add_argument("--port", type=port_number, metavar="N", help=default)
    parser.add_argument(
        "--host",
        default=HOST,
        help="a loopback address (default); with --tls a name of this machine",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    parser.add_argument(
        "--links",
        action="store_true",
        help="print another link for each line of standard input, also where that is no terminal",
    )


def lasting_page_options(parser: Parser) -> None:
    """Add `page_options`, and those of a page that open pages find again: `--forget`, `--tls`."""
    page_options(parser)
    parser.add_argument(
        "--forget", action="store_true", help="let no page in that was opened before this start"
    )
    parser.add_argument(
        "--tls", type=Path, metavar="FOLDER", help="serve over HTTPS (robot-rl keys FOLDER --page)"
    )


def place_of(args: argparse.Namespace, folder: Path) -> tuple[int, Any]:
    """The port, and the certificate if there is one, for `lasting_page_options`.

    folder: where it is remembered which pages were opened. Raises like `serve_page`.
    """
    certificate = None
    if args.tls is not None:
        certificate = engine("robot_rl.console.certificate:load")(args.tls.expanduser())
    last_port = engine("robot_rl.console.remembered:last_port")(folder)
    port = port_of(args, last_port or FIRST_PORT, certificate)
    if args.forget:
        engine("robot_rl.console.remembered:forget")(folder)
    return port, certificate


def port_of(args: argparse.Namespace, first: int = FIRST_PORT, certificate: Any = None) -> int:
    """The port to serve at: without --port the first free one from `first`.

    Raises like `serve_page`.
    """
    if certificate is None:
        check_loopback(args.host)
    else:
        engine("robot_rl.console.certificate:check_host")(certificate, args.host)
    if args.port is None:
        return free_port(first, args.host)
    check_free(args.host, args.port)
    return int(args.port)


def link_teller(
    args: argparse.Namespace,
    port: int,
    title: str,
    *,
    page: str = "",
    certificate: Any = None,
    device: str = "",
) -> Callable[[Callable[[str], str]], None]:
    """A function that prints and opens links to a server that has started, given what makes tokens.

    page: where the links lead (`app.PAGES`); device: where the one for a headset or a phone does.
    """
    host = f"[{args.host}]" if ":" in args.host else args.host
    root = f"{'https' if certificate else 'http'}://{host}:{port}"
    link, device_link = (
        f"{root}/enter?{f'page={name}&' if name else ''}token=" for name in (page, device)
    )

    def started(invite: Callable[[str], str]) -> None:
        say(f"{title}\n  {link}{invite('operator')}")
        if certificate:
            who = "headset or phone" if device else "phone or another computer"
            say(f"{who}\n  {device_link}{invite('operator')}")
            say(f"once for each device\n  {root}/trust   fingerprint {certificate.fingerprint}")
        if not args.no_browser:
            webbrowser.open(link + invite("operator"))
        if args.links or sys.stdin.isatty():
            threading.Thread(target=_more_links, args=(link, invite), daemon=True).start()

    return started


def _more_links(link: str, invite: Any) -> None:
    """Print another link for each line that is typed on the terminal."""
    for line in sys.stdin:
        role = "observer" if line.strip().startswith("o") else "operator"
        say(f"  {role}: {link}{invite(role)}")
