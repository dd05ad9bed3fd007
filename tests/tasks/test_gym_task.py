"""Gymnasium environments as tasks: spaces, scaling, rows as a robot's, and errors with a fix."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from robot_rl.control.gym_ports import GymRig
from robot_rl.errors import ConfigError, RobotRLError, SetupError, SpecError
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import make_rig
from robot_rl.spec import BoxActionSpec, spec_from_dict
from robot_rl.store.store import Store
from robot_rl.tasks.gym import EnvState, GymTask
from robot_rl.types import Driver, Ending, EpisodeId, EpisodeStart, Frame, Row, Step
from tests.support.fakes import FakePolicy
from tests.support.gym import rig_of

IMAGE = spaces.Box(0, 255, (8, 9, 3), np.uint8)
SPACE = spaces.Dict(
    {
        "arm": spaces.Dict({"angle": spaces.Box(-4, 4, (2, 1), np.float64)}),
        "force": spaces.Box(-np.inf, np.inf, (3,), np.float32),
        "front": IMAGE,
    }
)
BOX = spaces.Box(np.array([[0.0, -2.0]]), np.array([[1.0, 2.0]]), dtype=np.float32)


NOTHING = spaces.Box(-1, 1, (0,), np.float32)
TWO_CAMERAS = spaces.Dict({"cam": IMAGE, "image": spaces.Dict({"cam": IMAGE})})
TWO_NUMBERS = spaces.Dict({"a/b": BOX, "a": spaces.Dict({"b": BOX})})


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps into every entry; remembers what it was sent; one buffer for all images."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(
        self,
        *,
        observation: spaces.Space[Any] = SPACE,
        action: spaces.Space[Any] = BOX,
        last: int = 1000,
        nan_at: int = -1,
        say: str = "",
        answer: Callable[..., Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.answer = answer
        self.observation_space, self.action_space, self.render_mode = (
            observation,
            action,
            render_mode,
        )
        self.last, self.nan_at, self.say, self.sent = last, nan_at, say, []
        self.picture = np.zeros(IMAGE.shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.sent = 0, []
        self.start = self.np_random.uniform()
        return self._observe(), {}

    def _observe(self) -> Any:
        self.picture[:] = self.count
        force = np.full(3, np.nan if self.count == self.nan_at else self.start, np.float32)
        angle = np.full((2, 1), self.count, np.float64)
        return {"arm": {"angle": angle}, "force": force, "front": self.picture}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.sent.append(action)
        done = self.count >= self.last
        if self.answer is not None:
            return self.answer(self._observe())
        return self._observe(), 0.5, done, False, {self.say: done} if self.say else {}

    def render(self) -> Any:
        return np.zeros((11, 13, 3), np.uint8)


def register(name: str, **kwargs: Any) -> str:
    """Register a variant of `Counter`; returns its id."""
    env_id = f"robot_rl_test/{name}-v0"
    gymnasium.register(env_id, Counter, max_episode_steps=5, kwargs=kwargs)
    return env_id


@pytest.fixture(autouse=True)
def _registry() -> Any:
    """Leave Gymnasium's registry as it was."""
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def run(task: GymTask, action: list[float] | None = None) -> tuple[Any, list[Row]]:
    """One episode with a constant action."""
    rows: list[Row] = []
    policy = FakePolicy(np.array(action or [0.0, 3.0], np.float32))
    bench = rig_of(task, policy, record=rows.extend)
    header = EpisodeStart(EpisodeId("r", "a", 0), "train", task.name, task.spec.hash, "x", 0, 0)
    bench.reset(task.sample_reset(np.random.default_rng(0)), header)
    return bench.loop.run_episode(header), rows


def test_numbers_become_one_state_and_images_stay_images() -> None:
    task = GymTask(env_id=register("Dict"))
    assert {k: (v.shape, v.dtype) for k, v in task.spec.observation.items()} == {
        "state": ((5,), "float32"),
        "image/front": ((8, 9, 3), "uint8"),
    }
    assert task.spec.state_layout == (("arm/angle", 2, ""), ("force", 3, ""))
    assert (task.spec.control_hz, task.max_steps) == (20.0, 5)
    assert spec_from_dict(task.spec.as_dict()) == task.spec
    observation = task.observe(EnvState.of(0.0, task.env.reset(seed=1)[0]))
    assert observation["state"].dtype == np.float32 and observation["state"][:2].tolist() == [0, 0]


def test_a_wrapper_of_an_environment_has_the_spec_of_its_base() -> None:
    base, wrapped = GymTask(env_id=register("Base")), register("Wrapped", say="is_success")
    same = GymTask(env_id=wrapped, base_id=base.env_id)
    assert same.spec == base.spec and same.spec.hash == base.spec.hash
    assert same.name == base.name == "robot_rl_test/Base-v0"
    assert GymTask(env_id=wrapped).spec.hash != base.spec.hash  # nobody says that they are the same
    other = GymTask(env_id=wrapped, base_id=base.env_id, control_hz=5.0)
    assert other.spec.hash != base.spec.hash


def test_a_bare_box_is_the_state() -> None:
    task = GymTask(env_id="Pendulum-v1")
    assert task.spec.state_layout == (("observation", 3, ""),)
    assert task.spec.action == BoxActionSpec((-2.0,), (2.0,))


def test_actions_are_scaled_to_the_bounds_and_the_executed_ones_are_recorded() -> None:
    task = GymTask(env_id=register("Scaled"))
    summary, rows = run(task, [0.0, 3.0])
    sent = task.env.unwrapped.sent[-1]  # type: ignore[attr-defined]
    assert sent.tolist() == [[0.5, 2.0]] and sent.dtype == np.float32
    steps = [row for row in rows if isinstance(row, Step)]
    assert all(step.action.tolist() == [0.0, 1.0] for step in steps)
    assert all(step.policy_action.tolist() == [0.0, 3.0] for step in steps)
    assert {step.driver for step in steps} == {Driver.POLICY}
    assert summary.driver_steps == {Driver.POLICY: 5}


def test_the_time_limit_truncates_with_the_true_last_frame() -> None:
    summary, rows = run(GymTask(env_id=register("Limit")))
    steps = [row for row in rows if isinstance(row, Step)]
    frames = [row for row in rows if isinstance(row, Frame)]
    assert [step.ending for step in steps] == [None] * 4 + [Ending.TRUNCATED]
    assert (summary.steps, summary.total_reward) == (5, 2.5)
    assert summary.duration_s == pytest.approx(0.25)
    assert [frame.observation["state"][0] for frame in frames] == [0, 1, 2, 3, 4, 5]
    assert [frame.observation["image/front"].max() for frame in frames] == [0, 1, 2, 3, 4, 5]
    assert steps[-1].next_frame == frames[-1].frame == 5
    stamps_s = [frame.stamp_ns * 1e-9 for frame in frames]
    assert stamps_s == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2, 0.25])


def test_the_end_of_the_task_beats_the_time_limit_in_the_same_step() -> None:
    summary, rows = run(GymTask(env_id=register("Last", last=5)))
    assert summary.ending is Ending.TERMINATED and isinstance(rows[-2], Step)


def test_rows_pass_the_store_and_equal_seeds_give_equal_starts(tmp_path: Path) -> None:
    task = GymTask(env_id=register("Stored"))
    first, again = run(task)[1], run(task)[1]
    with Store(tmp_path / "s.sqlite", spec=task.spec, reserve_bytes=0) as store:
        store.append(first)
        assert [episode.steps for episode in store.episode_summaries()] == [5]
    frames = [rows[1] for rows in (first, again)]
    assert all(isinstance(frame, Frame) for frame in frames)
    assert np.array_equal(frames[0].observation["state"], frames[1].observation["state"])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("say", "fields", "success"),
    [
        ("is_success", {}, True),
        ("succeed", {}, True),
        ("won", {"success_key": "won"}, True),
        ("", {"success_return": 2.0}, True),
        ("is_success", {"success_return": 3.0}, False),
        ("", {}, None),
    ],
)
def test_success_comes_from_info_or_the_return(
    say: str, fields: dict[str, Any], success: bool | None
) -> None:
    summary, rows = run(GymTask(env_id=register("Success", last=5, say=say), **fields))
    assert (summary.success, summary.success_known) == (bool(success), success is not None)
    assert isinstance(rows[-2], Step) and rows[-2].success is success


def test_a_success_key_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    task = GymTask(env_id=register("Key", say="solved"), success_key="solve")
    with pytest.raises(ConfigError, match="did you mean 'solved'"):
        run(task)


def test_nan_never_reaches_the_store_or_the_environment() -> None:
    with pytest.raises(SpecError, match="'state' holds NaN"):
        run(GymTask(env_id=register("Nan", nan_at=2)))
    with pytest.raises(SpecError, match="action is not finite"):
        run(GymTask(env_id=register("NanAction")), [0.0, float("nan")])


def explode(_observation: Any) -> Any:
    raise RuntimeError("sim exploded in step")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (explode, "Form-v0' raised RuntimeError: sim exploded in step"),
        (lambda seen: (seen, 0.5, False, {}), "Form-v0' raised ValueError"),  # Gymnasium's own
        (lambda seen: (seen, 0.5, False, False, None), "info"),
        (
            lambda seen: (seen, None, False, False, {}),
            "the reward of 'robot_rl_test/Form-v0' is None",
        ),
        (lambda seen: (seen, np.zeros(2), False, False, {}), "is [0. 0.]"),
        (lambda seen: (seen, float("nan"), False, False, {}), "is nan"),
        (lambda seen: (seen, -np.inf, False, False, {}), "is -inf"),
        (lambda seen: (seen, 2e9, False, False, {}), "at most 1e+09 either way"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*reward:UserWarning")  # Gymnasium's own check
def test_an_environment_that_answers_wrongly_is_one_clear_error(
    answer: Callable[..., Any], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        run(GymTask(env_id=register("Form", answer=answer)))
    assert message in str(caught.value)
    assert "the same command with the same run_dir goes on" in caught.value.fix


@pytest.mark.parametrize("reset", [explode, lambda _: None, lambda _: (1, 2, 3)])
def test_an_environment_that_cannot_begin_is_one_clear_error(
    reset: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counter, "reset", lambda self, **_: reset(self))
    with pytest.raises(SpecError, match=r"Begin-v0"):
        run(GymTask(env_id=register("Begin")))


def test_a_number_that_is_no_float32_is_called_too_large() -> None:
    task = GymTask(env_id=register("Large"))
    seen, _ = task.env.reset(seed=0)
    seen["arm"]["angle"][0] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SpecError, match=r"'arm/angle' .* too large for float32"):
            task.observe(EnvState.of(0.0, seen))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"action": spaces.Discrete(3)}, "expected: a Box of floats"),
        ({"action": spaces.Box(-np.inf, np.inf, (2,))}, "expected: finite bounds"),
        ({"observation": spaces.Box(0, 1, (8, 8, 3), np.float32)}, "uint8 [H, W, C]"),
        ({"observation": spaces.Box(0, 255, (3, 8, 8), np.uint8)}, "channels last"),
        ({"observation": spaces.Dict({"on": spaces.Discrete(2)})}, "got:      on Discrete(2)"),
        ({"observation": TWO_CAMERAS}, "['cam'] and ['image']['cam'], both 'image/cam'"),
        ({"observation": TWO_NUMBERS}, "['a']['b'] and ['a/b'], both 'a/b'"),
        ({"observation": spaces.Dict({"none": NOTHING})}, "none of shape [0]"),
        ({"action": NOTHING}, "expected: an entry at least"),
    ],
)
def test_a_space_that_is_not_supported_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _ = GymTask(env_id=register("Space", **kwargs)).spec
    assert message in str(caught.value)
    assert "docs/gym.md" in caught.value.fix


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.env_id=Pendulm-v1"], "did you mean 'Pendulum-v1'"),
        (["task.env_id=os:Pendulum-v1"], "unknown environment"),
        (["task.env_kwargs.gravitas=1"], "gravitas"),
        (["train.demos=5"], "got:      operator=none train.demos=5"),
        (["operator=scripted"], '@register("expert", "Pendulum-v1")'),
        (["operator=joy"], "operator=joy"),
        (["runtime=ros"], "runtime=ros"),
        (["task.control_hz=0"], "control_hz must be positive"),
        (["task.max_steps=0"], "max_steps must be at least 1"),
        (["task.max_steps=-3"], "max_steps must be at least 1"),
        (["task.max_step=5"], "did you mean 'max_steps'"),
    ],
)
def test_a_wrong_setting_ends_before_training(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Experiment.compose(["experiment=gym", *words]).check()
    assert message in str(caught.value)


def test_an_environment_without_a_time_limit_needs_one() -> None:
    gymnasium.register("robot_rl_test/Endless-v0", Counter)
    words = ["experiment=gym", "task.env_id=robot_rl_test/Endless-v0"]
    with pytest.raises(ConfigError, match=r"set task\.max_steps"):
        Experiment.compose(words).check()
    experiment = Experiment.compose([*words, "task.max_steps=7"])
    experiment.check()
    assert experiment.resolved()["task"]["max_steps"] == 7
    assert run(experiment.task)[0].steps == 7  # type: ignore[arg-type]


def test_a_package_is_imported_when_the_person_names_it_and_not_when_a_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import gymnasium\ngymnasium.register('robot_rl_test/Plug-v0', 'x:y')\n"
    (tmp_path / "robot_rl_test_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="ROBOT_RL_PLUGINS"):
        GymTask(env_id="robot_rl_test/Plug-v0", max_steps=9)
    assert "robot_rl_test_plugin" not in sys.modules
    monkeypatch.setenv("ROBOT_RL_PLUGINS", "robot_rl_test_plugin")
    assert GymTask(env_id="robot_rl_test/Plug-v0", max_steps=9).name == "robot_rl_test/Plug-v0"


def test_pictures_need_a_render_mode_and_come_in_even_sizes() -> None:
    policy = FakePolicy(np.zeros(2, np.float32))

    def bench(**kwargs: Any) -> GymRig:
        env_id = register("Picture")
        return rig_of(GymTask(env_id=env_id, env_kwargs=kwargs), policy, record=list)

    with pytest.raises(SetupError, match="render_mode=rgb_array"):
        bench().camera(480, 640)
    filmed = bench(render_mode="rgb_array")
    filmed.env.reset(0)
    assert filmed.camera(480, 640).render_video_frame().shape == (10, 12, 3)


def test_an_arm_loop_refuses_actions_that_are_not_poses() -> None:
    with pytest.raises(SpecError, match="do not move an arm"):
        _ = GymTask().spec.pose_action


def test_lockstep_picks_the_loop_by_the_task() -> None:
    policy = FakePolicy(np.zeros(1, np.float32))
    assert isinstance(make_rig(Experiment.compose(["experiment=gym"]), policy, record=list), GymRig)


@pytest.mark.parametrize(("operator", "paced"), [("none", False), ("environment", True)])
def test_only_a_person_needs_the_wall_clock_and_nobody_a_ramp(operator: str, paced: bool) -> None:
    env_id = register("Paced")
    words = [
        "experiment=gym",
        f"task.env_id={env_id}",
        "task.control_hz=50",
        f"operator={operator}",
    ]
    experiment = Experiment.compose(words)
    experiment.check()
    assert experiment.arbiter.ramp_s == 0.0  # zero is the middle of a Box, not standing still
    header = EpisodeStart(EpisodeId("r", "a", 0), "train", env_id, experiment.spec.hash, "", 0, 0)
    slept: list[float] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("robot_rl.control.gym_ports.time.sleep", slept.append)
        rig = make_rig(experiment, FakePolicy(np.zeros(2, np.float32)), record=list)
        rig.reset(0, header)  # type: ignore[arg-type]
        rig.loop.run_episode(header)
    assert bool(slept) == paced


def test_stopping_aborts() -> None:
    task = GymTask(env_id=register("Stop"))
    rows: list[Row] = []
    policy = FakePolicy(np.zeros(2, np.float32))
    bench = rig_of(task, policy, record=rows.extend, stopping=lambda: "operator")
    bench.env.reset(0)
    header = EpisodeStart(EpisodeId("r", "a", 0), "train", task.name, task.spec.hash, "", 0, 0)
    summary = bench.loop.run_episode(header)
    assert (summary.ending, summary.reason, summary.steps) == (Ending.ABORTED, "operator", 1)


def test_a_missing_package_is_named() -> None:
    gymnasium.register(
        "robot_rl_test/Missing-v0", "robot_rl_no_such_package:Env", max_episode_steps=3
    )
    with pytest.raises(RobotRLError, match="robot_rl_no_such_package"):
        _ = GymTask(env_id="robot_rl_test/Missing-v0").env
