"""Critics that see what the policy never gets: privileged entries of an observation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from robot_rl.data.lerobot_format import feature_of
from robot_rl.errors import CheckpointError, ConfigError, SpecError
from robot_rl.learn.algos import CalQlConfig, HilSerlConfig, IqlConfig, RlifConfig, Td3Config
from robot_rl.learn.algos.agent import ActorCriticConfig, Agent
from robot_rl.learn.algos.base import Algorithm
from robot_rl.learn.diagnostics import probe
from robot_rl.learn.replay import Batch
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.nets.observation import ObservationNet
from robot_rl.policy.runtime import PolicyRuntime, load_policy, save_policy
from robot_rl.run.deploy_setup import _refuse_other
from robot_rl.run.experiment import Experiment
from robot_rl.spec import PRIVILEGED, ActionSpec, Spec, TensorSpec
from robot_rl.types import Weights

PX = 16
HIDDEN = PRIVILEGED + "state"
SMALL: dict[str, Any] = {"hidden": (16,), "batch_size": 8, "precision": "float32"}
TINY = EncoderConfig(channels=(8, 8), latent=4)


def spec(images: bool = False, gripper: bool = False) -> Spec:
    seen = {"state": TensorSpec((3,), "float32"), HIDDEN: TensorSpec((2,), "float32")}
    seen |= {"image/wrist": TensorSpec((PX, PX, 3), "uint8")} if images else {}
    return Spec("fake", 10.0, seen, ActionSpec(0.01, 0.1, gripper))


class Data:
    """Random transitions."""

    def __init__(self, of: Spec) -> None:
        self.rng, self.spec = np.random.default_rng(0), of

    def observation(self, n: int) -> dict[str, np.ndarray]:
        draw = {
            "float32": lambda shape: self.rng.normal(size=shape).astype(np.float32),
            "uint8": lambda shape: self.rng.integers(0, 256, shape, np.uint8),
        }
        return {k: draw[v.dtype]((n, *v.shape)) for k, v in self.spec.observation.items()}

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        n, zero = batch_size, np.zeros(batch_size, np.float32)
        return Batch(
            observation=self.observation(n),
            action=self.rng.uniform(-1, 1, (n, self.spec.action.size)).astype(np.float32),
            reward=self.rng.uniform(0, 1, n).astype(np.float32),
            next_observation=self.observation(n),
            mask=zero + 1,
            human=np.arange(n) % 2 == 0,
            toggle=zero,
            steps=zero + 1,
            return_to_go=zero,
            before_takeover=zero,
        )


def worth(algo: Agent, seen: dict[str, np.ndarray], action: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        pose = torch.from_numpy(action)[:, : algo.net.pose_size]
        return algo.q(algo.moment(seen), pose, algo.critic).mean(0)


@pytest.mark.parametrize("policy_tau", [1.0, 0.01])
@pytest.mark.parametrize("images", [False, True])
def test_critics_see_it_and_what_travels_to_the_robot_does_not(
    images: bool, policy_tau: float
) -> None:
    of = spec(images, gripper=True)
    config = HilSerlConfig(**SMALL, encoder=TINY, policy_tau=policy_tau)
    algo, data = config.make(of, 0), Data(of)
    assert set(algo.observation_keys) == set(of.observation)
    assert HIDDEN not in algo.net.observation_keys
    plain = config.make(of.of_policy(), 0)
    shapes = {k: v.shape for k, v in algo.actor_state().items()}
    assert shapes == {k: v.shape for k, v in plain.actor_state().items()}

    seen, batch = data.observation(5), data(5, 0.5)
    other = seen | {HIDDEN: seen[HIDDEN] + 1.0}
    learned = [algo.update(data) for _ in range(3)]
    assert all(torch.isfinite(v).all() for v in learned[-1].values())
    assert torch.equal(algo.act(seen, True), algo.act(other, True))
    assert not torch.allclose(worth(algo, seen, batch.action), worth(algo, other, batch.action))
    assert probe(cast("Algorithm", algo), batch)["critic/q_std"] > 0.0


def test_what_critics_see_is_scaled_and_saved_with_their_state() -> None:
    of = spec()
    config = HilSerlConfig(**SMALL)
    algo, data = config.make(of, 0), Data(of)
    far = data.observation(500)
    far[HIDDEN] = 100.0 + 5.0 * far[HIDDEN]
    algo.standardize(far)
    scaled = algo.moment(far).privileged
    assert scaled is not None
    assert scaled.mean().abs() < 0.01 and (scaled.std() - 1.0).abs() < 0.05
    algo.update(data)
    again = config.make(of, 1)
    again.load_state_dict(algo.state_dict())
    action = data(500, 0.5).action
    assert torch.equal(worth(again, far, action), worth(algo, far, action))


def test_from_cameras_the_policys_loss_trains_the_encoder() -> None:
    of = spec(images=True, gripper=True)
    algo, data = HilSerlConfig(**SMALL, encoder=TINY).make(of, 0), Data(of)
    assert set(algo.critics) == {"critic"}
    before = algo.actor["encoder"].detach().clone()
    drawn = algo.transitions(data(8, 0.5))
    algo.critic_step(algo.see(drawn))
    assert torch.equal(algo.actor["encoder"], before)
    gripper = algo.slow["gripper"].clone()
    algo.update(data)
    assert not torch.equal(algo.actor["encoder"], before)
    moved = (algo.slow["gripper"] - gripper).abs().max()
    assert 0.0 < moved < (algo.actor["gripper"] - gripper).abs().max()  # a slow copy follows


@pytest.mark.parametrize("kind", [IqlConfig, CalQlConfig, Td3Config, RlifConfig])
def test_algorithms_that_cannot_use_it_say_so(kind: type[ActorCriticConfig]) -> None:
    with pytest.raises(ConfigError, match="cannot learn from privileged entries"):
        kind(**SMALL).make(spec(), 0)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_policy_that_looks_at_it_never_drives() -> None:
    class Peeking:
        def make_actor(self, spec: Spec) -> Any:
            net = HilSerlConfig(**SMALL).make_actor(spec)
            return replace(net, keys=(*net.keys, HIDDEN))

    with pytest.raises(SpecError, match="looks at privileged entries"):
        PolicyRuntime(Peeking(), spec())


def test_a_policy_also_drives_where_nobody_knows_it(tmp_path: Path) -> None:
    weights = Weights(3, "", b"abc")
    weights = replace(weights, sha256=_sha256(weights.data))
    save_policy(tmp_path, weights, spec())
    assert load_policy(tmp_path, spec().of_policy()).version == 3
    with pytest.raises(CheckpointError):
        load_policy(tmp_path, spec(gripper=True))


def test_a_policy_is_deployed_where_nobody_knows_it() -> None:
    words = ["experiment=peg_insert_easy_pixels", "runtime=lockstep"]
    trained, here = (
        Experiment.compose([*words, f"task.asymmetric={x}"]) for x in ("true", "false")
    )
    _refuse_other(trained, here, Path("run"))
    with pytest.raises(SpecError, match="trained to see"):
        _refuse_other(trained, Experiment.compose([*words, "task.images=[wrist]"]), Path("run"))


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def test_networks_of_the_robot_never_have_it() -> None:
    assert ObservationNet.of(spec()).keys == ("state",)
    assert spec().of_policy().hash == spec().of_policy().of_policy().hash != spec().hash


def test_all_of_it_lives_on_the_learners_device() -> None:
    of = spec(images=True, gripper=True)  # "meta" has no memory: a tensor left behind is an error
    algo, data = HilSerlConfig(**SMALL, encoder=TINY).make(of, 0, "meta"), Data(of)
    algo.standardize(data.observation(20))
    assert {v.device.type for v in algo.update(data).values()} == {"meta"}


def test_no_other_program_is_shown_it_as_an_observation() -> None:
    assert feature_of(HIDDEN) == "robot_rl.privileged.state"
    assert feature_of("state") == "observation.state"


def test_a_task_tells_critics_where_the_objects_are() -> None:
    seen = Experiment.compose(["experiment=peg_insert_easy_pixels", "task.asymmetric=true"]).spec
    assert seen.privileged == (HIDDEN,)
    with pytest.raises(ConfigError, match="nothing is hidden from the policy"):
        Experiment.compose(["experiment=reach", "task.asymmetric=true"]).task  # noqa: B018
