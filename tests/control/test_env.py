"""RobotEnv over the simulator: Gymnasium's own checker, seeding, gate in the way."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from robot_rl.control.env import RobotEnv
from robot_rl.safety.limits import Limits
from robot_rl.safety.local import LocalGate
from robot_rl.tasks import LiftTask, PegInsertTask, ReachTask
from robot_rl_sim.envs import TASKS
from robot_rl_sim.robot import MujocoRobot


def make(task: object, gated: bool = True) -> RobotEnv:
    robot = MujocoRobot(task)  # type: ignore[arg-type]
    gate = LocalGate(Limits(), robot) if gated else None
    return RobotEnv(task, robot, robot, robot.reset, gate=gate)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", [ReachTask(), LiftTask(), PegInsertTask()])
def test_gymnasium_accepts_it(task: object) -> None:
    check_env(make(task), skip_render_check=True)


@pytest.mark.parametrize("name", TASKS)
def test_other_libraries_make_our_tasks_by_id(name: str) -> None:
    env = gymnasium.make(f"robot_rl/{name}-v0", max_steps=2)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    still = np.zeros(env.action_space.shape or (), np.float32)
    *_, truncated, info = [env.step(still) for _ in range(2)][-1]
    assert truncated and info["is_success"] is False and info["gate"]
    env.close()


@pytest.mark.gl
def test_they_can_be_watched() -> None:
    env = gymnasium.make("robot_rl/Reach-v0", render_mode="rgb_array", images=["wrist"])
    observation, _ = env.reset(seed=0)
    assert observation["image/wrist"].shape == (128, 128, 3)
    assert np.asarray(env.render()).shape == (480, 640, 3)
    env.close()


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
