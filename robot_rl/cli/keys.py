"""`robot-rl keys`: CURVE key pairs for the actor-learner link."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, say

TEXT = """
Make key pairs for the learner, for the policy server (`robot-rl serve-policy`) and for every actor.
The learner accepts every actor whose public key lies in its folder. Secret keys are readable by you
alone. Copy an actor's pair and the learner's public key to the robot PC and set link.key_folder
there. Runs on one machine make their own keys.
"""
EXAMPLES = """
robot-rl keys ~/.config/robot-rl/keys
robot-rl keys keys --actors left right
"""


def run(argv: Sequence[str]) -> int:
    """Make the keys and return 0; existing keys are replaced with --force only."""
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
    say(f"\neach robot PC: link.key_folder={folder} and")
    for name in names[2:]:
        say(f"  link.actor_key={name}")
    return 0
