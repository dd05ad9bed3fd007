"""`robot-rl filter`: leave out of training what people did against each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.cli.filter_compatible import HERE, incompatible

if TYPE_CHECKING:
    from robot_rl.store.store import Store

TEXT = """
Leave episodes of people out of training. Nothing recorded is changed: their steps get labels. A
second call with another threshold moves the labels, --undo takes them back. Without --write the
command only says what it would leave out.

--compatible: networks that were cloned from the base demonstrations find episodes in which somebody
does something else in the same situation. What nobody has seen yet is welcome. The base is another
run, or an ensemble that --keep has kept; with --to NAME only what NAME has driven. Without a base
the episodes judge each other: each person's by those of all others, or, if one person drove them
all, a fifth at a time by the rest. NAME is a person as the console knows them, or the run in which
an episode was recorded where the console saw nobody.
"""
CRITIC = "critic"  # author of labels of versions in which critics judged, too
EXAMPLES = """
robot-rl filter RUN --compatible                               which episodes are the odd ones?
robot-rl filter RUN --compatible --to anna                     who contradicts anna?
robot-rl filter RUN --compatible runs/anna --write
robot-rl filter RUN --compatible runs/anna --keep              a bar for whoever drives in RUN
robot-rl filter RUN --undo
"""


def run(argv: Sequence[str]) -> int:
    """Judge the steps, label them if asked to, and return 0."""
    args = _read(argv)
    with engine("robot_rl.store.dataset:open_store")(args.run) as store:
        if args.undo:
            return _undo(args, store)
        author, left_out, figures = incompatible(args, store)
        figures["steps"] = sum(len(steps) for steps in left_out.values())
        if args.write:
            leave_out = engine("robot_rl.store.left_out:leave_out")
            figures["left_out"], figures["taken_back"] = leave_out(store, left_out, author)
    write_json(args.json, figures)
    if args.write:
        say(f"{figures['left_out']} steps left out, {figures['taken_back']} taken back in")
    else:
        some = sum(bool(steps) for steps in left_out.values())
        say(f"{figures['steps']} steps in {some} episodes; --write leaves them out")
    return 0


def _read(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("filter", TEXT, EXAMPLES).with_run("run folder, or a store file").with_json()
    parser.add_argument(
        "--compatible",
        nargs="?",
        const=HERE,
        type=Path,
        metavar="BASE",
        help="the demonstrations of a run judge, or a kept ensemble; without BASE those of RUN",
    )
    parser.add_argument("--to", metavar="NAME", default="", help="the base is what NAME has driven")
    parser.add_argument(
        "--below",
        type=float,
        metavar="C",
        help="episodes less compatible than this are left out (default: what 19 of 20 episodes of "
        "the base itself reach)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the ensemble in RUN: the console then shows whoever drives how far they agree",
    )
    parser.add_argument("--write", action="store_true", help="leave these steps out")
    parser.add_argument("--undo", action="store_true", help="take all of them back in")
    args = parser.read(argv)
    if args.undo == (args.compatible is not None):
        parser.error("give --compatible [BASE], or --undo")
    if args.below is not None and not 0.0 <= args.below <= 1.0:
        parser.error("--below must lie in [0, 1]")
    if args.compatible is None and (args.to or args.keep):
        parser.error("--to and --keep belong to --compatible")
    if args.keep and args.compatible == HERE and not args.to:
        parser.error("--keep needs a base: --compatible BASE, or --to NAME")
    return args


def _undo(args: argparse.Namespace, store: Store) -> int:
    """Take back what was left out, also by the critics of older versions."""
    take_back = engine("robot_rl.store.left_out:take_back")
    author: Any = engine("robot_rl.reward.compatible_train:AUTHOR")
    taken = sum(take_back(store, name) for name in (author, CRITIC))
    write_json(args.json, {"left_out": 0, "taken_back": taken})
    say(f"0 steps left out, {taken} taken back in")
    return 0
