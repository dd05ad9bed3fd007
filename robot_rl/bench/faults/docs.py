"""docs/faults.md from docs/faults.json: `python -m robot_rl.bench.faults.docs [FAULTS_JSON ...]`.

Files become docs/faults.json, the figures that are published; a case of a later file replaces that
of an earlier one. A test fails when the page does not say what docs/faults.json says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.bench.faults.case import MET
from robot_rl.bench.faults.page import figures_of
from robot_rl.bench.faults.table import VERDICTS

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, FIGURES = DOCS / "faults.md", DOCS / "faults.json"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
HEAD = ("#", "fault", "injected", "promised", "measured", "n", "verdict")


def markdown(facts: Mapping[str, Any]) -> str:
    """The generated part of the page."""
    machine, commits = facts.get("machine", {}), " and ".join(c[:7] for c in _commits(facts))
    commands = ", then ".join(f"`{command}`" for command in facts["commands"])
    lines = [
        f"**{facts['faults'][MET]} of {len(facts['cases'])} promises kept**, at commit {commits}, "
        f"on {machine.get('cores', '?')} cores ({machine.get('cpu', 'unknown')}): {commands}.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|---" * len(HEAD) + "|",
        *("| " + " | ".join(_row(case)) + " |" for case in facts["cases"]),
    ]
    notes = [f"- {c['number']}: {t}" for c in facts["cases"] for t in (c["reason"], c["note"]) if t]
    if busy := [str(case["number"]) for case in facts["cases"] if not case["quiet"]]:
        notes.append(
            "- Other programs used more than 15 % of the processor, so times are upper bounds, in: "
            f"{', '.join(busy)}."
        )
    lines += ["", *notes] if notes else []
    return "\n".join(lines)


def _row(case: Mapping[str, Any]) -> list[str]:
    verdict = case["verdict"] if case["verdict"] == MET else f"**{case['verdict']}**"
    n = f"{case['n']:,}" if case["n"] >= case["full"] else f"{case['n']:,} of {case['full']:,}"
    cells = [str(case["number"]), case["title"], case["injection"], case["promise"],
             figures_of(case) or "-", n, verdict]  # fmt: skip
    return [cell.replace("|", "\\|") for cell in cells]


def joined(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several files as one; a case of a later one replaces that of an earlier one.

    The published file may be the first: then the cases of the others are published anew.
    """
    cases = {case["number"]: case for facts in several for case in facts["cases"]}
    count = {v: sum(c["verdict"] == v for c in cases.values()) for v in VERDICTS}
    return {
        **several[0],
        "faults": count,
        "cases": [cases[number] for number in sorted(cases)],
        "commands": [c for facts in several for c in facts.get("commands", [facts["command"]])],
        "commits": list(dict.fromkeys(commit for facts in several for commit in _commits(facts))),
    }


def _commits(facts: Mapping[str, Any]) -> list[str]:
    """The commits at which a file's cases were measured."""
    return facts.get("commits", [facts.get("git", {}).get("commit", "unknown")])


def page(current: str, facts: Mapping[str, Any]) -> str:
    """`current` with the generated part renewed. Raises `ValueError` when the markers are gone."""
    before, _, rest = current.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has lost its markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{markdown(facts)}\n\n{END}{after}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        found = joined([json.loads(Path(name).read_text()) for name in sys.argv[1:]])
        FIGURES.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(PAGE.read_text(), json.loads(FIGURES.read_text())))
