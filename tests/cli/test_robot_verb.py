"""`robot-rl robot`: from a URDF to a file, a table, a picture, and demonstrations in lockstep."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from robot_rl.cli.main import main
from robot_rl.run import robot_file
from robot_rl.run.experiment import Experiment
from robot_rl.store.store import Store
from tests.support.ros import new_domain

URDFS = Path(__file__).resolve().parents[1] / "robots" / "urdf"
ARMS = ("ur5e", "ur10e", "fr3", "xarm7", "gen3", "so101", "iiwa7")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def new(name: str, *options: str) -> int:
    tip = ["--tip", "gripper_frame_link"] if name == "so101" else []
    words = ["robot", "new", str(URDFS / f"{name}.urdf"), "--name", f"my_{name}", *tip]
    return main([*words, *options])


@pytest.mark.slow
@pytest.mark.parametrize("name", ARMS)
def test_every_arm_learns_to_record_in_lockstep(name: str) -> None:
    assert new(name) == 0
    words = ["record", "experiment=reach", f"robot=my_{name}", "runtime=lockstep"]
    assert main([*words, "--demos", "2", "--config-dir", "configs", "run_dir=RUN"]) == 0
    with Store(Path("RUN/store.sqlite")) as store:
        episodes = store.episode_summaries()
    assert [bool(e.success) for e in episodes if e.purpose == "demo"] == [True, True]


def test_new_show_list(capsys: pytest.CaptureFixture[str]) -> None:
    profile = ["--kind", "position", "--controller", "forward_position_controller"]
    assert new("ur10e", "--gripper", "robotiq_2f85", *profile) == 0
    said = capsys.readouterr().out
    assert "written to configs/robot/my_ur10e.yaml" in said and "tip: tool0" in said
    arm = Experiment.compose(["robot=my_ur10e", "experiment=lift"], Path("configs"))
    assert arm.robot.gripper.stroke_m == 0.085 and len(arm.robot.joints) == 6
    driver = Experiment.compose(["robot=my_ur10e_position", "task=reach"], Path("configs")).driver
    assert driver.joints.kind == "position" and driver.joints.names == arm.robot.joint_names
    assert driver.topics["joint_target"] == "forward_position_controller/commands"
    assert main(["robot", "show", "my_ur10e"]) == 0
    assert "wrist_3_joint" in capsys.readouterr().out
    assert main(["robot", "list"]) == 0
    assert "my_ur10e_position" in capsys.readouterr().out
    before = Path("configs/robot/my_ur10e.yaml").read_text()
    assert new("ur10e") == 2
    assert "nothing is ever overwritten" in capsys.readouterr().err
    assert Path("configs/robot/my_ur10e.yaml").read_text() == before


def test_a_home_that_is_given_is_kept() -> None:
    home = "0 -1.2 1.8 -2.2 -1.57 0"
    assert new("ur5e", "--home", home) == 0
    written = yaml.safe_load(Path("configs/robot/my_ur5e.yaml").read_text())
    assert written["robot"]["home_rad"] == [0.0, -1.2, 1.8, -2.2, -1.57, 0.0]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["robot", "new"], "the URDF comes from one place"),
        (["robot", "new", "nothing.urdf"], "cannot read nothing.urdf"),
        (["robot", "new", "ARM", "--name", "My Arm"], "cannot have this name"),
        (["robot", "new", "ARM", "--name", "ur5e"], "there is already a robot 'ur5e'"),
        (["robot", "new", "ARM", "--name", "a", "--kind", "effort"], "controller is not described"),
        (["robot", "new", "ARM", "--name", "a", "--home", "up"], "this is no home pose"),
        (["robot", "new", "ARM", "--name", "a", "--home", "1 2"], "robot.home_rad"),
        (
            ["robot", "new", "ARM", "--name", "a", "--package", "x=nowhere"],
            "no folder of a package",
        ),
        (["robot", "new", "ARM", "--name", "a", "--gripper", "hand"], "unknown gripper 'hand'"),
        (["robot", "new", "ARM", "--name", "a", "--tool-m", "-3"], "that is not negative"),
        (["robot", "show", "fr4"], "unknown robot 'fr4'"),
        (["robot", "neu"], "new"),
    ],
)
def test_one_error_and_nothing_written(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(URDFS / "ur5e.urdf") if word == "ARM" else word for word in words]
    assert main(words) == 2
    assert error in capsys.readouterr().err
    assert not list(Path().rglob("*.yaml"))


@pytest.mark.ros
def test_packages_are_unknown_where_ros_is_not_sourced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMENT_PREFIX_PATH", "")
    assert robot_file._installed("ur_description") is None
    monkeypatch.delenv("AMENT_PREFIX_PATH")
    assert robot_file._installed("ur_description") is None


@pytest.mark.ros
def test_the_description_that_a_driver_publishes(capsys: pytest.CaptureFixture[str]) -> None:
    from std_msgs.msg import String

    from robot_rl.ros.qos import PROFILES
    from robot_rl.ros.runtime import visitor

    domain_id = new_domain()
    words = ["robot", "new", "--name", "told", "--domain-id", str(domain_id), "--from-topic"]
    with visitor("driver", domain_id) as node:
        publisher = node.create_publisher(String, "robot_description", PROFILES["latched"])
        publisher.publish(String(data=(URDFS / "xarm7.urdf").read_text()))
        time.sleep(0.2)  # it was said before anybody listened
        assert main(words) == 0
        assert main([*words[:3], "other", *words[4:], "nothing_here"]) == 2
    assert "nobody publishes a robot description" in capsys.readouterr().err
    text = Path("configs/robot/told.yaml").read_text()
    assert "from the topic robot_description" in text
    assert Experiment.compose(["robot=told"], Path("configs")).robot.joint_names[0] == "joint1"
