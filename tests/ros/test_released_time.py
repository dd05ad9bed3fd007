"""Released time in the real graph: nobody is late because they are slow; who is gone is noticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.ros import topics, wire
from robot_rl.ros.graph import SimGraphConfig, sim_graph
from robot_rl.ros.release import LIMITS_S
from tests.support.ros import World, wait_for, write_run

pytestmark = [pytest.mark.ros, pytest.mark.alone]
REQUESTER = Path(__file__).with_name("requester.py")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Sim, gate, watchdog and operator on released time; anew for each try of a test."""
    run = write_run(tmp_path)
    world = World(sim_graph(SimGraphConfig(with_actor=False, unattended=True), str(run)), run)
    try:
        world.probe.wait_state()
        yield world
    finally:
        world.close()


def start_requester(world: World, lease: str, *more: str) -> subprocess.Popen[bytes]:
    """An actor that sways; more: wall seconds it thinks in each tick."""
    env = os.environ | {"ROS_DOMAIN_ID": str(world.domain_id), "OMP_NUM_THREADS": "1"}
    requester = subprocess.Popen([sys.executable, str(REQUESTER), lease, *more], env=env)
    wait_for(
        lambda: (r := world.probe.report()) is not None and (r.mode, r.lease) == ("run", lease),
        20.0,
        lambda: f"{lease} drives; the gate says {world.probe.report()}",
    )
    # until it first sleeps on the clock, nobody knows that there is an actor
    drives_s = time.monotonic()
    wait_for(lambda: waits_for_the_actor(world, drives_s), 10.0, "the clock waits for the actor")
    return requester


def waits_for_the_actor(world: World, since_s: float) -> bool:
    """Whether the clock waited for an actor after `since_s` (monotonic), and has not given it up.

    A pace tells what was waited since the pace before, so the first one after `since_s` may still
    be about the actor of the test before.
    """
    heard = [m for t, m in list(world.probe.heard[topics.CLOCK_PACE.name]) if t > since_s][1:]
    pace = wire.decode_pace(heard[-1].data) if heard else None
    return pace is not None and pace.waited.get("actor", 0.0) > 0.0 and not pace.given_up


def factor(world: World, for_s: float) -> float:
    """Run seconds per wall second."""
    run_s, began_s = world.probe.now_s(), time.monotonic()
    time.sleep(for_s)
    return (world.probe.now_s() - run_s) / (time.monotonic() - began_s)


def test_an_actor_that_takes_longer_than_its_period_is_not_late(world: World) -> None:
    """At real time 0.4 s of thinking in a tick of 0.1 s would be held in each tick."""
    requester = start_requester(world, "slow", "0.4")
    try:
        wait_for(lambda: factor(world, 1.0) < 0.5, 10.0, "the clock goes as the actor does")
        began_s = time.monotonic()
        assert factor(world, 3.0) < 0.5
        modes = [(r.mode, r.reason) for t, r in world.probe.reports() if t > began_s]
        assert modes and set(modes) == {("run", "")}
        pace = wire.decode_pace(world.probe.newest(topics.CLOCK_PACE).data)
        assert pace.waited["actor"] > 0.6 and not pace.given_up
    finally:
        requester.terminate()
        requester.wait()


def test_time_does_not_race_before_anybody_has_joined(tmp_path: Path) -> None:
    """Whoever came later would see a clock that leaps: a gate takes that for a restarted robot."""
    run = write_run(tmp_path)
    graph = sim_graph(SimGraphConfig(with_actor=False), str(run))
    alone = World([spec for spec in graph if spec.name == "sim"], run)
    try:
        wait_for(lambda: alone.probe.heard[topics.CLOCK.name], 30.0, "the clock goes")
        assert factor(alone, 2.0) < 1.3
    finally:
        alone.close()


@pytest.mark.slow
def test_a_frozen_actor_stops_time_then_the_gate_holds_as_on_a_robot(world: World) -> None:
    requester = start_requester(world, "frozen")
    try:
        requester.send_signal(signal.SIGSTOP)
        time.sleep(0.5)  # what was on its way has arrived
        run_s = world.probe.now_s()
        time.sleep(1.0)
        assert world.probe.now_s() == run_s  # stands still: nothing moves, nobody is late
        frozen_s = time.monotonic()
        wait_for(lambda: world.probe.now_s() > run_s, LIMITS_S["actor"] + 3.0, "time goes on")
        report = wait_for(
            lambda: [r for t, r in world.probe.reports() if t > frozen_s and r.mode == "pause"],
            5.0,
            "the gate pauses",
        )[0]
        assert "command" in report.reason
        assert factor(world, 1.5) < 1.3  # real time: the real watchdogs judge
        requester.send_signal(signal.SIGCONT)
        assert wait_for(lambda: factor(world, 0.5) > 1.5, 20.0, "time is released again")
    finally:
        requester.send_signal(signal.SIGCONT)
        requester.kill()
        requester.wait()


def test_a_frozen_gate_stops_time_and_the_watchdog_the_controller(world: World) -> None:
    """The watchdog trusts no clock: 0.2 s of wall time, while simulated time stands still."""
    probe = world.probe
    gate = world.supervisor.pids()["gate"]
    os.kill(gate, signal.SIGSTOP)
    try:
        wait_for(probe.stopped, 5.0, "the watchdog stops the controller")
    finally:
        os.kill(gate, signal.SIGCONT)
    wait_for(lambda: not probe.stopped(), 15.0, "the unattended script resumes")


def test_killing_the_gate_does_not_stop_time_for_ever(world: World) -> None:
    before = world.supervisor.restarts()["gate"]
    os.kill(world.supervisor.pids()["gate"], signal.SIGKILL)
    wait_for(lambda: world.supervisor.restarts()["gate"] > before, 15.0, "the gate is restarted")
    run_s = world.probe.now_s()
    wait_for(lambda: world.probe.now_s() > run_s + 2.0, 20.0, "run time goes on")
    world.probe.settle()
