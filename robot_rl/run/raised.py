"""Limits above the robot's own: only who answers for the arm raises them, at this machine.

A YAML file or a run folder may come from anybody. Neither raises a limit by itself: a word on the
command line does (`safety.max_speed_m_s=0.5`), or an edit of the robot's own file in
`configs/robot/`. A run that was made here has passed this check, which its run.json proves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from robot_rl.config.compose import robot_sheet
from robot_rl.config.registry import build
from robot_rl.config.run_folder import RUN
from robot_rl.errors import ConfigError
from robot_rl.robots import Robot
from robot_rl.safety.limits import Limits
from robot_rl.system import plain_json
from robot_rl.system.made_here import is_made_here


def own_limits(robot: Robot) -> Limits:
    """What a robot's own file allows: the shipped one, else what follows from its description."""
    derived: dict[str, Any] = dataclasses.asdict(Limits.of(robot))
    sheet = dict(robot_sheet(robot.name))
    boxes = derived["obstacles"] | dict(sheet.get("obstacles") or {})
    return build(Limits, derived | sheet | {"obstacles": boxes}, f"robot {robot.name}")


def is_own_run(run_dir: Path) -> bool:
    """Whether a run folder was made by this user on this machine, from words that passed here."""
    try:
        record = plain_json.loads((run_dir / RUN).read_text())
        return is_made_here(str(record["config_hash"]), record.get("made_here"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def refuse_raised(arms: Iterable[tuple[Robot, Limits]], words: Sequence[str] = ()) -> None:
    """Refuse limits above the robot's own that no word of the command line sets.

    arms: the robot of each arm, and its limits (`Experiment.robot_limits`).

    Raises:
        ConfigError: there is one.
    """
    said = {name for word in words for name in _said(word)}
    for robot, mine in arms:
        own = own_limits(robot)
        for name in mine.wider_than(own):
            if name not in said:
                raise ConfigError(
                    f"safety.{name} is above what the robot's own file allows",
                    expected=f"{getattr(own, name)}, or stricter",
                    got=str(getattr(mine, name)),
                    fix="leave it out of the YAML; who answers for it at the arm writes "
                    f"safety.{name}=... on the command line",
                )


def _said(word: str) -> Sequence[str]:
    """Names of the limits that a word of the command line sets."""
    parts = word.lstrip("+~").partition("=")[0].split(".")
    where = parts.index("safety") + 1 if "safety" in parts else len(parts)
    if where == len(parts) and "safety" in parts:  # the whole section
        return [field.name for field in dataclasses.fields(Limits)]
    return parts[where : where + 1]
