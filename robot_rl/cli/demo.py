"""`robot-rl demo`: a guided tour of peg insertion through the real ROS 2 graph, step by step."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

from robot_rl.cli.common import Parser, explain, say, write_json
from robot_rl.cli.train import command_again, train_with_dashboard
from robot_rl.run.experiment import Experiment

TEXT = """
Teach a simulated 7-joint arm to put a peg into a hole: the whole system on this machine, without a
robot and without a GPU. It is `robot-rl train experiment=peg_insert runtime=ros` with explanations.
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

  1  demonstrations   a scripted person shows the task {demos} times
  2  practice         the policy drives, and learns off-policy from all that happens. The person
                      takes over when it is stuck or strays, and lets go again. It ends when an
                      exam shows {target:.0f} % success or more, or after {minutes:g} min
  3  evaluation       {episodes} episodes on new starts, and {noisy} with exploration noise;
                      nobody helps

What runs: {runtime}. Every command passes the gate, the only door to motion.
{page}Ctrl-C is safe at any time.
"""
PAGE = """
Take part: the page that opens (its link is printed as soon as it is up) shows the arm.
Take the seat, hold Space and steer; let go and the policy drives on. While you have the seat, the
simulation keeps to real time; without you the script does the teaching.

"""
SHORT = """
Everything ran, and the policy fell short of its target of {target:.0f} %:
{successes} of {episodes}{why}.
More practice mends that; the run goes on where it stopped:
  {again}
"""
ALONE = ("operator=", "runtime=lockstep")  # with one of these no page is opened
RUNTIMES = {
    "ros": "the ROS 2 nodes (sim, gate, watchdog, operator, actor, view) and a learner behind an "
    "encrypted link.\nSimulated time goes as fast as the slowest of them",
    "lockstep": "simulator, gate, actor and learner in one process",
}
DEMO = (
    "experiment=peg_insert",
    "runtime=ros",
    "train.eval_episodes=50",
    "train.stochastic_eval_episodes=20",
    "train.max_minutes=6",
)


def run(argv: Sequence[str]) -> int:
    """Run the tour; return 0 whatever the success rate, which the figures tell."""
    parser = Parser("demo", TEXT, EXAMPLES).with_overrides().with_json()
    parser.add_argument("--episodes", type=int, help="deterministic evaluation episodes (50)")
    args = parser.read(argv)
    experiment = Experiment.compose(_words(args), args.config_dir)
    if args.config:
        print(explain(experiment))
        return 0
    experiment.check()
    say(_story(experiment))
    result = train_with_dashboard(experiment)
    write_json(args.json, result)
    _close(experiment, result)
    return 0


def _words(args: argparse.Namespace) -> list[str]:
    words: list[str] = [*DEMO]
    if not any(word.startswith(ALONE) for word in args.overrides):
        words += ["operator=console", "operator.with_script=true"]
    if args.episodes is not None:
        words.append(f"train.eval_episodes={args.episodes}")
    return [*words, *args.overrides]


def _story(experiment: Experiment) -> str:
    train = experiment.train
    return STORY.format(
        demos=train.demos,
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
        again = command_again(experiment, "train.max_minutes=30")
        say(SHORT.format(**part, target=100 * target, why=why, again=again))
    say("\nOpen the report in a browser: curves, interventions, video, every setting.")
    if experiment.runtime == "ros":
        run = shlex.quote(str(experiment.run_dir))
        say(f"Look at any episode again:  robot-rl review {run}")
    say("Next:  robot-rl train experiment=lift   |   robot-rl --help   |   docs/design.md")
