"""Runs one target on inputs: what it raises, how long it takes, what memory it needs."""

from __future__ import annotations

import hashlib
import logging
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.target import Target

HANG_S = 1.0  # one input may take this long
FACTOR = 100  # bytes that a process may grow by for each byte of input, beside `spare_mb`
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(slots=True)
class Defect:
    """An input that breaks a promise. kind: crash, hang or memory; what: of the exception."""

    kind: str
    what: str
    data: bytes

    @property
    def name(self) -> str:
        """A file name for the input."""
        return f"found-{hashlib.sha256(self.data).hexdigest()[:10]}"


@dataclass(slots=True)
class Watch:
    """A target under watch. Defects at the same place of the source count once.

    run: the opened target.
    """

    target: Target
    run: Callable[[bytes], object]
    hang_s: float = HANG_S
    inputs: int = 0
    accepted: int = 0
    spent_s: float = 0.0
    slowest_s: float = 0.0
    slowest: bytes = b""
    defects: dict[str, Defect] = field(default_factory=dict)

    def __call__(self, data: bytes) -> None:
        """One input; never raises for what the target does."""
        began_s = time.process_time()  # of the processor: other programs do not count
        try:
            self.run(data)
            self.accepted += 1
        except self.target.promised:
            pass
        except Exception as error:
            place = next(
                (f"{Path(f.filename).name}:{f.lineno}" for f in
                 reversed(traceback.extract_tb(error.__traceback__)) if "robot_rl" in f.filename),
                "?",
            )  # fmt: skip
            what = f"{type(error).__name__} at {place}: {str(error)[:100]}"
            self.defects.setdefault(f"{type(error).__name__} {place}", Defect("crash", what, data))
        took_s = time.process_time() - began_s
        self.inputs += 1
        self.spent_s += took_s
        if took_s > self.slowest_s:
            self.slowest_s, self.slowest = took_s, data
            if took_s > self.hang_s:
                self.defects["hang"] = Defect("hang", f"{took_s:.1f} s", data)


def warm(target: Target, run: Callable[[bytes], object], seeds: Iterable[bytes]) -> None:
    """Import and compile what waits for the first inputs, which is not theirs to answer for."""
    watch = Watch(target, run)
    for data in seeds:
        watch(data)


@contextmanager
def quiet() -> Iterator[None]:
    """No lines in the log, no warnings of numpy: what a decoder says is not the subject here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def memory_mb(what: str) -> float:
    """Resident memory of this process: "VmRSS" now, "VmHWM" the most since `reset_peak`."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1e3
    return 0.0


def reset_peak() -> None:
    """Let `VmHWM` begin anew."""
    RESET.write_text("5")


def allowed_mb(target: Target) -> float:
    """How much a process may grow while it runs a target."""
    return target.spare_mb + FACTOR * target.longest / 1e6
