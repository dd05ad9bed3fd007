"""Whether a process of this machine still runs, known at the next look and never by a guess.

A process names itself (`own_process`); another watches it by its pidfd, which the kernel makes
readable when the process has ended, whatever ended it. A machine that stalls does not look like an
end. A process on another machine or in another container cannot be watched: its silence has to
tell.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

_PROC = Path("/proc")


def own_process() -> str:
    """The name by which another process of this machine can watch this one; "" if none can.

    Four words: this start of the machine, the namespace in which the number of a process means
    something, the number, and when the process was started (in the kernel's ticks), as numbers are
    used again.
    """
    return process_of(os.getpid())


def process_of(pid: int) -> str:
    """The same name of another process of this machine; "" if there is none."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()} {pid} {_started(pid)}"
    except OSError:
        return ""  # no /proc, or it has ended


def _started(pid: int) -> str:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]


class Presence:
    """Watches one process."""

    def __init__(self) -> None:
        self._fd = -1
        self._gone = False

    def watch(self, process: str) -> bool:
        """Watch this process from now on, and no other.

        Args:
            process: its `own_process`. What is not the name of a process of this machine is never
                `gone`.

        Returns:
            Whether it can be watched.
        """
        self.close()
        words, own = process.split(" "), own_process().split(" ")
        if len(words) != 4 or words[:2] != own[:2] or not words[2].isdecimal():
            return False
        pid, started = int(words[2]), words[3]
        try:
            self._fd = os.pidfd_open(pid)
            self._gone = _started(pid) != started
        except (ProcessLookupError, FileNotFoundError):  # it has ended already
            self._gone = True
        except (OSError, OverflowError, AttributeError):  # a system without pidfd
            return False
        return True

    def gone(self) -> bool:
        """Whether the process has ended."""
        if not self._gone and self._fd >= 0:
            look = select.poll()
            look.register(self._fd, select.POLLIN)
            self._gone = bool(look.poll(0))
        return self._gone

    def signal(self, number: int) -> bool:
        """Send a signal to the process that is watched, and to no other; False = it has ended."""
        if self.gone() or self._fd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._fd, number)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Watch nobody."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._gone = -1, False


def runs_still(process: str) -> bool | None:
    """Whether a process (its `own_process`) still runs; None = it cannot be watched from here."""
    presence = Presence()
    try:
        return not presence.gone() if presence.watch(process) else None
    finally:
        presence.close()
