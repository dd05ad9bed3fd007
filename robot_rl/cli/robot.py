"""`robot-rl robot`: an arm of one's own from its URDF, without code."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.cli.common import Parser, engine, run_one_of, say
from robot_rl.errors import ConfigError

if TYPE_CHECKING:
    from robot_rl.robots import Robot
    from robot_rl.robots.urdf import Urdf

TEXT = """
An arm of your own. `new` reads a URDF (a file, or what the arm's driver publishes) and writes
DIR/robot/NAME.yaml: joints, limits, masses, gripper, collision capsules, home pose, workspace. What
it had to guess, it says; change it in the file. With --kind and --controller it also writes the
profile DIR/robot/NAME_KIND.yaml for a controller that takes joint targets. `show` prints an arm,
`list` names all. Nothing is ever overwritten, and nothing here moves an arm.
"""
EXAMPLES = """
robot-rl robot new my_arm.urdf
robot-rl robot new my_arm.urdf --base base_link --tip tool0 --gripper robotiq_2f85
robot-rl robot new --from-topic --name my_arm            beside the arm's driver
robot-rl robot new my_arm.urdf --kind position --controller forward_position_controller
robot-rl robot show my_arm --config-dir configs --save my_arm.png
"""


def run(argv: Sequence[str]) -> int:
    """Run one of the three; return 0."""
    verbs = {"new": _new, "show": _show, "list": _list}
    return run_one_of(verbs, argv, Parser("robot", TEXT, EXAMPLES), " NAME")


def _at_least_0(word: str) -> float:
    """A length or a mass."""
    with contextlib.suppress(ValueError):
        if 0.0 <= (number := float(word)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"expected a number that is not negative, got {word!r}")


def _with_dir(parser: Parser) -> Parser:
    parser.add_argument(
        "--config-dir",
        type=Path,
        default=Path("configs"),
        metavar="DIR",
        help="your YAML files (default: configs)",
    )
    return parser


def _new(argv: Sequence[str]) -> int:
    from robot_rl.robots.fold import Wishes

    args = _arguments(argv)
    _check_source(args)
    file = engine("robot_rl.run.robot_file:path_of")
    urdf, source = _urdf(args)
    name = args.name or urdf.name.lower().replace("-", "_")
    file(name, args.config_dir)  # before the work
    controller = None
    if args.kind or args.controller:
        controller = engine("robot_rl.run.robot_file:Controller")(
            kind=args.kind or "",
            name=args.controller or "",
            topic=args.topic,
            home=args.home_controller,
        )
        file(f"{name}_{args.kind}", args.config_dir)
    beside = None if args.file is None else args.file.parent
    find = engine("robot_rl.run.robot_file:mesh_finder")(beside, _packages(args.package))
    wishes = Wishes(
        base=args.base, tip=args.tip, gripper=args.gripper, tcp=args.tcp,
        tool_m=args.tool_m, tool_kg=args.tool_kg, find=find,
    )  # fmt: skip
    from robot_rl.cli.progress import ProgressBar

    with ProgressBar("steps of the search for a home pose and a box") as bar:
        robot, remarks = engine("robot_rl.run.robot_file:described")(
            urdf, name, wishes, _angles(args.home), lambda share: bar(round(100 * share), 100)
        )
    texts = {name: engine("robot_rl.run.robot_file:text_of")(robot, source, remarks)}
    if controller is not None:
        profile = engine("robot_rl.run.robot_file:profile_of")
        texts[f"{name}_{args.kind}"] = profile(robot, controller)
    for path in engine("robot_rl.run.robot_file:write")(texts, args.config_dir):
        say(f"written to {path}")
    for remark in remarks:
        say(f"  {remark}")
    say(f"next: robot-rl robot show {name} --config-dir {args.config_dir} --save {name}.png")
    return 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = _with_dir(Parser("robot new", TEXT, EXAMPLES))
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.urdf")
    parser.add_argument(
        "--from-topic", nargs="?", const="robot_description", metavar="TOPIC",
        help="read it from the arm's driver (robot_description)",
    )  # fmt: skip
    parser.add_argument("--domain-id", type=int, default=42, help="ROS domain of the driver (42)")
    parser.add_argument("--namespace", default="", help="namespace of the driver")
    parser.add_argument("--name", default="", help="of the robot; default: the URDF's")
    parser.add_argument(
        "--base", default="", metavar="LINK", help="what is bolted down; its z is up, its x forward"
    )
    parser.add_argument(
        "--tip", default="", metavar="LINK", help="what the tool is mounted on; its z points out"
    )
    parser.add_argument(
        "--tcp", default="", metavar="LINK", help="the point between the fingertips"
    )
    parser.add_argument(
        "--gripper", default="", metavar="KIND",
        help="urdf (two sliding fingers in it), none, franka_hand or robotiq_2f85",
    )  # fmt: skip
    parser.add_argument(
        "--tool-m",
        type=_at_least_0,
        default=0.0,
        metavar="M",
        help="length of a tool without fingers",
    )
    parser.add_argument(
        "--tool-kg", type=_at_least_0, default=0.0, metavar="KG", help="mass of this tool"
    )
    parser.add_argument("--home", default="", metavar="RAD", help="home pose, as '0 -1.57 ...'")
    parser.add_argument(
        "--package", action="append", default=[], metavar="NAME=FOLDER",
        help="where meshes of package://NAME/ are; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--kind", metavar="KIND", help="what the controller takes: position, velocity or trajectory"
    )
    parser.add_argument("--controller", metavar="NAME", help="its name in ros2_control")
    parser.add_argument("--topic", default="", help="topic of its targets, if not the usual")
    parser.add_argument(
        "--home-controller", default="", metavar="NAME", help="takes a trajectory home"
    )
    return parser.read(argv)


def _check_source(args: argparse.Namespace) -> None:
    if (args.file is None) == (args.from_topic is None):
        raise ConfigError(
            "the URDF comes from one place",
            expected="FILE.urdf, or --from-topic",
            got="neither" if args.file is None else "both",
            fix="robot-rl robot new my_arm.urdf",
        )


def _urdf(args: argparse.Namespace) -> tuple[Urdf, str]:
    """(the parsed URDF, where it came from)."""
    if args.file is not None:
        return engine("robot_rl.run.robot_file:read")(args.file), args.file.name
    read = engine("robot_rl.ros.description:read_description")
    text = read(args.from_topic, args.domain_id, args.namespace)
    where = f"the topic {args.from_topic}"
    return engine("robot_rl.robots.urdf:parse")(text, where), where


def _packages(words: Sequence[str]) -> dict[str, Path]:
    pairs = [word.partition("=") for word in words]
    for name, equals, folder in pairs:
        if not (name and equals and Path(folder).is_dir()):
            raise ConfigError(
                "this is no folder of a package",
                expected="--package NAME=FOLDER, an existing folder",
                got=f"{name}{equals}{folder}",
                fix="the folder that holds the package's meshes/",
            )
    return {name: Path(folder) for name, _, folder in pairs}


def _angles(words: str) -> list[float] | None:
    if not words:
        return None
    try:
        return [float(word) for word in words.replace(",", " ").split()]
    except ValueError as error:
        raise ConfigError(
            "this is no home pose", expected="one angle in rad per joint", got=words,
            fix="--home '0 -1.57 1.57 -1.57 -1.57 0'",
        ) from error  # fmt: skip


def _show(argv: Sequence[str]) -> int:
    parser = _with_dir(Parser("robot show", TEXT, EXAMPLES))
    parser.add_argument("name", metavar="NAME", help="as robot=NAME chooses it")
    parser.add_argument("--save", type=Path, metavar="FILE.png", help="draw it in its home pose")
    args = parser.read(argv)
    extra_dir = args.config_dir if args.config_dir.is_dir() else None
    robot = engine("robot_rl.run.task_file:arm_of")(args.name, extra_dir).robot
    say(table(robot))
    if args.save is not None:
        engine("robot_rl.run.robot_picture:save_picture")(robot, args.save)
        say(f"the picture is in {args.save}")
    return 0


def table(robot: Robot) -> str:
    """The arm in words and numbers."""
    gripper, hand = robot.gripper, len(robot.joints) + 1
    lines = [f"{robot.title} ({robot.name}), base {robot.base_frame}"]
    lines.append(f"{'joint':<26}{'range rad':>18}{'rad/s':>8}{'Nm':>8}{'kg':>8}{'home rad':>10}")
    for joint, home in zip(robot.joints, robot.home_rad, strict=True):
        low, high = joint.range_rad
        lines.append(
            f"{joint.name:<26}{f'{low:.3f} {high:.3f}':>18}{joint.velocity_rad_s:>8.2f}"
            f"{joint.torque_nm:>8.1f}{joint.link.mass_kg:>8.3f}{home:>10.3f}"
        )
    has = f"{1e3 * gripper.stroke_m:.0f} mm stroke, " if gripper.fingers else "no fingers, "
    lines.append(f"gripper    {gripper.name}: {has}TCP {1e3 * gripper.tcp_m:.0f} mm out")
    lines.append(f"workspace  {robot.workspace_min_m} to {robot.workspace_max_m} m")
    counts = [sum(c.link == i for c in robot.capsules) for i in range(hand + 1)]
    lines.append("capsules   " + ", ".join(f"link {i}: {n}" for i, n in enumerate(counts) if n))
    lines += [f"note       {robot.notes}"] if robot.notes else []
    return "\n".join(lines)


def _list(argv: Sequence[str]) -> int:
    parser = _with_dir(Parser("robot list", TEXT, EXAMPLES))
    args = parser.read(argv)
    extra_dir = args.config_dir if args.config_dir.is_dir() else None
    arm_of = engine("robot_rl.run.task_file:arm_of")
    for name in engine("robot_rl.config.compose:options")("robot", extra_dir):
        arm = arm_of(name, extra_dir)
        beside = f", beside {arm.driver.title}" if arm.driver.is_vendors else ""
        say(f"{name:<20}{len(arm.robot.joints)} joints  {arm.robot.title}{beside}")
    return 0
