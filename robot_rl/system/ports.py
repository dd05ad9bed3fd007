"""Ports that are free, and names that the kernel keeps for a process of this machine."""

from __future__ import annotations

import socket


def probe(host: str, port: int) -> int:
    """The port, if it is free (0: one that the system chooses). Raises `OSError` if it is not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        return found.getsockname()[1]


def keep_name(name: str) -> socket.socket:
    """Keep a name of ours for as long as the socket that is returned is open.

    It is an abstract Unix socket: the kernel frees the name with the process, also after kill -9,
    and tells who connects to it which process has it. Raises `OSError` while another one has it.
    """
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.bind(address_of(name))
        one.listen()
    except OSError:
        one.close()
        raise
    return one


def address_of(name: str) -> str:
    """Where a name of `keep_name` is."""
    return f"\0robot-rl/{name}"
