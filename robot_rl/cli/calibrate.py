"""`robot-rl calibrate`: where cameras are, how late their pictures are, where a gripper ends."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import Parser, engine, experiment_from, run_one_of, say, write_json
from robot_rl.errors import ConfigError

if TYPE_CHECKING:
    from robot_rl.run.at_the_arm import How
    from robot_rl.run.experiment import Experiment

TEXT = """
Measure what would otherwise be guessed (docs/calibration.md). `board` draws the ChArUco board to
print. `camera` finds where a camera is, at the hand or beside the arm, from pictures of that board;
`time` finds how late its pictures are; `gripper` finds the two ends of the fingers. The words are
those of `train`; the verb starts the graph of the arm's profile itself (double=true: its double)
and takes the actor's place. The arm is moved by you: with your device (operator=...), by hand
(operator=none), or with --auto by motions that the gate checks and you agree to one by one. What
was measured is written into your own YAML file in --config-dir and printed as words.
"""
EXAMPLES = """
robot-rl calibrate board --out board.pdf
robot-rl calibrate camera wrist robot=ur5e_fzi task=reach 'task.images=[wrist]' --auto
robot-rl calibrate camera front --mount beside experiment=my_insert --config-dir my_configs
robot-rl calibrate time wrist experiment=my_insert --config-dir my_configs --auto
robot-rl calibrate gripper robot=mine task=lift --config-dir my_configs
robot-rl calibrate camera wrist experiment=mine double=true --auto --yes    a double, unasked
"""
BOARD = "5x7,0.03,0.022"
SECTIONS = ("task", "cameras", "ros", "robot")


def run(argv: Sequence[str]) -> int:
    """Run one of the four; return 0 when something was found, 1 when there are doubts about it."""
    verbs = {"board": _board, "camera": _camera, "time": _time, "gripper": _gripper}
    return run_one_of(verbs, argv, Parser("calibrate", TEXT, EXAMPLES))


def _board(argv: Sequence[str]) -> int:
    parser = Parser("calibrate board", TEXT, EXAMPLES)
    parser.add_argument("--out", type=Path, default=Path("board.pdf"), help="(board.pdf) or .svg")
    parser.add_argument("--paper", default="A4", help="A4, A3 or Letter (A4)")
    _with_board(parser)
    args = parser.read(argv)
    board = _read(args)
    engine("robot_rl.calibrate.board:draw")(board, args.out, args.paper)
    say(f"written to {args.out}: print it at 100 %, measure the bar below the board, glue it flat")
    say(f"use it with: --board {board.words}")
    return 0


def _with_board(parser: Parser) -> None:
    parser.add_argument(
        "--board", default=BOARD, metavar="SIZES",
        help=f"columns x rows, square and marker in metres, as printed on it ({BOARD})",
    )  # fmt: skip


def _parser(verb: str, *, camera: bool) -> Parser:
    parser = Parser(f"calibrate {verb}", TEXT, EXAMPLES)
    if camera:
        parser.add_argument("name", metavar="NAME", help="of the camera, as the task calls it")
        _with_board(parser)
        parser.add_argument(
            "--auto", action="store_true",
            help="the arm moves by itself, through the gate, each time that you press Enter",
        )  # fmt: skip
    parser.with_overrides().with_json()
    parser.add_argument("--yes", action="store_true", help="ask nothing (beside a double only)")
    return parser


def _how(args: argparse.Namespace) -> How:
    from robot_rl.run.at_the_arm import How

    return How(ask=_ask, tell=say, auto=getattr(args, "auto", True), unasked=args.yes)


def _ask(question: str) -> str:
    try:
        return input(question)
    except EOFError as error:
        raise ConfigError(
            "the terminal ended before all was agreed to",
            expected="Enter for each motion",
            got="the end of the input",
            fix="run it in a terminal; beside a double: --yes",
        ) from error


def _camera(argv: Sequence[str]) -> int:
    parser = _parser("camera", camera=True)
    parser.add_argument("--mount", choices=("hand", "beside"), default="hand", help="(hand)")
    parser.add_argument("--pictures", type=int, default=15, metavar="N", help="(15)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="PNG with the TCP drawn into it")
    args = parser.read(argv)
    if not 8 <= args.pictures <= 100:
        raise ConfigError(
            "this is no number of pictures to calibrate with",
            expected="--pictures from 8 to 100",
            got=str(args.pictures),
            fix="--pictures 15",
        )
    experiment = experiment_from(args, only=SECTIONS)
    if experiment is None:
        return 0
    calibrate = engine("robot_rl.run.calibrate_camera:calibrate_camera")
    found = calibrate(
        experiment, args.name, args.mount, _read(args), _how(args), wanted=args.pictures
    )
    result = found.result
    x, y, z = (1e3 * v for v in result.camera_in_mount.position_m)
    where = "TCP" if args.mount == "hand" else "base"
    say(f"camera {args.name} in the {where}: {x:.1f}, {y:.1f}, {z:.1f} mm")
    say(
        f"  corners missed by {result.rms_px:.2f} px (root mean square of {len(result.used)} "
        f"pictures, the worst {max(result.residuals_px):.2f} px)"
    )
    say(
        f"  other pictures would move it by {1e3 * result.spread_m:.2f} mm and "
        f"{math.degrees(result.spread_rad):.3f} degrees"
    )
    for warning in result.warnings:
        say(f"  warning: {warning}")
    shown = experiment.run_dir / "calibration" / f"{args.name}_tcp.png"
    if args.save is not None:
        args.save.parent.mkdir(parents=True, exist_ok=True)
        args.save.write_bytes(shown.read_bytes())
    say(f"  look: is the origin of the axes between the fingertips? {args.save or shown}")
    transform = engine("robot_rl.run.calibrate_camera:transform_words")(
        experiment, args.name, found
    )
    say(f"  for other programs: {transform}")
    _keep(args, ("cameras", args.name), found.values)
    write_json(args.json, found.values | engine("robot_rl.run.calibrate_camera:figures")(result))
    return 1 if result.warnings else 0


def _read(args: argparse.Namespace) -> Any:
    from robot_rl.calibrate.board import Board

    return Board.from_words(args.board)


def _time(argv: Sequence[str]) -> int:
    parser = _parser("time", camera=True)
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="(10)")
    args = parser.read(argv)
    if not 5.0 <= args.seconds <= 60.0:
        raise ConfigError(
            "this is no time to film for", expected="--seconds from 5 to 60",
            got=f"{args.seconds:g}", fix="--seconds 10",
        )  # fmt: skip
    experiment = experiment_from(args, only=SECTIONS)
    if experiment is None:
        return 0
    calibrate = engine("robot_rl.run.calibrate_time:calibrate_time")
    found = calibrate(experiment, args.name, _read(args), _how(args), args.seconds)
    camera = found.camera
    say(
        f"pictures of {args.name} show the arm {1e3 * camera.latency_s:.1f} ms before their stamp "
        f"(+- {1e3 * camera.sure_s:.1f} ms, {camera.samples} pictures)"
    )
    if found.arm is not None:
        say(f"the arm follows its targets after {1e3 * found.arm.latency_s:.0f} ms (+- "
            f"{1e3 * found.arm.sure_s:.0f} ms)")  # fmt: skip
    values = {"latency_s": round(camera.latency_s, 4)}
    _keep(args, ("cameras", args.name), values)
    about = {"sure_s": camera.sure_s, "pictures": camera.samples}
    about |= {} if found.arm is None else {"arm_behind_targets_s": found.arm.latency_s}
    write_json(args.json, {**values, **about})
    doubtful = camera.sure_s > 0.01
    if doubtful:
        say("  warning: that is not sure: film for longer (--seconds 20), with more light")
    return 1 if doubtful else 0


def _gripper(argv: Sequence[str]) -> int:
    args = _parser("gripper", camera=False).read(argv)
    experiment = experiment_from(args, only=("task", "ros", "robot"))
    if experiment is None:
        return 0
    ends = engine("robot_rl.run.calibrate_gripper:calibrate_gripper")(experiment, _how(args))
    values = {
        "opened_joints": round(ends.opened_joints, 5) + 0.0,  # no -0
        "closed_joints": round(ends.closed_joints, 5) + 0.0,
    }
    say(f"open at {values['opened_joints']:g}, closed at {values['closed_joints']:g}, in the "
        "driver's own unit")  # fmt: skip
    _keep(args, ("driver", "gripper"), values)
    write_json(args.json, values)
    return 0


def _keep(args: argparse.Namespace, section: tuple[str, str], values: Mapping[str, Any]) -> None:
    """Print as words, and write into the person's own file, which may fail."""
    from robot_rl.run.keep import GROUPS, as_words, place_of, write

    profile_first = section[0] == "driver"
    groups = ("robot", *GROUPS) if profile_first else GROUPS
    path = place_of(args.overrides, args.config_dir, groups)
    say(f"as words:\n  {as_words(section, values)}")
    if path is not None:
        write(path, section, values, args.overrides, args.config_dir, in_force=_in_force(section))
    say(f"written to {path}" if path else "no file of yours to write into")


def _in_force(section: tuple[str, str]) -> Callable[[Experiment], Mapping[str, Any]]:
    def read(experiment: Experiment) -> Mapping[str, Any]:
        if section[0] == "cameras":
            return experiment.plain_section("cameras")[section[1]]
        return vars(experiment.driver.gripper)

    return read
