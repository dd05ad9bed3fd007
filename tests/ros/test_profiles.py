"""Profiles of real arms against their doubles: the vendor's types, services, habits and faults."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import Newest, publisher
from robot_rl.types import Outcome, Verdict
from tests.support.rehearsal import rehearsal
from tests.support.ros import World, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone]

STILL_M = 0.001
PROFILES = [
    "ur5e_fzi",
    pytest.param("ur5e_forward", marks=pytest.mark.slow),
    pytest.param("fr3_crisp", marks=pytest.mark.slow),
    pytest.param("fr3_joint", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=PROFILES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Double, arm, gate, watchdog and operator of a profile; no actor."""
    with rehearsal(tmp_path_factory.mktemp("profile"), request.param, "task=lift") as found:
        found.probe.wait_state(simulated=False)
        wait_for(lambda: found.probe.tend() and ready(found), 40.0, lambda: why_not(found))
        yield found


def why_not(world: World) -> str:
    """What keeps the graph from being ready."""
    probe = world.probe
    arm = probe.newest(topics.ARM_PROBLEM)
    return f"arm: {arm.data if arm else 'silent'!r}, watchdog: {probe.problem()!r}"


def ready(world: World) -> bool:
    """Neither the arm node nor the watchdog has a problem."""
    arm = world.probe.newest(topics.ARM_PROBLEM)
    return arm is not None and not arm.data and not world.probe.problem()


def arm_says(world: World, words: str) -> None:
    """Wait until `arm/problem` holds `words`; "" = no problem, with a person at the controller."""

    def said() -> bool:
        if not words and world.probe.stopped():  # a busy machine has had it stopped
            world.probe.call(topics.CONTROLLER_RESUME)
        message = world.probe.newest(topics.ARM_PROBLEM)
        return message is not None and (words in message.data if words else not message.data)

    wait_for(said, 40.0, lambda: f"{words or 'no problem'}; {why_not(world)}")


def arms(world: World, lease: str) -> None:
    """A person does what is needed, then it arms."""

    def armed() -> bool:
        world.probe.settle()
        return world.probe.arm(lease, timeout_s=1.0).granted

    wait_for(armed, 30.0, lambda: f"it arms; {world.probe.report()}, {why_not(world)}")


@contextmanager
def driven(world: World, lease: str, step_m: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """Somebody drives the arm meanwhile, ten times a second and more, to where it is.

    step_m: how far along x from there.
    """
    arms(world, lease)
    done, sequence = threading.Event(), itertools.count(1)

    def drive() -> None:
        while not done.wait(0.05):
            world.probe.send(world.probe.command(lease, next(sequence), step_m()))

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def rest(world: World) -> None:
    """Hold, and let whoever comes next arm again."""
    assert world.probe.call(topics.GATE_HOLD).success
    assert world.probe.call(topics.GATE_RESUME).success


@pytest.fixture
def fault(world: World) -> Iterator[Any]:
    """fault(drop=["wrench"]) injects one into the double; it ends with the test."""
    client = world.probe.node.create_client(SetParameters, "sim/set_parameters")

    def inject(**faults: Any) -> None:
        request = SetParameters.Request()
        text = json.dumps(faults) if faults else ""
        request.parameters = [Parameter("fault", value=text).to_parameter_msg()]
        future = client.call_async(request)
        wait_for(future.done, 10.0, "the double answers")
        result = future.result().results[0]
        assert result.successful, result.reason

    assert client.wait_for_service(10.0)
    yield inject
    inject()
    arm_says(world, "")
    world.probe.node.destroy_client(client)


def test_a_gate_that_was_frozen_does_not_drive_a_stopped_controller(world: World) -> None:
    """The arm stands: what passed would be learned as motion, and come when it is resumed."""
    probe, pid = world.probe, world.supervisor.pids()["gate"]
    arm_says(world, "")
    begun_m = probe.tcp().position_m

    def moved_m() -> float:
        return float(probe.tcp().position_m[0] - begun_m[0])

    def sway_m() -> float:
        return float(np.clip(0.02 * np.sin(2.0 * time.monotonic()) - moved_m(), -0.01, 0.01))

    def moves() -> bool:
        report = probe.report()
        if report is None or report.mode != "run":
            arms(world, "frozen")  # a busy machine has had it stopped
        return abs(moved_m()) > 0.004

    with driven(world, "frozen", sway_m):
        wait_for(moves, 40.0, lambda: f"it moves; {probe.report()}")
        os.kill(pid, signal.SIGSTOP)
        frozen_s = time.monotonic()
        try:
            wait_for(probe.stopped, 15.0, "the watchdog stops the controller")
            time.sleep(max(0.0, frozen_s + 0.5 - time.monotonic()))
        finally:
            awake_s = time.monotonic()
            os.kill(pid, signal.SIGCONT)
        why = probe.wait_mode("protective_stop", 15.0).reason
        first = ("controller: stopped", "arm: controller", "state: stale")  # whatever it sees first
        assert why.startswith(first), why
        time.sleep(0.5)  # it comes to rest
        where_m, asked = probe.tcp().position_m, len(probe.moves())
        assert probe.call(topics.CONTROLLER_RESUME).success
        wait_for(lambda: not probe.stopped(), 20.0, "the controller goes on")
        wait_for(lambda: len(probe.moves()) > asked + 10, 15.0, "somebody goes on asking")
        assert np.linalg.norm(probe.tcp().position_m - where_m) < STILL_M
        probe.wait_mode("protective_stop")
        heard = [(t, wire.decode_answer(m.data)) for t, m in list(probe.heard["gate/verdict"])]
        since = [v for t, v in heard if t > awake_s and isinstance(v, Verdict)]
        assert since and [v for v in since if v.outcome is not Outcome.HOLD] == []
    arms(world, "after")


def test_it_arms_and_moves(world: World) -> None:
    arms(world, "first")
    probe = world.probe
    x_m = probe.tcp().position_m[0]
    for i in range(1, 15):
        probe.send(probe.command("first", i, 0.01))
        time.sleep(0.1)
    assert probe.tcp().position_m[0] > x_m + 0.005
    rest(world)


def test_the_state_is_derived_where_the_driver_does_not_tell_it(world: World) -> None:
    """Gripper width in metres whatever the unit of the driver; the twist perhaps from poses."""
    log = (world.run_dir / "logs" / "gate.log").read_text()
    assert "no robot state" not in log
    names = world.probe.newest(topics.JOINT_STATES).name
    assert not any("finger_joint" in n for n in names) or "fr3_finger_joint1" not in names


def test_kill_9_of_the_gate_deactivates_the_controller(world: World) -> None:
    arms(world, "orphan")
    probe = world.probe
    os.kill(world.supervisor.pids()["gate"], signal.SIGKILL)
    killed_s = time.monotonic()
    wait_for(probe.stopped, 15.0, "the watchdog tells that the controller is stopped")
    assert time.monotonic() - killed_s < 2.0  # 0.2 s on a machine that is not busy
    arm_says(world, "is inactive")
    beats = len(probe.heard["gate/heartbeat"])
    wait_for(lambda: len(probe.heard["gate/heartbeat"]) > beats, 20.0, "the gate is back")
    assert not probe.arm("too early", timeout_s=1.0).granted
    wait_for(lambda: probe.call(topics.CONTROLLER_RESUME).success, 20.0, "the controller resumes")
    arm_says(world, "")
    where_m = probe.tcp().position_m
    time.sleep(0.3)
    assert np.linalg.norm(probe.tcp().position_m - where_m) < 0.001
    arms(world, "after")
    rest(world)


def test_kill_9_of_the_driver_needs_a_person(world: World) -> None:
    arms(world, "driverless")
    os.kill(world.supervisor.pids()["sim"], signal.SIGKILL)
    probe = world.probe
    wait_for(lambda: probe.report().mode != "run", 15.0, "the gate stops")  # type: ignore[union-attr]
    arm_says(world, "")
    time.sleep(0.3)
    assert probe.report().mode != "run"  # type: ignore[union-attr]
    arms(world, "again")
    rest(world)


def test_a_program_that_stops_is_a_protective_stop_until_a_person_recovers(
    world: World, fault: Any
) -> None:
    arms(world, "stopped")
    ready = world.probe.newest(topics.ARM_PROBLEM)
    assert not ready.data
    topic, value = _first_ready(world)
    fault(ready={topic: value})
    arm_says(world, topic)
    world.probe.wait_mode("protective_stop", 10.0)
    refused = world.probe.call(topics.GATE_ACKNOWLEDGE)
    assert not refused.success and topic in refused.message
    fault()
    arm_says(world, "")
    assert world.probe.report().mode == "protective_stop"  # type: ignore[union-attr]
    assert world.probe.call(topics.ARM_RECOVER).success
    arm_says(world, "")
    arms(world, "recovered")
    rest(world)


def _first_ready(world: World) -> tuple[str, Any]:
    """Name of the first readiness topic, and what it says when something is wrong."""
    from robot_rl.run.experiment import Experiment

    ready = Experiment.load(world.run_dir).driver.ready[0]
    return ready.topic, False if ready.value is True else 4


def test_poses_in_a_frame_that_nothing_connects_stop_the_arm(world: World, fault: Any) -> None:
    """UR's `base` is half a turn from `base_link`: nothing may move by such a pose."""
    if _driver(world).joints.is_used:
        pytest.skip("of an arm that takes joint targets, the node ik tells the pose")
    arms(world, "lost")
    fault(frame={"current_pose": "elsewhere"})
    wait_for(lambda: world.probe.report().mode != "run", 15.0, "the gate stops")  # type: ignore[union-attr]
    answer = world.probe.arm("still lost", timeout_s=1.0)
    assert not answer.granted
    said = wait_for(
        lambda: (
            "elsewhere" in (text := world.probe.diagnostics("/gate").get("last_error", "")) and text
        ),
        10.0,
        "the gate says why",
    )
    assert "another frame" in said
    fault()
    arms(world, "found")
    rest(world)


def test_a_gripper_that_refuses_stops_the_run_until_a_person_lets_it_go_on(
    world: World, fault: Any
) -> None:
    """Then the same command, passed again, moves it; nothing moves it before.

    Before the arm goes home: from there, outside of the task's box, no command passes.
    """
    probe, gripper = world.probe, _driver(world).gripper
    open_m, sequence = 0.07, itertools.count(1)
    command = publisher(probe.node, topics.GRIPPER_COMMAND)
    _hold_width(world, command, 0.02)
    probe.node.destroy_publisher(command)
    verbs = ("/move", "/grasp") if gripper.kind == "franka" else ("",)

    def opens(lease: str) -> None:
        report = probe.report()
        if report is None or report.mode in ("hold", "protective_stop"):  # a busy machine
            arms(world, lease)
        probe.send(replace(probe.command(lease, next(sequence), 0.0), gripper_width_m=open_m))
        time.sleep(0.05)

    def refused() -> bool:
        opens("refused")
        heard = [m.data for _, m in probe.heard["arm/problem"][told:]]
        return any("refused the goal" in problem for problem in heard)

    def opened() -> bool:
        opens("again")
        return abs(_width_m(world) - open_m) < 0.004

    fault(gone=[gripper.name + verb for verb in verbs])
    told = len(probe.heard["arm/problem"])
    wait_for(refused, 40.0, lambda: f"a refused goal; {probe.report()}, {why_not(world)}")
    probe.wait_mode("protective_stop")
    fault()
    arm_says(world, "")  # by itself, so that a person can acknowledge
    assert abs(_width_m(world) - 0.02) < 0.01
    arms(world, "again")
    assert abs(_width_m(world) - 0.02) < 0.01
    wait_for(opened, 20.0, lambda: f"open fingers; they are at {_width_m(world)}")
    rest(world)


def test_home_by_the_joint_controller_and_back(world: World) -> None:
    probe = world.probe
    before_m = probe.tcp().position_m
    with driven(world, "driven"):
        refused = probe.call(topics.ARM_HOME)
    assert not refused.success and "while the arm is driven" in refused.message
    rest(world)
    assert probe.call(topics.ARM_HOME).success
    arm_says(world, "home: under way")
    assert not probe.arm("meanwhile", timeout_s=0.3).granted
    arm_says(world, "")
    assert np.linalg.norm(probe.tcp().position_m - before_m) > 0.02
    there_m = probe.tcp().position_m
    arms(world, "home")
    time.sleep(0.5)
    assert np.linalg.norm(probe.tcp().position_m - there_m) < 0.005  # no old target is taken up
    rest(world)


@pytest.mark.parametrize("cycles", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_one_goal_per_change_of_the_gripper(world: World, cycles: int) -> None:
    """Commands come with every step, goals only when they change."""
    driver = _driver(world)
    command = publisher(world.probe.node, topics.GRIPPER_COMMAND)
    stroke_m = 0.08
    # the gate is the only publisher: take its place for a moment
    world.probe.settle()
    before = _goals(world)
    for i in range(cycles):
        width_m = 0.02 if i % 2 == 0 else stroke_m - 0.01
        _hold_width(world, command, width_m)
    wait_for(lambda: _goals(world) >= before + cycles - 1, 5.0, "the arm node tells its goals")
    time.sleep(1.2)  # the period of the diagnostics
    assert _goals(world) <= before + cycles
    world.probe.node.destroy_publisher(command)
    assert driver.gripper.kind in ("command", "franka")


@pytest.mark.slow
def test_a_gripper_of_a_position_controller_takes_values_in_its_own_unit(tmp_path: Any) -> None:
    hand = "{kind: topic, name: gripper_controller/commands, opened: 0.0, closed: 0.8}"
    words = ["task=lift", f"driver.gripper={hand[:-1]}, joints: [knuckle], "
             "opened_joints: 0.0, closed_joints: 0.8}"]  # fmt: skip
    with rehearsal(tmp_path / "run", "ur5e_fzi", *words) as found:
        found.probe.wait_state(simulated=False)
        wait_for(lambda: found.probe.tend() and ready(found), 40.0, lambda: why_not(found))
        command = publisher(found.probe.node, topics.GRIPPER_COMMAND)
        for width_m in (0.02, 0.07):
            _hold_width(found, command, width_m)


def test_a_person_tares_where_the_driver_can(world: World) -> None:
    world.probe.settle()
    rest(world)
    assert world.probe.call(topics.ARM_TARE).success
    log = world.run_dir / "logs" / "arm.log"
    words = "tare: done" if _driver(world).tare else "tare failed: this driver names no service"
    wait_for(lambda: words in log.read_text(), 10.0, words)
    arm_says(world, "")


def _driver(world: World) -> Any:
    from robot_rl.run.experiment import Experiment

    return Experiment.load(world.run_dir).driver


def _goals(world: World) -> int:
    """Goals that the arm node has sent to the gripper."""
    return int(float(world.probe.diagnostics("/arm").get("gripper_goals", 0)))


def _hold_width(world: World, command: Any, width_m: float) -> None:
    """Say the same width again and again until the fingers are there."""

    def there() -> bool:
        command.publish(convert.gripper_to(width_m))
        time.sleep(0.05)
        return abs(_width_m(world) - width_m) < 0.004

    wait_for(there, 20.0, lambda: f"fingers at {width_m}; they are at {_width_m(world)}")


def _width_m(world: World) -> float:
    """Finger distance as the driver publishes it."""
    gripper = _driver(world).gripper
    name = gripper.state_topic
    cache = world.__dict__.setdefault("fingers", {})
    if name not in cache:
        cache[name] = Newest(world.probe.node, replace(topics.JOINT_STATES, name=name))
    message = cache[name].read()
    if message is None:
        return float("nan")
    stroke_m = 0.08 if gripper.kind == "franka" else 0.085
    return gripper.width_m(float(sum(convert.positions_from(message, gripper.joints))), stroke_m)
