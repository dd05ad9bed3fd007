"""Every algorithm learns the same wherever the replay keeps its frames, mirrored or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robot_rl.errors import ConfigError
from robot_rl.learn.frames import on_device
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.spec import BASE_AGE, Spec, TensorSpec
from robot_rl.types import Driver, Ending, Frame, Row
from tests.learn.test_family import CONFIGS, small
from tests.support.point_mass import FakeStore
from tests.support.replay_rows import episode_id, start, step

LAYOUT = (("way", 3, "m"),)
SIGNS = {"way": (1, -1, 1)}


def rows_of(space: Spec, length: int = 16) -> list[Row]:
    """A random demonstration and a random practice episode."""
    rng, rows = np.random.default_rng(0), list[Row]()
    for number, (purpose, driver) in enumerate([("demo", Driver.DEMO), ("train", Driver.POLICY)]):
        rows.append(start(number, purpose, space.hash))
        for index in range(length):
            seen = {
                k: rng.integers(0, 256, v.shape, np.uint8)
                if v.dtype == "uint8"
                else rng.uniform(-0.9, 0.9, v.shape).astype(np.float32)
                for k, v in space.observation.items()
            }
            if BASE_AGE in seen:
                seen[BASE_AGE][:] = index % 4  # the noise of a plan is decided every fourth tick
            rows.append(Frame(episode_id(number), index, 0, seen))
            action = rng.uniform(-1, 1, space.action.size).astype(np.float32)
            ending = Ending.TRUNCATED if index == length - 2 else None
            if index < length - 1:
                rows.append(replace(step(number, index, driver, ending=ending), action=action))
    return rows


@pytest.mark.parametrize("way", ["mirrored", "cameras"])
@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_where_frames_lie_changes_nothing(path: Path, way: str, tmp_path: Path) -> None:
    config, space, _ = small(path, images=way == "cameras")
    space, store = replace(space, state_layout=LAYOUT), FakeStore()
    store.rows = rows_of(space)
    states = []
    for place in ("memory", "device"):  # "disk" is an array like "memory"
        setup = LearnerConfig(
            min_steps=1, capacity=200, checkpoint_updates=0, frames=place, mirror=way == "mirrored"
        )
        folder = tmp_path / place
        if setup.mirror and len(space.observation) > 1:
            with pytest.raises(ConfigError, match="not symmetric"):
                Learner(setup, config, space, store, run_dir=folder, seed=0, mirror=SIGNS)
            setup = replace(setup, mirror=False)
        learner = Learner(setup, config, space, store, run_dir=folder, seed=0, mirror=SIGNS)
        learner.ingest()
        learner.update(2)
        states.append(learner.algo.state_dict())
        learner.close()
    for other in states[1:]:
        assert all(torch.equal(v, other[k]) for k, v in states[0].items())


def test_a_device_holds_images_and_vectors_stay_arrays() -> None:
    allocate = on_device("cpu")
    image = TensorSpec((4, 4, 3), "uint8")
    frames = allocate("image/wrist", (5, *image.shape), image.dtype)
    assert isinstance(frames.take(np.array([1, 2]), 0), torch.Tensor)
    assert isinstance(allocate("state", (5, 3), "float32").take(np.array([1, 2]), 0), np.ndarray)
