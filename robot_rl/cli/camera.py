"""`robot-rl camera`: which cameras there are, what the network sees of them, what is cut out."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.common import (
    Parser,
    engine,
    existing_run,
    experiment_from,
    is_setting,
    run_one_of,
    say,
    write_json,
)
from robot_rl.cli.console import link_teller, page_options, port_of
from robot_rl.errors import ConfigError, SetupError

if TYPE_CHECKING:
    from robot_rl.ros.camera_watch import FoundTopic
    from robot_rl.run.experiment import Experiment
    from robot_rl_hardware.reader import FoundDevice

TEXT = """
Set up the cameras of a task. `list` says which cameras are connected and which topics carry
pictures, and what to write into the configuration to use each. `show` opens a page on this machine:
every camera whole, and beside it exactly what the network sees. `roi` is the same page, on which a
crop is drawn; saving writes crop, width and height of that camera into your own YAML file (the
experiment that the words name, else the robot's profile, in --config-dir) and prints them as words.
A camera of the section `cameras` with name=realsense or name=uvc is opened here, unless the graph
sends its pictures already; every other camera is read from its topic. Nothing moves.
"""
EXAMPLES = """
robot-rl camera list
robot-rl camera list ros.domain_id=7 --json cameras.json
robot-rl camera show experiment=my_insert --config-dir my_configs
robot-rl camera show experiment=lift_pixels cameras.wrist.name=uvc --save pictures    no page
robot-rl camera show runs/my_insert/20260101-120000-s0
robot-rl camera roi wrist experiment=my_insert --config-dir my_configs
"""
LISTEN_S = 2.0
SECTIONS = ("task", "cameras", "ros")  # all that is needed to look
DOMAIN = "ros.domain_id"
KINDS = ("realsense", "uvc")  # modules of `robot_rl_hardware`
PLAIN = re.compile(r"[\w/.:+@-]+")  # a value that Hydra reads without quotes


def run(argv: Sequence[str]) -> int:
    """Run one of the three; see each for what it returns."""
    verbs = {"list": _list, "show": _show, "roi": _roi}
    return run_one_of(verbs, argv, Parser("camera", TEXT, EXAMPLES))


# --- list -----------------------------------------------------------------------------------------


def _list(argv: Sequence[str]) -> int:
    """Print what is there; return 1 when no camera can be used."""
    parser = Parser("camera list", TEXT, EXAMPLES).with_overrides().with_json()
    parser.add_argument("--seconds", type=float, default=LISTEN_S, metavar="S", help="(2)")
    args = parser.read(argv)
    experiment = experiment_from(args, only=("ros",))
    if experiment is None:
        return 0
    devices = [about for kind in KINDS for about in _devices(kind)]
    domain_id = _domain(args.overrides, experiment)
    topics = _topics(domain_id, experiment.ros.domain_id, args.seconds)
    write_json(args.json, {"devices": devices, "topics": topics, "domain_id": domain_id})
    return 0 if any(not about["problem"] for about in (*devices, *topics)) else 1


def _devices(kind: str) -> list[dict[str, Any]]:
    """Print and return the cameras of one kind that are connected; say how to get one if none."""
    module = f"robot_rl_hardware.{kind}"
    try:
        found: list[FoundDevice] = engine(f"{module}:find_{kind}")()
        if not found:
            raise engine(f"{module}:none_found")()
    except SetupError as error:
        say(str(error))
        return []
    listed = []
    for one in found:
        serial = kind == "realsense"
        where = {"serial": one.path} if serial else {"device": one.path}
        use = words_for({"name": kind, **where})
        say(f"{kind:<10} {one.name} ({'serial ' if serial else ''}{one.path})")
        say(f"  use:      {use}")
        if one.problem:
            say(f"  problem:  {one.problem}")
            say("  fix:      sudo usermod -aG video $USER, then log in again")
        listed.append({"kind": kind, "name": one.name, "path": one.path, "problem": one.problem,
                       "use": use})  # fmt: skip
    return listed


def _domain(words: Sequence[str], experiment: Experiment) -> int:
    """`ros.domain_id` where it is given, else the shell's, else the one that a run would use."""
    given = any(word.startswith(f"{DOMAIN}=") for word in words)
    shells = os.environ.get("ROS_DOMAIN_ID", "")
    return int(shells) if shells.isdigit() and not given else experiment.ros.domain_id


def _topics(domain_id: int, runs_id: int, listen_s: float) -> list[dict[str, Any]]:
    """Print and return the topics with pictures. runs_id: the domain in which a run listens."""
    try:
        where = engine("robot_rl.ros.camera_watch:Where")(domain_id=domain_id)
        find = engine("robot_rl.ros.camera_watch:find_image_topics")
    except SetupError as error:
        say(f"topics are not listed: {error}")
        return []
    found: list[FoundTopic] = find(where, listen_s)
    if not found:
        none = SetupError(
            "no topic with pictures found",
            expected="sensor_msgs/msg/Image or CompressedImage from a camera's driver",
            got=f"none in ROS domain {domain_id} within {listen_s:g} s",
            fix=f"start the driver in a shell with ROS_DOMAIN_ID={domain_id}, or name its domain: "
            f"{DOMAIN}=0; robot-rl camera show needs no driver for name=realsense and name=uvc",
        )
        say(str(none))
        return []
    say(f"topics with pictures in ROS domain {domain_id}, heard for {listen_s:g} s:")
    listed = [_topic(one) for one in found]
    if domain_id != runs_id:
        say(f"a run listens in domain {runs_id}: add {DOMAIN}={domain_id} to its words")
    return listed


def _topic(one: FoundTopic) -> dict[str, Any]:
    """Print and return one topic."""
    silent = not one.encoding
    problem = "nothing came: is the camera on?" if silent else one.problem
    came = "" if silent else f" {one.width} x {one.height} {one.encoding}, {one.rate_hz:.1f} Hz,"
    say(f"{one.topic}\n  sends:    {one.type},{came} from {', '.join(one.publishers)}")
    renamed = one.type.endswith("/CompressedImage") and not one.topic.endswith("/compressed")
    use = words_for({"topic": one.topic, **({"compressed": "true"} if renamed else {})})
    if problem:
        say(f"  problem:  {problem}")
    if not one.problem:
        say(f"  use:      {use}")
    return {
        "topic": one.topic,
        "type": one.type,
        "publishers": list(one.publishers),
        "encoding": one.encoding,
        "width": one.width,
        "height": one.height,
        "rate_hz": one.rate_hz,
        "problem": problem,
        "use": "" if one.problem else use,
    }


def words_for(values: Mapping[str, str]) -> str:
    """Words for the command line that set keys of a camera; NAME is what the task calls it."""
    words = []
    for key, value in values.items():
        plain = PLAIN.fullmatch(value) and not (key == "serial" and value.isdigit())
        word = f"cameras.NAME.{key}={value}"
        # Hydra reads digits as a number; a serial number is text
        words.append(word if plain else f"'cameras.NAME.{key}=\"{value}\"'")
    return " ".join(words)


# --- show and roi ---------------------------------------------------------------------------------


def _show(argv: Sequence[str]) -> int:
    """Serve the page until Ctrl-C, or save pictures; return 1 when a camera sent none."""
    parser = Parser("camera show", TEXT, EXAMPLES).with_overrides()
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write PNGs there, and end")
    page_options(parser)
    args = parser.read(argv)
    experiment = _experiment(args)
    if experiment is None:
        return 0
    if args.save is None:
        return _page(args, experiment, "")
    open_eyes = engine("robot_rl.run.cameras:open_eyes")
    save = engine("robot_rl.run.cameras:save_pictures")
    with open_eyes(experiment) as eyes:
        done = save(eyes, args.save, say)
    say(f"pictures are in {args.save}")
    return 0 if done else 1


def _roi(argv: Sequence[str]) -> int:
    """Serve the page with drawing until Ctrl-C."""
    parser = Parser("camera roi", TEXT, EXAMPLES)
    parser.add_argument("name", metavar="NAME", help="of the camera, as the task calls it")
    parser.with_overrides()
    page_options(parser)
    args = parser.read(argv)
    if _is_run(args.overrides):
        raise ConfigError(
            "a run keeps the crops with which it began",
            expected="the words of an experiment: experiment=my_insert",
            got=args.overrides[0],
            fix="draw the crop for the next run; robot-rl camera show RUN shows those of this one",
        )
    experiment = _experiment(args)
    if experiment is None:
        return 0
    engine("robot_rl.run.cameras:known_camera")(args.name, experiment.cameras)
    return _page(args, experiment, args.name)


def _is_run(words: Sequence[str]) -> bool:
    return len(words) == 1 and not is_setting(words[0])


def _experiment(args: argparse.Namespace) -> Experiment | None:
    """What the words or the run folder say; None when `--config` printed it. It has cameras."""
    if _is_run(args.overrides):
        from robot_rl.run.experiment import Experiment

        found = Experiment.load(existing_run(Path(args.overrides[0])))
    else:
        found = experiment_from(args, only=SECTIONS)
    if found is not None:
        engine("robot_rl.run.cameras:cameras_of")(found)
    return found


def _page(args: argparse.Namespace, experiment: Experiment, drawn: str) -> int:
    """Serve the page. drawn: the camera whose crop is drawn; "" = none."""
    port = port_of(args)
    serve = engine("robot_rl.console.cameras:serve_cameras")
    keeper = engine("robot_rl.run.camera_crop:CropKeeper")
    if experiment.is_simulated:
        say(
            "a simulated arm's cameras send what the network sees: crops count beside a real arm "
            "(ros=real, or a profile such as robot=ur5e_fzi) and its double"
        )
    with engine("robot_rl.run.cameras:open_eyes")(experiment) as eyes:
        kept = keeper(eyes, args.overrides, args.config_dir)

        def keep(name: str, crop: Any) -> dict[str, Any]:
            done = kept.keep(name, crop)
            said = f"written to {done.path}" if done.path else "no file of yours to write into"
            say(f"{said}; as words:\n  {done.words}")
            if done.warning:
                say(f"  {done.warning}")
            return {"said": said, "words": done.words, "warning": done.warning}

        title = f"crop of {drawn}, {experiment.name}" if drawn else experiment.name
        if drawn:
            say(
                f"saving writes into {kept.path}"
                if kept.path
                else "saving only prints the words: no file of --config-dir holds the section "
                "cameras; name your experiment (experiment=NAME --config-dir DIR)"
            )
        tell = link_teller(args, port, f"{title if drawn else f'cameras of {title}'}; Ctrl-C ends")
        serve(eyes, keep, args.host, port, title=title, drawn=drawn, started=tell)
    return 0
