"""`robot-rl usd`: write the scene of a task as a USD stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robot_rl.cli.common import Parser, engine, say
from robot_rl.cli.parity import scene_from

TEXT = """
Write the scene of an experiment or a task as a USD stage, at the start of an episode: the arm as an
articulation with drives, what it touches, materials, cameras and lights. Isaac Sim, Isaac Lab and
any USD viewer open it (docs/isaac.md). It is made from the MuJoCo scene, number by number;
`robot-rl parity` shows how equal the two are.
"""
EXAMPLES = """
robot-rl usd peg_insert --out stage.usda
robot-rl usd lift robot=ur5e seed=3 --out lift.usdc       binary, another start
"""


def run(argv: Sequence[str]) -> int:
    """Write the stage; return 0."""
    parser = Parser("usd", TEXT, EXAMPLES).with_overrides()
    parser.add_argument(
        "--out", type=Path, default=Path("stage.usda"), metavar="FILE", help="(stage.usda)"
    )
    args = parser.read(argv)
    experiment = scene_from(args)
    if experiment is None:
        return 0
    say(f"stage  {engine('robot_rl.run.parity:write_usd')(experiment, args.out)}")
    return 0
