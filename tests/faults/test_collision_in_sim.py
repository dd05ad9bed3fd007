"""The gate beside the simulated arm's own dynamics: how much of the margin a real motion uses up.

The impedance controller lags, overshoots and pulls the elbow to its posture; the gate knows none of
this. Every 10 ms the joints that were reached are put into MuJoCo's model of the cell
(`tests/support/cell.py`), which says whether covers touch and how near the capsules come.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from robot_rl.bench.gate import AROUND, cell
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply
from robot_rl.robots import Fr3, Robot, Ur5e
from robot_rl.safety import gate as rules
from robot_rl.safety.states import Mode
from robot_rl.tasks.common import tool_down
from robot_rl.tasks.reach import ReachTask
from robot_rl.types import Command, Driver, Outcome
from robot_rl_sim.robot import MujocoRobot
from tests.support.cell import Cell

PERIOD_S = 0.1
TICKS = 40  # of a walk
SEE_M = 0.012


LONG = [pytest.mark.slow, pytest.mark.timeout(3600)]
ELBOW = pytest.mark.xfail(
    reason="posture torque pulls the elbow into the wall: hazards/collision.md"
)


@pytest.mark.parametrize(
    ("robot", "walks"),
    [
        (Fr3(), 15),
        (Ur5e(), 15),
        pytest.param(Fr3(), 1_000, marks=[*LONG, ELBOW]),
        pytest.param(Ur5e(), 1_000, marks=LONG),
    ],
    ids=str,
)
def test_the_moving_arm_touches_nothing(
    robot: Robot, walks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    limits, rng = cell(robot), np.random.default_rng(6)
    arm = MujocoRobot(ReachTask().with_robot(robot), robot)
    world = Cell(robot, AROUND, SEE_M)
    low, high = (0.35, -0.3, 0.1), (0.6, 0.3, 0.4)
    contacts: list[str] = []
    ticks = passed = held = 0
    nearest_m = math.inf
    while walks > 0:
        start = tool_down(rng.uniform(low, high))
        arm.reset(replace(arm.task.sample_reset(rng), tcp_in_base=start))
        world.place(arm.read().joint_position_rad)
        if world.look().capsules_m < SEE_M:
            continue
        walks -= 1
        now_s = arm.now_s()
        gate, refusal = rules.arm(limits, rules.initial(limits), "walk", arm.read(), now_s)
        assert not refusal
        drift, target = rng.normal(size=6), start
        for tick in range(TICKS):
            state, now_s = arm.read(), arm.now_s()
            way = drift + rng.normal(size=6)
            way *= rng.uniform(0.0, 1.0) / np.linalg.norm(way)
            spin = quat_from_rotvec(0.15 * way[3:])
            target = pose(
                target.position_m + 0.025 * way[:3], quat_multiply(spin, target.quaternion_xyzw)
            )
            command = Command(tick, now_s, Driver.POLICY, "walk", target)
            gate, verdict = rules.judge(limits, gate, command, state, now_s)
            if verdict.outcome is Outcome.HOLD:
                held += verdict.reason.startswith("collision")
                drift = rng.normal(size=6)
            else:
                passed += 1
            target = verdict.command.tcp_target_in_base
            arm.apply(verdict.command)
            ticks += 1
            for _ in range(10):
                arm.advance(PERIOD_S / 10)
                world.place(arm.data.qpos[: len(robot.joints)])
                found = world.look()
                contacts += found.contacts
                nearest_m = min(nearest_m, found.capsules_m)
            if gate.mode is not Mode.RUN and not verdict.reason.startswith("collision"):
                break  # a joint in its margin: another matter
    with capsys.disabled():
        sys.stdout.write(
            f"\n{robot.name}: {ticks} ticks, {passed} passed, {held} held for collision, "
            f"{len(contacts)} contacts; capsules came as near as {1e3 * nearest_m:.1f} mm\n"
        )
    assert not contacts, contacts
    assert held > 0 and nearest_m < SEE_M, "never near anything: not a test"
    assert passed > ticks / 2
