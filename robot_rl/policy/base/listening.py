"""What kind of program listens at a port: by its first bytes, before a client waits for nothing.

ZeroMQ greets whoever connects, and names its mechanism once it is greeted back (ZMTP 3.0); gRPC
(HTTP/2) begins with a frame of settings; HTTP, and so a websocket, waits for a request.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from enum import Enum

from robot_rl.errors import LinkError

GREETS_S = 0.5  # until a server that speaks first has done so
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"  # signature and version, no mechanism yet
GREETING_BYTES = 64
MECHANISM = slice(12, 32)  # of a greeting
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: robot-rl\r\nConnection: close\r\n\r\n"
SETTINGS = 4  # type of the frame with which HTTP/2 begins


class Listener(Enum):
    """What speaks there; the value is for people."""

    HTTP = "HTTP, as openpi and OpenVLA do"
    ZEROMQ = "ZeroMQ without keys, as GR00T does"
    CURVE = "ZeroMQ with keys, as robot-rl serve-policy does"
    GRPC = "gRPC, as LeRobot's own policy server does"
    OTHER = "something else"


def listener_at(host: str, port: int, timeout_s: float) -> Listener:
    """Connect, and look at what comes.

    Raises:
        LinkError: nobody listens there, or whoever does says nothing for `timeout_s`.
    """
    try:
        with socket.create_connection((host, port), timeout_s) as line:
            line.settimeout(GREETS_S)
            first = _read(line, 10)
            line.settimeout(timeout_s)
            if first[:1] == b"\xff" and first[9:10] == b"\x7f":
                line.sendall(GREETING)
                whole = first + _read(line, GREETING_BYTES - len(first))
                return Listener.CURVE if whole[MECHANISM][:5] == b"CURVE" else Listener.ZEROMQ
            if len(first) >= 4 and first[3] == SETTINGS and not first[0]:
                return Listener.GRPC
            if not first:
                line.sendall(REQUEST)
                first = _read(line, 5)
    except (OSError, UnicodeError) as error:
        raise LinkError(
            f"nobody can be reached at {host}:{port}",
            expected="a policy server that listens there",
            got=f"{type(error).__name__}: {error}"[:200],
            fix="start the server; check host and port, and for another machine the firewall, and "
            "that the server listens to an address of the network",
        ) from error
    if not first:
        raise LinkError(
            f"what listens at {host}:{port} says nothing",
            expected=f"an answer within {timeout_s:g} s",
            got="a connection, and silence",
            fix="look at the server's terminal: it may still be loading, or another program has "
            "the port",
        )
    return Listener.HTTP if first == b"HTTP/" else Listener.OTHER


def _read(line: socket.socket, count: int) -> bytes:
    """Up to `count` bytes; fewer if no more come in time."""
    found = b""
    with suppress(TimeoutError):
        while len(found) < count and (more := line.recv(count - len(found))):
            found += more
    return found
