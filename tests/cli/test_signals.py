"""Signals end a command in order, as Ctrl-C does: SIGTERM, and SIGHUP of a closed terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.pairs import until

VERB = """
import sys, time
from pathlib import Path
from robot_rl.cli import main as program

def verb(words):
    Path("ready").touch()
    try:
        time.sleep(60)
    finally:
        time.sleep(0.5)
        print("a last word")
        Path("ended").touch()

program._dispatch = verb
sys.exit(program.main())
"""
SUSPENDED = """
import os, signal
from pathlib import Path
from robot_rl.ros.supervise import Supervisor
with Supervisor((), Path("run")):
    os.kill(os.getpid(), signal.SIGTSTP)
    print("awake", flush=True)
print(signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_verb_in_order_also_when_it_comes_twice(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen([sys.executable, "-c", VERB], cwd=tmp_path) as running:
        until((tmp_path / "ready").exists)
        running.send_signal(number)
        time.sleep(0.1)
        running.send_signal(number)
        assert running.wait(20) == 128 + number
    assert (tmp_path / "ended").exists()


def test_a_terminal_that_is_closed_ends_a_verb_in_order(tmp_path: Path) -> None:
    process, terminal = pty.fork()
    if process == 0:  # the child, with the terminal as its own
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "-c", VERB])
    until((tmp_path / "ready").exists)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert (tmp_path / "ended").exists()


def test_under_nohup_a_closed_terminal_ends_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["nohup", sys.executable, "-c", VERB], cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as running:
        until((tmp_path / "ready").exists)
        running.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert running.poll() is None and not (tmp_path / "ended").exists()
        running.terminate()
        assert running.wait(20) == 128 + signal.SIGTERM


def test_a_program_that_calls_us_keeps_its_own_signals() -> None:
    from robot_rl.cli.main import main

    before = signal.getsignal(signal.SIGTERM)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_z_does_not_leave_a_graph_without_a_supervisor(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SUSPENDED],
        cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["awake", "True"]
    assert "Ctrl-Z is ignored" in done.stderr
