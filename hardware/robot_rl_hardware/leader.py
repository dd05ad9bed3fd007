"""Leader arms on a serial line: GELLO (Dynamixel) and the SO-101 leader (Feetech).

GELLO has the kinematics of the robot that it was printed for: it is brought to the robot, then the
robot stands as it stands. The SO-101 leader is another arm with five joints: the robot follows its
motion, from wherever both are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError, LinkError
from robot_rl.geometry import compose, pose
from robot_rl.operate.devices import need_real_time, run_of
from robot_rl.operate.leader import F64, Joints, Leading, led_by, robot_of
from robot_rl.operate.remote import page_of
from robot_rl.ports import InputDevice, Task
from robot_rl.robots import Robot
from robot_rl.robots.chain import Chain
from robot_rl.robots.urdf import quat_from_rpy
from robot_rl_hardware.leader_map import LeaderMap, load, second_pose
from robot_rl_hardware.reader import Watcher
from robot_rl_hardware.servos import DYNAMIXEL, FEETECH, Family, ServoLine

GELLO_SIGNS = {
    "panda": (1, -1, 1, 1, 1, -1, 1),
    "fr3": (1, 1, 1, 1, 1, -1, 1),
    "ur5e": (1, 1, -1, 1, 1, 1),
}
"""Which way the servos of the printed arms turn: README of wuphilipp's gello_software, "Joint Signs
Reference". A GELLO of another build, such as the one that Franka Robotics sells: `robot-rl leader
gello --calibrate --signs`."""
HALF = math.pi / 2
FOOT = pose((0.0, 0.0, 0.0), quat_from_rpy(0.0, 0.0, HALF))  # the URDF looks along -y
SO101_PLACES = (
    compose(FOOT, pose((0.0207909, -0.0230745, 0.0948817), quat_from_rpy(-math.pi, 0.0, HALF))),
    pose((-0.0303992, -0.0182778, -0.0542), quat_from_rpy(-HALF, -HALF, 0.0)),
    pose((-0.11257, -0.028, 0.0), quat_from_rpy(0.0, 0.0, HALF)),
    pose((-0.1349, 0.0052, 0.0), quat_from_rpy(0.0, 0.0, -HALF)),
    pose((0.0, -0.0611, 0.0181), quat_from_rpy(HALF, 0.0, math.pi)),
)
SO101 = Chain.of(
    SO101_PLACES, pose((-0.0079, -0.000218, -0.0981274), quat_from_rpy(HALF, 0.0, HALF))
)
"""Joint origins of Simulation/SO101/so101_new_calib.urdf in TheRobotStudio/SO-ARM100 (Apache 2.0);
all angles are zero in the middle of their ranges."""


@dataclass(frozen=True, kw_only=True)
class SerialLeading(Leading):
    """A leader whose servos are on a serial line of this machine.

    port: path, part of the adapter's name, "" = the only one. ids: of the joints from foot to tool,
    then of the trigger; () = 1, 2, 3 ...
    """

    family: ClassVar[Family]
    kind: ClassVar[str]
    quarters: ClassVar[bool]  # whether the horns are screwed on in steps of a quarter turn
    at_page: ClassVar[bool] = True
    port: str = ""
    baud: int = 0  # 0 = as these leaders are delivered
    ids: tuple[int, ...] = ()

    def line(self, joints: int) -> ServoLine:
        """Open the servos of so many joints and the trigger. Raises `SetupError`."""
        ids = self.ids or tuple(range(1, joints + 2))
        if len(ids) not in (joints, joints + 1) or len(set(ids)) != len(ids):
            raise ConfigError(
                "these are not the servos of this leader",
                expected=f"{joints} different ids from foot to tool, then perhaps the trigger's",
                got=str(list(ids)),
                fix="set operator.ids",
            )
        return ServoLine(self.family, self.port, self.baud or self.family.baud, ids)

    def joints(self, robot: Robot) -> int:
        """How many joints the leader has."""
        return len(robot.joints)

    def chain(self, robot: Robot) -> Chain | None:
        """Its own kinematics; None = the robot's."""
        return None

    def known_pose(self, robot: Robot) -> tuple[Sequence[float], Sequence[int], str]:
        """Pose in which the leader is calibrated: angles, signs of the servos, what to tell."""
        raise NotImplementedError

    def second_pose(self, robot: Robot) -> tuple[F64, list[str]]:
        """See `leader_map.second_pose`."""
        return second_pose(self.chain(robot) or Chain(robot), self.known_pose(robot)[0])

    def open(self, task: Task, node: Any) -> InputDevice:
        """See `OperatorConfig`."""
        need_real_time(self.kind, node)
        robot = robot_of(run_of(node))
        reader = LeaderReader(self, self.joints(robot))
        chain = self.chain(robot)
        return led_by(task, self, reader, page_of(node), reader.name, robot=robot, chain=chain)


@register("operator", "gello")
@dataclass(frozen=True, kw_only=True)
class GelloConfig(SerialLeading):
    """A GELLO: a printed copy of the robot's kinematics with a Dynamixel XL330 in each joint."""

    family: ClassVar[Family] = DYNAMIXEL
    kind: ClassVar[str] = "gello"
    quarters: ClassVar[bool] = True

    def known_pose(self, robot: Robot) -> tuple[Sequence[float], Sequence[int], str]:
        """The robot's home pose."""
        signs = GELLO_SIGNS.get(robot.name, (1,) * len(robot.joints))
        return robot.home_rad, signs, f"as the {robot.title} stands in its home pose"


@register("operator", "so101")
@dataclass(frozen=True, kw_only=True)
class So101Config(SerialLeading):
    """The leader arm of an SO-101: five joints and a trigger, Feetech STS3215."""

    family: ClassVar[Family] = FEETECH
    kind: ClassVar[str] = "so101"
    quarters: ClassVar[bool] = False
    match_rad: float | None = field(default=None)

    def joints(self, robot: Robot) -> int:
        """Five, whatever the robot has."""
        return len(SO101_PLACES)

    def chain(self, robot: Robot) -> Chain | None:
        """Its own."""
        return SO101

    def known_pose(self, robot: Robot) -> tuple[Sequence[float], Sequence[int], str]:
        """All joints in the middle of their ranges."""
        n = len(SO101_PLACES)
        return (0.0,) * n, (1,) * n, "with every joint in the middle of its range"


def map_name(kind: str, path: str) -> str:
    """Under which a leader's calibration is kept: adapters have names of their own."""
    return f"leader {kind} {Path(path).name}"


class _Mapped:
    """An open line and what its positions mean."""

    def __init__(self, config: SerialLeading, joints: int) -> None:
        self.line = config.line(joints)
        self.name = self.line.name
        try:
            self.map: LeaderMap = load(map_name(config.kind, self.line.path), joints)
        except BaseException:
            self.line.close()
            raise

    def close(self) -> None:
        """Free the line."""
        self.line.close()


class LeaderReader(Watcher[_Mapped, Joints | None]):
    """`leader.JointSource` of a serial leader, read in a thread.

    Raises:
        SetupError, ConfigError: it cannot be opened, or was never calibrated.
    """

    def __init__(self, config: SerialLeading, joints: int) -> None:
        super().__init__(lambda: _Mapped(config, joints))

    def read(self) -> Joints | None:
        """The newest angles. Raises `LinkError` while the leader is gone."""
        newest = self._newest
        if newest is None and self.lost:
            raise LinkError(
                f"{self.name} is gone",
                expected="an answer of every servo",
                got=self.lost.splitlines()[0],
                fix="plug it in again and power it; let go of the drive key; it is found by itself",
            )
        return newest

    def _look(self, handle: _Mapped) -> Joints | None:
        """The next angles; the last ones, as old as they are, when a packet was lost."""
        ticks = handle.line.ticks()
        if ticks is None:
            return self._newest
        return handle.map.joints(ticks, handle.line.ids, time.monotonic())
