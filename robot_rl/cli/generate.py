"""`robot-rl generate`: demonstrations by policies that have learned a task."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from robot_rl.cli.common import Parser, engine, existing_run, say, write_json
from robot_rl.cli.progress import ProgressBar

TEXT = """
Let the policies of one or more runs of a task show it in simulation, and keep the episodes: data
for cloning, for a pretrained policy, or for other programs. From each start the policies drive in
turn, their motion at first much smoothed, then less, at last as it is; the first success is kept.
FOLDER becomes a run folder: train.dataset=FOLDER learns from it, and review, report and export read
it. Interrupted, the same command goes on.
"""
EXAMPLES = """
robot-rl generate runs/peg_insert/20260101-120000-s0 --episodes 200 --out runs/peg_by_policy
robot-rl generate RUN1 RUN2 --out runs/generated
robot-rl generate RUN --out runs/generated --dataset datasets/peg --task "insert the peg"
robot-rl train experiment=peg_insert algo=bc_flow train.dataset=runs/peg_by_policy train.demos=0 \\
    train.max_env_steps=0 learner.pretrain_updates=6000
"""


def run(argv: Sequence[str]) -> int:
    """Generate episodes; return 0 when the wanted number of them is kept."""
    parser = Parser("generate", TEXT, EXAMPLES).with_json()
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders of one task")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="new run folder")
    parser.add_argument(
        "--episodes", type=int, default=200, metavar="N", help="how many to keep (200)"
    )
    parser.add_argument(
        "--dataset", type=Path, metavar="FOLDER", help="also export a LeRobotDataset"
    )
    parser.add_argument("--task", default="", metavar="TEXT", help="of the dataset, in words")
    args = parser.read(argv)
    if args.episodes < 1:
        parser.error("--episodes must be at least 1")
    if args.task and args.dataset is None:
        parser.error("--task is of the LeRobotDataset: give --dataset FOLDER, too")
    runs = [existing_run(run) for run in args.runs]
    with ProgressBar("episodes kept") as progress, _without_a_line_for_each_try():
        made = engine("robot_rl.run.generate:generate")(runs, args.out, args.episodes, progress)
    write_json(args.json, made)
    without = len(made["failed_starts"])
    say(
        f"{made['episodes']} episodes in {args.out}: {made['starts']} starts, {without} of them "
        f"without a success, {made['tries']} tries, jerk {made['jerk']:.2f}"
    )
    if args.dataset is None:
        return 0
    words = [str(args.out), "--to", "lerobot", "--out", str(args.dataset), "--task", args.task]
    return engine("robot_rl.cli.export:run")(words)


@contextmanager
def _without_a_line_for_each_try() -> Iterator[None]:
    """The bar says how far it is; a session would log every episode."""
    sessions = logging.getLogger("robot_rl.control.session")
    before = sessions.level
    sessions.setLevel(logging.WARNING)
    try:
        yield
    finally:
        sessions.setLevel(before)
