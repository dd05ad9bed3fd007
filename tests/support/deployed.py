"""Policies of `reach` within seconds: one that has seen the way, one that has learned nothing."""

from __future__ import annotations

from pathlib import Path

from robot_rl.run.experiment import Experiment
from robot_rl.run.train import train

CLONE = (
    "experiment=reach",
    "algo=bc",
    "algo.hidden=[64]",
    "algo.batch_size=64",
    "train.max_env_steps=0",
    "train.eval_episodes=1",
    "train.stochastic_eval_episodes=0",
    "train.video=false",
)


def trained(folder: Path, *words: str, good: bool = True) -> Path:
    """A run with a policy; good: it succeeds nearly always, else never."""
    learned = ["train.demos=10", "learner.pretrain_updates=600"]
    if not good:
        learned = ["train.demos=1", "learner.pretrain_updates=1", "seed=1"]
    train(Experiment.compose([*CLONE, *learned, *words, f"run_dir={folder}"]))
    return folder
