"""`robot-rl keyboard` on a pseudo terminal, beside a robot side that we play."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the console extra is not installed")

from robot_rl.console.access import Seat
from robot_rl.errors import ConfigError, SetupError
from robot_rl.link.panel import seat_file
from tests.support.ros import write_run
from tests.support.served import RobotSide


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", "console")


@pytest.fixture
def robot(run_dir: Path) -> Iterator[RobotSide]:
    side = RobotSide(run_dir)
    yield side
    side.close()


class Terminal:
    """The verb in a terminal of its own."""

    def __init__(self, run_dir: Path) -> None:
        self.keyboard, own = pty.openpty()
        tool = [sys.executable, "-m", "robot_rl.cli.main", "keyboard", str(run_dir), "--typed"]
        fresh = ["setsid", "--ctty"]
        self.process = subprocess.Popen([*fresh, *tool], stdin=own, stdout=own, stderr=own)
        os.close(own)
        self.screen = b""

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def read(self) -> str:
        os.set_blocking(self.keyboard, False)
        with suppress(OSError):
            self.screen += os.read(self.keyboard, 65536)
        return self.screen.decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keyboard)


@pytest.fixture
def terminal(run_dir: Path, robot: RobotSide) -> Iterator[Terminal]:
    made = Terminal(run_dir)
    until(lambda: robot.heard)
    yield made
    made.close()


def until(condition: Callable[[], Any], seconds: float = 15.0) -> Any:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if found := condition():
            return found
        time.sleep(0.01)
    pytest.fail("not in time")


def said(robot: RobotSide, word: str) -> list[dict[str, Any]]:
    return [what for _, what in robot.heard if word in what["held"]]


def test_keys_drive_speak_and_stop(terminal: Terminal, robot: RobotSide) -> None:
    assert robot.heard[0][1] == {"axes": [0.0] * 6, "held": []}
    terminal.type("w")
    driven = until(lambda: said(robot, "drive"))
    assert driven[0]["axes"][0] == 1.0
    until(lambda: not robot.heard[-1][1]["held"])
    times = [t for t, what in robot.heard if any(what["axes"])]
    assert 0.0 < times[-1] - times[0] < 0.4
    terminal.type("\r")
    until(lambda: said(robot, "success"))
    terminal.type("\x1b")
    until(lambda: said(robot, "hold") and robot.commands == ["hold"])
    terminal.type("ry")
    until(lambda: robot.commands == ["hold", "go", "acknowledge"])
    until(lambda: "go: done" in terminal.read() and "a key drives" in terminal.read())


def test_the_seat_is_taken_and_freed_whatever_ends_the_terminal(
    terminal: Terminal, run_dir: Path
) -> None:
    seat = Seat(seat_file(run_dir))
    assert not seat.take()
    terminal.type("\x03")
    assert terminal.process.wait(10.0) == 0
    assert seat.take()
    seat.free()


def test_a_terminal_that_is_closed_while_a_key_is_held_sends_nothing_more(
    terminal: Terminal, robot: RobotSide
) -> None:
    terminal.type("w")
    until(lambda: said(robot, "drive"))
    os.killpg(terminal.process.pid, signal.SIGHUP)
    terminal.process.wait(10.0)
    count = len(robot.heard)
    time.sleep(0.3)
    assert len(robot.heard) <= count + 1


def test_a_seat_that_is_taken_and_an_input_that_is_no_terminal_are_one_error(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robot_rl.cli.keyboard import run

    with pytest.raises(SetupError, match="needs a terminal") as told:
        run([str(run_dir)])
    assert "ssh -t" in told.value.fix
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    seat = Seat(seat_file(run_dir))
    assert seat.take()
    with pytest.raises(SetupError, match="somebody else has the seat") as taken:
        run([str(run_dir), "--typed"])
    assert "Ctrl-C in that terminal" in taken.value.fix
    seat.free()
    with pytest.raises(ConfigError):
        run([str(run_dir / "nothing")])
