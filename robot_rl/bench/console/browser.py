"""What the console's benchmarks share: the console's server as a process, a real browser, a clock.

The server is the process that a run starts (`robot_rl.run.console`), the browser a headless
Chromium as the distribution ships it. Times in the page and times in Python are compared on one
clock: both count CLOCK_MONOTONIC of this machine, and `clock_of` proves within what bounds they
agree.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

from robot_rl.errors import RobotRLError, SetupError
from robot_rl.link.panel import link_file
from robot_rl.run.experiment import Experiment
from robot_rl.system.supervised import SUPERVISOR_PID, end

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
"""The first that is there: what a person uses comes first."""
EXPERIMENT = "experiment=peg_insert_easy_pixels"  # wrist, front, and the scene as a third
SIZE = {"width": 1280, "height": 800}  # what the page is made for
START_S = 60.0  # a server starts in 1 to 2 s; a busy machine takes longer
PINGS = 200
AS_SUPERVISED = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
PACKAGES = {"fastapi": "console", "websockets": "console", "playwright": "dev"}
WATCH = """
(() => {  // before the page's own scripts: note, change nothing
  const bench = globalThis.bench = {};
  bench.forget = () => Object.assign(bench, { keys: [], trips: [], drawn: {} });
  bench.forget();
  addEventListener("keydown", (e) => { if (e.code === "Space" && !e.repeat) bench.keys.push(e.timeStamp); }, true);
  const Native = WebSocket;
  globalThis.WebSocket = class extends Native {
    constructor(...all) {
      super(...all);
      const name = String(all[0]).split("/ws/")[1];
      if (name === "control") {
        this.sent = [];
        this.addEventListener("message", () => bench.trips.push(performance.now() - this.sent.shift()));
      }
      if (name === "telemetry") {
        bench.telemetry = this;
        this.addEventListener("message", (e) => { bench.words = e.data; });
      }
    }
    send(data) {
      this.sent?.push(performance.now());
      super.send(data);
    }
  };
  const Helper = Worker;  // draws the cameras, and tells when it has
  globalThis.Worker = class extends Helper {
    constructor(path, options) {
      super(path, options);
      this.addEventListener("message", ({ data }) => (bench.drawn[options.name] ??= [])
        .push([data.number, data.drawn - performance.timeOrigin]));
    }
  };
})();
"""  # noqa: E501


@contextmanager
def run_folder() -> Iterator[Path]:
    """Yield the temporary folder of a run with three cameras, which is not started."""
    with tempfile.TemporaryDirectory(prefix="robot-rl-bench-") as name:
        yield Experiment.compose([EXPERIMENT, f"run_dir={name}/run"]).save()


@dataclass(frozen=True, slots=True)
class PageClock:
    """Page time to `time.monotonic`: seconds = `offset_s` + milliseconds of the page / 1000.

    bound_s: half the width of what the measurement allows for `offset_s`.
    """

    offset_s: float
    bound_s: float

    def seconds(self, page_ms: float) -> float:
        """A `performance.now()` or an event's `timeStamp` as `time.monotonic` seconds."""
        return self.offset_s + page_ms / 1e3


def need_browser() -> str:
    """Path of the browser.

    Raises:
        SetupError: the browser, or a package that the benchmarks drive it with, is missing.
    """
    for name, extra in PACKAGES.items():
        if importlib.util.find_spec(name) is None:
            raise SetupError(
                f"the console's benchmarks need the package '{name}'",
                expected=f"import {name} works",
                got="no such package",
                fix=f"run make setup, or: pip install 'robot-rl[{extra}]'",
            )
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SetupError(
            "the console's benchmarks need a browser",
            expected=f"one of {', '.join(BROWSERS)} on the PATH",
            got="none of them",
            fix="sudo apt-get install -y chromium",
        )
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium (playwright's `Browser`). Raises like `need_browser`."""
    path = need_browser()
    from playwright.sync_api import sync_playwright

    alone = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=alone)
        try:
            yield running
        finally:
            running.close()


def open_page(running: Any, link: str) -> Any:
    """The console's page with `WATCH` in it, once telemetry flows. Raises `RobotRLError`."""
    page = running.new_context(viewport=SIZE).new_page()
    page.add_init_script(WATCH)
    page.goto(link)
    until(lambda: page.evaluate("!!globalThis.robotRL?.robot"), "the page shows telemetry")
    return page


def take_seat(page: Any) -> None:
    """Become the driver. Raises `RobotRLError`."""
    page.keyboard.press("t")
    until(lambda: page.evaluate("robotRL.lease.mine && robotRL.control.heard"), "the seat is ours")


def clock_of(page: Any) -> PageClock:
    """How page time maps to `time.monotonic`.

    Chromium says when it began to count, on the machine's monotonic clock. This time is clipped to
    the bounds that `PINGS` questions for the time allow.
    """
    low_s, high_s = -math.inf, math.inf
    for _ in range(PINGS):
        asked_s = time.monotonic()
        now_s = page.evaluate("performance.now()") / 1e3
        low_s, high_s = max(low_s, asked_s - now_s), min(high_s, time.monotonic() - now_s)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    told = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    offset_s = min(max(told["NavigationStart"], low_s), high_s)
    return PageClock(offset_s, (high_s - low_s) / 2)


def until(
    what: Callable[[], Any],
    said: str,
    timeout_s: float = 20.0,
    instead: Callable[[], object] = lambda: "not yet",
) -> Any:
    """Wait until `what()` is true and return it.

    Raises:
        RobotRLError: it stays false; `instead()` says what is the case instead.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (value := what()):
        if time.monotonic() > deadline_s:
            raise RobotRLError(
                "the benchmark does not get on",
                expected=f"within {timeout_s:.0f} s: {said}",
                got=str(instead()),
                fix="let other programs end first; if that changes nothing, robot-rl doctor",
            )
        time.sleep(0.005)
    return value


def quantiles(name: str, values: Sequence[float], *percents: int) -> dict[str, float]:
    """`name_p50` and the like, each one of the values (one may be infinite); NaN without any."""
    if not len(values):
        return {f"{name}_p{p}": math.nan for p in percents}
    found = np.percentile(values, percents, method="higher")
    return {f"{name}_p{p}": float(v) for p, v in zip(percents, found, strict=True)}


class Server:
    """The console's server of a run as a process of its own, with the link it left.

    Only one server may be starting at a time; `link` waits until it serves. Use as a context
    manager.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        link_file(run_dir).unlink(missing_ok=True)
        logs = run_dir / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / "console.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "robot_rl.run.console", str(run_dir)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | AS_SUPERVISED | {SUPERVISOR_PID: str(os.getpid())},
            )
        self._link = ""

    @property
    def link(self) -> str:
        """The link that opens a session, once. Raises `RobotRLError` when none comes."""
        if not self._link:
            path = link_file(self._run_dir)
            until(lambda: path.is_file() or self._dead(), "the console leaves its link", START_S)
            link = path.read_text().strip()
            until(lambda: _serves(link) or self._dead(), "the console serves", START_S)
            self._link = link
        return self._link

    @property
    def url(self) -> str:
        """Where it serves, without a slash at the end."""
        return self.link.partition("/enter")[0]

    def _dead(self) -> bool:
        if self.process.poll() is not None:
            raise RobotRLError(
                "the console's server has ended",
                expected="a running process",
                got=f"exit code {self.process.returncode}",
                fix=f"read {self._run_dir / 'logs' / 'console.log'}",
            )
        return False

    def close(self) -> None:
        """End it; a dead one is only reaped."""
        end(self.process, 5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serves(link: str) -> bool:
    """Whether somebody listens there."""
    at = urlsplit(link)
    try:
        socket.create_connection((at.hostname or "", at.port or 0), timeout=1.0).close()
    except OSError:
        return False
    return True


@contextmanager
def served(run_dir: Path) -> Iterator[Callable[[], str]]:
    """The console's server of a run in a thread of this process; yields what makes links to it."""
    from robot_rl.console.address import HOST
    from robot_rl.console.remembered import Role
    from robot_rl.console.serve import server_of
    from robot_rl.run.console import about
    from robot_rl.system.ports import probe

    run = Experiment.load(run_dir)
    port = probe(HOST, 0)
    server, access = server_of(run_dir, HOST, port, about(run), run.mirror)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the console serves", START_S)
        yield lambda: f"http://{HOST}:{port}/enter?token={access.invite(Role.OPERATOR)}"
    finally:
        server.should_exit = True
        thread.join()
