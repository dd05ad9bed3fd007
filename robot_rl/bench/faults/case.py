"""A case of the fault table: what is broken, what is promised then, and how it is measured.

    def measure(context: Context) -> Measured:
        took_ms = [inject() for _ in context.trials(full=50, at_least=3)]
        return Measured.of(spread("time to hold", took_ms, "ms"), n=len(took_ms))

    Case(number=4, name="gate_killed", title="the gate is killed", injection="kill -9 of ...",
         promise="the watchdog stops the controller within 200 ms",
         limits=(Limit("time to stop, p99", "ms", at_most=200.0),),
         fails_if="nobody but the gate can stop the arm", full=50, measure=measure, world="arm")

A case never judges itself: `judge` compares its figures with its limits. A figure that is promised
and was not measured, and NaN, are not met.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from robot_rl.errors import RobotRLError

MET, NOT_MET, NOT_RUN = "met", "not met", "not run"
FULL_S = math.inf  # seconds of a table without a budget: every case takes its full samples
AGAIN, AGAIN_SHARE = 4, 0.2  # trials that are made once more because something disturbed them


class NotHereError(RobotRLError):
    """This machine lacks what a case needs. The summary says what, for people to read."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that was measured. name: in words, without its unit ("time to hold, p99")."""

    name: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.name} {number(self.value)} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Limit:
    """What a figure must be. figure: its name; exactly one of at_most and at_least is given."""

    figure: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"limit of '{self.figure}': give at_most or at_least")

    def keeps(self, value: float) -> bool:
        """Whether a value is within the limit; NaN never is."""
        return value <= self.at_most if self.at_most is not None else value >= self._least

    @property
    def _least(self) -> float:
        assert self.at_least is not None
        return self.at_least

    def __str__(self) -> str:
        word = "at most" if self.at_most is not None else "at least"
        bound = self.at_most if self.at_most is not None else self._least
        return f"{self.figure}: {word} {number(bound)} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Measured:
    """What a case has measured. n: samples (trials, commands, bytes: as the case's title counts).

    note: what a reader must know about this measurement ("20 s in place of 10 minutes").
    """

    figures: tuple[Figure, ...]
    n: int
    note: str = ""

    @classmethod
    def of(cls, *parts: Figure | Sequence[Figure], n: int, note: str = "") -> Measured:
        """From figures and sequences of figures."""
        flat = [f for part in parts for f in ((part,) if isinstance(part, Figure) else part)]
        return cls(tuple(flat), n, note)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A row of the table.

    Attributes:
        number: of the row, from 1. name: one word to choose it by (`--case gate_killed`).
        title, injection, promise: in words, for people.
        limits: the promise in figures.
        fails_if: which broken system would fail this measurement: a case that cannot fail is none.
        full: samples of the whole measurement; least: with fewer the case is not met.
        measure: injects and measures. It raises `NotHereError` or `SetupError` where the machine
            lacks something, any other `RobotRLError` for something that should not have happened
            (the case is not met, with this text).
        world: the shared graph that it uses (`worlds.WORLDS`), "" = none. Cases of one world run
            one after the other; each leaves it as it found it: at rest, armed by nobody.
        weight: its share of the time, against 1 of the others.
    """

    number: int
    name: str
    title: str
    injection: str
    promise: str
    limits: tuple[Limit, ...]
    fails_if: str
    full: int
    measure: Callable[[Context], Measured]
    least: int = 1
    world: str = ""
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What became of a case. others: share of the machine's processor time that programs other than
    the table's used meanwhile; reason: why it is not met or was not run."""

    case: Case
    verdict: str
    measured: Measured
    reason: str = ""
    seconds: float = 0.0
    others: float = math.nan


class SharedWorlds(Protocol):
    """Graphs that cases share: `worlds.Worlds`."""

    def get(self, name: str) -> Any:
        """The running world of this name. Raises `NotHereError`."""
        ...

    def spoil(self) -> None:
        """The world that runs is no longer at rest: the next case gets a new one."""
        ...


@dataclass
class Context:
    """What a case is given.

    Attributes:
        folder: empty, its own.
        allowed_s: the time it should take (wall); `FULL_S` = as long as the full samples take.
            A graph that it has to wait for does not count.
        made_again: trials that were declared void and made once more.
        rng: seeded with the case's number, so that a case injects the same alone and in the table.
    """

    case: Case
    folder: Path
    allowed_s: float
    worlds: SharedWorlds
    rng: np.random.Generator = field(init=False)
    begun_s: float = field(default_factory=time.monotonic)
    _void: bool = field(default=False, init=False)
    made_again: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.case.number)

    @property
    def is_full(self) -> bool:
        """Whether the full samples are taken, whatever time they need."""
        return math.isinf(self.allowed_s)

    @property
    def left_s(self) -> float:
        """Seconds of the case's time that are left; negative when it has taken too long."""
        return self.begun_s + self.allowed_s - time.monotonic()

    def trials(self, full: int | None = None, at_least: int | None = None) -> Iterator[int]:
        """Yield 0, 1, ... until `full` or, after `at_least`, until the case's time is up.

        Defaults: the case's `full` and `least`; with a `full` of its own, `at_least` is 1.
        A trial that was declared `void` is made once more, with the same number.
        """
        if at_least is None:
            at_least = self.case.least if full is None else 1
        full = self.case.full if full is None else full
        i, most = 0, self.made_again + AGAIN + round(AGAIN_SHARE * full)
        while i < full and (i < at_least or self.left_s > 0.0):
            self._void = False
            yield i
            if self._void and self.made_again < most:
                self.made_again += 1
            else:
                i += 1

    def void(self) -> None:
        """The trial that runs was disturbed and says nothing."""
        self._void = True

    def timed(self, took_ms: float) -> float:
        """A trial's time; NaN declares the trial void."""
        if math.isnan(took_ms):
            self.void()
        return took_ms

    def seconds(self, full: float, at_least: float) -> float:
        """How long something lasts that the full form does for `full` seconds."""
        return full if self.is_full else min(full, max(at_least, self.left_s))

    def world(self) -> Any:
        """The case's shared graph, started when it is not yet running."""
        asked_s = time.monotonic()
        found = self.worlds.get(self.case.world)
        self.begun_s += time.monotonic() - asked_s
        return found


def spread(name: str, values: Sequence[float], unit: str) -> tuple[Figure, ...]:
    """Median, 99th percentile and maximum of some values, NaN of none."""
    if not len(values):
        return tuple(Figure(f"{name}, {q}", math.nan, unit) for q in ("p50", "p99", "max"))
    p50, p99 = np.percentile(np.asarray(values, np.float64), (50, 99)).tolist()
    found = (("p50", p50), ("p99", p99), ("max", float(max(values))))
    return tuple(Figure(f"{name}, {q}", value, unit) for q, value in found)


def known(values: Sequence[float]) -> list[float]:
    """Without those that are NaN: trials that were disturbed and say nothing."""
    return [value for value in values if not math.isnan(value)]


def broken(case: Case, measured: Measured) -> list[tuple[Limit, float | None]]:
    """The limits that are not kept, each with what was measured (None: nothing was)."""
    found = {figure.name: figure.value for figure in measured.figures}
    return [
        (limit, found.get(limit.figure))
        for limit in case.limits
        if not limit.keeps(found.get(limit.figure, math.nan))
    ]


def judge(case: Case, measured: Measured) -> tuple[str, str]:
    """Verdict and reason: the figures of a case against its limits.

    Too few samples are not met, either: a defect that disturbs every trial must not pass for a
    machine that lacks something.
    """
    reasons = [
        f"{limit}, got {'nothing' if value is None else number(value)}"
        for limit, value in broken(case, measured)
    ]
    if measured.n < case.least:
        reasons.append(f"too few samples: {measured.n}, of which {case.least} are needed")
    return (NOT_MET, "; ".join(reasons)) if reasons else (MET, "")


def number(value: float) -> str:
    """A figure as people read it: three digits, whole numbers whole."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else str(value)
    if value == round(value) or abs(value) >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.3g}"
