"""How driving changes hands: the phases as a transition table, debounce and ramp.

    policy -> takeover -> human -> release -> policy

Actions are deltas on the *measured* pose, so a zero action asks for the present pose: whoever takes
over starts from where the robot is, never from where the previous driver wanted it to go.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

MOTION = 6  # entries of an action of the TCP that are motion


class Phase(StrEnum):
    """Where a change of hands stands."""

    POLICY = "policy"  # the policy drives
    TAKEOVER = "takeover"  # the device is held, not yet confirmed: the robot stands still
    HUMAN = "human"  # the person drives
    RELEASE = "release"  # let go: the robot stands still until the hold time is over


class Signal(StrEnum):
    """What may change the phase."""

    PRESS = "press"  # the enabling device is held
    CONFIRM = "confirm"  # ... for enough samples
    LET_GO = "let_go"  # not held, silent, or the episode is over
    ELAPSED = "elapsed"  # the hold time after letting go is over


TRANSITIONS: dict[tuple[Phase, Signal], Phase] = {
    (Phase.POLICY, Signal.PRESS): Phase.TAKEOVER,
    (Phase.TAKEOVER, Signal.CONFIRM): Phase.HUMAN,
    (Phase.TAKEOVER, Signal.LET_GO): Phase.POLICY,  # a spurious start leaves no trace but a pause
    (Phase.HUMAN, Signal.LET_GO): Phase.RELEASE,
    (Phase.RELEASE, Signal.PRESS): Phase.TAKEOVER,
    (Phase.RELEASE, Signal.ELAPSED): Phase.POLICY,
}
"""Pairs that are absent change nothing."""


@dataclass(frozen=True, kw_only=True)
class ArbiterConfig:
    """How an intervention starts and ends.

    debounce_samples: ticks the device must be held before the person drives. The robot stands still
    from the first one, so debouncing never lets an unwanted motion go on; a demonstration that is
    driven from its first tick skips it (there is nobody to take over from).
    """

    debounce_samples: int = 1  # device drivers debounce at 50 Hz; a tick here is 100 ms already
    ramp_s: float = 0.15  # blend from standing still to the person's full action
    release_ramp_s: float = 0.0  # the same for the policy that drives again; see `GENTLE`
    hold_s: float = 0.0  # stand still after letting go (RLinf: 0.5, to re-grip the device)
    input_timeout_s: float = 0.1  # an older reading of the device counts as let go; as in the gate
    rac: bool = False  # recover, then correct, then the episode is over; see `Arbiter`

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        if self.debounce_samples < 1:
            raise ValueError(f"debounce_samples must be at least 1, got {self.debounce_samples}")
        for name in ("ramp_s", "release_ramp_s", "hold_s"):
            if not 0.0 <= getattr(self, name) <= 5.0:
                raise ValueError(f"{name} must lie in [0, 5], got {getattr(self, name)}")
        if not 0.0 < self.input_timeout_s <= 1.0:
            raise ValueError(f"input_timeout_s must lie in (0, 1], got {self.input_timeout_s}")


GENTLE = {"ramp_s": 0.25, "release_ramp_s": 0.25}
"""Ramps for people: even two drivers in opposite full motion stay below the gate's speed limit."""


def advance(phase: Phase, signal: Signal) -> Phase:
    """The phase after `signal`; unchanged where the table has no entry."""
    return TRANSITIONS.get((phase, signal), phase)


def ramp_weight(since_still_s: float, ramp_s: float) -> float:
    """Weight in [0, 1] of an action, `since_still_s` after the last tick of another driver."""
    return 1.0 if since_still_s >= ramp_s else max(since_still_s / ramp_s, 0.0)


def blend(action: NDArray[np.float32], weight: float, motion: int = MOTION) -> NDArray[np.float32]:
    """Clipped `action` [A] float32, the first `motion` entries scaled by `weight` (from zero).

    The gripper's entry, which comes after them, is a choice and is never blended.
    """
    out = np.clip(action, -1.0, 1.0).astype(np.float32)
    out[:motion] *= np.float32(weight)
    return out
