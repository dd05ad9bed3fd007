"""The whole lockstep path on `reach`: learns, ends with files people want, repeats, resumes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robot_rl.config.run_folder import run_name
from robot_rl.errors import ConfigError
from robot_rl.report.report import write_report
from robot_rl.run import budget
from robot_rl.run.evaluate import evaluate
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import make_rig
from robot_rl.run.parts import forget, policy_of
from robot_rl.run.raised import is_own_run
from robot_rl.run.replay import replay
from robot_rl.run.train import train
from robot_rl.safety.limits import COLLISION, JOINTS
from robot_rl.spec import JointActionSpec
from robot_rl.store.store import Store

SMALL = [
    "experiment=reach",
    "algo.hidden=[64,64]",
    "algo.batch_size=64",
    "train.demos=3",
    "train.max_env_steps=150",
    "train.eval_episodes=3",
    "train.stochastic_eval_episodes=2",
    "train.video=false",
]


def run(folder: Path, *extra: str, watch: object = None) -> dict[str, object]:
    experiment = Experiment.compose([*SMALL, *extra, f"run_dir={folder}"])
    return train(experiment, watch or (lambda _stats: None))  # type: ignore[arg-type]


def episodes(folder: Path) -> list[tuple[int, str, int]]:
    with Store(folder / "store.sqlite") as store:
        return [(e.id.episode, e.purpose, e.steps) for e in store.episode_summaries()]


def test_a_run_leaves_everything_behind_and_the_same_seed_repeats_it(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a"), run(tmp_path / "b")
    assert episodes(tmp_path / "a") == episodes(tmp_path / "b")
    assert first["deterministic"] == second["deterministic"]
    for name in ("config.yaml", "limits.yaml", "metrics.jsonl", "learner.jsonl", "eval.json"):
        assert (tmp_path / "a" / name).is_file(), name
    again = evaluate(tmp_path / "a", episodes=3, video=False)
    assert again["deterministic"] == first["deterministic"]  # the saved policy is the judged one


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    seen = []

    def interrupt(stats: dict[str, object]) -> None:
        seen.append(stats.get("state"))
        if seen.count("practice") == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "c", watch=interrupt)
    before = episodes(tmp_path / "c")
    (tmp_path / "c").rename(tmp_path / "a better name")
    folder = tmp_path / "a better name"
    run(folder)
    after = episodes(folder)
    assert after[: len(before)] == before
    assert [number for number, _, _ in after] == list(range(len(after)))
    assert sum(purpose == "demo" for _, purpose, _ in after) == 3
    assert json.loads((folder / "eval.json").read_text())["env_steps"] >= 150
    assert [one.episode for one in replay(folder, numbers=[0])] == [0]


def test_a_run_that_has_used_up_its_budget_takes_more_of_it_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "d"
    run(folder)
    before, first = episodes(folder), json.loads((folder / "run.json").read_text())
    with pytest.raises(ConfigError, match=r"(?s)another experiment.*algo\.gamma: 0\.95 -> 0\.9"):
        run(folder, "train.max_env_steps=250", "algo.gamma=0.9")
    assert json.loads((folder / "run.json").read_text()) == first

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ("write_yaml", "replace_json"):  # between the files, and before the first of them
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(budget, place, killed)
            run(folder, "train.max_env_steps=250")
        assert Experiment.load(folder).train.max_env_steps == 150
    run(folder, "train.max_env_steps=250", "train.max_minutes=90")
    after, record = episodes(folder), json.loads((folder / "run.json").read_text())
    assert after[: len(before)] == before and sum(p == "demo" for _, p, _ in after) == 3
    assert json.loads((folder / "eval.json").read_text())["env_steps"] >= 250
    assert Experiment.load(folder).train.max_minutes == 90.0 and is_own_run(folder)
    assert [old["max_env_steps"] for old in record["budgets"]] == [150]
    assert record["created"] == first["created"] and "next_hash" not in record
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("max_speed_m_s: 0.25", "max_speed_m_s: 0.5"))
    with pytest.raises(ConfigError, match="another experiment"):
        run(folder, "train.max_env_steps=400", "train.max_minutes=90")


def test_cloning_tells_how_far_it_is_and_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["algo=bc", "train.max_env_steps=0", "learner.pretrain_updates=400"]
    whole = run(tmp_path / "whole", *words)
    seen: list[str] = []

    def watch(stats: dict[str, Any]) -> None:
        if str(stats.get("state")).startswith("learning"):
            seen.append(stats["state"])
            if stats["progress"] == 0.5 and len(seen) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "f", *words, watch=watch)
    again = run(tmp_path / "f", *words, watch=watch)
    assert seen == [f"learning, {n} of {of} updates" for of in (400, 200) for n in (100, 200)]
    assert again["deterministic"] == whole["deterministic"]
    lines = (tmp_path / "f" / "learner.jsonl").read_text().splitlines()
    told = [json.loads(line).get("learner/updates") for line in lines]
    assert [updates for updates in told if updates] == [200, 400]


def test_cloning_from_nothing_is_refused_and_not_evaluated(tmp_path: Path) -> None:
    words = ["algo=bc", "train.demos=0", "train.max_env_steps=0", "learner.pretrain_updates=20"]
    with pytest.raises(ConfigError, match="nothing to learn from in 20 updates"):
        run(tmp_path / "e", *words)
    assert not (tmp_path / "e" / "eval.json").exists()


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "/", "a\0b", "a" * 300, None, 7, ["a"]])
def test_a_run_from_elsewhere_cannot_have_any_name(tmp_path: Path, name: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"run": name}))
    with pytest.raises(ConfigError, match="a name that no folder has") as caught:
        run_name(tmp_path)
    assert caught.value.expected and caught.value.fix


def test_a_run_of_joint_actions_is_learned_saved_and_judged_like_any_other(tmp_path: Path) -> None:
    first = run(tmp_path / "joints", "task.action=joint", "robot=ur5e")
    again = evaluate(tmp_path / "joints", episodes=3, video=False)
    assert again["deterministic"] == first["deterministic"]
    config = yaml.safe_load((tmp_path / "joints" / "config.yaml").read_text())
    assert config["safety"]["joint_arm"] == "ur5e" and config["task"]["action"] == "joint"
    with Store(tmp_path / "joints" / "store.sqlite") as store:
        spec = store.spec
        assert spec is not None and isinstance(spec.action, JointActionSpec)


def test_a_run_from_before_the_collision_check_is_evaluated_under_its_own_limits(
    tmp_path: Path,
) -> None:
    first, folder = run(tmp_path / "old", "robot=ur5e"), tmp_path / "old"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    limits = {k: v for k, v in config["safety"].items() if k not in COLLISION}
    text = yaml.safe_dump(config | {"safety": limits}, sort_keys=False)
    (folder / "config.yaml").write_text(text)
    record = json.loads((folder / "run.json").read_text())
    record["config_hash"] = digest(config | {"safety": limits})
    (folder / "run.json").write_text(json.dumps(record))

    loaded = Experiment.load(folder)
    assert loaded.limits.collision_arm == ""
    stated = dataclasses.asdict(loaded.limits)
    assert loaded.limits.hash == digest(
        {k: v for k, v in stated.items() if k not in {*COLLISION, *JOINTS}}
    )
    assert Experiment.compose(["robot=ur5e"]).limits.collision_arm == "ur5e"
    again = evaluate(folder, episodes=3, video=False)
    assert again["deterministic"] == first["deterministic"]
    assert write_report(folder).is_file()


def digest(values: dict[str, Any]) -> str:
    """Hash of an experiment or of limits, as every version has made it."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_period_that_is_no_multiple_of_the_physics_step_ends() -> None:
    """At 15 Hz the last 0.7 ms of a period are shorter than a step; waiting for them hung."""
    experiment = Experiment.compose(["experiment=reach", "task.control_hz=15", "operator=none"])
    rig: Any = make_rig(experiment, policy_of(experiment), record=forget)
    clock = rig.loop.clock
    began_s = clock.now_s()
    for tick in range(1, 16):
        clock.sleep_until_s(began_s + tick / 15)
    assert clock.now_s() == pytest.approx(began_s + 1.0, abs=0.002)


def test_a_described_task_runs_from_demonstrations_to_evaluation(tmp_path: Path) -> None:
    """Without one object in its observation, and saved as it was composed."""
    folder = tmp_path / "taught"
    words = ["experiment=taught_insert", "robot=ur5e", *SMALL[1:], f"run_dir={folder}"]
    words += ["train.demos=1", "train.max_env_steps=60", "learner.min_steps=20"]
    result: Any = train(Experiment.compose(words), lambda _stats: None)
    assert result["deterministic"]["episodes"] == 3
    with Store(folder / "store.sqlite") as store:
        demos = [e for e in store.episode_summaries() if e.purpose == "demo"]
        assert [e.success for e in demos] == [True]
        last = store.frames(demos[0].id)[-1].observation["state"]
    loaded: Any = Experiment.load(folder).task
    assert loaded.tcp_position_m(last) == pytest.approx((0.5, 0.0, 0.045), abs=0.002)


# --- cameras that a person has calibrated ---------------------------------------------------------

SEES = ["experiment=lift", "task.images=[wrist,front]", "task.image_size=48", "operator=none"]
CALIBRATED = [
    *("cameras.wrist.mount=hand", "cameras.wrist.pose=[0.09,0.01,-0.08,-0.15,-0.17,0.687,0.69]"),
    *("cameras.wrist.k=[700,700,319.5,239.5]", "cameras.wrist.k_size=[640,480]"),
    *("cameras.front.mount=beside", "cameras.front.pose=[0.9,0.1,0.4,0.62,0.61,-0.35,-0.34]"),
]


@pytest.mark.gl
@pytest.mark.parametrize("sim", ["mujoco", "physx"])
def test_a_calibrated_camera_is_where_the_double_and_the_sheet_of_draws_have_it(sim: str) -> None:
    if sim == "physx":
        pytest.importorskip("ovphysx", reason="PhysX is not installed: .ci/physx")
    from robot_rl_sim.camera import MujocoCamera, place_cameras
    from robot_rl_sim.robot import MujocoRobot

    experiment = Experiment.compose([*SEES, *CALIBRATED, f"sim={sim}"])
    rig: Any = make_rig(experiment, policy_of(experiment), record=forget)
    task: Any = experiment.task
    plan = task.sample_reset(np.random.default_rng(1))
    beside = MujocoRobot(task, experiment.robot)
    place_cameras(beside.model, experiment.cameras, experiment.robot)
    for robot in (rig.robot, beside):
        robot.reset(plan)
    assert rig.calibrated == {"wrist", "front"}
    for camera in rig.loop.cameras:
        other = MujocoCamera(beside, camera.name, (48, 48))
        drawn, expected = (one.read()[1].astype(int) for one in (camera, other))
        assert np.abs(drawn - expected)[1:].max() <= 1, camera.name  # row 0 tells the time
        assert camera.fovy_rad == other.fovy_rad
        other.close()
        camera.close()


@pytest.mark.gl
def test_a_randomised_pose_is_an_offset_from_the_calibrated_one() -> None:
    from robot_rl_sim.camera import place_cameras
    from robot_rl_sim.robot import MujocoRobot

    moved = "task.ranges={camera_place_m_x/wrist: [0.01, 0.01]}"
    experiment = Experiment.compose([*SEES, *CALIBRATED, moved])
    rig: Any = make_rig(experiment, policy_of(experiment), record=forget)
    task: Any = experiment.task
    calibrated = MujocoRobot(task, experiment.robot).model
    place_cameras(calibrated, experiment.cameras, experiment.robot)
    for seed in range(2):  # the second start does not move it again
        rig.robot.reset(task.sample_reset(np.random.default_rng(seed)))
        moved_m = rig.robot.model.camera("wrist").pos - calibrated.camera("wrist").pos
        assert moved_m == pytest.approx((0.01, 0.0, 0.0))
    for camera in rig.loop.cameras:
        camera.close()


@pytest.mark.gl
def test_a_camera_that_nobody_has_calibrated_is_where_the_task_has_it() -> None:
    from robot_rl_sim.robot import MujocoRobot

    experiment = Experiment.compose(SEES)
    rig: Any = make_rig(experiment, policy_of(experiment), record=forget)
    task: Any = experiment.task
    nominal = MujocoRobot(task, experiment.robot).model
    assert not rig.calibrated
    for camera in rig.loop.cameras:
        assert (rig.robot.model.camera(camera.name).pos == nominal.camera(camera.name).pos).all()
        camera.close()
