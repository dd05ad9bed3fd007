"""Memory, descriptors and threads of processes over hours, and whether they grow.

    with Sampler(lambda: {"gate": pid}, folder / SAMPLES) as sampler:
        ...
    judge(sampler.lives()["gate"])["memory"]

The rule is fixed before a run. Of the longest life of a process, a warm-up
(`WARM_UP_S`, at most a third of it) is left out. Memory is its resident set (VmRSS of /proc). A
straight line is fitted to the means of whole minutes, and its slope has a 95 % confidence interval.
Memory is `FLAT` when the whole interval is at or below `GROWTH` of the level per hour, it `GROWS`
when the whole interval is above, and in between it is `UNDECIDED`, as it is with less than
`LEAST_S`. Descriptors and threads grow when the median of the last third is more than `MORE` above
that of the first.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from robot_rl.control.statistics import Z95

FLAT, GROWS, UNDECIDED = "flat", "grows", "not decided"
GROWTH = 0.02  # of the level, per hour
MORE = 2  # descriptors or threads
EVERY_S = 2.0  # between two samples
WARM_UP_S = 900.0  # a browser needs it: most of what it gains comes in its first 15 minutes
MEAN_S = 60.0  # what a mean is taken of: single samples follow each other too closely
LEAST_S = 600.0  # after the warm-up; ten means
MB = 1e6
SAMPLES = "samples.jsonl"


class Sample(NamedTuple):
    """What a process holds: seconds since it was first seen; bytes; numbers."""

    at_s: float
    resident: int
    anonymous: int
    descriptors: int
    threads: int


@dataclass(slots=True)
class Life:
    """One process from its first sample to its last."""

    pid: int
    began_s: float
    samples: list[Sample] = field(default_factory=list)

    @property
    def length_s(self) -> float:
        """Seconds between the first and the last sample."""
        return self.samples[-1].at_s if self.samples else 0.0


def read(pid: int, began_s: float) -> Sample | None:
    """What a process holds now; None when it has just ended."""
    proc = Path("/proc") / str(pid)
    try:
        words = dict(x.split(":", 1) for x in (proc / "status").read_text().splitlines())
        descriptors = len(os.listdir(proc / "fd"))  # noqa: PTH208 - a thousand times an hour
        kilobytes = [int(words[key].split()[0]) for key in ("VmRSS", "RssAnon")]
    except (OSError, KeyError, ValueError):  # a dead process has no VmRSS
        return None
    resident, anonymous = (1024 * n for n in kilobytes)
    at_s = time.monotonic() - began_s
    return Sample(at_s, resident, anonymous, descriptors, int(words["Threads"]))


class Sampler:
    """Samples processes in a thread of its own, every `EVERY_S`.

    Args:
        pids: label -> process id of those that run now; called in the thread.
        path: also gets every sample, as a line of JSON: label, process id and `Sample`.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]], path: Path) -> None:
        self._pids, self._path, self._lives = pids, path, dict[str, list[Life]]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def lives(self) -> dict[str, list[Life]]:
        """Label -> the lives of processes of that name."""
        return {label: list(lives) for label, lives in self._lives.items()}

    def _work(self) -> None:
        with self._path.open("a", buffering=1) as file:
            while not self._done.wait(EVERY_S):
                for label, pid in self._pids().items():
                    lives = self._lives.setdefault(label, [])
                    if not lives or lives[-1].pid != pid:
                        lives.append(Life(pid, time.monotonic()))
                    if (sample := read(pid, lives[-1].began_s)) is not None:
                        lives[-1].samples.append(sample)
                        file.write(json.dumps([label, pid, *sample]) + "\n")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def children(pid: int) -> list[int]:
    """Processes that a process has started and that run."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def words_of(pid: int) -> str:
    """The command line of a process, "" when it has ended."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.decode(errors="replace").replace("\0", " ")


def judge(lives: Sequence[Life]) -> dict[str, Any]:
    """Figures of the longest life, and the verdicts on memory, descriptors and threads."""
    life = max(lives, key=lambda each: each.length_s)
    samples = life.samples
    at_s = np.array([sample.at_s for sample in samples])
    found = {
        "lives": len(lives),
        "minutes": life.length_s / 60,
        **line(at_s, np.array([sample.resident for sample in samples])),
        "anonymous": line(at_s, np.array([sample.anonymous for sample in samples])),
    }
    begin_s, long_enough = warm_up(life.length_s)
    kept = [sample for sample in samples if sample.at_s >= begin_s]
    for name in ("descriptors", "threads"):
        first, last = thirds([getattr(sample, name) for sample in kept])
        found |= {
            f"{name}_first": first,
            f"{name}_last": last,
            name: (GROWS if last > first + MORE else FLAT) if long_enough else UNDECIDED,
        }
    return found


def line(at_s: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Level and growth after the warm-up, with the verdict on it; values: bytes."""
    begin_s, long_enough = warm_up(float(at_s[-1]) if at_s.size else 0.0)
    level, slope, low, high = slope_per_hour(at_s[at_s >= begin_s], values[at_s >= begin_s] / MB)
    return {
        "mb": level,
        "mb_per_h": slope,
        "mb_per_h_low": low,
        "mb_per_h_high": high,
        "percent_per_h": 100 * slope / level,
        "memory": verdict(level, low, high) if long_enough else UNDECIDED,
        "minute_means_mb": [round(float(y), 3) for y in means(at_s, values / MB)],
    }


def warm_up(length_s: float) -> tuple[float, bool]:
    """Seconds that are left out, and whether enough remains for a verdict."""
    begin_s = min(WARM_UP_S, length_s / 3)
    return begin_s, length_s - begin_s >= LEAST_S


def means(at_s: np.ndarray, values: np.ndarray) -> list[float]:
    """Mean of each minute, from the beginning."""
    minutes = (at_s // MEAN_S).astype(int)
    return [float(values[minutes == minute].mean()) for minute in np.unique(minutes)]


def slope_per_hour(at_s: np.ndarray, values: np.ndarray) -> tuple[float, float, float, float]:
    """Level, slope per hour, and the 95 % interval of the slope, of a line through minute means.

    NaN where there are not enough minutes.
    """
    level = float(values.mean()) if values.size else math.nan
    x, y = np.array(means(at_s, at_s)) / 3600, np.array(means(at_s, values))
    n = y.size
    if n < 4:
        return level, math.nan, math.nan, math.nan
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    rest = y - y.mean() - slope * x
    error = math.sqrt(float(rest @ rest) / (n - 2) / float(x @ x))
    half = _student(n - 2) * error
    return level, slope, slope - half, slope + half


def _student(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t (Abramowitz and Stegun 26.7.5); 1 % off at 3."""
    z = Z95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def verdict(level: float, low: float, high: float) -> str:
    """`FLAT`, `GROWS` or `UNDECIDED`, as the module's text says; per hour, all in one unit."""
    limit = GROWTH * level
    if high <= limit:
        return FLAT
    return GROWS if low > limit else UNDECIDED


def thirds(values: Sequence[int]) -> tuple[float, float]:
    """Medians of the first and of the last third."""
    size = max(1, len(values) // 3)
    if not values:
        return math.nan, math.nan
    return float(np.median(values[:size])), float(np.median(values[-size:]))
