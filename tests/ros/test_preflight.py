"""Faults of a driver and of its surroundings, each named with its fix; none on a clean double."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from robot_rl.cli.main import main
from robot_rl.errors import ConfigError, SetupError
from robot_rl.ros import convert, topics
from robot_rl.ros import preflight as preflight_rules
from robot_rl.ros.cameras import image_topic
from robot_rl.ros.endpoints import message_type, publisher
from robot_rl.ros.listening import Ear, listen, needed_of
from robot_rl.ros.preflight import Finding, judge
from robot_rl.run import preflight
from robot_rl.run.experiment import Experiment
from robot_rl.run.graph import graph_of
from robot_rl.system import machine
from tests.support.ros import World, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone, pytest.mark.waits]
PROFILE = ["robot=ur5e_fzi", "double=true", "task=reach", "operator=none"]
FR3 = ["robot=fr3_crisp", *PROFILE[1:]]
LISTEN_S = 1.5

Look = Callable[..., dict[str, Finding]]


@contextmanager
def alone(run: Path, words: list[str]) -> Iterator[World]:
    """The double alone, as a driver that runs before ours."""
    experiment = Experiment.compose([*words, f"run_dir={run}"])
    experiment.save()
    world = World(tuple(s for s in graph_of(experiment) if s.name == "sim"), run)
    try:
        log = run / "logs" / "sim.log"
        wait_for(lambda: log.is_file() and "/sim up" in log.read_text(), 30.0, "the double is up")
        yield world
    finally:
        world.close()


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The double of a UR5e."""
    with alone(tmp_path_factory.mktemp("double"), PROFILE) as world:
        yield world


@pytest.fixture
def look(double: World) -> Iterator[Look]:
    """look(words, fault): what the preflight says of the UR5e; the fault ends with the test."""
    with looking(double, PROFILE) as found:
        yield found


@contextmanager
def looking(double: World, profile: list[str]) -> Iterator[Look]:
    """How to look at a double, with faults."""
    client = double.probe.node.create_client(SetParameters, "sim/set_parameters")
    assert client.wait_for_service(20.0)

    def inject(fault: dict[str, Any] | None) -> None:
        request = SetParameters.Request()
        text = json.dumps(fault) if fault else ""
        request.parameters = [Parameter("fault", value=text).to_parameter_msg()]
        future = client.call_async(request)
        wait_for(future.done, 10.0, "the double answers")
        answer = future.result()
        assert answer is not None and answer.results[0].successful

    def found(*words: str, fault: dict[str, Any] | None = None) -> dict[str, Finding]:
        if fault:
            inject(fault)
        experiment = Experiment.compose([*profile, f"ros.domain_id={double.domain_id}", *words])
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
    found = look()
    assert not [f for f in found.values() if f.status != "ok"]
    assert found["kinematics"].text == "the driver's TCP is the robot's, to 0 mm and 0.0 degrees"


FAULTS: dict[str, tuple[dict[str, Any], list[str], str, str]] = {
    # name: injected into the double, other words, the finding, what it says
    "stale": ({"stale": ["wrench"]}, [], "wrench", "stale"),
    "frozen": ({"freeze": ["joint_states"]}, [], "joint_states", "frozen"),
    "rate too low": ({"slow_hz": {"current_pose": 5}}, [], "current_pose", "Hz are needed"),
    "wrong frame": ({"frame": {"current_pose": "base"}}, [], "current_pose", "frame base"),
    "clock skew": ({"skew_s": {"wrench": 30.0}}, [], "wrench", "clock skew"),
    "wrong unit": ({"scale": {"current_pose": 1000.0}}, [], "units", "millimetres"),
    "TCP elsewhere": ({"scale": {"current_pose": 1.1}}, [], "kinematics", "degrees apart"),
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


FRANKA: dict[str, tuple[dict[str, Any], list[str], str, str]] = {
    # as in FAULTS, of a driver that tells payload and TCP
    "payload of another tool": ({"payload_kg": 1.4}, [], "payload", "1.40 kg, the profile says"),
    "no payload at all": ({"payload_kg": 0.0}, [], "payload", "compensates 0.00 kg"),
    "TCP of another tool": ({"tcp_m": 0.05}, [], "tcp", "50 mm and 0 degrees from the robot's"),
    "payload not told": (
        {},
        ["driver.payload.topic=elsewhere/robot_state"],
        "payload",
        "nobody publishes elsewhere/robot_state",
    ),
}


@pytest.fixture(scope="module")
def franka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The double of an FR3."""
    with alone(tmp_path_factory.mktemp("franka"), FR3) as world:
        yield world


def test_a_clean_double_of_a_franka_has_no_fault(franka: World) -> None:
    with looking(franka, FR3) as look:
        found = look()
    assert not [f for f in found.values() if f.status != "ok"]
    assert found["payload"].text == "the driver compensates 0.73 kg" and "tcp" in found
    assert "to 0 mm and 0.0 degrees" in found["kinematics"].text


@pytest.mark.parametrize("name", FRANKA)
def test_a_wrong_payload_or_tcp_is_named_with_its_fix(franka: World, name: str) -> None:
    fault, words, where, says = FRANKA[name]
    with looking(franka, FR3) as look:
        finding = look(*words, fault=fault)[where]
    assert finding.status == "fail" and says in finding.text and finding.fix


def test_a_member_that_no_message_has_is_an_error_that_names_the_nearest(franka: World) -> None:
    words = ["driver.payload.member=inertia_totl.inertia.m"]
    with looking(franka, FR3) as look, pytest.raises(ConfigError, match="inertia_total"):
        look(*words)


def test_lost_messages_are_counted(double: World) -> None:
    """By the publisher's own numbers: what our queue could not keep counts as lost, too."""
    node = double.probe.node
    ear = Ear(node, topics.WRENCH)
    sender = publisher(node, topics.WRENCH)
    sent = 0

    def send() -> bool:
        nonlocal sent
        sender.publish(convert.wrench_to(np.zeros(6), time.time(), "tool0"))
        sent += 1
        ear.poll()
        return bool(ear.numbers)

    wait_for(send, 10.0, "the ear hears it")
    for _ in range(400):  # nobody polls meanwhile, and the queue holds 200
        sender.publish(convert.wrench_to(np.zeros(6), time.time(), "tool0"))
    last = sent + 400

    def arrived() -> bool:
        ear.poll()
        return ear.numbers[-1] == last

    wait_for(arrived, 10.0, "the newest has arrived")
    lost = ear.heard().lost
    node.destroy_publisher(sender)
    assert lost is not None and 0.3 < lost < 0.9
    needed = SimpleNamespace(frames={}, min_hz={})
    heard = replace(ear.heard(), publishers=("a",), types=(topics.WRENCH.type,), lost=0.25)
    finding = preflight_rules._topic("wrench", heard, needed, frozenset())  # type: ignore[arg-type]
    assert finding.status == "warn" and "25% are lost" in finding.text and finding.fix


AROUND: dict[str, tuple[dict[str, str], list[str], str, str, str]] = {
    # name: environment, words, the finding, its status, what it says
    "shell in another domain": ({"ROS_DOMAIN_ID": "7"}, [], "domain", "warn", "this shell in 7"),
    "everybody's domain": ({}, ["ros.domain_id=0"], "domain", "warn", "domain 0"),
    "domain among other ports": ({}, ["ros.domain_id=120"], "domain", "warn", "Linux"),
    "the network may move it": (
        {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}, ["ros.domain_id=0"], "discovery", "fail",
        "any ROS 2 program of the network may move the arm",
    ),
    "the domain may move it": (
        {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}, [], "discovery", "warn", "in domain 42",
    ),
    "peers": ({"ROS_STATIC_PEERS": "10.0.0.7"}, [], "discovery", "warn", "10.0.0.7"),
    "no discovery": ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF"}, [], "discovery", "fail", "=OFF"),
    "other middleware": (
        {"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, [], "dds profile", "warn", "cyclone",
    ),
    "no profile": (
        {"FASTRTPS_DEFAULT_PROFILES_FILE": "/no/such.xml"}, [], "dds profile", "warn", "no file",
    ),
    "no keys": (
        {}, ["link.host=10.0.0.9", "link.key_folder=/no/keys"], "keys", "fail", "actor.secret",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AROUND)
def test_what_the_machine_adds_is_named_with_its_fix(name: str) -> None:
    env, words, where, status, says = AROUND[name]
    experiment = Experiment.compose([*PROFILE, *words])
    found = {f.name: f for f in preflight.surroundings(experiment, env)}[where]
    assert (found.status, bool(found.fix)) == (status, True) and says in found.text


def test_a_plain_machine_has_no_finding_and_one_machine_needs_no_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine.priority, "allowed", lambda: True)
    gib = SimpleNamespace(free=100 * machine.GIB, total=200 * machine.GIB)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: gib)
    experiment = Experiment.compose([*PROFILE, f"run_dir={tmp_path}/not/there/yet"])
    found = preflight.surroundings(experiment, {})
    assert [f.name for f in found if f.status != "ok"] == []
    assert "keys" not in {f.name for f in found}
    gib.free = machine.GIB // 2
    monkeypatch.setattr(machine.priority, "allowed", lambda: False)
    wrong = {f.name: f.status for f in preflight.surroundings(experiment, {}) if f.status != "ok"}
    assert wrong == {"priority": "warn", "disk": "fail"}


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


@pytest.mark.parametrize(
    ("pixels", "late_s", "says"),
    [(32, 0.0, "32 x 32, smaller than"), (256, 30.0, "30.0 s from this machine's clock")],
)
def test_a_picture_that_is_too_small_or_too_old_is_named(
    look: Look, double: World, pixels: int, late_s: float, says: str
) -> None:
    camera = publisher(double.probe.node, topics.CAMERA_IMAGE.named(camera="wrist"))
    black = np.zeros((pixels, pixels, 3), np.uint8)

    def send() -> None:
        camera.publish(convert.image_to(black, time.time() - late_s, "wrist"))

    timer = double.probe.node.create_timer(0.1, send)
    try:
        found = look("task.images=[wrist]")["camera wrist"]
    finally:
        double.probe.node.destroy_timer(timer)
        double.probe.node.destroy_publisher(camera)
    assert found.status == "fail" and says in found.text and found.fix


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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("stop", "nobody could stop the arm"),
        ("controllers", "moved and stopped"),
        ("io_and_status_controller/safety_mode", "own word"),
        ("wrnch", "did you mean 'wrench'"),
    ],
)
def test_what_nobody_may_accept_is_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    wrong = [Finding(n, "fail", "is not there", "start it") for n in ("stop", "wrench")]
    monkeypatch.setattr(preflight, "_findings", lambda *_: wrong)
    words = ["robot=ur5e_fzi", "task=reach", "operator=none", f"ros.accept=[{name}]"]
    with pytest.raises(SetupError, match=why):
        preflight.refuse_unready(Experiment.compose(words))


def test_what_was_found_stays_with_the_run(tmp_path: Path) -> None:
    found = [Finding("wrench", "fail", "is not there", "start it"), Finding("a", "ok", "b")]
    preflight.keep_findings(found, tmp_path / "run")
    assert preflight.kept_findings(tmp_path / "run") == found
    preflight.keep_findings([], tmp_path / "run")  # started again, beside a double
    assert preflight.kept_findings(tmp_path / "run") == []


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
