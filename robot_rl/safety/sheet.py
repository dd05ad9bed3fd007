"""The YAML file of a robot: its name and every limit, for the person who signs it.

    python -m robot_rl.safety.sheet fr3 panda ur5e        writes configs/robot/<name>.yaml
    python -m robot_rl.safety.sheet mine --out DIR        writes DIR/robot/mine.yaml

Joint ranges, workspace, gripper and wrench limits come from the robot's own file
(`robot_rl.robots`), the rest from `safety.limits`; a test holds the files equal to both.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robot_rl.config.compose import config_dir
from robot_rl.config.registry import resolve
from robot_rl.robots import Robot
from robot_rl.safety.limits import Limits

HEAD = (
    "{title} on a table top. NOT signed off on hardware: whoever bolts the arm down checks every "
    "value and signs. Written by `python -m robot_rl.safety.sheet {name}`; where each value comes "
    "from: robot_rl/robots/{module}.py, and robot_rl/safety/limits.py for the rest. {notes}"
)


def sheet(robot: Robot) -> str:
    """The text of the YAML file of `robot`."""
    module = type(robot).__module__.rpartition(".")[2]
    head = HEAD.format(title=robot.title, name=robot.name, module=module, notes=robot.notes)
    lines = ["# @package _global_", *(f"# {line}" for line in textwrap.wrap(head, 96))]
    lines += ["robot:", f"  name: {robot.name}", "safety:", f"  name: {robot.name}"]
    for key, value in asdict(Limits.of(robot)).items():
        if key == "obstacles":
            lines += [f"  {key}:", *(f"    {n}: {_written(box)}" for n, box in value.items())]
        else:
            lines.append(f"  {key}: {_written(value)}")
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_written(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_written(v)}" for k, v in value.items()) + "}"
    return repr(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: names of robots, and where their files go."""
    parser = argparse.ArgumentParser(prog="python -m robot_rl.safety.sheet")
    parser.add_argument("robots", nargs="+", metavar="NAME")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="default: configs")
    args = parser.parse_args(argv)
    for name in args.robots:
        path = (args.out or config_dir()) / "robot" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sheet(resolve("robot", {"name": name})))
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
