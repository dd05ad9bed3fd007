"""`robot-rl calibrate gripper`: the two ends of the fingers, in the unit of their driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robot_rl.calibrate.ends import Ends, at_rest, judged, short_of
from robot_rl.errors import ConfigError, SetupError
from robot_rl.run.at_the_arm import How, at_the_arm, keep_json
from robot_rl.types import Pose, RobotState

if TYPE_CHECKING:
    from robot_rl.ros.calibrating import Station
    from robot_rl.run.experiment import Experiment

GRIP_S = 6.0  # fingers are at their end within this time
GRIPS = 3
BEGUN_S = 0.5  # they have begun to move


def calibrate_gripper(experiment: Experiment, how: How) -> Ends:
    """Open and close some times; where the fingers come to rest are the ends.

    Raises:
        ConfigError: no gripper, or ends that cannot be right. SetupError, SafetyError: see
            `at_the_arm`.
    """
    gripper = experiment.driver.gripper
    if gripper.kind == "none":
        raise ConfigError(
            "this arm has no gripper",
            expected="driver.gripper.kind other than none",
            got="none",
            fix="name the gripper's driver in the profile (docs/robot.md)",
        )
    ends: dict[bool, list[float]] = {True: [], False: []}
    with at_the_arm(experiment, how) as arm:
        how.agree(
            f"the gripper opens and closes {GRIPS} times. Nothing between the fingers, hands off; "
            "Enter = go: "
        )
        arm.arm(how.agree)
        here = arm.tcp_in_base
        for number in range(2 * GRIPS):
            opening = number % 2 == 0
            value = _gripped(arm, here, experiment.robot.gripper.stroke_m if opening else 0.0,
                             gripper.opened_joints - gripper.closed_joints)  # fmt: skip
            ends[opening].append(value)
            how.tell(f"  {'open' if opening else 'closed'}: {round(value, 5) + 0.0:g}")
    found = judged(ends[True], ends[False], gripper)
    keep_json(experiment, "gripper", {
        "opened_joints": found.opened_joints, "closed_joints": found.closed_joints,
        "opened": ends[True], "closed": ends[False],
    })  # fmt: skip
    doubt = short_of(found, gripper)
    if doubt and how.agree(f"{doubt}. Was nothing between the fingers? [yes]: ").strip() not in (
        "", "y", "yes",
    ):  # fmt: skip
        raise ConfigError(
            "the ends are not those of the gripper",
            expected="fingers that close until they meet",
            got=doubt,
            fix="take away what is between them, then calibrate again; nothing was written",
        )
    return found


def _gripped(arm: Station, here: Pose, width_m: float, span: float) -> float:
    """Ask for a finger distance, and wait until the fingers rest. Raises `SetupError`."""
    readings: list[tuple[float, float]] = []
    begun_s = arm.clock.now_s()

    def read(_: RobotState) -> None:
        value, now_s = arm.finger_joints(), arm.clock.now_s()
        if value is not None and now_s - begun_s > BEGUN_S:
            readings.append((now_s, value))

    arm.on_state = read
    arm.follow(lambda _: (here, width_m), GRIP_S, lambda: at_rest(readings, span) is not None)
    arm.on_state = lambda _state: None
    found = at_rest(readings, span)
    if found is None:
        raise SetupError(
            "the fingers do not come to rest"
            if readings
            else "the fingers do not say where they are",
            expected=f"{', '.join(arm.finger_names)} at rest within {GRIP_S:.0f} s",
            got=f"{len(readings)} readings"
            + (f", the last {readings[-1][1]:.5g}" if readings else ""),
            fix="check driver.gripper.state_topic and joints; is the gripper activated?",
        )
    return found
