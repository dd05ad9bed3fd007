"""`robot-rl report`: write report.html again."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.common import Parser, existing_run, say

TEXT = """
Write report.html of a run from what is in its folder. This works while it runs and after a crash.
"""
EXAMPLES = "robot-rl report runs/peg_insert/20260101-120000-s0"


def run(argv: Sequence[str]) -> int:
    """Write the report, print its path and return 0."""
    from robot_rl.report.report import write_report
    from robot_rl.system.files import need_writable

    run_dir = existing_run(Parser("report", TEXT, EXAMPLES).with_run().read(argv).run)
    need_writable(run_dir)
    say(str(write_report(run_dir)))
    return 0
