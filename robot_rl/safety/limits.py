"""What the gate allows on one robot: one frozen dataclass, one YAML file, one hash per episode.

Limits are signed off per robot. Raising one needs an edit and a restart; a task may only *narrow*
the workspace. The hash goes into every episode header, so a step can always be traced to the limits
under which it was executed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from robot_rl.errors import SafetyError, did_you_mean
from robot_rl.robots import Fr3, Robot
from robot_rl.safety.obstacles import TABLE, Box, Obstacle, Vec3

FR3 = Fr3()

COLLISION = ("collision_arm", "collision_margin_m", "obstacles")
"""The fields of the collision check."""

JOINTS = ("joint_arm", "max_joint_speed_rad_s")
"""The fields of joint targets."""

JOINT_SPEED_RAD_S, JOINT_SPEED = 1.0, 0.5
"""Greatest speed of a joint target, and share of the slowest joint's velocity it may be."""

_CEILINGS = {
    # beyond these a value is a typo, not a limit (Franka: 1.7 m/s, 13 m/s2, 2.5 rad/s)
    "max_speed_m_s": 1.7,
    "max_acceleration_m_s2": 13.0,
    "max_rotation_speed_rad_s": math.pi,
    "max_joint_speed_rad_s": math.pi,
    "max_step_m": 0.2,
    "max_step_rad": math.pi / 2,  # beyond a quarter turn "the short way round" is ambiguous
    "max_tilt_rad": math.pi,
    "max_yaw_rad": math.pi,
    "max_force_n": 200.0,
    "max_torque_nm": 50.0,
    "operator_timeout_s": 0.5,
    "state_timeout_s": 0.5,
    "command_timeout_periods": 10.0,
    "control_hz": 1000.0,
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one robot; defaults are those of a Franka Research 3 on a table top.

    Poses are `tcp_in_base`. "Step" is the lead: target against the *measured* pose. "Speed" and
    "acceleration" are target against the targets sent before. Tilt is the angle between the tool's
    z axis (out of the fingers) and straight down (-z of base). Empty joint tuples switch the joint
    check off; an empty `collision_arm` does so with the collision check. `joint_arm`: the arm whose
    joints are commanded, in a run of joint actions; "" = targets are the TCP's. `obstacles` have
    names; None takes away one that would be there otherwise, e.g. the table of an arm on a stand.

    Raises:
        ValueError: a value is not finite, not positive, above what is physically sensible, or a
            minimum is not below its maximum.
    """

    workspace_min_m: Vec3 = Fr3.workspace_min_m
    workspace_max_m: Vec3 = Fr3.workspace_max_m
    max_step_m: float = 0.05  # fits lift's 0.04 m action; CRISP's own error clip is 0.1 m
    max_step_rad: float = 0.35  # fits lift's 0.2 rad on all three axes at once
    max_speed_m_s: float = 0.25  # ISO 10218 reduced speed
    max_rotation_speed_rad_s: float = 2.0  # 0.2 rad per 10 Hz tick; Franka allows 2.5
    max_acceleration_m_s2: float = 5.0  # full speed reversed within one 10 Hz tick; Franka: 13
    max_yaw_rad: float = math.pi  # pi = any; a task narrows it, or exploring winds up the wrist
    max_joint_speed_rad_s: float = JOINT_SPEED_RAD_S  # of a joint target; 0.1 rad per 10 Hz tick
    joint_arm: str = ""  # set by the task's actions
    max_tilt_rad: float = 0.8  # table-top work points down; keeps the elbow away from the table
    joint_min_rad: tuple[float, ...] = FR3.joint_min_rad
    joint_max_rad: tuple[float, ...] = FR3.joint_max_rad
    joint_margin_rad: float = 0.1  # MoveIt Servo's default
    max_force_n: float = Fr3.max_force_n
    max_torque_nm: float = Fr3.max_torque_nm
    gripper_min_m: float = 0.0
    gripper_max_m: float = Fr3.gripper.stroke_m
    command_timeout_periods: float = 1.5  # one missed tick is late, two would be 0.2 s of motion
    operator_timeout_s: float = 0.09  # four missed 50 Hz heartbeats (MoveIt Servo, Formant: 0.1 s)
    state_timeout_s: float = 0.05  # five missed 100 Hz readings
    collision_arm: str = FR3.name  # whose capsules are kept clear; "" = no check
    collision_margin_m: float = 0.01  # the predicted joints of a step differ from the real ones
    obstacles: Mapping[str, Obstacle | None] = field(default_factory=lambda: {"table": TABLE})
    control_hz: float = 10.0  # rate at which commands are expected

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for name, value in asdict(self).items():
            for number in _numbers(value):
                if not math.isfinite(number):
                    raise ValueError(f"{name} must be finite, got {value}")
        for name, ceiling in _CEILINGS.items():
            if not 0.0 < getattr(self, name) <= ceiling:
                got = getattr(self, name)
                raise ValueError(f"{name} must lie in (0, {ceiling:.4g}], got {got}")
        if self.command_timeout_periods < 1.0:
            raise ValueError("command_timeout_periods below 1 would hold between any two commands")
        _check_order("workspace", self.workspace_min_m, self.workspace_max_m)
        _check_order("joint", self.joint_min_rad, self.joint_max_rad)
        if self.gripper_max_m != 0.0 or self.gripper_min_m != 0.0:  # 0, 0: a tool without fingers
            _check_order("gripper", (self.gripper_min_m,), (self.gripper_max_m,))
        if self.gripper_min_m < 0.0:
            raise ValueError(f"gripper_min_m must not be negative, got {self.gripper_min_m}")
        if not 0.0 <= self.collision_margin_m <= 0.1:
            got = self.collision_margin_m
            raise ValueError(f"collision_margin_m must lie in [0, 0.1], got {got}")
        self._check_touching()
        if self.joint_arm and not self.joint_min_rad:
            raise ValueError(f"joint_arm={self.joint_arm} needs the ranges of its joints")
        spans = zip(self.joint_min_rad, self.joint_max_rad, strict=True)
        narrowest_rad = min((high - low for low, high in spans), default=math.inf)
        if not 0.0 <= self.joint_margin_rad < narrowest_rad / 2:
            raise ValueError(
                f"joint_margin_rad must lie in [0, {narrowest_rad / 2:.4g}), half the narrowest"
                f" joint range, got {self.joint_margin_rad}"
            )

    @classmethod
    def of(cls, robot: Robot) -> Limits:
        """Limits that follow from a robot's own file; the others keep their defaults."""
        return cls(
            workspace_min_m=robot.workspace_min_m,
            workspace_max_m=robot.workspace_max_m,
            joint_min_rad=robot.joint_min_rad,
            joint_max_rad=robot.joint_max_rad,
            max_force_n=robot.max_force_n,
            max_torque_nm=robot.max_torque_nm,
            gripper_max_m=robot.gripper.stroke_m,
            max_joint_speed_rad_s=min(
                JOINT_SPEED_RAD_S, JOINT_SPEED * min(j.velocity_rad_s for j in robot.joints)
            ),
            collision_arm=robot.name if robot.capsules else "",
        )

    @property
    def period_s(self) -> float:
        """Time between two expected commands."""
        return 1.0 / self.control_hz

    @property
    def command_timeout_s(self) -> float:
        """Age at which a command is stale, and silence after which the gate holds."""
        return self.command_timeout_periods / self.control_hz

    @cached_property
    def boxes(self) -> tuple[tuple[str, Box, tuple[str, ...]], ...]:
        """Name, numbers and `may_touch` of every obstacle that there is."""
        return tuple((n, o.box, o.may_touch) for n, o in self.obstacles.items() if o is not None)

    @property
    def surroundings(self) -> str:
        """In words, what the arm is kept clear of, and what may touch it all the same."""
        if not self.collision_arm:
            return "nothing (no collision check)"
        boxes = [f"{n} ({', '.join(may)} may touch it)" if may else n for n, _, may in self.boxes]
        return ", ".join(("itself", *boxes))

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON.

        Without what is not in use: as the limits of runs from before there was such a thing.
        """
        unused = (*(() if self.collision_arm else COLLISION), *(() if self.joint_arm else JOINTS))
        values = {k: v for k, v in asdict(self).items() if k not in unused}
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def within(self, other: Limits) -> Limits:
        """Limits that are nowhere wider than these or the `other` ones, of the same robot.

        An obstacle of either stays; where both know one by the same name, this one's box counts.

        Raises:
            ValueError: nothing is allowed by both.
        """
        kept: dict[str, Any] = {}
        for item in fields(self):
            name, mine, theirs = item.name, getattr(self, item.name), getattr(other, item.name)
            pick = _stricter(name)
            if name in ("collision_arm", "joint_arm"):
                kept[name] = mine or theirs
            elif name == "obstacles":
                there = {n: box for n, box in theirs.items() if box is not None}
                kept[name] = {**there, **{n: b or there.get(n) for n, b in mine.items()}}
            elif isinstance(mine, tuple):
                kept[name] = tuple(pick(a, b) for a, b in zip(mine, theirs, strict=True))
            elif name != "control_hz":
                kept[name] = pick(mine, theirs)
        return replace(self, **kept)

    def wider_than(self, other: Limits) -> tuple[str, ...]:
        """Names of the fields in which these limits allow more than the `other` ones do."""
        return tuple(f.name for f in fields(self) if self._allows_more(f.name, other))

    def _allows_more(self, name: str, other: Limits) -> bool:
        mine, theirs = getattr(self, name), getattr(other, name)
        if mine == theirs or name == "joint_arm":  # which says what kind of target, not how far
            return False
        if name == "collision_arm":
            return bool(theirs)
        if name == "obstacles":
            return any(box is not None and mine.get(n) != box for n, box in theirs.items())
        if isinstance(mine, tuple):
            if len(mine) != len(theirs):
                return bool(theirs)  # no joints: no check of joints
            pairs = zip(mine, theirs, strict=True)
            return any(a != b and _stricter(name)(a, b) == b for a, b in pairs)
        return _stricter(name)(mine, theirs) == theirs

    def _check_touching(self) -> None:
        """Refuse parts of the arm that it does not have."""
        count = len(self.joint_min_rad)
        known = ("foot", *(f"link{i}" for i in range(1, count + 1)), "hand")
        for name, obstacle in self.obstacles.items():
            for part in obstacle.may_touch if obstacle is not None and count else ():
                if part not in known:
                    hint = did_you_mean(part, known)
                    raise ValueError(f"obstacles.{name}.may_touch: no part '{part}' ({hint})")

    def of_joints(self, robot: Robot) -> Limits:
        """These limits for commands that are joint targets of `robot`."""
        return replace(self, joint_arm=robot.name)

    def narrow_to(self, task: object) -> Limits:
        """`narrow` to as much of the pose box as `task` states."""
        names = ("workspace_min_m", "workspace_max_m", "max_tilt_rad", "max_yaw_rad")
        return self.narrow(*(getattr(task, x, getattr(self, x)) for x in names))

    def narrow(
        self,
        workspace_min_m: Sequence[float],
        workspace_max_m: Sequence[float],
        max_tilt_rad: float = math.pi,
        max_yaw_rad: float = math.pi,
    ) -> Limits:
        """Limits whose pose box is the intersection with a task's; never wider.

        Raises:
            SafetyError: the two boxes do not overlap, or a corner is not three finite numbers.
        """
        asked = (*workspace_min_m, *workspace_max_m)
        if len(workspace_min_m) != 3 or len(asked) != 6 or not math.isfinite(sum(asked)):
            raise SafetyError(
                "a workspace box needs two corners",
                expected="two times three finite numbers, metres in the base frame",
                got=f"{tuple(workspace_min_m)} to {tuple(workspace_max_m)}",
                fix="give x, y, z of both corners",
            )
        low = _corner(max, self.workspace_min_m, workspace_min_m)
        high = _corner(min, self.workspace_max_m, workspace_max_m)
        if any(a >= b for a, b in zip(low, high, strict=True)):
            raise SafetyError(
                "the task's workspace lies outside the robot's",
                expected=f"overlap with {self.workspace_min_m} to {self.workspace_max_m} m",
                got=f"{tuple(workspace_min_m)} to {tuple(workspace_max_m)} m",
                fix="move the task into the robot's workspace (limits only ever get narrower)",
            )
        return replace(
            self,
            workspace_min_m=low,
            workspace_max_m=high,
            max_tilt_rad=min(self.max_tilt_rad, max_tilt_rad),
            max_yaw_rad=min(self.max_yaw_rad, max_yaw_rad),
        )


def as_recorded(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Section `safety` of a saved run; one from before there was a collision check has none.

    A saved run states every limit, so what it does not state was not checked.
    """
    return section if "collision_arm" in section else {**section, "collision_arm": ""}


def _stricter(name: str) -> Callable[[Any, Any], Any]:
    """Which of two values of a field allows less; a slow rate is waited for longer."""
    return max if "_min_" in name or "margin" in name or name == "control_hz" else min


def _numbers(value: object) -> tuple[float, ...]:
    """Every number of a value; none of a word, nor of obstacles, which check their own."""
    if isinstance(value, tuple):
        return value
    return (value,) if isinstance(value, float | int) else ()


def _check_order(name: str, low: Sequence[float], high: Sequence[float]) -> None:
    if len(low) != len(high):
        raise ValueError(f"{name} minimum and maximum differ in length: {len(low)}, {len(high)}")
    if any(a >= b for a, b in zip(low, high, strict=True)):
        raise ValueError(f"{name} minimum must lie below its maximum, got {low} and {high}")


def _corner(
    pick: Callable[[float, float], float], mine: Sequence[float], theirs: Sequence[float]
) -> Vec3:
    x, y, z = (float(pick(a, b)) for a, b in zip(mine, theirs, strict=True))
    return (x, y, z)
