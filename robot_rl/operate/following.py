"""The tool follows a hand: a leader arm, a headset's controller, a phone.

Such a device tells a pose, not a deflection. While `drive` is held, the tool is asked to be where
the hand's motion since the press leads, and the difference from where the tool *is* becomes the
action; so everything downstream (takeover, gate, recording) sees an ordinary person's action.

Nothing jumps at a takeover. The anchor, the pair of poses that the motion is counted from, is set
anew until the robot has come to rest after the press, and until then the action is zero. A leader
that the robot is to stand like (`absolute`) is approached from there, slowly (`SETTLE_M_S`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robot_rl.geometry import (
    compose,
    pose,
    quat_conjugate,
    quat_from_rotvec,
    quat_multiply,
    step_towards,
)
from robot_rl.operate.handset import DeviceReading
from robot_rl.operate.held import Source, wait_for_news
from robot_rl.spec import ActionSpec
from robot_rl.types import Pose, RobotState

STAND_S, GIVE_UP_S = 0.15, 1.0  # the robot stands at least, and is waited for at most, so long
REST_M_S, REST_RAD_S = 0.01, 0.05
SETTLE_M_S, SETTLE_RAD_S = 0.03, 0.15  # how fast a matched leader's last offset is taken away,
SETTLE_S = 1.0  # growing from nothing in this time
CLOSED, OPENED = 0.6, 0.4  # of a trigger's way: hysteresis
GRIP_S = 0.4  # a word of the gripper lasts this long: the control loop looks at 10 Hz


@dataclass(frozen=True, kw_only=True)
class FollowConfig:
    """How the tool follows a hand.

    scale: metres of the tool for a metre of the hand; turns are never scaled. yaw_rad: turns what
    the hand does about the vertical axis, where the person does not look along x of the base.
    leash_m, leash_rad: the tool never owes the hand more than this; what a fast hand is ahead
    beyond it is forgotten, so that the tool stops soon after the hand.
    """

    scale: float = 1.0
    yaw_rad: float = 0.0
    leash_m: float = 0.1
    leash_rad: float = 0.6
    slow_factor: float = 0.3  # of `scale` while `slow` is held

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for name, high in {"scale": 3.0, "leash_m": 0.5, "leash_rad": 3.0}.items():
            if not 0.0 < getattr(self, name) <= high:
                raise ValueError(f"{name} must lie in (0, {high}], got {getattr(self, name)}")
        if not 0.0 < self.slow_factor <= 1.0:
            raise ValueError(f"slow_factor must lie in (0, 1], got {self.slow_factor}")


@dataclass(slots=True)
class _Anchor:
    """Where hand and tool were when the motion began to count, and how it is scaled."""

    hand: Pose
    tool: Pose
    scale: float
    since_s: float

    def target(self, hand: Pose) -> Pose:
        """Where the tool should be, with the hand here."""
        way_m = self.scale * (hand.position_m - self.hand.position_m)
        turn = quat_multiply(hand.quaternion_xyzw, quat_conjugate(self.hand.quaternion_xyzw))
        return pose(self.tool.position_m + way_m, quat_multiply(turn, self.tool.quaternion_xyzw))


class Following:
    """`held.Source` around a source whose readings may have a `hand`; others pass unchanged.

    Args:
        absolute: the hand is a copy of the robot's tool, in its base: after a takeover the small
            offset between the two is taken away slowly. Else only the motion counts.
    """

    def __init__(
        self, source: Source, action: ActionSpec, config: FollowConfig, *, absolute: bool = False
    ) -> None:
        self.source, self.config = source, config
        self._action, self._absolute = action, absolute
        self._yaw = pose((0.0, 0.0, 0.0), quat_from_rotvec((0.0, 0.0, config.yaw_rad)))
        self._let_go()

    def _let_go(self) -> None:
        self._anchor: _Anchor | None = None
        self._pressed_s: float | None = None
        self._stamp_s = 0.0
        self._grip_closed: bool | None = None
        self._grip, self._grip_s = "", 0.0

    def read(self, state: RobotState | None) -> DeviceReading | None:
        """The newest reading, its axes what the tool is asked for. Raises like the source."""
        reading = self.source.read(state)
        if reading is None or reading.hand is None:
            self._let_go()
            return reading
        still = replace(
            reading,
            hand=None,
            axes=np.zeros(6),
            exact=True,
            turn_rad=0.0,
            heading_rad=None,
            nudge=False,
        )
        if state is None or "drive" not in reading.held or reading.problem:
            self._let_go()
            return still
        hand = compose(self._yaw, reading.hand)
        axes = self._asked(hand, reading.held, state, reading.stamp_s)
        held = (reading.held | self._grip_word(reading)) - {"slow"}
        return replace(still, axes=axes, held=held)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the source has news; see `HeldDevice.wait`."""
        return wait_for_news(self.source, timeout_s)

    def _asked(
        self, hand: Pose, held: frozenset[str], state: RobotState, stamp_s: float
    ) -> NDArray[np.float64]:
        """Axes [6] towards where the hand leads; zero while the anchor is being set."""
        here, config = state.tcp_in_base, self.config
        scale = config.scale * (config.slow_factor if "slow" in held else 1.0)
        if self._pressed_s is None:
            self._pressed_s = stamp_s
        since_s, passed_s = stamp_s - self._pressed_s, max(stamp_s - self._stamp_s, 0.0)
        self._stamp_s = stamp_s
        ready = since_s >= STAND_S and (_rests(state) or since_s >= GIVE_UP_S)
        if self._anchor is None or "clutch" in held:
            self._anchor = _Anchor(hand, here, scale, stamp_s) if ready else None
            return np.zeros(6)
        anchor = self._anchor
        target = anchor.target(hand)
        if self._absolute:
            step_s = passed_s * min((stamp_s - anchor.since_s) / SETTLE_S, 1.0)
            target = step_towards(target, hand, SETTLE_M_S * step_s, SETTLE_RAD_S * step_s)
        target = step_towards(here, target, config.leash_m, config.leash_rad)
        self._anchor = _Anchor(hand, target, scale, anchor.since_s)
        return np.asarray(self._action.action(target, here)[:6], np.float64)

    def _grip_word(self, reading: DeviceReading) -> frozenset[str]:
        """The word "close" or "open", for a moment after the trigger has *changed*."""
        value, now_s = reading.trigger, reading.stamp_s
        if value is None or self._anchor is None:
            return frozenset()
        before = self._grip_closed
        closed = value > (OPENED if before else CLOSED)
        self._grip_closed = closed
        if before is not None and closed != before:
            self._grip, self._grip_s = "close" if closed else "open", now_s
        return frozenset({self._grip} if self._grip and now_s - self._grip_s <= GRIP_S else ())


def _rests(state: RobotState) -> bool:
    linear, angular = state.tcp_twist_in_base[:3], state.tcp_twist_in_base[3:]
    return bool(np.linalg.norm(linear) < REST_M_S and np.linalg.norm(angular) < REST_RAD_S)


def hand_from(numbers: Sequence[float]) -> Pose:
    """x y z qx qy qz qw -> pose. Raises `ValueError` unless they are finite and a rotation."""
    values = np.asarray(numbers, np.float64)
    if values.shape != (7,) or not np.isfinite(values).all() or np.abs(values).max() > 100.0:
        raise ValueError("a hand is seven finite numbers: x y z in m, and a quaternion xyzw")
    if abs(float(np.linalg.norm(values[3:])) - 1.0) > 0.01:
        raise ValueError("the hand's quaternion is not of length 1")
    return pose(values[:3], values[3:])
