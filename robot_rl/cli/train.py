"""`robot-rl train`: run an experiment from the first demonstration to the report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, experiment_from, say, write_json
from robot_rl.cli.pair import inviting

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

TEXT = """
Train an experiment: demonstrations, practice with corrections, evaluation, report.html.

runtime=ros runs the whole system as the ROS 2 graph (simulated or real arm, gate, watchdog, actor,
and the learner beside it); runtime=lockstep runs simulator, actor and learner in one process, as
fast as they go. The same command with the same run_dir goes on where the run stopped, also
with more train.demos, train.max_env_steps or train.max_minutes.

actors=left,right teaches one skill with several arms; with runtime=lockstep they are simulated
actors beside one learner, on this machine or, with --ray, on a Ray cluster (docs/several_arms.md).
"""
EXAMPLES = """
robot-rl train experiment=peg_insert
robot-rl train experiment=peg_insert runtime=lockstep seed=1 algo.gamma=0.98
robot-rl train experiment=reach train.max_minutes=5 --json result.json
robot-rl train experiment=reach runtime=ros actors=left,right     two arms, one learner
robot-rl train experiment=reach runtime=lockstep actors=4 --ray   four simulated actors
robot-rl train experiment=lift operator=none train.demos=0      nobody helps
robot-rl train experiment=reach robot=ur5e task.action=joint       actions move the joints
robot-rl train experiment=lift --config                         every value in force
robot-rl train experiment=reach runtime=ros link=remote link.host=10.0.0.9    learner elsewhere
"""


def run(argv: Sequence[str]) -> int:
    """Train; return 0 after the evaluation, whatever the success rate, which the figures tell."""
    parser = Parser("train", TEXT, EXAMPLES).with_overrides().with_json().with_ray()
    args = parser.read(argv)
    experiment = experiment_from(args)
    if experiment is None:
        return 0
    result = train_with_dashboard(experiment, ray=args.ray)
    write_json(args.json, result)
    budget = experiment.train
    if budget.max_env_steps > 0 and not result.get("mastered"):
        more = f"train.max_env_steps={2 * budget.max_env_steps}"
        again = command_again(experiment, more, f"train.max_minutes={2 * budget.max_minutes:g}")
        say(f"to practise for longer, from where it stopped:\n  {again}")
    return 0


def train_with_dashboard(experiment: Experiment, *, ray: str | None = None) -> dict[str, Any]:
    """Train with the dashboard on, print the outcome and return the figures; ray: see `train`.

    report.html is written regularly while the run goes on, and at the end, whatever ends it.
    """
    from robot_rl.report.dashboard import Dashboard
    from robot_rl.report.live import Live

    train = engine("robot_rl.run.train:train")
    say(f"run folder  {experiment.run_dir}")
    drawn = experiment.is_simulated and not experiment.actors  # the scenes are in their folders
    live = Live(experiment.run_dir, experiment.mirror if drawn else None)
    title = f"{experiment.name} ({experiment.runtime}, seed {experiment.seed})"
    try:
        with inviting(experiment), Dashboard(title) as board:

            def watch(stats: dict[str, Any]) -> None:
                board.update(stats)
                live.update(stats)

            result = train(experiment, watch, **({} if ray is None else {"ray": ray}))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            say(f"\nto go on:  {command_again(experiment)}")
        live.end()
        raise
    say(summary(result))
    if report := live.write():
        say(f"report      {report}")
    return result


def command_again(experiment: Experiment, *words: str) -> str:
    """The command with which this run goes on where it stopped; words: instead of earlier ones."""
    words = (*words, f"run_dir={experiment.run_dir}")
    said = {word.partition("=")[0] for word in words}
    typed = [w for w in sys.argv[1:] if w.partition("=")[0] not in said]
    return shlex.join(["robot-rl", *typed, *words])


def summary(result: dict[str, Any]) -> str:
    """Text for a person with the figures of eval.json, one line each."""
    lines = []
    for kind in ("deterministic", "stochastic"):
        part = result.get(kind)
        if not part or not part["episodes"]:
            continue
        if not part.get("success_known", True):
            text = f"{kind:<14}mean return {part['return_mean']:.4g} (standard deviation"
            lines.append(f"{text} {part['return_std']:.3g}, {part['episodes']} episodes)")
            continue
        low, high = 100 * part["wilson_low"], 100 * part["wilson_high"]
        line = f"{kind:<14}{part['successes']}/{part['episodes']} episodes succeed"
        line += f" (95 % interval {low:.1f} to {high:.1f} %)"
        cycle = part.get("cycle_time_s_mean")
        lines.append(line + (f", {cycle:.1f} s per cycle" if cycle else ""))
    return "\n".join(lines) or "not evaluated"
