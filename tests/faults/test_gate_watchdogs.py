"""Time-outs, silence, lost state, hard contact: the gate holds in time, and stays so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from robot_rl.bench.faults.gate_bench import HOME, JOINTS, GateBench, robot_state
from robot_rl.errors import SafetyError
from robot_rl.safety import gate as rules
from robot_rl.safety.states import Mode
from robot_rl.types import Driver, Outcome

PUSHED = HOME + np.array((0.0, 0.2, 0.0))


def run_until_held(bench: GateBench, step_s: float = 0.02, limit_s: float = 1.0) -> float:
    """Tick at 50 Hz until the gate leaves RUN; returns the time that took."""
    begin_s = bench.now_s
    while bench.gate.mode is Mode.RUN and bench.now_s - begin_s < limit_s:
        bench.wait(step_s)
        bench.tick()
    return bench.now_s - begin_s


def test_a_silent_actor_is_held_after_one_and_a_half_periods() -> None:
    bench = GateBench()
    assert bench.judge().outcome is Outcome.PASS
    held_after_s = run_until_held(bench)
    assert 0.15 < held_after_s <= 0.15 + 0.02 + 1e-9
    assert bench.gate.mode is Mode.PAUSE and bench.gate.reason.startswith("command_late")


def test_the_same_lease_goes_on_after_being_late_but_another_must_arm() -> None:
    bench = GateBench()
    bench.judge()
    run_until_held(bench)
    stranger = bench.judge(lease="other")
    assert stranger.outcome is Outcome.HOLD and stranger.reason.startswith("lease")
    assert bench.gate.mode is Mode.PAUSE
    assert bench.judge().outcome is Outcome.PASS
    assert bench.gate.mode is Mode.RUN


def test_a_restarted_actor_takes_over_a_paused_gate_by_arming() -> None:
    bench = GateBench(lease="before the crash")
    bench.judge()
    assert bench.arm("restarted").startswith("lease")  # still running: refused
    run_until_held(bench)
    assert bench.arm("restarted") == ""
    bench.sequence = 0
    assert bench.judge(lease="restarted").outcome is Outcome.PASS
    assert bench.judge(lease="before the crash", sequence=99).reason.startswith("lease")


@pytest.mark.parametrize("driver", [Driver.CORRECTION, Driver.RECOVERY, Driver.DEMO])
def test_a_silent_operator_is_held_within_120_ms(driver: Driver) -> None:
    bench = GateBench()
    bench.heartbeat(driving=True)
    assert bench.judge(driver=driver).outcome is Outcome.PASS
    assert run_until_held(bench) <= 0.12 + 1e-9
    assert bench.gate.reason.startswith("operator_silent")


def test_after_silence_a_person_must_release_and_press_again() -> None:
    bench = GateBench()
    bench.heartbeat(driving=True)
    bench.judge(driver=Driver.CORRECTION)
    run_until_held(bench)
    bench.heartbeat(driving=True)  # the network is back, the button was never released
    assert bench.judge(driver=Driver.CORRECTION).outcome is Outcome.HOLD
    bench.wait()
    assert bench.judge(driver=Driver.POLICY).outcome is Outcome.HOLD  # nor does the policy resume
    assert bench.arm() == "operator: release the device first"
    bench.heartbeat(driving=False)
    bench.wait()
    assert bench.judge(driver=Driver.POLICY).outcome is Outcome.HOLD
    bench.heartbeat(driving=True)
    assert bench.judge(driver=Driver.CORRECTION).outcome is Outcome.PASS


def test_after_silence_and_release_the_policy_needs_an_arm() -> None:
    bench = GateBench()
    bench.heartbeat(driving=True)
    bench.judge(driver=Driver.CORRECTION)
    run_until_held(bench)
    bench.heartbeat(driving=False)
    assert bench.judge().outcome is Outcome.HOLD
    assert bench.arm() == ""
    assert bench.judge().outcome is Outcome.PASS


def test_a_heartbeat_that_jitters_by_80_ms_never_holds() -> None:
    bench = GateBench()
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        bench.heartbeat(driving=True)
        if bench.now_s - bench.gate.moved_s >= 0.05:
            assert bench.judge((0.0, 0.0, 0.0), driver=Driver.CORRECTION).outcome is Outcome.PASS
        bench.wait(float(rng.uniform(0.01, 0.09)))
        bench.tick()
        assert bench.gate.mode is Mode.RUN


def test_a_persons_command_without_the_device_held_does_not_move() -> None:
    bench = GateBench()
    verdict = bench.judge(driver=Driver.CORRECTION)
    assert verdict.outcome is Outcome.HOLD and verdict.reason.startswith("operator")
    bench.wait()
    assert bench.judge(driver=Driver.POLICY).outcome is Outcome.PASS


def test_arming_is_refused_while_the_device_is_held() -> None:
    bench = GateBench(armed=False)
    for _ in range(1_000):
        bench.wait(0.02)
        bench.heartbeat(driving=True)  # a stuck key
        assert bench.arm() == "operator: release the device first"
    bench.heartbeat(driving=False)
    assert bench.arm() == ""


def test_lost_robot_state_is_a_protective_stop_within_100_ms() -> None:
    bench = GateBench()
    bench.judge()
    while bench.gate.mode is Mode.RUN:
        bench.now_s += 0.02  # time passes, no new state
        bench.tick()
    assert bench.now_s <= 0.1
    assert bench.gate.mode is Mode.PROTECTIVE_STOP and bench.gate.reason.startswith("state")


@pytest.mark.parametrize(
    "changes",
    [
        {"stamp_s": 0.04},
        {"wrench_in_tcp": np.full(6, np.nan)},
        {"joint_position_rad": np.full(7, np.inf)},
        {"joint_position_rad": np.zeros(6)},
        {"tcp_in_base": dataclasses.replace(robot_state().tcp_in_base, position_m=np.full(3, 1e9))},
        {"tcp_in_base": dataclasses.replace(robot_state().tcp_in_base, quaternion_xyzw=np.ones(4))},
    ],
)
def test_a_state_that_cannot_be_trusted_stops_and_is_never_held_at(changes: dict) -> None:
    bench = GateBench()
    bench.wait()
    bench.state = dataclasses.replace(bench.state, **changes)
    verdict = bench.judge(tcp_target_in_base=robot_state().tcp_in_base)
    assert bench.gate.mode is Mode.PROTECTIVE_STOP
    np.testing.assert_allclose(verdict.command.tcp_target_in_base.position_m, HOME)


@pytest.mark.parametrize("through", ["tick", "judge"])
@pytest.mark.parametrize("wrench", [(60, 0, 0, 0, 0, 0), (0, 0, 0, 0, 11, 0)])
def test_hard_contact_is_a_protective_stop_in_the_same_call(through: str, wrench: tuple) -> None:
    bench = GateBench()
    bench.wait()
    bench.state = dataclasses.replace(bench.state, wrench_in_tcp=np.array(wrench, float))
    verdict = bench.tick() if through == "tick" else bench.judge()
    assert verdict is not None and verdict.reason.startswith("force")
    assert bench.gate.mode is Mode.PROTECTIVE_STOP


def test_after_a_protective_stop_nothing_moves_until_acknowledged_and_armed() -> None:
    bench = GateBench()
    bench.judge()
    bench.gate = rules.stop(bench.gate, "person: pressed stop")
    bench.wait()
    assert bench.judge().outcome is Outcome.HOLD
    assert bench.arm().startswith("protective_stop: acknowledge first (person")
    bench.gate = rules.hold(bench.gate, "person")  # a hold does not soften it
    assert bench.gate.mode is Mode.PROTECTIVE_STOP
    bench.gate = rules.stop(bench.gate, "later cause")
    assert bench.gate.reason == "person: pressed stop"  # the first cause is acknowledged
    bench.heartbeat(driving=True)
    bench.gate, refusal = rules.acknowledge(bench.gate)
    assert refusal  # not with the device held
    bench.heartbeat(driving=False)
    bench.gate, refusal = rules.acknowledge(bench.gate)
    assert not refusal and bench.gate.mode is Mode.HOLD
    assert bench.judge().outcome is Outcome.HOLD
    assert bench.arm() == ""
    assert bench.judge().outcome is Outcome.PASS


def test_arming_is_refused_in_hard_contact_and_without_state() -> None:
    bench = GateBench(armed=False)
    bench.state = dataclasses.replace(bench.state, wrench_in_tcp=np.array((0, 0, 80.0, 0, 0, 0)))
    assert bench.arm().startswith("force")
    assert rules.arm(bench.limits, bench.gate, "a", None, 0.0)[1].startswith("state")
    bench.state = robot_state(stamp_s=-1.0)
    assert bench.arm().startswith("state")


def test_arming_another_robot_is_a_clear_error() -> None:
    bench = GateBench(armed=False)
    bench.state = dataclasses.replace(bench.state, joint_position_rad=np.zeros(6))
    with pytest.raises(SafetyError, match=r"(?s)7 joints.*6 joints.*robot="):
        bench.arm()


def test_holding_repeats_the_pose_measured_at_onset() -> None:
    bench = GateBench()
    bench.judge((0.02, 0.0, 0.0))
    bench.wait()
    onset = HOME + np.array((0.012, 0.0, 0.0))
    bench.state = robot_state(bench.now_s, onset)
    bench.gate = rules.hold(rules.tick(bench.limits, bench.gate, bench.state, bench.now_s)[0], "x")
    for sag_m in (0.0, 0.002, 0.004):  # the arm sags: the target must not creep with it
        bench.wait(0.02)
        bench.state = robot_state(bench.now_s, onset - (0.0, 0.0, sag_m))
        bench.tick()
        bench.gate = rules.hold(bench.gate, "held again")
        verdict = bench.tick()
        assert verdict is not None
        np.testing.assert_allclose(verdict.command.tcp_target_in_base.position_m, onset)


def test_an_arm_pushed_away_while_holding_is_not_pulled_back() -> None:
    bench = GateBench(armed=False)
    bench.tick()
    for there_m in np.linspace(HOME, PUSHED, 11)[1:]:  # 1 m/s
        bench.wait(0.02)
        bench.state = robot_state(bench.now_s, there_m)
        verdict = bench.tick()
        assert verdict is not None
        held_m = verdict.command.tcp_target_in_base.position_m
        assert np.linalg.norm(held_m - there_m) <= bench.limits.max_step_m + 1e-9


@pytest.mark.parametrize(("joint", "side"), [(3, 1.0), (3, -1.0), (0, 1.0), (5, -1.0)])
def test_a_joint_may_leave_its_margin_but_not_go_further_in(joint: int, side: float) -> None:
    bench = GateBench()
    limits = bench.limits
    limit_rad = (limits.joint_max_rad if side > 0 else limits.joint_min_rad)[joint]
    edge_rad = limit_rad - side * limits.joint_margin_rad

    def at(depth_rad: float, speed_rad_s: float) -> Outcome:
        bench.wait()
        joints, speeds = JOINTS.copy(), np.zeros(7)
        joints[joint], speeds[joint] = edge_rad + side * depth_rad, side * speed_rad_s
        bench.state = dataclasses.replace(
            bench.state, joint_position_rad=joints, joint_velocity_rad_s=speeds
        )
        return bench.judge((0.0, 0.0, 0.0)).outcome

    assert at(-0.2, 0.5) is Outcome.PASS
    assert at(-0.02, 0.5) is Outcome.HOLD  # would be 0.03 rad inside one period from now
    assert bench.gate.mode is Mode.PAUSE
    assert at(0.01, 0.0) is Outcome.PASS
    for depth_rad in (0.025, 0.03, 0.04):  # creeping in, slowly enough to look at rest
        assert at(depth_rad, 0.0) is Outcome.HOLD
    assert bench.arm() == ""  # a person looked: from here it may come back
    assert at(0.045, 0.0) is Outcome.PASS
    assert at(0.03, -0.3) is Outcome.PASS
    assert at(0.0, -0.3) is Outcome.PASS
    assert at(0.03, 0.0) is Outcome.HOLD  # the way back in is closed again


def test_the_watchdog_sees_a_joint_run_into_its_margin_between_commands() -> None:
    bench = GateBench()
    bench.judge()
    bench.wait(0.02)
    speeds = np.zeros(7)
    speeds[3] = 30.0
    bench.state = dataclasses.replace(bench.state, joint_velocity_rad_s=speeds)
    verdict = bench.tick()
    assert verdict is not None and verdict.reason.startswith("joint")


def test_a_stopped_controller_is_a_stop_and_is_held_where_the_arm_is_now() -> None:
    bench = GateBench()
    bench.judge()
    bench.wait(0.5)  # this gate was frozen; the arm has moved on meanwhile
    bench.state = robot_state(bench.now_s, HOME + np.array((0.01, 0.0, 0.0)))
    bench.gate = rules.stand(bench.limits, bench.gate, bench.state, bench.now_s)
    assert bench.gate.mode is Mode.PROTECTIVE_STOP
    assert bench.gate.reason == "controller: stopped"
    assert bench.gate.target is not None
    assert np.allclose(bench.gate.target.position, bench.state.tcp_in_base.position_m)
    assert bench.arm().startswith("protective_stop")
    kept = rules.stand(bench.limits, bench.gate, None, bench.now_s)
    assert kept.target == bench.gate.target  # no state to trust: nothing new to hold
