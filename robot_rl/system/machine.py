"""What this machine contributes to a run: disk, real-time priority, shared memory.

Each check returns its status (ok, warn or fail), what it found, and the fix. `robot-rl doctor`
prints them for the machine, and for a robot whose arm this machine is to drive.
"""

from __future__ import annotations

import getpass
import shutil
from pathlib import Path

from robot_rl.system import priority

GIB = 2**30
Checked = tuple[str, str, str]
"""Status (ok, warn or fail), what was found, the fix ("" where there is nothing to fix)."""


def disk(folder: Path) -> Checked:
    """Room for what a run records. folder: where it records, or will."""
    there = next(path for path in (folder, *folder.resolve().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    text = f"{free / GIB:.1f} GiB free here"
    if free < 1 * GIB:
        return "fail", text, "free some space, or start in another folder"
    if free < 20 * GIB:
        return "warn", text, "a day of images needs about 20 GiB"
    return "ok", text, ""


def real_time() -> Checked:
    """Whether processes with deadlines may go before others."""
    if priority.allowed():
        return "ok", "nodes with deadlines run at real-time priority", ""
    rule = f"{getpass.getuser()} - rtprio {max(priority.PRIORITIES.values())}"
    return (
        "warn",
        "no real-time priority: nodes are late when the machine is busy",
        f"echo '{rule}' | sudo tee -a /etc/security/limits.conf, then log in again",
    )


def shared_memory() -> Checked:
    """Room for the pictures on their way between processes."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return "warn", "no /dev/shm", "ROS 2 will send images over UDP, slower"
    usage = shutil.disk_usage(folder)
    text = f"{usage.free / GIB:.2f} of {usage.total / GIB:.2f} GiB free"
    if usage.free < 0.25 * GIB:
        return (
            "warn",
            text,
            "docker run --shm-size=1g; leftovers of killed nodes: fastdds shm clean",
        )
    return "ok", text, ""
