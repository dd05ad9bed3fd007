"""The end of a process is known at once, and nothing else looks like one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from robot_rl.system.presence import Presence, own_process

SAYS = "from robot_rl.system.presence import own_process; print(own_process(), flush=True); input()"


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and its name."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SAYS], text=True, **pipes) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def test_a_killed_process_is_gone_at_once_and_a_frozen_one_is_not(
    other: tuple[subprocess.Popen[str], str],
) -> None:
    process, name = other
    presence = Presence()
    assert presence.watch(name) and not presence.gone()
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.05)
    assert not presence.gone()
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # nobody has collected it yet
    assert presence.gone() and presence.gone()
    process.wait()
    assert presence.watch(name) and presence.gone()  # it ended before it was watched
    assert presence.watch(own_process()) and not presence.gone()
    presence.close()
    assert not presence.gone()


def test_a_number_that_is_used_again_is_another_process() -> None:
    *words, started = own_process().split(" ")
    presence = Presence()
    assert presence.watch(" ".join((*words, str(int(started) + 1)))) and presence.gone()


HERE = " ".join(own_process().split(" ")[:2])


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "another-boot pid:[1] 1 1",
        "{here} -1 0",
        "{here} " + "9" * 40 + " 0",
        "{here} 1/../2 0",
        "{here} 1 0 more",
    ],
)
def test_who_is_not_of_this_machine_is_never_gone(name: str) -> None:
    presence = Presence()
    assert not presence.watch(name.format(here=HERE)) and not presence.gone()
    assert len(own_process()) < 128  # what the gate reads of it
