"""A process and its supervisor: it never outlives the supervisor, and its exit code says why."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from typing import Any

from robot_rl.errors import ConfigError, RobotRLError, SetupError, SpecError, StoreError

log = logging.getLogger(__name__)

EXIT_SETUP = 2  # a restart changes nothing; as in robot_rl.cli and the ROS nodes
SUPERVISOR_PID = "ROBOT_RL_SUPERVISOR_PID"  # environment variable that the supervisor sets


def supervisor_pid() -> int | None:
    """Process id of whoever supervises this process; None = it was started by hand."""
    said = os.environ.get(SUPERVISOR_PID, "")
    return int(said) if said.isdigit() else None


def orphaned(supervisor: int | None) -> bool:
    """Whether the supervisor is gone, kill -9 included; never when there was none."""
    return supervisor is not None and os.getppid() != supervisor


def end(process: subprocess.Popen[Any], patience_s: float) -> None:
    """Ask a process to end, and reap it; one that takes longer is killed."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def exit_code(work: Callable[[], int | None]) -> int:
    """`main` of a process that is no ROS node: a `RobotRLError` becomes one clear message.

    Returns what `work` returns (None = 0), 1 (failed while running: worth a restart) or
    `EXIT_SETUP` (a restart is no help). A link that fails is worth one, as when a learner is late.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        return work() or 0
    except (ConfigError, SetupError, SpecError, StoreError) as error:
        log.error("%s", error)
        return EXIT_SETUP
    except RobotRLError as error:
        log.error("%s", error)
        return 1
