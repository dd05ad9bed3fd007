"""`robot-rl filter`: leave out of training what people did to no avail, or against each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.cli.filter_compatible import (
    HERE,
    SHADES,
    SHOWN,
    Found,
    framed,
    incompatible,
    moments,
)
from robot_rl.cli.progress import ProgressBar
from robot_rl.run.experiment import Experiment

if TYPE_CHECKING:
    from robot_rl.reward.progress.critic import Judged
    from robot_rl.store.store import Store

TEXT = """
Leave steps of people out of training. Nothing recorded is changed: the steps get labels. A second
call with another threshold moves the labels, --undo takes them back. Without --write the command
only says what it would leave out. Who judges:

--critic, --progress: a critic, or a progress model, finds steps that undo what was reached:
hesitations, slips, ways back. The critic is that of another run that has learned from the same
data, failures included.

--compatible: networks that were cloned from the base demonstrations find episodes in which somebody
does something else in the same situation. What nobody has seen yet is welcome. The base is another
run, or an ensemble that --keep has kept; with --to NAME only what NAME has driven. Without a base
the episodes judge each other: each person's by those of all others, or, if one person drove them
all, a fifth at a time by the rest. NAME is a person as the console knows them, or the run in which
an episode was recorded where the console saw nobody.
"""
EXAMPLES = """
robot-rl train experiment=peg_insert algo=calql train.dataset=RUN train.demos=0 \\
    train.max_env_steps=0 learner.pretrain_updates=5000 run_dir=runs/critic
robot-rl filter RUN --critic runs/critic                       what it would leave out
robot-rl filter RUN --critic runs/critic --drop 0.1 --write
robot-rl train experiment=peg_insert algo=bc_flow train.dataset=RUN train.demos=0 ...
robot-rl filter RUN --progress runs/reward --drop 0.2          a progress model judges the pictures
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
        judge = _harmful if args.compatible is None else incompatible
        author, left_out, figures = judge(args, store)
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
    parser.add_argument("--critic", type=Path, metavar="RUN", help="run whose critics judge")
    parser.add_argument(
        "--progress", type=Path, metavar="FOLDER", help="or a progress model judges, from pictures"
    )
    parser.add_argument(
        "--compatible",
        nargs="?",
        const=HERE,
        type=Path,
        metavar="BASE",
        help="or the demonstrations of a run judge, or a kept ensemble; without BASE those of RUN",
    )
    parser.add_argument(
        "--drop",
        type=float,
        default=0.1,
        help="smallest fall of progress that counts (default: 0.1)",
    )
    parser.add_argument(
        "--ahead", type=int, default=5, metavar="N", help="within so many steps (default: 5)"
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
    ways = [args.critic, args.progress, args.compatible]
    if [args.undo, *(way is not None for way in ways)].count(True) != 1:
        parser.error("give --critic RUN, --progress FOLDER, --compatible [BASE], or --undo")
    if args.drop <= 0.0 or args.ahead < 1:
        parser.error("--drop must be positive and --ahead at least 1")
    if args.below is not None and not 0.0 <= args.below <= 1.0:
        parser.error("--below must lie in [0, 1]")
    if args.compatible is None and (args.to or args.keep):
        parser.error("--to and --keep belong to --compatible")
    if args.keep and args.compatible == HERE and not args.to:
        parser.error("--keep needs a base: --compatible BASE, or --to NAME")
    return args


def _undo(args: argparse.Namespace, store: Store) -> int:
    """Take back what any of the judges has left out."""
    authors = ("robot_rl.reward.progress.critic:AUTHOR", "robot_rl.reward.compatible_train:AUTHOR")
    take_back = engine("robot_rl.store.left_out:take_back")
    taken = sum(take_back(store, engine(name)) for name in authors)
    write_json(args.json, {"left_out": 0, "taken_back": taken})
    say(f"0 steps left out, {taken} taken back in")
    return 0


def _harmful(args: argparse.Namespace, store: Store) -> Found:
    """Steps that undo progress."""
    find: Any = engine("robot_rl.reward.progress.critic:find_harmful")
    with ProgressBar("episodes judged") as progress:
        phi = _phi(args)
        judged = list(find(store, phi, drop=args.drop, ahead=args.ahead, progress=progress))
    for one in judged[:SHOWN]:
        say(line(one))
    author: Any = engine("robot_rl.reward.progress.critic:AUTHOR")
    return author, {one.id: one.harmful for one in judged}, {"episodes": len(judged)}


def _phi(args: argparse.Namespace) -> Any:
    """The critic or progress model that judges the steps."""
    if args.progress is not None:
        return engine("robot_rl.reward.progress.critic:phi_of_model")(
            args.progress, Experiment.load(args.run).spec
        )
    critic = engine("robot_rl.run.parts:critic_of")(args.critic)
    return engine("robot_rl.reward.progress.critic:phi_of_critic")(critic)


def line(one: Judged) -> str:
    """One episode: a strip of its progress, dark near success, and the number of steps left out."""
    phi = one.progress
    low, high = float(phi.min()), float(phi.max())
    scale = (len(SHADES) - 1) / max(high - low, 1e-6)
    strip = "".join(SHADES[round((float(phi[t]) - low) * scale)] for t in moments(len(phi)))
    value = f"{low:.2f} to {high:.2f}"
    return f"{framed(one.id, strip)} {value}  {len(one.harmful)} left out"
