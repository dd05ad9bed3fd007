"""`robot-rl reward`: learn reward models from recorded episodes, and measure them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.cli.progress import Progress
from robot_rl.errors import ConfigError
from robot_rl.experiment import Experiment

TEXT = """
Learn from the pictures of recorded episodes what success looks like (--kind success), or how far
the task is (--kind progress), and measure how well that works on others. `train` needs runs with
successes and failures, and holds some episodes of each back; `eval` judges a model on other runs,
tries to deceive it, and writes a page with strips of episodes that a person checks in a minute. A
run of reward=classifier then learns without ground truth; reward.progress shapes any reward.
"""
EXAMPLES = """
robot-rl record experiment=lift_pixels --demos 30 reward.hold_steps=5 run_dir=runs/good
robot-rl record experiment=lift_pixels --demos 10 reward.hold_steps=5 operator.skill=0.3 \\
    run_dir=runs/poor                                                failures, too
robot-rl reward train runs/good runs/poor --out runs/lift_reward
robot-rl reward train runs/good runs/poor --kind progress --out runs/lift_reward
robot-rl reward eval runs/other --model runs/lift_reward
robot-rl train experiment=lift_pixels reward=classifier reward.model=runs/lift_reward \\
    reward.progress=runs/lift_reward reward.shaping=0.5
"""
NAMES = {
    "success": {
        "frame_auc": "AUC of frames",
        "episode_auc": "AUC of episodes, score held",
        "true_positive_rate": "successes recognised",
        "false_positive_rate": "episodes taken for one, wrongly",
        "false_positive_rate_at_90": "the same where 90 % are recognised",
        "calibration_error": "calibration error",
    },
    "progress": {
        "voc_success": "VOC of successes: order of time",
        "voc_truth_success": "order of true progress, successes",
        "voc_truth_failure": "order of true progress, failures",
        "direction_1_s": "higher a second later",
        "episode_auc": "AUC of episodes, highest progress",
        "kendall_a": "Kendall tau-a of ends, true progress",
        "kendall_b": "Kendall tau-b of the same",
    },
}
SHOWN = 24  # episodes on the page; what is wrong comes first


def run(argv: Sequence[str]) -> int:
    """Train or evaluate; return 0."""
    parser = Parser("reward", TEXT, EXAMPLES).with_json()
    parser.add_argument("what", choices=("train", "eval"))
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders")
    parser.add_argument(
        "--kind", choices=tuple(NAMES), help="default: success; eval: what is there"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="train: where the model goes")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="eval: the model")
    parser.add_argument("--page", type=Path, metavar="FILE", help="eval: default FOLDER/KIND.html")
    parser.add_argument("--updates", type=int, default=1500, help="gradient steps (default: 1500)")
    parser.add_argument("--positives", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--margin", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--hold-steps", type=int, default=3, metavar="N", help="success: default 3")
    parser.add_argument("--way", help="progress: value (default), pair or distance")
    parser.add_argument("--discount", type=float, help="progress: of the steps that are left; default: 1, linear")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    args = parser.read(argv)
    needed, other = (args.out, args.model) if args.what == "train" else (args.model, args.out)
    if needed is None or other is not None:
        parser.error("train needs --out FOLDER, eval needs --model FOLDER")
    names = ("updates", "positives", "margin", "hold_steps", "seed")
    try:
        film: Any = engine("robot_rl.learn.success:SuccessConfig")(
            **{name: getattr(args, name) for name in names}
        )
        ways = {k: v for k in ("way", "discount") if (v := getattr(args, k)) is not None}
        progress: Any = engine("robot_rl.learn.progress_model:ProgressConfig")(
            updates=args.updates, seed=args.seed, **ways
        )
    except ValueError as error:
        parser.error(str(error))
    if args.what == "train":
        kinds, act = (args.kind or "success",), _train
    else:
        there = [k for k in NAMES if (args.model / f"{k}.json").is_file()]
        kinds, act = ((args.kind,) if args.kind else tuple(there) or ("success",)), _evaluate
    spec, episodes = _episodes(args.runs, film)
    told: dict[str, Any] = {}
    for kind in kinds:
        figures = act(kind, args, spec, episodes, film if kind == "success" else progress)
        told |= figures
        words = as_words(kind, figures)
        head = f"{figures['episodes']} episodes not learned from, {figures['successes']} succeed"
        say("\n".join([head, *(f"{name:<38}{value:>8}" for name, value in words.items())]))
    write_json(args.json, told)
    if args.what == "train":
        use = "reward=classifier reward.model" if kinds[0] == "success" else "reward.progress"
        say(f"model in {args.out}; learn with it: {use}={args.out}")
    return 0


def as_words(kind: str, figures: Mapping[str, Any]) -> dict[str, str]:
    """What a person reads: name -> number; a dash where nothing could be measured."""
    flat = dict(figures) | {f"kendall_{k}": v for k, v in figures.get("kendall_end", {}).items()}
    shown = {name: flat[key] for key, name in NAMES[kind].items() if key in flat}
    shown |= {f"deceived by: {k}": v for k, v in figures.get("hacks", {}).items()}
    shown |= {f"control: {k.replace('_', ', ')}": v for k, v in figures.get("controls", {}).items()}
    return {k: "-" if math.isnan(v) else f"{v:.3f}" for k, v in shown.items()}


def _train(kind: str, args: Any, spec: Any, episodes: list[Any], config: Any) -> dict[str, Any]:
    targets = {"success": "success:learn_success", "progress": "progress_model:learn_progress"}
    learn = engine(f"robot_rl.learn.{targets[kind]}")
    with Progress("updates") as progress:
        source = [str(run) for run in args.runs]
        model = learn(episodes, spec, config, source=source, told=progress)
    model.save(args.out)
    return model.figures


def _evaluate(kind: str, args: Any, spec: Any, episodes: list[Any], config: Any) -> dict[str, Any]:
    write = engine("robot_rl.report.rewards:write_reward_page")
    if kind == "success":
        model: Any = engine("robot_rl.reward.classifier:SuccessModel")
        model = model.load(args.model, spec)
        figures = engine("robot_rl.learn.success:judge")(model, episodes)
        figures["hacks"] = engine("robot_rl.learn.success:deceive")(model, episodes)
        strips = engine("robot_rl.learn.success:strips")(model, episodes, SHOWN)
    else:
        model = engine("robot_rl.reward.progress:ProgressModel")
        model = model.load(args.model, spec)
        judge = engine("robot_rl.learn.progress_model:judge_progress")
        figures = judge(model, episodes, spec.control_hz)
        figures["controls"] = engine("robot_rl.learn.progress_model:controls")(model, episodes)
        strips = engine("robot_rl.learn.progress_model:strips")(model, episodes, SHOWN)
    page = write(
        args.page or args.model / f"{kind}.html",
        name=f"{args.model.name}: {model.title} {model.version}",
        subtitle=f"on {len(episodes)} episodes of {', '.join(str(r) for r in args.runs)}",
        figures=as_words(kind, figures),
        strips=strips,
    )
    say(f"look at it: {page}")
    return figures


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
