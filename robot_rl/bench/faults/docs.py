"""docs/faults.md from docs/faults.json: `python -m robot_rl.bench.faults.docs [FAULTS_JSON]`.

With a file, that becomes docs/faults.json: the figures that are published. A test fails when the
page does not say what the file says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.bench.faults.case import MET, number

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, FIGURES = DOCS / "faults.md", DOCS / "faults.json"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
HEAD = ("#", "fault", "injected", "promised", "measured", "n", "verdict")


def markdown(facts: Mapping[str, Any]) -> str:
    """The generated part of the page."""
    machine, git = facts.get("machine", {}), facts.get("git", {})
    commit = str(git.get("commit", ""))[:7] or "unknown"
    asked = "every sample" if facts["seconds"] is None else f"about {facts['seconds']:g} s"
    lines = [
        f"**{facts['faults'][MET]} of {len(facts['cases'])} promises kept**, {asked}, at commit "
        f"{commit}, on {machine.get('cores', '?')} cores ({machine.get('cpu', 'unknown')}). "
        f"Command: `{facts['command']}`.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|---" * len(HEAD) + "|",
        *("| " + " | ".join(_row(case)) + " |" for case in facts["cases"]),
    ]
    notes = [(c["number"], text) for c in facts["cases"] for text in _notes(c)]
    lines += ["", *(f"- {n}: {text}" for n, text in notes)] if notes else []
    return "\n".join(lines)


def _row(case: Mapping[str, Any]) -> list[str]:
    verdict = case["verdict"] if case["verdict"] == MET else f"**{case['verdict']}**"
    n = f"{case['n']:,}" if case["n"] >= case["full"] else f"{case['n']:,} of {case['full']:,}"
    cells = [str(case["number"]), case["title"], case["injection"], case["promise"],
             _figures(case), n, verdict]  # fmt: skip
    return [cell.replace("|", "\\|") for cell in cells]


def _figures(case: Mapping[str, Any]) -> str:
    found = [
        f"{f['name']} {'-' if f['value'] is None else number(f['value'])} {f['unit']}".strip()
        for f in case["figures"]
    ]
    return "; ".join(found) or "-"


def _notes(case: Mapping[str, Any]) -> list[str]:
    busy = "" if case["quiet"] else "other programs used the processor, too"
    return [text for text in (case["reason"], case["note"], busy) if text]


def page(current: str, facts: Mapping[str, Any]) -> str:
    """`current` with the generated part renewed. Raises `ValueError` when the markers are gone."""
    before, _, rest = current.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has lost its markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{markdown(facts)}\n\n{END}{after}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        FIGURES.write_text(Path(sys.argv[1]).read_text())
    PAGE.write_text(page(PAGE.read_text(), json.loads(FIGURES.read_text())))
