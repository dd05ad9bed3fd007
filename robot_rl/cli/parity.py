"""`robot-rl parity`: is a task's scene the same in another physics engine?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.cli.common import Parser, engine, experiment_from, say, write_json
from robot_rl.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from robot_rl.run.experiment import Experiment

TEXT = """
Compare the scene of an experiment or a task, as it is without randomisation, in two engines:
masses, joints, drives, shapes and friction; kinematics, mass matrix and torques of gravity at 50
poses. Without --engine, the USD stage is read back and compared with MuJoCo's model. With --engine
physx, PhysX 5 (the engine of Isaac Sim, on the CPU) is asked, too, and both engines move the arm,
drop and slide a part, land the hand and insert the peg. Writes a page with a table and curves.
docs/isaac.md explains every line and its gate.
"""
EXAMPLES = """
robot-rl parity peg_insert
robot-rl parity lift robot=ur5e --engine physx --out parity.html
"""


def run(argv: Sequence[str]) -> int:
    """Compare; return 1 when a gate is missed."""
    parser = Parser("parity", TEXT, EXAMPLES).with_overrides().with_json()
    parser.add_argument("--engine", default="", metavar="NAME", help="physx")
    parser.add_argument(
        "--out", type=Path, default=Path("parity.html"), metavar="FILE", help="page"
    )
    args = parser.read(argv)
    experiment = scene_from(args)
    if experiment is None:
        return 0
    engine("robot_rl.run.parity:need_file")(args.out, "parity.html")  # before it measures
    result = engine("robot_rl.run.parity:measure")(experiment, args.engine)
    page = engine("robot_rl.report.parity:write_page")(args.out, result)
    write_json(args.json, {key: value for key, value in result.items() if key != "traces"})
    say(engine("robot_rl.report.parity:in_words")(result))
    say(f"page  {page}")
    return 0 if result["passed"] else 1


def scene_from(args: argparse.Namespace) -> Experiment | None:
    """The experiment or task that is named; None when `--config` printed it instead."""
    args.overrides = _words(args.overrides, args.config_dir)
    return experiment_from(args, only=("task", "robot"))


def _words(words: Sequence[str], config_dir: Path | None) -> list[str]:
    """`key=value ...`, with a NAME among them as the experiment or, without one, the task."""
    from robot_rl.config.compose import options

    names = [word for word in words if "=" not in word]
    given = [word for word in words if "=" in word]
    if len(names) > 1:
        raise ConfigError(
            "one scene at a time",
            expected="one NAME of an experiment or a task",
            got=" ".join(names),
            fix=f"{names[0]} first",
        )
    if not names:
        return given
    known = {group: options(group, config_dir) for group in ("experiment", "task")}
    for group, among in known.items():
        if names[0] in among:
            return [f"{group}={names[0]}", *given]
    every = sorted({*known["experiment"], *known["task"]})
    raise ConfigError(
        f"there is no experiment and no task '{names[0]}'",
        expected=f"one of: {', '.join(every)}",
        got=names[0],
        fix=did_you_mean(names[0], every),
    )
