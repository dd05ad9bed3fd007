"""Several arms: what a command line means, what is each arm's own, and what two may not share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robot_rl.control.session import ACTOR
from robot_rl.errors import ConfigError
from robot_rl.link.auth import keys_for
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of, system_of
from robot_rl.run.pooled import pool

REACH = "experiment=reach"


def compose(*words: str, folder: Path | None = None) -> Experiment:
    """A reach experiment."""
    return Experiment.compose([REACH, *words, *([f"run_dir={folder}"] if folder else [])])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["actors=left,right"], ("left", "right")),
        (["actors=[left,right]"], ("left", "right")),
        (["actors=3"], ("arm1", "arm2", "arm3")),
        (["actors=solo"], ("solo",)),
        (["actors.right.operator.skill=0.5", "actors=left,right"], ("left", "right")),
        ([], ()),
    ],
)
def test_the_command_line_names_the_arms(words: list[str], names: tuple[str, ...]) -> None:
    assert compose(*words).actors == names


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["actors=Left,right"], "unusable"),
        (["actors=left,left"], "two arms have one name"),
        (["actors=0"], "names no arms"),
        (["actors=33"], "1 to 32"),
        (["actors=left,right", "actors.left.task.max_steps=3"], "task: the arms may not differ"),
        (["actors=left,right", "actors.left.operatr.skill=1"], "did you mean 'operator'"),
        (["actors=left,right", "actors.left=3"], "actors.left is not a section"),
        (["actors=left,right", "actors.left.operator.skil=1"], "did you mean 'skill'"),
        (["pace_hz=10"], "runtime=lockstep actors=4 pace_hz=10"),
        (["actors=2", "pace_hz=-1"], "pace_hz must be 0 or lie in"),
        (["actors=2", "runtime=ros", "pace_hz=10"], "runtime=lockstep actors=4 pace_hz=10"),
        (["actors=2", "experiment=gym"], "has no arm"),
    ],
)
def test_bad_input_gets_one_error_that_says_what_to_write(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(*words).check()
    assert says in str(caught.value)


REAL = ("robot=ur5e_fzi", "actors=left,right")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["operator=gamepad"], "one input device, which would move both"),
        (["operator=none", "ros.remaps={target_pose: /arm/target}"], "left and right: /arm/target"),
        (["operator=none", "actors.left.ros.namespace=right"], "one namespace"),
        (["operator=none", "actors.left.ros.domain_id=7"], "one ROS domain"),
        (["operator=joy", "operator.topic=/joy"], "left and right: /joy"),
    ],
)
def test_two_arms_never_share_what_moves_them(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(*REAL, *words).check()
    assert says in str(caught.value)


def test_two_gamepads_and_relative_names_are_fine() -> None:
    pads = [f"actors.{arm}.operator.device=/dev/input/{arm}" for arm in ("left", "right")]
    compose(*REAL, "operator=gamepad", *pads).check()
    compose(*REAL, "operator=console").check()


def test_one_arm_is_what_it_was(tmp_path: Path) -> None:
    experiment = compose(folder=tmp_path / "run")
    assert not {"actors", "arm", "pace_hz"} & experiment.resolved().keys()
    assert experiment.arms == (experiment,) and experiment.actor == ACTOR
    assert experiment.key_names == ("learner", "actor") and experiment.home == experiment.run_dir
    labels = [spec.label for spec in graph_of(experiment)]
    assert labels == ["sim", "gate", "watchdog", "operator", "actor"]


def test_each_arm_has_a_run_folder_that_its_processes_load(tmp_path: Path) -> None:
    run = compose(
        "actors=left,right", "actors.right.operator=none", "seed=3", folder=tmp_path / "run"
    )
    run.save()
    run.save()  # the same command again goes on
    left, right = (Experiment.load(tmp_path / "run" / "arms" / name) for name in run.actors)
    assert (left.actor, right.actor) == ("actor-left", "actor-right")
    assert left.home == right.home == run.run_dir
    assert left.config["operator"]["name"] == "scripted"
    assert right.config["operator"]["name"] == "none"
    assert left.spec.hash == right.spec.hash == run.spec.hash
    assert left.draws_seed == 3 and right.draws_seed != 3
    assert left.own_train.demos + right.own_train.demos == run.train.demos
    assert left.run_name == right.run_name == run.run_name == "run"
    for folder in (run.run_dir, left.run_dir):  # of a run from before run.json had the name
        record = json.loads((folder / "run.json").read_text())
        assert record.pop("run") == "run"
        (folder / "run.json").write_text(json.dumps(record))
    assert left.run_name == run.run_name == "run"
    more = ("actors=left,right", "actors.right.operator=none", "seed=3", "train.max_minutes=99")
    compose(*more, folder=tmp_path / "run").save()
    assert Experiment.load(left.run_dir).train.max_minutes == 99.0
    with pytest.raises(ConfigError, match="belongs to another experiment"):
        compose("actors=left,middle", "seed=3", folder=tmp_path / "run").save()


def test_each_arm_has_its_own_key_and_the_learner_knows_them_all(tmp_path: Path) -> None:
    run = compose("actors=left,right", folder=tmp_path / "run")
    left, right = run.arms
    keys = [keys_for(a.link, a.home, a.key_name, a.key_names) for a in (left, right)]
    assert keys[0].public != keys[1].public
    known = keys_for(run.link, run.home, "learner", run.key_names).peers
    assert [known[k.public] for k in keys] == ["actor-left", "actor-right"]


def test_the_graph_has_every_node_once_in_each_namespace(tmp_path: Path) -> None:
    run = compose("actors=left,right", "runtime=ros", "operator=console", folder=tmp_path / "run")
    system = system_of(run)
    labels = [spec.label for spec in system]
    assert len(set(labels)) == len(labels)
    assert labels[0] == "learner" and labels[-1] == "console"
    for arm in run.actors:
        own = [spec for spec in system if spec.arm == arm]
        kinds = [spec.name for spec in own]
        assert kinds == ["sim", "gate", "watchdog", "operator", "view", "actor"]
        assert {spec.namespace for spec in own} == {arm}
        assert {spec.params.get("run_dir") for spec in own} - {None} == {
            str((tmp_path / "run" / "arms" / arm).resolve())
        }


def test_results_are_pooled_by_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = compose("actors=left,right", folder=tmp_path / "run")
    run.save()

    def result(wins: int, episodes: int, version: int) -> dict[str, object]:
        part = {
            "successes": wins,
            "episodes": episodes,
            "cycle_time_s_mean": float(wins) if wins else None,
            "cycle_time_s_std": 0.0 if wins else None,
            "action_jerk": 0.5,
            "success_known": True,
            "return_mean": 1.0,
            "return_std": 0.0,
        }
        return {
            "deterministic": part,
            "stochastic": part,
            "runtime": "lockstep",
            "env_steps": 100 * version,
            "train_s": float(version),
            "mastered": version == 2,
            "mastered_steps": 180 * (version == 2),
            "human_steps": 5,
            "weights_version": version,
        }

    (run.arms[1].run_dir / "policy.safetensors").write_bytes(b"newest")
    pooled = pool(run, {"left": result(0, 10, 1), "right": result(8, 10, 2)})
    part = pooled["deterministic"]
    assert (part["successes"], part["episodes"], part["success"]) == (8, 20, 0.4)
    assert pooled["mastered_steps"] == 180
    assert part["wilson_low"] < 0.4 < part["wilson_high"] and part["cycle_time_s_mean"] == 8.0
    assert (
        pooled["env_steps"] == 300
        and pooled["mastered"]
        and set(pooled["arms"]) == {"left", "right"}
    )
    assert (run.run_dir / "policy.safetensors").read_bytes() == b"newest"

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (run.arms[1].run_dir / "policy.safetensors").write_bytes(b"newer still")
    monkeypatch.setattr("robot_rl.system.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        pool(run, {"left": result(0, 10, 1), "right": result(8, 10, 2)})
    assert (run.run_dir / "policy.safetensors").read_bytes() == b"newest"
