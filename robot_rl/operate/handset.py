"""A hand on the robot: sticks and buttons at one moment -> `OperatorInput`, by the rules of safety.

One object serves every device that is held: gamepad, SpaceMouse, a joystick over ROS 2, the keys of
the console. A device only reports its state (`DeviceReading`); what that means is decided here:

    nothing heard, or too long ago    not driving; everything must be neutral again before it drives
    start, reconnect, new episode     not driving until all sticks rest and no button is held; rest
                                      before a new episode counts
    drive held                        the person drives: dead zone, expo, slow, clutch, gripper
    otherwise                         not driving, however far a stick is out
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robot_rl.errors import ConfigError, SpecError, did_you_mean
from robot_rl.operate.calibration import AXES, Rest
from robot_rl.ports import OperatorInput
from robot_rl.types import Driver, Pose

F64 = NDArray[np.float64]

HELD = frozenset({
    "drive", "slow", "clutch", "close", "open", "grip", "success", "failure", "redo", "rewind",
    "hold",
})  # fmt: skip
"""Meanings a button can have. grip: one button that closes and opens in turn."""

LABELS = ("success", "failure", "redo")
MOTION = len(AXES)
PRESSED = 0.5  # where a stick or key is beyond this, somebody holds it: it is not worn
LEFT_S = 2.0  # nobody is at a page that was silent for longer; a shorter silence is a fault
TICK_S = 1e-3  # a step that lasts exactly a control period would be seen by two ticks


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """What a device reports at one moment.

    stamp_s: when the device was heard, on the clock of whoever reads it; axes: [6] in [-1, 1] (what
    lies outside is clipped), linear then angular along x, y, z of the TCP frame, as in `AXES`;
    held: meanings of the buttons that are down, out of `HELD`. exact: the axes are the action
    itself and not the deflection of a stick, so they are not shaped. problem: why the device must
    not be driven with yet although nothing is held, for the person to read; "" = it may. hand: pose
    of a device that the tool follows, z up and x forward; trigger: of its gripper, 0 open to 1
    closed (both become axes and words in `following.Following`). turn_rad: what the axes call
    forward is turned by so much about the tool's own z, as seen from behind it; sticks are shaped
    before. heading_rad: the same heading about the vertical of base, where the tool's is not known
    yet (`remote.ConsoleSource` makes the one of the other). nudge: a press is one small step
    (`HandsetConfig.nudge_m`), however long it lasts.

    Raises:
        SpecError: not six finite numbers, or a meaning that does not exist.
    """

    stamp_s: float
    axes: ArrayLike
    held: frozenset[str] = frozenset()
    exact: bool = False
    problem: str = ""
    hand: Pose | None = None
    trigger: float | None = None
    turn_rad: float = 0.0
    heading_rad: float | None = None
    nudge: bool = False

    def __post_init__(self) -> None:
        """Refuse malformed readings: they also come from a browser."""
        try:
            axes, held = np.array(self.axes, np.float64), frozenset(self.held)
        except (TypeError, ValueError, OverflowError):
            axes, held = np.empty(0), frozenset()
        if axes.shape != (MOTION,) or not np.isfinite(axes).all():
            raise SpecError(
                "a reading has the wrong axes",
                expected=f"{MOTION} finite numbers: {', '.join(AXES)}",
                got=str(self.axes)[:120],
                fix="correct the axis map of the device",
            )
        for word in held - HELD:
            raise SpecError(
                f"'{word}' is not something a button can mean",
                expected=f"meanings out of: {', '.join(sorted(HELD))}",
                got=str(word)[:40],
                fix=did_you_mean(str(word), HELD),
            )
        object.__setattr__(self, "axes", np.clip(axes, -1.0, 1.0))
        object.__setattr__(self, "held", held)


@dataclass(frozen=True, kw_only=True)
class HandsetConfig:
    """How sticks and buttons drive the robot. Shares are of a stick's full way."""

    dead_zone: float = 0.1  # a stick that rests this far out does nothing; calibration can widen it
    expo: float = 0.3  # 0 = linear, 1 = cubic: fine near the centre, full speed at the end
    scale: tuple[float, float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    """Share of the task's step at full deflection, per axis; negative turns it, 0 locks it."""
    slow_factor: float = 0.3  # of the speed while `slow` is held
    neutral_s: float = 0.2  # all at rest for this long before anything may drive
    label_s: float = 0.2  # a tap on a label button lasts this long: the control loop looks at 10 Hz
    input_timeout_s: float = (
        0.1  # an older reading counts as let go; as in the arbiter and the gate
    )
    nudge_m: float = 0.0005  # of one small step, and how far it turns
    nudge_rad: float = 0.005
    latch: bool = False  # go on driving after the button is let go; press again to confirm
    latch_s: float = 10.0  # how long it goes on without confirmation

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        bounds = {"dead_zone": 0.5, "expo": 1.0, "neutral_s": 5.0, "label_s": 1.0}
        for name, high in bounds.items():
            if not 0.0 <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie in [0, {high}], got {getattr(self, name)}")
        limits = {"slow_factor": 1.0, "input_timeout_s": 0.5, "latch_s": 60.0}
        limits |= {"nudge_m": 0.01, "nudge_rad": 0.1}
        for name, high in limits.items():
            if not 0.0 < getattr(self, name) <= high:
                raise ValueError(f"{name} must lie in (0, {high}], got {getattr(self, name)}")
        if not all(abs(s) <= 1.0 for s in self.scale):
            raise ValueError(f"scale must lie in [-1, 1] per axis, got {self.scale}")


def turned(axes: ArrayLike, turn_rad: float) -> F64:
    """[6] axes of the tool, for axes whose forward is turned by an angle.

    turn_rad: from the tool's x axis to that forward, counter-clockwise seen from behind the tool,
    whose z axis points away and whose y axis is to the right.
    """
    moved = np.array(axes, np.float64)
    c, s = math.cos(turn_rad), math.sin(turn_rad)
    for first in (0, 3):
        ahead, right = moved[first], moved[first + 1]
        moved[first], moved[first + 1] = c * ahead + s * right, c * right - s * ahead
    return moved


class _Nudge:
    """One press, one step: the direction that was pressed, for one control period."""

    def __init__(self) -> None:
        self._way = np.zeros(3)
        self.let_go()

    def let_go(self) -> None:
        """Forget what was pressed, and the step that was under way."""
        self._pressed, self._until_s = False, -math.inf

    def way(self, deflection: F64, now_s: float, period_s: float) -> F64:
        """[3] the direction of the step that is under way; zeros when it is over."""
        before, self._pressed = self._pressed, bool(deflection.any())
        if self._pressed and not before:
            self._way, self._until_s = np.sign(deflection), now_s + period_s - TICK_S
        return self._way if now_s < self._until_s else np.zeros(3)


class Handset:
    """Turns readings into what the person does. Feed it at 50 Hz; it never waits.

    Attributes:
        problem: why it would not drive now, for the person to read; "" when it would.
        held: meanings of the buttons that are down (also those that nothing here acts on, such as
            `arm`, `hold` and `rewind`: they are the console's and the node's).
        ready: everything has been seen neutral: pressing `drive` drives.

    Args:
        action_size: A, 6 or 7 (with gripper).
        rest: where the sticks rest; see `calibration`.
        motion: how many entries are motion; where there is no arm, the first so many axes.
        unit: what a full action does: m, rad and s of a control period; None = no small steps.
        absent: what a person has to do while nobody is at the device, of one that cannot be missing
            (a page); "" = it is a device, which may be unplugged.

    Raises:
        ConfigError: the task's action is not one that six axes and a gripper button can give.
    """

    def __init__(
        self,
        config: HandsetConfig,
        action_size: int,
        rest: Rest | None = None,
        motion: int = MOTION,
        unit: tuple[float, float, float] | None = None,
        *,
        absent: str = "",
    ) -> None:
        if not 1 <= motion <= MOTION or action_size not in (motion, motion + 1):
            raise ConfigError(
                "a hand cannot drive this task",
                expected=f"at most {MOTION} action entries, or one more with a gripper",
                got=f"{action_size} entries",
                fix="use operator=scripted or operator=none",
            )
        self._motion = motion
        rest = rest or Rest()
        self.config = config
        self._centre = np.array(rest.centre)
        self._zone = np.maximum(config.dead_zone, rest.dead_zone)
        self._scale = np.array(config.scale)
        self._unit = unit
        self._absent = absent
        self._nudges = _Nudge(), _Nudge()  # small steps along, and about
        self._still = np.zeros(action_size, np.float32)
        self._stamp_s = 0.0
        self._neutral_since_s: float | None = None
        self.begin_episode(0, "train")

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Forget the last episode. In `eval` nobody drives.

        Everything must be seen neutral again, but a device that has been at rest until now need not
        wait: the person may press `drive` next. `seed` belongs to the port and is not used.
        """
        self._purpose = purpose
        self._gripper = 0.0  # last gripper command, -1 close, +1 open; 0 before any
        since_s = self._neutral_since_s
        self.lose("not seen at rest yet")
        self._neutral_since_s = since_s

    def lose(self, problem: str) -> OperatorInput:
        """Stop driving, because nothing is heard of the device, for the reason `problem`.

        The stamp stays that of the last reading, so that arbiter and gate see the silence.
        """
        self.problem, self.held, self.ready = problem, frozenset[str](), False
        self._before = frozenset[str]()
        self._neutral_since_s = None
        self._driven_s = -math.inf
        self._told_s: dict[str, float] = {}
        return OperatorInput(False, self._still, stamp_s=self._stamp_s)

    def feed(self, reading: DeviceReading | None, now_s: float) -> OperatorInput:
        """What the person does now.

        Args:
            reading: the newest one (the same one again is fine); None = the device is not there.
            now_s: on the clock of the reading's stamp.

        Returns:
            action float32 [A], zero unless driving; stamp_s: that of the newest reading.
        """
        if reading is None:
            return self.lose(
                self._absent or "nothing is heard of the device: plug it in, switch it on"
            )
        age_s = now_s - reading.stamp_s
        if not abs(age_s) <= self.config.input_timeout_s:
            silent = f"the device has said nothing for {age_s:.1f} s"
            return self.lose(self._absent if self._absent and age_s > LEFT_S else silent)
        deflection, out_of_rest = self._deflection(reading), self._rested
        pressed = out_of_rest and reading.held == {"drive"} and not deflection.any()
        self._stamp_s, self.held = reading.stamp_s, reading.held
        if reading.held or deflection.any():
            self._neutral_since_s = None
        elif self._neutral_since_s is None:
            self._neutral_since_s = reading.stamp_s
        if reading.problem:
            self.ready, self.problem, self._driven_s = False, reading.problem, -math.inf
            success, abort = self._labels(now_s)  # somebody may still say how it went
            return OperatorInput(
                False, self._still, success=success, abort=abort, stamp_s=self._stamp_s
            )
        if not self.ready:
            self.ready = pressed or self._rested
            self.problem = "" if self.ready else self._unrest(reading, deflection)
        if not self.ready:
            return OperatorInput(False, self._still, stamp_s=self._stamp_s)
        driving = self._drives(now_s)
        if not driving or not reading.nudge:
            for nudge in self._nudges:
                nudge.let_go()
        action = self._action(deflection, reading, now_s) if driving else self._still
        self._before = self.held
        success, abort = self._labels(now_s)
        driver = Driver.DEMO if self._purpose == "demo" else Driver.CORRECTION
        return OperatorInput(driving, action, driver, success, abort, self._stamp_s)

    def _deflection(self, reading: DeviceReading) -> F64:
        """Axes [6] after centre and dead zone: 0 at its edge, +-1 at the end of the way."""
        if reading.exact:
            return np.where(self._scale == 0.0, 0.0, np.asarray(reading.axes))
        off = np.asarray(reading.axes) - self._centre
        off /= 1.0 + np.abs(self._centre) * np.where(off * self._centre > 0.0, -1.0, 1.0)
        beyond = np.maximum(np.abs(off) - self._zone, 0.0) / (1.0 - self._zone)
        return np.where(self._scale == 0.0, 0.0, np.sign(off) * np.minimum(beyond, 1.0))

    @property
    def _rested(self) -> bool:
        """Whether everything had been neutral for `neutral_s` when the device was last heard."""
        since_s = self._neutral_since_s
        return since_s is not None and self._stamp_s - since_s >= self.config.neutral_s

    def _unrest(self, reading: DeviceReading, deflection: F64) -> str:
        """Which buttons and axes are not at rest, for the person to read."""
        culprits = [f"'{word}' is held" for word in sorted(reading.held)]
        for i in np.flatnonzero(deflection):
            value = float(np.asarray(reading.axes)[i])
            zone = f" (dead zone {self._zone[i]:.2f})" if abs(value) < PRESSED else ""
            culprits.append(f"{AXES[i]} is at {value:+.2f}{zone}")
        if culprits:
            return f"let go of everything: {', '.join(culprits)}"
        return "at rest; a moment more"

    def _drives(self, now_s: float) -> bool:
        """Whether `drive` is held (or latched); never in an evaluation, never with `hold`."""
        if "hold" in self.held or self._purpose == "eval":
            self._driven_s = -math.inf
            return False
        if "drive" in self.held:
            self._driven_s = now_s
            return True
        return self.config.latch and now_s - self._driven_s < self.config.latch_s

    def _action(self, deflection: F64, reading: DeviceReading, now_s: float) -> NDArray[np.float32]:
        """Action [A]: motion as shaped, gripper entry -1, 0 or +1."""
        expo = 0.0 if reading.exact else self.config.expo
        motion = (1.0 - expo) * deflection + expo * deflection**3
        if reading.nudge and self._unit is not None:
            motion = self._nudged(deflection, self._unit, now_s)
        if reading.turn_rad:
            motion = np.clip(turned(motion, reading.turn_rad), -1.0, 1.0)
        motion *= self._scale
        if "slow" in self.held:
            motion *= self.config.slow_factor
        if "clutch" in self.held:
            motion[:] = 0.0
        action = self._still.copy()
        action[: self._motion] = motion[: self._motion]
        action[self._motion :] = self._gripper_entry()
        return action

    def _nudged(self, deflection: F64, unit: tuple[float, float, float], now_s: float) -> F64:
        """[6] a small step along and one about what was pressed, for one control period each."""
        of_step = (self.config.nudge_m / unit[0], self.config.nudge_rad / unit[1])
        parts = [
            min(share, 1.0) * nudge.way(part, now_s, unit[2])
            for nudge, part, share in zip(
                self._nudges, (deflection[:3], deflection[3:]), of_step, strict=True
            )
        ]
        return np.concatenate(parts)

    def _gripper_entry(self) -> float:
        """-1 while closing is held, +1 while opening is; with both, the earlier one goes on."""
        wanted = self.held & {"close", "open", "grip"}
        if wanted == {"close"}:
            self._gripper = -1.0
        elif wanted == {"open"}:
            self._gripper = 1.0
        elif "grip" in wanted - self._before:
            self._gripper = 1.0 if self._gripper < 0.0 else -1.0  # first closes: drops nothing
        return self._gripper if wanted else 0.0

    def _labels(self, now_s: float) -> tuple[bool | None, bool]:
        """(success or None, abort): a label button counts for `label_s` after it was last down.

        Success and failure together say nothing: somebody is leaning on the pad.
        """
        self._told_s |= {word: now_s for word in LABELS if word in self.held}
        told = {w for w, told_s in self._told_s.items() if now_s - told_s <= self.config.label_s}
        verdict = told & {"success", "failure"}
        return ("success" in verdict if len(verdict) == 1 else None), "redo" in told
