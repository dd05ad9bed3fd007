"""`robot-rl actor`: control loop, store and link of one robot."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.node import run_node

TEXT = """Process: the control loop of one robot. Started again, it continues from its store."""


def run(argv: Sequence[str]) -> int:
    """Run the node until it is told to stop."""
    return run_node("actor", TEXT, argv)
