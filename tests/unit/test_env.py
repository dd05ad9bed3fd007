"""RobotEnv over the simulator: Gymnasium's own checker, seeding, gate in the way."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from robot_rl.env import RobotEnv
from robot_rl.safety.limits import Limits
from robot_rl.safety.local import LocalGate
from robot_rl_sim.robot import MujocoRobot
from robot_rl_sim.tasks import LiftTask, PegInsertTask, ReachTask


def make(task: object, gated: bool = True) -> RobotEnv:
    robot = MujocoRobot(task)  # type: ignore[arg-type]
    gate = LocalGate(Limits(), robot) if gated else None
    return RobotEnv(task, robot, robot, robot.reset, gate=gate)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", [ReachTask(), LiftTask(), PegInsertTask()])
def test_gymnasium_accepts_it(task: object) -> None:
    check_env(make(task), skip_render_check=True)


def test_same_seed_and_actions_give_the_same_episode() -> None:
    env, rng = make(PegInsertTask()), np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (20, 6)).astype(np.float32)
    runs = []
    for _ in range(2):
        first, _ = env.reset(seed=7)
        runs.append([first["state"], *(env.step(a)[0]["state"] for a in actions)])
    assert np.array_equal(runs[0], runs[1])


def test_the_time_limit_truncates_and_says_what_the_gate_did() -> None:
    env = make(PegInsertTask(max_steps=3))
    env.reset(seed=0)
    down = np.array([0, 0, 1, 0, 0, 0], np.float32)
    results = [env.step(down) for _ in range(3)]
    assert [r[3] for r in results] == [False, False, True]
    assert not any(r[2] for r in results)
    assert results[0][4]["gate"] in ("pass", "clipped")
