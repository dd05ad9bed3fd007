"""The gate and joint targets: the joints' limits, the TCP's, one answer to each wrong target.

What the gate lets through is checked with the kinematics of `robots.chain` (numpy, matrices), which
share no arithmetic with the gate's own.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.bench.faults.gate_bench import GateBench
from robot_rl.errors import ConfigError, SafetyError
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply, rotation_error
from robot_rl.robots import Fr3, Robot, Ur5e
from robot_rl.robots.chain import Chain
from robot_rl.safety import gate as rules
from robot_rl.safety.clip import tilt_rad
from robot_rl.safety.collision import nearest
from robot_rl.safety.limits import Limits
from robot_rl.safety.obstacles import Obstacle
from robot_rl.safety.states import Mode
from robot_rl.tasks import ReachTask
from robot_rl.tasks.common import tool_down
from robot_rl.types import Command, Driver, Outcome, RobotState, Verdict

ROBOTS: dict[str, Robot] = {"fr3": Fr3(), "ur5e": Ur5e()}
CHAINS = {name: Chain(robot) for name, robot in ROBOTS.items()}
MIDDLE = tool_down(np.array((0.5, 0.0, 0.2)))
each = pytest.mark.parametrize("name", ROBOTS)
sane = settings(max_examples=100)


def limits_of(name: str) -> Limits:
    """Of the arm, in the box of `reach`."""
    robot = ROBOTS[name]
    return Limits.of(robot).narrow_to(ReachTask().with_robot(robot)).of_joints(robot)


class JointBench(GateBench):
    """A gate beside an arm at given joints; its TCP may be elsewhere than the model says."""

    def __init__(
        self, name: str = "fr3", *, off_m: float = 0.0, limits: Limits | None = None
    ) -> None:
        self.chain, self.off_m = CHAINS[name], off_m
        self.q = self.chain.solve(MIDDLE, np.array(ROBOTS[name].home_rad))
        super().__init__(limits or limits_of(name), armed=False)
        self.begin(self.q)

    def begin(self, q_rad: np.ndarray) -> None:
        """Arm anew where the arm stands now; from now on commands are one period apart."""
        self.put(q_rad)
        assert self.arm() == ""
        assert self.turn(0.0 * q_rad).outcome is Outcome.PASS

    def put(self, q_rad: np.ndarray) -> None:
        """A gate that sees the arm for the first time, at these joints: no arm jumps there."""
        self.gate = rules.initial(self.limits)
        self.stand(q_rad)

    def push(self, to_rad: np.ndarray) -> None:
        """A person moves the arm there, no joint faster than 0.5 rad/s."""
        ticks = math.ceil(float(np.abs(to_rad - self.q).max()) / 0.01)
        for q in np.linspace(self.q, to_rad, ticks + 1)[1:]:
            self.wait(0.02)
            self.stand(q)
            self.tick()

    def stand(self, q_rad: np.ndarray) -> None:
        """The arm is at these joints, at rest."""
        self.q = q_rad
        tcp = self.chain.tcp_in_base(q_rad)
        longer = np.array((0.0, 0.0, self.off_m))
        self.state = RobotState(
            stamp_s=self.now_s,
            joint_position_rad=q_rad,
            joint_velocity_rad_s=np.zeros(len(q_rad)),
            tcp_in_base=pose(tcp.position_m + longer, tcp.quaternion_xyzw),
            tcp_twist_in_base=np.zeros(6),
            wrench_in_tcp=np.zeros(6),
            gripper_width_m=0.0,
        )

    def turn(self, by_rad: Any, **changes: Any) -> Verdict:
        """One period later, ask for the measured joints plus `by_rad`."""
        self.wait()
        target = self.q + np.asarray(by_rad, np.float64)
        return self.send(self.command((0, 0, 0), joint_target_rad=target, **changes))


def sent(verdict: Verdict) -> np.ndarray:
    """The joints that the gate lets through."""
    assert verdict.command.joint_target_rad is not None
    return verdict.command.joint_target_rad


@each
def test_a_small_turn_passes_as_it_is_and_the_gate_computes_where_the_tcp_goes(name: str) -> None:
    bench = JointBench(name, off_m=0.03)  # a tool that is 3 cm longer than the file says
    turn = 0.01 * np.ones(len(bench.q))
    lie = tool_down(np.array((0.5, 0.0, -1.0)))  # nobody believes what the command says of the TCP
    verdict = bench.turn(turn, tcp_target_in_base=lie)
    assert (verdict.outcome, verdict.reason) == (Outcome.PASS, "")
    np.testing.assert_array_equal(sent(verdict), bench.q + turn)
    here, there = bench.chain.tcp_in_base(bench.q), bench.chain.tcp_in_base(bench.q + turn)
    said = verdict.command.tcp_target_in_base
    way = there.position_m - here.position_m
    np.testing.assert_allclose(said.position_m, bench.state.tcp_in_base.position_m + way, atol=1e-9)
    assert np.linalg.norm(rotation_error(said, there)) < 1e-9


@each
def test_no_turn_asks_for_no_motion(name: str) -> None:
    bench = JointBench(name, off_m=-0.05)
    verdict = bench.turn(np.zeros(len(bench.q)))
    assert verdict.outcome is Outcome.PASS
    np.testing.assert_allclose(
        verdict.command.tcp_target_in_base.position_m,
        bench.state.tcp_in_base.position_m,
        atol=1e-12,
    )


@each
@sane
@given(data=st.data())
def test_what_is_sent_keeps_every_limit_and_the_direction(name: str, data: st.DataObject) -> None:
    bench = JointBench(name)
    limits, chain, start = bench.limits, bench.chain, bench.q
    count = len(start)
    numbers = st.lists(st.floats(-1.0, 1.0), min_size=count, max_size=count)
    bench.put(start + 0.15 * np.array(data.draw(numbers)))
    if bench.arm() or bench.turn(0.0 * start).outcome is Outcome.HOLD:
        return
    last, v = bench.state.tcp_in_base, np.zeros(3)
    last_rad = bench.q
    for _ in range(3):
        turn = data.draw(st.sampled_from((0.02, 0.1, 1.0))) * np.array(data.draw(numbers))
        here, measured = bench.q, bench.state.tcp_in_base
        verdict = bench.turn(turn)
        if verdict.outcome is Outcome.HOLD:
            assert verdict.reason.startswith(("collision", "joint"))
            return
        q = sent(verdict)
        moved = q - here
        share = float(moved @ turn) / float(turn @ turn) if (np.abs(turn) > 1e-6).any() else 1.0
        if "box" not in verdict.reason:
            np.testing.assert_allclose(moved, share * turn, atol=1e-6)  # the direction is kept
            assert -1e-9 <= share <= 1.0 + 1e-9
            assert (share > 1.0 - 1e-6) == (verdict.outcome is Outcome.PASS)
        assert np.abs(q - last_rad).max() <= limits.max_joint_speed_rad_s * 0.1 + 1e-9
        low = np.minimum(np.array(limits.joint_min_rad) + limits.joint_margin_rad, here)
        high = np.maximum(np.array(limits.joint_max_rad) - limits.joint_margin_rad, here)
        assert (q >= low - 1e-9).all() and (q <= high + 1e-9).all()
        tcp = chain.tcp_in_base(q)
        far = np.array(limits.workspace_min_m), np.array(limits.workspace_max_m)
        assert (tcp.position_m >= np.minimum(far[0], measured.position_m) - 1e-6).all()
        assert (tcp.position_m <= np.maximum(far[1], measured.position_m) + 1e-6).all()
        steepest = max(limits.max_tilt_rad, tilt_of(measured))
        assert tilt_of(tcp) <= steepest + 1e-6
        assert np.linalg.norm(tcp.position_m - measured.position_m) <= limits.max_step_m + 1e-6
        assert np.linalg.norm(tcp.position_m - last.position_m) <= limits.max_speed_m_s * 0.1 + 1e-6
        assert (
            np.linalg.norm(rotation_error(tcp, last))
            <= limits.max_rotation_speed_rad_s * 0.1 + 1e-6
        )
        change = (tcp.position_m - last.position_m) / 0.1 - v
        assert np.linalg.norm(change) <= limits.max_acceleration_m_s2 * 0.1 + 1e-5
        near = nearest(limits, tuple(q.tolist()))
        assert near is None or near.distance_m >= limits.collision_margin_m - 1e-9
        v, last, last_rad = (tcp.position_m - last.position_m) / 0.1, tcp, q
        bench.stand(q)


def tilt_of(tcp: Any) -> float:
    """Angle between the tool's axis and straight down."""
    x, y, z, w = tcp.quaternion_xyzw.tolist()
    return tilt_rad((x, y, z, w))


def test_a_fast_turn_is_slowed_down_as_a_whole() -> None:
    bench = JointBench()
    turn = np.array((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5))  # 5 rad/s of the wrist; the TCP stays
    verdict = bench.turn(turn)
    assert (verdict.outcome, verdict.reason) == (Outcome.CLIPPED, "speed")
    assert sent(verdict)[6] - bench.q[6] == pytest.approx(0.1, abs=1e-3)
    np.testing.assert_array_equal(sent(verdict)[:6], bench.q[:6])


def test_a_fast_arm_that_is_told_to_stand_brakes_as_the_acceleration_allows() -> None:
    """At 50 Hz it cannot stop within one period: neither held nor thrown to a stop."""
    bench = JointBench(limits=dataclasses.replace(limits_of("fr3"), control_hz=50.0))
    steady = np.zeros(7)
    steady[0] = 0.4 * 0.02  # 0.2 m/s at 0.5 m
    for _ in range(10):
        bench.wait(0.02)
        verdict = bench.send(bench.command((0, 0, 0), joint_target_rad=bench.q + steady))
        bench.stand(sent(verdict))
    speeds = []
    for _ in range(10):
        bench.wait(0.02)
        verdict = bench.send(bench.command((0, 0, 0), joint_target_rad=bench.q))
        assert verdict.outcome is not Outcome.HOLD
        speeds.append((sent(verdict)[0] - bench.q[0]) / 0.02)
        bench.stand(sent(verdict))
    slower = -np.diff([0.4, *speeds]) * 0.5  # m/s each period
    assert slower.max() <= 5.0 * 0.02 + 1e-3 and speeds[0] > 0.1 and abs(speeds[-1]) < 1e-6


def test_a_joint_stops_at_its_margin_and_comes_back() -> None:
    limits = limits_of("fr3")
    bench = JointBench()
    wide = dataclasses.replace(limits, max_yaw_rad=math.pi, joint_margin_rad=0.1)
    bench.limits = wide
    end = bench.limits.joint_max_rad[6] - 0.1
    q = bench.q.copy()
    q[6] = end - 0.03
    bench.put(q)
    assert bench.arm() == ""
    out = np.eye(7)[6] * 0.08
    verdict = bench.turn(out)
    assert (verdict.outcome, verdict.reason) == (Outcome.CLIPPED, "joint")
    assert end - 1e-3 <= sent(verdict)[6] <= end
    q[6] = end + 0.01  # it overshot into the margin
    bench.stand(q)
    verdict = bench.turn(out)
    assert verdict.outcome is Outcome.CLIPPED and sent(verdict)[6] == pytest.approx(q[6], abs=1e-9)
    verdict = bench.turn(-0.05 * np.eye(7)[6])
    assert verdict.outcome is Outcome.PASS


def test_the_way_of_the_joints_is_kept_clear() -> None:
    """An elbow that would come down on a box is held, with the TCP well inside its own limits."""
    robot = ROBOTS["fr3"]
    limits = Limits.of(robot).of_joints(robot)
    bench = JointBench(limits=limits)
    assert bench.turn(0.02 * np.eye(7)[2]).outcome is Outcome.PASS
    elbow = bench.chain.frames(bench.q)[3, :3, 3]
    wall = {
        "centre_in_base_m": tuple(elbow + np.array((0.0, 0.16, 0.0))),
        "size_m": (0.1, 0.1, 0.1),
    }
    tight = dataclasses.replace(limits, obstacles={"wall": Obstacle(**wall)})
    found = []
    for sign in (1.0, -1.0):
        bench = JointBench(limits=tight)
        for _ in range(30):
            verdict = bench.turn(sign * np.array((0.03, 0.0, -0.03, 0.0, 0.0, 0.0, 0.0)))
            found.append(verdict.reason.partition(":")[0])
            if verdict.outcome is Outcome.HOLD:
                assert verdict.reason.startswith("collision: link")
                np.testing.assert_array_equal(sent(verdict), bench.q)  # stays where it is
                break
            bench.stand(sent(verdict))
    assert "collision" in found


def test_stale_late_and_strange_commands_change_nothing() -> None:
    bench = JointBench()
    first = bench.turn(0.01 * np.ones(7))
    for wrong, reason in (
        ({"stamp_s": bench.now_s - 1.0}, "age"),
        ({"sequence": 1}, "sequence"),
        ({"lease": "stranger"}, "lease"),
    ):
        target = bench.q + 0.02
        bench.wait(0.01)
        verdict = bench.send(bench.command((0, 0, 0), joint_target_rad=target, **wrong))
        assert verdict.outcome is Outcome.HOLD and verdict.reason.startswith(reason)
        np.testing.assert_array_equal(sent(verdict), sent(first))  # the target in force
    bench.state = dataclasses.replace(bench.state, stamp_s=bench.now_s - 1.0)
    verdict = bench.send(bench.command((0, 0, 0), joint_target_rad=bench.q))
    assert verdict.reason.startswith("state: stale") and bench.gate.mode is Mode.PROTECTIVE_STOP


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (np.full(7, np.nan), "finite: a value is NaN"),
        (np.array((0, 0, 0, np.inf, 0, 0, 0)), "finite: a value is NaN"),
        (np.array([]), "finite: a value is NaN"),
        (np.zeros((7, 1)), "finite: a value is NaN"),
        (np.zeros(6), "target: 6 joints, but fr3 has 7"),
        (None, "target: one of the TCP, but the actions of this run move the joints"),
    ],
)
def test_a_wrong_target_is_held_with_one_reason(target: Any, reason: str) -> None:
    bench = JointBench()
    bench.wait()
    verdict = bench.send(bench.command((0.01, 0, 0), joint_target_rad=target))
    assert verdict.outcome is Outcome.HOLD and verdict.reason.startswith(reason)
    np.testing.assert_array_equal(sent(verdict), bench.q)
    assert bench.gate.mode is (Mode.HOLD if reason.startswith("finite") else Mode.RUN)


def test_a_joint_target_is_refused_where_the_actions_move_the_tcp() -> None:
    bench = GateBench()
    verdict = bench.judge(joint_target_rad=np.zeros(7))
    assert verdict.reason == "target: one of the joints, but the actions of this run move the TCP"
    assert verdict.command.joint_target_rad is None
    assert bench.judge().outcome is Outcome.PASS


def test_a_hold_latches_the_joints_where_they_were() -> None:
    bench = JointBench()
    moved = bench.turn(0.02 * np.ones(7))
    bench.stand(0.5 * (bench.q + sent(moved)))
    latched = bench.q
    bench.wait(0.2)  # nobody sends any more
    held = bench.tick()
    assert held is not None and held.reason.startswith("command_late")
    np.testing.assert_array_equal(sent(held), latched)
    bench.stand(latched + 1e-4)
    held = bench.tick()
    assert held is not None
    np.testing.assert_array_equal(sent(held), latched)  # the pose stays latched
    bench.push(latched + 0.3)
    held = bench.tick()
    assert held is not None
    assert np.abs(sent(held) - (latched + 0.3)).max() <= bench.limits.max_step_rad
    assert not np.array_equal(sent(held), latched)


def test_an_elbow_that_was_pushed_away_is_not_pulled_back() -> None:
    """The TCP of seven joints may stay where it is while the elbow turns."""
    bench = JointBench()
    bench.wait(0.2)
    assert bench.tick() is not None
    q = bench.q
    for _ in range(20):
        q = q + bench.chain.free(0.05 * np.eye(7)[2], q)
    assert np.abs(q - bench.q).max() > bench.limits.max_step_rad
    bench.push(q)
    held = bench.tick()
    assert held is not None
    assert np.abs(sent(held) - q).max() <= bench.limits.max_step_rad


def test_hard_contact_stops_a_joint_motion() -> None:
    bench = JointBench()
    bench.wait()
    wrench = np.array((0.0, 0.0, 500.0, 0.0, 0.0, 0.0))
    bench.state = dataclasses.replace(bench.state, wrench_in_tcp=wrench)
    verdict = bench.send(bench.command((0, 0, 0), joint_target_rad=bench.q + 0.01))
    assert verdict.reason.startswith("force") and bench.gate.mode is Mode.PROTECTIVE_STOP


def test_another_arm_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="robot"):
        rules.initial(dataclasses.replace(limits_of("fr3"), joint_arm="fr4"))
    bench = JointBench()
    state = dataclasses.replace(bench.state, joint_position_rad=np.zeros(6))
    with pytest.raises(SafetyError, match="another arm"):
        rules.arm(bench.limits, bench.gate, "x", state, bench.now_s)


def test_a_persons_joint_motion_needs_the_device_held() -> None:
    bench = JointBench()
    verdict = bench.turn(0.01 * np.ones(7), driver=Driver.CORRECTION)
    assert verdict.reason.startswith("operator")
    bench.wait()
    bench.heartbeat(driving=False)
    bench.heartbeat(driving=True)
    by_hand = {"joint_target_rad": bench.q + 0.01, "driver": Driver.CORRECTION}
    assert bench.send(bench.command((0, 0, 0), **by_hand)).outcome is Outcome.PASS


def test_a_turned_tool_may_come_back_but_not_further() -> None:
    """Beyond the task's tilt the arm is not stuck: every way that does not tilt more is open."""
    bench = JointBench("ur5e")
    limits = bench.limits
    lean = pose(
        MIDDLE.position_m,
        quat_multiply(
            quat_from_rotvec((limits.max_tilt_rad + 0.05, 0.0, 0.0)), MIDDLE.quaternion_xyzw
        ),
    )
    leaned = bench.chain.solve(lean, bench.q)
    straight = bench.chain.solve(MIDDLE, leaned)
    bench.put(leaned)
    assert bench.arm() == ""
    way = 0.02 * (straight - leaned) / np.linalg.norm(straight - leaned)
    assert bench.turn(way).outcome is Outcome.PASS
    bench.stand(leaned)
    verdict = bench.turn(-way)
    assert verdict.reason == "box"
    assert tilt_of(bench.chain.tcp_in_base(sent(verdict))) <= tilt_of(lean) + 1e-6


def test_commands_are_judged_in_the_order_of_their_numbers() -> None:
    """A command without joints in between is refused and leaves the joints' target in force."""
    bench = JointBench()
    first = bench.turn(0.01 * np.ones(7))
    bench.wait()
    plain = Command(99, bench.now_s, Driver.POLICY, bench.lease, MIDDLE)
    np.testing.assert_array_equal(sent(bench.send(plain)), sent(first))


@each
def test_along_the_edge_of_the_box_the_arm_slides_and_does_not_stick(name: str) -> None:
    """The TCP goes where a TCP target would have been put: along the wall, and upright enough."""
    bench = JointBench(name)
    limits, chain = bench.limits, bench.chain
    edge = MIDDLE.position_m.copy()
    edge[1] = limits.workspace_max_m[1] - 0.001
    q = chain.solve(pose(edge, MIDDLE.quaternion_xyzw), bench.q)
    beyond = edge + np.array((0.0, 0.012, 0.012))  # out, and up
    lean = quat_multiply(quat_from_rotvec((0.05, 0.0, 0.0)), MIDDLE.quaternion_xyzw)
    for turn in (MIDDLE.quaternion_xyzw, lean):
        bench.begin(q)
        verdict = bench.turn(chain.solve(pose(beyond, turn), q) - q)
        assert (verdict.outcome, verdict.reason) == (Outcome.CLIPPED, "box")
        said = verdict.command.tcp_target_in_base.position_m
        np.testing.assert_allclose(said[[0, 2]], beyond[[0, 2]], atol=1e-3)
        assert limits.workspace_max_m[1] - 1e-3 < said[1] <= limits.workspace_max_m[1]
        assert np.abs(sent(verdict) - q).max() < 0.1


@each
def test_too_much_tilt_does_not_keep_the_tcp_from_its_way(name: str) -> None:
    bench = JointBench(name)
    limits, chain = bench.limits, bench.chain
    tilts = [limits.max_tilt_rad + by for by in (-0.01, 0.04)]
    turns = [quat_multiply(quat_from_rotvec((t, 0, 0)), MIDDLE.quaternion_xyzw) for t in tilts]
    q = chain.solve(pose(MIDDLE.position_m, turns[0]), bench.q)
    bench.begin(q)
    away = MIDDLE.position_m + np.array((0.01, 0.0, -0.01))
    verdict = bench.turn(chain.solve(pose(away, turns[1]), q) - q)
    assert (verdict.outcome, verdict.reason) == (Outcome.CLIPPED, "box")
    said = verdict.command.tcp_target_in_base
    np.testing.assert_allclose(said.position_m, away, atol=1e-3)
    assert limits.max_tilt_rad - 2e-3 < tilt_of(said) <= limits.max_tilt_rad
