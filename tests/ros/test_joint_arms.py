"""An arm that takes joint velocities, on its double: every chain that must stop it is cut once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from robot_rl.ros import convert, topics
from robot_rl.ros.endpoints import publisher
from tests.support.rehearsal import rehearsal
from tests.support.ros import World, wait_for

pytest.importorskip("mink", reason="mink is not installed: pip install 'robot-rl[ik]'")

pytestmark = [pytest.mark.ros, pytest.mark.alone]

VELOCITY = (
    "task=reach",
    "driver.joints.kind=velocity",
    "driver.topics.joint_target=forward_velocity_controller/commands",
    "driver.controllers.cartesian=forward_velocity_controller",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Double, ik, arm, gate, watchdog and operator."""
    with rehearsal(tmp_path_factory.mktemp("joints"), "ur5e_forward", *VELOCITY) as found:
        found.probe.wait_state(simulated=False)
        wait_for(lambda: ready(found), 40.0, lambda: f"ready; arm: {problem(found)!r}")
        yield found


def problem(world: World) -> str:
    """What the arm node tells."""
    message = world.probe.newest(topics.ARM_PROBLEM)
    return message.data if message else "silent"


def ready(world: World) -> bool:
    """A person has done what there is to do, and nothing is wrong."""
    return world.probe.tend() and not problem(world) and not world.probe.problem()


def joint_speed(world: World) -> float:
    """Of the fastest joint (rad/s), by its newest positions."""
    heard = world.probe.heard["joint_states"][-12:]
    (first_s, first), (last_s, last) = heard[0], heard[-1]
    way = np.abs(np.array(last.position[:6]) - np.array(first.position[:6])).max()
    return float(way / max(last_s - first_s, 1e-3))


def moving(world: World, lease: str) -> None:
    """Arm, and move towards the base or away from it at a steady 0.1 m/s."""
    probe = world.probe
    wait_for(lambda: ready(world), 40.0, lambda: f"ready; arm: {problem(world)!r}")
    wait_for(lambda: probe.tend() and probe.arm(lease, timeout_s=1.0).granted, 30.0, "it arms")
    dx_m = -0.03 if probe.tcp().position_m[0] > 0.45 else 0.03
    for i in range(1, 9):
        probe.send(probe.command(lease, i, dx_m))
        time.sleep(0.1)
    assert joint_speed(world) > 0.05, "it moves"


def stands(world: World, within_s: float) -> float:
    """Wait until no joint moves; seconds that this took."""
    begun_s = time.monotonic()
    wait_for(lambda: joint_speed(world) < 0.01, within_s, lambda: f"{joint_speed(world)} rad/s")
    return time.monotonic() - begun_s


def test_kill_9_of_ik_stops_the_arm_until_a_person_resumes(world: World) -> None:
    moving(world, "first")
    os.kill(world.supervisor.pids()["ik"], signal.SIGKILL)
    poses = len(world.probe.heard["current_pose"])  # nobody tells any more before ik is back
    assert stands(world, 2.0) < 1.0  # 0.2 s, and the window in which speed is measured
    log = world.run_dir / "logs" / "watchdog.log"
    wait_for(lambda: "ik silent for" in log.read_text(), 5.0, "the watchdog says who is silent")
    wait_for(lambda: "the ik is back" in log.read_text(), 20.0, "ik is started again")
    wait_for(lambda: len(world.probe.heard["current_pose"]) > poses + 20, 10.0, "it tells the pose")
    assert world.probe.stopped(), "the controller stays stopped until a person resumes"
    where = world.probe.tcp().position_m
    wait_for(lambda: ready(world), 40.0, lambda: f"ready; arm: {problem(world)!r}")
    time.sleep(0.5)
    assert np.linalg.norm(world.probe.tcp().position_m - where) < 0.002  # no old target


def test_a_velocity_goes_on_for_ever_when_nobody_watches(world: World) -> None:
    """Why the watchdog listens to `ik`: with both gone, the controller goes on."""
    moving(world, "second")
    watchdog = world.supervisor.pids()["watchdog"]
    os.kill(watchdog, signal.SIGSTOP)
    try:
        os.kill(world.supervisor.pids()["ik"], signal.SIGKILL)
        time.sleep(0.4)
        assert joint_speed(world) > 0.05
    finally:
        os.kill(watchdog, signal.SIGCONT)
    stands(world, 3.0)


def test_ik_has_a_time_out_of_its_own(world: World) -> None:
    """Gate and watchdog are frozen: nobody sends targets, nobody stops the controller."""
    moving(world, "third")
    pids = world.supervisor.pids()
    frozen = [pids["watchdog"], pids["gate"]]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert stands(world, 3.0) < 1.5  # time-out 0.2 s, braking 0.25 s, and the window
        assert not world.probe.stopped()  # it was not the watchdog
    finally:
        for pid in reversed(frozen):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("what", ["target_pose", "joint_target"])
def test_a_second_publisher_stops_the_arm_and_is_named(world: World, what: str) -> None:
    moving(world, f"beside {what}")
    probe: Any = world.probe
    topic = topics.TARGET_POSE if what == "target_pose" else topics.JOINT_TARGET
    rival = publisher(probe.node, topic)
    try:
        stands(world, 3.0)
        wait_for(lambda: "probe publishes" in problem(world), 10.0, lambda: problem(world))
        if what == "target_pose":
            far = convert.pose_to(probe.command("rival", 1, 0.2).tcp_target_in_base, 0.0, "base")
            rival.publish(far)
        assert not probe.arm("no", timeout_s=0.5).granted
    finally:
        probe.node.destroy_publisher(rival)
    wait_for(lambda: ready(world), 40.0, lambda: f"ready; arm: {problem(world)!r}")


def test_the_node_tells_its_rate_and_how_long_a_step_takes(world: World) -> None:
    moving(world, "measured")
    told = wait_for(lambda: world.probe.diagnostics("/ik"), 5.0, "the node tells")
    assert float(told["rate_hz"]) > 100.0
    assert float(told["solve_p50_ms"]) < 8.0  # of a period of 8 ms
