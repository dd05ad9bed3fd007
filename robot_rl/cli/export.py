"""`robot-rl export`: write the episodes of a run for other programs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, say, write_json
from robot_rl.cli.progress import ProgressBar
from robot_rl.config.yaml_file import read_yaml

if TYPE_CHECKING:
    from robot_rl.data.episodes import Chosen
    from robot_rl.store.store import Store

TEXT = """
Export the episodes of a run; what people said about them in review is applied.

lerobot  LeRobotDataset v3: parquet and mp4; stock LeRobot trains on it, `import` reads it back
mcap     one bag per episode with ROS 2 messages, for Foxglove and ros2 bag
rerun    one recording (.rrd) per episode, for the Rerun viewer

Left out, unless --include asks for them: evaluation episodes, aborted ones, excluded ones, and
trimmed steps. Steps that robot-rl filter leaves out of training are exported, and
counted at the end. After an interruption the same command goes on where it was.
"""
EXAMPLES = """
robot-rl export runs/peg_insert/20260101-120000-s0 --to lerobot --out datasets/peg
robot-rl export runs/peg_insert/20260101-120000-s0 --to mcap --out bags/peg
robot-rl export runs/peg_insert/20260101-120000-s0 --to lerobot --out datasets/all \\
    --include eval,aborted --task "insert the peg" --codec h264
"""

Write = Callable[[argparse.Namespace, "Store", "Sequence[Chosen]", ProgressBar], dict[str, int]]


def run(argv: Sequence[str]) -> int:
    """Export the episodes; return 0 when the export is complete."""
    args = _parser().read(argv)
    write = FORMATS[args.to]
    episodes = engine("robot_rl.data.episodes:choose")
    with engine("robot_rl.store.dataset:open_store")(args.run) as store:
        chosen = episodes(store, [word for word in args.include.split(",") if word])
        try:
            with ProgressBar("episodes exported") as progress:
                figures = write(args, store, chosen, progress)
        except KeyboardInterrupt:
            say("stopped; the same command goes on from here")
            raise
    size = sum(p.stat().st_size for p in args.out.rglob("*") if p.is_file())
    write_json(args.json, figures | {"bytes": size})
    say(f"{figures['episodes']} episodes, {figures['steps']} steps, {size / 1e6:.1f} MB")
    left_out = sum(c.not_learned_from for c in chosen)
    if left_out:
        say(
            f"{left_out} of these steps were left out of training by robot-rl filter, and are in "
            "the export: " + LEFT_OUT[args.to]
        )
    say(f"{args.to:<8}{args.out}")
    return 0


def _parser() -> Parser:
    parser = Parser("export", TEXT, EXAMPLES).with_run("run folder, or a store file").with_json()
    parser.add_argument("--to", required=True, choices=FORMATS, help="format")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="new folder")
    parser.add_argument(
        "--include", default="", metavar="WORDS", help="some of eval,aborted,excluded,trimmed"
    )
    parser.add_argument("--task", default="", metavar="TEXT", help="lerobot: task in words")
    parser.add_argument(
        "--codec", default="av1", choices=("av1", "h264"), help="lerobot: codec of videos"
    )
    parser.add_argument(
        "--crf", type=int, default=30, metavar="N", help="lerobot: quality, lower is better (30)"
    )
    return parser


def _lerobot(
    args: argparse.Namespace, store: Store, chosen: Sequence[Chosen], progress: ProgressBar
) -> dict[str, int]:
    write = engine("robot_rl.data.lerobot_write:write_lerobot")
    options = engine("robot_rl.data.lerobot_write:WriteOptions")(
        codec=args.codec, crf=args.crf, task=args.task, robot_type=_robot_type(args.run)
    )
    return write(store, chosen, args.out, options, progress)


def _mcap(
    args: argparse.Namespace, store: Store, chosen: Sequence[Chosen], progress: ProgressBar
) -> dict[str, int]:
    encode = engine("robot_rl.data.mcap_write:mcap_file")
    write = engine("robot_rl.data.per_episode:write_episodes")
    return write(store, chosen, args.out, kind="mcap", encode=encode, progress=progress)


def _rerun(
    args: argparse.Namespace, store: Store, chosen: Sequence[Chosen], progress: ProgressBar
) -> dict[str, int]:
    encode = engine("robot_rl.data.rerun_write:rerun_file")
    write = engine("robot_rl.data.per_episode:write_episodes")
    return write(store, chosen, args.out, kind="rrd", encode=encode, progress=progress)


def _robot_type(run: Path) -> str:
    """Name of the robot of a run folder, e.g. fr3; "" when its config names none."""
    path = run / "config.yaml"
    config: Any = read_yaml(path) if path.is_file() else {}
    said = config.get("robot") or config.get("safety") or {}  # runs from before robots had files
    return str(said.get("name", ""))


LEFT_OUT = {
    "lerobot": "robot_rl.json has their number, and nothing marks them",
    "mcap": "their labels say so",
    "rerun": "their labels say so",
}
FORMATS: dict[str, Write] = {"lerobot": _lerobot, "mcap": _mcap, "rerun": _rerun}
