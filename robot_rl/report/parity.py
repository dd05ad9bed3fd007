"""parity.html: the same scene in two engines, as a table and as curves on top of each other."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from robot_rl.report import svg
from robot_rl.report.document import document, write

STYLE = ".no{color:var(--bad)}th{text-align:left}td,th{padding-right:1em}"


def write_page(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the page, complete in itself; returns its path. result: of `run.parity.measure`."""
    other = "PhysX" if result["engine"] else "USD"
    wrong = sum(not check["passed"] for check in result["checks"])
    page = document(
        title="parity",
        kicker="robot-rl parity",
        name=f"{result['task']} with {result['robot']}",
        subtitle=f"MuJoCo and {other}: "
        + (f"{wrong} of {len(result['checks'])} gates missed" if wrong else "all gates met"),
        body=_table(result) + _curves(result),
        style=STYLE,
    )
    return write(path, page)


def in_words(result: Mapping[str, Any]) -> str:
    """A line for each comparison."""
    width = max(len(check["name"]) for check in result["checks"])
    return "\n".join(
        f"{'ok  ' if c['passed'] else 'FAIL'}  {c['name']:<{width}}  {c['difference']:<8.2g} "
        f"of at most {c['gate']:g} {c['unit']}" + (f"  ({c['note']})" if c["note"] else "")
        for c in result["checks"]
    )


def _table(result: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(c['name'])}</td><td>{c['difference']:.2g}</td><td>{c['gate']:g}</td>"
        f"<td>{escape(c['unit'])}</td><td>{escape(c['note'])}</td>"
        + ("<td>met</td>" if c["passed"] else '<td class="no">missed</td>')
        + "</tr>"
        for c in result["checks"]
    )
    head = "".join(
        f"<th>{word}</th>" for word in ("compared", "largest difference", "gate", "unit", "", "")
    )
    return f'<h2>Gates</h2><section class="card"><table><tr>{head}</tr>{rows}</table></section>'


def _curves(result: Mapping[str, Any]) -> str:
    cards = ""
    for trace in result["traces"]:
        x = trace["time_s"]
        curves = [
            svg.Curve("MuJoCo", x, trace["mujoco"], "accent"),
            svg.Curve("PhysX", x, trace["physx"], "human"),
        ]
        chart = svg.chart(
            curves,
            svg.Box(330, 140),
            unit=trace["unit"],
            x_range=(0.0, float(x[-1])),
            x_label="seconds",
        )
        cards += (
            f'<section class="card"><h3>{escape(trace["name"])}, {escape(trace["unit"])}</h3>'
            f'<div class="plot">{chart}</div></section>'
        )
    legend = '<span style="color:var(--accent)">MuJoCo</span> and '
    legend += '<span style="color:var(--human)">PhysX</span>'
    return f'<h2>Motion: {legend}</h2><div class="grid3">{cards}</div>' if cards else ""
