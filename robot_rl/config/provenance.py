"""Where a run came from: git state, versions, machine. Saved beside every run and benchmark."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PAIRING = re.compile(r"\brrl\d+:\S+")  # as `robot-rl pair` prints it
PACKAGES = ("robot-rl", "numpy", "torch", "mujoco", "pyzmq", "gymnasium", "ros-jazzy-rclpy")


def collect() -> dict[str, Any]:
    """Return {"command", "git", "versions", "machine"}: plain and JSON-able.

    The command holds program name and arguments only; no user, host or path of the machine.
    """
    return {
        "command": command(),
        "git": git_state(),
        "versions": versions(),
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
        },
    }


def command() -> str:
    """What was typed, quoted for a shell: program name and arguments.

    A pairing string is a secret for ten minutes, and a run folder is passed on: it is left out.
    """
    return shlex.join(["robot-rl", *(PAIRING.sub("rrl1:...", word) for word in sys.argv[1:])])


def git_state() -> dict[str, Any]:
    """Commit and dirtiness of the checkout this package runs from; empty outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return {}

    def ask(*words: str) -> str:
        done = subprocess.run(
            [git, "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=False
        )
        return done.stdout.strip()

    return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on; absent ones are left out."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms, of those who ask only

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()
