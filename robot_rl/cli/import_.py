"""`robot-rl import`: import demonstrations of another program into a folder to learn from."""

from __future__ import annotations

import logging
import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, explain, say, write_json
from robot_rl.cli.progress import ProgressBar
from robot_rl.config.run_folder import RUN
from robot_rl.config.yaml_file import read_yaml
from robot_rl.errors import ConfigError, SetupError

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

log = logging.getLogger(__name__)

TEXT = """
Import a LeRobotDataset v3 for the task of an experiment, or a Minari dataset for experiment=gym.
`train.dataset=FOLDER` learns from it. FOLDER becomes a run folder: review, verify, export and
reward train take it as one that robot-rl record made.

Of a LeRobotDataset: features are expected under the names of our own export; --map says where the
names differ. State and action must have the size and meaning of the task's, and the dataset must
have the task's rate; images are resized. Steps get the driver `demo`. Without next.reward they are
unlabelled, unless --success last says that every episode succeeds at its last step, or --success
MODEL has a success classifier (robot-rl reward train) judge their pictures.

Of a Minari dataset: its observation needs the parts of the environment's, rewards and endings are
taken as they were recorded, and actions must lie within the environment's bounds.

A recording without actions, of another system or of an arm that was guided by hand, gets them from
an inverse dynamics model: --without-actions --inverse RUN learns from the steps of RUN which action
leads from one frame to the next. Demonstrations of the same task are best as RUN; a few are enough.
It says first how well it knows the actions of episodes that it has not seen (R2: 1 is perfect, 0 a
guess), and labels nothing if that is little. Without --without-actions the model's actions take the
place of those that the recording has. Of a run of ours, DATASET may be its folder: the steps that a
person drove are labelled.

After an interruption the same command goes on where it was.
"""
EXAMPLES = """
robot-rl import datasets/peg --out runs/demos experiment=peg_insert
robot-rl import recorded --out runs/demos experiment=peg_insert_easy_pixels \\
    --map observation.images.hand=image/wrist --map observation.images.top=image/front \\
    --success last
robot-rl train experiment=peg_insert train.dataset=runs/demos
robot-rl review runs/demos
robot-rl import recorded --out runs/demos experiment=pick_insert --success last \\
    --without-actions --inverse runs/pick_insert/RUN
robot-rl import runs/guided --out runs/demos experiment=peg_insert --inverse runs/peg_insert/RUN
robot-rl import ~/.minari/datasets/lab/push-v0 --out runs/push \\
    experiment=gym task.env_id=lab/Push-v0
"""


LAST = "last"  # of --success
STRANGE = 0.5  # share of the steps of which the model is unsure; of fitting recordings 2 to 11 %


def run(argv: Sequence[str]) -> int:
    """Import the dataset; return 0 when every episode is in the store."""
    from robot_rl.run.at_work import at_work
    from robot_rl.run.experiment import Experiment
    from robot_rl.store.dataset import find_store

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
    parser.add_argument(
        "--success",
        default="",
        metavar="last|MODEL",
        help="every episode succeeds at its last step; or MODEL, the folder of a success "
        "classifier, says where episodes end and which succeed",
    )
    parser.add_argument(
        "--without-actions", action="store_true", help="DATASET has no actions; needs --inverse"
    )
    parser.add_argument(
        "--inverse",
        action="append",
        default=[],
        type=Path,
        metavar="RUN",
        help="infer the actions from what they led to, as the steps of RUN show; may be repeated",
    )
    args = parser.read(argv)
    if args.success not in ("", LAST) and not Path(args.success).is_dir():
        parser.error(
            f"--success {args.success}: neither '{LAST}' (the last step of an episode succeeds) "
            "nor the folder of a success classifier, as robot-rl reward train makes it"
        )
    if args.without_actions and not args.inverse:
        parser.error(
            "--without-actions needs --inverse RUN: a run of the same task whose actions are known"
        )
    experiment = Experiment.compose(args.overrides, args.config_dir)
    if args.config:
        say(explain(experiment))
        return 0
    task: Any = experiment.section("task")
    is_run = bool(args.inverse) and find_store(args.dataset) is not None
    is_minari = not is_run and engine("robot_rl.data.minari_import:is_minari")(args.dataset)
    _check_actions(parser, args, is_run=is_run, is_minari=is_minari)
    resolved = _resolved(experiment)
    if _is_other_run(args.out):
        experiment.keep(resolved or {}, args.out)  # refuses all but the same experiment
    inverse = _inverse(args.inverse, task.spec) if args.inverse else None
    with ProgressBar("episodes imported") as progress:
        if is_run:
            figures = _run(args, inverse, progress)
        elif is_minari:
            figures = _minari(parser, task, args, progress)
        else:
            figures = _lerobot(parser, task, args, inverse, progress)
    if resolved is not None and not (args.out / RUN).is_file():
        with at_work(experiment.keep(resolved, args.out, has_rows=True), "record"):
            pass  # its rows are there, as of a run that was recorded
    write_json(args.json, figures)
    say(f"{figures['episodes']} episodes, {figures['steps']} steps in {args.out}")
    if inverse:
        say(
            f"actions inferred of {figures['inferred']} steps; of {figures['unsure']} the model is "
            f"less sure than of {100 * _model('SURE'):.0f} % of the steps that it learned from"
        )
        if figures["unsure"] > STRANGE * figures["inferred"]:
            say(
                "WARNING: most of these steps are unlike any that the model has learned from, so "
                "that its R2 says nothing of them, and their actions may be wrong. Record some "
                "episodes with actions in the same manner, and name that run with --inverse"
            )
    say("learn from them with " + shlex.quote(f"train.dataset={args.out}"))
    return 0


def _resolved(experiment: Experiment) -> dict[str, Any] | None:
    """Every value in force; None where a section needs a package that an import does not."""
    try:
        return experiment.resolved()
    except SetupError as error:
        log.warning("what is imported can be learned from, but is no run folder: %s", error)
        return None


def _is_other_run(out: Path) -> bool:
    """Whether a folder belongs to a run that no import has made."""
    return (out / RUN).is_file() and not _is_import(out)


def _is_import(folder: Path) -> bool:
    from robot_rl.data.import_store import SUMMARY

    return (folder / SUMMARY).is_file()


def _model(name: str) -> Any:
    return engine(f"robot_rl.data.inverse:{name}")


def _check_actions(parser: Parser, args: Namespace, *, is_run: bool, is_minari: bool) -> None:
    """Refuse what the two options say wrongly of the source.

    Raises:
        ConfigError: it has actions, although --without-actions says that it has none.
    """
    if is_minari and args.inverse:
        parser.error("a Minari dataset always has actions: leave --inverse out")
    if is_run and (args.map or args.ignore_names or args.success):
        parser.error("--map, --ignore-names and --success are for datasets: a run says all of this")
    if not args.without_actions:
        return
    has_actions = is_run or engine("robot_rl.data.lerobot_import:has_actions")(args.dataset)
    if has_actions:
        raise ConfigError(
            f"{args.dataset} has actions",
            expected="a recording without, as --without-actions says",
            got="a run of ours" if is_run else "a feature 'action'",
            fix="leave --inverse out as well to use them, or leave only --without-actions out to "
            "have the model's in their place",
        )


def _inverse(runs: Sequence[Path], spec: Any) -> Any:
    """The model, learned from runs; says what it knows. Raises as `data.inverse`."""
    from robot_rl.store.dataset import open_store

    moves: list[Any] = []
    for run in runs:
        with open_store(run) as store:
            moves += _model("own_moves")(store, spec, guided=_guided(run))
    inverse = _model("learn_inverse")(moves, spec)
    say(f"learned from {inverse.episodes} episodes, {inverse.steps} steps")
    known = ", ".join(f"{name} {value:.2f}" for name, value in inverse.known)
    say(f"known of the actions in held-out episodes (R2): motion {inverse.overall:.2f}; {known}")
    return inverse


def _guided(run: Path) -> bool:
    """Whether people guided the arm by hand in a run."""
    config = run / "config.yaml"
    if not config.is_file() or _is_import(run):
        return False  # a store file, or an import
    return read_yaml(config).get("operator", {}).get("name") == "kinesthetic"


def _run(args: Namespace, inverse: Any, progress: ProgressBar) -> dict[str, int]:
    from robot_rl.store.dataset import open_store

    with open_store(args.dataset) as store:
        write = engine("robot_rl.data.without_actions:import_run")
        return write(store, inverse, args.out, progress)


def _lerobot(
    parser: Parser, task: Any, args: Namespace, inverse: Any, progress: ProgressBar
) -> dict[str, int]:
    options = engine("robot_rl.data.lerobot_rows:ImportOptions")(
        mapping=_mapping(parser, args.map), ignore_names=args.ignore_names, success=args.success
    )
    judge = None
    if args.success not in ("", LAST):
        model: Any = engine("robot_rl.reward.success.model:SuccessModel")
        model = model.load(Path(args.success), task.spec)
        judge = partial(engine("robot_rl.reward.success.recorded:judged"), model)
        options = replace(options, success=model.author)
    write = engine("robot_rl.data.lerobot_import:import_lerobot")
    return write(args.dataset, task.spec, args.out, options, progress, inverse=inverse, judge=judge)


def _minari(parser: Parser, task: Any, args: Namespace, progress: ProgressBar) -> dict[str, int]:
    if args.map or args.ignore_names:
        parser.error("a Minari dataset has no features: --map and --ignore-names are for LeRobot's")
    if args.success not in ("", LAST):
        parser.error("a Minari dataset has no pictures to judge: --success last, or nothing")
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
