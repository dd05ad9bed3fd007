"""`robot-rl keys`: CURVE key pairs for the actor-learner link."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, say

TEXT = """
Make one key pair for the learner and one per actor, and the list of public keys the learner
accepts. Secret keys are readable by you alone. Copy an actor's pair and the learner's public key to
the robot PC and set link.key_folder there; runs on one machine make keys of their own.
"""
EXAMPLES = """
robot-rl keys ~/.config/robot-rl/keys
robot-rl keys keys --actors left right
"""


def run(argv: Sequence[str]) -> int:
    """Make keys; an existing pair is replaced with --force only."""
    parser = Parser("keys", TEXT, EXAMPLES)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--actors", nargs="+", default=["actor"], metavar="NAME")
    parser.add_argument("--force", action="store_true", help="replace keys that exist")
    args = parser.read(argv)
    folder = args.folder.expanduser()
    names = [
        "learner",
        "policy",
        *(a if a.startswith("actor") else f"actor-{a}" for a in args.actors),
    ]
    for path in engine("robot_rl.link.auth:make_keys")(folder, names, force=args.force):
        say(str(path))
    return 0
