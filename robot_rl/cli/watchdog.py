"""`robot-rl watchdog`: stops the arm when the gate dies."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.node import run_node

TEXT = """Node: watches the gate's heartbeat; stops the controller when the gate dies."""


def run(argv: Sequence[str]) -> int:
    """Run the node until it is told to stop."""
    return run_node("watchdog", TEXT, argv)
