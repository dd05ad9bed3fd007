"""Where the page is served: on this machine only, at a free port."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

from robot_rl.errors import ConfigError, SetupError
from robot_rl.system.ports import keep_name, probe

HOST, FIRST_PORT, PORTS = "127.0.0.1", 8080, 20


def check_loopback(host: str) -> None:
    """Refuse to listen to the network: a page over plain HTTP would move a robot.

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
            fix="from another machine: ssh -L 8080:127.0.0.1:8080 robot-pc, then open the link; a"
            " headset needs HTTPS: robot-rl keys FOLDER --page, then --tls FOLDER",
        )


def check_free(host: str, port: int) -> None:
    """Raise `SetupError` when the port is taken."""
    try:
        probe(host, port)
    except OSError as error:
        raise SetupError(
            f"port {port} is taken",
            expected="a free port",
            got=str(error),
            fix=f"close the other page, or choose another port: --port {port + 1}",
        ) from error


_kept: dict[int, socket.socket] = {}  # ports that `free_port` has given to this process


def free_port(first: int = FIRST_PORT, host: str = HOST) -> int:
    """The first free one of `PORTS` ports from `first` on; any other when all are taken.

    It is kept for this process from now on, not only from when it listens: two runs that are
    started together look for one at the same time, and import their tasks before they listen.
    """
    for port in range(first, first + PORTS):
        with suppress(OSError):
            found = probe(host, port)
            if found not in _kept:
                _kept[found] = keep_name(f"page/{found}")
            return found
    return probe(host, 0)
