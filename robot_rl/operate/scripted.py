"""A scripted person: watches, takes over when the policy is stuck or strays, lets go again.

It sees only what a person sees (the robot and the objects, not the policy's numbers), notices late,
and drives with a hand of configurable skill. HIL-SERL's advice to operators is built in: short
corrections that put the robot back on track rather than long ones that finish the task (Luo et al.,
"Precise and Dexterous Robotic Manipulation via Human-in-the-Loop RL", arXiv 2410.21845).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robot_rl.config.registry import register
from robot_rl.errors import ConfigError
from robot_rl.operate.rewind import Rewind
from robot_rl.ports import InputDevice, OperatorInput, Task
from robot_rl.spec import BoxActionSpec
from robot_rl.types import HELPED, Driver, RobotState


@register("operator", "none")
@dataclass(frozen=True, kw_only=True)
class NoOperatorConfig:
    """Nobody is there: the policy is on its own (no demonstrations either)."""

    def open(self, task: Task, node: object) -> InputDevice:
        """See `devices.OperatorConfig`."""
        return NoOperator(task)


@register("operator", "environment")
@dataclass(frozen=True, kw_only=True)
class EnvironmentOperatorConfig(NoOperatorConfig):
    """The person drives through the environment itself, which says so (`control.gym_ports`)."""


@register("operator", "scripted")
@dataclass(frozen=True, kw_only=True)
class ScriptedOperatorConfig:
    """How the scripted person behaves. `intervene=False` leaves only the demonstrations."""

    intervene: bool = True
    skill: float = 1.0  # of the hand that drives; 1 = the task's expert at its best
    attention: float = 1.0  # probability of acting on an opportunity; else looks away for stuck_s
    corridor_m: float = 0.045  # strays further than this: take over (starts lie up to 0.03 m off)
    stuck_s: float = 2.5  # no progress for this long: take over (HIL-SERL: let it try 20-30 steps)
    stuck_m: float = 0.001  # what counts as progress
    recover_s: float = 0.0  # first leads the arm back the way it came for this long (RaC)
    drive_s: float = 1.0  # then let go: long corrections finish the task and teach waiting for help

    def __post_init__(self) -> None:
        """Check ranges."""
        for name in ("skill", "attention"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if min(self.corridor_m, self.stuck_s, self.stuck_m, self.drive_s) <= 0:
            raise ValueError("corridor_m, stuck_s, stuck_m and drive_s must be positive")
        if self.recover_s < 0:
            raise ValueError(f"recover_s must not be negative, got {self.recover_s}")

    def open(self, task: Task, node: object) -> InputDevice:
        """See `devices.OperatorConfig`."""
        return ScriptedOperator(self, task)


class NoOperator:
    """`InputDevice` that is never touched."""

    def __init__(self, task: Task) -> None:
        self._still = np.zeros(task.spec.hand.size, np.float32)

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Nothing to forget."""

    def poll(self, state: RobotState) -> OperatorInput:
        """Hands off: nobody drives."""
        return OperatorInput(False, self._still, stamp_s=state.stamp_s)


class ScriptedOperator:
    """`InputDevice` driven by the task's scripted expert; see the module docstring."""

    def __init__(self, config: ScriptedOperatorConfig, task: Task) -> None:
        self.config, self.task = config, task
        self._expert = task.expert(config.skill)
        hand = task.spec.hand
        self._rewind = None if isinstance(hand, BoxActionSpec) else Rewind(hand)
        if self._rewind is None and config.recover_s > 0:
            raise ConfigError(
                f"'{task.name}' has no arm that could be led back the way it came",
                expected="operator.recover_s=0",
                got=f"operator.recover_s={config.recover_s:g}",
                fix="leave operator.recover_s out",
            )
        self._still = np.zeros(hand.size, np.float32)
        self.begin_episode(0, "train")

    def begin_episode(self, seed: int, purpose: str) -> None:
        """Forget the last episode; draw this one's imperfections from `seed`."""
        self._rng = np.random.default_rng((seed, 0x0BE2A702))
        self._purpose, self._driving_since_s = purpose, -1.0
        self._best_m, self._progress_s = np.inf, -1.0
        self._expert.reset(self._rng)
        if self._rewind:
            self._rewind.begin_episode()

    def poll(self, state: RobotState) -> OperatorInput:
        """Drive throughout a demo; watch, take over, let go; keep off in evaluation."""
        if self._purpose == "demo":
            return self._drive(state, Driver.DEMO)
        if self._purpose not in HELPED or not self.config.intervene:
            return OperatorInput(False, self._still, stamp_s=state.stamp_s)
        if self._driving_since_s >= 0:
            since_s = state.stamp_s - self._driving_since_s
            if since_s < self.config.recover_s + self.config.drive_s:
                return self._help(state, since_s)
            self._driving_since_s = -1.0
            self._best_m, self._progress_s = np.inf, state.stamp_s
        elif self._wants_to_drive(state):
            self._driving_since_s = state.stamp_s
            self._expert.reset(self._rng)
            return self._help(state, 0.0)
        if self._rewind:
            self._rewind.follow(state)
        return OperatorInput(False, self._still, stamp_s=state.stamp_s)

    def _help(self, state: RobotState, since_s: float) -> OperatorInput:
        """For `recover_s` lead the arm back the way it came, then drive forward."""
        if self._rewind and since_s < self.config.recover_s:
            action = self._rewind.back(state)
            return OperatorInput(True, action, Driver.RECOVERY, stamp_s=state.stamp_s)
        return self._drive(state, Driver.CORRECTION)

    def _drive(self, state: RobotState, driver: Driver) -> OperatorInput:
        return OperatorInput(True, self._expert.act(state), driver, stamp_s=state.stamp_s)

    def _wants_to_drive(self, state: RobotState) -> bool:
        """Whether the policy is stuck or out of the corridor, and the scripted person notices."""
        progress = self.task.progress(state)
        if self._progress_s < 0 or progress.remaining_m < self._best_m - self.config.stuck_m:
            self._best_m, self._progress_s = progress.remaining_m, state.stamp_s
        stuck = state.stamp_s - self._progress_s > self.config.stuck_s
        if not stuck and progress.deviation_m <= self.config.corridor_m:
            return False
        if self._rng.random() <= self.config.attention:
            return True
        self._best_m, self._progress_s = np.inf, state.stamp_s  # looked away: look again later
        return False
