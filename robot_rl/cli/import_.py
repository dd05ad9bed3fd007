"""`robot-rl import`: import demonstrations of another program into a folder to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, explain, say, write_json
from robot_rl.cli.progress import ProgressBar

TEXT = """
Import a LeRobotDataset v3 for the task of an experiment. `train.dataset=FOLDER` learns from it.

Features are expected under the names of our own export; --map says where the names differ. State
and action must have the size and meaning of the task's, and the dataset must have the task's rate;
images are resized. Steps get the driver `demo`. Without next.reward they are unlabelled, unless
--success last says that every episode succeeds at its last step. After an interruption the same
command goes on where it was.
"""
EXAMPLES = """
robot-rl import datasets/peg --out runs/demos experiment=peg_insert
robot-rl import recorded --out runs/demos experiment=peg_insert_easy_pixels \\
    --map observation.images.hand=image/wrist --map observation.images.top=image/front \\
    --success last
robot-rl train experiment=peg_insert train.dataset=runs/demos
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
    options = engine("robot_rl.data.lerobot_rows:ImportOptions")(
        mapping=_mapping(parser, args.map), ignore_names=args.ignore_names, success=args.success
    )
    spec = experiment.section("task").spec
    with ProgressBar("episodes imported") as progress:
        write = engine("robot_rl.data.lerobot_import:import_lerobot")
        figures = write(args.dataset, spec, args.out, options, progress)
    write_json(args.json, figures)
    say(f"{figures['episodes']} episodes, {figures['steps']} steps in {args.out}")
    say(f"learn from them with train.dataset={args.out}")
    return 0


def _mapping(parser: Parser, words: Sequence[str]) -> dict[str, str]:
    """FEATURE=ENTRY words as a dict."""
    for word in words:
        if not all(part for part in word.partition("=")):
            parser.error(f"--map needs FEATURE=ENTRY, e.g. observation.state=state: {word}")
    return dict(word.split("=", 1) for word in words)
