"""People help in a Gymnasium environment: by a script, or through the environment itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from robot_rl.config.registry import REGISTRY, register
from robot_rl.control.gym_ports import BY_ENVIRONMENT
from robot_rl.control.summary import EpisodeSummary
from robot_rl.errors import ConfigError, SpecError
from robot_rl.operate.handset import DeviceReading, HandsetConfig
from robot_rl.operate.held import hand_on
from robot_rl.operate.scripted import ScriptedOperator, ScriptedOperatorConfig
from robot_rl.ports import InputDevice
from robot_rl.store.store import Store
from robot_rl.tasks.gym import EnvState, GymTask
from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart, Event, RobotState, Row, Step
from tests.support.fakes import FakePolicy
from tests.support.gym import Point, register_point, rig_of

AWAY = np.array([-1.0, -1.0], np.float32)
"""What a policy does that never solves the task: away from the goal, to the border."""


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """Leave Gymnasium's registry and the experts as they were."""
    before, experts = dict(gymnasium.registry), dict(REGISTRY.get("expert", {}))
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
    REGISTRY["expert"] = experts


def play(
    task: GymTask,
    purpose: str = "train",
    operator: InputDevice | None = None,
    action: Any = AWAY,
) -> tuple[EpisodeSummary, list[Row]]:
    """One episode with a policy that always does the same."""
    rows: list[Row] = []
    rig = rig_of(task, FakePolicy(np.array(action)), record=rows.extend, operator=operator)
    header = EpisodeStart(EpisodeId("r", "a", 0), purpose, task.name, task.spec.hash, "", 3, 0)
    rig.reset(5, header)
    return rig.loop.run_episode(header), rows


def scripted(task: GymTask, **fields: Any) -> ScriptedOperator:
    """The scripted person at an environment."""
    return ScriptedOperator(ScriptedOperatorConfig(**fields), task)  # type: ignore[arg-type]


def steps_of(rows: list[Row]) -> list[Step]:
    return [row for row in rows if isinstance(row, Step)]


def events_of(rows: list[Row]) -> list[tuple[int, str]]:
    return [(row.step, row.name) for row in rows if isinstance(row, Event)]


def test_the_expert_demonstrates_and_its_action_is_the_recorded_one() -> None:
    task = GymTask(env_id=register_point())
    summary, rows = play(task, "demo", scripted(task))
    steps = steps_of(rows)
    assert summary.success and summary.ending is Ending.TERMINATED
    assert {step.driver for step in steps} == {Driver.DEMO}
    assert steps[0].action.tolist() == [1.0, 1.0] and steps[0].policy_action.tolist() == [-1, -1]
    sent = task.env.unwrapped.sent  # type: ignore[attr-defined]
    assert np.allclose([step.action * 10.0 for step in steps], sent, atol=1e-5)


def test_the_script_takes_over_where_the_policy_is_stuck_and_lets_go_again() -> None:
    task = GymTask(env_id=register_point())
    _, rows = play(task, "train", scripted(task, stuck_s=0.55, drive_s=0.25))
    steps = steps_of(rows)
    drivers = [step.driver for step in steps[:12]]
    help_, alone = Driver.CORRECTION, Driver.POLICY
    assert drivers == [alone] * 6 + [help_] * 3 + [alone] * 3
    assert [step.segment for step in steps[:12]] == [0] * 6 + [1] * 3 + [2] * 3
    assert events_of(rows)[:2] == [(6, "takeover"), (9, "release")]


def test_a_script_that_tells_no_progress_helps_after_a_while() -> None:
    @register("expert", "mute")
    @dataclass(frozen=True)
    class Mute:
        def __call__(self, env: Any) -> list[float]:
            return [0.0, 0.0]

    task = GymTask(env_id=register_point(), expert_name="mute")
    _, rows = play(task, "train", scripted(task, stuck_s=0.55, drive_s=0.25))
    assert [step.driver for step in steps_of(rows)].index(Driver.CORRECTION) == 6


def test_nobody_helps_in_an_evaluation_and_inattention_helps_less() -> None:
    task = GymTask(env_id=register_point())
    alone, _ = play(task, "eval", scripted(task, stuck_s=0.2))
    away, _ = play(task, "train", scripted(task, stuck_s=0.2, attention=0.0))
    assert alone.human_steps == 0 and away.human_steps == 0


def test_less_skill_trembles() -> None:
    task = GymTask(env_id=register_point())
    task.env.reset(seed=0)
    actions = [task.expert(skill).act(EnvState.of(0.0, None)) for skill in (1.0, 0.0)]
    assert actions[0].tolist() == [1.0, 1.0] and actions[1].tolist() != [1.0, 1.0]
    with pytest.raises(ConfigError, match="no arm that could be led back"):
        scripted(task, recover_s=1.0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: 1 / 0, "raised ZeroDivisionError"),
        (lambda: [float("nan"), 0.0], "is no action of"),
        (lambda: [1.0, 2.0, 3.0], "finite numbers of shape [2]"),
        (lambda: "left", "got:      left"),
        (lambda: None, "got:      None"),
    ],
    ids=["raises", "nan", "shape", "text", "nothing"],
)
def test_a_wrong_expert_is_one_clear_error(answer: Callable[[], Any], message: str) -> None:
    @register("expert", "wrong")
    @dataclass(frozen=True)
    class Wrong:
        def __call__(self, env: Any) -> Any:
            return answer()

    task = GymTask(env_id=register_point(), expert_name="wrong")
    with pytest.raises(SpecError) as caught:
        play(task, "demo", scripted(task))
    assert message in str(caught.value)


def test_an_expert_outside_of_the_bounds_is_clipped_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @register("expert", "far")
    @dataclass(frozen=True)
    class Far:
        def __call__(self, env: Any) -> list[float]:
            return [99.0, -5.0]

    task = GymTask(env_id=register_point(), expert_name="far")
    with caplog.at_level(logging.WARNING):
        _, rows = play(task, "demo", scripted(task))
    assert steps_of(rows)[0].action.tolist() == [1.0, -0.5]
    assert [record.message for record in caplog.records if "clipped" in record.message] == [
        f"the expert Far leaves the bounds of {task.env_id}; it is clipped"
    ]


def by_hand(step: int) -> list[float] | None:
    """A person who drives in steps 3 to 5 and 8."""
    return [10.0, 5.0] if step in (3, 4, 5, 8) else None


@pytest.mark.parametrize("keys", ["hil_serl", "gym_hil"])
@pytest.mark.parametrize("purpose", ["train", "demo"])
def test_a_person_in_the_environment_is_recorded_as_one(
    tmp_path: Path, keys: str, purpose: str
) -> None:
    task = GymTask(env_id=register_point(person=by_hand, keys=keys))
    summary, rows = play(task, purpose)
    steps = steps_of(rows)
    person = Driver.DEMO if purpose == "demo" else Driver.CORRECTION
    drivers = [step.driver for step in steps]
    assert [i for i, driver in enumerate(drivers) if driver is person] == [3, 4, 5, 8]
    assert [step.action.tolist() for step in steps[2:4]] == [[-1.0, -1.0], [1.0, 0.5]]
    assert all(step.policy_action.tolist() == [-1.0, -1.0] for step in steps)
    assert [step.segment for step in steps[:10]] == [0, 0, 0, 1, 1, 1, 2, 2, 3, 4]
    assert steps[3].reason == BY_ENVIRONMENT
    assert events_of(rows) == [(3, "takeover"), (6, "release"), (8, "takeover"), (9, "release")]
    assert (summary.human_steps, summary.takeovers) == (4, 2)
    with Store(tmp_path / "s.sqlite", spec=task.spec, reserve_bytes=0) as store:
        store.append(rows)
        assert [episode.human_steps for episode in store.episode_summaries()] == [4]


def test_the_gripper_entry_is_one_of_three_whoever_drives() -> None:
    def person(step: int) -> list[float] | None:
        return [10.0, 0.0, 0.1] if step == 2 else None

    task = GymTask(env_id=register_point(person=person, grip=True), gripper=True)
    _, rows = play(task, action=np.array([0.5, 0.0, 0.0], np.float32))
    assert [step.action.tolist() for step in steps_of(rows)[1:4]] == [
        [0.5, 0.0, 0.0],
        [1.0, 0.0, -1.0],
        [0.5, 0.0, 0.0],
    ]
    sent = [action[2] for action in task.env.unwrapped.sent[1:4]]  # type: ignore[attr-defined]
    assert sent == pytest.approx([1.0, 0.1, 1.0])
    _, rows = play(task, "demo", scripted(task))
    assert {float(step.action[2]) for step in steps_of(rows)} == {1.0, -1.0}


def test_a_person_who_drives_at_the_end_has_let_go() -> None:
    task = GymTask(env_id=register_point(person=lambda step: [0.0, 0.0]))
    summary, rows = play(task)
    assert events_of(rows) == [(0, "takeover"), (30, "release")]
    assert summary.human_steps == summary.steps == 30


def test_the_plan_of_a_policy_is_dropped_while_a_person_drives() -> None:
    dropped: list[int] = []

    class Planner(FakePolicy):
        def interrupt(self) -> None:
            dropped.append(1)

    task = GymTask(env_id=register_point(person=by_hand))
    rig = rig_of(task, Planner(AWAY), record=list)
    header = EpisodeStart(EpisodeId("r", "a", 0), "train", task.name, task.spec.hash, "", 3, 0)
    rig.reset(5, header)
    rig.loop.run_episode(header)
    assert len(dropped) == 4


def test_an_intervention_without_an_action_or_with_a_wrong_one_is_refused() -> None:
    class Silent(Point):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"is_intervention": True}

    gymnasium.register("robot_rl_test/Silent-v0", Silent, max_episode_steps=9)
    with pytest.raises(SpecError, match="a person intervened, and not how"):
        play(GymTask(env_id="robot_rl_test/Silent-v0"))
    with pytest.raises(SpecError, match="the person's action in info is no action"):
        play(GymTask(env_id=register_point(person=lambda _: [1.0, 2.0, 3.0])))


class Pad:
    """A device at rest in its first reading; from the third on it is held, and its stick is out."""

    readings = 0

    def read(self, state: RobotState | None) -> DeviceReading:
        self.readings += 1
        held = frozenset({"drive", "open"} if self.readings > 2 else ())
        return DeviceReading(time.monotonic(), [1.0 if held else 0.0, *[0.0] * 5], held)


@pytest.mark.parametrize("grip", [False, True])
def test_a_device_in_a_hand_drives_with_its_first_axes(grip: bool) -> None:
    task = GymTask(env_id=register_point(grip=grip), gripper=grip)
    device = hand_on(task, HandsetConfig(neutral_s=0.0), Pad(), "pad")  # type: ignore[arg-type]
    _, rows = play(task, "train", device, np.full(2 + grip, -1.0, np.float32))
    steps = steps_of(rows)
    assert [step.driver for step in steps[:4]] == [Driver.POLICY] * 2 + [Driver.CORRECTION] * 2
    assert steps[2].action.tolist() == [1.0, 0.0, *[1.0] * grip]


def test_an_action_of_more_entries_than_a_device_has_axes_is_refused() -> None:
    class Wide(Point):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (8,), np.float32)

    gymnasium.register("robot_rl_test/Wide-v0", Wide, max_episode_steps=9)
    task = GymTask(env_id="robot_rl_test/Wide-v0")
    with pytest.raises(ConfigError, match="a hand cannot drive this task"):
        hand_on(task, HandsetConfig(), Pad(), "pad")  # type: ignore[arg-type]


@pytest.mark.parametrize(("purpose", "least_s"), [("train", 0.28), ("demo", 0.28), ("eval", 0.0)])
def test_where_a_person_may_drive_time_passes_as_on_the_wall(purpose: str, least_s: float) -> None:
    task = GymTask(env_id=register_point(), control_hz=100.0)
    slept: list[float] = []
    header = EpisodeStart(EpisodeId("r", "a", 0), purpose, task.name, task.spec.hash, "", 3, 0)
    with pytest.MonkeyPatch.context() as patched:
        sleep = time.sleep
        patched.setattr(time, "sleep", lambda s: (slept.append(s), sleep(s)))
        rig = rig_of(task, FakePolicy(AWAY), record=list, paced=True)
        rig.reset(5, header)
        began_s = time.monotonic()
        assert rig.loop.run_episode(header).steps == 30
    assert time.monotonic() - began_s >= least_s
    assert bool(slept) == bool(least_s)
