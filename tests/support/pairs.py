"""Small helpers of the tests of two machines."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on now."""
    with socket.create_server((host, 0)) as server:
        return server.getsockname()[1]


def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Wait for a condition; fail after `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)
