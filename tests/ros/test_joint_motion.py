"""What is commanded of the joints between two targets: rest, brake, resume, and a blocked arm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robot_rl.errors import ConfigError
from robot_rl.geometry import pose
from robot_rl.robots.driver import JointDriver
from robot_rl.robots.ik import JointStep
from robot_rl.ros.joint_motion import OLD_S, Doing, JointMotion, Measured
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
