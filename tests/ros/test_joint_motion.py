"""What is commanded of the joints between two targets: rest, brake, resume, and a blocked arm.

And which readings are taken for the arm's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from robot_rl.errors import ConfigError
from robot_rl.geometry import pose
from robot_rl.robots import Fr3, Ur5e
from robot_rl.robots.driver import JointDriver
from robot_rl.robots.ik import JointStep
from robot_rl.ros.joint_motion import (
    LOOKING,
    OLD_S,
    STEADY_S,
    TURN_RAD,
    Doing,
    JointMotion,
    Measured,
    Readings,
)
from robot_rl.types import Pose

DT_S = 0.01
SPEED = 0.5  # rad/s of the pretended solver
AWAY = pose((1.0, 0.0, 0.0))


class Straight:
    """Moves both joints at `SPEED`, brakes within five steps."""

    def forward(self, position_rad: Any, velocity_rad_s: Any) -> tuple[Pose, Any]:
        """Not used here."""
        raise NotImplementedError

    def step(self, position_rad: Any, velocity_rad_s: Any, target: Pose, dt_s: float) -> JointStep:
        """At `SPEED`."""
        speed = np.full(2, SPEED)
        return JointStep(position_rad + dt_s * speed, speed, 1.0, 0.0, "")

    def brake(self, position_rad: Any, velocity_rad_s: Any, dt_s: float) -> JointStep:
        """A fifth slower."""
        slower = np.maximum(velocity_rad_s - SPEED / 5, 0.0)
        return JointStep(position_rad + dt_s * slower, slower, 0.0, 0.0, "")


class Arm:
    """A motion, and measured joints that follow it unless they are blocked."""

    def __init__(self, **driver: Any) -> None:
        self.driver = JointDriver(kind="position", **driver)
        self.motion = JointMotion(Straight(), self.driver, np.full(2, 1.0))
        self.q = np.array((0.2, -0.2))
        self.blocked = False

    def tick(self, target: Pose | None, *, off: bool = False, age_s: float = 0.0) -> Any:
        """One tick."""
        measured = Measured(self.q.copy(), np.zeros(2), age_s)
        found = self.motion.tick(measured, target, DT_S, off=off)
        if found.position_rad is not None and not self.blocked:
            self.q = found.position_rad.copy()
        return found


def test_nothing_is_commanded_before_the_arm_is_known_or_while_it_is_off() -> None:
    arm = Arm()
    assert arm.motion.tick(None, AWAY, DT_S, off=False).position_rad is None
    assert arm.tick(AWAY, off=True).position_rad is None
    assert arm.tick(AWAY, age_s=1.0).position_rad is None
    assert arm.tick(AWAY).doing is Doing.FOLLOW


def test_the_first_command_begins_where_the_arm_is() -> None:
    arm = Arm()
    before = arm.q.copy()
    assert np.abs(arm.tick(AWAY).position_rad - before).max() == pytest.approx(SPEED * DT_S)


@pytest.mark.parametrize("why", ["no target", "old joints", "off"])
def test_without_a_target_it_brakes_comes_to_rest_and_stays(why: str) -> None:
    arm = Arm()
    for _ in range(20):
        arm.tick(AWAY)
    done = []
    for _ in range(10):
        target = None if why == "no target" else AWAY
        age_s = 2 * OLD_S if why == "old joints" else 0.0
        found = arm.tick(target, off=why == "off", age_s=age_s)
        done.append(found.doing)
        assert found.velocity_rad_s is None or (found.velocity_rad_s <= SPEED).all()
    assert done[:4] == [Doing.BRAKE] * 4
    assert done[-1] is (Doing.OFF if why == "off" else Doing.REST)


def test_after_it_was_off_it_goes_on_from_where_the_arm_is() -> None:
    arm = Arm()
    for _ in range(20):
        arm.tick(AWAY)
    for _ in range(10):
        arm.tick(AWAY, off=True)
    arm.q = np.array((1.5, 1.0))  # somebody has moved it
    before = arm.q.copy()
    assert np.abs(arm.tick(AWAY).position_rad - before).max() < 0.02


def test_after_a_pause_it_goes_on_from_where_it_was_commanded() -> None:
    """A servo that sags is not commanded to its sag at each pause: the arm would creep down."""
    arm = Arm()
    for _ in range(5):
        arm.tick(AWAY)
    arm.blocked = True
    for _ in range(10):
        arm.tick(None)
    stays = arm.tick(None)
    arm.q = stays.position_rad - 0.05
    assert np.abs(arm.tick(AWAY).position_rad - stays.position_rad).max() < 0.02


def test_a_blocked_arm_winds_up_no_further_than_allowed_and_does_not_jump() -> None:
    arm = Arm(ahead_rad=0.1)
    arm.tick(AWAY)
    arm.blocked = True
    before = arm.q.copy()
    for _ in range(500):
        arm.tick(AWAY)
    found = arm.tick(AWAY)
    assert np.abs(found.position_rad - before).max() <= 0.1 + SPEED * DT_S + 1e-9
    assert (found.velocity_rad_s <= 1.0).all()
    arm.blocked = False
    jump = arm.tick(AWAY).position_rad - found.position_rad
    assert np.abs(jump).max() <= 2 * SPEED * DT_S


UR = Ur5e()  # each joint has two turns, as a joint without an end has in our profiles
HERE = np.array(UR.home_rad)
AT_PI = np.where(np.arange(6) == 2, math.pi - 0.001, HERE)


class Told:
    """A driver's readings, one every 10 ms, and what is made of them."""

    def __init__(self, *, turns: bool = False, robot: Any = UR) -> None:
        self.readings = Readings(robot, turns=turns)
        self.now_s = 0.0

    def __call__(self, position_rad: Any, seconds: float = 0.0) -> Any:
        """The arm is told to be there once, or for so long."""
        found = None
        for _ in range(round(seconds / DT_S) or 1):
            self.now_s += DT_S
            found = self.readings.take(np.array(position_rad), self.now_s, self.now_s)
        return found

    @property
    def knows(self) -> bool:
        """Whether the joints are known."""
        return not self.readings.why


def test_joints_are_known_when_they_have_gone_on_for_a_while() -> None:
    told = Told()
    told(HERE, STEADY_S - DT_S)
    assert not told.knows and told.readings.why == LOOKING
    told(HERE, 2 * DT_S)
    assert told.knows


def test_an_arm_at_full_speed_does_not_jump() -> None:
    told = Told()
    told(HERE, 2 * STEADY_S)
    speed = np.array([joint.velocity_rad_s for joint in UR.joints])
    for i in range(50):
        assert told(HERE + i * DT_S * speed) is not None
    told.now_s += 0.5  # silence, while it came to rest
    assert told(HERE + 49 * DT_S * speed + 0.9 * OLD_S * speed) is not None and told.knows


def test_a_stranger_on_the_topic_makes_the_joints_unknown_until_he_is_gone() -> None:
    """joint_state_publisher says zero ten times a second, between what the driver says."""
    told = Told()
    told(HERE, 2 * STEADY_S)
    for _ in range(5):
        assert told(np.zeros(6)) is None
        assert not told.knows
        assert told(HERE, 0.09) is not None and not told.knows
    assert told.readings.why.startswith(
        "shoulder_lift_joint jumped from -1.57 to 0.00 rad, expected at most 0.08 rad: end whoever"
    )
    told(HERE, STEADY_S - 0.1)
    assert not told.knows
    told(HERE, 0.2)
    assert told.knows


def test_a_stranger_who_goes_on_alone_is_not_believed() -> None:
    """The driver has died, or says zero itself before it has heard of its arm."""
    told = Told()
    told(HERE, 2 * STEADY_S)
    told.now_s += 10.0
    assert told(np.zeros(6), 5 * STEADY_S) is None
    assert not told.knows
    told(HERE, 2 * STEADY_S)
    assert told.knows


def test_an_arm_that_others_have_moved_is_known_again() -> None:
    told = Told()
    told(HERE, 2 * STEADY_S)
    told.readings.forget()
    assert told(HERE + 0.5) is not None and not told.knows
    told(HERE + 0.5, 2 * STEADY_S)
    assert told.knows


def test_a_stranger_who_was_there_first_is_not_known_and_does_not_stay() -> None:
    told = Told()
    for _ in range(100):
        told(np.zeros(6))
        told(HERE, 0.05)
        assert not told.knows
    told(HERE, 2 * STEADY_S)
    assert told.knows


def test_a_joint_that_is_told_in_another_turn_is_counted_on_for_velocities() -> None:
    told = Told(turns=True)
    told(AT_PI, 2 * STEADY_S)
    over = AT_PI.copy()
    over[2] = -math.pi + 0.001
    for wrapped in (over, AT_PI, over, over):
        found = told(wrapped)
        assert np.abs(found - AT_PI).max() < 0.003 and told.knows
    target = AT_PI.copy()  # what the gate has latched before
    np.testing.assert_allclose(told.readings.in_turn(target), target)
    target[2] -= TURN_RAD
    np.testing.assert_allclose(told.readings.in_turn(target), AT_PI)


def test_a_joint_that_is_told_in_another_turn_is_not_known_for_positions() -> None:
    """No command is safe there: see `Readings`. Away from there it goes on in the new turn."""
    told = Told()
    told(AT_PI, 2 * STEADY_S)
    over = AT_PI.copy()
    over[2] = -math.pi + 0.001
    np.testing.assert_array_equal(told(over), over)  # the driver's own turn; the TCP is the same
    assert not told.knows and told.readings.turned
    assert "elbow_joint jumped from 3.14 to -3.14 rad, a whole turn" in told.readings.why
    assert "command velocities" in told.readings.why
    for _ in range(200):
        told(AT_PI)
        told(over)
    assert not told.knows
    told(over, 2 * STEADY_S)
    assert told.knows and not told.readings.turned


def test_a_joint_that_cannot_go_round_is_not_counted_on() -> None:
    arm = Fr3()
    q = np.array(arm.home_rad)
    told = Told(turns=True, robot=arm)
    told(q, 2 * STEADY_S)
    assert told(q - TURN_RAD * np.eye(7)[6]) is None and not told.knows
    target = q + np.eye(7)[6] * math.pi * 1.5
    np.testing.assert_array_equal(told.readings.in_turn(target), target)


def test_a_motion_that_was_forgotten_commands_nothing_before_the_joints_are_known() -> None:
    arm = Arm()
    for _ in range(20):
        arm.tick(AWAY)
    arm.motion.forget()
    assert arm.motion.tick(None, AWAY, DT_S, off=False).position_rad is None
    before = arm.q.copy()
    assert np.abs(arm.tick(AWAY).position_rad - before).max() == pytest.approx(SPEED * DT_S)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"kind": "torque"}, "none, position, velocity, trajectory"),
        ({"kind": "position", "rate_hz": 50.0}, r"rate_hz must lie in \[100, 1000\]"),
        ({"kind": "position", "names": ["a", "a"]}, "different from each other"),
        ({"kind": "position", "ahead_rad": 3.0}, "ahead_rad"),
        ({"kind": "position", "rate": 100.0}, "rate_hz"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_name(data: dict[str, Any], words: str) -> None:
    from robot_rl.config.registry import build

    with pytest.raises(ConfigError, match=words):
        build(JointDriver, data, "driver.joints")
