"""`robot-rl practice`: two minutes in which a newcomer learns takeover and release."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.common import Parser, engine, explain, say
from robot_rl.errors import ConfigError
from robot_rl.run.experiment import Experiment

TEXT = """
Learn takeover and release in two minutes, on a simulated arm. A script drives it to one point after
another, in real time; the page that opens (its link is printed as soon as it is up) has a card that
goes through it step by step: take the seat, take over, let go, hold, go on, say how it went.
Nothing is learned from it, and its folder in runs/practice may be deleted. Ctrl-C ends it.
"""
EXAMPLES = """
robot-rl practice
robot-rl practice experiment=lift           with a gripper and a cube
robot-rl practice task.translation_m=0.003  slower still
"""

PRACTICE = (
    "name=practice",  # runs/practice/...
    "runtime=ros",
    "operator=console",
    "operator.with_script=true",
    "operator.script_goes_on=true",
    "ros.real_time_factor=1",
    "train.demos=10000",  # it ends when the person ends it
    "task.max_steps=600",  # a minute: nobody is in a hurry
)
REACH = ("experiment=reach", "task.translation_m=0.005", "task.range_m=0.13")  # slow, and far apart
CHOICES = ("experiment=", "task=")
STORY = """
robot-rl practice: a script drives a simulated arm; the page shows how you take over and let go.
Nothing is learned from it: {run_dir} may be deleted afterwards. Ctrl-C ends it.
"""


def run(argv: Sequence[str]) -> int:
    """Run the practice until it is ended."""
    args = Parser("practice", TEXT, EXAMPLES).with_overrides().read(argv)
    own = any(word.startswith(CHOICES) for word in args.overrides)
    words = [*(() if own else REACH), *PRACTICE, *args.overrides]
    experiment = Experiment.compose(words, args.config_dir)
    _refuse_all_but_practice(experiment)
    if args.config:
        print(explain(experiment))
        return 0
    experiment.check()
    from robot_rl.report.dashboard import Dashboard

    say(STORY.format(run_dir=experiment.run_dir))
    with Dashboard("practice (a script drives)") as board:
        engine("robot_rl.run.record:record")(experiment, board.update)
    return 0


def _refuse_all_but_practice(experiment: Experiment) -> None:
    """Raise `ConfigError` unless an arm is simulated over ROS 2, with a person at the page."""
    operator = (experiment.config.get("operator") or {}).get("name")
    if experiment.is_simulated and experiment.runtime == "ros" and operator == "console":
        return
    ros = (experiment.config.get("ros") or {}).get("name")
    raise ConfigError(
        "practice is with a simulated arm, at the page",
        expected="runtime=ros ros=sim operator=console, as robot-rl practice has them",
        got=f"runtime={experiment.runtime} ros={ros} operator={operator}",
        fix="leave these words and robot=PROFILE out; with a real arm: robot-rl record ... "
        "operator=console (docs/robot.md)",
    )
