"""Training on a Gymnasium environment, through the same store, learner and evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robot_rl.cli.train import summary
from robot_rl.report.report import write_report
from robot_rl.run.evaluate import evaluate
from robot_rl.run.experiment import Experiment
from robot_rl.run.train import train


def pendulum(folder: Path, *words: str) -> dict[str, Any]:
    """Train on the pendulum; returns eval.json."""
    return train(Experiment.compose(["experiment=gym", f"run_dir={folder}", *words]))


SMALL = (
    "task.max_steps=40",
    "algo.hidden=[16,16]",
    "algo.batch_size=16",
    "learner.min_steps=40",
    "train.max_env_steps=80",
    "train.eval_episodes=2",
    "train.stochastic_eval_episodes=1",
)


def test_a_run_ends_with_its_return_and_the_same_seed_repeats_it(tmp_path: Path) -> None:
    first, second = pendulum(tmp_path / "a", *SMALL), pendulum(tmp_path / "b", *SMALL)
    assert first["deterministic"] == second["deterministic"]
    assert first["env_steps"] == 80 and first["human_steps"] == 0
    assert not first["deterministic"]["success_known"]
    assert first["deterministic"]["return_mean"] < 0
    assert "deterministic mean return -" in summary(first)
    assert "nobody says what success is" in write_report(tmp_path / "a").read_text()
    assert evaluate(tmp_path / "a", episodes=2)["deterministic"] == first["deterministic"]
    assert not (tmp_path / "a" / "eval.mp4").exists()  # no render mode: a warning, not an error


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    seen: list[Any] = []

    def interrupt(stats: dict[str, Any]) -> None:
        seen.append(stats)
        if len(seen) == 1:
            raise KeyboardInterrupt

    words = ["experiment=gym", f"run_dir={tmp_path / 'c'}", *SMALL]
    with pytest.raises(KeyboardInterrupt):
        train(Experiment.compose(words), interrupt)
    result = train(Experiment.compose(words), interrupt)
    assert result["env_steps"] == 80
    assert json.loads((tmp_path / "c" / "eval.json").read_text()) == result


@pytest.mark.slow
def test_the_pendulum_is_swung_up(tmp_path: Path) -> None:
    words = ("task.success_return=-400", "train.max_env_steps=6000", "train.eval_episodes=20")
    result = pendulum(tmp_path / "p", *words, "train.stochastic_eval_episodes=0")
    assert result["deterministic"]["successes"] >= 18
    assert result["deterministic"]["return_mean"] > -300
