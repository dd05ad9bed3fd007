"""1e6 random commands through the whole gate: what it lets through touches nothing in MuJoCo.

The arm walks: each command starts where the last one that passed has led, so that walls, table and
the arm itself are met as they are in use. Way and contacts are MuJoCo's (`tests/support/cell.py`):
another controller moves the tool, and contacts are those of the covers, the finer shapes that the
capsules of the gate enclose.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter

import numpy as np
import pytest

from robot_rl.bench.gate import cell, commands
from robot_rl.robots import Fr3, Robot, Ur5e
from robot_rl.safety import collision
from robot_rl.safety import gate as rules
from robot_rl.types import Outcome
from tests.support.cell import Cell

PIECES = 6  # of each way, each checked: at most 6 mm and 0.05 rad of the tool
STEPS = 20  # commands of a walk
EXTRA_M = 0.005  # commands that keep the margin and this much more ought to pass


@pytest.mark.parametrize("robot", [Fr3(), Ur5e()], ids=lambda r: r.name)
@pytest.mark.parametrize(
    "count", [2_000, pytest.param(500_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_what_passes_touches_nothing_and_what_is_clear_passes(
    robot: Robot, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    limits, rng = cell(robot), np.random.default_rng(5)
    low, high = np.array(robot.joint_min_rad), np.array(robot.joint_max_rad)
    margin_m = limits.collision_margin_m
    boxes = {name: box for name, box in limits.obstacles.items() if box is not None}
    world = Cell(robot, boxes, see_m=margin_m + EXTRA_M)
    idle = rules.initial(limits)
    contacts: Counter[str] = Counter()
    done = passed = held = unknown = near = clear = clear_passed = bare = bare_passed = 0
    began_s = time.monotonic()
    while done < count:
        q = begin(world, robot, margin_m, rng)
        drift = rng.normal(size=3) / 2  # a walk has a direction, or it would stay where it is
        for _ in range(STEPS):
            state = world.at_rest(q)
            command = next(commands(limits, state, rng, 1, drift))
            armed, refusal = rules.arm(limits, idle, "bench", state, 0.0)
            if refusal:
                break
            _, verdict = rules.judge(limits, armed, command, state, 0.0)
            target = command.tcp_target_in_base
            reached, found = world.travel(target, PIECES)
            if (reached < low).any() or (reached > high).any() or off(world, target):
                break  # no arm can go there: a joint ends, or the place is out of reach
            done += 1
            near += found.capsules_m < margin_m + EXTRA_M
            unknown += verdict.reason == collision.UNKNOWN
            is_clear, is_bare = (
                d >= margin_m + EXTRA_M for d in (found.capsules_m, found.covers_m)
            )
            clear, bare = clear + is_clear, bare + is_bare
            if verdict.outcome is Outcome.HOLD:
                assert verdict.reason.startswith("collision"), verdict.reason
                held += 1
                drift = rng.normal(size=3) / 2
                continue
            assert verdict.outcome is Outcome.PASS, verdict.reason
            passed += 1
            contacts.update(found.contacts)
            clear_passed, bare_passed = clear_passed + is_clear, bare_passed + is_bare
            q = reached
    with capsys.disabled():
        keep = f"keep {1e3 * (margin_m + EXTRA_M):g} mm"
        sys.stdout.write(
            f"\n{robot.name}: {done} commands, {passed} passed, {held} held ({unknown} unknown), "
            f"{near} near; {contacts.total()} contacts; of those whose capsules {keep} "
            f"{clear_passed}/{clear} passed ({clear_passed / clear:.4f}), of those whose covers do "
            f"{bare_passed}/{bare} ({bare_passed / bare:.4f}); {time.monotonic() - began_s:.0f} s\n"
        )
    assert not contacts, contacts
    assert clear_passed >= 0.95 * clear
    assert near > 0.05 * done, "a gate that is never near anything is not tested"


def begin(world: Cell, robot: Robot, margin_m: float, rng: np.random.Generator) -> np.ndarray:
    """Joints [J] (rad) at random with the tool at work, where nothing is inside the margin."""
    low, high = np.array(robot.workspace_min_m) - 0.1, np.array(robot.workspace_max_m) + 0.1
    while True:
        q = np.array(robot.home_rad) + rng.normal(0.0, 0.6, len(robot.joints))
        world.place(np.clip(q, robot.joint_min_rad, robot.joint_max_rad))
        tcp_m = world.tcp_in_base.position_m
        if (low <= tcp_m).all() and (tcp_m <= high).all() and world.look().capsules_m >= margin_m:
            return world.data.qpos.copy()


def off(world: Cell, target: object) -> bool:
    """The controller could not bring the tool there."""
    goal = target.position_m  # type: ignore[attr-defined]
    return math.dist(world.tcp_in_base.position_m.tolist(), goal.tolist()) > 2e-3
