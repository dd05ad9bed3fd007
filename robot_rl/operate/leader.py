"""A leader arm: a small arm that a person moves, and whose motion the robot follows.

The leader tells joint angles. Forward kinematics turns them into a pose of its tool, which
`Following` turns into actions. A leader that has the robot's own kinematics must be brought to the
robot before a takeover: until each joint is near enough, the device refuses and says which joints
are off by how much (people who took over with a leader elsewhere saw the robot jump: LeRobot issue
3385). Whole turns between the two do not count: a servo forgets them when it is switched off, and
the tool is in the same place. A leader of another kind only shows a motion, so there is nothing to
bring it to.

The enabling button is a key of the page or of `robot-rl keyboard`: a leader arm has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import resolve
from robot_rl.config.yaml_file import read_yaml
from robot_rl.errors import ConfigError
from robot_rl.operate.following import FollowConfig, Following
from robot_rl.operate.handset import DeviceReading, HandsetConfig
from robot_rl.operate.held import HeldDevice, Source, hand_on, wait_for_news
from robot_rl.ports import Task
from robot_rl.robots import Robot
from robot_rl.robots.chain import Chain
from robot_rl.types import RobotState

F64 = NDArray[np.float64]
NAMED = 3  # joints of which a refusal tells how far they are off


@dataclass(frozen=True, slots=True)
class Joints:
    """Angles of a leader [n], its trigger (0 open to 1 closed, None = it has none), monotonic s."""

    stamp_s: float
    position_rad: F64
    trigger: float | None = None


def whole_turns(angle_rad: F64 | float) -> F64:
    """The whole turns in an angle, in rad: without them it lies within half a turn of 0."""
    return 2 * np.pi * np.round(np.asarray(angle_rad) / (2 * np.pi))


class JointSource(Protocol):
    """What tells the angles of a leader."""

    def read(self) -> Joints | None:
        """The newest angles, never blocking; None before the first.

        Raises:
            RobotRLError: the leader is gone, or what it says makes no sense.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Leading:
    """What all leader arms have in common.

    match_rad: a takeover waits until each joint of a leader with the robot's kinematics is this
    near to the robot's; None = only the leader's motion counts, wherever it stands.
    """

    match_rad: float | None = 0.1
    follow: FollowConfig = field(default_factory=FollowConfig)
    handset: HandsetConfig = field(default_factory=HandsetConfig)

    def __post_init__(self) -> None:
        """Refuse a tolerance that a robot could jump by."""
        if self.match_rad is not None and not 0.0 < self.match_rad <= 0.3:
            raise ValueError(f"match_rad must lie in (0, 0.3], or be null, got {self.match_rad}")
        if self.match_rad is not None and self.follow.scale != 1.0:
            raise ValueError("a leader that stands like the robot has scale 1; or match_rad=null")


class LeaderSource:
    """`held.WaitingSource` of a leader and of the buttons that go with it.

    Args:
        buttons: whose `held` counts; None = nobody is at them.
        chain: the leader's kinematics.
        match: (names of the robot's joints, tolerance in rad); None = any place will do.
    """

    def __init__(
        self,
        leader: JointSource,
        buttons: Source,
        chain: Chain,
        match: tuple[Sequence[str], float] | None,
        fresh_s: float,
    ) -> None:
        self._leader, self._buttons, self._chain = leader, buttons, chain
        self._match, self._fresh_s = match, fresh_s
        self._engaged = False

    def read(self, state: RobotState | None) -> DeviceReading | None:
        """The newest reading; raises like leader and buttons."""
        said = self._buttons.read(state)
        joints = self._leader.read()
        if joints is None or state is None:
            self._engaged = False
            return None
        stamp_s, held, problem = joints.stamp_s, frozenset[str](), ""
        silent = said is None or joints.stamp_s - said.stamp_s > self._fresh_s
        if said is not None and (not silent or self._engaged):
            # buttons that fall silent while they are held are passed on as silence
            stamp_s, held = min(stamp_s, said.stamp_s), said.held
        elif silent:
            problem = "nobody is at the buttons: take the seat on the page, or: robot-rl keyboard"
        problem = problem or (self._mismatch(joints, state) if not self._engaged else "")
        self._engaged = "drive" in held and not problem
        hand = self._chain.tcp_in_base(joints.position_rad)
        return DeviceReading(
            stamp_s, np.zeros(6), held, problem=problem, hand=hand, trigger=joints.trigger
        )

    def _mismatch(self, joints: Joints, state: RobotState) -> str:
        """Which joints of the leader are how far from the robot's; "" when none is too far."""
        if self._match is None:
            return ""
        names, within_rad = self._match
        off = joints.position_rad - state.joint_position_rad
        off -= whole_turns(off)
        far = [i for i in np.argsort(-np.abs(off)) if not abs(off[i]) <= within_rad]
        if not far:
            return ""
        told = [f"{names[i]} by {np.degrees(-off[i]):+.0f} deg" for i in far[:NAMED]]
        more = f" and {len(far) - NAMED} more" if len(far) > NAMED else ""
        return f"bring the leader to the robot: move {', '.join(told)}{more}"

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a button has news: those count at once."""
        return wait_for_news(self._buttons, timeout_s)


def led_by(
    task: Task,
    config: Leading,
    leader: JointSource,
    buttons: Source,
    name: str,
    *,
    robot: Robot,
    chain: Chain | None = None,
) -> HeldDevice:
    """The input device of a leader arm.

    Args:
        chain: kinematics of a leader that is another arm than the robot; None = the robot's own.

    Raises:
        ConfigError: a leader of another kind cannot be matched, or the task moves no arm.
    """
    if chain is not None and config.match_rad is not None:
        raise ConfigError(
            f"{name}: this leader cannot stand like the robot",
            expected="operator.match_rad=null: only its motion counts",
            got=f"match_rad={config.match_rad}, and other kinematics than {robot.title}",
            fix="set operator.match_rad=null",
        )
    match = None if config.match_rad is None else (robot.joint_names, config.match_rad)
    own = chain or Chain(robot)
    source = LeaderSource(leader, buttons, own, match, config.handset.input_timeout_s)
    absolute = match is not None
    following = Following(source, task.spec.pose_action, config.follow, absolute=absolute)
    return hand_on(task, config.handset, following, name)


def robot_of(run_dir: Path) -> Robot:
    """The robot of a run, by its folder. Raises like `config.registry.resolve`."""
    config = read_yaml(run_dir / "config.yaml") or {}
    return resolve("robot", config.get("robot") or {"name": "fr3"})
