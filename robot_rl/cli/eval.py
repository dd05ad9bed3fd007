"""`robot-rl eval`: how often a trained policy succeeds, with a confidence interval."""

from __future__ import annotations

from collections.abc import Sequence

from robot_rl.cli.common import Parser, engine, existing_run, say, write_json
from robot_rl.cli.train import summary

TEXT = """
Measure the newest policy of a run on held-out starts, unaided: success with its 95 % Wilson
interval and cycle time, deterministic and stochastic. Writes eval.json and eval.mp4, and writes the
report again.
"""
EXAMPLES = """
robot-rl eval runs/peg_insert/20260101-120000-s0
robot-rl eval runs/peg_insert/20260101-120000-s0 --episodes 200 --json eval.json
robot-rl eval runs/peg_insert/20260101-120000-s0 --no-video
robot-rl eval runs/peg_insert/20260101-120000-s0 --simulated   (a real arm's run)
"""


def run(argv: Sequence[str]) -> int:
    """Evaluate the policy, print the figures and return 0."""
    parser = Parser("eval", TEXT, EXAMPLES).with_run().with_json()
    parser.add_argument(
        "--episodes", type=int, default=100, metavar="N", help="of each kind (default: 100)"
    )
    parser.add_argument("--no-video", action="store_true", help="do not film any episodes")
    parser.add_argument(
        "--simulated", action="store_true", help="in simulation, although a real arm was trained"
    )
    args = parser.read(argv)
    if args.episodes < 1:
        parser.error("--episodes must be at least 1")
    run_dir = existing_run(args.run)
    evaluate = engine("robot_rl.run.evaluate:evaluate")
    result = evaluate(
        run_dir, episodes=args.episodes, video=not args.no_video, simulated=args.simulated
    )
    from robot_rl.report.report import write_report

    write_json(args.json, result)
    say(summary(result))
    say(f"report  {write_report(run_dir)}")
    return 0
