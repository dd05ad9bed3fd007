"""`robot-rl deploy`: let a trained policy work, for hours or for days."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.common import Parser, engine, existing_run, say, write_json
from robot_rl.errors import ConfigError

TEXT = """
Let the trained policy of a run work: no learner, gate on, a person may take over at any time.
Everything is recorded, a new store file each day (UTC); nothing is deleted. Success is what the
task's own source says (its rule, a model, a person); an episode of which nobody has said anything
is unlabelled, not failed. After --stop-after failures in a row the arm holds until a person says
that it goes on. The same command goes on, in count and in the same day's file, after any kill.
"""
EXAMPLES = """
robot-rl deploy runs/reach/20260101-120000-s0 robot=ur5e_fzi
robot-rl deploy RUN robot=ur5e_fzi double=true operator=console       a rehearsal on the double
robot-rl deploy RUN robot=mine --config-dir my_configs --episodes 500 --stop-after 5
robot-rl deploy RUN --policy RUN/checkpoints/00012000 --out deployments/candidate
robot-rl deploy RUN runtime=lockstep --episodes 50                    in simulation, no ROS
robot-rl deploy RUN --report                                          the figures, nothing moves
"""


def run(argv: Sequence[str]) -> int:
    """Deploy; return 0 when the wanted episodes are done, whatever the success rate."""
    parser = Parser("deploy", TEXT, EXAMPLES).with_run().with_overrides().with_json()
    parser.add_argument(
        "--episodes", type=int, default=0, metavar="N", help="in all (default: until you end it)"
    )
    parser.add_argument(
        "--stop-after",
        type=int,
        default=3,
        metavar="K",
        help="failures in a row after which a person has to look; 0 = never (default: 3)",
    )
    parser.add_argument("--policy", type=Path, metavar="FILE", help="another policy, or checkpoint")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: RUN/deploy")
    parser.add_argument("--stochastic", action="store_true", help="with the noise of practice")
    parser.add_argument("--report", action="store_true", help="write the report and stop")
    args = parser.read(argv)
    if args.episodes < 0 or args.stop_after < 0:
        parser.error("--episodes and --stop-after must not be negative")
    run_dir = existing_run(args.run)
    folder = args.out or run_dir / "deploy"
    if args.report:
        return _report(_deployment(run_dir, folder))
    setup = "robot_rl.run.deploy_setup"
    experiment = engine(f"{setup}:experiment_on")(run_dir, args.overrides, folder, args.config_dir)
    if args.config:
        from robot_rl.cli.common import explain

        say(explain(experiment))
        return 0
    weights = engine(f"{setup}:policy_weights")(run_dir, experiment, args.policy)
    from robot_rl.run.deploy import DeployPlan

    plan = DeployPlan(
        run=str(run_dir),
        episodes=args.episodes,
        stop_after=args.stop_after,
        stochastic=args.stochastic,
    )
    say(f"deployment  {folder}, policy version {weights.version}")
    try:
        figures = engine("robot_rl.run.deploy:deploy")(experiment, weights, plan, _tell)
    except KeyboardInterrupt:  # the usual end of a deployment without --episodes
        figures = engine("robot_rl.run.deploy:figures_of")(folder)
        say("ended; the same command goes on")
    write_json(args.json, figures)
    say(summary(figures))
    return _report(folder)


def _deployment(run_dir: Path, folder: Path) -> Path:
    """The folder of a deployment that is there. Raises `ConfigError` with the command that helps.

    Whoever gave `--out` has a folder that is easily taken for the run.
    """
    if (folder / "config.yaml").is_file():
        return folder
    from robot_rl.run.deploy import DEPLOY, read_plan

    is_one = read_plan(run_dir).get("kind") == DEPLOY
    report = shlex.join(["robot-rl", "report", str(run_dir)])
    again = shlex.join(["robot-rl", "deploy", str(run_dir)])
    raise ConfigError(
        f"no deployment in '{folder}'",
        expected="the run whose policy was deployed, with --out as it was deployed",
        got=f"{run_dir} is itself the folder of a deployment" if is_one else "none was made there",
        fix=report if is_one else f"{again} --out FOLDER --report; or deploy it first",
    )


def _report(folder: Path) -> int:
    figures = engine("robot_rl.run.deploy:figures_of")(folder)
    from robot_rl.report.report import write_report

    recorded = figures["episodes"] or figures["stops"]
    say(f"report      {write_report(folder)}" if recorded else "nothing recorded yet")
    return 0


def _tell(line: Mapping[str, Any]) -> None:
    """One line for each episode of a deployment."""
    if "deploy_episode/index" not in line:
        return
    ended = "success" if line["deploy_episode/success"] else "no success"
    if line.get("deploy_episode/aborted"):
        ended = "aborted"
    text = f"episode {line['deploy_episode/index']:.0f}: {ended}, "
    text += f"{line['deploy_episode/duration_s']:.1f} s"
    done, labelled = line.get("deploy/successes", 0), line.get("deploy/labelled", 0)
    if labelled:
        low, high = 100 * line["deploy/success_low"], 100 * line["deploy/success_high"]
        text += f" | {done:.0f}/{labelled:.0f} succeed ({low:.0f} to {high:.0f} %)"
    if line.get("deploy/unlabelled"):
        text += f", {line['deploy/unlabelled']:.0f} unlabelled"
    if "deploy/cycle_time_s_median" in line:
        text += f" | {line['deploy/cycle_time_s_median']:.1f} s per cycle"
    if "deploy/autonomy_steps" in line:
        text += f" | {100 * line['deploy/autonomy_steps']:.1f} % of the steps alone"
    say(text)


def summary(figures: Mapping[str, Any]) -> str:
    """Text for a person with the figures of deploy.json."""
    if not figures["episodes"] and not figures["stops"]:
        return "no episode yet"
    lines = [f"since {figures['since']}: {figures['episodes']} episodes"]
    for key, text in (("success", "succeeded"), ("unaided", "succeeded without help")):
        wins = figures["successes" if key == "success" else "unaided"]
        low, high = 100 * figures[f"{key}_low"], 100 * figures[f"{key}_high"]
        interval = f"(95 % interval {low:.1f} to {high:.1f} %)"
        lines.append(f"{wins} of {figures['labelled']} {text} {interval}")
    if figures["unlabelled"]:
        lines.append(f"{figures['unlabelled']} unlabelled: nobody has said how they ended")
    if figures["cycle_time_s_median"] is not None:
        median, p90 = figures["cycle_time_s_median"], figures["cycle_time_s_p90"]
        lines.append(f"cycle time {median:.1f} s (median), {p90:.1f} s (p90)")
    if figures["autonomy_steps"] is not None:
        share = 100 * figures["autonomy_steps"]
        text = f"autonomy {share:.1f} % of the steps"
        if figures["autonomy_episodes"] is not None:
            text += f", {100 * figures['autonomy_episodes']:.1f} % of the episodes"
        between = figures["mtbi_s"]
        hours = figures["driven_s"] / 3600
        text += f"; {hours:.2f} h driven, "
        text += f"{between / 60:.1f} min between takeovers" if between else "no takeover"
        lines.append(text)
    if figures["stops"]:
        stops = ", ".join(f"{n} x {why}" for why, n in figures["stops"].items())
        lines.append(f"aborted: {stops}")
    return "\n".join(lines)
