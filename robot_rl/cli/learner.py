"""`robot-rl learner`: run the learner process of a run, on this machine or for another one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, existing_run, say

TEXT = """
Process: receives steps over the link, keeps the replay, makes gradient updates within the update
budget, sends versioned weights, writes checkpoints. When it is started again, it goes on where it
was.

With --pair it first takes the run of a robot on another machine, whose `robot-rl train link=remote`
has printed the string: the run's configuration comes over, a run folder is made here, keys are
exchanged. Afterwards `robot-rl learner RUN` is enough. See docs/two_machines.md.
"""
EXAMPLES = """
robot-rl learner runs/peg_insert/20260101-120000-s0
robot-rl learner --pair rrl1:...                        the line that the robot's machine printed
robot-rl learner --pair rrl1:... --bind 192.168.1.5     behind a router that forwards the port
"""


def run(argv: Sequence[str]) -> int:
    """Run the learner of a run folder until it is told to stop."""
    parser = Parser("learner", TEXT, EXAMPLES)
    parser.add_argument(
        "run", type=Path, nargs="?", metavar="RUN", help="run folder; with --pair: to make"
    )
    parser.add_argument("--pair", metavar="STRING", help="what the robot's machine has printed")
    parser.add_argument("--bind", metavar="ADDRESS", help="own address, if the robot knows another")
    args = parser.read(argv)
    if args.bind and not args.pair:
        parser.error("--bind goes with --pair (a run remembers its address)")
    run = args.run
    if not args.pair:
        run = existing_run(run or parser.error("give a run folder, or --pair STRING"))
    learn = engine("robot_rl.run.learner:main")  # a missing package shows before the string is used
    if not args.pair:
        return int(learn(run) or 0)
    folder = engine("robot_rl.run.pairing:pair")(args.pair, run, args.bind, say)
    say(f"paired. run folder {folder}; it learns as rows arrive, Ctrl-C ends it safely")
    say(f"the learner's key is {engine('robot_rl.run.pairing:learner_fingerprint')(folder)}")
    say(f"start it again with: robot-rl learner {shlex.quote(str(folder))}")
    return int(learn(folder) or 0)
