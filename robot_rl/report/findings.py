"""What keeps a run from learning, as `learn.diagnostics` wrote it into the metric lines.

A line has `diagnostics/<name>` = 0, 1 (warning) or 2 (problem) for every check, and for what was
found `diagnostics/<name>/what` and `diagnostics/<name>/fix`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "diagnostics/"
SEVERITIES = {1: "warning", 2: "problem"}


@dataclass(frozen=True)
class ActiveFinding:
    """A finding that is there now."""

    name: str
    severity: str
    what: str
    fix: str


@dataclass
class Span:
    """A finding from one env step to another."""

    begin: float
    end: float
    found: ActiveFinding


def judged(row: Mapping[str, Any]) -> bool:
    """Whether the checks ran for this line."""
    return any(key.startswith(PREFIX) for key in row)


def current(row: Mapping[str, Any]) -> list[ActiveFinding]:
    """The findings of a line, problems first."""
    keys = [k for k, v in row.items() if k.startswith(PREFIX) and _severity(v)]
    found = [
        ActiveFinding(
            key.removeprefix(PREFIX),
            _severity(row[key]),
            str(row.get(f"{key}/what", "")),
            str(row.get(f"{key}/fix", "")),
        )
        for key in keys
    ]
    return sorted(found, key=lambda x: (x.severity != "problem", x.name))


def spans(rows: Iterable[Mapping[str, Any]]) -> list[Span]:
    """When each finding was there: it lasts until the next judged line without it."""
    out: list[Span] = []
    running: dict[tuple[str, str], Span] = {}
    for row in filter(judged, rows):
        at = float(row.get("env_steps", 0))
        for span in running.values():
            span.end = at
        here = {(x.name, x.severity): x for x in current(row)}
        running = {k: v for k, v in running.items() if k in here}
        for key, found in here.items():
            if key not in running:
                running[key] = Span(at, at, found)
                out.append(running[key])
            running[key].found = found
    return out


def _severity(value: Any) -> str:
    return SEVERITIES.get(int(value), "") if isinstance(value, int | float) else ""
