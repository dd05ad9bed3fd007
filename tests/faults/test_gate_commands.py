"""Bad commands: broken, stale, replayed, foreign, too many. None moves the robot."""

from __future__ import annotations

import math

import numpy as np
import pytest

from robot_rl.bench.faults.gate_bench import DOWN, HOME, GateBench, robot_state, turned
from robot_rl.errors import SafetyError
from robot_rl.geometry import rotation_error
from robot_rl.safety import gate as rules
from robot_rl.safety.limits import Limits
from robot_rl.safety.states import Mode
from robot_rl.types import Command, Driver, Outcome, Pose


@pytest.mark.parametrize(
    "broken",
    [
        {"tcp_target_in_base": Pose(np.array((math.nan, 0, 0.3)), DOWN)},
        {"tcp_target_in_base": Pose(np.array((0.5, math.inf, 0.3)), DOWN)},
        {"tcp_target_in_base": Pose(HOME, np.array((math.nan, 0, 0, 1)))},
        {"tcp_target_in_base": Pose(HOME, np.zeros(4))},
        {"tcp_target_in_base": Pose(HOME[:2], DOWN)},
        {"stamp_s": math.nan},
        {"gripper_width_m": math.nan},
    ],
)
def test_a_command_that_is_not_finite_disarms_the_driver(broken: dict) -> None:
    bench = GateBench()
    bench.wait()
    here = HOME + np.array((0.01, 0.0, 0.0))  # where the robot is by now
    bench.state = robot_state(bench.now_s, here)
    verdict = bench.judge(**broken)
    assert verdict.outcome is Outcome.HOLD and verdict.reason.startswith("finite")
    np.testing.assert_allclose(verdict.command.tcp_target_in_base.position_m, here)
    assert bench.gate.mode is Mode.HOLD
    bench.wait()
    assert bench.judge().outcome is Outcome.HOLD  # good again, but nobody armed it
    assert bench.arm() == ""
    assert bench.judge().outcome is Outcome.PASS


def test_a_strangers_nan_does_not_stop_the_driver() -> None:
    bench = GateBench()
    nan = Pose(np.full(3, math.nan), DOWN)
    assert bench.judge(lease="stranger", tcp_target_in_base=nan).outcome is Outcome.HOLD
    assert bench.gate.mode is Mode.RUN
    assert bench.judge().outcome is Outcome.PASS


def test_two_leases_never_interleave_in_10_000_commands() -> None:
    bench = GateBench()
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        lease = "actor" if rng.random() < 0.5 else "intruder"
        before = bench.gate.target
        verdict = bench.judge(lease=lease)
        assert verdict.command.lease == lease  # each finds the answer to its own
        if lease == "intruder":
            assert bench.arm(lease)
            assert verdict.outcome is Outcome.HOLD and bench.gate.target == before
        else:
            assert verdict.outcome is not Outcome.HOLD
        bench.wait(0.02)


def test_a_refused_command_repeats_the_target_in_force() -> None:
    bench = GateBench()
    sent = bench.judge((0.01, 0.0, 0.0)).command.tcp_target_in_base.position_m
    bench.wait(0.02)
    for refused in ({"lease": "stranger"}, {"stamp_s": bench.now_s - 0.2}, {"sequence": 1}):
        verdict = bench.judge((-0.02, 0.0, 0.0), **refused)
        assert verdict.outcome is Outcome.HOLD
        np.testing.assert_allclose(verdict.command.tcp_target_in_base.position_m, sent)
        assert bench.gate.mode is Mode.RUN


def test_every_replayed_command_is_refused() -> None:
    bench = GateBench()
    old = [bench.command((0.0, 0.0, 0.0))]
    bench.send(old[0])
    for _ in range(500):
        bench.wait()
        old.append(bench.command((0.0, 0.0, 0.0)))
        assert bench.send(old[-1]).outcome is Outcome.PASS
        for replay in (old[-1], old[len(old) // 2], old[0]):
            assert bench.send(replay).reason.partition(":")[0] in ("sequence", "age")


def test_a_replay_is_refused_even_after_a_hold_and_a_new_arm() -> None:
    bench = GateBench()
    old = bench.command()
    assert bench.send(old).outcome is Outcome.PASS
    bench.gate = rules.hold(bench.gate, "person")
    bench.wait(0.05)
    assert bench.arm() == ""
    assert bench.send(old).reason.startswith("sequence")
    assert bench.judge().outcome is Outcome.PASS


def test_acceleration_is_measured_over_the_targets_sent_before() -> None:
    bench = GateBench()
    bench.judge((0.02, 0.0, 0.0))
    bench.wait(0.05)  # 0.13 m/s one way, then asked for 0.2 m/s back within 50 ms: 7 m/s2
    back = Pose(HOME + np.array((0.01, 0.0, 0.0)), DOWN)
    verdict = bench.judge(tcp_target_in_base=back)
    assert verdict.reason == "acceleration"
    assert verdict.command.tcp_target_in_base.position_m[0] > back.position_m[0]


def test_a_gate_whose_clock_was_restarted_runs_after_arming() -> None:
    bench = GateBench()
    bench.wait(50.0)
    bench.judge()
    bench.now_s = 1.0
    bench.wait(0.0)
    assert bench.judge().outcome is Outcome.HOLD
    assert bench.arm() == ""
    assert bench.judge().outcome is Outcome.PASS


@pytest.mark.parametrize("age_s", [0.151, 1.0, 3600.0, -0.151, -3600.0])
def test_a_command_of_another_time_is_refused(age_s: float) -> None:
    bench = GateBench()
    assert bench.judge(stamp_s=bench.now_s - age_s).reason.startswith("age")
    assert bench.judge().outcome is Outcome.PASS


def test_a_burst_after_a_stall_moves_once() -> None:
    bench = GateBench()
    bench.judge()
    bench.wait(0.12)
    outcomes = [bench.judge().outcome for _ in range(10)]
    assert outcomes == [Outcome.PASS] + [Outcome.HOLD] * 9
    bench.wait(0.09)
    assert bench.judge().outcome is Outcome.PASS


def test_checks_report_in_the_documented_order() -> None:
    """finite -> age -> sequence -> lease -> state: the first that fails gives the reason."""
    bench = GateBench()
    bench.judge()
    bench.wait()
    bench.state = robot_state(stamp_s=-1.0)
    wrong = {
        "finite": {"tcp_target_in_base": Pose(np.full(3, math.nan), DOWN), "lease": "x"},
        "age": {"stamp_s": -1.0, "sequence": 0},
        "sequence": {"sequence": 0},
        "lease": {"lease": "x"},
        "state": {},
    }
    target = robot_state().tcp_in_base
    for check, changes in wrong.items():
        command = bench.command(**({"tcp_target_in_base": target} | changes))
        assert bench.send(command).reason.partition(":")[0] == check


@pytest.mark.parametrize(
    ("start_m", "offset_m", "checks"),
    [
        (HOME, (0.005, 0.0, 0.0), ""),
        (HOME, (0.04, 0.0, 0.0), "speed"),
        (HOME, (0.3, 0.0, 0.0), "step,speed"),
        ((0.79, 0.0, 0.3), (0.02, 0.0, 0.0), "box"),
        ((0.5, 0.0, 0.01), (0.0, 0.0, -0.02), "box"),
    ],
)
def test_clipping_names_the_checks_that_changed_the_target(
    start_m: tuple, offset_m: tuple, checks: str
) -> None:
    bench = GateBench(armed=False)
    bench.state = robot_state(0.0, start_m)
    bench.arm()
    bench.gate = bench.gate._replace(moved_s=-0.1)
    verdict = bench.judge(offset_m)
    assert verdict.reason == checks
    assert verdict.outcome is (Outcome.CLIPPED if checks else Outcome.PASS)


def test_a_passed_command_is_executed_as_it_is() -> None:
    bench = GateBench()
    command = bench.command(gripper_width_m=0.0)
    assert bench.send(command).command is command


def test_the_gripper_is_clipped_to_its_stroke() -> None:
    bench = GateBench()
    verdict = bench.judge(gripper_width_m=0.5)
    assert verdict.outcome is Outcome.CLIPPED and verdict.reason == "gripper"
    assert verdict.command.gripper_width_m == bench.limits.gripper_max_m


def test_tilt_beyond_the_limit_is_turned_back_over_many_steps() -> None:
    bench = GateBench()
    reached = Pose(HOME, DOWN)
    for _ in range(40):
        bench.state = robot_state(bench.now_s, tcp_in_base=reached)
        verdict = bench.judge(tcp_target_in_base=Pose(HOME, turned((1.5, 0.0, 0.0))))
        reached = verdict.command.tcp_target_in_base
        bench.wait()
    lean_rad = float(np.linalg.norm(rotation_error(reached, Pose(HOME, DOWN))))
    assert 0.95 * bench.limits.max_tilt_rad < lean_rad <= bench.limits.max_tilt_rad + 1e-6


def test_limits_that_contradict_each_other_hold() -> None:
    """The robot stands far outside the box: no target is both inside and one step away."""
    bench = GateBench(armed=False)
    bench.state = robot_state(0.0, (0.5, 0.0, 0.9))
    bench.arm()
    verdict = bench.judge((0.0, 0.0, -0.01))
    assert verdict.outcome is Outcome.HOLD and "no target satisfies" in verdict.reason
    np.testing.assert_allclose(verdict.command.tcp_target_in_base.position_m, (0.5, 0.0, 0.9))


@pytest.mark.parametrize("driver", list(Driver))
def test_every_driver_passes_the_same_checks(driver: Driver) -> None:
    bench = GateBench()
    bench.heartbeat(driving=True)
    assert bench.judge((0.5, 0.5, 0.5), driver=driver).outcome is Outcome.CLIPPED
    bench.wait(0.01)
    assert bench.judge(driver=driver, lease="x").outcome is Outcome.HOLD


@pytest.mark.parametrize(
    ("step_m", "step_rad", "share"), [(0.01, 0.06, 0.95), (0.04, 0.2, 0.0)]
)  # fmt: skip
def test_work_at_10_hz_is_hardly_disturbed(step_m: float, step_rad: float, share: float) -> None:
    """Random peg-sized actions mostly pass, lift-sized ones are clipped, neither is ever held."""
    bench = GateBench(Limits().narrow((0.35, -0.25, 0.01), (0.65, 0.25, 0.40)))
    rng = np.random.default_rng(0)
    outcomes = []
    for _ in range(1_000):
        a = rng.uniform(-1.0, 1.0, 6)
        here = bench.state.tcp_in_base
        to_centre = 0.02 * (HOME - here.position_m)  # stay off the walls: they clip, rightly
        target = Pose(here.position_m + step_m * a[:3] + to_centre, turned(step_rad * a[3:]))
        executed = bench.judge(tcp_target_in_base=target)
        outcomes.append(executed.outcome)
        goal = executed.command.tcp_target_in_base  # an arm that covers 80 % of the way per tick
        reached = here.position_m + 0.8 * (goal.position_m - here.position_m)
        bench.now_s += 0.1
        bench.state = robot_state(
            bench.now_s, reached, tcp_in_base=Pose(reached, goal.quaternion_xyzw)
        )
    assert Outcome.HOLD not in outcomes
    assert outcomes.count(Outcome.PASS) >= share * len(outcomes)


def test_without_any_trustworthy_state_there_is_no_pose_to_hold() -> None:
    limits = Limits()
    dead = robot_state(wrench_in_tcp=np.full(6, math.nan))
    command = Command(1, 0.0, Driver.POLICY, "a", Pose(HOME, DOWN))
    with pytest.raises(SafetyError, match="before any trustworthy robot state"):
        rules.judge(limits, rules.initial(limits), command, dead, 0.0)
    assert rules.tick(limits, rules.initial(limits), None, 0.0)[1] is None


def test_a_fresh_gate_holds_the_robot_where_it_is() -> None:
    bench = GateBench(armed=False)
    verdict = bench.tick()
    assert verdict is not None and verdict.reason == "not armed"
    np.testing.assert_allclose(verdict.command.tcp_target_in_base.position_m, HOME)
    assert bench.judge().reason == "lease: hold (not armed)"
