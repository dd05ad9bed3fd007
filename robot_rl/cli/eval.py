"""`robot-rl eval`: how often a trained policy succeeds; which of several is better on the arm."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, existing_run, is_setting, say, write_json
from robot_rl.cli.train import summary

TEXT = """
Measure the newest policy of a run on held-out starts, unaided: success with its 95 % Wilson
interval and cycle time, deterministic and stochastic. Adds the evaluation to eval.json, which shows
the largest of the newest policy and keeps all of them; writes eval.mp4, and the report again.

With --engine physx, the same starts in PhysX 5, the engine of Isaac Sim, or with --engine isaac in
Isaac Sim itself, in the place of the run's own: does the policy survive another physics? With
task.randomize=PRESET or task.ranges={...}, in a scene that differs from the one it learned in
(docs/isaac.md).

With --on robot, measure one or more policies on the arm. They drive in random order, and nobody is
told which one drives until the end; each start is used by all of them, with a picture to restore
the scene. Writes comparison.json and comparison.html: success with intervals, the difference of
each two with its interval and exact p-value.
"""
EXAMPLES = """
robot-rl eval runs/peg_insert/20260101-120000-s0
robot-rl eval runs/peg_insert/20260101-120000-s0 --episodes 200 --json eval.json
robot-rl eval runs/peg_insert/20260101-120000-s0 --no-video --seed 2000000   (other starts)
robot-rl eval runs/peg_insert/20260101-120000-s0 --simulated   (a real arm's run)
robot-rl eval runs/lift/20260101-120000-s0 --engine physx --episodes 50
robot-rl eval runs/lift/20260101-120000-s0 task.randomize=real 'task.ranges={friction: [0.5, 0.5]}'
robot-rl eval RUN1 RUN2 --on robot robot=ur5e_fzi --episodes 20
robot-rl eval RUN1 RUN2 --on robot robot=ur5e_fzi double=true  a rehearsal on the double
"""
PLACES = ("sim", "robot")
FIRST_SEED = 1_000_000  # `control.session.EVAL_SEED`, whose module takes a second to import


def run(argv: Sequence[str]) -> int:
    """Evaluate the policy, print the figures and return 0."""
    parser = Parser("eval", TEXT, EXAMPLES).with_json()
    parser.add_argument("words", nargs="+", metavar="RUN", help="run folders, and key=value")
    parser.add_argument("--on", choices=PLACES, default="sim", help="where (default: sim)")
    parser.add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help="of each kind (default: 100); with --on robot: of each policy (default: 20)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the first start, in simulation")
    parser.add_argument("--no-video", action="store_true", help="do not film any episodes")
    parser.add_argument(
        "--simulated", action="store_true", help="in simulation, although a real arm was trained"
    )
    parser.add_argument(
        "--engine", metavar="NAME", help="mujoco, physx or isaac (default: the run's)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of --on robot")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="your YAML files")
    args = parser.read(argv)
    if args.episodes is not None and args.episodes < 1:
        parser.error("--episodes must be at least 1")
    if args.seed is not None and args.seed < FIRST_SEED:
        parser.error(f"--seed must be at least {FIRST_SEED}: smaller ones are starts of practice")
    runs = [existing_run(Path(word)) for word in args.words if not is_setting(word)]
    words = [word for word in args.words if is_setting(word)]
    if args.on == "robot":
        if args.engine:
            parser.error("--engine is for simulation; on an arm the physics is given")
        if not runs:
            parser.error("the following arguments are required: RUN")
        return _on_robot(runs, words, args)
    if len(runs) != 1:
        parser.error("in simulation: one RUN; several runs need --on robot")
    evaluate = engine("robot_rl.run.evaluate:evaluate")
    result = evaluate(
        runs[0],
        episodes=args.episodes or 100,
        **({} if args.seed is None else {"seed": args.seed}),
        video=not args.no_video,
        simulated=args.simulated,
        **({} if args.engine is None else {"engine": args.engine}),
        **({"scene": words} if words else {}),
    )
    from robot_rl.report.report import write_report

    write_json(args.json, result)
    made = result["evaluations"][-1]
    say(summary(made))
    if any(made[kind] != result[kind] for kind in ("deterministic", "stochastic")):
        say(f"eval.json and the report go on showing a larger evaluation:\n{summary(result)}")
    say(f"report  {write_report(runs[0])}")
    return 0


def _on_robot(runs: Sequence[Path], words: Sequence[str], args: Any) -> int:
    """Compare the policies of some runs blindly, on the arm that `words` name."""
    folder = args.out or runs[0] / _folder_name(runs, words)
    setup = "robot_rl.run.deploy_setup"
    on, newest = engine(f"{setup}:experiment_on"), engine(f"{setup}:policy_weights")
    experiments = [on(run, words, folder, args.config_dir) for run in runs]
    policies = [newest(run, x) for run, x in zip(runs, experiments, strict=True)]
    say(f"comparison  {folder}: {len(runs)} policies, nobody is told which one drives")
    told: list[float] = []

    def tell(line: Mapping[str, Any]) -> None:
        done = line.get("compare/rounds", 0.0)
        if done and done not in told:
            told.append(done)
            say(f"{done:.0f} of {line['compare/of']:.0f} episodes")

    compare = engine("robot_rl.run.compare:compare")
    compare(experiments, policies, runs, args.episodes or 20, tell)
    result = engine("robot_rl.run.compare_result:result_of")(folder)
    from robot_rl.run.compare_result import in_words

    write_json(args.json, result)
    say(in_words(result))
    say(f"page    {folder / 'comparison.html'}")
    return 0


def _folder_name(runs: Sequence[Path], words: Sequence[str]) -> str:
    """The same folder for the same command, so that it goes on after a kill."""
    text = "\n".join([*(str(run.resolve()) for run in runs), *words])
    return f"compare-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
