"""The console as a supervised process: a link as long as it serves, and an end with the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from robot_rl.link.panel import link_file
from robot_rl.system.supervised import SUPERVISOR_PID
from tests.support.served import until

MODULE = "robot_rl.run.console"
SUPERVISOR = f"""
import os, subprocess, sys, time
os.environ["{SUPERVISOR_PID}"] = str(os.getpid())
child = subprocess.Popen([sys.executable, "-m", "{MODULE}", sys.argv[1]], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
START_S = 60.0  # a busy machine imports slowly


def lives(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def serves(run_dir: Path) -> bool:
    """Whether the page of the link answers."""
    if not link_file(run_dir).is_file():
        return False
    page = link_file(run_dir).read_text().partition("/enter")[0]
    try:
        return httpx.get(page).status_code == 401
    except httpx.TransportError:
        return False


@pytest.fixture
def supervisor(run_dir: Path) -> Iterator[Any]:
    """A process that has started a console; its `console` is the console's pid."""
    command = [sys.executable, "-c", SUPERVISOR, str(run_dir)]
    made: Any = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    made.console = int(made.stdout.readline())
    until(lambda: serves(run_dir), START_S)
    yield made
    for pid in (made.pid, made.console):
        if lives(pid):
            os.kill(pid, signal.SIGKILL)
    made.wait()
    made.stdout.close()


def test_the_console_ends_when_its_supervisor_was_killed(supervisor: Any, run_dir: Path) -> None:
    supervisor.kill()
    until(lambda: not lives(supervisor.console), 5.0)  # in about a second where nothing else runs
    assert not link_file(run_dir).exists()


def test_a_console_that_is_asked_to_end_takes_its_link_along(
    supervisor: Any, run_dir: Path
) -> None:
    os.kill(supervisor.console, signal.SIGTERM)
    until(lambda: not lives(supervisor.console), 5.0)
    assert not link_file(run_dir).exists()
