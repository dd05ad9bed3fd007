"""Runs the cases of the fault table, within a budget in two lanes, and takes their results.

    results = run(chosen(["gate_killed", "21"]), 120.0, print)

Whatever else the machine does meanwhile shows in the figures: `others` is its share.
"""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from robot_rl.bench.faults.case import (
    NOT_MET,
    NOT_RUN,
    Case,
    Context,
    Figure,
    Measured,
    NotHereError,
    Result,
    judge,
)
from robot_rl.bench.faults.machine import Watch
from robot_rl.bench.faults.table import facts_of, line
from robot_rl.bench.faults.worlds import WORLDS, Worlds
from robot_rl.errors import LinkError, RobotRLError, SetupError

log = logging.getLogger(__name__)

NOTHING = Measured((), 0)
SHARE = 0.3  # of a budget that cases get: graphs that start, and least samples, take the rest


def run(
    some: Sequence[Case],
    seconds: float,
    tell: Callable[[str], None] = lambda text: None,
    keep: Callable[[Sequence[Result]], None] = lambda results: None,
) -> list[Result]:
    """Measure cases within about `seconds` (infinite: with their full samples).

    tell: gets a line when a case has ended; keep: all results so far, by number, so that a table
    of hours that is interrupted is not lost. Returns the results by number.

    With a budget, cases that need no graph run in a process beside, which gives way to the graph;
    without one nothing runs beside anything.
    """
    first, beside = lanes(some) if math.isfinite(seconds) else (in_order(some), ())
    count = Counter(len(some), tell, keep)
    with Lane(beside, seconds, count) if beside else nullcontext() as lane:
        results = run_lane(first, seconds, count)
    results += lane.results if lane else []
    return by_number(results)


def by_number(results: Sequence[Result]) -> list[Result]:
    """In the order of the table."""
    return sorted(results, key=lambda result: result.case.number)


def in_order(some: Sequence[Case]) -> tuple[Case, ...]:
    """World by world, by number in each; those without a world last."""
    worlds = [*WORLDS, ""]
    return tuple(sorted(some, key=lambda case: (worlds.index(case.world), case.number)))


def lanes(some: Sequence[Case]) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Cases that use a shared graph, and those that may run beside; the second may be empty."""
    with_graph = tuple(case for case in in_order(some) if case.world)
    beside = tuple(case for case in in_order(some) if not case.world)
    return (with_graph, beside) if with_graph else (beside, ())


class Counter:
    """Tells how far a table is. total: cases in it. Both lanes may call it."""

    def __init__(
        self,
        total: int,
        tell: Callable[[str], None],
        keep: Callable[[Sequence[Result]], None] = lambda results: None,
    ) -> None:
        self._total, self._tell, self._keep = total, tell, keep
        self._done: list[Result] = []
        self._lock = threading.Lock()

    def __call__(self, result: Result) -> None:
        """Tell about a case that has ended."""
        with self._lock:
            self._done.append(result)
            case = result.case
            head = f"[{len(self._done):2}/{self._total}] {case.number:2} {case.title}"
            self._tell(f"{head}: {line(result)}")
            self._keep(by_number(self._done))


def run_lane(
    queue: Sequence[Case],
    seconds: float,
    done: Callable[[Result], None],
    root: int | None = None,
) -> list[Result]:
    """Measure cases one after the other, in this order. root: see `machine.Watch`."""
    weights = sum(case.weight for case in queue)
    results: list[Result] = []
    temporary = tempfile.TemporaryDirectory(prefix="robot-rl-faults-")
    with temporary as folder, Worlds(Path(folder)) as worlds:
        for case in queue:
            own = Path(folder) / f"case-{case.number}"
            own.mkdir()
            allowed_s = seconds * SHARE * case.weight / weights
            results.append(measure(case, own, allowed_s, worlds, root))
            done(results[-1])
    return results


class Lane:
    """Cases that run in a process beside; `results` when it has ended.

    It ends with its `with` block, which waits for it.
    """

    def __init__(
        self, queue: Sequence[Case], seconds: float, done: Callable[[Result], None]
    ) -> None:
        self.results: list[Result] = []
        self._known, self._done = {case.number: case for case in queue}, done
        words = [str(seconds), *(str(case.number) for case in queue)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "robot_rl.bench.faults.beside", *words],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for said in self._process.stdout:
            result = read(said, self._known)
            if result is not None:
                self.results.append(result)
                self._done(result)

    def __enter__(self) -> Lane:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:  # interrupted
            self._process.terminate()
        self._thread.join()
        self._process.wait()
        told = {result.case.number for result in self.results}
        for case in (case for number, case in self._known.items() if number not in told):
            why = f"the process that measures it ended with code {self._process.returncode}"
            self.results.append(Result(case=case, verdict=NOT_MET, measured=NOTHING, reason=why))


def write(result: Result) -> str:
    """A result on one line of JSON, for `read`."""
    return json.dumps(facts_of(result))


def read(text: str, known: Mapping[int, Case]) -> Result | None:
    """The result that `write` has written; None = another line."""
    try:
        said = json.loads(text)
        case = known[said["number"]]
        figures = tuple(
            Figure(f["name"], math.nan if f["value"] is None else f["value"], f["unit"])
            for f in said["figures"]
        )
    except (ValueError, KeyError, TypeError):
        return None
    return Result(
        case=case,
        verdict=said["verdict"],
        measured=Measured(figures, said["n"], said["note"]),
        reason=said["reason"],
        seconds=said["seconds"],
        others=math.nan if said["others"] is None else said["others"],
    )


def measure(
    case: Case, folder: Path, allowed_s: float, worlds: Worlds, root: int | None = None
) -> Result:
    """Measure one case; nothing that goes wrong in it ends the table."""
    watch, begun_s = Watch(root), time.monotonic()
    measured = NOTHING
    try:
        context = Context(case, folder, allowed_s, worlds)
        measured = _with_void(case.measure(context), context.made_again)
        verdict, reason = judge(case, measured)
    except (NotHereError, SetupError) as error:
        lacking = not isinstance(error, LinkError)  # a link that refuses us is no lack of a machine
        verdict, reason = NOT_RUN if lacking else NOT_MET, _one_line(error)
    except RobotRLError as error:
        verdict, reason = NOT_MET, _one_line(error)
    except Exception as error:  # a defect of the case must not pass for a promise that was kept
        log.debug("case %d failed", case.number, exc_info=error)
        verdict, reason = NOT_MET, f"{type(error).__name__}: {error}"
    if verdict == NOT_MET:
        worlds.spoil()  # who knows in which state it was left
    seconds = time.monotonic() - begun_s
    return Result(
        case=case,
        verdict=verdict,
        measured=measured,
        reason=reason,
        seconds=seconds,
        others=watch.others(),
    )


def _with_void(measured: Measured, made_again: int) -> Measured:
    """With a note of the trials that something disturbed."""
    if not made_again:
        return measured
    again = f"{made_again} disturbed {'trial was' if made_again == 1 else 'trials were'} made again"
    return replace(measured, note="; ".join(filter(None, (measured.note, again))))


def _one_line(error: RobotRLError) -> str:
    more = [text for text in (error.got, error.fix) if text]
    return " ".join("; ".join([error.summary, *more]).split())
