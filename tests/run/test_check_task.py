"""`robot-rl check --run`: every shipped task is fine; a broken one is named with its fix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from robot_rl.config.registry import REGISTRY, register
from robot_rl.errors import RobotRLError
from robot_rl.run.check_task import faults
from robot_rl.run.experiment import Experiment
from robot_rl.tasks.common import Part, Primitive
from robot_rl.tasks.reach import ReachTask

BALL = Primitive("sphere", (0.01,), material="goal", collides=False)


class Elsewhere(ReachTask):
    """Starts under the table."""

    def sample_reset(self, rng: np.random.Generator) -> Any:
        plan = super().sample_reset(rng)
        pose = replace(plan.tcp_in_base, position_m=np.array((0.5, 0.0, -0.2)))
        return replace(plan, tcp_in_base=pose)


class AtOnce(ReachTask):
    """Success from the start."""

    def success(self, state: Any) -> bool:
        return True


class Lost(ReachTask):
    """Lost from the start."""

    def failure(self, state: Any) -> bool:
        return True


class TooLong(ReachTask):
    """A state that is longer than its layout."""

    def own_state(self, state: Any) -> Any:
        return np.append(super().own_state(state), 0.0)


class Painted(ReachTask):
    """A material that no scene has."""

    def parts(self) -> tuple[Part, ...]:
        return (Part("target", "marker", (replace(BALL, material="gaol"),)),)


class Rolled(ReachTask):
    """A role that nobody plays."""

    def parts(self) -> tuple[Part, ...]:
        return (Part("target", "maker", (BALL,)),)


class Shaped(ReachTask):
    """A shape that nobody knows."""

    def parts(self) -> tuple[Part, ...]:
        return (Part("target", "marker", (replace(BALL, shape="ball"),)),)


class Unknown(ReachTask):
    """A start with an object that is not in the scene."""

    def sample_reset(self, rng: np.random.Generator) -> Any:
        plan = super().sample_reset(rng)
        return replace(plan, objects={**plan.objects, "cube": plan.objects["target"]})


class Nan(ReachTask):
    """Progress that divides by zero."""

    def progress(self, state: Any) -> Any:
        return replace(super().progress(state), remaining_m=float("nan"))


class Astray(ReachTask):
    """A goal that divides by zero."""

    def goal(self, state: Any) -> Any:
        return replace(super().goal(state), tolerance_m=float("inf"))


class Lazy(ReachTask):
    """An expert that does nothing."""

    def expert(self, skill: float) -> Any:
        expert = super().expert(skill)
        expert.act = lambda state: np.zeros(6, np.float32)  # type: ignore[method-assign]
        return expert


class Short(ReachTask):
    """An expert whose action is too short."""

    def expert(self, skill: float) -> Any:
        expert = super().expert(skill)
        expert.act = lambda state: np.zeros(3, np.float32)  # type: ignore[method-assign]
        return expert


class Crash(ReachTask):
    """A task whose code fails."""

    def success(self, state: Any) -> bool:
        return state.objects["tarhet"] is None


BROKEN = {
    Elsewhere: ("outside the workspace", "sample_reset"),
    AtOnce: ("is a success already", "stricter"),
    Lost: ("is a failure already", "stricter"),
    TooLong: ("not as long as its layout", "own_layout"),
    Painted: ("unknown material", "did you mean 'goal'"),
    Rolled: ("unknown role", "did you mean 'marker'"),
    Shaped: ("unknown shape", "sphere"),
    Unknown: ("not in the scene", "cube"),
    Nan: ("progress() is not finite", "division by zero"),
    Astray: ("goal() of the task is not finite", "division by zero"),
    Lazy: ("the expert solves 0 of 3", "truncated"),
    Short: ("no action of this task", "shape (3,)"),
    Crash: ("own code fails", "test_check_task.py"),
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda k: k.__name__)
def test_what_is_wrong_is_named_with_its_fix(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY["task"], "broken", None)  # type: ignore[arg-type]
    register("task", "broken")(dataclass(frozen=True, kw_only=True)(kind))
    config = dict(Experiment.compose(["experiment=reach"]).config) | {"task": {"name": "broken"}}
    _, wrong = faults(Experiment.from_dict(config))
    assert isinstance(wrong, RobotRLError)
    for words in BROKEN[kind]:
        assert words in str(wrong), str(wrong)


@pytest.mark.parametrize("task", ["reach", "lift", "peg_insert", "pick_insert", "taught_insert"])
@pytest.mark.parametrize("robot", ["fr3", "ur5e"])
def test_every_shipped_task_does_what_a_task_has_to(task: str, robot: str) -> None:
    fine, wrong = faults(Experiment.compose([f"experiment={task}", f"robot={robot}"]))
    assert wrong is None and len(fine) == 4
    assert fine[-1].startswith("expert: 3 of 3")


def test_a_described_success_that_its_scene_does_not_know_is_named() -> None:
    """A goal 10 mm above the bottom of the hole."""
    high = "task.goal_in_base.position_m=[0.5,0.0,0.055]"
    _, wrong = faults(Experiment.compose(["experiment=taught_insert", high]))
    assert "its scene says that it has not" in str(wrong) and "goal_in_base" in str(wrong)


def test_a_described_task_is_tried_on_an_empty_table_too() -> None:
    words = ["experiment=taught_insert", "~task.scene"]
    fine, wrong = faults(Experiment.compose(words))
    assert wrong is None and fine[0].startswith("scene: 0 parts")
    assert fine[-1].startswith("expert: 3 of 3")
    fine, wrong = faults(Experiment.compose([*words, "task.judge=person"]))
    assert wrong is None and "not tried, because judge is person" in fine[-1]
