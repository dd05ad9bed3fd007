"""`robot-rl keyboard`: drive from a terminal, on a machine without a browser."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, existing_run, say
from robot_rl.errors import LinkError, SetupError

TEXT = """
Drive a run from this terminal, as from the operator's page, and press its buttons for a leader arm
or an arm that is guided by hand. It takes the run's one seat. The run is started separately
(`robot-rl train ... runtime=ros operator=console`, gello, so101, leader or kinesthetic).

A terminal does not tell when a key is let go of. So a motion key is enough to drive: a tap is a
small step, a held key goes on while it repeats and ends 0.12 s after its last character; you keep
driving, standing still, until 0.8 s after it. Where this machine's own keyboard may be read (evdev,
group input), the keys are those of the page: hold Space to drive, and letting go counts at once.

keys:
  W S A D E Q     forward, back, left, right, up, down     with Shift: slow
  J L I K U O     turn and tilt
  Space           drive, and stand still
  C G             close, open the gripper                   Z   rewind (hold)
  Enter, Backspace   success, failure
  Esc             hold (this is not an emergency stop)
  R, Y, F         go on; acknowledge a stop; the robot may go to its start
  Ctrl C          leave the seat
"""
EXAMPLES = """
robot-rl keyboard runs/reach/20260101-120000-s0
ssh -t robot-pc robot-rl keyboard RUN          from another machine
"""
PERIOD_S = 0.02


def run(argv: Sequence[str]) -> int:
    """Drive until Ctrl-C is pressed, or the terminal is closed."""
    parser = Parser("keyboard", TEXT, EXAMPLES).with_run()
    parser.add_argument(
        "--typed", action="store_true", help="characters only, also where evdev may be read"
    )
    args: argparse.Namespace = parser.read(argv)
    run_dir = existing_run(args.run)
    if not sys.stdin.isatty():
        raise SetupError(
            "driving by keyboard needs a terminal",
            expected="a terminal as the input",
            got="a file or a pipe",
            fix="start it in a terminal of its own; over ssh: ssh -t HOST robot-rl keyboard RUN",
        )
    typed = engine("robot_rl.operate.typed:TypedKeys")(down=None if args.typed else _kernel())
    with _seat(run_dir), _keys_at_once(sys.stdin.fileno()), suppress(KeyboardInterrupt):
        asyncio.run(_drive(run_dir, typed, sys.stdin.fileno()))
    say("\nthe seat is free")
    return 0


def _kernel() -> Any:
    try:
        found = engine("robot_rl_hardware.keyboard:keyboards")()
    except SetupError:
        return None
    return found and found.down


@contextmanager
def _seat(run_dir: Path) -> Iterator[None]:
    """The run's one seat. Raises `SetupError` when somebody else has it."""
    from robot_rl.console.access import Seat
    from robot_rl.link.panel import seat_file

    seat = Seat(seat_file(run_dir))
    if not seat.take():
        raise SetupError(
            "somebody else has the seat of this run",
            expected="a free seat",
            got="a page or another terminal drives",
            fix="leave the seat there (T on the page, or Ctrl-C in that terminal), then start this "
            "again; a page that was closed gives it up after 30 s",
        )
    try:
        yield
    finally:
        seat.free()


@contextmanager
def _keys_at_once(fd: int) -> Iterator[None]:
    """Characters arrive as they are typed, unseen; Ctrl-C stays what it is."""
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def _drive(run_dir: Path, typed: Any, fd: int) -> None:
    """Send what the keys say at 50 Hz and at once; show what the robot side says."""
    from robot_rl.link.panel import ControlSender, Panel, socket_address

    panel, send = Panel(socket_address(run_dir, "view")), ControlSender(run_dir)
    news, shown = asyncio.Event(), asyncio.create_task(_show(panel, typed))
    loop = asyncio.get_running_loop()
    closed = False

    def read() -> None:
        nonlocal closed
        try:
            data = os.read(fd, 256)
        except OSError:  # the terminal has gone
            data = b""
        closed = closed or not data
        typed.type(data.decode(errors="replace"), time.monotonic())
        news.set()

    loop.add_reader(fd, read)
    asked: set[asyncio.Task[None]] = set()
    try:
        while not closed:
            axes, held = typed.said(time.monotonic())
            send.send(json.dumps({"axes": axes, "held": held}))
            while typed.commands:
                task = asyncio.create_task(_command(panel, typed.commands.pop(0)))
                asked.add(task)
                task.add_done_callback(asked.discard)
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), PERIOD_S)
            news.clear()
    finally:
        loop.remove_reader(fd)
        shown.cancel()
        send.close()
        await panel.close()


async def _command(panel: Any, verb: str) -> None:
    """Ask the robot side for what a key commands; a controller that stands is resumed first."""
    try:
        if verb == "acknowledge":
            view, _ = await panel.ask("view")
            verb = "resume" if view.get("stopped") else verb
        answer, _ = await panel.ask("command", verb=verb)
        say(f"\r\x1b[K{answer.get('said', verb)}")
    except LinkError as error:
        say(f"\r\x1b[K{verb}: {error.summary}")


async def _show(panel: Any, typed: Any) -> None:
    """One line: the word of the page, why the device does not drive, how keys are read."""
    from robot_rl.console.telemetry import SAYS, word_of

    while True:
        view = None
        with suppress(LinkError):
            view, _ = await panel.ask("view", timeout_s=0.5)
        word, reason = word_of(view)
        problem = (view or {}).get("device_problem") or ""
        how = "Space held drives" if typed.by_kernel else "a key drives"
        text = f"{SAYS[word]}  {problem or reason}".replace("\n", ", ")
        width = max(os.get_terminal_size(sys.stdout.fileno()).columns - len(how) - 6, 20)
        sys.stdout.write(f"\r\x1b[K{text[:width]}  [{how}]")
        sys.stdout.flush()
        await asyncio.sleep(0.2)
