"""`robot-rl gate`: the only publisher of robot commands."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.node import run_node

TEXT = """Node: checks every command against the limits; the only publisher of robot commands."""


def run(argv: Sequence[str]) -> int:
    """Run the node until it is told to stop."""
    return run_node("gate", TEXT, argv)
