"""No process outlives its supervisor: each knows the supervisor's process id, and checks for it."""

from __future__ import annotations

import os

SUPERVISOR_PID = "ROBOT_RL_SUPERVISOR_PID"  # environment variable that the supervisor sets


def supervisor_pid() -> int | None:
    """Process id of whoever supervises this process; None = it was started by hand."""
    said = os.environ.get(SUPERVISOR_PID, "")
    return int(said) if said.isdigit() else None


def orphaned(supervisor: int | None) -> bool:
    """Whether the supervisor is gone, kill -9 included; never when there was none."""
    return supervisor is not None and os.getppid() != supervisor
