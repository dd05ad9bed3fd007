"""`robot-rl demo`: a guided tour of peg insertion through the real ROS 2 graph, step by step."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, explain, say, write_json
from robot_rl.cli.train import train_with_dashboard
from robot_rl.config.run_folder import EVALUATION
from robot_rl.run.experiment import Experiment

TEXT = """
Teach a simulated 7-joint arm to put a peg into a hole: the whole system on this machine, without a
robot and without a GPU. It is two runs of `robot-rl train` with explanations: a policy is cloned
from demonstrations, then practice with corrections makes it good.
"""
EXAMPLES = """
robot-rl demo
robot-rl demo seed=3
robot-rl demo --episodes 100          a longer evaluation
robot-rl demo operator=scripted       nobody is asked to take part
robot-rl demo runtime=lockstep        without ROS 2
"""

STORY = """
robot-rl demo: an arm learns to put a peg into a hole that is half a millimetre wider.

  1  demonstrations   a scripted person shows the task {demos} times; a policy is cloned from that
  2  practice         the policy drives, and learns off-policy what to correct in each step. The
                      person takes over when it is stuck or strays, and lets go again. It ends when
                      an exam shows {target:.0f} % success or more, or after {minutes:g} min
  3  evaluation       {episodes} episodes on new starts, and {noisy} with exploration noise;
                      nobody helps

What runs: {runtime}. Every command passes the gate, the only door to motion.
{page}Ctrl-C is safe at any time.
"""
PAGE = """
Take part: the page that opens in step 2 (its link is printed as soon as it is up) shows the arm.
Take the seat, hold Space and steer; let go and the policy drives on. While you have the seat, the
simulation keeps to real time; without you the script does the teaching.

"""
SHORT = """
It worked, and fell short of its target of {target:.0f} %: {successes} of {episodes}{why}.
More practice mends that:  robot-rl demo seed={seed} train.max_minutes=30
"""
ALONE = ("operator=", "runtime=lockstep")  # with one of these no page is opened
RUNTIMES = {
    "ros": "the ROS 2 nodes (sim, gate, watchdog, operator, actor, view) and a learner behind an "
    "encrypted link.\nSimulated time goes as fast as the slowest of them",
    "lockstep": "simulator, gate, actor and learner in one process",
}
BASE = (  # ResFiT's recipe: clone, freeze, correct; docs/bases.md
    "experiment=peg_insert",
    "runtime=ros",
    "algo=bc_flow",
    "learner.pretrain_updates=5000",
    "train.max_env_steps=0",
    "train.eval_episodes=10",
    "train.stochastic_eval_episodes=0",
    "train.video=false",
)
PRACTICE = (
    "experiment=peg_insert",
    "runtime=ros",
    "base=flow",
    "algo=resfit",
    "algo.gamma=0.98",  # at 0.95 a step saved is worth a 5 % risk of, for example, a hard contact
    "algo.policy_tau=0.001",  # the mean of the last 1,000 policies is better than the newest
    "train.demos=0",  # the demonstrations that were cloned are its data
    "train.eval_episodes=50",
    "train.stochastic_eval_episodes=20",
    "train.max_minutes=5.5",
)
OF_PRACTICE = ("algo", "base", "learner", "train.", "operator", "arbiter", "run_dir")
"""Overrides that begin with these are for practice alone; `train.demos` is for cloning alone."""


def run(argv: Sequence[str]) -> int:
    """Run the tour; return 0 whatever the success rate, which the figures tell."""
    parser = Parser("demo", TEXT, EXAMPLES).with_overrides().with_json()
    parser.add_argument("--episodes", type=int, help="deterministic evaluation episodes (50)")
    args = parser.read(argv)
    words = _practice_words(args)
    experiment = Experiment.compose(words, args.config_dir)
    if args.config:
        print(explain(experiment))
        return 0
    base_dir = experiment.run_dir / "base"
    base = Experiment.compose(_base_words(args, base_dir), args.config_dir)
    base.check()
    say(_story(base, experiment))
    result = _demonstrate(base, base_dir)
    if result is not None:
        part = result["deterministic"]
        say(f"\ncloned: {part['successes']} of {part['episodes']} succeed. Now practice.\n")
    words += [f"run_dir={experiment.run_dir}", f"base.run={base_dir}", f"train.dataset={base_dir}"]
    experiment = Experiment.compose(words, args.config_dir)
    experiment.check()
    result = train_with_dashboard(experiment)
    write_json(args.json, result)
    _close(experiment, result)
    return 0


def _practice_words(args: argparse.Namespace) -> list[str]:
    words: list[str] = [*PRACTICE]
    if not any(word.startswith(ALONE) for word in args.overrides):
        words += ["operator=console", "operator.with_script=true"]
    if args.episodes is not None:
        words.append(f"train.eval_episodes={args.episodes}")
    return words + [word for word in args.overrides if not word.startswith("train.demos")]


def _base_words(args: argparse.Namespace, run_dir: Path) -> list[str]:
    meant = [
        word
        for word in args.overrides
        if word.startswith("train.demos") or not word.startswith(OF_PRACTICE)
    ]
    return [*BASE, *meant, f"run_dir={run_dir}"]


def _demonstrate(base: Experiment, folder: Path) -> dict[str, Any] | None:
    """Record and clone; None if that is done already (the same run_dir was given again)."""
    if (folder / EVALUATION).is_file():
        return None
    return train_with_dashboard(base, report=False)


def _story(base: Experiment, experiment: Experiment) -> str:
    train = experiment.train
    return STORY.format(
        demos=base.train.demos,
        target=100 * train.target_success,
        minutes=train.max_minutes,
        episodes=train.eval_episodes,
        noisy=train.stochastic_eval_episodes,
        runtime=RUNTIMES[experiment.runtime],
        page=PAGE if experiment.config["operator"]["name"] == "console" else "",
    )


def _close(experiment: Experiment, result: dict[str, Any]) -> None:
    """Print how the result compares with the target, and what to do next."""
    target, part = experiment.train.target_success, result["deterministic"]
    if part["successes"] < target * part["episodes"]:
        why = "" if result["mastered"] else "; no exam was passed before the time was up"
        say(SHORT.format(**part, target=100 * target, why=why, seed=experiment.seed))
    say("\nOpen the report in a browser: curves, interventions, video, every setting.")
    if experiment.runtime == "ros":
        say(f"Look at any episode again:  robot-rl review {experiment.run_dir}")
    say("Next:  robot-rl train experiment=lift   |   robot-rl --help   |   docs/design.md")
