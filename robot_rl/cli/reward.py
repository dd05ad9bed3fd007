"""`robot-rl reward`: learn reward models from recorded episodes, and measure them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.cli.progress import ProgressBar
from robot_rl.errors import ConfigError, did_you_mean
from robot_rl.run.experiment import Experiment

TEXT = """
Learn reward models from recorded episodes, and measure how well they do on other episodes:
  train    from pictures: what success looks like (--kind success), how far the task is (progress)
  clip     how far the task is, without training: CLIP compares frames with two sentences
  eval     a model on other runs: figures, attempts to deceive it, a page with strips of episodes
  prefer   from answers to "which of two moments is nearer to the goal?", asked of a vision-language
           model; recorded rewards are not looked at
Then reward=classifier learns without ground truth; reward.progress shapes any reward;
reward.preference replaces it.
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
TRAIN = """
Learn from runs with successes and failures. Some episodes of each kind are held out, and the
figures are about these.
"""
EVAL = """
Judge a model on runs that it has not learned from, try to deceive it, and write a page with strips
of episodes that a person checks in a minute: those that the model got wrong come first.
"""
PREFER = """
Learn a reward for recorded episodes of mixed quality that nobody has labelled: ask a
vision-language model which of two moments is nearer to the goal, mostly about pairs that are
unclear, and learn a reward that fits the answers. With --train the task is then learned from these
episodes and this reward; the words after --train are those of `robot-rl train`.
"""
PREFER_EXAMPLES = """
robot-rl reward prefer runs/mixed --out runs/worth --task "lift the red cube" \\
    --server http://127.0.0.1:8000/v1 --vlm Qwen/Qwen3-VL-8B-Instruct --camera image/front
robot-rl reward prefer runs/mixed --out runs/worth --truth 0.1      the simulator, 10 % wrong
robot-rl reward prefer runs/mixed --out runs/worth --truth 0 \\
    --train experiment=lift algo=iql learner.pretrain_updates=20000
"""
CLIP = """
How far is the task? CLIP compares each frame with a sentence for the goal and one for what the
scene looks like anyway (VLM-RM). Nothing is trained: recorded runs only set what counts as 0 and 1.
Judge it on other runs before you use it: CLIP is poor at telling where things are.
"""
CLIP_EXAMPLES = """
robot-rl reward clip runs/good runs/poor --clip models/clip-vit-large --out runs/lift_clip \\
    --task "the red cube is lifted by a robot gripper" --baseline "a robot arm above a table"
robot-rl reward clip runs/good --clip org/name --revision COMMIT --out runs/lift_clip \\
    --task "..." --baseline "..." --camera image/front --alpha 0.8    from the hub, at one commit
robot-rl reward eval runs/other --model runs/lift_clip
robot-rl train experiment=lift_pixels reward.progress=runs/lift_clip reward.shaping=0.5
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
    "preference": {
        "agreement": "agrees with answers not learned from",
        "voc_truth": "order of true progress in an episode",
        "kendall_a": "Kendall tau-a of ends, true progress",
        "kendall_b": "Kendall tau-b of the same",
    },
}
NAMES["clip"] = NAMES["progress"]
KINDS = ("success", "progress")  # the models that `train` trains
SHOWN = 24  # episodes on the page; those that were judged wrongly come first


def run(argv: Sequence[str]) -> int:
    """Run one subcommand, such as `train` or `eval`; return the exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        Parser("reward", TEXT, EXAMPLES).read(["--help"])
    if argv[0] not in VERBS:
        raise ConfigError(
            f"unknown word '{argv[0]}'",
            expected="robot-rl reward " + "|".join(VERBS),
            got=argv[0],
            fix=did_you_mean(argv[0], VERBS),
        )
    return VERBS[argv[0]](argv[1:])


def _refuse_existing(folder: Path, kind: str) -> None:
    """Raise where the folder has a model of this kind: runs may use it, and find it by its place.

    A model of another kind may be beside it, and an interrupted training leaves none.
    """
    known = folder / f"{kind}.json"  # written last
    if known.is_file():
        raise ConfigError(
            f"{folder} has a model already",
            expected=f"a folder without a model of the kind {kind}",
            got=f"{known.name}, which would be overwritten",
            fix="choose another folder: --out FOLDER; or move the old model away",
        )


def _train(argv: Sequence[str]) -> int:
    parser = _parser("train", TRAIN, EXAMPLES)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for the model")
    parser.add_argument("--kind", choices=KINDS, default="success", help="default: success")
    parser.add_argument("--updates", type=int, default=1500, help="gradient steps (default: 1500)")
    parser.add_argument(
        "--hold-steps",
        type=int,
        default=3,
        metavar="N",
        help="success: ticks in a row (default: 3)",
    )
    parser.add_argument("--way", default="value", help="progress: value (default) or pair")
    parser.add_argument(
        "--discount", type=float, default=1.0, help="progress: per step left (default: 1 = linear)"
    )
    parser.add_argument(
        "--failures", type=float, default=0.0, help="progress: their share of a batch (default: 0)"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    args = parser.read(argv)
    _refuse_existing(args.out, args.kind)
    film = _film(parser, args, "updates", "hold_steps", "seed")
    config, learn = film, "success.train:learn_success"
    if args.kind == "progress":
        names = ("updates", "seed", "way", "discount", "failures")
        config = _config(parser, "progress.train:ProgressConfig", args, names)
        learn = "progress.train:learn_progress"
    spec, episodes = _episodes(args.runs, film)
    with ProgressBar("updates") as progress:
        source = [str(run) for run in args.runs]
        model = engine(f"robot_rl.reward.{learn}")(
            episodes, spec, config, source=source, told=progress
        )
    model.save(args.out)
    _tell(args.kind, model.figures)
    write_json(args.json, model.figures)
    use = {"success": "reward=classifier reward.model", "progress": "reward.progress"}[args.kind]
    say(f"model in {args.out}; learn with it: {use}={args.out}")
    return 0


def _clip(argv: Sequence[str]) -> int:
    parser = _parser("clip", CLIP, CLIP_EXAMPLES)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for the model")
    parser.add_argument("--task", required=True, metavar="TEXT", help="what the goal looks like")
    parser.add_argument(
        "--baseline", required=True, metavar="TEXT", help="what the scene looks like anyway"
    )
    parser.add_argument(
        "--clip", required=True, metavar="FOLDER", help="CLIP's weights; or org/name on the hub"
    )
    parser.add_argument("--revision", default="", metavar="COMMIT", help="hub: 40 hex digits")
    parser.add_argument("--camera", default="", help="image entry (default: the first)")
    parser.add_argument(
        "--alpha", type=float, default=0.5, help="0 = ignore the baseline (default: 0.5)"
    )
    args = parser.read(argv)
    _refuse_existing(args.out, "clip")
    net = engine("robot_rl.nets.clip:ClipNet")(args.clip, args.revision)
    spec, episodes = _episodes(args.runs, _film(parser, args))
    with ProgressBar("episodes scored") as progress:
        model = engine("robot_rl.reward.progress.clip:make_clip")(
            net,
            spec,
            [e.images for e in episodes],
            **{n: getattr(args, n) for n in ("task", "baseline", "alpha", "camera")},
            source=[str(run) for run in args.runs],
            told=progress,
        )
    good = sum(e.success for e in episodes)
    figures: dict[str, Any] = {"episodes": len(episodes), "successes": good}
    if 0 < good < len(episodes):
        judge = engine("robot_rl.reward.progress.train:judge_progress")
        figures = judge(model, episodes, spec.control_hz)
    replace(model, figures=figures).save(args.out)
    say(f"R from {model.low:.4f} to {model.high:.4f} (5 % and 95 % of the frames) is 0 to 1")
    _tell("clip", figures)
    if "episode_auc" not in figures:
        say("nothing more can be said: that takes episodes that succeed, and some that do not")
    write_json(args.json, figures)
    say(f"model in {args.out}; judge it on other runs, before you learn with it:")
    say(f"  robot-rl reward eval RUN --model {shlex.quote(str(args.out))}")
    say("  " + shlex.join([f"reward.progress={args.out}", "reward.shaping=0.5"]))
    return 0


def _eval(argv: Sequence[str]) -> int:
    parser = _parser("eval", EVAL, EXAMPLES)
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="of the model")
    parser.add_argument("--kind", choices=tuple(JUDGED), help="default: whatever the folder holds")
    parser.add_argument("--page", type=Path, metavar="FILE", help="default: FOLDER/KIND.html")
    args = parser.read(argv)
    there = [k for k in JUDGED if (args.model / f"{k}.json").is_file()]
    kinds = [args.kind] if args.kind else there or ["success"]
    if args.page and len(kinds) > 1:
        parser.error(f"--page is for one model, and there are {' and '.join(kinds)}: add --kind")
    emptied: list[Any] = []
    spec, episodes = _episodes(args.runs, _film(parser, args), emptied)
    told: dict[str, Any] = {}
    for kind in kinds:
        model, figures, strips = JUDGED[kind](args.model, spec, episodes, emptied)
        page = engine("robot_rl.report.rewards:write_reward_page")(
            args.page or args.model / f"{kind}.html",
            name=f"{args.model.name}: {model.title} {model.version}",
            subtitle=f"on {len(episodes)} episodes of {', '.join(str(r) for r in args.runs)}",
            figures=as_words(kind, figures),
            strips=strips,
        )
        _tell(kind, figures)
        say(f"look at it: {page}")
        told[kind] = figures
    write_json(args.json, told if len(kinds) > 1 else told[kinds[0]])
    return 0


def _judge_success(
    folder: Path, spec: Any, episodes: list[Any], emptied: list[Any]
) -> tuple[Any, dict, Any]:
    kind: Any = engine("robot_rl.reward.success.model:SuccessModel")
    model = kind.load(folder, spec)
    figures = engine("robot_rl.reward.success.train:judge")(model, episodes)
    figures["hacks"] = engine("robot_rl.reward.success.train:deceive")(model, episodes, emptied)
    return model, figures, engine("robot_rl.reward.success.train:strips")(model, episodes, SHOWN)


def _judge_progress(
    folder: Path,
    spec: Any,
    episodes: list[Any],
    emptied: list[Any],
    of: str = "progress.model:ProgressModel",
) -> tuple[Any, dict, Any]:
    kind: Any = engine(f"robot_rl.reward.{of}")
    model = kind.load(folder, spec)
    judge = engine("robot_rl.reward.progress.train:judge_progress")
    figures = judge(model, episodes, spec.control_hz)
    controls = engine("robot_rl.reward.progress.train:controls")
    figures["controls"] = controls(model, episodes, emptied)
    return model, figures, engine("robot_rl.reward.progress.train:strips")(model, episodes, SHOWN)


def _prefer(argv: Sequence[str]) -> int:
    parser = _parser("prefer", PREFER, PREFER_EXAMPLES, several=False)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for the model")
    parser.add_argument("--task", default="", metavar="TEXT", help="what the robot shall do")
    parser.add_argument(
        "--server", default="", metavar="URL", help="address; if OpenAI-compatible: .../v1"
    )
    parser.add_argument("--vlm", default="", metavar="NAME", help="the model's name on the server")
    parser.add_argument(
        "--protocol", choices=("chat", "heads"), default="chat", help="default: chat; docs/vlm.md"
    )
    parser.add_argument("--camera", default="", help="image entry (default: the first)")
    parser.add_argument("--cache", default="", metavar="FILE", help="keep the answers here")
    parser.add_argument(
        "--truth", type=float, metavar="NOISE", help="ask the simulator; share of wrong answers"
    )
    parser.add_argument("--pairs", type=int, default=500, help="questions (default: 500)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of questions (default: 4)")
    parser.add_argument("--updates", type=int, default=1000, help="gradient steps (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--train", nargs="+", metavar="key=value", help="then learn the task")
    args = parser.read(argv)
    if (args.truth is None) == (not args.server):
        parser.error("give --server URL with --vlm and --task, or --truth NOISE")
    _refuse_existing(args.out, "preference")
    names = ("pairs", "rounds", "updates", "seed")
    config = _config(parser, "preference.train:PreferenceConfig", args, names)
    experiment = Experiment.load(args.runs)
    spec = experiment.spec
    keys = [k for k in spec.observation if not k.startswith("base/")]
    with (
        engine("robot_rl.store.dataset:open_store")(args.runs) as store,
        ProgressBar(f"episodes of {args.runs}") as progress,
    ):
        episodes = list(engine("robot_rl.reward.preference.train:reels")(store, keys, progress))
    if args.truth is not None:
        judge = engine("robot_rl.reward.preference.train:truthful")(args.truth, args.seed)
        model = _learn_preference(args, episodes, spec, judge, config)
    else:
        asking = engine("robot_rl.reward.vlm.prefer:asking")
        words = {n: getattr(args, n) for n in ("server", "task", "camera", "cache", "protocol")}
        drawn = (args.runs, spec.cameras, experiment.mirror)
        with asking(*drawn, model=args.vlm, **words) as judge:
            model = _learn_preference(args, episodes, spec, judge, config)
    model.save(args.out)
    _tell("preference", model.figures)
    write_json(args.json, model.figures)
    words = [f"train.dataset={args.runs}", f"reward.preference={args.out}"]
    if not args.train:
        say(f"model in {args.out}; learn with it: {shlex.join(words)}")
        return 0
    offline = ["runtime=lockstep", "train.demos=0", "train.max_env_steps=0", *words]
    return engine("robot_rl.cli.train:run")([*offline, *args.train])


def _learn_preference(args: Any, episodes: Any, spec: Any, judge: Any, config: Any) -> Any:
    with ProgressBar("updates") as progress:
        learn = engine("robot_rl.reward.preference.train:learn_preference")
        return learn(episodes, spec, judge, config, source=[str(args.runs)], told=progress)


VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": _train,
    "clip": _clip,
    "eval": _eval,
    "prefer": _prefer,
}
JUDGED: dict[str, Callable[..., tuple[Any, dict, Any]]] = {
    "success": _judge_success,
    "progress": _judge_progress,
    "clip": partial(_judge_progress, of="progress.clip:ClipModel"),
}


def as_words(kind: str, figures: Mapping[str, Any]) -> dict[str, str]:
    """Figures as a person reads them: name -> number, or a dash where nothing was measured."""
    ends = figures.get("kendall_end")  # NaN where nobody knows how far the task really was
    known = ends if isinstance(ends, Mapping) else {}
    flat = dict(figures) | {f"kendall_{k}": v for k, v in known.items()}
    shown = {name: flat[key] for key, name in NAMES[kind].items() if key in flat}
    shown |= {f"deceived by: {k}": v for k, v in figures.get("hacks", {}).items()}
    shown |= {f"control: {k.replace('_', ', ')}": v for k, v in figures.get("controls", {}).items()}
    return {k: "-" if math.isnan(v) else f"{v:.3f}" for k, v in shown.items()}


def _tell(kind: str, figures: Mapping[str, Any]) -> None:
    if kind == "preference":
        say(f"{figures['asked']} questions: {figures['answers']} answers to learn from,")
        say(f"  {figures['ties']} ties, {figures['silent']} not answered")
    elif kind == "clip":
        say(f"{figures['episodes']} episodes, {figures['successes']} succeed")
    else:
        say(f"{figures['episodes']} episodes not learned from, {figures['successes']} succeed")
    for name, value in as_words(kind, figures).items():
        say(f"{name:<38}{value:>8}")


def _parser(what: str, text: str, examples: str, several: bool = True) -> Parser:
    parser = Parser(f"reward {what}", text, examples).with_json()
    if several:
        parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders")
        parser.add_argument(
            "--positives",
            type=int,
            default=5,
            metavar="N",
            help="last frames of a success that show it (default: 5)",
        )
        parser.add_argument(
            "--margin",
            type=int,
            default=5,
            metavar="N",
            help="frames before them that are not used (default: 5)",
        )
    else:
        parser.add_argument("runs", type=Path, metavar="RUN", help="run folder")
    return parser


def _config(parser: Parser, target: str, args: Any, names: Sequence[str]) -> Any:
    """The config of a kind of reward model, from the arguments with these names."""
    try:
        return engine(f"robot_rl.reward.{target}")(**{n: getattr(args, n) for n in names})
    except ValueError as error:
        parser.error(str(error))


def _film(parser: Parser, args: Any, *more: str) -> Any:
    """The config that says how episodes are read."""
    return _config(parser, "success.train:SuccessConfig", args, ("positives", "margin", *more))


def _episodes(
    runs: Sequence[Path], config: Any, emptied: list[Any] | None = None
) -> tuple[Any, list[Any]]:
    """Spec of the first run, and the judged episodes of all runs. Successes drawn again without
    their objects are appended to `emptied`."""
    footage = engine("robot_rl.reward.success.train:footage")
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
        with open_store(path) as store, ProgressBar(f"episodes of {path}") as progress:
            some = list(footage(store, tuple(cameras), config, progress))
        episodes += some
        if emptied is not None:
            emptied += engine("robot_rl.reward.success.staged:without_objects")(
                path, some, Experiment.load(path).mirror
            )
    return specs[0], episodes
