"""The policy on the robot: adopts only what it can trust, and acts in far less than a tick."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from robot_rl.errors import LinkError, SpecError
from robot_rl.learn.algos import HilSerlConfig
from robot_rl.policy.runtime import PolicyRuntime, load_policy, save_policy
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.types import Weights

SPEC = Spec(
    task="fake",
    control_hz=10.0,
    observation={
        "state": TensorSpec((30,), "float32"),
        "image/wrist": TensorSpec((8, 8, 3), "uint8"),
    },
    action=ActionSpec(translation_m=0.01, rotation_rad=0.1, gripper=True),
)
ALGO = HilSerlConfig()
OBSERVATION = {
    "state": np.linspace(-1, 1, 30, dtype=np.float32),
    "image/wrist": np.zeros((8, 8, 3), np.uint8),
}


def weights(algo: HilSerlConfig = ALGO, version: int = 3, spoil: float | None = None) -> Weights:
    tensors = algo.make(SPEC, 1).actor_state()
    if spoil is not None:
        tensors["policy"][0, 0] = spoil
    data = safetensors.torch.save(tensors)
    return Weights(version, hashlib.sha256(data).hexdigest(), data)


def test_stands_still_before_any_weights() -> None:
    policy = PolicyRuntime(ALGO, SPEC)
    assert policy.version == -1
    assert (policy.act(OBSERVATION, False) == 0.0).all()


def test_acts_as_the_learner_would() -> None:
    policy = PolicyRuntime(ALGO, SPEC)
    policy.load(weights())
    action = policy.act(OBSERVATION, True)
    batch = {k: v[None] for k, v in OBSERVATION.items()}
    want = replace(ALGO, precision="float32").make(SPEC, 1).act(batch, True)[0].numpy()
    np.testing.assert_allclose(action, want, atol=1e-6)
    assert (policy.version, action.dtype, action.shape) == (3, np.float32, (7,))
    assert np.abs(action).max() <= 1.0


def test_weights_that_propose_nan_are_frozen_until_others_come() -> None:
    policy = PolicyRuntime(ALGO, SPEC)
    policy.load(weights(version=3))
    blind = OBSERVATION | {"state": np.full(30, np.nan, np.float32)}
    assert not policy.problem and not policy.ready()
    assert np.isnan(policy.act(blind, True)).any()
    assert policy.problem == policy.ready() == "weights 3 proposed an action that is not finite"
    policy.begin_episode()
    assert policy.ready()  # the next observation may be good: these weights are not trusted
    assert policy.refused is not None and np.isnan(policy.refused).any()
    policy.load(weights(version=4))
    assert not policy.problem and not policy.ready() and policy.refused is None
    assert np.isfinite(policy.act(OBSERVATION, True)).all()


def test_weights_with_which_the_network_raises_are_frozen_until_others_come(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policy = PolicyRuntime(ALGO, SPEC)
    policy.load(weights(version=3))
    with monkeypatch.context() as patch:
        patch.setattr(type(policy._net), "act", lambda *_a, **_k: torch.zeros(2) @ torch.zeros(3))
        assert np.isnan(policy.act(OBSERVATION, True)).all()  # which no gate lets pass
    assert policy.problem == policy.ready() and policy.refused is not None
    assert policy.problem.startswith("weights 3 raised RuntimeError: ")
    assert "the policy raised" in caplog.text
    policy.load(weights(version=4))
    assert not policy.ready() and np.isfinite(policy.act(OBSERVATION, True)).all()


def test_exploration_noise_is_seeded() -> None:
    actions = []
    for seed in (0, 0, 1):
        policy = PolicyRuntime(ALGO, SPEC, seed)
        policy.load(weights())
        actions.append(policy.act(OBSERVATION, False))
    assert (actions[0] == actions[1]).all()
    assert (actions[0] != actions[2]).any()


def test_damaged_foreign_and_nan_weights_leave_the_ones_in_use(tmp_path: Path) -> None:
    policy = PolicyRuntime(ALGO, SPEC)
    policy.load(weights())
    before = policy.act(OBSERVATION, True)
    good = weights(version=4)
    garbage = b"\x10" + bytes(40)
    for bad, error, words in (
        (replace(good, data=good.data[:-1] + b"\x00"), LinkError, "damaged"),
        (Weights(5, hashlib.sha256(garbage).hexdigest(), garbage), LinkError, "cannot be read"),
        (weights(HilSerlConfig(hidden=(64, 64))), SpecError, "another network"),
        (weights(spoil=float("nan")), SpecError, "NaN"),
    ):
        with pytest.raises(error, match=words):
            policy.load(bad)
    assert policy.version == 3
    assert (policy.act(OBSERVATION, True) == before).all()


def test_a_saved_policy_is_on_the_disk_and_its_manifest_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    rename = Path.replace

    def renamed(self: Path, target: Path) -> Path:
        did.append(target.name)
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", lambda _descriptor: did.append("sync"))
    monkeypatch.setattr(Path, "replace", renamed)
    good = weights()
    save_policy(tmp_path, good, SPEC)
    assert did == ["sync", "policy.safetensors", "sync", "sync", "policy.json", "sync"]
    assert load_policy(tmp_path, SPEC) == good
