"""`robot-rl record`: record demonstrations without learning."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.common import Parser, engine, experiment_from, say, write_json

TEXT = """
Record demonstrations into a run folder. In lockstep the script drives; through the ROS 2 graph,
whoever operator=... names (console: a person at the page; gamepad, spacemouse, joy, twist).
`robot-rl train` with the same words and run_dir goes on from there.
"""
EXAMPLES = """
robot-rl record experiment=peg_insert --demos 20
robot-rl record experiment=peg_insert runtime=ros operator=console        a person, at the page
robot-rl record experiment=lift operator.skill=0.8 runtime=lockstep --json demos.json
"""


def run(argv: Sequence[str]) -> int:
    """Record demonstrations; return 0 when the wanted number of them succeeded."""
    parser = Parser("record", TEXT, EXAMPLES).with_overrides().with_json()
    parser.add_argument("--demos", type=int, metavar="N", help="how many (default: train.demos)")
    args = parser.read(argv)
    extra = [f"train.demos={args.demos}"] if args.demos is not None else []
    args.overrides = [*args.overrides, *extra]
    experiment = experiment_from(args)
    if experiment is None:
        return 0
    from robot_rl.report.dashboard import Dashboard

    say(f"run folder  {experiment.run_dir}")
    with Dashboard(f"{experiment.name} ({experiment.runtime}, demonstrations)") as board:
        result = engine("robot_rl.run.record:record")(experiment, board.update)
    write_json(args.json, result)
    say(f"{result.get('successes', 0)} demonstrations in {experiment.run_dir}")
    return 0
