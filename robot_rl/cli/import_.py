"""`robot-rl import`: import demonstrations of another program into a folder to learn from."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, explain, say, write_json
from robot_rl.cli.progress import ProgressBar

TEXT = """
Import a LeRobotDataset v3 for the task of an experiment, or a Minari dataset for experiment=gym.
`train.dataset=FOLDER` learns from it.

Of a LeRobotDataset: features are expected under the names of our own export; --map says where the
names differ. State and action must have the size and meaning of the task's, and the dataset must
have the task's rate; images are resized. Steps get the driver `demo`. Without next.reward they are
unlabelled, unless --success last says that every episode succeeds at its last step.

Of a Minari dataset: its observation needs the parts of the environment's, rewards and endings are
taken as they were recorded, and actions must lie within the environment's bounds.

After an interruption the same command goes on where it was.
"""
EXAMPLES = """
robot-rl import datasets/peg --out runs/demos experiment=peg_insert
robot-rl import recorded --out runs/demos experiment=peg_insert_easy_pixels \\
    --map observation.images.hand=image/wrist --map observation.images.top=image/front \\
    --success last
robot-rl train experiment=peg_insert train.dataset=runs/demos
robot-rl import ~/.minari/datasets/lab/push-v0 --out runs/push \\
    experiment=gym task.env_id=lab/Push-v0
"""


def run(argv: Sequence[str]) -> int:
    """Import the dataset; return 0 when every episode is in the store."""
    from robot_rl.run.experiment import Experiment

    parser = Parser("import", TEXT, EXAMPLES)
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="folder of the dataset")
    parser.with_overrides().with_json()
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="new run folder")
    parser.add_argument(
        "--map", action="append", default=[], metavar="FEATURE=ENTRY", help="may be repeated"
    )
    parser.add_argument(
        "--ignore-names", action="store_true", help="state and action differ in their names only"
    )
    parser.add_argument("--success", choices=("last",), default="", help="label the last step 1")
    args = parser.read(argv)
    experiment = Experiment.compose(args.overrides, args.config_dir)
    if args.config:
        say(explain(experiment))
        return 0
    with ProgressBar("episodes imported") as progress:
        if engine("robot_rl.data.minari_import:is_minari")(args.dataset):
            figures = _minari(parser, experiment.section("task"), args, progress)
        else:
            figures = _lerobot(parser, experiment.section("task"), args, progress)
    write_json(args.json, figures)
    say(f"{figures['episodes']} episodes, {figures['steps']} steps in {args.out}")
    say(f"learn from them with train.dataset={args.out}")
    return 0


def _lerobot(parser: Parser, task: Any, args: Namespace, progress: ProgressBar) -> dict[str, int]:
    options = engine("robot_rl.data.lerobot_rows:ImportOptions")(
        mapping=_mapping(parser, args.map), ignore_names=args.ignore_names, success=args.success
    )
    write = engine("robot_rl.data.lerobot_import:import_lerobot")
    return write(args.dataset, task.spec, args.out, options, progress)


def _minari(parser: Parser, task: Any, args: Namespace, progress: ProgressBar) -> dict[str, int]:
    if args.map or args.ignore_names:
        parser.error("a Minari dataset has no features: --map and --ignore-names are for LeRobot's")
    if not hasattr(task, "env_id"):
        parser.error(
            f"a Minari dataset is of a Gymnasium environment, not of '{task.name}'; fix: "
            "experiment=gym task.env_id=<the environment that was recorded>"
        )
    write = engine("robot_rl.data.minari_import:import_minari")
    return write(args.dataset, task, args.out, args.success, progress)


def _mapping(parser: Parser, words: Sequence[str]) -> dict[str, str]:
    """FEATURE=ENTRY words as a dict."""
    for word in words:
        if not all(part for part in word.partition("=")):
            parser.error(f"--map needs FEATURE=ENTRY, e.g. observation.state=state: {word}")
    return dict(word.split("=", 1) for word in words)
