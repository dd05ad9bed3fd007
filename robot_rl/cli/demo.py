"""`robot-rl demo`: the tour. Peg insertion through the real ROS 2 graph, told step by step."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.common import Parser, experiment_from, say, write_json
from robot_rl.cli.train import train_with_dashboard

TEXT = """
Teach a simulated 7-joint arm to put a peg into a hole: the whole system on this machine, no robot
and no GPU. It is `robot-rl train experiment=peg_insert runtime=ros` with explanations.
"""
EXAMPLES = """
robot-rl demo
robot-rl demo seed=3
robot-rl demo operator=scripted       nobody is asked to take part
robot-rl demo runtime=lockstep        without ROS 2, faster
"""

STORY = """
robot-rl demo: an arm learns to put a peg into a hole that is half a millimetre wider.

  1  demonstrations   a scripted person shows the task {demos} times
  2  practice         the policy drives; the person takes over when it is stuck or strays, and
                      lets go again. The learner sees every executed step. At most {minutes:g} min.
  3  evaluation       {episodes} episodes on new starts; nobody helps

What runs: {runtime}. Every command passes the gate, the only door to motion.
{page}Ctrl-C is safe at any time.
"""
PAGE = """
Take part: the page that opens (its link is printed below as soon as it is up) shows the arm. Take
the seat, hold Space and steer; let go and the policy drives on. While you have the seat, the
simulation keeps to real time; without you the script does the teaching.

"""
ALONE = ("operator=", "runtime=lockstep")  # then nobody sits at a page
RUNTIMES = {
    "ros": "the ROS 2 nodes (sim, gate, watchdog, operator, actor, view) and a learner behind an "
    "encrypted link",
    "lockstep": "simulator, gate, actor and learner in one process, faster than real time",
}


def run(argv: Sequence[str]) -> int:
    """Run the tour; return 0 when the skill reached its target, 1 when it did not."""
    args = Parser("demo", TEXT, EXAMPLES).with_overrides().with_json().read(argv)
    defaults = ["experiment=peg_insert", "runtime=ros"]
    if not any(word.startswith(ALONE) for word in args.overrides):
        defaults += ["operator=console", "operator.with_script=true"]
    experiment = experiment_from(args, defaults)
    if experiment is None:
        return 0
    train = experiment.train
    say(
        STORY.format(
            demos=train.demos,
            minutes=train.max_minutes,
            episodes=train.eval_episodes,
            runtime=RUNTIMES[experiment.runtime],
            page=PAGE if experiment.config["operator"]["name"] == "console" else "",
        )
    )
    result = train_with_dashboard(experiment)
    write_json(args.json, result)
    part = result.get("deterministic") or {"successes": 0, "episodes": 1}
    reached = part["successes"] >= train.target_success * max(part["episodes"], 1)
    say("\nOpen the report in a browser: curves, interventions, video, every setting.")
    if experiment.runtime == "ros":
        say(f"Look at any episode again:  robot-rl review {experiment.run_dir}")
    say("Next:  robot-rl train experiment=lift   |   robot-rl --help   |   docs/design.md")
    return 0 if reached else 1
