"""Runs the cases of the fault table, one after the other, and writes down what came out.

    results = run(chosen(["gate_killed", "21"]), 120.0, Path("runs/faults"))
    facts(results, 120.0)["cases"][0]["verdict"]

Whatever else the machine does meanwhile shows in the figures: `others` is its share.
"""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from robot_rl.bench.faults.case import (
    MET,
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
from robot_rl.bench.faults.worlds import WORLDS, Worlds
from robot_rl.config import provenance
from robot_rl.errors import ConfigError, RobotRLError, did_you_mean

log = logging.getLogger(__name__)

VERDICTS = (MET, NOT_MET, NOT_RUN)
SUBJECTS = ("people", "devices", "gate", "cameras", "processes", "learning", "link", "storage")
SHARE = 0.6  # of a budget that cases get: graphs that start, and least samples, take the rest
TITLE = 48  # characters of a title in the terminal
QUIET = 0.15  # others' share of the processor below which the machine counts as quiet


def cases() -> tuple[Case, ...]:
    """All cases, by number."""
    modules = [import_module(f"robot_rl.bench.faults.{subject}") for subject in SUBJECTS]
    return tuple(sorted((c for m in modules for c in m.CASES), key=lambda case: case.number))


def chosen(words: Sequence[str]) -> tuple[Case, ...]:
    """The cases that words name, by number or name; all without words.

    Raises:
        ConfigError: a word names none.
    """
    known = cases()
    names = {case.name: case for case in known} | {str(case.number): case for case in known}
    for word in words:
        if word not in names:
            raise ConfigError(
                f"no case '{word}' in the fault table",
                expected=f"a number from {known[0].number} to {known[-1].number}, or a name",
                got=word,
                fix=did_you_mean(word, [case.name for case in known])
                if not word.lstrip("-").isdigit()
                else "robot-rl faults --list shows them",
            )
    wanted = {names[word].number for word in words} or {case.number for case in known}
    return tuple(case for case in known if case.number in wanted)


def run(
    some: Sequence[Case],
    seconds: float,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Measure cases within about `seconds` (infinite: with their full samples).

    tell: gets a line when a case begins, and one when it has ended. Returns the results by number.
    """
    order = [*WORLDS, ""]  # graphs first: a table that is cut short has the cases that are seen
    queue = sorted(some, key=lambda case: (order.index(case.world), case.number))
    weights = sum(case.weight for case in some)
    results: list[Result] = []
    temporary = tempfile.TemporaryDirectory(prefix="robot-rl-faults-")
    with temporary as folder, Worlds(Path(folder)) as worlds:
        for i, case in enumerate(queue, 1):
            tell(f"[{i:2}/{len(queue)}] {case.number:2} {case.title} ...")
            allowed_s = seconds * SHARE * case.weight / weights
            own = Path(folder) / f"case-{case.number}"
            own.mkdir()
            results.append(measure(case, own, allowed_s, worlds))
            tell(f"        {line(results[-1])}")
    return sorted(results, key=lambda result: result.case.number)


def measure(case: Case, folder: Path, allowed_s: float, worlds: Worlds) -> Result:
    """Measure one case; nothing that goes wrong in it ends the table."""
    watch, begun_s = Watch(), time.monotonic()
    measured = Measured((), 0)
    try:
        measured = case.measure(Context(case, folder, allowed_s, worlds))
        verdict, reason = judge(case, measured)
    except NotHereError as error:
        verdict, reason = NOT_RUN, _one_line(error)
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


def _one_line(error: RobotRLError) -> str:
    more = [text for text in (error.got, error.fix) if text]
    return " ".join("; ".join([error.summary, *more]).split())


def failed(results: Iterable[Result]) -> bool:
    """Whether a promise was broken."""
    return any(result.verdict == NOT_MET for result in results)


# --- what people and programs read ---------------------------------------------------------------


def line(result: Result) -> str:
    """A result on one line."""
    figures = ", ".join(str(figure) for figure in promised(result)) or "-"
    said = f"{result.verdict.upper() if result.verdict == NOT_MET else result.verdict}: {figures}"
    counted = f" (n {result.measured.n:,}, {result.seconds:.1f} s)" if result.measured.n else ""
    return said + counted + (f"; {result.reason}" if result.reason else "")


def text(results: Sequence[Result]) -> list[str]:
    """The table as lines for a terminal, and how many promises were kept."""
    rows = [("#", "fault", "verdict", "n", "measured")]
    for result in results:
        verdict = result.verdict.upper() if result.verdict == NOT_MET else result.verdict
        said = ", ".join(map(str, promised(result))) or result.reason[:TITLE]
        title = result.case.title
        title = title if len(title) <= TITLE else f"{title[: TITLE - 3]}..."
        rows.append((str(result.case.number), title, verdict, f"{result.measured.n:,}", said))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join((row[0].rjust(widths[0]), row[1].ljust(widths[1]), row[2].ljust(widths[2]),
                        row[3].rjust(widths[3]), row[4])) for row in rows]  # fmt: skip
    busy = [str(result.case.number) for result in results if not result.others < QUIET]
    told = [f"other programs used the processor in: {', '.join(busy)}"] if busy else []
    return ["", *lines, "", f"{counted(_count(results))} of {len(results)} cases", *told]


def _count(results: Sequence[Result]) -> dict[str, int]:
    return {verdict: sum(r.verdict == verdict for r in results) for verdict in VERDICTS}


def promised(result: Result) -> list[Figure]:
    """The measured figures that are limited, in the order of the limits."""
    found = {figure.name: figure for figure in result.measured.figures}
    return [found[limit.figure] for limit in result.case.limits if limit.figure in found]


def facts(results: Sequence[Result], seconds: float) -> dict[str, Any]:
    """The table for programs: every case, its figures, its verdict, and the machine."""
    return {
        "faults": _count(results),
        "seconds": None if math.isinf(seconds) else seconds,
        "cases": [_facts(result) for result in results],
        **provenance.collect(),
    }


def _facts(result: Result) -> dict[str, Any]:
    case, measured = result.case, result.measured
    return {
        "number": case.number,
        "name": case.name,
        "title": case.title,
        "injection": case.injection,
        "promise": case.promise,
        "fails_if": case.fails_if,
        "limits": [str(limit) for limit in case.limits],
        "figures": [
            {"name": f.name, "value": _plain(f.value), "unit": f.unit} for f in measured.figures
        ],
        "n": measured.n,
        "full": case.full,
        "note": measured.note,
        "verdict": result.verdict,
        "reason": result.reason,
        "seconds": round(result.seconds, 2),
        "others": _plain(round(result.others, 3)),
        "quiet": bool(result.others < QUIET),
    }


def _plain(value: float) -> float | None:
    """JSON knows no NaN."""
    return value if math.isfinite(value) else None


def counted(found: Mapping[str, int]) -> str:
    """The verdicts in words: "31 met, 2 not met, 1 not run"."""
    return ", ".join(f"{n} {verdict}" for verdict, n in found.items() if n) or "nothing"
