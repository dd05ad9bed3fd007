"""The operator's pages that the studio has opened: one `robot-rl console RUN` for each run.

They end with the studio. Each prints a link that works once, and another for each line it is told.
"""

from __future__ import annotations

import queue
import re
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from robot_rl.console.address import HOST
from robot_rl.console.certificate import PageCertificate
from robot_rl.errors import SetupError
from robot_rl.studio.commands import PROGRAM, shown

LINK = re.compile(r"https?://\S+/enter\?token=[\w-]+")
START_S = 60.0  # it imports the task first
MOST = 8
PAGES = ("", "review")


@dataclass(slots=True)
class _Console:
    process: subprocess.Popen[str]
    links: queue.Queue[str] = field(default_factory=queue.Queue)
    said: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Take in what it prints, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := LINK.search(line):
                self.links.put(found[0])
            else:
                self.said = [*self.said, line.rstrip()][-12:]
        self.links.put("")


class Consoles:
    """Starts consoles, and asks them for links. They are served as the studio is: host, HTTPS."""

    def __init__(self, host: str = HOST, certificate: PageCertificate | None = None) -> None:
        self._options = [] if host == HOST else ["--host", host]
        if certificate is not None:
            self._options += ["--tls", str(certificate.key.parent)]
        self._consoles: dict[str, _Console] = {}
        self._lock = threading.Lock()

    def command(self, run: Path) -> list[str]:
        """The command that serves the page of a run, as a person would type it."""
        return ["console", str(run), *self._options]

    def link(self, name: str, run: Path, page: str) -> str:
        """A link to the page of a run; page: of `PAGES`, else the first.

        Raises:
            SetupError: the console does not start, or too many are open.
        """
        with self._lock:
            console = self._consoles.get(name)
            if console is not None and console.process.poll() is None:
                assert console.process.stdin is not None
                with suppress(OSError):
                    console.process.stdin.write("\n")
                    console.process.stdin.flush()
            else:
                console = self._consoles[name] = self._start(name, run)
            try:
                link = console.links.get(timeout=START_S)
            except queue.Empty:
                link = ""
        if not link:
            self.close(name)
            raise SetupError(
                f"the console of {name} did not open",
                expected="a link",
                got="\n    ".join(console.said) or f"nothing within {START_S:.0f} s",
                fix=f"see what it says in a terminal: {shown(self.command(run))}",
            )
        return link.replace("?", f"?page={page}&") if page in PAGES[1:] else link

    def _start(self, name: str, run: Path) -> _Console:
        self._consoles = {n: c for n, c in self._consoles.items() if c.process.poll() is None}
        if len(self._consoles) >= MOST:
            raise SetupError(
                "too many consoles are open",
                expected=f"at most {MOST}",
                got=", ".join(self._consoles),
                fix="start the studio again: they end with it",
            )
        process = subprocess.Popen(
            [*PROGRAM, *self.command(run), "--no-browser", "--links"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for the studio, which ends it
        )
        console = _Console(process)
        threading.Thread(target=console.listen, name=f"console {name}", daemon=True).start()
        return console

    def close(self, name: str) -> None:
        """End the console of a run, if there is one."""
        console = self._consoles.pop(name, None)
        if console is not None and console.process.poll() is None:
            console.process.terminate()

    def close_all(self) -> None:
        """End every console."""
        for name in list(self._consoles):
            self.close(name)
