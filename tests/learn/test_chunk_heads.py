"""Heads that decide chunks on a base: they begin as the base, and find what pays."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from robot_rl.config.registry import build, resolve
from robot_rl.errors import ConfigError
from robot_rl.learn.algos import ChunkedConfig, DsrlConfig, QcConfig, ZprlConfig
from robot_rl.learn.algos.bc_flow import BcFlowConfig
from robot_rl.learn.algos.chunked import Chunked
from robot_rl.learn.algos.dsrl import NoiseSteerNet
from robot_rl.learn.replay import Batch
from robot_rl.nets.chunk import OF_BASE, FlowHead
from robot_rl.policy.base.own import FlowBase
from robot_rl.policy.runtime import PolicyRuntime
from robot_rl.run.experiment import Experiment
from robot_rl.spec import BASE_ACTION, ActionSpec, Spec, TensorSpec
from robot_rl.types import Weights

SPEC = Spec(
    "fake", 10.0, {"state": TensorSpec((2,), "float32")}, ActionSpec(0.01, 0.1, gripper=True)
)
H = 4
CONFIGS = Path(__file__).parents[2] / "configs" / "algo"
HEADS = ("dsrl", "zprl", "qc", "pa_rl", "expo", "policy_decorator")


def demonstrated(count: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """States, and what people did in them: a chunk of all +0.5 or all -0.5."""
    side = rng.choice([-0.5, 0.5], count).astype(np.float32)
    chunk = np.broadcast_to(side[:, None, None], (count, H, 7)).copy()
    return rng.normal(size=(count, 2)).astype(np.float32), chunk


@cache
def base(by_state: bool = False) -> FlowBase:
    """A flow that learned both ways; by_state: the state says which one."""
    rng = np.random.default_rng(0)
    config = BcFlowConfig(
        hidden=(64, 64), chunk=H, execute=2, flow_steps=5, learning_rate=3e-3, batch_size=128,
        policy_tau=0.02, latent=4, latent_weight=1e-3,
    )  # fmt: skip
    algo = config.make(SPEC, seed=0)

    def sample(n: int, fraction: float) -> Batch:
        state, chunk = demonstrated(n, rng)
        chunk = np.abs(chunk) * np.sign(state[:, :1, None]) if by_state else chunk
        return batch_of(state, chunk, np.ones(n, np.float32))

    for _ in range(600):
        algo.update(sample)
    return FlowBase(algo.net, algo.actor_state(), seed=0)


def batch_of(state: NDArray, chunk: NDArray, reward: NDArray, plan: NDArray | None = None) -> Batch:
    """One-chunk episodes."""
    n, seen = len(state), {"state": state}
    if plan is not None:
        seen[BASE_ACTION] = plan
    zero = np.zeros(n, np.float32)
    return Batch(
        observation=seen, action=chunk[:, 0], reward=reward.astype(np.float32),
        next_observation=seen, mask=zero, human=zero > 0, toggle=zero, steps=zero + H,
        return_to_go=zero, before_takeover=zero, chunk=chunk, valid=np.ones((n, H), np.bool_),
    )  # fmt: skip


class Bandit:
    """Chunks of the base, some moved a little; the reward says how near their mean is to `best`."""

    def __init__(self, best: float, by_state: bool = False) -> None:
        self.rng, self.best, cloned = np.random.default_rng(1), best, base(by_state)
        self.base = FlowBase(cloned.net, cloned.tensors, seed=1)  # draws of its own

    def __call__(self, n: int, fraction: float) -> Batch:
        state, _ = demonstrated(n, self.rng)
        plan = self.base.sample_many({"state": state})
        moved = plan + self.rng.uniform(-0.2, 0.2, plan.shape)
        chunk = np.clip(moved, -1.0, 1.0).astype(np.float32)
        reward = 1.0 - np.abs(chunk.mean((1, 2)) - self.best)
        return batch_of(state, chunk, reward, plan.astype(np.float32))


def head(name: str, **changes: Any) -> tuple[Any, Spec]:
    """A shipped head on `base()`, small and quick; and the spec of its rows."""
    quick = {
        "hidden": [32, 32], "batch_size": 64, "learning_rate": 3e-3, "precision": "float32",
        "ramp_updates": 1, "chunk": H, "target_entropy_per_dim": -2.0,
        "policy_tau": 1.0, "value_range": None,
    }  # fmt: skip
    config = resolve(
        "algo", yaml.safe_load((CONFIGS / f"{name}.yaml").read_text()) | quick | changes
    )
    if hasattr(config, "running"):
        return config.running(base()), SPEC
    return config, SPEC.with_base(H)


def act(algo: Chunked, observation: dict[str, NDArray], seed: int = 0) -> Tensor:
    """Chunks [B, h, A] as the robot would carry them out."""
    generator = torch.Generator().manual_seed(seed)
    return algo.net.act(observation, algo.actor_state(), deterministic=True, generator=generator)


@pytest.mark.parametrize("name", HEADS)
def test_before_any_update_the_base_drives_exactly(name: str) -> None:
    config, spec = head(name)
    algo, bandit = config.make(spec, seed=3), Bandit(0.5)
    seen = bandit(16, 0.0).observation
    net, state = algo.net, algo.actor_state()
    generator = torch.Generator().manual_seed(5)
    plain = net.base_chunk(net.base(seen, state, generator), state)
    torch.testing.assert_close(act(algo, seen, seed=5).flatten(1), plain, rtol=0, atol=0)
    if isinstance(net, FlowHead):  # and that is what the base itself samples from that noise
        noise = net.base(seen, state, torch.Generator().manual_seed(5))["noise"]
        first = noise[:, : H * 7].view(-1, H, 7).numpy()
        torch.testing.assert_close(
            plain.view(-1, H, 7), torch.from_numpy(base().sample_many(seen, first))
        )


@pytest.mark.parametrize("name", ["dsrl", "qc", "pa_rl", "expo"])
def test_of_what_the_base_does_the_way_that_pays_is_found(name: str) -> None:
    config, spec = head(name)
    algo, bandit = config.make(spec, seed=0), Bandit(0.5)
    for _ in range(100):
        algo.update(bandit)
    done = act(algo, bandit(200, 0.0).observation).mean((1, 2))
    assert float((done > 0.3).float().mean()) > 0.9


def test_a_shift_of_the_code_changes_what_the_base_makes_of_a_state() -> None:
    """People go where the state says; the code says so, too, and can be moved."""
    config, spec = head("zprl", reach=2.0)
    config = config.running(base(by_state=True))
    algo, bandit = config.make(spec, seed=0), Bandit(0.5, by_state=True)
    for _ in range(100):
        algo.update(bandit)
    seen = bandit(200, 0.0).observation
    plain = base(by_state=True).sample_many(seen)[..., 0].mean(1)
    done = act(algo, seen).mean((1, 2))
    assert (plain > 0.3).mean() < 0.6
    assert float((done > 0.3).float().mean()) > 0.8


def test_a_whole_plan_is_corrected_within_its_scale() -> None:
    config, spec = head("policy_decorator")
    algo, bandit = config.make(spec, seed=0), Bandit(0.9)
    for _ in range(100):
        algo.update(bandit)
    batch = bandit(200, 0.0)
    moved = act(algo, batch.observation) - torch.from_numpy(batch.observation[BASE_ACTION])
    assert float(moved.mean()) > 0.05
    assert float(moved.abs().max()) <= 0.2 + 1e-6


def test_the_base_stays_as_it_is_unless_it_is_taught() -> None:
    for name, often in (("dsrl", {}), ("qc", {}), ("pa_rl", {"distill_period_updates": 2})):
        config, spec = head(name, **often)
        algo = config.make(spec, seed=0)
        for _ in range(3):
            algo.update(Bandit(0.5))
        same = {k: torch.equal(algo.actor[OF_BASE + k], v) for k, v in base().tensors.items()}
        assert same.pop("velocity") is (name != "pa_rl")
        assert all(same.values())


def test_what_the_base_proposes_changes_only_when_the_student_has_learned_for_a_while() -> None:
    config, spec = head("pa_rl", distill_period_updates=3)
    algo = config.make(spec, seed=0)
    seen = []
    for _ in range(8):
        algo.update(Bandit(0.5))
        seen.append(algo.actor[OF_BASE + "velocity"].clone())
    changes = [not torch.equal(a, b) for a, b in pairwise(seen)]
    assert changes == [False, False, True, False, False, True, False]
    went_on = config.make(spec, seed=1)
    went_on.load_state_dict(algo.state_dict())
    batch = Bandit(0.5)(algo.batch_size * algo.steps_per_update, 0.0)
    for learner in (algo, went_on):
        for _ in range(3):
            learner.update(lambda n, fraction: batch)
    assert torch.equal(*(x.actor[OF_BASE + "velocity"] for x in (algo, went_on)))
    with pytest.raises(ConfigError, match="distill_period_updates"):
        head("pa_rl", distill_period_updates=0)


def test_a_base_that_learns_from_its_own_samples_stays_what_it_is() -> None:
    """Where there is nothing to choose, teaching the choices must not move the base."""
    net, tensors, moved = base().net, base().tensors, {}
    condition = net.condition({"state": np.zeros((200, 2), np.float32)}, tensors)
    noise = torch.randn((200, *net.noise_shape), generator=torch.Generator().manual_seed(0))
    for period in (1, 10_000):
        config, spec = head(
            "pa_rl", climbs=0, candidates=1, distill_rate=1e-3, distill_period_updates=period
        )
        algo, bandit = config.make(spec, seed=0), Bandit(0.5)
        for _ in range(100):
            algo.update(bandit)
        assert algo.student is not None
        both = (algo.student.detach(), tensors["velocity"])
        moved[period] = float(torch.sub(*(net.decode(condition, noise, v) for v in both)).std())
    assert moved[10_000] < 0.5 * moved[1]


@pytest.mark.slow
def test_steps_uphill_reach_what_no_candidate_did() -> None:
    values = []
    for climbs in (0, 20):
        config, spec = head("pa_rl", climbs=climbs, climb_step=0.02, distill_rate=0.0)
        algo, bandit = config.make(spec, seed=0), Bandit(0.8)
        for _ in range(250):
            algo.update(bandit)
        values.append(float(act(algo, bandit(200, 0.0).observation).mean()))
    assert values[1] > values[0] + 0.05


def test_what_is_beyond_the_end_of_a_transition_comes_from_other_rows() -> None:
    algo = ChunkedConfig(hidden=(8,), chunk=H).make(SPEC, seed=0)
    state, chunk = demonstrated(32, np.random.default_rng(0))
    chunk += np.arange(32, dtype=np.float32)[:, None, None] / 100.0
    batch = batch_of(state, chunk, np.zeros(32))
    valid = np.arange(H) < np.arange(32)[:, None] % H + 1
    got = algo.executed(replace(batch, valid=valid)).view(32, H, 7).numpy()
    np.testing.assert_array_equal(got[valid], chunk[valid])
    rest = got[~valid]
    assert all((row == chunk.reshape(-1, 7)).all(1).any() for row in rest)
    assert not np.array_equal(rest, chunk[~valid])


def cut(rows: Batch, mask: float, reward: float) -> Batch:
    """Every second row is cut after its first action, where the episode ends or goes on."""
    odd = np.arange(len(rows.mask)) % 2 == 1
    valid = (np.arange(H) < 1) | ~odd[:, None]
    return replace(
        rows,
        valid=valid,
        mask=np.where(odd, mask, rows.mask).astype(np.float32),
        reward=np.where(odd, reward, rows.reward).astype(np.float32),
    )


def test_a_chunk_cut_by_a_takeover_teaches_the_critics_nothing_and_one_cut_by_the_end_does() -> (
    None
):
    state, chunk = demonstrated(32, np.random.default_rng(0))
    rows = batch_of(state, chunk, np.zeros(32))
    losses: dict[tuple[float, float], float] = {}
    for mask in (0.0, 1.0):
        for reward in (0.0, 1.0):
            algo = ChunkedConfig(hidden=(8,), chunk=H).make(SPEC, seed=0)
            loss, _ = algo.critic_loss(algo.see(algo.transitions(cut(rows, mask, reward))))
            losses[mask, reward] = float(loss.detach())
    assert losses[1.0, 0.0] == losses[1.0, 1.0]
    assert losses[0.0, 0.0] != losses[0.0, 1.0]


def test_what_nobody_did_is_not_cloned() -> None:
    config, spec = head("pa_rl")
    rng = np.random.default_rng(0)
    state, chunk = demonstrated(32, rng)
    found: list[float] = []
    for filler in (0.0, 0.9):
        algo = config.make(spec, seed=0)
        plan = np.zeros((32, H, 7), np.float32)
        rows = replace(batch_of(state, chunk, np.zeros(32), plan), human=np.ones(32, np.bool_))
        valid = np.arange(H) < np.arange(32)[:, None] % H + 1
        rows = replace(rows, valid=valid)
        batch = algo.see(algo.transitions(rows))
        beyond = ~torch.from_numpy(np.repeat(valid, 7, 1))
        batch = batch._replace(action=batch.action.masked_fill(beyond, filler))
        found.append(float(algo.distill_loss(batch).detach()))
    assert found[0] == found[1]


def test_without_a_base_chunks_are_learned_from_scratch() -> None:
    algo = ChunkedConfig(
        hidden=(32, 32),
        batch_size=64,
        chunk=H,
        learning_rate=3e-3,
        target_entropy_per_dim=-2.0,
        gamma=0.97,
        value_range=None,
        policy_tau=1.0,
    ).make(SPEC, seed=0)
    rng = np.random.default_rng(0)

    def sample(n: int, fraction: float) -> Batch:
        chunk = rng.uniform(-1, 1, (n, H, 7)).astype(np.float32)
        reward = -np.square(chunk[..., 0] - np.linspace(-0.6, 0.6, H)).mean(1)
        return batch_of(rng.normal(size=(n, 2)).astype(np.float32), chunk, reward)

    for _ in range(400):
        algo.update(sample)
    first = act(algo, {"state": np.zeros((8, 2), np.float32)})[..., 0].mean(0)
    np.testing.assert_allclose(first, np.linspace(-0.6, 0.6, H), atol=0.2)


def test_noise_at_knots_is_interpolated_over_the_chunk() -> None:
    config, spec = head("dsrl", knots=2)
    net = config.make(spec, seed=0).net
    assert isinstance(net, NoiseSteerNet) and net.decision_size == 14
    decision = torch.cat((torch.full((1, 7), -1.0), torch.full((1, 7), 1.0)), -1)
    spread = net.spread(decision).view(H, 7)
    np.testing.assert_allclose(spread[:, 0], np.linspace(-1.0, 1.0, H), atol=1e-6)
    one = replace(net, knots=1).spread(torch.full((1, 7), 0.3)).view(H, 7)
    assert torch.equal(one, torch.full((H, 7), 0.3))


def test_noise_of_a_poor_shape_is_noticed_before_it_is_trained_on() -> None:
    """The base here learned chunks that are straight lines of noise at every moment."""
    config, spec = head("dsrl")
    ratio = float(config.make(spec, seed=0).update(Bandit(0.5))["noise/error_ratio"])
    assert 0.3 < ratio < 1.3  # all moments, clipped: no worse than the base's own
    far, _ = head("dsrl", reach=8.0, knots=1)
    algo = far.make(spec, seed=0)
    algo.blind = lambda count: torch.ones(count, 7)  # type: ignore[method-assign]
    assert float(algo.update(Bandit(0.5))["noise/error_ratio"]) > ratio
    again = far.make(spec, seed=1)
    again.load_state_dict(algo.state_dict())
    assert torch.equal(again.error_ratio, algo.error_ratio)


def test_the_robot_gets_the_base_with_the_weights(tmp_path: Path) -> None:
    import safetensors.torch

    config, spec = head("dsrl")
    algo = config.make(spec, seed=0)
    algo.update(Bandit(0.5))
    data = safetensors.torch.save({k: v.contiguous() for k, v in algo.actor_state().items()})
    import hashlib

    runtime = PolicyRuntime(config, spec)
    runtime.load(Weights(0, hashlib.sha256(data).hexdigest(), data))
    for name, tensor in base().tensors.items():
        assert torch.equal(runtime._tensors[OF_BASE + name], tensor)
    actions = [runtime.act({"state": np.zeros(2, np.float32)}, True) for _ in range(H)]
    assert len({a.tobytes() for a in actions}) == H  # one chunk, action by action


@pytest.mark.parametrize(
    ("name", "changes", "match"),
    [
        ("policy_decorator", {"chunk": 5}, "base.ahead=5"),
        ("dsrl", {"residual": 0.1}, "algo.residual is gone"),
        ("policy_decorator", {"residual": 0.0}, "residual must lie in"),
        ("qc", {"value_bins": 51, "value_range": [0.0, 1.0]}, "value_bins=0"),
        ("qc", {"n_step": 3}, "n_step stays 1"),
        ("qc", {"chunk": 5}, "shorter than the head's"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    name: str, changes: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        config, spec = head(name, **changes)
        config.make(spec, seed=0)


def test_a_latent_head_needs_a_bottleneck() -> None:
    flow = BcFlowConfig(hidden=(8,), chunk=H).make_actor(SPEC)
    wide = FlowBase(flow, flow.init(torch.Generator().manual_seed(0)), 0)
    with pytest.raises(ConfigError, match=r"algo\.latent=16"):
        ZprlConfig(chunk=H).running(wide).make(SPEC, seed=0)
    with pytest.raises(ConfigError, match="latent"):
        build(BcFlowConfig, {"latent": -1})
    with pytest.raises(ConfigError, match="knots"):
        build(DsrlConfig, {"knots": -1})


@pytest.mark.parametrize("words", [[], ["base=openpi", "base.chunk=8"]])
def test_a_head_that_runs_the_base_wants_one_it_can_run(words: list[str]) -> None:
    pytest.importorskip("robot_rl_sim")
    with pytest.raises(ConfigError, match=r"base=flow base\.run=RUN"):
        Experiment.compose(["experiment=reach", "algo=dsrl", *words]).check()
    assert QcConfig().flow is None
