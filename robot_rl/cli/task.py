"""`robot-rl task`: write a task for an arm by answering questions, without code."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.cli.common import Parser, engine, run_one_of, say
from robot_rl.cli.parity import scene_from
from robot_rl.errors import ConfigError, SetupError

if TYPE_CHECKING:
    from robot_rl.run.task_file import Question
    from robot_rl.types import Pose

TEXT = """
Write a task for an arm without code. `new` asks what it has to know and writes
DIR/experiment/NAME.yaml; `teach` does the same, but start, goal and box are where you put the arm
(guide it by hand, or jog it; nothing here moves it). Each question is an option, too: with --yes
nobody is asked, and what is not given has its default. Poses are of the TCP in the robot's base:
'x y z', 'x y z yaw' (fingers down) or 'x y z qx qy qz qw'; several stand between semicolons.
`box` computes the box of a task from the demonstrations of a run. `draws` shows what a task with
task.randomize looks like: a sheet of pictures, one for each start. No configuration is ever
overwritten, except by `box --write`: the two lines of the box.
"""
EXAMPLES = """
robot-rl task new my_insert
robot-rl task new my_insert --starts '0.5 0 0.2' --goal '0.5 0 0.05' --robot ur5e --yes
robot-rl task new my_insert --from-poses poses.yaml      starts, goal, corners: [[x, y, z], ...]
robot-rl task teach my_insert --robot ur5e               beside the robot's driver
robot-rl task box my_insert --from runs/my_insert/RUN --margin 0.02 --write
robot-rl task draws lift_pixels task.randomize=cameras --out draws.png
"""
WHERE = ("domain_id", "namespace", "topic")  # options of `teach`


def run(argv: Sequence[str]) -> int:
    """Run one of the four; return 0 when the file is written, or the box is printed."""
    verbs = {"new": _new, "teach": _teach, "box": _box, "draws": _draws}
    return run_one_of(verbs, argv, Parser("task", TEXT, EXAMPLES), " NAME")


def _parser(verb: str, argv: Sequence[str]) -> tuple[argparse.Namespace, list[Question]]:
    """The arguments, and the questions, each of which is an option."""
    questions = engine("robot_rl.run.task_file:questions")
    parser = Parser(f"task {verb}", TEXT, EXAMPLES)
    parser.add_argument("name", metavar="NAME", help="of the new task")
    parser.add_argument(
        "--config-dir", type=Path, default=Path("configs"), metavar="DIR", help="(configs)"
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing: defaults for the rest")
    if verb == "new":
        parser.add_argument("--from-poses", type=Path, metavar="FILE", help="YAML with poses")
    else:
        parser.add_argument("--domain-id", type=int, default=42, help="ROS domain (42)")
        parser.add_argument("--namespace", default="", help="of the robot's driver")
        parser.add_argument("--topic", default="", help="of its TCP pose, if not the robot's own")
    for question in questions("", None):
        parser.add_argument(question.option, metavar="WORDS", help=question.text.replace("%", "%%"))
    args = parser.read(argv)
    return args, questions(args.name, extra_dir(args))


def extra_dir(args: argparse.Namespace) -> Path | None:
    """The person's own YAML files; None before there is such a folder."""
    return args.config_dir if args.config_dir.is_dir() else None


def _given(args: argparse.Namespace, asked: Sequence[Question]) -> dict[str, str]:
    values = {q.key: getattr(args, q.key) for q in asked}
    return {key: words for key, words in values.items() if words is not None}


def _new(argv: Sequence[str]) -> int:
    args, asked = _parser("new", argv)
    engine("robot_rl.run.task_file:path_of")(args.name, args.config_dir)  # before any question
    poses = {}
    if args.from_poses is not None:
        poses = engine("robot_rl.run.task_file:from_poses")(args.from_poses)
    return _write(args, asked, poses | _given(args, asked))


def _teach(argv: Sequence[str]) -> int:
    from robot_rl.run.task_file import answer, arm_of

    args, asked = _parser("teach", argv)
    engine("robot_rl.run.task_file:path_of")(args.name, args.config_dir)
    given = _given(args, asked)
    first = [q for q in asked if q.key == "robot"]
    word = answer(first, {k: v for k, v in given.items() if k == "robot"}, _ask(args), say)["robot"]
    arm = arm_of(word, extra_dir(args))
    where = {name: getattr(args, name) for name in WHERE}
    where["topic"] = where["topic"] or arm.driver.topics.get("current_pose", "")
    with engine("robot_rl.ros.teach:taught_poses")(arm.robot, **where) as read:
        taught = teach(read, input)
    return _write(args, asked, taught | {"robot": word} | given)


def teach(read: Callable[[], Pose], ask: Callable[[str], str]) -> dict[str, str]:
    """Answers from where the person puts the arm: Enter takes a pose, d goes on to the next."""
    from robot_rl.run.task_file import as_answers, in_words

    found: dict[str, list[str]] = {"starts": [], "goal": [], "corners": []}

    def take(key: str, text: str, least: int, most: int) -> None:
        while len(found[key]) < most:
            done = "" if len(found[key]) < least else "; d = done"
            try:
                word = ask(f"{text} {len(found[key]) + 1}: move the arm there, press Enter{done}: ")
            except EOFError as error:
                raise ConfigError(
                    "the terminal ended before all poses were taught",
                    expected="Enter at each place, d after the last",
                    got=f"{len(found[key])} of {key}",
                    fix="begin again, or robot-rl task new --from-poses FILE",
                ) from error
            if word.strip() == "d" and done:
                return
            try:
                found[key].append(in_words(read()))
            except SetupError as error:
                say(str(error))
                continue
            say(f"  {found[key][-1]}")

    take("starts", "start", 1, 20)
    take("goal", "goal", 0, 1)
    take("corners", "corner of the box (two or more; none: around start and goal)", 0, 8)
    if len(found["corners"]) == 1:
        say("one corner is no box: it is left out")
        found["corners"] = []
    return as_answers(found)


def _ask(args: argparse.Namespace) -> Callable[[str], str] | None:
    return None if args.yes else input


def _write(args: argparse.Namespace, asked: Sequence[Question], given: dict[str, str]) -> int:
    """Ask for the rest, show the file, write it."""
    from robot_rl.run.task_file import answer, path_of, text_of, write

    text = text_of(args.name, answer(asked, given, _ask(args), say))
    say(text)
    if not args.yes:
        path = path_of(args.name, args.config_dir)
        try:
            word = input(f"write this to {path}? [yes]: ").strip()
        except EOFError:
            word = "no"
        if word not in ("", "y", "yes"):
            say("nothing was written")
            return 1
    path = write(args.name, text, args.config_dir)
    say(f"written to {path}")
    say(f"next: robot-rl check {args.name} --config-dir {args.config_dir}")
    return 0


def _box(argv: Sequence[str]) -> int:
    parser = Parser("task box", TEXT, EXAMPLES)
    parser.add_argument("name", metavar="NAME", help="of the task")
    parser.add_argument("--from", dest="run", type=Path, required=True, metavar="RUN")
    parser.add_argument("--margin", type=float, default=0.02, metavar="M", help="metres (0.02)")
    parser.add_argument("--write", action="store_true", help="change the task's file")
    parser.add_argument(
        "--config-dir", type=Path, default=Path("configs"), metavar="DIR", help="(configs)"
    )
    args = parser.read(argv)
    if not 0.0 <= args.margin <= 0.5:
        raise ConfigError(
            "this is no margin around the demonstrations",
            expected="--margin in metres, from 0 to 0.5",
            got=f"{args.margin:g}",
            fix="--margin 0.02 is 20 mm on each side",
        )
    from robot_rl.cli.common import existing_run

    box = engine("robot_rl.run.task_box:box_from")
    run_dir = existing_run(args.run)
    box(args.name, run_dir, args.margin, args.config_dir, write=args.write, tell=say)
    return 0


def _draws(argv: Sequence[str]) -> int:
    parser = Parser("task draws", TEXT, EXAMPLES).with_overrides()
    parser.add_argument("--count", type=int, default=16, metavar="N", help="of starts (16)")
    parser.add_argument(
        "--out", type=Path, default=Path("draws.png"), metavar="FILE", help="(draws.png)"
    )
    args = parser.read(argv)
    if not 1 <= args.count <= 400:
        parser.error("--count must lie between 1 and 400")
    experiment = scene_from(args)
    if experiment is not None:
        picture = engine("robot_rl.run.draws:draw_picture")(experiment, args.out, args.count)
        say(f"picture  {picture}")
    return 0
