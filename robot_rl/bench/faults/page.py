"""faults.html: every case with what was broken, promised and measured."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from robot_rl.bench.faults.case import MET, NOT_MET, number
from robot_rl.report.document import document, write

STYLE = """
.faults { display: flex; gap: 22px; flex-wrap: wrap; } .faults b { font-size: 44px; font-weight: 680; }
.faults span { color: var(--soft); } .faults .bad b, .verdict.bad { color: var(--bad); }
.verdict { float: right; font-weight: 600; } .verdict.good { color: var(--accent); }
.case dl { margin-top: 6px; } .case p { margin: 4px 0; } .case .note { color: var(--soft); }
"""  # noqa: E501


def write_page(target: Path, facts: Mapping[str, Any]) -> Path:
    """Write the page of `table.facts`; returns its path."""
    count = facts["faults"]
    machine = facts.get("machine", {})
    where = f"{machine.get('cores', '?')} cores, {machine.get('cpu', 'unknown')}"
    asked = "all samples" if facts["seconds"] is None else f"about {facts['seconds']:g} s"
    return write(
        target,
        document(
            title="fault table",
            kicker="robot-rl faults",
            name=f"{count[MET]} of {len(facts['cases'])} promises kept",
            subtitle=f"{escape(asked)} &middot; {escape(where)}",
            body=_head(facts) + "".join(map(_case, facts["cases"])),
            style=STYLE,
        ),
    )


def _head(facts: Mapping[str, Any]) -> str:
    cells = "".join(
        f'<div class="{"bad" if verdict == NOT_MET and n else ""}"><b>{n}</b> '
        f"<span>{escape(verdict)}</span></div>"
        for verdict, n in facts["faults"].items()
    )
    busy = sum(not case["quiet"] for case in facts["cases"])
    note = (
        f'<p class="note">During {busy} of the cases other programs used the processor, too: their '
        "times are upper bounds.</p>"
        if busy
        else ""
    )
    return f'<section class="card"><div class="faults">{cells}</div>{note}</section>'


def _case(case: Mapping[str, Any]) -> str:
    style = {MET: "good", NOT_MET: "bad"}.get(case["verdict"], "")
    said = [
        ("broken", case["injection"]),
        ("promised", case["promise"]),
        ("limits", "; ".join(case["limits"])),
        ("measured", figures_of(case)),
        ("samples", f"{case['n']:,} of {case['full']:,}, {case['seconds']:g} s"),
        ("fails if", case["fails_if"]),
    ]
    rows = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in said if v)
    more = "; ".join(text for text in (case["reason"], case["note"]) if text)
    note = f'<p class="note">{escape(more)}</p>' if more else ""
    return (
        f'<section class="card case"><h3>{case["number"]} &middot; {escape(case["title"])}'
        f'<span class="verdict {style}">{escape(case["verdict"])}</span></h3>'
        f"<dl>{rows}</dl>{note}</section>"
    )


def figures_of(case: Mapping[str, Any]) -> str:
    """The figures of a case on one line."""
    return ", ".join(
        f"{f['name']} {'not a number' if f['value'] is None else number(f['value'])} {f['unit']}"
        .strip()
        for f in case["figures"]
    )  # fmt: skip
