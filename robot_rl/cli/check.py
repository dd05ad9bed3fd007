"""`robot-rl check`: load every experiment and explain it in a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robot_rl.cli.common import Parser, engine, say, write_json

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment
    from robot_rl.spec import Spec

TEXT = """
Compose and check experiments: every key, type and value, and the limits against the task. Without
names, all experiments are checked, as CI does. With --run each task is tried in simulation, too:
its scene, its starts, what it observes, and three episodes that its expert drives; the first fault
is named with its fix. A NAME may also be a task that has no experiment of its own.
"""
EXAMPLES = """
robot-rl check
robot-rl check peg_insert lift
robot-rl check peg_insert --run                     about ten seconds
robot-rl check button robot=ur5e --run              a task without an experiment of its own
robot-rl check --config-dir my_configs
"""


def run(argv: Sequence[str]) -> int:
    """Check the experiments; return 1 when any of them fails."""
    from pathlib import Path

    from robot_rl.config.compose import options
    from robot_rl.errors import RobotRLError
    from robot_rl.run.experiment import Experiment

    parser = Parser("check", TEXT, EXAMPLES).with_json()
    parser.add_argument("experiments", nargs="*", metavar="NAME | key=value")
    parser.add_argument("--run", action="store_true", help="try each task in simulation")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="your own YAML files")
    args = parser.read(argv)
    results: dict[str, str] = {}
    overrides = [word for word in args.experiments if "=" in word]
    names = [word for word in args.experiments if "=" not in word]
    experiments = options("experiment", args.config_dir)
    tasks = set(options("task", args.config_dir)) - set(experiments)
    if not args.experiments:
        names = experiments
    group = {name: "task" if name in tasks else "experiment" for name in names}
    asked = {name: [f"{group[name]}={name}", *overrides] for name in names}
    for name, words in (asked or {" ".join(overrides): overrides}).items():
        try:
            experiment = Experiment.compose(words, args.config_dir)
            experiment.check()
            tried = _tried(experiment) if args.run else []
        except RobotRLError as error:
            results[name] = str(error)
            say(f"fail  {name}\n{_indent(str(error))}")
        else:
            results[name] = "ok"
            say(f"ok    {name}\n{_indent(describe(experiment))}")
            for line in tried:
                say(_indent(line))
    write_json(args.json, results)
    return 0 if all(r == "ok" for r in results.values()) else 1


def _tried(experiment: Experiment) -> list[str]:
    """Lines on what works in simulation. Raises the first fault of the task."""
    fine, wrong = engine("robot_rl.run.check_task:faults")(experiment)
    if wrong is not None:
        raise wrong
    return fine


def describe(experiment: Experiment) -> str:
    """Describe in words what an experiment does."""
    spec, train = experiment.task.spec, experiment.train
    images = sum(key.startswith("image/") for key in spec.observation)
    state = spec.observation["state"].shape[0] if "state" in spec.observation else 0
    choices = {g: (experiment.config.get(g) or {}).get("name") for g in ("algo", "operator", "ros")}
    return "\n".join(
        (
            f"task {spec.task}: {state} state values, {images} images, {spec.action.size} action "
            f"entries at {spec.control_hz:g} Hz, at most {experiment.task.max_steps} steps",
            f"state: {_named(spec)}",
            f"algo {choices['algo']}, operator {choices['operator']}, ros {choices['ros']}, "
            f"runtime {experiment.runtime}",
            f"{train.demos} demonstrations, then at most {train.max_env_steps} steps or "
            f"{train.max_minutes:g} min, until {100 * train.target_success:g} % "
            f"({train.eval_episodes} evaluation episodes)",
            f"kept clear of: {experiment.limits.surroundings}",
            f"set here: {_settings(experiment) or 'nothing'}",
            f"spec {spec.hash}, limits {experiment.limits.hash}",
        )
    )


def _named(spec: Spec) -> str:
    """Names of the numbers of the state, with units."""
    parts = [
        f"{name} ({unit})" if size == 1 else f"{name}.0 to .{size - 1} ({unit})"
        for name, size, unit in spec.state_layout
    ]
    return "; ".join(parts) or "nothing by name"


def _settings(experiment: Experiment) -> str:
    """Settings of the YAML files beyond the defaults; the limits have a file of their own."""
    return ", ".join(
        f"{section}.{key}={value}"
        for section in ("task", "train", "learner", "algo", "operator")
        for key, value in (experiment.config.get(section) or {}).items()
        if key != "name"
    )


def _indent(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.splitlines()).rstrip()
