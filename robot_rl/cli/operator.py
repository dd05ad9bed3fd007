"""`robot-rl operator`: the person, or the script, who corrects."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.node import run_node

TEXT = """Node: the person (operator=scripted: a script) who takes over, corrects and lets go."""


def run(argv: Sequence[str]) -> int:
    """Run the node until it is told to stop."""
    return run_node("operator", TEXT, argv)
