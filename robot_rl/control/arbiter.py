"""Who drives this tick, the policy or the person (hold-to-drive); each step records its driver.

The arbiter decides; it does not protect. Whatever it returns still passes the gate, which watches
the device's heartbeats on its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.control.takeover import (
    MOTION,
    ArbiterConfig,
    Phase,
    Signal,
    advance,
    blend,
    ramp_weight,
)
from robot_rl.errors import SafetyError
from robot_rl.ports import OperatorInput
from robot_rl.types import Driver, RobotState

__all__ = ["Arbiter", "ArbiterConfig", "Decision"]

Events = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is asked of the gate this tick.

    action: float32 [A] in [-1, 1]; segment: unbroken runs of one driver so far in this episode,
    from 0; weight: of the ramp (1 = full action); events: (name, detail), takeover | release;
    over: why the episode ends here, "" = it goes on; guided: the person pushes the arm itself, so
    the step's action is the motion that is measured.
    """

    driver: Driver
    action: NDArray[np.float32]
    segment: int
    weight: float
    events: Events
    over: str = ""
    guided: bool = False


class Arbiter:
    """Runs the intervention state machine of `takeover.TRANSITIONS`, one `decide` per tick.

    While the robot stands still between two drivers (TAKEOVER, RELEASE), the driver is the policy
    with a zero action: a step is driven by a person only in a tick in which the device is held.

    With `config.rac` an intervention follows RaC's two rules (arXiv 2509.07953): a person first
    leads the robot back to known ground (recovery), then completes what it failed at (correction).
    Letting go after the correction ends the episode, so that no later step comes from a state that
    two drivers brought about. Recovery is whatever the person drives first, until they let go
    once or stop rewinding; the robot stands still between recovery and correction. Deviation: when
    no recovery is needed, the person presses and lets go once to skip it.

    Args:
        config: debounce, ramp, hold time.
        action_size: A.
        device: name of the person's device, written into every event.
        motion: how many entries of an action are motion (`spec.action.motion`).
    """

    def __init__(
        self,
        config: ArbiterConfig,
        action_size: int,
        device: str = "operator",
        motion: int = MOTION,
    ) -> None:
        self.config, self.device, self._motion = config, device, motion
        self._still = np.zeros(action_size, np.float32)
        self.begin_episode()

    @property
    def phase(self) -> Phase:
        """Where a change of hands stands."""
        return self._phase

    def begin_episode(self) -> None:
        """Forget the last episode. A device that is still held may drive, unless it is silent."""
        self._phase = Phase.POLICY
        self._driver: Driver | None = None
        self._segment = self._held_samples = 0
        self._must_let_go = False
        self._let_go_s = -math.inf
        self._apart_s = -math.inf  # newest tick at which no person drove
        self._human_s = -math.inf  # newest tick at which a person drove
        self._kind = Driver.CORRECTION
        self._recovered = False  # RaC: the recovery is over
        self._over = ""

    def end_episode(self) -> Events:
        """End an intervention that is still open; return its release event, or ()."""
        driving = self._phase is Phase.HUMAN
        self._phase = Phase.POLICY
        return (self._event("release", "episode_end"),) if driving else ()

    def decide(
        self,
        policy_action: NDArray[np.float32],
        operator: OperatorInput,
        state: RobotState,
        now_s: float,
    ) -> Decision:
        """Choose driver and action for this tick.

        Args:
            policy_action: float32 [A], what the policy proposes.
            operator: newest reading of the device.
            state: newest robot state; its tool position goes into the takeover event.
            now_s: time of this tick on the run's clock.

        Raises:
            SafetyError: the device claims to drive as something that is not a person.
        """
        if operator.driving and not operator.driver.is_human:
            raise SafetyError(
                "a device can only drive as a person",
                expected="driver correction, recovery or demo",
                got=operator.driver.value,
                fix="set OperatorInput.driver in the device",
            )
        events = self._advance(operator, state, now_s)
        driver, action, weight = Driver.POLICY, self._still.copy(), 0.0
        if self._phase is Phase.HUMAN:
            weight = ramp_weight(now_s - self._apart_s, self.config.ramp_s)
            driver, action = self._kind, blend(operator.action, weight, self._motion)
            self._human_s = now_s
        else:
            self._apart_s = now_s
            if self._phase is Phase.POLICY:
                weight = ramp_weight(now_s - self._human_s, self.config.release_ramp_s)
                action = blend(policy_action, weight, self._motion)
        self._segment += self._driver is not None and driver is not self._driver
        self._driver = driver
        guided = operator.guided and self._phase is Phase.HUMAN
        return Decision(driver, action, self._segment, weight, events, self._over, guided)

    def _advance(self, operator: OperatorInput, state: RobotState, now_s: float) -> Events:
        """Turn the reading into signals; follow them as far as they lead in this tick."""
        silent = not abs(now_s - operator.stamp_s) <= self.config.input_timeout_s
        if silent and (self._phase is not Phase.POLICY or operator.driving):
            self._must_let_go = True  # a device that vanished while held must first be let go
        elif not silent and not operator.driving:
            self._must_let_go = False
        held = operator.driving and not self._must_let_go
        if not held:
            return self._let_go(silent, now_s)
        if self._phase is not Phase.HUMAN:
            return self._press(operator, state)
        self._kind = self._role(operator.driver)
        return ()

    def _role(self, said: Driver) -> Driver:
        """The driver that a person counts as: the device's word; in RaC, recovery comes first."""
        self._recovered |= said is Driver.RECOVERY
        first = self.config.rac and said is Driver.CORRECTION and not self._recovered
        return Driver.RECOVERY if first else said

    def _press(self, operator: OperatorInput, state: RobotState) -> Events:
        self._held_samples += 1
        self._phase = advance(self._phase, Signal.PRESS)
        from_the_start = self._driver is None and operator.driver is Driver.DEMO
        if not from_the_start and self._held_samples < self.config.debounce_samples:
            return ()
        self._phase = advance(self._phase, Signal.CONFIRM)
        self._kind = self._role(operator.driver)
        x, y, z = state.tcp_in_base.position_m
        return (self._event("takeover", f"pressed tcp_in_base_m={x:.4f},{y:.4f},{z:.4f}"),)

    def _let_go(self, silent: bool, now_s: float) -> Events:
        self._held_samples = 0
        events: Events = ()
        if self._phase is Phase.HUMAN:
            self._let_go_s = now_s
            if self.config.rac:
                self._recovered = True
                self._over = "rac: corrected" if self._kind is Driver.CORRECTION else ""
            events = (self._event("release", "device_silent" if silent else "let_go"),)
        self._phase = advance(self._phase, Signal.LET_GO)
        waits = self.config.rac and self._kind is Driver.RECOVERY  # for the correction
        if now_s - self._let_go_s >= self.config.hold_s and not waits:
            self._phase = advance(self._phase, Signal.ELAPSED)
        return events

    def _event(self, name: str, reason: str) -> tuple[str, str]:
        return name, f"device={self.device} driver={self._kind.value} reason={reason}"
