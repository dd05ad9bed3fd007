"""The whole ROS 2 graph in real time, with the operator's page open in a browser.

What runs is what `robot-rl train runtime=ros operator=console operator.with_script=true` starts:
simulated arm, gate, watchdog, operator, view, actor, learner and the page's server, which all live
to the end. A script helps where the policy fails. A headless Chromium shows the page and holds the
seat, so telemetry, pictures and control messages flow all the time; without a browser a program
that speaks as the page does takes its place. Nothing is killed.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.bench.console.browser import browser, open_page, take_seat
from robot_rl.bench.console.drive import ScriptedPage
from robot_rl.bench.console.page import kept
from robot_rl.bench.faults.soak_memory import (
    SAMPLES,
    Sampler,
    children,
    judge,
    line,
    read,
    words_of,
)
from robot_rl.bench.faults.soak_rows import Ledger, damage
from robot_rl.bench.faults.waiting import wait_for
from robot_rl.bench.faults.worlds import supervised
from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_METRICS, LEARNER_STORE, METRICS
from robot_rl.console.address import HOST
from robot_rl.errors import SetupError
from robot_rl.link.panel import link_file
from robot_rl.run.experiment import Experiment
from robot_rl.system.files import Tail
from robot_rl.system.ports import probe
from robot_rl.types import Command, Driver

if TYPE_CHECKING:
    from robot_rl.bench.faults.stopwatch import Stopwatch

LONG = 10_000_000  # steps and minutes that no soak reaches
WORDS = (
    *("experiment=peg_insert", "runtime=ros", "ros.real_time_factor=1.0", "train.demos=2"),
    *("operator=console", "operator.with_script=true"),
    *("algo.hidden=[64,64]", "algo.batch_size=64", "learner.utd=1"),
    "learner.capacity=2000",  # full within the warm-up: what grows after it is a leak
    *(f"train.max_env_steps={LONG}", f"train.min_env_steps={LONG}", f"train.max_minutes={LONG}"),
    "train.video=false",
)
START_S = 180.0  # until the policy drives
LOOK_S = 60.0  # between two looks at the page's memory, each of which costs it half a second
TURN_S = 1.0
MISSED = 1.5  # control periods between two commands: a tick was missed
RENDERER = "--type=renderer"
IN_PLACE = "a program that speaks as the page does"

Tell = Callable[[float], object]
"""Is told how many seconds have passed."""


class Periods:
    """Times between the commands of a driver, as they arrive at the gate's topic.

    A motion to a start begins anew: between episodes nobody waits for a command.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._before_s = math.nan

    def add(self, at_s: float, command: Command) -> None:
        """One more command, and when it had arrived."""
        if command.driver == Driver.RESET:
            self._before_s = math.nan
            return
        if not math.isnan(self._before_s):
            self.seconds.append(at_s - self._before_s)
        self._before_s = at_s

    def figures(self, period_s: float) -> dict[str, float]:
        """Ticks, the missed ones, and the times between commands in ms."""
        taken = np.asarray(self.seconds)
        if not taken.size:
            return {"control_ticks": 0}
        late = taken[taken > MISSED * period_s]
        p50, p99, p999 = np.percentile(taken, (50, 99, 99.9))
        return {
            "control_ticks": taken.size,
            "control_ticks_missed": int(np.round(late / period_s - 1).sum()),
            "gaps": late.size,
            "gap_ms_max": 1e3 * float(taken.max()),
            "period_ms_p50": 1e3 * float(p50),
            "period_ms_p99": 1e3 * float(p99),
            "period_ms_p999": 1e3 * float(p999),
        }


class Heap:
    """What the page keeps, look by look: bytes and nodes, at seconds since the beginning."""

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.bytes: list[float] = []
        self.nodes: list[float] = []

    def add(self, at_s: float, told: Mapping[str, float]) -> None:
        """One more look; a program in a browser's place keeps nothing."""
        self.at_s.append(at_s)
        if told:
            self.bytes.append(told["heap"])
            self.nodes.append(told["nodes"])

    def figures(self) -> dict[str, Any]:
        """Level and growth, with the verdict; nothing without a browser."""
        if not self.bytes:
            return {}
        nodes = {"page_nodes_first": self.nodes[0], "page_nodes_last": self.nodes[-1]}
        return {"page_heap": line(np.array(self.at_s), np.array(self.bytes)), **nodes}


def soak(minutes: float, folder: Path, tell: Tell = lambda _s: None) -> dict[str, Any]:
    """Run it; figures and verdicts. The run folder and its logs stay in `folder`.

    Raises:
        SetupError: no ROS 2.
        RobotRLError: the graph does not start.
    """
    from robot_rl.bench.faults.stopwatch import Stopwatch
    from robot_rl.ros import topics
    from robot_rl.ros.graph import free_domain
    from robot_rl.run.graph import need_ros, system_of

    need_ros()
    domain_id = free_domain()
    own = [f"link.port={probe(HOST, 0)}", f"ros.domain_id={domain_id}", f"run_dir={folder}/run"]
    experiment = Experiment.compose([*WORDS, *own])
    run_dir = experiment.save().resolve()
    graph = system_of(experiment)
    remaps = next(spec.remaps for spec in graph if spec.name == "gate")
    periods, heap = Periods(), Heap()
    ledger = Ledger(run_dir / ACTOR_STORE, run_dir / LEARNER_STORE)
    link = link_file(run_dir)
    with (
        supervised(graph, experiment) as supervisor,
        Stopwatch(domain_id, remaps, (topics.GATE_REQUEST,)) as stopwatch,
    ):
        wait_for(link.is_file, START_S, "the page's server leaves its link")
        with shown(link.read_text().strip()) as (page, look, page_pids):
            wait_for(lambda: _episodes(run_dir), START_S, "an episode of practice has ended")
            stopwatch.forget()
            with Sampler(lambda: {**supervisor.pids(), **page_pids()}, folder / SAMPLES) as sampler:
                began_s = time.monotonic()
                while (passed_s := time.monotonic() - began_s) < 60 * minutes:
                    tell(passed_s)
                    _collect(stopwatch, periods)
                    if passed_s >= LOOK_S * len(heap.at_s):
                        heap.add(passed_s, look())
                        ledger.read()
                    time.sleep(TURN_S)
                lives = sampler.lives()
        restarts = {name: count for name, count in supervisor.restarts().items() if count}
    ledger.read()
    damaged = damage(run_dir / ACTOR_STORE, run_dir / LEARNER_STORE)
    episodes = _episodes(run_dir)
    scripted = sum(x["episode/intervention_rate"] * x["episode/length"] for x in episodes)
    updates = [x["learner/updates"] for x in Tail(run_dir / LEARNER_METRICS).lines()]
    return {
        "minutes": passed_s / 60,
        "page": page,
        "episodes": len(episodes),
        "steps_driven_by_the_script": int(scripted),
        "gradient_updates": max(updates, default=0),
        **periods.figures(1.0 / experiment.task.spec.control_hz),
        "processes_that_ended": sum(restarts.values()),
        "wrong": [
            *(f"{name} was started again {count} times" for name, count in restarts.items()),
            *damaged,
        ],
        "stores_damaged": len(damaged),
        "rows": ledger.rows,
        **ledger.counts(),
        **heap.figures(),
        "processes": {label: judge(each) for label, each in sorted(lives.items())},
    }


def _episodes(run_dir: Path) -> list[dict[str, Any]]:
    """Metric lines of the episodes of practice so far."""
    return [x for x in Tail(run_dir / METRICS).lines() if "episode/success" in x]


def _collect(stopwatch: Stopwatch, periods: Periods) -> None:
    """Take over what has arrived, and drop the messages."""
    from robot_rl.ros import topics, wire

    arrived = stopwatch.heard[topics.GATE_REQUEST.name]
    count = len(arrived)
    for at_s, message in arrived[:count]:
        request = wire.decode_request(message.data)
        if isinstance(request, Command):
            periods.add(at_s, request)
    del arrived[:count]


Shown = tuple[str, Callable[[], dict[str, float]], Callable[[], Mapping[str, int]]]
"""Who shows the page; bytes and nodes that it keeps now; its processes by name."""


@contextmanager
def shown(link: str) -> Iterator[Shown]:
    """Open the page, and take the seat."""
    try:
        context = browser()
        running = context.__enter__()
    except SetupError:
        with ScriptedPage(link) as page, _answered(page):
            yield IN_PLACE, dict, dict
        return
    try:
        page = open_page(running, link)
        take_seat(page)
        session = page.context.new_cdp_session(page)
        renderer = max(filter(_renders, _family(os.getpid())), key=_resident)
        yield f"Chromium {running.version}", lambda: kept(page, session), lambda: {"page": renderer}
    finally:
        context.__exit__(None, None, None)


@contextmanager
def _answered(page: ScriptedPage) -> Iterator[None]:
    """Take telemetry and pictures as a page does, in a thread each."""
    sockets = [page.open("telemetry"), page.open("video/video")]

    def take(socket: Any, asks: bool) -> None:
        with suppress(Exception):  # the socket closes under us at the end
            while True:
                if asks:
                    socket.send("next")
                socket.recv()

    threads = [
        threading.Thread(target=take, args=(socket, i == 1), daemon=True)
        for i, socket in enumerate(sockets)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for socket in sockets:
            socket.close()


def _family(pid: int) -> list[int]:
    mine = children(pid)
    return [*mine, *(each for child in mine for each in _family(child))]


def _renders(pid: int) -> bool:
    return RENDERER in words_of(pid)


def _resident(pid: int) -> int:
    sample = read(pid, 0.0)
    return sample.resident if sample else 0
