"""A run of joint actions over ROS 2: on a double with a joint controller, and in released time.

Gate -> `target_joints` -> ik -> joint controller; every chain that must stop the arm still does.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mink", reason="mink is not installed: pip install 'robot-rl[ik]'")

from robot_rl.bench.arms import FAILED, bench
from robot_rl.robots import Ur5e
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import publisher
from robot_rl.run.experiment import Experiment
from robot_rl.run.record import record
from robot_rl.store.store import Store
from robot_rl.types import Command, Driver, Outcome, Verdict
from tests.support.rehearsal import rehearsal
from tests.support.ros import World, new_domain, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone]
NAMES = Ur5e().joint_names


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Double, ik, arm, gate, watchdog and operator."""
    words = ("task=reach", "task.action=joint")
    with rehearsal(tmp_path_factory.mktemp("joints"), "ur5e_forward", *words) as found:
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


def joints(world: World) -> np.ndarray:
    """As the double tells them (rad), in the robot's order."""
    return convert.positions_from(world.probe.newest(topics.JOINT_STATES), NAMES)


def joint_speed(world: World) -> float:
    """Of the fastest joint (rad/s), by its newest positions."""
    heard = world.probe.heard["joint_states"][-12:]
    (first_s, first), (last_s, last) = heard[0], heard[-1]
    way = convert.positions_from(last, NAMES) - convert.positions_from(first, NAMES)
    return float(np.abs(way).max() / max(last_s - first_s, 1e-3))


def command(world: World, lease: str, sequence: int, turn_rad: Any) -> Command:
    """The measured joints plus `turn_rad`."""
    plain = world.probe.command(lease, sequence, 0.0)
    return replace(plain, joint_target_rad=joints(world) + np.asarray(turn_rad, np.float64))


def verdict(world: World, lease: str, sequence: int) -> Verdict:
    """The gate's answer to a command."""

    def answer() -> Verdict | None:
        heard = [wire.decode_answer(m.data) for _, m in list(world.probe.heard["gate/verdict"])]
        moves = [v for v in heard if isinstance(v, Verdict) and v.command.lease == lease]
        return next((v for v in moves if v.sequence == sequence), None)

    return wait_for(answer, 5.0, "the gate answers")


def armed(world: World, lease: str) -> None:
    probe = world.probe
    wait_for(lambda: ready(world), 40.0, lambda: f"ready; arm: {problem(world)!r}")
    wait_for(lambda: probe.tend() and probe.arm(lease, timeout_s=1.0).granted, 30.0, "it arms")


def moving(world: World, lease: str) -> None:
    """Arm, and turn about the vertical axis, towards the middle or away from it."""
    armed(world, lease)
    turn = np.zeros(6)
    turn[0] = -0.03 if world.probe.tcp().position_m[1] > 0.0 else 0.03
    for i in range(1, 9):
        world.probe.send(command(world, lease, i, turn))
        time.sleep(0.1)
    assert joint_speed(world) > 0.03, "it moves"


def stands(world: World, within_s: float) -> float:
    """Wait until no joint moves; seconds that this took."""
    begun_s = time.monotonic()
    wait_for(lambda: joint_speed(world) < 0.01, within_s, lambda: f"{joint_speed(world)} rad/s")
    return time.monotonic() - begun_s


def test_the_gate_moves_the_joints_and_no_tcp_target_is_ever_sent(world: World) -> None:
    armed(world, "first")
    goal = joints(world) + np.array((0.02, -0.02, 0.02, 0.0, 0.03, -0.03))
    sequence = itertools.count(1)

    def passed_and_there() -> Verdict | None:
        """A busy machine delays the state now and then, and the gate holds for a moment."""
        i = next(sequence)
        world.probe.send(command(world, "first", i, goal - joints(world)))
        time.sleep(0.1)
        said = verdict(world, "first", i)
        there = float(np.abs(joints(world) - goal).max()) < 2e-3
        return said if there and said.outcome is Outcome.PASS else None

    said = wait_for(passed_and_there, 10.0, lambda: f"joints at {goal}, got {joints(world)}")
    assert said.command.joint_target_rad is not None
    np.testing.assert_allclose(said.command.joint_target_rad, goal, atol=1e-3)
    assert world.probe.heard["target_joints"] and not world.probe.heard["target_pose"]


def test_a_tcp_target_is_held_and_the_reason_is_told(world: World) -> None:
    armed(world, "second")
    before = joints(world)
    world.probe.send(world.probe.command("second", 1, 0.02))
    said = verdict(world, "second", 1)
    assert said.outcome is Outcome.HOLD and said.reason.startswith("target: one of the TCP")
    time.sleep(0.3)
    np.testing.assert_allclose(joints(world), before, atol=2e-3)


def test_kill_9_of_ik_stops_the_arm_until_a_person_resumes(world: World) -> None:
    moving(world, "third")
    os.kill(world.supervisor.pids()["ik"], signal.SIGKILL)
    assert stands(world, 2.0) < 1.0  # 0.2 s, and the window in which speed is measured
    log = world.run_dir / "logs" / "watchdog.log"
    wait_for(lambda: "the ik is back" in log.read_text(), 25.0, "ik is started again")
    assert world.probe.stopped(), "the controller stays stopped until a person resumes"
    where = joints(world)
    wait_for(lambda: ready(world), 40.0, lambda: f"ready; arm: {problem(world)!r}")
    time.sleep(0.5)
    np.testing.assert_allclose(joints(world), where, atol=2e-3)  # no old target


def test_silence_stops_the_arm_where_it_is(world: World) -> None:
    """Nobody sends any more: the gate latches the joints; is it frozen, too, ik brakes itself."""
    moving(world, "fourth")
    assert stands(world, 3.0) < 1.5
    moving(world, "fifth")
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


def test_a_second_publisher_of_joint_targets_stops_the_arm_and_is_named(world: World) -> None:
    moving(world, "sixth")
    rival = publisher(world.probe.node, topics.TARGET_JOINTS)
    try:
        stands(world, 3.0)
        wait_for(lambda: "probe publishes" in problem(world), 10.0, lambda: problem(world))
        far = convert.joints_to(list(NAMES), [0.0] * 6, [], 0.0)
        rival.publish(far)
        time.sleep(0.3)
        assert joint_speed(world) < 0.01
    finally:
        world.probe.node.destroy_publisher(rival)
    wait_for(lambda: ready(world), 40.0, lambda: f"ready; arm: {problem(world)!r}")


def test_joint_states_of_a_stranger_stop_the_arm_and_move_it_nowhere(world: World) -> None:
    """joint_state_publisher is started for RViz: the same names, all zero, fresh stamps."""
    moving(world, "seventh")
    probe = world.probe
    rival = publisher(probe.node, topics.JOINT_STATES)
    poses, before_m = len(probe.heard["current_pose"]), probe.tcp().position_m

    def named() -> bool:
        rival.publish(convert.joints_to(list(NAMES), [0.0] * 6, [0.0] * 6, time.time()))
        time.sleep(0.05)
        return "jumped from" in problem(world)

    try:
        wait_for(named, 10.0, lambda: f"the joint is named; {problem(world)!r}")
        for _ in range(20):
            assert named()
    finally:
        probe.node.destroy_publisher(rival)
    told = [convert.pose_from(m).position_m for _, m in probe.heard["current_pose"][poses:]]
    assert max(np.linalg.norm(m - before_m) for m in told) < 0.05  # 0.25 m/s at most, and braking
    assert stands(world, 3.0) < 1.5
    wait_for(lambda: ready(world), 40.0, lambda: f"ready; arm: {problem(world)!r}")
    assert np.linalg.norm(probe.tcp().position_m - before_m) < 0.05


@pytest.mark.slow
def test_a_double_learns_from_a_person_in_joint_actions_and_survives_kill_9() -> None:
    """Demonstrations and corrections with a twist device, practice, a policy at work, kill -9."""
    table = bench(0.0, only="ur5e_joint_actions")
    assert not [cell for cell in table.values() if cell.startswith(FAILED)], table


@pytest.mark.slow
def test_in_released_time_the_simulated_arm_takes_joint_targets(tmp_path: Path) -> None:
    words = ["experiment=reach", "robot=ur5e", "task.action=joint", "runtime=ros"]
    run = tmp_path / "run"
    words += ["train.demos=2", f"ros.domain_id={new_domain()}", f"run_dir={run}"]
    record(Experiment.compose(words))
    with Store(run / "actor.sqlite") as store:
        found = store.episode_summaries()
        steps = [s for e in found for s in store.steps(e.id)]
    assert sum(bool(e.success) for e in found) == 2
    assert {s.driver for s in steps} == {Driver.DEMO} and {len(s.action) for s in steps} == {6}
