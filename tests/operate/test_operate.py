"""The scripted person: keeps off a policy that does well, helps one that is stuck or strays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from robot_rl.geometry import pose
from robot_rl.operate.scripted import NoOperator, ScriptedOperator, ScriptedOperatorConfig
from robot_rl.tasks import PegInsertTask
from robot_rl.types import Driver, RobotState

TASK = PegInsertTask()
CONFIG = ScriptedOperatorConfig(stuck_s=1.0, drive_s=0.5, corridor_m=0.03)


def states(path_m: list[tuple[float, float, float]]) -> list[RobotState]:
    """The tool at offsets from the plan's start, 0.1 s apart."""
    plan = dataclasses.replace(TASK, start_xy_m=0.0, start_yaw_rad=0.0).sample_reset(
        np.random.default_rng(0)
    )
    start = plan.tcp_in_base
    zero = np.zeros(6)
    return [
        RobotState(
            0.1 * k,
            np.zeros(7),
            np.zeros(7),
            pose(start.position_m + np.array(offset), start.quaternion_xyzw),
            zero,
            zero,
            0.008,
            plan.objects,
        )
        for k, offset in enumerate(path_m)
    ]


def driving(operator: ScriptedOperator, path: list[RobotState]) -> list[bool]:
    return [operator.poll(state).driving for state in path]


def test_progress_along_the_corridor_needs_no_help() -> None:
    operator = ScriptedOperator(CONFIG, TASK)
    operator.begin_episode(0, "train")
    assert not any(driving(operator, states([(0, 0, -0.002 * k) for k in range(24)])))


def test_a_policy_that_is_stuck_gets_a_short_correction() -> None:
    operator = ScriptedOperator(CONFIG, TASK)
    operator.begin_episode(0, "train")
    seen = driving(operator, states([(0, 0, -0.01)] * 40))
    first = seen.index(True)
    assert 10 <= first <= 12  # a second without progress
    assert seen[first : first + 5] == [True] * 5 and not seen[first + 5]
    assert sum(seen) <= 20  # lets go, waits, helps again


def test_leaving_the_corridor_is_corrected_at_once() -> None:
    operator = ScriptedOperator(CONFIG, TASK)
    operator.begin_episode(0, "train")
    seen = driving(operator, states([(0.0, 0, 0), (0.02, 0, 0), (0.035, 0, 0)]))
    assert seen == [False, False, True]


def test_demos_are_driven_throughout_and_evaluations_never() -> None:
    operator = ScriptedOperator(CONFIG, TASK)
    operator.begin_episode(0, "demo")
    reading = operator.poll(states([(0, 0, 0)])[0])
    assert reading.driving and reading.driver is Driver.DEMO
    operator.begin_episode(0, "eval")
    assert not any(driving(operator, states([(0.2, 0, 0)] * 30)))


def test_an_inattentive_person_misses_chances() -> None:
    path = states([(0, 0, -0.01)] * 200)
    busy = ScriptedOperator(dataclasses.replace(CONFIG, attention=0.1), TASK)
    keen = ScriptedOperator(CONFIG, TASK)
    for operator in (busy, keen):
        operator.begin_episode(1, "train")
    assert sum(driving(busy, path)) < sum(driving(keen, path)) / 2


def test_nobody_never_drives() -> None:
    operator = NoOperator(TASK)
    operator.begin_episode(0, "train")
    assert not operator.poll(states([(0.2, 0, 0)])[0]).driving


@pytest.mark.parametrize("bad", [{"skill": 1.5}, {"attention": -0.1}, {"stuck_s": 0.0}])
def test_nonsense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        ScriptedOperatorConfig(**bad)  # type: ignore[arg-type]
