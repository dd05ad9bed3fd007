"""TACO: what an encoder learns beside values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.learn.algos import HilSerlConfig, IqlConfig
from robot_rl.learn.algos.hil_serl import HilSerl
from robot_rl.learn.replay import Batch
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.spec import PRIVILEGED, ActionSpec, Spec, TensorSpec

PX, ROWS = 16, 16
SMALL: dict[str, Any] = {"hidden": (16,), "batch_size": ROWS, "precision": "float32"}
EYE = EncoderConfig(channels=(8, 8), latent=8, shift_px=0)


def spec(images: bool = True, privileged: bool = False) -> Spec:
    seen = {"state": TensorSpec((3,), "float32")}
    seen |= {"image/front": TensorSpec((PX, PX, 3), "uint8")} if images else {}
    seen |= {PRIVILEGED + "state": TensorSpec((2,), "float32")} if privileged else {}
    return Spec("fake", 10.0, seen, ActionSpec(0.01, 0.1, True))


class Slider:
    """A light stands somewhere in the picture; the action says where it goes. No reward."""

    def __init__(self, of: Spec, told: bool = True) -> None:
        self.rng, self.spec, self.told = np.random.default_rng(0), of, told

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        n, zero = batch_size, np.zeros(batch_size, np.float32)
        at, to = (self.rng.integers(0, PX, (n, 2)) for _ in range(2))
        action = self.rng.uniform(-1, 1, (n, self.spec.action.size)).astype(np.float32)
        if self.told:
            action[:, :2] = (to - at) / PX
        return Batch(
            observation=self.seen(at), action=action, reward=zero, next_observation=self.seen(to),
            mask=zero + 1, human=zero > 0, toggle=zero, steps=zero + 1, return_to_go=zero,
            before_takeover=zero,
        )  # fmt: skip

    def seen(self, at: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        for name, of in self.spec.observation.items():
            found[name] = np.zeros((len(at), *of.shape), of.dtype)
        if "image/front" in found:
            for row, (x, y) in enumerate(at):
                found["image/front"][row, max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3] = 255
        return found


def learner(weight: float, of: Spec | None = None, **words: Any) -> HilSerl:
    config = HilSerlConfig(**SMALL, encoder=EYE, taco_weight=weight, **words)
    return config.make(of or spec(), seed=0)


def test_the_loss_is_the_papers() -> None:
    """Against exp and log, row by row."""
    algo = learner(1.0)
    assert algo.taco is not None
    batch = algo.see(algo.transitions(Slider(algo.spec)(ROWS, 0.0)))
    loss, metrics = algo.taco.loss(batch)
    z, after = batch.now.features[:, 3:], batch.then.features[:, 3:]
    g = algo.taco._code("taco_from", z, batch.action).detach().double().numpy()
    h = algo.taco._code("taco_to", after).detach().double().numpy()
    likeness = np.exp(g @ h.T)
    wanted = -np.log(np.diag(likeness) / likeness.sum(1)).mean()
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-5)
    assert float(metrics["taco/right"]) == np.mean(likeness.argmax(1) == np.arange(ROWS))


def test_an_encoder_learns_where_an_action_leads_and_only_from_the_action() -> None:
    """With nothing to gain from rewards, so only this loss can teach it."""
    found = {}
    for told in (True, False):
        algo, sample = learner(1.0, learning_rate=3e-3), Slider(spec(), told)
        before = algo.actor["encoder"].detach().clone()
        right = [float(algo.update(sample)["taco/right"]) for _ in range(150)]
        found[told] = float(np.mean(right[-40:]))
        assert not torch.equal(before, algo.actor["encoder"].detach())
    assert found[True] > 0.25 and found[False] < 0.12, found  # by chance 0.06


def test_a_run_goes_on_to_the_bit_and_begins_from_one_without_it() -> None:
    one, other, sample = learner(1.0), learner(1.0), Slider(spec())
    for _ in range(3):
        one.update(sample)
    assert {"taco_from", "taco_to"} <= one.state_dict().keys()
    other.load_state_dict(one.state_dict())
    batch = sample(2 * ROWS, 0.0)
    for algo in (one, other):
        algo.update(lambda *_: batch)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    plain = learner(0.0)
    fresh = learner(1.0)
    fresh.start_from(plain.state_dict())
    assert torch.equal(fresh.actor["encoder"], plain.actor["encoder"])
    plain.start_from(one.state_dict())
    assert torch.equal(plain.actor["encoder"], one.actor["encoder"])


def test_what_travels_to_the_robot_is_what_travels_without_it() -> None:
    with_it, without = learner(1.0), learner(0.0)
    assert with_it.actor_state().keys() == without.actor_state().keys()
    for name, tensor in without.actor_state().items():
        assert torch.equal(tensor, with_it.actor_state()[name])  # drawn before G and H


def test_other_algorithms_of_the_family_learn_so_too() -> None:
    algo = IqlConfig(**SMALL, encoder=EYE, taco_weight=1.0).make(spec(), seed=0)
    assert "taco/loss" in algo.update(Slider(algo.spec))


@pytest.mark.parametrize("of", [spec(images=False), spec(privileged=True)], ids=("blind", "told"))
def test_without_pictures_or_with_critics_that_look_at_none_there_is_nothing_to_learn(
    of: Spec,
) -> None:
    algo = learner(1.0, of)
    assert algo.taco is None
    assert "taco/loss" not in algo.update(Slider(of))


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="taco_weight must not be negative"):
        HilSerlConfig(taco_weight=-1.0)
