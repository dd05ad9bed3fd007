"""From which starts it succeeds: a map for the tool and for each object whose place varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from robot_rl.report import svg
from robot_rl.report.rundata import RunData, evaluated

FEWEST, MOST = 10, 200  # episodes on a map
SPREAD_M = 0.002  # what varies less starts in one place

Row = Mapping[str, Any]


def starts(run: RunData) -> str:
    """The maps of the newest evaluation; before there is one, of the newest practice."""
    rows, prefix = _episodes(run)
    names = {key.split("/")[1] for row in rows for key in row if key.startswith("start/")}
    order = sorted(names, key=lambda name: (name != "tcp", name))
    maps = "".join(_map(name, rows, prefix) for name in order)
    if not maps:
        return ""
    what = "evaluation" if prefix == "eval_" else "practice"
    won = sum(row[f"{prefix}episode/success"] > 0 for row in rows)
    return (
        f'<h2>From where it succeeds, and from where not</h2><p class="legend">'
        f"<span>Where the tool and the objects started, in the newest {len(rows)} episodes of "
        f'{what}:</span><span><i class="accent"></i>{won} successes (dots)</span>'
        f'<span><i class="bad"></i>{len(rows) - won} failures (rings)</span></p>'
        f'<div class="grid3">{maps}</div>'
    )


def _episodes(run: RunData) -> tuple[Sequence[Row], str]:
    """Episodes without help, and the prefix of their keys."""
    rows = evaluated(run.rows, "deterministic")
    if len(rows) >= FEWEST:
        return rows[-MOST:], "eval_"
    return [r for r in run.counted() if not r.get("episode/takeovers")][-MOST:], ""


def _map(name: str, rows: Sequence[Row], prefix: str) -> str:
    """One card; "" where the place does not vary, or too few episodes say it."""
    keys = (f"start/{name}/x_m", f"start/{name}/y_m")
    there = [row for row in rows if all(key in row for key in keys)]
    if len(there) < FEWEST:
        return ""
    spread = max(max(r[k] for r in there) - min(r[k] for r in there) for k in keys)
    if spread < SPREAD_M:
        return ""
    points = []
    for row in there:
        x, y = (1000 * row[key] for key in keys)
        success = row[f"{prefix}episode/success"] > 0
        said = "success" if success else "failure"
        number = row.get(f"{prefix}episode/index", 0)
        points.append((x, y, "won" if success else "lost", f"episode {number:.0f}: {said}"))
    points.sort(key=lambda point: point[2], reverse=True)  # failures on top
    title = "tool (TCP)" if name == "tcp" else name
    chart = svg.scatter(points, svg.Box(330, 240), "x, mm in base", "y, mm in base")
    return (
        f'<section class="card"><h3>{escape(title)}</h3><div class="plot">{chart}</div></section>'
    )
