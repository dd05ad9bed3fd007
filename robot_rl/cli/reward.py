"""`robot-rl reward`: learn reward models from recorded episodes, and measure them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.cli.progress import Progress
from robot_rl.errors import ConfigError
from robot_rl.experiment import Experiment

TEXT = """
Learn what success looks like from the pictures of recorded episodes, and measure how well it is
recognised in others. `train` needs runs with successes and failures, and holds some episodes of
each back to choose the threshold; `eval` judges a model on other runs. A run of reward=classifier
then learns without ground truth: the model ends its episodes and says what they are worth.
"""
EXAMPLES = """
robot-rl record experiment=lift_pixels --demos 30 reward.hold_steps=5 run_dir=runs/good
robot-rl record experiment=lift_pixels --demos 10 reward.hold_steps=5 operator.skill=0.3 \\
    run_dir=runs/poor                                                failures, too
robot-rl reward train runs/good runs/poor --out runs/lift_success
robot-rl reward eval runs/other --model runs/lift_success
robot-rl train experiment=lift_pixels reward=classifier reward.model=runs/lift_success
"""
NAMES = {
    "frame_auc": "AUC of frames",
    "episode_auc": "AUC of episodes, score held",
    "true_positive_rate": "successes recognised",
    "false_positive_rate": "episodes taken for one, wrongly",
    "false_positive_rate_at_90": "the same where 90 % are recognised",
    "calibration_error": "calibration error",
}


def run(argv: Sequence[str]) -> int:
    """Train or evaluate; return 0."""
    parser = Parser("reward", TEXT, EXAMPLES).with_json()
    parser.add_argument("what", choices=("train", "eval"))
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="train: where the model goes")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="eval: the model")
    parser.add_argument("--updates", type=int, default=1500, help="gradient steps (default: 1500)")
    parser.add_argument("--positives", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--margin", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--hold-steps", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    args = parser.read(argv)
    needed, other = (args.out, args.model) if args.what == "train" else (args.model, args.out)
    if needed is None or other is not None:
        parser.error("train needs --out FOLDER, eval needs --model FOLDER")
    names = ("updates", "positives", "margin", "hold_steps", "seed")
    make = engine("robot_rl.learn.success:SuccessConfig")
    try:
        config: Any = make(**{name: getattr(args, name) for name in names})
    except ValueError as error:
        parser.error(str(error))
    spec, episodes = _episodes(args.runs, config)
    if args.what == "train":
        with Progress("updates") as progress:
            learn = engine("robot_rl.learn.success:learn_success")
            source = [str(run) for run in args.runs]
            model = learn(episodes, spec, config, source=source, told=progress)
        model.save(args.out)
        figures = model.figures
    else:
        kind: Any = engine("robot_rl.reward.classifier:SuccessModel")
        model = kind.load(args.model, spec)
        judge = engine("robot_rl.learn.success:judge")
        _, figures = judge(model.net, model.tensors, episodes, config, model.threshold)
        deceive = engine("robot_rl.learn.success:deceive")
        hacks = deceive(model.net, model.tensors, episodes, config, model.threshold)
        figures["hacks"] = hacks
    write_json(args.json, figures)
    say(f"{figures['episodes']} episodes not learned from, {figures['successes']} of them succeed")
    for key, name in NAMES.items():
        say(f"{name:<36}{figures[key]:8.3f}")
    for name, share in figures.get("hacks", {}).items():
        say(f"deceived by: {name:<23}{share:8.3f}")
    if args.what == "train":
        say(f"model in {args.out}; learn with it: reward=classifier reward.model={args.out}")
    return 0


def _episodes(runs: Sequence[Path], config: Any) -> tuple[Any, list[Any]]:
    """Spec of the first run, and the judged episodes of all of them."""
    footage = engine("robot_rl.learn.success:footage")
    open_store = engine("robot_rl.store.dataset:open_store")
    shapes = engine("robot_rl.nets.observation:image_shapes")
    specs = [Experiment.load(run).spec for run in runs]
    cameras, episodes = shapes(specs[0]), []
    if not cameras:
        raise ConfigError(
            f"the run {runs[0]} has no cameras",
            expected="pictures to learn from",
            got=f"observations {', '.join(specs[0].observation)}",
            fix="record with task.images=[wrist,front], or an experiment that ends in _pixels",
        )
    for path, spec in zip(runs, specs, strict=True):
        if shapes(spec) != cameras:
            raise ConfigError(
                f"{path} has other cameras than {runs[0]}",
                expected=str(cameras),
                got=str(shapes(spec)),
                fix="give runs of one experiment",
            )
        with open_store(path) as store, Progress(f"episodes of {path}") as progress:
            episodes += footage(store, tuple(cameras), config, progress)
    return specs[0], episodes
