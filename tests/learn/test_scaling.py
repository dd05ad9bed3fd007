"""The scaling of the state follows the data while it grows, and ends with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robot_rl.learn.algos import HilSerlConfig
from robot_rl.learn.checkpoint import CheckpointFolder
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.nets.observation import SCALED_LIMIT
from robot_rl.types import Driver, Frame
from tests.support.point_mass import SPEC, FakeStore, PointMass, demonstrate

ALGO = HilSerlConfig(hidden=(16,), batch_size=16, demo_fraction=0.0)
CONFIG = LearnerConfig(min_steps=1, publish_period_s=0.0, checkpoint_updates=0)
NUMBER = 2  # of the state: the goal's x, which is 0.5 in every frame of a point mass


def practise(store: FakeStore, episodes: int, first: int, spread: float = 0.0) -> None:
    """Add episodes of random actions, in which one number of the state varies by `spread`."""
    env = PointMass(first)
    env.episodes = first
    for _ in range(episodes):
        act = lambda _: (env.rng.uniform(-1, 1, 6).astype(np.float32), Driver.POLICY)  # noqa: E731
        for row in env.episode(act)[0]:
            if isinstance(row, Frame):
                row.observation["state"][NUMBER] += env.rng.uniform(-spread, spread)
            store.rows.append(row)


def make(store: FakeStore, folder: Path, config: LearnerConfig = CONFIG) -> Learner:
    learner = Learner(config, ALGO, SPEC, store, run_dir=folder, seed=0)
    learner.ingest()
    return learner


def moments(learner: Learner) -> tuple[torch.Tensor, torch.Tensor]:
    return learner.algo.actor_state()["mean"].clone(), learner.algo.actor_state()["scale"].clone()


def seen(learner: Learner, values: list[float]) -> list[float]:
    """What the networks see of states with these values of the number that varies."""
    states = torch.tensor([[0.0, 0.0, v, 0.3] for v in values])
    return learner.algo.net.scaled(states, learner.algo.actor_state())[:, NUMBER].tolist()


def test_a_number_that_did_not_vary_at_first_is_told_apart_later(tmp_path: Path) -> None:
    store = FakeStore()
    practise(store, 4, first=0)
    learner = make(store, tmp_path)
    learner.update(2)
    assert seen(learner, [1.5, 2.5]) == [SCALED_LIMIT] * 2  # far from all that was seen
    for first in (10, 20, 30):
        practise(store, 4, first, spread=2.0)
        learner.ingest()
        learner.update(2)
    low, high = seen(learner, [1.5, 2.5])
    assert 0.0 < low < high - 0.3 and high < 4.0


def test_people_and_data_count_although_the_algorithm_does_not_learn_from_them(
    tmp_path: Path,
) -> None:
    store = FakeStore()
    demonstrate(store, PointMass(0), 6)
    for row in store.rows:
        if isinstance(row, Frame):
            row.observation["state"][NUMBER] = 3.0
    practise(store, 12, first=10)
    learner = make(store, tmp_path)
    learner.update(2)
    assert float(moments(learner)[0][NUMBER]) == pytest.approx(1.75, abs=0.1)  # half of each


def test_between_two_fits_and_without_new_data_the_scaling_stays(tmp_path: Path) -> None:
    store = FakeStore()
    practise(store, 10, first=0)
    learner = make(store, tmp_path)
    learner.update(2)
    before = moments(learner)
    practise(store, 1, first=20, spread=3.0)  # a tenth more
    learner.ingest()
    learner.update(20)
    assert all(torch.equal(a, b) for a, b in zip(before, moments(learner), strict=True))
    practise(store, 3, first=30, spread=3.0)
    learner.ingest()
    learner.update(2)
    assert not torch.equal(before[1], moments(learner)[1])


def test_what_another_run_has_learned_keeps_its_scaling(tmp_path: Path) -> None:
    store = FakeStore()
    practise(store, 4, first=0, spread=1.0)
    first = make(store, tmp_path / "first")
    first.update(2)
    first.save()
    other = FakeStore()
    practise(other, 4, first=50, spread=3.0)
    config = replace(CONFIG, init_from=str(tmp_path / "first"))
    second = make(other, tmp_path / "second", config)
    for start in (60, 70):
        second.update(2)
        practise(other, 8, first=start, spread=3.0)
        second.ingest()
    assert all(torch.equal(a, b) for a, b in zip(moments(first), moments(second), strict=True))


def test_a_run_of_an_older_version_keeps_its_scaling(tmp_path: Path) -> None:
    store = FakeStore()
    practise(store, 4, first=0)
    learner = make(store, tmp_path)
    learner.update(2)
    learner.save()
    folder = CheckpointFolder(tmp_path / "checkpoints")
    checkpoint = folder.load(SPEC.hash)
    assert checkpoint is not None
    del checkpoint.facts["scaled_frames"]
    folder.save(checkpoint)
    practise(store, 8, first=20, spread=3.0)
    resumed = Learner(CONFIG, ALGO, SPEC, store, run_dir=tmp_path, seed=0)
    assert resumed.load()
    resumed.ingest()
    resumed.update(2)
    assert all(torch.equal(a, b) for a, b in zip(moments(learner), moments(resumed), strict=True))


def test_after_a_return_to_an_earlier_state_the_scaling_is_fitted_again(tmp_path: Path) -> None:
    store = FakeStore()
    practise(store, 4, first=0)
    learner = make(store, tmp_path)
    learner.update(2)
    fitted = moments(learner)
    learner._watch(
        {"optimizer/bad_in_a_row": torch.tensor(9), "optimizer/skipped": torch.tensor(9)}
    )
    assert float(moments(learner)[1][0]) == 1.0  # as it was made
    learner.update(2)
    torch.testing.assert_close(moments(learner)[1], fitted[1], rtol=0.1, atol=0.0)
