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
robot-rl demo runtime=lockstep        without ROS 2, faster
"""

STORY = """
robot-rl demo: an arm learns to put a peg into a hole that is half a millimetre wider.

  1  demonstrations   a scripted person shows the task {demos} times
  2  practice         the policy drives; the person takes over when it is stuck or strays, and
                      lets go again. The learner sees every executed step. At most {minutes:g} min.
  3  evaluation       {episodes} episodes on new starts; nobody helps

What runs: {runtime}. Every command passes the gate, the only door to motion.
Ctrl-C is safe at any time.
"""
RUNTIMES = {
    "ros": "five ROS 2 nodes (sim, gate, watchdog, operator, actor) and a learner behind an "
    "encrypted link",
    "lockstep": "simulator, gate, actor and learner in one process, faster than real time",
}


def run(argv: Sequence[str]) -> int:
    """Run the tour; return 0 when the skill reached its target, 1 when it did not."""
    args = Parser("demo", TEXT, EXAMPLES).with_overrides().with_json().read(argv)
    experiment = experiment_from(args, ["experiment=peg_insert", "runtime=ros"])
    if experiment is None:
        return 0
    train = experiment.train
    say(
        STORY.format(
            demos=train.demos,
            minutes=train.max_minutes,
            episodes=train.eval_episodes,
            runtime=RUNTIMES[experiment.runtime],
        )
    )
    result = train_with_dashboard(experiment)
    write_json(args.json, result)
    part = result.get("deterministic") or {"successes": 0, "episodes": 1}
    reached = part["successes"] >= train.target_success * max(part["episodes"], 1)
    say("\nOpen the report in a browser: curves, interventions, video, every setting.")
    say("Next:  robot-rl train experiment=lift   |   robot-rl --help   |   docs/design.md")
    return 0 if reached else 1
