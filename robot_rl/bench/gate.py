"""`robot-rl bench gate`: time of one call of the gate's `judge`, with every check, on one core.

The arm is at random joints, with the tool in the robot's workspace or up to 0.1 m beside it, in a
cell with a wall and a post on the table; from each place it is commanded in five directions. Tilt
and workspace are not limited, or the collision check would hardly ever have the last word.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.config.registry import resolve
from robot_rl.geometry import pose, quat_from_rotvec, quat_multiply
from robot_rl.robots import Robot
from robot_rl.robots.chain import Chain
from robot_rl.safety import collision, gate
from robot_rl.safety.limits import Limits
from robot_rl.safety.obstacles import TABLE, Obstacle
from robot_rl.types import Command, Driver, RobotState

F64 = NDArray[np.float64]

STILL = np.zeros(3)
ROBOTS = ("fr3", "ur5e")
AROUND = {
    "table": TABLE,
    "wall": Obstacle(centre_in_base_m=(0.5, 0.40, 0.4), size_m=(0.9, 0.1, 0.8), yaw_rad=0.3),
    "post": Obstacle(centre_in_base_m=(0.65, -0.25, 0.3), size_m=(0.1, 0.1, 0.6), yaw_rad=0.8),
}
MOVES = {"judge": False, "judge_moving": True}
TARGETS = {
    f"{r}/{key}_us_{n}": most
    for r in ROBOTS
    for key in MOVES
    for n, most in (("p50", 150.0), ("p99", 500.0))
}


def bench(seconds: float) -> dict[str, Any]:
    """Judge random commands for `seconds` and each of `ROBOTS`; times in microseconds.

    judge: the arm stands, for half of the time; judge_moving: it moves in a random direction, at
    most as fast as the gate allows. cpu_us: processor time of the thread, which other programs on
    the machine hardly change.
    """
    figures: dict[str, Any] = {}
    for name in ROBOTS:
        robot = resolve("robot", {"name": name})
        for key, moves in MOVES.items():
            found = _timed(robot, moves, seconds / len(MOVES))
            figures |= {f"{name}/{key}_{figure}": value for figure, value in found.items()}
    return figures


def _timed(robot: Robot, moves: bool, seconds: float) -> dict[str, float]:
    limits, rng = cell(robot), np.random.default_rng(0)
    took_us: list[float] = []
    cpu_us: list[float] = []
    held = 0
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        q = start(robot, limits, rng)
        state = moving(robot, limits, q, rng) if moves else at_rest(robot, q)
        for command in commands(limits, state, rng, count=5):
            armed, refusal = gate.arm(limits, gate.initial(limits), "bench", state, 0.0)
            assert not refusal, refusal
            cpu, began = time.thread_time_ns(), time.perf_counter_ns()
            _, verdict = gate.judge(limits, armed, command, state, 0.0)
            took_us.append((time.perf_counter_ns() - began) / 1e3)
            cpu_us.append((time.thread_time_ns() - cpu) / 1e3)
            held += verdict.reason.startswith("collision")
    figures: dict[str, float] = {}
    for key, some in (("us", took_us), ("cpu_us", cpu_us)):
        p50, p99 = np.percentile(some, (50, 99)).tolist()
        figures |= {f"{key}_p50": p50, f"{key}_p99": p99}
    return figures | {"us_max": max(took_us), "count": len(took_us), "held_for_collision": held}


def cell(robot: Robot) -> Limits:
    """The robot's limits in a narrow cell, in which collisions are what is left to be held for."""
    return dataclasses.replace(
        Limits.of(robot),
        obstacles=AROUND,
        workspace_min_m=(-2.0, -2.0, -1.0),
        workspace_max_m=(2.0, 2.0, 2.0),
        max_tilt_rad=math.pi,
    )


def start(robot: Robot, limits: Limits, rng: np.random.Generator) -> F64:
    """Joints [J] (rad) at which the arm is at work, clear of everything."""
    low, high = np.array(robot.workspace_min_m) - 0.1, np.array(robot.workspace_max_m) + 0.1
    while True:
        q = np.array(robot.home_rad) + rng.normal(0.0, 0.6, len(robot.joints))
        q = np.clip(q, robot.joint_min_rad, robot.joint_max_rad)
        tcp_m = Chain(robot).tcp_in_base(q).position_m
        if (tcp_m < low).any() or (tcp_m > high).any():
            continue
        near = collision.nearest(limits, tuple(q.tolist()))
        if near is None or near.distance_m >= limits.collision_margin_m:
            return q


def at_rest(robot: Robot, q: F64) -> RobotState:
    """The state of an arm that stands at joint angles `q` [J] (rad), at 0 s."""
    tcp = Chain(robot).tcp_in_base(q)
    return RobotState(0.0, q, np.zeros(len(q)), tcp, np.zeros(6), np.zeros(6), 0.04)


def moving(robot: Robot, limits: Limits, q: F64, rng: np.random.Generator) -> RobotState:
    """The same while its tool moves in a random direction, at most as fast as the gate allows."""
    chain = Chain(robot)
    twist = np.concatenate(
        (
            _within(rng.normal(size=3), rng.uniform(0.0, limits.max_speed_m_s)),
            _within(rng.normal(size=3), rng.uniform(0.0, limits.max_rotation_speed_rad_s)),
        )
    )
    speeds = np.linalg.pinv(chain.jacobian(chain.frames(q)), rcond=0.05) @ twist
    return dataclasses.replace(
        at_rest(robot, q), joint_velocity_rad_s=speeds, tcp_twist_in_base=twist
    )


def commands(
    limits: Limits,
    state: RobotState,
    rng: np.random.Generator,
    count: int,
    drift: F64 = STILL,
) -> Iterator[Command]:
    """Commands in random directions, up to what the gate lets through in one step from rest.

    drift: what is added to the direction [3], a random vector of length about 1.7.
    """
    dt_s = limits.command_timeout_s
    most_m = 0.999 * min(limits.max_step_m, limits.max_speed_m_s * dt_s)
    most_rad = 0.999 * min(limits.max_step_rad, limits.max_rotation_speed_rad_s * dt_s)
    for number in range(count):
        way = _within(rng.normal(size=3) + drift, rng.uniform(0.0, most_m))
        turn = _within(rng.normal(size=3), rng.uniform(0.0, most_rad))
        tcp = state.tcp_in_base
        target = pose(
            tcp.position_m + way, quat_multiply(quat_from_rotvec(turn), tcp.quaternion_xyzw)
        )
        yield Command(number, 0.0, Driver.POLICY, "bench", target)


def _within(way: F64, length: float) -> F64:
    """A vector in the direction of `way` [3], of a length."""
    return way * (length / np.linalg.norm(way))
