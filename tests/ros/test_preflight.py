"""Fifteen faults of a driver, each named with its fix; none on a clean double."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from robot_rl.cli.main import main
from robot_rl.errors import SetupError
from robot_rl.ros import convert, topics
from robot_rl.ros.cameras import image_topic
from robot_rl.ros.endpoints import message_type, publisher
from robot_rl.ros.listening import listen, needed_of
from robot_rl.ros.preflight import Finding, judge
from robot_rl.run import preflight
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of
from tests.support.ros import World, wait_for

pytestmark = pytest.mark.ros
PROFILE = ["robot=ur5e_fzi", "double=true", "task=reach", "operator=none"]
LISTEN_S = 1.5

Look = Callable[..., dict[str, Finding]]


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The double alone, as a driver that runs before ours."""
    run = tmp_path_factory.mktemp("double")
    experiment = Experiment.compose([*PROFILE, f"run_dir={run}"])
    experiment.save()
    world = World(tuple(s for s in graph_of(experiment) if s.name == "sim"), run)
    try:
        log = run / "logs" / "sim.log"
        wait_for(lambda: log.is_file() and "/sim up" in log.read_text(), 30.0, "the double is up")
        yield world
    finally:
        world.close()


@pytest.fixture
def look(double: World) -> Iterator[Look]:
    """look(words, fault): what the preflight says; the fault ends with the test."""
    client = double.probe.node.create_client(SetParameters, "sim/set_parameters")
    assert client.wait_for_service(20.0)

    def inject(fault: dict[str, Any] | None) -> None:
        request = SetParameters.Request()
        text = json.dumps(fault) if fault else ""
        request.parameters = [Parameter("fault", value=text).to_parameter_msg()]
        future = client.call_async(request)
        wait_for(future.done, 10.0, "the double answers")
        assert future.result().results[0].successful

    def found(*words: str, fault: dict[str, Any] | None = None) -> dict[str, Finding]:
        if fault:
            inject(fault)
        experiment = Experiment.compose([*PROFILE, f"ros.domain_id={double.domain_id}", *words])
        spec, config, driver = experiment.task.spec, experiment.ros, experiment.driver
        pictures = {
            name: (image_topic(name, camera), *spec.picture_size(name))
            for name, camera in experiment.graph_cameras.items()
        }
        needed = needed_of(experiment.robot, driver, config, pictures)  # type: ignore[arg-type]
        link = experiment.link
        learner = None if link.port == 5597 else (link.host, link.port)
        seen = listen(driver, config, needed, learner=learner, listen_s=LISTEN_S)  # type: ignore[arg-type]
        return {finding.name: finding for finding in judge(seen, needed)}

    yield found
    inject(None)
    double.probe.node.destroy_client(client)


def test_a_clean_double_has_no_fault(look: Look) -> None:
    wrong = [f for f in look().values() if f.status != "ok"]
    assert not wrong


FAULTS: dict[str, tuple[dict[str, Any], list[str], str, str]] = {
    # name: injected into the double, other words, the finding, what it says
    "stale": ({"stale": ["wrench"]}, [], "wrench", "stale"),
    "frozen": ({"freeze": ["joint_states"]}, [], "joint_states", "frozen"),
    "rate too low": ({"slow_hz": {"current_pose": 5}}, [], "current_pose", "Hz are needed"),
    "wrong frame": ({"frame": {"current_pose": "base"}}, [], "current_pose", "frame base"),
    "clock skew": ({"skew_s": {"wrench": 30.0}}, [], "wrench", "clock skew"),
    "wrong unit": ({"scale": {"current_pose": 1000.0}}, [], "units", "millimetres"),
    "finger joint missing": (
        {"without_joint": "robotiq_85_left_knuckle_joint"},
        [],
        "fingers",
        "robotiq_85_left_knuckle_joint",
    ),
    "arm joint missing": ({"without_joint": "elbow_joint"}, [], "joints", "elbow_joint"),
    "controller inactive": (
        {"inactive": ["cartesian_motion_controller"]},
        [],
        "controllers",
        "inactive",
    ),
    "program stopped": (
        {"ready": {"io_and_status_controller/robot_program_running": False}},
        [],
        "io_and_status_controller/robot_program_running",
        "press play",
    ),
    "topic absent": ({}, ["driver.topics.wrench=ft/wrench"], "wrench", "published by nobody"),
    "stop service absent": (
        {},
        ["driver.controllers.manager=left/controller_manager"],
        "stop",
        "nobody serves left/controller_manager/switch_controller",
    ),
    "gripper server absent": (
        {},
        ["driver.gripper.name=robotiq/gripper_cmd"],
        "gripper",
        "nobody serves robotiq/gripper_cmd",
    ),
    "camera absent": ({}, ["task.images=[wrist]"], "camera wrist", "no picture"),
    "learner unreachable": ({}, ["link.port=1"], "learner", "no learner at 127.0.0.1:1"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_injected_fault_is_named_with_its_fix(look: Look, name: str) -> None:
    fault, words, where, says = FAULTS[name]
    finding = look(*words, fault=fault)[where]
    assert finding.status == "fail" and says in finding.text and finding.fix


def test_another_type_and_another_publisher_are_named(look: Look, double: World) -> None:
    node = double.probe.node
    text = node.create_publisher(
        message_type("std_msgs/msg/String"), "cartesian_motion_controller/current_twist", 1
    )
    target = Experiment.compose(PROFILE).driver.topics["target_pose"]
    rival = publisher(node, replace(topics.TARGET_POSE, name=target))
    try:
        found = look()
    finally:
        node.destroy_publisher(text)
        node.destroy_publisher(rival)
    assert "published as" in found["current_twist"].text
    assert "probe publishes targets, too" in found["target_pose"].text


def test_a_picture_that_is_too_small_is_named(look: Look, double: World) -> None:
    import numpy as np

    camera = publisher(double.probe.node, topics.CAMERA_IMAGE.named(camera="wrist"))
    picture = convert.image_to(np.zeros((32, 32, 3), np.uint8), time.time(), "wrist")
    timer = double.probe.node.create_timer(0.1, lambda: camera.publish(picture))
    try:
        found = look("task.images=[wrist]")["camera wrist"]
    finally:
        double.probe.node.destroy_timer(timer)
        double.probe.node.destroy_publisher(camera)
    assert found.status == "fail" and "32 x 32, smaller than" in found.text


def test_a_run_beside_a_driver_that_is_not_ready_does_not_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Finding("wrench", "fail", "ft is published by nobody", "start the driver")
    monkeypatch.setattr(preflight, "_findings", lambda *_: [wrong])
    words = ["robot=ur5e_fzi", "task=reach", "operator=none"]
    with pytest.raises(SetupError, match=r"ros.accept=\[wrench\]"):
        preflight.refuse_unready(Experiment.compose(words))
    preflight.refuse_unready(Experiment.compose([*words, "ros.accept=[wrench]"]))
    assert "accepted by ros.accept: wrench" in caplog.text
    preflight.refuse_unready(Experiment.compose([*words, "double=true"]))  # a rehearsal


def test_doctor_of_a_simulation_says_what_to_choose(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "robot=fr3"]) == 2
    assert "robot-rl doctor robot=ur5e_fzi" in capsys.readouterr().err


def test_doctor_starts_the_double_by_itself(
    double: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del double
    seen = SimpleNamespace(names=[])
    monkeypatch.setattr(
        preflight, "_findings", lambda e, c: seen.names.append(e.name) or [Finding("a", "ok", "b")]
    )
    assert main(["doctor", *PROFILE, "ros.domain_id=99"]) == 0
    assert seen.names and "1 checks, 0 failed" in capsys.readouterr().out
