"""Parts that slide or turn in a fixture: drawers, lids, switches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from robot_rl.errors import ConfigError
from robot_rl.geometry import quat_from_rotvec, rotation_error
from robot_rl.ports import ResetPlan
from robot_rl.tasks import ReachTask
from robot_rl.tasks.common import Joint, Part, Primitive, upright
from robot_rl.types import Pose
from robot_rl_sim.robot import MujocoRobot

MASS_KG = 0.5
SLIDE = Joint("slide", mount="rail", low=0.0, high=0.1, axis=(0.0, 1.0, 0.0), damping=1.0)
HINGE = Joint(
    "hinge", mount="rail", low=-1.0, high=1.0, axis=(0.0, 0.0, 1.0), position_m=(0.1, 0.0, 0.0),
    damping=0.01,
)  # fmt: skip
CUBE = Primitive("box", (0.02, 0.02, 0.02))
PLACE = upright(np.array((0.5, 0.1, 0.05)), yaw_rad=0.4)


@dataclass(frozen=True, kw_only=True)
class Mechanism(ReachTask):
    """Reach, with something beside it that moves."""

    joint: Joint = SLIDE

    def parts(self) -> tuple[Part, ...]:
        moving = Part("cart", "jointed", (CUBE,), mass_kg=MASS_KG, joint=self.joint)
        return (moving, Part("rail", "fixture", (CUBE,)), *super().parts())

    def start(self, position: float = 0.0) -> ResetPlan:
        """The joint at `position`, on a rail that is not where it is drawn."""
        plan = super().sample_reset(np.random.default_rng(0))
        cart = self.joint.part_in_base(PLACE, position)
        return replace(plan, objects=plan.objects | {"rail": PLACE, "cart": cart})

    def sample_reset(self, rng: np.random.Generator) -> ResetPlan:
        return self.start()


class Rig:
    """A mechanism, and a force on its joint."""

    def __init__(self, joint: Joint, position: float = 0.0) -> None:
        self.task = Mechanism(joint=joint)
        self.robot = MujocoRobot(self.task)
        self.robot.reset(self.task.start(position))
        self._dof = int(self.robot.model.joint("cart_joint").dofadr[0])

    def push(self, force: float, seconds: float) -> float:
        """Where the joint stands after a force (N or Nm) has acted for so long."""
        self.robot.data.qfrc_applied[self._dof] = force
        self.robot.advance(seconds)
        return self.position()

    def position(self) -> float:
        """From the poses that the state knows."""
        objects = self.robot.read().objects
        return self.task.joint.position(objects["rail"], objects["cart"])


def together(one: Pose, other: Pose) -> bool:
    apart = (
        np.abs(one.position_m - other.position_m).max(),
        np.abs(rotation_error(one, other)).max(),
    )
    return max(apart) < 1e-6


@pytest.mark.parametrize("joint", [SLIDE, HINGE], ids=["slide", "hinge"])
@pytest.mark.parametrize("position", [0.0, 0.03, 0.1])
def test_the_state_says_where_a_part_is_and_a_start_puts_it_there(
    joint: Joint, position: float
) -> None:
    rig = Rig(joint, position)
    objects = rig.robot.read().objects
    assert together(objects["rail"], PLACE)
    assert together(objects["cart"], joint.part_in_base(PLACE, position))
    assert rig.position() == pytest.approx(position, abs=1e-9)
    rig.robot.place_objects(rig.task.start(0.05))
    assert rig.position() == pytest.approx(0.05, abs=1e-9)


def test_a_slide_obeys_newton_and_stops_at_its_ends() -> None:
    rig = Rig(replace(SLIDE, damping=0.0))
    assert rig.push(0.5, 0.2) == pytest.approx(0.5 * 0.5 / MASS_KG * 0.2**2, rel=0.05)
    assert rig.push(5.0, 2.0) == pytest.approx(0.1, abs=0.002)
    assert rig.push(-5.0, 2.0) == pytest.approx(0.0, abs=0.002)


def test_dry_friction_holds_and_a_catch_holds_more() -> None:
    rig = Rig(replace(SLIDE, friction=2.0, catch=6.0, catch_at=0.0, catch_width=0.004))
    assert rig.push(5.0, 0.5) < 0.001  # below 2 + 6 N
    assert rig.push(10.0, 0.3) > 0.01
    rig.robot.place_objects(rig.task.start(0.02))  # out of the catch
    assert rig.push(1.0, 0.3) == pytest.approx(0.02, abs=0.001)
    assert rig.push(5.0, 0.3) > 0.03


def test_a_spring_pulls_back() -> None:
    rig = Rig(replace(HINGE, spring=0.5, spring_at=0.2), position=0.9)
    assert rig.push(0.0, 3.0) == pytest.approx(0.2, abs=0.01)


def test_the_two_parts_of_a_joint_do_not_collide_with_each_other() -> None:
    rig = Rig(SLIDE)  # cart and rail fill the same space
    rig.push(0.0, 0.2)
    assert rig.position() == pytest.approx(0.0, abs=1e-4)


def test_a_snapshot_holds_the_mechanism_and_its_catch() -> None:
    rig = Rig(replace(SLIDE, friction=1.0, catch=3.0, catch_at=0.0, catch_width=0.01))
    rig.push(6.0, 0.113)
    kept = rig.robot.snapshot()
    first = [rig.push(6.0, 0.05) for _ in range(3)]
    rig.robot.restore(kept)
    assert [rig.push(6.0, 0.05) for _ in range(3)] == first


def test_a_hinge_is_where_its_fixture_is_turned() -> None:
    way = HINGE.part_in_base(PLACE, 0.5)
    assert together(way, Pose(way.position_m, quat_from_rotvec((0.0, 0.0, 0.9))))
    np.testing.assert_allclose(
        way.position_m - PLACE.position_m, (0.1 * np.cos(0.4), 0.1 * np.sin(0.4), 0.0), atol=1e-9
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"kind": "ball"}, "slide or hinge"),
        ({"axis": (1.0, 1.0, 0.0)}, "unit vector"),
        ({"low": 0.1}, "low < high"),
        ({"friction": -1.0}, "negative"),
        ({"kind": "hinge", "high": 4.0}, "at most pi"),
    ],
)
def test_a_joint_that_cannot_be_is_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        replace(SLIDE, **change)


def test_a_part_without_its_joint_or_its_fixture_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'rail'"):
        MujocoRobot(Mechanism(joint=replace(SLIDE, mount="rial")))

    @dataclass(frozen=True, kw_only=True)
    class Loose(ReachTask):
        def parts(self) -> tuple[Part, ...]:
            return (Part("cart", "jointed", (CUBE,)),)

    with pytest.raises(ConfigError, match="has no joint"):
        MujocoRobot(Loose())
