"""Writes the YAML file of a described task: what is asked, what the defaults are, how it is said.

Every question has one answer in words, whether it comes from an option of the command line, from a
person at the terminal, or from the arm's own pose (`robot-rl task teach`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from robot_rl.config.compose import options
from robot_rl.config.edit import flow
from robot_rl.config.yaml_file import read_yaml
from robot_rl.errors import ConfigError, RobotRLError, did_you_mean
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply
from robot_rl.run.experiment import Experiment
from robot_rl.safety.clip import tilt_rad, yaw_rad
from robot_rl.tasks.common import TOOL_DOWN_XYZW
from robot_rl.tasks.described import JUDGES, RESETS
from robot_rl.types import Pose

Answers = dict[str, Any]
NONE = "none"
NAME = re.compile(r"[a-z][a-z0-9_]*")
MARGIN_M = 0.05  # of the box around starts and goal
ROOM_TILT_RAD, ROOM_YAW_RAD = 0.2, 0.3  # that the policy may turn beyond starts and goal


@dataclass(frozen=True, slots=True)
class Question:
    """One answer that a file needs. key: also its option; read: from words, raises `ValueError`.

    default: the answer in words when nobody gives one; None = there is none. wanted: whether the
    answers so far leave the question open.
    """

    key: str
    text: str
    read: Callable[[str], Any]
    default: Callable[[Answers], str | None]
    wanted: Callable[[Answers], bool] = lambda _: True

    @property
    def option(self) -> str:
        """Its option on the command line."""
        return "--" + self.key.replace("_", "-")


# --- answers in words -----------------------------------------------------------------------------


def numbers(words: str, count: int) -> list[float]:
    """`count` finite numbers between spaces or commas."""
    try:
        found = [float(word) for word in words.replace(",", " ").split()]
    except ValueError:
        found = []
    if len(found) != count or not all(map(math.isfinite, found)):
        raise ValueError("a number" if count == 1 else f"{count} numbers between spaces")
    return found


def read_pose(words: str) -> Pose:
    """`x y z`, `x y z yaw` (fingers down) or `x y z qx qy qz qw`, in m and rad, in base."""
    count = len(words.replace(",", " ").split())
    if count not in (3, 4, 7):
        raise ValueError("a pose: x y z, x y z yaw (fingers down), or x y z qx qy qz qw")
    found = numbers(words, count)
    if count == 7:
        if abs(float(np.linalg.norm(found[3:])) - 1.0) > 0.01:
            raise ValueError("a unit quaternion x y z w behind the position")
        return pose(found[:3], found[3:])
    turn = quat_from_rotvec((0.0, 0.0, found[3] if count == 4 else 0.0))
    return pose(found[:3], quat_multiply(turn, TOOL_DOWN_XYZW))


def _poses(words: str) -> list[Pose]:
    return [read_pose(part) for part in words.split(";")]


def _box(words: str) -> list[list[float]]:
    corners = [numbers(part, 3) for part in words.split(";")]
    if len(corners) < 2:
        raise ValueError("two corners or more: x y z; x y z")
    return [np.min(corners, 0).tolist(), np.max(corners, 0).tolist()]


def _choice(known: Iterable[str]) -> Callable[[str], str]:
    words = list(known)

    def read(word: str) -> str:
        if word not in words:
            raise ValueError(f"one of these: {did_you_mean(word, words)}")
        return word

    return read


def _number(words: str) -> float:
    (found,) = numbers(words, 1)
    return found


def _three(words: str) -> list[float]:
    return numbers(words, 3)


def _positive(words: str) -> float:
    found = _number(words)
    if found <= 0.0:
        raise ValueError("a number above 0")
    return found


def _count(words: str) -> int:
    if not words.isdigit() or int(words) < 1:
        raise ValueError("a whole number, 1 or more")
    return int(words)


def _yes(word: str) -> bool:
    return _choice(("yes", "no"))(word) == "yes"


def _text(words: str) -> str:
    if not words.strip() or '"' in words or "\n" in words:
        raise ValueError("a few words on one line, without double quotes")
    return words.strip()


def _scene(words: str) -> dict[str, Any]:
    """`peg_insert variant=easy hole_xy_m=0`: the name of a simulated task, and its settings."""
    name, *settings = words.split()
    _choice(scenes())(name)
    if not all(re.fullmatch(r"\w+=\S+", setting) for setting in settings):
        raise ValueError("a scene and its settings: peg_insert variant=easy hole_xy_m=0")
    given = {key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in settings)}
    return {"name": name} | given


def scenes() -> list[str]:
    """Shipped tasks whose scene can stand in for the real one."""
    return [name for name in options("task") if name not in ("gym", "described")]


def _unless_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda words: None if words == NONE else read(words)


def _names(words: str) -> list[str]:
    found = words.replace(",", " ").split()
    if not all(re.fullmatch(r"\w+", name) for name in found):
        raise ValueError("names of cameras: wrist, front")
    return found


# --- the questions --------------------------------------------------------------------------------


def questions(name: str, extra_dir: Path | None) -> list[Question]:
    """What a file needs to know, in this order; each default may use the answers before it."""

    def known(group: str) -> Callable[[str], str]:
        return _choice(options(group, extra_dir))

    def said(words: str | None) -> Callable[[Answers], str | None]:
        return lambda _: words

    def box_around(answers: Answers) -> str | None:
        return _box_around(answers, extra_dir)

    def measures_force(answers: Answers) -> str:
        driver = arm_of(answers["robot"], extra_dir).driver
        return "no" if driver.wrench == "none" else "yes"

    resets, judges, stages = (" | ".join(words) for words in (RESETS, JUDGES, scenes()))
    return [
        Question("robot", "robot", known("robot"), said("fr3")),
        Question("operator", "what the person drives with", known("operator"), said("gamepad")),
        Question("instruction", "what is to be done", _text, said(name.replace("_", " "))),
        Question("starts", "starts of the TCP in base: x y z [yaw]; ...", _poses, said(None)),
        Question("goal", "TCP at the end, or none", _unless_none(read_pose), said(NONE)),
        Question("start_spread_m", "starts vary by +- x y z (m)", _three, said("0.02 0.02 0")),
        Question("start_spread_rad", "and turn by +- (rad)", _number, said("0.1")),
        Question("box", "corners of the box of the TCP: x y z; x y z", _box, box_around),
        Question("cameras", "cameras of the policy, or none", _unless_none(_names), said(NONE)),
        Question("image_size", "their size (pixels)", _count, said("128"), _sees),
        Question("gripper", "does the policy open and close the gripper", _yes, said("no")),
        Question("gripper_width_m", "its width at the start (m)", _number, said("0")),
        Question("wrench", "does the arm measure force", _yes, measures_force),
        Question("control_hz", "rate (Hz)", _positive, said("10")),
        Question("horizon_s", "longest episode (s)", _positive, said("10")),
        Question("translation_m", "largest step of one action (m)", _positive, said("0.01")),
        Question("rotation_rad", "and turn (rad)", _positive, said("0.06")),
        Question("judge", f"who says what success is: {judges}", _choice(JUDGES), _likely_judge),
        Question("tolerance_m", "within (m) of the goal", _positive, said("0.002"), _has_goal),
        Question("tolerance_rad", "and within (rad)", _positive, said("0.1"), _has_goal),
        Question("hold_steps", "for so many steps in a row", _count, said("1"), _is_measured),
        Question("model", "vlm, or the folder of a classifier", _text, said("vlm"), _is_modelled),
        Question("reset", f"way to the next start: {resets}", _choice(RESETS), said("above")),
        Question("clear_z_m", "across at least this high (m)", _number, _highest_start, _rises),
        Question("ask", "what the person prepares", _text, said("all in its place"), _asks),
        Question("via", "through: x y z [yaw]; ...", _poses, said(None), _is_scripted),
        Question("scene", f"simulated scene: {stages} [key=value ...], or none",
                 _unless_none(_scene), said(NONE)),
    ]  # fmt: skip


def _sees(answers: Answers) -> bool:
    return bool(answers["cameras"])


def _has_goal(answers: Answers) -> bool:
    return answers["goal"] is not None


def _likely_judge(answers: Answers) -> str:
    return "tcp_pose" if _has_goal(answers) else "person"


def _is_measured(answers: Answers) -> bool:
    return answers["judge"] in ("tcp_pose", "topic")


def _is_modelled(answers: Answers) -> bool:
    return answers["judge"] == "reward"


def _is_scripted(answers: Answers) -> bool:
    return answers["reset"] == "scripted"


def _rises(answers: Answers) -> bool:
    return not _is_scripted(answers)


def _asks(answers: Answers) -> bool:
    return answers["reset"] == "ask"


def arm_of(name: str, extra_dir: Path | None = None) -> Experiment:
    """An experiment with the robot, or the profile, of this name. Raises `ConfigError`."""
    return Experiment.compose([f"robot={name}"], extra_dir)


def _highest_start(answers: Answers) -> str:
    return f"{max(start.position_m[2] for start in answers['starts']):.4g}"


def _box_around(answers: Answers, extra_dir: Path | None) -> str | None:
    """Starts with their spread, goal and a margin, within the robot's workspace; None: no goal."""
    if not _has_goal(answers):
        return None
    robot = arm_of(answers["robot"], extra_dir).robot
    spread = np.array(answers["start_spread_m"])
    points = [p.position_m + sign * spread for p in answers["starts"] for sign in (-1, 1)]
    points.append(answers["goal"].position_m)
    low, high = box_of(np.array(points), MARGIN_M, robot.workspace_min_m, robot.workspace_max_m)
    return "; ".join(" ".join(f"{x:.4g}" for x in corner) for corner in (low, high))


def box_of(
    points_m: NDArray[np.float64], margin_m: float, low_m: Sequence[float], high_m: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Corners (m, to 0.1 mm) of the box around points [N, 3] with a margin, within low and high."""
    low = np.maximum(points_m.min(0) - margin_m, low_m)
    high = np.minimum(points_m.max(0) + margin_m, high_m)
    return low.round(4).tolist(), high.round(4).tolist()


def answer(
    asked: Sequence[Question],
    given: Mapping[str, str],
    ask: Callable[[str], str] | None,
    tell: Callable[[str], object],
) -> Answers:
    """Answer every question that is wanted: from `given`, else from the person, else its default.

    ask: shows a prompt and returns a line; None = nobody is there. tell: says what was wrong.

    Raises:
        ConfigError: a given answer is wrong or not wanted, or a question stays open.
    """
    answers: Answers = {}
    for question in asked:
        wanted = question.wanted(answers)
        if not wanted and question.key in given:
            raise _wrong(
                question, given[question.key], "an answer that fits the others", "leave it out"
            )
        if not wanted:
            answers[question.key] = None
        elif question.key in given:
            answers[question.key] = _read(question, given[question.key])
        else:
            answers[question.key] = _open(question, answers, ask, tell)
    return answers


def _open(
    question: Question,
    answers: Answers,
    ask: Callable[[str], str] | None,
    tell: Callable[[str], object],
) -> Any:
    default = question.default(answers)
    while ask is not None:
        hint = "" if default is None else f" [{default}]"
        try:
            words = ask(f"{question.text}{hint}: ").strip()
        except EOFError:
            break
        if not words and default is None:
            continue
        try:
            return question.read(words or str(default))
        except ValueError as error:
            tell(f"  expected {error}")
    if default is None or ask is not None:
        raise _wrong(question, "no answer", question.text, f"give {question.option}")
    return _read(question, default)


def _read(question: Question, words: str) -> Any:
    try:
        return question.read(words)
    except ValueError as error:
        raise _wrong(question, words, str(error), f"{question.option} '...'") from error


def _wrong(question: Question, got: str, expected: str, fix: str) -> ConfigError:
    return ConfigError(f"wrong answer for {question.option}", expected=expected, got=got, fix=fix)


# --- poses that somebody has taught ---------------------------------------------------------------


def from_poses(path: Path) -> dict[str, str]:
    """Answers from a YAML file with `starts`, `goal` and `corners` (of the box).

    Each pose is a list [x, y, z], [x, y, z, yaw] or [x, y, z, qx, qy, qz, qw]; `starts` and
    `corners` are lists of them.

    Raises:
        ConfigError: there is no such file, or something else in it.
    """
    expected = "starts: [[x, y, z, qx, qy, qz, qw], ...], goal: [...], corners: [[...], [...]]"
    try:
        data = read_yaml(path)
        if not isinstance(data, dict) or set(data) - {"starts", "goal", "corners"} or not data:
            raise ValueError("keys " + (", ".join(map(str, data)) if data else "(none)"))
        found = {k: [_words(p) for p in (data[k] if k != "goal" else [data[k]])] for k in data}
    except (OSError, ValueError, TypeError, OverflowError, yaml.YAMLError) as error:
        fix = "write such a file, or robot-rl task teach"
        raise ConfigError(
            f"no poses in {path}", expected=expected, got=str(error), fix=fix
        ) from error
    return as_answers(found)


def as_answers(found: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Answers from poses in words: `starts`, `goal` (one), `corners`."""
    given = {key: "; ".join(found[key]) for key in ("starts", "goal") if found.get(key)}
    if found.get("corners"):
        given["box"] = "; ".join(" ".join(words.split()[:3]) for words in found["corners"])
    return given


def in_words(taught: Pose) -> str:
    """A pose as `read_pose` reads it, to 0.1 mm."""
    x, y, z = taught.position_m.tolist()
    turn = " ".join(f"{number:.6f}" for number in taught.quaternion_xyzw)
    return f"{x:.4f} {y:.4f} {z:.4f} {turn}"


def _words(numbers_of: Any) -> str:
    words = " ".join(str(float(number)) for number in numbers_of)
    read_pose(words)
    return words


# --- the file -------------------------------------------------------------------------------------


def text_of(name: str, answers: Answers) -> str:
    """The YAML of an experiment with a described task."""
    a = answers
    images = a["cameras"] or []
    low, high = a["box"]
    reset = {"by": a["reset"], "clear_z_m": a["clear_z_m"], "ask": a["ask"]}
    reset["via_in_base"] = [_plain(p) for p in a["via"]] if a["via"] else None
    model = a["model"] if a["judge"] == "reward" else None
    reward = "predicate" if model is None else "vlm" if model == "vlm" else "classifier"
    tilt, yaw = _turns(a)
    scene = dict(a["scene"] or {})
    stage = scene.pop("name", "")
    rows: list[tuple[str, Any, str]] = [
        ("title", name, ""),
        ("instruction", a["instruction"], ""),
        ("starts_in_base", [_plain(p) for p in a["starts"]], "of the TCP; quaternions are x y z w"),
        ("start_spread_m", a["start_spread_m"], "half ranges along base x, y, z"),
        ("start_spread_rad", a["start_spread_rad"], "about base z"),
        ("goal_in_base", None if a["goal"] is None else _plain(a["goal"]), ""),
        ("judge", a["judge"], JUDGES[a["judge"]]),
        ("tolerance_m", a["tolerance_m"], ""),
        ("tolerance_rad", a["tolerance_rad"], ""),
        ("workspace_min_m", low, "the box: the gate lets the TCP go nowhere else"),
        ("workspace_max_m", high, ""),
        ("max_tilt_rad", tilt, "of the fingers from straight down"),
        ("max_yaw_rad", yaw, ""),
        ("control_hz", a["control_hz"], ""),
        ("max_steps", max(1, round(a["horizon_s"] * a["control_hz"])), "of an episode"),
        ("translation_m", a["translation_m"], "of one action unit"),
        ("rotation_rad", a["rotation_rad"], ""),
        ("images", images or None, "cameras of the policy"),
        ("image_size", a["image_size"], ""),
        ("gripper", a["gripper"], "the policy opens and closes it"),
        ("gripper_width_m", a["gripper_width_m"], "at the start; 0 = closed, also on a part"),
        ("wrench", a["wrench"], "force and torque are observed"),
        ("reset", {k: v for k, v in reset.items() if v is not None}, RESETS[a["reset"]]),
        ("scene", scene or None, ""),
    ]
    rewards = {"hold_steps": a["hold_steps"], "model": model if reward == "classifier" else None}
    rewards["task"] = "${task.instruction}" if reward == "vlm" else None
    return "".join(
        (
            "# @package _global_\n",
            f"# {a['instruction']}\n",
            "# Written by `robot-rl task new`. Every key is explained in docs/tasks.md.\n",
            "defaults:\n",
            f"  - /task@task.scene: {stage} # what the simulator has on the table\n"
            if stage
            else "",
            f"  - override /robot: {a['robot']}\n",
            "  - override /task: described\n",
            f"  - override /operator: {a['operator']}\n",
            f"  - override /reward: {reward}\n",
            f"  - override /algo: hil_serl_{'pixels' if images else 'state'}\n",
            f"name: {name}\n",
            "runtime: ros # a profile, or ros=real: beside the arm's driver\n",
            "task:\n",
            *(
                f"  {k}: {flow(v)}{f' # {why}' if why else ''}\n"
                for k, v, why in rows
                if v is not None
            ),
            _section("reward", rewards),
            _section("learner", {"utd": 2.0, "capacity": 50_000} if images else {"utd": 8.0}),
        )
    )


def _section(name: str, values: Mapping[str, Any]) -> str:
    said = {k: v for k, v in values.items() if v is not None}
    return f"{name}: {flow(said)}\n" if said else ""


def _plain(given: Pose) -> dict[str, list[float]]:
    return {
        "position_m": [round(x, 5) for x in given.position_m.tolist()],
        "quaternion_xyzw": [round(x, 6) + 0.0 for x in given.quaternion_xyzw.tolist()],
    }


def _turns(answers: Answers) -> tuple[float, float]:
    """(max_tilt_rad, max_yaw_rad) that leave room beyond starts and goal."""
    poses = [*answers["starts"], *(answers["via"] or [])]
    poses += [answers["goal"]] if answers["goal"] is not None else []
    quats = [(x, y, z, w) for x, y, z, w in (p.quaternion_xyzw.tolist() for p in poses)]
    tilt = max(map(tilt_rad, quats)) + ROOM_TILT_RAD
    yaw = max(abs(yaw_rad(q)) for q in quats) + answers["start_spread_rad"] + ROOM_YAW_RAD
    return round(min(tilt, math.pi), 3), round(min(yaw, math.pi), 3)


def path_of(name: str, config_dir: Path) -> Path:
    """Where the file of a new task goes.

    Raises:
        ConfigError: the name cannot be one, or is taken.
    """
    path = config_dir / "experiment" / f"{name}.yaml"
    if not NAME.fullmatch(name):
        fix = "small letters, digits and _, e.g. my_insert"
        raise ConfigError("a task cannot have this name", expected=NAME.pattern, got=name, fix=fix)
    if path.exists() or name in options("experiment"):
        raise ConfigError(
            f"there is already an experiment '{name}'",
            expected="a new name: nothing is ever overwritten",
            got=str(path) if path.exists() else "one that robot-rl ships",
            fix="another name, or delete the file yourself",
        )
    return path


def write(name: str, text: str, config_dir: Path) -> Path:
    """Write and check the file; a file that does not pass is not left behind.

    Raises:
        ConfigError: see `path_of`.
        RobotRLError: what `robot-rl check` says of it.
    """
    path = path_of(name, config_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x") as file:
        file.write(text)
    try:
        Experiment.compose([f"experiment={name}"], config_dir).check()
    except RobotRLError:
        path.unlink()
        raise
    return path
