"""`robot-rl keys`: CURVE keys of the link, the page's certificate, and SROS 2 enclaves."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, say

TEXT = """
Make key pairs for the learner, for the policy server (`robot-rl serve-policy`) and for every actor.
The learner accepts every actor whose public key lies in its folder. Secret keys are readable by you
alone. Copy an actor's pair and the learner's public key to the robot PC and set link.key_folder
there. Runs on one machine make their own keys.

With --page: make a certificate for the operator's page and the studio instead, so that a headset or
a phone can open them over HTTPS (`robot-rl console RUN --tls FOLDER`, `robot-rl studio --tls
FOLDER`). It is for this machine's names and addresses, and for those that you name.

With --sros2: make a keystore for the ROS 2 nodes of the experiment that the words describe, and use
it with ros.keystore=FOLDER. Each node may then publish and subscribe to its own topics, and no
process without a certificate can speak with any of them. ROS 2 from pip wheels has no DDS security;
a ROS 2 of Debian packages has.
"""
EXAMPLES = """
robot-rl keys ~/.config/robot-rl/keys
robot-rl keys keys --actors left right
robot-rl keys ~/.config/robot-rl/page --page
robot-rl keys ~/.config/robot-rl/page --page robot-pc.lab.example 10.0.0.5 --force
robot-rl keys ~/.config/robot-rl/sros2 --sros2 experiment=reach robot=ur5e_fzi ros=real
"""


def run(argv: Sequence[str]) -> int:
    """Make the keys and return 0; existing keys are replaced with --force only."""
    parser = Parser("keys", TEXT, EXAMPLES)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--actors", nargs="+", default=["actor"], metavar="NAME")
    parser.add_argument(
        "--page", nargs="*", metavar="NAME", help="the page's certificate, also for these names"
    )
    parser.add_argument(
        "--sros2", nargs="*", metavar="WORD", help="a keystore for the nodes of this experiment"
    )
    parser.add_argument("--force", action="store_true", help="replace what exists")
    args = parser.read(argv)
    folder = args.folder.expanduser()
    if args.page is not None:
        return _page(folder, args.page, force=args.force)
    if args.sros2 is not None:
        return _sros2(folder, args.sros2, force=args.force)
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


def _page(folder: Path, names: Sequence[str], *, force: bool) -> int:
    """Make the page's certificate; say how it is used."""
    own = engine("robot_rl.console.certificate:own_names")()
    made = engine("robot_rl.console.certificate:make")(folder, [*own, *names], force=force)
    outside = [name for name in made.names if name not in ("localhost", "127.0.0.1", "::1")]
    host = next((n for n in reversed(outside) if n not in names), "NAME")  # an address, if any
    say(f"certificate of the page, valid for {made.days} days, for:\n  {', '.join(made.names)}")
    say(f"its authority has the fingerprint (SHA-256)\n  {made.fingerprint}")
    say(f"\n  robot-rl console RUN --tls {shlex.quote(str(folder))} --host {host}")
    say("then open /trust there on the device: it explains how to trust this page")
    return 0


def _sros2(folder: Path, words: Sequence[str], *, force: bool) -> int:
    """Make a keystore for the nodes of an experiment; say how it is used."""
    from robot_rl.run.experiment import Experiment

    experiment = Experiment.compose(words)
    graph = engine("robot_rl.run.graph:graph_of")(experiment, keystore="")
    domain_id = experiment.ros.domain_id
    heard = engine("robot_rl.run.graph:heard_topics")(experiment)
    made = engine("robot_rl.ros.enclaves:make")(
        folder, graph, experiment.driver, domain_id, heard=heard, force=force
    )
    for path in sorted(made.rglob("permissions.p7s")):
        say(str(path.parent))
    say(f"\nvalid in ROS domain {domain_id}, for these nodes. Start the run with its words and")
    say(f"  ros.keystore={folder}")
    say("and the arm's own driver, in the same domain, in the enclave `driver` (docs/ros.md)")
    return 0
