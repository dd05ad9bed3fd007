"""The cases of the fault table, and how their results are shown.

results = running.run(chosen(["gate_killed", "21"]), 120.0)
facts(results, 120.0)["cases"][0]["verdict"]
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from robot_rl.bench.faults.case import (
    MET,
    NOT_MET,
    NOT_RUN,
    Case,
    Figure,
    Result,
)
from robot_rl.config import provenance
from robot_rl.errors import ConfigError, did_you_mean

log = logging.getLogger(__name__)

VERDICTS = (MET, NOT_MET, NOT_RUN)
SUBJECTS = (
    "people",
    "devices",
    "gate",
    "cameras",
    "processes",
    "learning",
    "link",
    "intruders",
    "storage",
    "rewards",
)
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
        "cases": [facts_of(result) for result in results],
        **provenance.collect(),
    }


def facts_of(result: Result) -> dict[str, Any]:
    """A result for programs."""
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
        "n": int(measured.n),
        "full": case.full,
        "note": measured.note,
        "verdict": result.verdict,
        "reason": result.reason,
        "seconds": round(result.seconds, 2),
        "others": _plain(round(result.others, 3)),
        "quiet": bool(result.others < QUIET),
    }


def _plain(value: float) -> float | None:
    """JSON knows no NaN, and no numbers of numpy."""
    return float(value) if math.isfinite(value) else None


def counted(found: Mapping[str, int]) -> str:
    """The verdicts in words: "31 met, 2 not met, 1 not run"."""
    return ", ".join(f"{n} {verdict}" for verdict, n in found.items() if n) or "nothing"
