"""What is drawn once per run: the same in all its episodes and replays, another in another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.config.registry import resolve
from robot_rl.config.run_folder import DRAWS
from robot_rl.errors import ConfigError
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import make_rig
from robot_rl.run.parts import session_of
from robot_rl.run.replay import replay
from robot_rl.run.scene import in_scene
from robot_rl.store.store import Store
from robot_rl.tasks.randomize import draw
from robot_rl_sim.envs import make_env
from robot_rl_sim.robot import MujocoRobot
from tests.run.test_replay_episode import Untrained
from tests.support.session import Lines

WORDS = ["experiment=reach", "runtime=lockstep", "train.demos=1", "task.max_steps=30"]
RANGES = "task.ranges={gains: [0.7, 1.3, run], friction: [0.5, 1.5]}"


def task_of(ranges: dict[str, Any], seed: int = 0, **fields: Any) -> Any:
    images = ["wrist", "front"]
    built: Any = resolve("task", {"name": "lift", "images": images, "ranges": ranges, **fields})
    return built.of_run(seed)


def drawn(task: Any, start: int = 0) -> dict[str, float]:
    plan = task.sample_reset(np.random.default_rng(start))
    return draw(task.drawn_ranges, plan, task.images)


# --- what is drawn --------------------------------------------------------------------------------


def test_it_holds_for_all_starts_of_a_run_and_not_for_another_run() -> None:
    ranges = {"gains": [0.7, 1.3, "run"], "friction": [0.5, 1.5], "armature": [0.5, 2, "episode"]}
    shown = [drawn(task_of(ranges, 7), start) for start in range(4)]
    assert len({one["gains"] for one in shown}) == 1 and 0.7 <= shown[0]["gains"] <= 1.3
    assert len({one["friction"] for one in shown}) == len({one["armature"] for one in shown}) == 4
    assert drawn(task_of(ranges, 7)) == shown[0]  # equal seeds, equal draws
    assert len({drawn(task_of(ranges, seed))["gains"] for seed in range(5)}) == 5


def test_it_changes_no_draw_of_an_episode() -> None:
    without, mixed = {"friction": [0.5, 1.5]}, {"friction": [0.5, 1.5], "gains": [0.7, 1.3, "run"]}
    assert drawn(task_of(mixed))["friction"] == drawn(task_of(without))["friction"]


def test_each_camera_is_mounted_in_its_own_way_once_per_run() -> None:
    task = task_of({"camera_place_m": [-0.02, 0.02, "run"]}, 3)
    one, other = drawn(task, 1), drawn(task, 2)
    assert one == other and len(set(one.values())) == len(one) == 6


def test_the_scope_alone_takes_the_range_of_the_preset() -> None:
    task = task_of({"gains": "run", "camera_focal": "run"}, 5, randomize="real")
    one, other = drawn(task, 1), drawn(task, 2)
    kept = {name for name in one if one[name] == other[name]}
    fixed = {n for n in one if n == "gains" or n.startswith("camera_focal")}
    assert kept == fixed and len(fixed) == 3
    assert 0.8 <= one["gains"] <= 1.2 and one["gains"] != 1.0
    assert one["camera_focal/wrist"] != one["camera_focal/front"]


def test_a_range_for_one_draw_counts_before_that_of_its_quantity() -> None:
    run = task_of({"camera_place_m": [-0.02, 0.02, "run"], "camera_place_m_x/wrist": [0.1, 0.2]})
    assert drawn(run, 1)["camera_place_m_x/wrist"] != drawn(run, 2)["camera_place_m_x/wrist"]
    one = task_of({"camera_place_m": [-0.02, 0.02], "camera_place_m_x/wrist": [0.1, 0.2, "run"]})
    first, second = drawn(one, 1), drawn(one, 2)
    assert [n for n in first if first[n] == second[n]] == ["camera_place_m_x/wrist"]


def test_colours_themselves_stay_and_not_only_how_far_they_go() -> None:
    def colours(scope: str, seed: int) -> list[Any]:
        task = task_of({"colour": [0.1, 0.1, scope]}, seed)
        robot, found = MujocoRobot(task), []
        for start in range(2):
            robot.reset(task.sample_reset(np.random.default_rng(start)))
            found.append(robot.model.mat_rgba.copy())
        return found

    once, anew, elsewhere = colours("run", 1), colours("episode", 1), colours("run", 2)
    assert np.array_equal(*once) and not np.array_equal(*anew)
    assert not np.array_equal(once[0], elsewhere[0])


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ({"gains": [0.8, 1.2, "rnu"]}, "did you mean 'run'"),
        ({"gains": "rnu"}, "did you mean 'run'"),
        ({"gains": "run"}, "no preset has a range"),
        ({"camera_place_m_x/wrist": "run"}, "no preset has a range"),
        ({"gains": [0.8, 1.2, "run", 1]}, "gains"),
        ({"gains": [0.8, 1.2, 1.0]}, "gains"),
        ({"gains": [1.2, 0.8, "run"]}, "low <= high"),
        ({"gaisn": [0.8, 1.2, "run"]}, "did you mean 'gains'"),
        ({"colour_pattern": [0.0, 2.0]}, "at most 1"),
        ({"gains_pattern": [0.0, 0.5]}, "did you mean"),
    ],
)
def test_what_makes_no_sense_is_refused(ranges: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        task_of(ranges)
    assert told in f"{error.value}"


# --- who sees it ----------------------------------------------------------------------------------


def record(experiment: Experiment, store: Path) -> None:
    """One demonstration and two episodes of practice."""
    experiment.run_dir.mkdir(parents=True, exist_ok=True)
    with Store(store, spec=experiment.task.spec, reserve_bytes=0) as opened:
        rig: Any = make_rig(experiment, Untrained(), record=opened.append)
        session = session_of(experiment, rig.loop, rig.reset, metrics=Lines(), store=opened)
        session.demos()
        for seed in (1, 2):
            session.episode("train", seed)


def gains_of(folder: Path) -> set[float]:
    lines = [json.loads(line) for line in (folder / DRAWS).read_text().splitlines()]
    assert len(lines) == len({line["friction"] for line in lines}) == 3
    return {line["gains"] for line in lines}


def test_a_run_keeps_one_draw_and_its_replay_is_exact(tmp_path: Path) -> None:
    found = set[float]()
    for seed in (3, 4):
        run = tmp_path / f"run-{seed}"
        experiment = Experiment.compose([*WORDS, RANGES, f"seed={seed}", f"run_dir={run}"])
        experiment.save()
        record(experiment, run / "store.sqlite")
        (gains,) = gains_of(run)
        found.add(gains)
        before = (run / DRAWS).read_bytes()
        for one in replay(run, every=True):
            assert one.as_recorded and one.off[0] == 0.0
            assert max(one.off) < 1e-3 and (one.outcomes_before["clipped"] or not any(one.off))
        assert (run / DRAWS).read_bytes() == before  # a replay is only read from
        # the scene matters: with another draw, the same actions lead elsewhere
        other = replay(run, numbers=[1], scene=[f"task.ranges={{gains: [{1.6 - gains}, 1.7]}}"])
        assert max(other[0].off) > 0.1
    assert len(found) == 2


def test_an_evaluation_meets_the_draw_of_the_run(tmp_path: Path) -> None:
    run = Experiment.compose([*WORDS, RANGES, "seed=3", f"run_dir={tmp_path / 'run'}"])
    plain = Experiment.compose([*WORDS, "seed=3", f"run_dir={tmp_path / 'plain'}"])
    task: Any = run.task
    asked: Any = in_scene(plain, [RANGES]).task
    assert asked.drawn_ranges == task.drawn_ranges != {}
    run.save()  # the configuration keeps what was asked for, not what was drawn
    again: Any = Experiment.load(run.run_dir)
    assert again.config["task"]["ranges"]["gains"] == [0.7, 1.3, "run"]
    assert again.task.drawn_ranges == task.drawn_ranges


def test_each_arm_of_a_run_has_its_own_and_the_learners_store_can_be_replayed(
    tmp_path: Path,
) -> None:
    home = tmp_path / "run"
    words = [*WORDS, RANGES, "actors=2", "train.demos=2", f"run_dir={home}"]
    experiment = Experiment.compose(words)
    experiment.save()
    for arm in experiment.arms:
        record(arm, home / "learner.sqlite")
    first, second = (gains_of(arm.run_dir) for arm in experiment.arms)
    assert len(first) == len(second) == 1 and first != second
    played = [one for arm in experiment.arms for one in replay(home, every=True, actor=arm.actor)]
    assert len(played) == 6
    for one in played:
        assert one.off[0] == 0.0 and max(one.off) < 1e-3, one.actor


def test_an_environment_of_gymnasium_is_told_its_run() -> None:
    def gains(run_seed: int) -> float:
        env: Any = make_env("reach", run_seed=run_seed, ranges={"gains": [0.7, 1.3, "run"]})
        found = env.unwrapped.task.drawn_ranges["gains"][0]
        env.close()
        return found

    assert gains(1) == gains(1) != gains(2)
