"""Writes the YAML files of an arm from its URDF: the robot with its limits, a driver's profile.

The first, `robot/NAME.yaml`, holds all that is known of the arm. The second,
`robot/NAME_KIND.yaml`, says how its controller takes joint targets, and builds on the first.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.config.compose import options
from robot_rl.config.edit import flow
from robot_rl.errors import ConfigError, RobotRLError
from robot_rl.robots.described import Described
from robot_rl.robots.fold import Wishes, fold
from robot_rl.robots.urdf import MOST_BYTES, XACRO, Urdf, parse
from robot_rl.run.experiment import Experiment
from robot_rl.run.robot_guess import guess
from robot_rl.safety.limits import Limits

KINDS = ("position", "velocity", "trajectory")
TOPIC = {"position": "commands", "velocity": "commands", "trajectory": "joint_trajectory"}
"""kind -> the topic of such a controller of ros2_control, below its own name."""

BROADCASTER = "joint_state_broadcaster"
WIDTH = 98


@dataclass(frozen=True, kw_only=True)
class Controller:
    """How the arm takes joint targets. topic: "" = the controller's own; home: for arm/home."""

    kind: str
    name: str
    topic: str = ""
    home: str = ""
    manager: str = "controller_manager"

    def __post_init__(self) -> None:
        """Refuse an unknown kind, and one without a name."""
        if self.kind not in KINDS or not self.name:
            raise ConfigError(
                "the controller is not described",
                expected=f"--kind {' or '.join(KINDS)} and --controller NAME",
                got=f"--kind {self.kind or '(none)'} --controller {self.name or '(none)'}",
                fix="ros2 control list_controllers shows the names",
            )


# --- reading --------------------------------------------------------------------------------------


def read(path: Path) -> Urdf:
    """The URDF of a file. Raises `ConfigError`: no such file, no text, or see `urdf.parse`."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(
                f"{path} is too large for a robot description",
                expected=f"at most {MOST_BYTES // 1_000_000} MB",
                got=f"{path.stat().st_size / 1e6:.1f} MB",
                fix="give the URDF; meshes stay in files of their own",
            )
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read {path}",
            expected="a URDF file",
            got=str(error),
            fix=f"check the path; from a xacro: {XACRO}",
        ) from error


def mesh_finder(beside: Path | None, packages: Mapping[str, Path]) -> Callable[[str], Path | None]:
    """Files of meshes: package://NAME/... below the folders of packages, others beside the URDF."""

    def find(name: str) -> Path | None:
        if name.startswith("package://"):
            package, _, inner = name.removeprefix("package://").partition("/")
            folder = packages.get(package) or _installed(package)
            path = None if folder is None else folder / inner
        elif name.startswith("file://"):
            path = Path(name.removeprefix("file://"))
        else:
            path = None if beside is None else beside / name
        return path if path is not None and path.is_file() else None

    return find


def _installed(package: str) -> Path | None:
    """The share folder of a ROS package in a terminal in which ROS 2 is sourced; else None."""
    try:
        from ament_index_python.packages import get_package_share_directory

        return Path(get_package_share_directory(package))
    except (ImportError, LookupError, ValueError, OSError):  # OSError: ROS 2 from pip, not sourced
        return None


def described(
    urdf: Urdf,
    name: str,
    wishes: Wishes,
    home_rad: Sequence[float] | None,
    progress: Callable[[float], object],
) -> tuple[Described, list[str]]:
    """(the arm with its guesses, what to tell the person). Raises `ConfigError`."""
    folded, remarks = fold(urdf, name, wishes)
    guessed = guess(folded, home_rad, progress)
    return guessed.robot, [*remarks, *guessed.remarks]


# --- writing --------------------------------------------------------------------------------------


def text_of(robot: Described, source: str, remarks: Sequence[str]) -> str:
    """The YAML of a robot with its limits. source: where the URDF came from."""
    printable = "".join(c if c.isprintable() else "?" for c in source)
    head = (
        f"{robot.title}, from {printable}. NOT signed off on hardware: whoever bolts the arm down "
        "checks every value and signs. Written by `robot-rl robot new`; every key is explained in "
        "robot_rl/robots/robot.py and robot_rl/safety/limits.py."
    )
    lines = ["# @package _global_", *(f"# {line}" for line in textwrap.wrap(head, WIDTH))]
    lines += ["# What was guessed or left out:"] if remarks else []
    for remark in remarks:
        wrapped = textwrap.wrap(remark, WIDTH - 4)
        lines += [f"# {'- ' if i == 0 else '  '}{line}" for i, line in enumerate(wrapped)]
    lines += ["robot:", "  name: described"]
    for key, value in _plain(robot).items():
        if key in ("joints", "capsules"):
            lines += [f"  {key}:", *(f"    - {flow(entry)}" for entry in value)]
        else:
            lines.append(f"  {key}: {flow(value)}")
    lines += ["safety:", f"  name: {robot.name}"]
    lines += [f"  {key}: {flow(value)}" for key, value in _plain(Limits.of(robot)).items()]
    return "\n".join(lines) + "\n"


def profile_of(robot: Described, controller: Controller) -> str:
    """The YAML of a profile: the arm beside a driver that takes joint targets."""
    topic = controller.topic or f"{controller.name}/{TOPIC[controller.kind]}"
    values: dict[str, Any] = {
        "title": f"{robot.title}, {controller.name}",
        "packages": ["controller_manager_msgs", "control_msgs", "tf2_msgs"],
        "topics": {"joint_target": topic},
        "wrench": "none",
        "joints": {"kind": controller.kind, "names": list(robot.joint_names)},
        "controllers": {
            "manager": controller.manager,
            "cartesian": controller.name,
            "beside": [BROADCASTER],
            "home": controller.home or (controller.name if controller.kind == "trajectory" else ""),
        },
        "gripper": {"kind": "none"},
        "min_hz": {"joint_states": 50.0},
    }
    return "".join(
        (
            "# @package _global_\n",
            f"# {robot.title} beside a driver that takes joint targets: the node `ik` makes them.\n"
            "# Written by `robot-rl robot new`. NOT on the real arm: check every line; every key\n"
            "# is explained in robot_rl/robots/driver.py.\n",
            "defaults:\n",
            f"  - {robot.name} # the arm and its limits\n",
            "  - override /ros: real\n",
            "  - override /operator: gamepad\n",
            "  - _self_\n",
            "runtime: ros\n",
            "driver:\n",
            *(f"  {key}: {flow(value)}\n" for key, value in values.items()),
        )
    )


def _plain(value: Any) -> Any:
    """Dataclasses to mappings, tuples to lists."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(v) for name, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def path_of(name: str, config_dir: Path) -> Path:
    """Where the file of a robot goes.

    Raises:
        ConfigError: the name cannot be one, or is taken.
    """
    path = config_dir / "robot" / f"{name}.yaml"
    if not name.isidentifier() or name != name.lower():
        fix = "small letters, digits and _, e.g. my_arm"
        raise ConfigError("a robot cannot have this name", expected="my_arm", got=name, fix=fix)
    if path.exists() or name in options("robot"):
        raise ConfigError(
            f"there is already a robot '{name}'",
            expected="a new name: nothing is ever overwritten",
            got=str(path) if path.exists() else "one that robot-rl ships",
            fix="--name ANOTHER, or delete the file yourself",
        )
    return path


def write(texts: Mapping[str, str], config_dir: Path) -> list[Path]:
    """Write and check files (name -> text); when one does not pass, none is left behind.

    Raises:
        ConfigError: see `path_of`, or the arm does not make sense.
    """
    paths = {name: path_of(name, config_dir) for name in texts}
    try:
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x") as file:
                file.write(texts[name])
        for name in paths:
            Experiment.compose([f"robot={name}", "experiment=reach"], config_dir).check()
    except RobotRLError:
        for path in paths.values():
            path.unlink(missing_ok=True)
        raise
    return list(paths.values())
