"""Waiting for something that happens in another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from robot_rl.errors import RobotRLError


def wait_for(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Poll until `condition()` is truthy and return it. Raises `RobotRLError` when it is not."""
    give_up_s = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > give_up_s:
            raise RobotRLError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.005)
    return found
