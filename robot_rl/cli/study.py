"""`robot-rl study`: make the ablation table, with several seeds per variant."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.errors import ConfigError, did_you_mean

TEXT = """
Learn one task with and without demonstrations and interventions, and by cloning, with several seeds
each, in lockstep; print a table as in docs/results.md. Runs that are already complete in the folder
are not repeated, so an interrupted study goes on where it was. --ray runs them on the machines of
a Ray cluster, --jobs at once, and brings their folders back (docs/several_arms.md).
"""
EXAMPLES = """
robot-rl study peg_insert --seeds 3 --folder runs/study
robot-rl study peg_insert --variants full,bc --seeds 1 --jobs 2 train.max_minutes=5
robot-rl study peg_insert_easy --variants rlif,hg_dagger operator.skill=0.3
robot-rl study peg_insert --jobs 16 --ray 10.0.0.5:6379
robot-rl study lift --variants iql_wsrl,calql_wsrl --dataset runs/data
"""


def run(argv: Sequence[str]) -> int:
    """Run the study, print its table and return 0."""
    from robot_rl.run.jobs import Jobs, LocalJobs
    from robot_rl.run.study import ABLATION, VARIANTS, as_markdown, draw, study

    parser = Parser("study", TEXT, EXAMPLES).with_json().with_ray()
    parser.add_argument("task", help="experiment to study, e.g. peg_insert")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every run")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default 1)")
    parser.add_argument(
        "--variants",
        default=",".join(ABLATION),
        metavar="A,B",
        help="some of " + ", ".join(VARIANTS),
    )
    parser.add_argument(
        "--dataset", default="", metavar="RUN", help="what offline variants learn from"
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/study"), metavar="DIR")
    parser.add_argument(
        "--curves", type=Path, metavar="SVG", help="draw the learning curves into this file"
    )
    args = parser.read(argv)
    names = args.variants.split(",")
    for name in names:
        if name not in VARIANTS:
            raise ConfigError(
                f"unknown variant '{name}'",
                expected="variants of the study, separated by commas",
                got=args.variants,
                fix=did_you_mean(name, VARIANTS),
            )

    def on_cluster() -> AbstractContextManager[Jobs]:
        return engine("robot_rl.run.on_ray:jobs_on")(args.ray, args.jobs)

    with nullcontext(LocalJobs(args.jobs)) if args.ray is None else on_cluster() as where:
        figures = study(
            args.task,
            names=names,
            seeds=args.seeds,
            folder=args.folder / args.task,
            jobs=args.jobs,
            extra=args.overrides,
            dataset=args.dataset,
            progress=say,
            where=where,
        )
    say(as_markdown(figures))
    if args.curves:
        args.curves.write_text(draw(args.task, names, args.seeds, args.folder / args.task))
    write_json(args.json, figures)
    return 0
