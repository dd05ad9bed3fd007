"""How an arm's own driver speaks: units of grippers, and the shipped profiles."""

from __future__ import annotations

import re

import pytest

from robot_rl.config.compose import config_dir, options
from robot_rl.config.registry import build
from robot_rl.errors import ConfigError
from robot_rl.robots.driver import ArmDriver, Controllers, GripperDriver
from robot_rl.ros import topics
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of

PROFILES = [
    name
    for name in options("robot")
    if "driver:" in (config_dir() / "robot" / f"{name}.yaml").read_text()
]
KNUCKLE = GripperDriver(
    kind="command", opened=0.0, closed=0.7929, opened_joints=0.0, closed_joints=0.7929
)


def test_there_are_profiles() -> None:
    assert {"ur5e_fzi", "fr3_crisp"} <= set(PROFILES)


@pytest.mark.parametrize("width_m", [0.0, 0.02, 0.085])
def test_a_knuckle_in_radians_is_no_width_in_metres(width_m: float) -> None:
    asked = KNUCKLE.commanded(width_m, 0.085)
    assert asked == pytest.approx(0.7929 * (1.0 - width_m / 0.085))
    assert KNUCKLE.asked_width_m(asked, 0.085) == pytest.approx(width_m)
    assert KNUCKLE.width_m(KNUCKLE.joint_sum(width_m, 0.085), 0.085) == pytest.approx(width_m)


def test_a_command_beyond_the_stroke_is_the_end_of_the_stroke() -> None:
    assert KNUCKLE.commanded(1.0, 0.085) == 0.0
    assert KNUCKLE.commanded(-1.0, 0.085) == 0.7929


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"gripper": {"kind": "vacuum"}}, "none, width, topic, command, franka"),
        ({"gripper": {"opened": 0.0}}, "same value"),
        ({"controllers": {"manager": "controller_manager"}}, "name both or neither"),
        ({"twist": "guessed"}, "topic or derived"),
        ({"wrench": "maybe"}, "topic or none"),
        ({"wrench_sign": 2.0}, "1 or -1"),
        ({"gripper": {"openend": 0.1}}, "opened"),
        ({"redy": []}, "ready"),
        ({"ready": [{"topic": "mode"}]}, "type"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_name(data: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(ArmDriver, data, "driver")


def test_without_a_profile_a_driver_speaks_as_our_simulated_arm() -> None:
    assert not ArmDriver().is_vendors
    assert Controllers().manager == ""
    assert Experiment.compose(["robot=fr3"]).driver == ArmDriver()


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_a_real_arm_with_a_person_and_its_drivers_names(name: str) -> None:
    experiment = Experiment.compose([f"robot={name}", "task=reach"])
    assert experiment.is_real and experiment.runtime == "ros"
    assert experiment.config["operator"]["name"] == "gamepad"
    ours = {topic.name for topic in topics.TOPICS}
    assert set(experiment.driver.topics) <= ours and set(experiment.driver.min_hz) <= ours
    text = (config_dir() / "robot" / f"{name}.yaml").read_text()
    assert re.search(r"NOT on the\s+#?\s*real arm", text)


@pytest.mark.parametrize("name", [name for name in PROFILES if name.startswith("ur5e")])
def test_the_tcp_of_a_ur5e_is_not_its_flange(name: str) -> None:
    """The limits hold for the TCP, between the fingertips; the profile says how it gets a frame."""
    experiment = Experiment.compose([f"robot={name}", "task=reach"])
    frame, tcp_m = experiment.driver.tcp_frame, experiment.robot.gripper.tcp_m
    text = (config_dir() / "robot" / f"{name}.yaml").read_text()
    assert frame == "gripper_tcp" and f"{tcp_m:g} m along z of UR's flange frame `tool0`" in text
    defined = re.search(rf'xyz="0 0 {tcp_m:g}"|--z {tcp_m:g} --frame-id tool0', text)
    assert defined is not None


@pytest.mark.parametrize("name", PROFILES)
def test_the_graph_of_a_profile(name: str) -> None:
    words = [f"robot={name}", "task=reach", "operator=none"]
    nodes = {spec.name: spec for spec in graph_of(Experiment.compose(words))}
    driver = Experiment.compose(words).driver
    ik = {"ik"} if driver.joints.is_used else set()
    assert set(nodes) == {"arm", "gate", "watchdog", "operator", "actor"} | ik
    assert nodes["watchdog"].params["with_ik"] is driver.joints.is_used
    assert nodes["gate"].params["needs_arm"] is True
    assert nodes["watchdog"].params["manager"] == driver.controllers.manager
    assert nodes["watchdog"].params["controllers"][0] == driver.controllers.cartesian  # type: ignore[index]
    assert nodes["gate"].remaps["wrench"] == driver.topics["wrench"]
    assert "sim" in {s.name for s in graph_of(Experiment.compose([*words, "double=true"]))}


def test_an_fr3_with_its_driver_keeps_an_fr3s_joint_limits() -> None:
    """Joint 6 of an FR3 stops at 0.5445 rad, a Panda's at -0.0175 rad."""
    limits = Experiment.compose(["robot=fr3_crisp", "task=reach"]).limits
    assert limits.joint_min_rad[5] == 0.5445 and limits.joint_max_rad[5] == 4.5169


def test_a_script_may_not_drive_a_profile() -> None:
    with pytest.raises(ConfigError, match="a script may not drive a real arm"):
        graph_of(Experiment.compose(["robot=ur5e_fzi", "task=reach", "operator=scripted"]))


def test_a_stopped_controller_is_one_that_the_person_who_chose_ros_sim_does_not_have() -> None:
    """`ros=sim` with a profile is the simulated arm, with its own topics."""
    words = ["robot=ur5e_fzi", "ros=sim", "operator=scripted", "task=reach"]
    nodes = {spec.name: spec for spec in graph_of(Experiment.compose(words))}
    assert "arm" not in nodes and not nodes["gate"].remaps
