"""docs/ros.md from the tables in the code: `python -m robot_rl.ros.docs` rewrites it.

A test fails when the page is stale. No rclpy here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from robot_rl.ros.graph import KINDS, NODES_MODULE
from robot_rl.ros.parameters import TABLES, Parameter
from robot_rl.ros.topics import SERVICES, SIMULATION, TOPICS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ros.md"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines)


def _bounds(p: Parameter) -> str:
    return "-" if p.low is None else f"{p.low:g} … {p.high:g}"


def _default(p: Parameter) -> str:
    if isinstance(p.default, list):
        return f"`{', '.join(p.default)}`"
    return f"`{p.default}`" if p.default != "" else "(empty)"


def _parameters(node: str) -> str:
    rows = (
        (f"`{p.name}`", _default(p), _bounds(p), p.unit, "no" if p.read_only else "yes", p.meaning)
        for p in TABLES[node]
    )
    return _table(("parameter", "default", "range", "unit", "live", "meaning"), rows)


def markdown() -> str:
    """The generated part of the page: nodes, topics, services, parameters."""
    topics = (
        (f"`{t.name}`", f"`{t.type}`", t.qos, t.writer, ", ".join(t.readers) or "-",
         f"{t.rate_hz:g}" if t.rate_hz else "on demand", t.frame, t.meaning)
        for t in TOPICS
    )  # fmt: skip
    services = (
        (f"`{s.name}`", f"`{s.type}`", s.server, ", ".join(s.callers), s.meaning)
        for s in (*SERVICES, *SIMULATION)
    )
    head = ("topic", "type", "QoS", "written by", "read by", "Hz", "frame", "meaning")
    parts = [
        "## Nodes",
        _table(("node", "run it with"), ((k, f"`python -m {NODES_MODULE} {k}`") for k in KINDS)),
        "## Topics",
        _table(head, topics),
        "## Services",
        _table(("service", "type", "served by", "called by", "meaning"), services),
        "## Parameters",
    ]
    for node in TABLES:
        parts += [f"### {node}", _parameters(node)]
    return "\n\n".join(parts)


def page(current: str) -> str:
    """`current` with the generated part renewed. Raises `ValueError` when the markers are gone."""
    before, _, rest = current.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has lost its markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{markdown()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
