"""`robot-rl review`: look through the recorded episodes of a run, and label them."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.common import Parser
from robot_rl.cli.console import serve_page

TEXT = """
Open the review page of a run, finished or running. It shows all cameras of an episode side by side,
who drove and the gate's verdicts, step by step; you say what succeeded, leave episodes out, cut
them. What you say is appended beside the rows and can be taken back. The page is served to this
machine only, with a link that works once, as by `robot-rl console`; press Enter for another link,
or "o" and Enter for a link that only lets a person watch.
"""
EXAMPLES = """
robot-rl review runs/peg_insert/20260101-120000-s0
robot-rl review RUN --no-browser
ssh -L 8090:127.0.0.1:8090 robot-pc          from another machine, with --port 8090 there
"""


def run(argv: Sequence[str]) -> int:
    """Serve the review page until Ctrl-C is pressed."""
    return serve_page(Parser("review", TEXT, EXAMPLES), argv, page="review")
