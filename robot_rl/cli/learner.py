"""`robot-rl learner`: run the learner process of a run."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.common import Parser, engine, existing_run

TEXT = """
Process: receives steps over the link, keeps the replay, makes gradient updates within the update
budget, sends versioned weights, writes checkpoints. When it is started again, it goes on where it
was.
"""
EXAMPLES = "robot-rl learner runs/peg_insert/20260101-120000-s0"


def run(argv: Sequence[str]) -> int:
    """Run the learner of a run folder until it is told to stop."""
    args = Parser("learner", TEXT, EXAMPLES).with_run().read(argv)
    return int(engine("robot_rl.run.learner:main")(existing_run(args.run)) or 0)
