"""`robot-rl filter`: leave steps of people that undo progress out of training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.cli.progress import ProgressBar
from robot_rl.run.experiment import Experiment

if TYPE_CHECKING:
    from robot_rl.reward.progress.critic import Judged

TEXT = """
Leave steps of people out of training if a critic, or a progress model, judges that they undo what
was reached: hesitations, slips, ways back. The critic is that of another run that has learned from
the same data, failures included. Nothing recorded is changed: the steps get labels. A second call
with another threshold moves the labels, --undo takes them back. Without --write the command only
says what it would leave out.
"""
EXAMPLES = """
robot-rl train experiment=peg_insert algo=calql train.dataset=RUN train.demos=0 \\
    train.max_env_steps=0 learner.pretrain_updates=5000 run_dir=runs/critic
robot-rl filter RUN --critic runs/critic                       what it would leave out
robot-rl filter RUN --critic runs/critic --drop 0.1 --write
robot-rl train experiment=peg_insert algo=bc_flow train.dataset=RUN train.demos=0 ...
robot-rl filter RUN --progress runs/reward --drop 0.2          a progress model judges the pictures
robot-rl filter RUN --undo
"""
BARS = " .:-=+*#%@"
WIDTH = 40  # characters of an episode's strip
SHOWN = 20  # episodes


def run(argv: Sequence[str]) -> int:
    """Judge the steps, label them if asked to, and return 0."""
    parser = Parser("filter", TEXT, EXAMPLES).with_run("run folder, or a store file").with_json()
    parser.add_argument("--critic", type=Path, metavar="RUN", help="run whose critics judge")
    parser.add_argument(
        "--progress", type=Path, metavar="FOLDER", help="or a progress model judges, from pictures"
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
    parser.add_argument("--write", action="store_true", help="leave these steps out")
    parser.add_argument("--undo", action="store_true", help="take all of them back in")
    args = parser.read(argv)
    if [args.undo, args.critic is not None, args.progress is not None].count(True) != 1:
        parser.error("give --critic RUN, --progress FOLDER, or --undo")
    if args.drop <= 0.0 or args.ahead < 1:
        parser.error("--drop must be positive and --ahead at least 1")
    names = ("find_harmful", "leave_out")
    find, label = (engine(f"robot_rl.reward.progress.critic:{x}") for x in names)
    with engine("robot_rl.store.dataset:open_store")(args.run) as store:
        if args.undo:
            judged = engine("robot_rl.reward.progress.critic:nothing")(store)
        else:
            with ProgressBar("episodes judged") as progress:
                options: dict[str, Any] = {"drop": args.drop, "ahead": args.ahead}
                judged = list(find(store, _phi(args), **options, progress=progress))
            for one in judged[:SHOWN]:
                say(line(one))
        figures = {"episodes": len(judged), "steps": sum(len(one.harmful) for one in judged)}
        if args.write or args.undo:
            figures["left_out"], figures["taken_back"] = label(store, judged)
    write_json(args.json, figures)
    if args.write or args.undo:
        say(f"{figures['left_out']} steps left out, {figures['taken_back']} taken back in")
    else:
        say(f"{figures['steps']} steps in {figures['episodes']} episodes; --write leaves them out")
    return 0


def _phi(args: Any) -> Any:
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
    at = [phi[i * len(phi) // WIDTH] for i in range(min(WIDTH, len(phi)))]
    low, high = float(phi.min()), float(phi.max())
    scale = (len(BARS) - 1) / max(high - low, 1e-6)
    strip = "".join(BARS[round((float(x) - low) * scale)] for x in at)
    value = f"{low:.2f} to {high:.2f}"
    return f"episode {one.id.episode:<4} |{strip:<{WIDTH}}| {value}  {len(one.harmful)} left out"
