"""The whole learner on a real, if small, task with a sparse reward."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_rl.learn.algos import BcConfig, HilSerlConfig
from robot_rl.learn.algos.base import AlgorithmConfig
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.policy.runtime import PolicyRuntime
from tests.support.point_mass import (
    SPEC,
    FakeStore,
    PointMass,
    demonstrate,
    practice,
    success_rate,
)

LOCKSTEP = LearnerConfig(publish_period_s=0.0, checkpoint_updates=0)
SMALL = HilSerlConfig(hidden=(64, 64), batch_size=128)


def train(
    algo: AlgorithmConfig, config: LearnerConfig, folder: Path, *, demos: int, env_steps: int
) -> PolicyRuntime:
    store, env = FakeStore(), PointMass(0)
    learner = Learner(config, algo, SPEC, store, run_dir=folder, seed=0)
    policy = PolicyRuntime(algo, SPEC)
    demonstrate(store, env, demos)
    learner.ingest()
    while due := learner.updates_due():
        learner.update(due)
    practice(learner, store, env, policy, env_steps)
    learner.close()
    return policy


def test_reaches_the_goal_within_a_fixed_step_budget(tmp_path: Path) -> None:
    algo = HilSerlConfig(hidden=(64, 64), batch_size=128, n_step=3, std_init=0.3)
    policy = train(algo, LOCKSTEP, tmp_path, demos=20, env_steps=800)
    assert success_rate(policy, 50, deterministic=True) > 0.9
    assert success_rate(policy, 50, deterministic=False) > 0.9


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_reaches_the_goal_with_one_step_returns(tmp_path: Path) -> None:
    policy = train(SMALL, LOCKSTEP, tmp_path, demos=20, env_steps=2000)
    assert success_rate(policy, 50, deterministic=True) > 0.9


def test_behaviour_cloning_runs_through_the_same_learner(tmp_path: Path) -> None:
    algo = BcConfig(hidden=(64, 64), batch_size=128)
    config = LearnerConfig(pretrain_updates=600, publish_period_s=0.0, checkpoint_updates=0)
    policy = train(algo, config, tmp_path, demos=20, env_steps=0)
    assert success_rate(policy, 30, deterministic=True) > 0.5
