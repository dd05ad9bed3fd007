"""The real graph as processes: what happens when one of them is killed, or misbehaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from std_msgs.msg import String

from robot_rl.geometry import pose
from robot_rl.ros import convert, topics, wire
from robot_rl.ros.endpoints import publisher
from robot_rl.ros.gate_node import GONE
from robot_rl.system import priority
from robot_rl.types import Outcome, Verdict
from tests.support.probe import Probe
from tests.support.ros import World, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone, pytest.mark.waits]

REQUESTER = Path(__file__).with_name("requester.py")
STILL_M = 0.001  # an arm that "does not move": 1 mm
ATTEMPTS = 3  # for figures in wall time: one undisturbed attempt on a busy test machine is enough


def start_requester(world: World, lease: str) -> subprocess.Popen[bytes]:
    env = os.environ | {"ROS_DOMAIN_ID": str(world.domain_id), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(REQUESTER), lease], env=env)


def situation(world: World) -> str:
    """What a person would want to know when an arm does not move."""
    probe = world.probe
    return (
        f"{probe.report()}, stopped {probe.stopped()}, last answer "
        f"{probe.newest(topics.GATE_VERDICT)}, sim {probe.diagnostics('/sim')}, "
        f"watchdog {probe.diagnostics('/watchdog')}"
    )


def wait_moving(world: World, lease: str) -> None:
    """Until the gate runs `lease` and the arm really moves."""
    probe = world.probe

    def drives() -> bool:
        report = probe.report()
        if probe.stopped() or (report and report.mode == "protective_stop"):
            probe.settle()  # a busy machine starved the gate for 0.2 s: the watchdog was right
        return report is not None and report.mode == "run" and report.lease == lease

    def moves(x_m: float) -> bool:
        return drives() and abs(probe.tcp().position_m[0] - x_m) > 0.005

    wait_for(drives, 15.0, lambda: f"{lease} drives; gate says {probe.report()}")
    x_m = probe.tcp().position_m[0]
    wait_for(
        lambda: moves(x_m),
        8.0,
        lambda: f"the arm moves; {situation(world)}",
    )
    wait_for(lambda: sum(m.lease == lease for m in probe.moves()) >= 3, 15.0, "the probe hears it")


def at_rest(world: World) -> bool:
    """The impedance controller has settled: less than 0.1 mm in 0.2 s."""
    probe = world.probe
    before_m, before_s = probe.tcp().position_m, probe.now_s()
    wait_for(lambda: probe.now_s() > before_s + 0.2, 15.0, "run time goes on")
    return bool(np.linalg.norm(probe.tcp().position_m - before_m) < 0.0001)


def calm(world: World) -> None:
    """Back to a gate in HOLD and a controller that listens, as a person would do it."""
    probe = world.probe

    def holds() -> bool:  # a busy watchdog may stop the controller once more between two looks
        probe.settle()
        probe.call(topics.GATE_HOLD)
        return (report := probe.report()) is not None and report.mode == "hold"

    wait_for(holds, 20.0, lambda: f"the gate holds; {situation(world)}")
    wait_for(lambda: at_rest(world), 15.0, "the arm has come to rest")
    assert probe.call(topics.GATE_RESUME).success


def test_graph_comes_up_in_hold_and_reports_its_health(world: World) -> None:
    probe = world.probe
    assert probe.report().mode == "hold"
    state = probe.newest(topics.JOINT_STATES)
    assert len(state.name) == 9 and state.name[0] == "fr3_joint1"
    before = len(probe.heard["current_pose"])
    began_s = time.monotonic()
    time.sleep(1.0)
    rate_hz = (len(probe.heard["current_pose"]) - before) / (time.monotonic() - began_s)
    assert 25 < rate_hz < 60  # 50, on a machine that may stall
    wait_for(lambda: probe.diagnostics("/gate").get("mode") == "hold", 15.0, "gate diagnostics")
    for node in ("/sim", "/gate", "/watchdog", "/operator"):
        wait_for(lambda n=node: probe.diagnostics(n), 15.0, f"diagnostics of {node}")
    rate = lambda: float(probe.diagnostics("/gate").get("joint_states/rate_hz", 0))  # noqa: E731
    wait_for(lambda: rate() > 30, 15.0, "the gate sees joint_states at 50 Hz")


def test_an_armed_request_moves_the_arm_and_is_answered(world: World) -> None:
    probe = world.probe
    calm(world)
    assert probe.arm("mover").granted
    start_m = probe.tcp().position_m
    for sequence in range(1, 6):
        probe.send(probe.command("mover", sequence, 0.01))
        time.sleep(0.1)
    answers = [wire.decode_answer(m.data) for _, m in probe.heard["gate/verdict"]]
    sent = [a for a in answers if not isinstance(a, wire.ArmAnswer) and a.command.lease == "mover"]
    held = [a.reason for a in sent if str(a.outcome) == "hold"]
    assert len(sent) == 5 and len(held) <= 1
    assert all(r.startswith(("speed: too soon", "age")) for r in held)  # a stall of this machine
    wait_for(
        lambda: probe.tcp().position_m[0] - start_m[0] > 0.005,
        2.0,
        lambda: f"the arm moved; {probe.tcp().position_m - start_m} m; {situation(world)}",
    )
    probe.wait_mode("pause")  # nobody sends any more
    calm(world)


def test_a_wish_to_drive_that_is_older_than_the_last_hold_is_refused(world: World) -> None:
    probe = world.probe
    calm(world)
    for ahead_s in (
        -5.0,
        0.0,
        0.04,
    ):  # two ticks: clocks of two processes differ
        assert probe.call(topics.GATE_HOLD).success
        asked_s = probe.now_s() + ahead_s
        probe.send(wire.ArmRequest("late", asked_s))  # a copy that was still on its way
        answers = probe.answers("late", 1.0)
        assert answers and not answers[-1].granted and answers[-1].reason.startswith("age")
        assert probe.report().mode == "hold"


def test_after_a_persons_hold_nothing_arms_until_a_person_lets_it_go_on(world: World) -> None:
    probe = world.probe
    calm(world)
    assert probe.arm("driver").granted
    assert probe.call(topics.GATE_HOLD).success
    time.sleep(0.5)
    probe.send(wire.ArmRequest("asks", probe.now_s()))
    answers = probe.answers("asks", 1.0)
    assert answers and not answers[-1].granted and answers[-1].reason.startswith("person")
    wait_for(lambda: probe.report().waits, 15.0, "the gate says that it waits")
    assert probe.call(topics.GATE_RESUME).success
    assert probe.report().mode == "hold"  # going on is not arming
    assert probe.arm("driver").granted
    calm(world)


def test_a_request_without_the_lease_moves_nothing(world: World) -> None:
    probe = world.probe
    start_m = probe.tcp().position_m
    for sequence in range(3):
        probe.send(probe.command("stranger", sequence, 0.03))
        time.sleep(0.1)
    time.sleep(0.3)
    assert np.linalg.norm(probe.tcp().position_m - start_m) < STILL_M


def test_garbage_on_the_request_topic_is_counted_and_ignored(world: World) -> None:
    probe = world.probe
    before = probe.report().rejected
    garbage = ["", "{", "[]", "null", '{"kind":"move"}', "x" * 20_000, '{"kind":"arm","lease":3}',
               '{"kind":"move","command":{"sequence":NaN}}', "[" * 5000]  # fmt: skip
    start_m = probe.tcp().position_m
    for text in garbage:
        probe.requests.publish(String(data=text))
        time.sleep(0.02)  # depth 10: a burst may be thinned out, which is not what is tested
    wait_for(lambda: probe.report().rejected == before + len(garbage), 15.0, "all counted")
    assert probe.report().mode == "hold"
    assert np.linalg.norm(probe.tcp().position_m - start_m) < STILL_M
    assert "gate" in world.supervisor.pids() and world.supervisor.restarts()["gate"] == 0


def test_the_gate_runs_at_its_priority_where_that_is_allowed(world: World) -> None:
    policy = os.sched_getscheduler(world.supervisor.pids()["gate"])
    assert policy == (os.SCHED_RR if priority.allowed() else os.SCHED_OTHER)


def killed_requester(world: World, lease: str) -> tuple[float, float]:
    """Kill -9 a moving requester; (run time from its last command to the hold, wall time).

    The gate sees the end of its process; without that it would wait for the next command to be
    late, 150 ms after the last.
    """
    probe = world.probe
    requester = start_requester(world, lease)
    try:
        wait_moving(world, lease)
    finally:
        requester.kill()
    killed_s = time.monotonic()
    requester.wait()

    def holds() -> list[tuple[float, wire.GateReport]]:
        return [(t, r) for t, r in probe.reports() if t > killed_s and r.mode != "run"]

    arrived_s, report = wait_for(holds, 15.0, "the gate holds")[0]
    assert (report.mode, report.reason) == ("hold", GONE)
    moves = [r for r in probe.moves() if r.lease == lease]
    return report.stamp_s - moves[-1].stamp_s, arrived_s - killed_s


def test_kill_9_of_the_requester_holds_at_once(world: World) -> None:
    probe = world.probe
    held: list[tuple[float, float]] = []
    for attempt in range(ATTEMPTS):
        held.append(killed_requester(world, f"killed-{attempt}"))
        time.sleep(0.5)  # the impedance controller settles at the hold pose
        where_m = probe.tcp().position_m
        time.sleep(0.5)
        assert np.linalg.norm(probe.tcp().position_m - where_m) < STILL_M
        calm(world)
        if held[-1][0] <= 0.13 and held[-1][1] <= 0.06:
            return
    pytest.fail(f"held after (run s, wall s): {held}")


def test_a_second_publisher_stops_the_gate_and_is_ignored_by_the_arm(world: World) -> None:
    probe = world.probe
    calm(world)
    time.sleep(0.5)  # at rest
    assert probe.arm("victim").granted
    start = probe.tcp()
    stranger = Probe(world.domain_id)
    rival = publisher(stranger.node, topics.TARGET_POSE)
    lure = convert.pose_to(pose(start.position_m + 0.05, start.quaternion_xyzw), 0.0, "base")
    try:
        wait_for(lambda: probe.node.count_publishers("target_pose") == 2, 15.0, "both are seen")
        assert "publishers" in probe.wait_mode("protective_stop").reason
        for _ in range(10):
            rival.publish(lure)
            time.sleep(0.05)
        assert np.linalg.norm(probe.tcp().position_m - start.position_m) < STILL_M
        wait_for(lambda: "publishers" in probe.diagnostics("/sim").get("message", ""), 15.0, "told")
        ignored = lambda: int(probe.diagnostics("/sim")["commands_ignored"])  # noqa: E731
        wait_for(lambda: ignored() > 0, 15.0, "ignored commands are counted")
        assert probe.call(topics.GATE_ACKNOWLEDGE).success
        assert not probe.arm("victim", timeout_s=0.5).granted  # still two
    finally:
        stranger.close()
    wait_for(lambda: probe.node.count_publishers("target_pose") == 1, 15.0, "the rival is gone")
    assert probe.arm("victim").granted
    calm(world)


def refused(probe: Probe, lease: str, because: str) -> str:
    """Ask to arm until it is refused for this reason, which is returned; never granted."""

    def asks() -> str:  # a wish that is as old as the stop, or late, is refused for its age
        answer = probe.arm(lease, timeout_s=0.2)
        assert not answer.granted
        return answer.reason if because in answer.reason else ""

    return wait_for(asks, 10.0, f"refused because of {because}")


@pytest.mark.parametrize("topic", [topics.CURRENT_POSE], ids=lambda t: t.name)
def test_a_second_source_of_the_state_stops_the_gate_and_nothing_arms(
    world: World, topic: topics.Topic
) -> None:
    """A recording that is played back: the step would be measured from where the arm is not."""
    probe = world.probe
    calm(world)
    assert probe.arm("victim").granted
    stranger = Probe(world.domain_id)
    rival = publisher(stranger.node, topic)
    try:
        probe.wait_mode("protective_stop", 15.0)  # a busy machine may have had another cause first
        told = lambda: topic.name in probe.diagnostics("/gate").get("message", "")  # noqa: E731
        wait_for(told, 15.0, "the gate names it")
        probe.settle()
        assert topic.name in refused(probe, "victim", "publishers: 2 on")
    finally:
        stranger.node.destroy_publisher(rival)
        stranger.close()
    assert probe.arm("victim", timeout_s=15.0).granted
    calm(world)


def test_a_foreign_heartbeat_keeps_nobody_quiet(world: World) -> None:
    """The gate could die, and the watchdog would hear somebody else's beats."""
    probe = world.probe
    calm(world)
    stranger = Probe(world.domain_id)
    rival = publisher(stranger.node, topics.GATE_HEARTBEAT)
    try:
        wait_for(probe.stopped, 15.0, "the watchdog stops the controller")
        told = lambda: "gate/heartbeat" in probe.diagnostics("/gate").get("message", "")  # noqa: E731
        wait_for(told, 15.0, "the gate names it, too")
        probe.settle()
        refused(probe, "driver", "gate/heartbeat")
    finally:
        stranger.node.destroy_publisher(rival)
        stranger.close()
    wait_for(lambda: probe.node.count_publishers("gate/heartbeat") == 1, 15.0, "it is gone")
    calm(world)


def test_nobody_gives_a_running_node_another_clock(world: World) -> None:
    """Ages that were measured on one clock mean nothing on another."""
    probe = world.probe
    off = Parameter("use_sim_time", Parameter.Type.BOOL, False).to_parameter_msg()
    for name in ("gate", "operator"):
        client = probe.node.create_client(SetParameters, f"{name}/set_parameters")
        wait_for(client.service_is_ready, 10.0, f"parameters of {name}")
        future = client.call_async(SetParameters.Request(parameters=[off]))
        wait_for(future.done, 10.0, "an answer")
        (answer,) = future.result().results
        assert not answer.successful and "read-only" in answer.reason


def killed_gate(world: World, lease: str) -> float:
    """Kill -9 the gate while the arm moves; wall time until the controller is stopped."""
    probe = world.probe
    requester = start_requester(world, lease)
    try:
        wait_moving(world, lease)
        os.kill(world.supervisor.pids()["gate"], signal.SIGKILL)
        killed_s = time.monotonic()
        wait_for(probe.stopped, 15.0, "the watchdog stops the controller")
        stops = probe.heard["controller/stopped"]
        return next(t for t, m in stops if t > killed_s and m.data) - killed_s
    finally:
        requester.kill()
        requester.wait()


def test_kill_9_of_the_gate_stops_the_controller_and_recovery_moves_nothing(world: World) -> None:
    probe, took_s = world.probe, []
    for attempt in range(ATTEMPTS):
        restarts = world.supervisor.restarts()["gate"]
        took_s.append(killed_gate(world, f"orphan-{attempt}"))
        wait_for(lambda: at_rest(world), 15.0, "the arm has come to rest")
        where_m = probe.tcp().position_m
        wait_for(lambda n=restarts: world.supervisor.restarts()["gate"] > n, 10.0, "restarted")
        before = len(probe.heard["gate/heartbeat"])
        wait_for(lambda n=before: len(probe.heard["gate/heartbeat"]) > n + 5, 10.0, "it beats")
        assert probe.wait_mode("protective_stop").reason == "controller: stopped"
        assert probe.stopped()  # a gate that is back does not resume anything by itself
        assert not probe.call(topics.GATE_ACKNOWLEDGE).success  # it would listen to nobody yet
        assert probe.call(topics.CONTROLLER_RESUME).success
        time.sleep(0.7)
        probe.wait_mode("protective_stop")
        assert probe.call(topics.GATE_ACKNOWLEDGE).success
        assert np.linalg.norm(probe.tcp().position_m - where_m) < STILL_M
        assert probe.arm("after", timeout_s=10.0).granted  # the dead publisher is forgotten
        calm(world)
        if took_s[-1] <= 0.4:
            return
    pytest.fail(f"stopped after {took_s} s")


def test_a_gate_that_was_frozen_does_not_drive_a_stopped_controller(world: World) -> None:
    """The controller stands still: commands that passed would be learned as motion."""
    probe = world.probe
    requester = start_requester(world, "frozen")
    pid = world.supervisor.pids()["gate"]
    try:
        wait_moving(world, "frozen")
        os.kill(pid, signal.SIGSTOP)
        frozen_s = time.monotonic()
        wait_for(probe.stopped, 15.0, "the watchdog stops the controller")
        time.sleep(max(0.0, frozen_s + 0.5 - time.monotonic()))
        asked = len(probe.moves())
        os.kill(pid, signal.SIGCONT)
        awake_s = time.monotonic()
        report = probe.wait_mode("protective_stop")
        assert report.reason == "controller: stopped"
        wait_for(lambda: at_rest(world), 15.0, "the arm has come to rest")
        where_m = probe.tcp().position_m
        wait_for(lambda: len(probe.moves()) > asked + 5, 15.0, "the requester goes on asking")
        assert probe.call(topics.CONTROLLER_RESUME).success
        time.sleep(0.7)
        assert np.linalg.norm(probe.tcp().position_m - where_m) < STILL_M
        probe.wait_mode("protective_stop")
        heard = [(t, wire.decode_answer(m.data)) for t, m in list(probe.heard["gate/verdict"])]
        since = [v for t, v in heard if t > awake_s and isinstance(v, Verdict)]
        assert since and [v for v in since if v.outcome is not Outcome.HOLD] == []
    finally:
        os.kill(pid, signal.SIGCONT)
        requester.kill()
        requester.wait()
    calm(world)


def test_nothing_arms_without_a_watchdog(world: World) -> None:
    """If the gate died then, the controller would hold its last target for ever."""
    probe, pid = world.probe, world.supervisor.pids()["watchdog"]
    calm(world)
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.6)  # frozen for 3 s, DDS would forget the process and find it anew
        refused = probe.arm("unwatched", timeout_s=0.2)
        assert not refused.granted and refused.reason.startswith("watchdog: silent")
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.5)
    assert not probe.stopped()  # awake again, it hears first what the gate said meanwhile
    assert probe.arm("watched").granted
    calm(world)


def test_sigterm_to_the_gate_ends_with_a_hold(world: World) -> None:
    probe = world.probe
    requester = start_requester(world, "terminated")
    try:
        wait_moving(world, "terminated")
        restarts = world.supervisor.restarts()["gate"]
        pid = world.supervisor.pids()["gate"]
        asked_s = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: world.supervisor.pids().get("gate") != pid, 15.0, "it has ended")
        time.sleep(0.1)
        ended = [(t, r) for t, r in probe.reports() if t > asked_s]
        assert ended and ended[-1][1].reason == "gate: shutting down"
        sent_s, last = [x for x in probe.heard["target_pose"] if x[0] > asked_s][-1]
        measured = [m for t, m in probe.heard["current_pose"] if t <= sent_s][-1]
        gap_m = convert.pose_from(last).position_m - convert.pose_from(measured).position_m
        assert np.linalg.norm(gap_m) < 0.004  # the measured pose, not the 10 mm ahead of it
        wait_for(lambda: world.supervisor.restarts()["gate"] > restarts, 15.0, "started again")
        before = len(probe.heard["gate/heartbeat"])
        wait_for(lambda: len(probe.heard["gate/heartbeat"]) > before, 10.0, "it beats")
    finally:
        requester.kill()
        requester.wait()
