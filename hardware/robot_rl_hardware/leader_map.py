"""Which angle a servo's position means: measured once with the leader in a known pose, then kept.

    angle = sign * (position - zero)

A servo that is switched off forgets how many whole turns it had made, so an angle is known but for
those: whoever compares it takes the nearest.

Like the rest of a stick (`operate.calibration`) this belongs to the piece of hardware, and lies
beside it in `~/.config/robot-rl/devices/`. On GELLO the horns are screwed on in steps of a quarter
turn, so the zero is a multiple of 90 degrees, and the person need not hit the known pose exactly.
In a pose whose angles are multiples of 45 degrees a wrong sign only moves such a zero by quarter
turns, which nobody can see: the signs are checked with a second pose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from robot_rl.config.yaml_file import UNFIT, read_yaml
from robot_rl.errors import ConfigError, SetupError
from robot_rl.operate.calibration import rest_file
from robot_rl.operate.leader import F64, Joints, whole_turns
from robot_rl.robots.chain import Chain
from robot_rl_hardware.servos import radians

QUARTER_RAD = math.pi / 2
WORST_RAD = math.radians(20.0)  # further from the pose, and the quarter turn is a guess
LEAST_PULL_RAD = math.radians(10.0)  # of the trigger
ASIDE_RAD = math.radians(20.0)  # by so much each joint is turned for the second pose
LEAST_ASIDE_RAD, MOST_ASIDE_RAD = math.radians(7.0), math.radians(60.0)
ON_THE_SPOT_M = 0.02  # a joint that moves the tool no further only turns it
ALSO = 0.5  # of the largest part of a motion: smaller parts are not told
TOWARDS = (("forward", "back"), ("left", "right"), ("up", "down"))  # x, y, z of the base
SEEN_FROM = ("the front", "its left", "above")  # along -x, -y, -z of the base


@dataclass(frozen=True, kw_only=True)
class LeaderMap:
    """Zeros and signs of the joints [n], from foot to tool; ends of the trigger, all in radians."""

    zero_rad: tuple[float, ...]
    signs: tuple[int, ...]
    trigger_rad: tuple[float, float] | None = None  # open, closed

    def joints(self, ticks: Mapping[int, int], ids: Sequence[int], stamp_s: float) -> Joints:
        """Positions by servo id -> angles. ids: of the joints, then of the trigger."""
        measured = np.array([radians(ticks[number]) for number in ids])
        n = len(self.zero_rad)
        angles = np.array(self.signs) * (measured[:n] - self.zero_rad)
        share = None
        if self.trigger_rad is not None and len(ids) > n:
            opened, closed = self.trigger_rad
            pulled = measured[n] - whole_turns(measured[n] - (opened + closed) / 2)
            share = float(np.clip((pulled - opened) / (closed - opened), 0.0, 1.0))
        return Joints(stamp_s, angles, share)


def solve(
    measured_rad: F64, known_rad: Sequence[float], signs: Sequence[int], *, quarters: bool
) -> tuple[float, ...]:
    """Zeros of the joints from what is measured in a known pose.

    Args:
        quarters: the zeros are multiples of a quarter turn.

    Raises:
        ConfigError: with `quarters`, a joint is too far from the pose to tell which quarter.
    """
    zero = np.asarray(measured_rad) - np.array(signs) * np.asarray(known_rad)
    if not quarters:
        return tuple(zero.tolist())
    rounded = np.round(zero / QUARTER_RAD) * QUARTER_RAD
    off = np.abs(zero - rounded)
    worst = int(off.argmax())
    if off[worst] > WORST_RAD:
        raise ConfigError(
            f"joint {worst + 1} of the leader is not in the pose",
            expected=f"every joint within {math.degrees(WORST_RAD):.0f} degrees of it",
            got=f"{math.degrees(off[worst]):.0f} degrees beside the nearest quarter turn",
            fix="put the leader into the pose that was named, and repeat; if it stays, the sign of"
            " this joint is wrong: --signs",
        )
    return tuple(rounded.tolist())


def second_pose(chain: Chain, known_rad: Sequence[float]) -> tuple[F64, list[str]]:
    """(by how much to turn each joint from the known pose [n] rad, what the tool then does).

    Angles grow, unless the joint's range ends there. The words are those of somebody who stands
    behind the foot and looks along x of the base; each is of one joint that is turned alone.
    """
    known = np.asarray(known_rad, float)
    aside_rad = np.where(known + ASIDE_RAD <= chain.high_rad, ASIDE_RAD, -ASIDE_RAD)
    before, words = chain.frames(known), []
    for joint, turned in enumerate(np.diag(aside_rad)):
        way_m = chain.frames(known + turned)[-1, :3, 3] - before[-1, :3, 3]
        words.append(_motion(way_m, before[joint, :3, 2] * np.sign(aside_rad[joint])))
    return aside_rad, words


def _motion(way_m: F64, axis: F64) -> str:
    """What a tool does that goes this way and turns about this axis, in words."""
    largest = float(np.abs(way_m).max())
    if largest > ON_THE_SPOT_M:
        parts = [
            names[int(part < 0.0)]
            for names, part in zip(TOWARDS, way_m, strict=True)
            if abs(part) > ALSO * largest
        ]
        return f"the tool goes {' and '.join(parts)}"
    along = int(np.abs(axis).argmax())
    way = "anticlockwise" if axis[along] > 0.0 else "clockwise"
    return f"the tool turns {way} on the spot, seen from {SEEN_FROM[along]}"


def check_signs(
    first_rad: F64, second_rad: F64, signs: Sequence[int], aside_rad: Sequence[float] | F64
) -> None:
    """Compare the signs with what is measured in the known pose, then in the second one.

    Raises:
        ConfigError: a joint was hardly turned, too far, or the other way than its sign says.
    """
    turned = np.asarray(second_rad) - np.asarray(first_rad)
    turned -= whole_turns(turned)
    far = np.abs(turned)
    wrong = np.flatnonzero((far < LEAST_ASIDE_RAD) | (far > MOST_ASIDE_RAD))
    if len(wrong):
        joint = int(wrong[0])
        raise ConfigError(
            f"joint {joint + 1} of the leader was not turned as it was asked for",
            expected=f"about {math.degrees(abs(aside_rad[joint])):.0f} degrees",
            got=f"{math.degrees(far[joint]):.0f} degrees",
            fix="repeat; for the second measurement turn each joint from the pose that was named,"
            " and hold the others",
        )
    found = np.sign(turned * aside_rad).astype(int)
    other = np.flatnonzero(found != np.asarray(signs))
    if len(other):
        names = ", ".join(str(joint + 1) for joint in other)
        raise ConfigError(
            f"the leader's signs are not those of its servos: joint {names}",
            expected=f"signs {' '.join(map(str, signs))}",
            got=f"each joint turned as for signs {' '.join(map(str, found))}",
            fix="repeat, and turn each joint the way that is told; if it stays, these servos are"
            f" built in the other way round: --signs {' '.join(map(str, found))}",
        )


def trigger_ends(opened_rad: float, closed_rad: float) -> tuple[float, float]:
    """The two ends of a trigger. Raises `ConfigError` when it has hardly been moved."""
    if abs(closed_rad - opened_rad) < LEAST_PULL_RAD:
        raise ConfigError(
            "the trigger has hardly moved",
            expected=f"at least {math.degrees(LEAST_PULL_RAD):.0f} degrees between its two ends",
            got=f"{math.degrees(abs(closed_rad - opened_rad)):.1f} degrees",
            fix="let it go entirely for the first, pull it entirely for the second measurement",
        )
    return opened_rad, closed_rad


def save(name: str, found: LeaderMap) -> Path:
    """Write a map under the leader's name."""
    path = rest_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {
        "zero_rad": [round(z, 6) for z in found.zero_rad],
        "signs": list(found.signs),
        "trigger_rad": found.trigger_rad and [round(t, 6) for t in found.trigger_rad],
    }
    head = f"# Joints of '{name}', written by: robot-rl leader --calibrate\n"
    path.write_text(head + yaml.safe_dump(rows, sort_keys=True))
    return path


def load(name: str, joints: int) -> LeaderMap:
    """The map of the leader `name`.

    Raises:
        SetupError: it was never calibrated.
        ConfigError: the file is no map of so many joints.
    """
    path = rest_file(name)
    if not path.is_file():
        raise SetupError(
            f"the {name} has not been calibrated",
            expected=f"{path}",
            got="no such file",
            fix="robot-rl leader gello --calibrate (or so101): once for each leader",
        )
    try:
        rows = read_yaml(path)
        trigger = rows["trigger_rad"]
        found = LeaderMap(
            zero_rad=tuple(map(float, rows["zero_rad"])),
            signs=tuple(map(int, rows["signs"])),
            trigger_rad=trigger_ends(*map(float, trigger)) if trigger else None,
        )
        fits = len(found.zero_rad) == len(found.signs) == joints
        if not fits or set(found.signs) - {1, -1} or not np.isfinite(found.zero_rad).all():
            raise ValueError(f"not {joints} zeros and signs")
    except UNFIT as error:
        raise ConfigError(
            f"{path} does not hold the map of a leader",
            expected=f"zero_rad and signs of {joints} joints, trigger_rad",
            got=f"{type(error).__name__}: {error}",
            fix="delete the file, and run robot-rl leader --calibrate again",
        ) from error
    return found
