"""`robot-rl sim`: the simulated arm as a ROS 2 node."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.node import run_node

TEXT = """Node: simulated arm, gripper and cameras with the topics of a real one, and /clock."""


def run(argv: Sequence[str]) -> int:
    """Run the node until it is told to stop."""
    return run_node("sim", TEXT, argv)
