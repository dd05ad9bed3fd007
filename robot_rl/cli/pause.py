"""`robot-rl pause`: let a run wait between two episodes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from robot_rl.cli.common import Parser, engine, existing_run, say

TEXT = """
Let a run wait: the episode that runs ends, and no other begins until `--end`. The arm stands still
meanwhile, its gate refuses commands, and the learner goes on with what it has. The time is not
counted as practice. This works for `train` and `record`, in lockstep and over ROS 2, from another
terminal or from the studio. Deployments and comparisons do not wait: Ctrl-C ends one, and the same
command goes on.

This does not stop a moving arm: for that press `Esc` on the operator's page, or the emergency stop.
"""
EXAMPLES = """
robot-rl pause runs/peg_insert/20260101-120000-s0          wait after this episode
robot-rl pause runs/peg_insert/20260101-120000-s0 --end    go on
"""
NOBODY = """\
paused, but no process is seen to record or train there. `robot-rl train` and `record` end the pause
when they start; after `robot-rl up` no episode begins until somebody ends it"""


def run(argv: Sequence[str]) -> int:
    """Pause a run, or end its pause; return 0."""
    parser = Parser("pause", TEXT, EXAMPLES).with_run()
    parser.add_argument("--end", action="store_true", help="let episodes begin again")
    args = parser.read(argv)
    run_dir = existing_run(args.run)
    if args.end:
        was_paused = engine("robot_rl.run.pause:end_pause")(run_dir)
        say("goes on" if was_paused else "it was not paused")
        return 0
    engine("robot_rl.run.pause:pause")(run_dir)
    is_seen = engine("robot_rl.run.at_work:somebody_works_in")(run_dir)
    say("paused: the episode that runs ends first" if is_seen else NOBODY)
    say(f"go on: robot-rl pause {shlex.quote(str(run_dir))} --end")
    return 0
