"""`robot-rl serve-policy`: serve a trained base policy to other processes and machines."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, existing_run, say

TEXT = """
Serve the base policy of a run (of algo=bc_flow or algo=bc_act) to actors: ZeroMQ with CURVE, in
batches, with noise. On one machine the keys lie in the run folder, where base.run=RUN finds them.
For other machines make keys with `robot-rl keys FOLDER`, give that folder with --keys, and copy an
actor's pair and policy.public to the robot. With key=value words another base is served, in this
environment, for the task that the words name; RUN is then only the folder of its keys.
"""
EXAMPLES = """
robot-rl serve-policy runs/base
robot-rl train experiment=peg_insert base=served base.run=runs/base algo=resfit
robot-rl serve-policy runs/act experiment=lift base=lerobot base.path=ACT 'base.inputs={...}'
robot-rl serve-policy runs/base --host 192.168.1.20 --keys ~/.config/robot-rl/keys
"""


def run(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    parser = Parser("serve-policy", TEXT, EXAMPLES).with_run()
    parser.add_argument("--host", default="127.0.0.1", help="one address of this machine")
    parser.add_argument("--port", type=int, default=5598, metavar="N", help="default: 5598")
    parser.add_argument("--keys", type=Path, metavar="FOLDER", help="needed beyond this machine")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. base=lerobot ...")
    args = parser.read(argv)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    serve_run = engine("robot_rl.run.serve_policy:serve_run")
    serve_run(
        args.run if args.overrides else existing_run(args.run),
        host=args.host,
        port=args.port,
        keys=args.keys,
        stop=stop,
        overrides=args.overrides,
        started=lambda where: say(f"serving {args.run} on {where}"),
    )
    return 0
