"""End points of a gripper, in the unit of its driver, and whether they can be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robot_rl.errors import ConfigError
from robot_rl.robots.driver import GripperDriver

REST_S = 0.4  # fingers that have not moved for so long have arrived, or are stopped
REST_SHARE = 0.004  # of the whole way
LEAST_SHARE = 0.2  # of the way that was configured: less is no opening and closing
SHORT_SHARE = 0.1  # of the way: so much short of the end that is configured needs a look


@dataclass(frozen=True, slots=True)
class Ends:
    """Sum of the finger joints, in the driver's unit, with the fingers open and closed."""

    opened_joints: float
    closed_joints: float


def at_rest(readings: Sequence[tuple[float, float]], span: float) -> float | None:
    """The value at which readings (stamp_s, value) have rested for `REST_S`; None = they move."""
    if not readings or readings[-1][0] - readings[0][0] < REST_S:
        return None
    last = [v for s, v in readings if s >= readings[-1][0] - REST_S]
    return float(np.median(last)) if np.ptp(last) <= REST_SHARE * abs(span) else None


def judged(opened: Sequence[float], closed: Sequence[float], configured: GripperDriver) -> Ends:
    """The ends from several openings and closings.

    Raises:
        ConfigError: the fingers did not move, move the other way round, or do not come to the
            same end each time.
    """
    was = configured.opened_joints - configured.closed_joints
    ends = Ends(float(np.median(opened)), float(np.median(closed)))
    span = ends.opened_joints - ends.closed_joints
    if abs(span) < LEAST_SHARE * abs(was):
        raise ConfigError(
            "the fingers have hardly moved",
            expected=f"a way of about {abs(was):g} (driver.gripper.opened_joints, closed_joints)",
            got=f"{ends.opened_joints:.4g} open, {ends.closed_joints:.4g} closed",
            fix="is the gripper switched on and activated, is driver.gripper.kind its own, do "
            "driver.gripper.joints name its finger joints?",
        )
    if span * was < 0.0:
        raise ConfigError(
            "the fingers move the other way round",
            expected="open fingers when the gate asks for the whole stroke",
            got=f"{ends.opened_joints:.4g} when opened, {ends.closed_joints:.4g} when closed, "
            f"where the profile says {configured.opened_joints:g} and {configured.closed_joints:g}",
            fix="look at the fingers: if they closed when they should open, swap "
            "driver.gripper.opened and closed; if not, swap opened_joints and closed_joints",
        )
    for name, values in (("open", opened), ("closed", closed)):
        if np.ptp(values) > SHORT_SHARE * abs(span):
            raise ConfigError(
                f"the fingers do not come to one {name} end",
                expected=f"the same value each time, within {SHORT_SHARE:.0%} of the way",
                got=", ".join(f"{v:.4g}" for v in values),
                fix="take away what is between the fingers, let them move freely, try again",
            )
    return ends


def short_of(ends: Ends, configured: GripperDriver) -> str:
    """What a person must confirm: an end far from the configured one; "" = nothing."""
    span = abs(configured.opened_joints - configured.closed_joints)
    said = []
    for name in ("opened", "closed"):
        measured = getattr(ends, f"{name}_joints")
        said_before = getattr(configured, f"{name}_joints")
        if abs(measured - said_before) > SHORT_SHARE * span:
            said.append(f"{name} at {measured:.4g} where the profile says {said_before:g}")
    return "; ".join(said)
