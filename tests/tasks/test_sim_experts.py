"""Scripted experts solve their tasks; chance does not."""

from __future__ import annotations

import numpy as np
import pytest

from robot_rl.config.registry import resolve
from robot_rl.tasks import SimTask
from robot_rl.types import Command, Driver
from robot_rl_sim.robot import MujocoRobot


def run_episode(task: SimTask, robot: MujocoRobot, seed: int, skill: float | None) -> int | None:
    """Steps until success with the expert (skill None: random actions); None without success."""
    rng, spec = np.random.default_rng(seed), task.spec.action
    robot.reset(task.sample_reset(rng))
    expert = task.expert(skill) if skill is not None else None
    if expert is not None:
        expert.reset(rng)
    state = robot.read()
    for k in range(task.max_steps):
        action = (
            expert.act(state)
            if expert is not None
            else rng.uniform(-1, 1, spec.size).astype(np.float32)
        )
        assert action.dtype == np.float32
        assert np.abs(action).max() <= 1.0
        target, width = spec.target(action, state.tcp_in_base), spec.gripper_width_m(action)
        robot.apply(Command(k, state.stamp_s, Driver.POLICY, "test", target, width))
        robot.advance(1 / task.control_hz)
        state = robot.read()
        if task.success(state):
            return k + 1
        if task.failure(state):
            return None
    return None


@pytest.mark.parametrize(
    ("config", "mean_steps"),
    [
        ({"name": "reach"}, 10),
        ({"name": "lift"}, 30),
        ({"name": "pick_insert"}, 45),
        ({"name": "peg_insert", "variant": "easy"}, 30),
        ({"name": "peg_insert", "variant": "std"}, 30),
        ({"name": "peg_insert", "variant": "hard"}, 30),
        ({"name": "peg_insert", "hole_yaw_rad": 0.5, "start_yaw_rad": 0.5}, 35),
    ],
    ids=lambda c: "-".join(map(str, c.values())) if isinstance(c, dict) else None,
)
def test_expert_solves_its_task(config: dict[str, object], mean_steps: float) -> None:
    task = resolve("task", config)
    robot = MujocoRobot(task)
    steps = [run_episode(task, robot, seed, 1.0) for seed in range(15)]
    solved = [s for s in steps if s is not None]
    assert len(solved) == len(steps)
    assert np.mean(solved) <= mean_steps


def test_less_skill_takes_longer_and_no_skill_fails() -> None:
    task = resolve("task", {"name": "peg_insert"})
    robot = MujocoRobot(task)

    def mean_steps(skill: float) -> float:
        runs = [run_episode(task, robot, seed, skill) for seed in range(8)]
        return float(np.mean([task.max_steps if s is None else s for s in runs]))

    best, good, bad = mean_steps(1.0), mean_steps(0.85), mean_steps(0.2)
    assert best < good < bad


@pytest.mark.parametrize("variant", ["easy", "std"])
def test_random_actions_never_insert_the_peg(variant: str) -> None:
    task = resolve("task", {"name": "peg_insert", "variant": variant})
    robot = MujocoRobot(task)
    assert not any(run_episode(task, robot, seed, None) for seed in range(10))
