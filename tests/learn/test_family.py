"""The other algorithms do what their equations say, and all of them keep the learner's promises."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from robot_rl.config.registry import resolve
from robot_rl.errors import ConfigError, SetupError
from robot_rl.learn.algos import (
    BcConfig,
    BcFlowConfig,
    CalQlConfig,
    HilSerlConfig,
    IqlConfig,
    RlifConfig,
    Td3Config,
)
from robot_rl.learn.algos.hil_serl import HilSerl
from robot_rl.learn.learner import LearnerConfig
from robot_rl.learn.replay import Batch
from robot_rl.learn.transitions import Moment
from robot_rl.nets.cpu import need_compiler
from robot_rl.nets.values import HlGauss
from robot_rl.policy.base.own import FlowBase
from robot_rl.policy.runtime import PolicyRuntime
from robot_rl.spec import BASE_ACTION, BASE_AGE, BASE_NOISE, ActionSpec, Spec, TensorSpec

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "algo").glob("*.yaml"))
PX = 24
COMPILED_LATER = ("calql", "iql", "td3", "bc")  # in make soak: 20 s each
SMALL = {"hidden": (16,), "batch_size": 16, "precision": "float32"}


def spec(images: bool = False, gripper: bool = False, base: bool = False) -> Spec:
    space = {"state": TensorSpec((3,), "float32")}
    space |= {"image/wrist": TensorSpec((PX, PX, 3), "uint8")} if images else {}
    plain = Spec("fake", 10.0, space, ActionSpec(0.01, 0.1, gripper))
    return plain.with_base(4) if base else plain


def small(path: Path, images: bool, **changes: Any) -> tuple[Any, Spec, Data]:
    """A shipped algorithm with small networks, on a base if it needs one; spec and data for it."""
    text = yaml.safe_load(path.read_text()) | {"batch_size": 16} | changes
    text |= {"width": 16} if text["name"] == "bc_act" else {"hidden": [16]}
    text["encoder"] = {"channels": [8, 8], "latent": 8}
    config = resolve("algo", text)
    on_base = text["name"] in ("resfit", "policy_decorator", "opd")
    base = {"base": 1.0} if on_base else {}
    space = spec(images, gripper=True, base=bool(base))
    if hasattr(config, "noise_size"):
        base = {"base": 1.0, "noise": float(config.noise_size(space))}
        space = space.with_base(4, int(base["noise"]))
    if hasattr(config, "running"):
        flow = BcFlowConfig(hidden=(16,), latent=4, encoder=config.encoder).make_actor(space)
        tensors = flow.init(torch.Generator().manual_seed(0))
        config = config.running(FlowBase(flow, tensors, 0))
    return config, space, Data(images, 7, getattr(config, "chunk", 1), **base)


class Data:
    """Transitions whose columns a test may fix; by default random, and every action of size 6."""

    def __init__(
        self, images: bool = False, size: int = 6, chunk: int = 1, **columns: np.ndarray | float
    ) -> None:
        self.rng, self.images, self.size = np.random.default_rng(0), images, size
        self.chunk = chunk
        self.columns = columns

    def observation(self, n: int) -> dict[str, np.ndarray]:
        seen: dict[str, np.ndarray] = {"state": self.rng.normal(size=(n, 3)).astype(np.float32)}
        if self.images:
            seen["image/wrist"] = self.rng.integers(0, 256, (n, PX, PX, 3), np.uint8)
        if "base" in self.columns:
            seen[BASE_ACTION] = self.rng.uniform(-1, 1, (n, 4, self.size)).astype(np.float32)
        if "noise" in self.columns:
            decided = self.rng.uniform(-1, 1, (n, int(self.columns["noise"])))
            seen[BASE_NOISE] = decided.astype(np.float32)
            seen[BASE_AGE] = np.zeros((n, 1), np.float32)
        return seen

    def column(self, name: str, n: int, default: float) -> np.ndarray:
        return np.broadcast_to(np.float32(self.columns.get(name, default)), n).copy()

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        n = batch_size
        action = self.rng.uniform(-0.9, 0.9, (n, self.size)).astype(np.float32)
        reward = action[:, 0] if "bandit" in self.columns else self.column("reward", n, 0.0)
        return Batch(
            observation=self.observation(n),
            action=action,
            reward=reward,
            next_observation=self.observation(n),
            mask=self.column("mask", n, 1.0),
            human=np.arange(n) % 2 == 0,
            toggle=self.column("toggle", n, 0.0),
            steps=self.column("steps", n, 1.0),
            return_to_go=self.column("return_to_go", n, 0.0),
            before_takeover=self.column("before_takeover", n, 0.0),
            chunk=np.stack([action] * self.chunk, 1),
            valid=np.arange(self.chunk) < self.rng.integers(1, self.chunk + 1, (n, 1)),
        )


@pytest.mark.parametrize("images", [False, True], ids=["state", "cameras"])
@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_shipped_algorithm_learns_saves_and_drives(path: Path, images: bool) -> None:
    config, space, sample = small(path, images)
    one, two = config.make(space, 0), config.make(space, 1)
    for _ in range(2):
        metrics = one.update(sample)
    assert all(bool(torch.isfinite(v).all()) for v in metrics.values())
    two.load_state_dict(one.state_dict())
    for algo in (one, two):
        algo.update(small(path, images)[2])
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key]), key
    policy = PolicyRuntime(config, space)
    assert {k: v.shape for k, v in policy._tensors.items()} == {
        k: v.shape for k, v in one.actor_state().items()
    }
    shape = one.act(sample.observation(4), True).shape
    assert shape == (4, 7)


@pytest.mark.parametrize("images", [False, True], ids=["state", "cameras"])
@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_tensor_of_an_update_lives_on_the_learners_device(path: Path, images: bool) -> None:
    """A device without memory ("meta") stands in for a GPU: a tensor left behind is an error."""
    cloner = "bc" in path.stem or path.stem in {"hg_dagger", "rac", "opd"}
    no_autocast = {} if cloner else {"precision": "float32"}  # there is none on "meta"
    config, space, sample = small(path, images, **no_autocast)
    algo = config.make(space, 0, device="meta")
    metrics = algo.update(sample)
    assert {v.device.type for v in metrics.values()} == {"meta"}
    state = algo.state_dict()
    assert {v.device.type for k, v in state.items() if k != "generator"} == {"meta"}
    assert algo.act(sample.observation(4), False).device.type == "meta"


@pytest.mark.parametrize("name", ["qc", "pa_rl", "expo"])
@pytest.mark.parametrize("policy_tau", [0.005, 1.0])
def test_critics_that_choose_know_the_encoder_that_travels_with_them(
    name: str, policy_tau: float
) -> None:
    """The slow ones learned with the slow encoder, the fast ones with the fast one."""
    path = CONFIGS[0].with_name(f"{name}.yaml")
    config, space, sample = small(path, images=True, policy_tau=policy_tau)
    algo = config.make(space, 0)
    algo.update(sample)
    sent, slow = algo.actor_state(), policy_tau < 1.0
    for key, fast in (("encoder", algo.actor["encoder"]), ("critic", algo.critic)):
        assert not torch.equal(fast, algo.slow[key])
        assert torch.equal(sent[key], algo.slow[key] if slow else fast)


def test_a_gpu_that_is_not_there_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(SetupError, match="sees none"):
        _ = LearnerConfig(device="cuda").resolved_device
    assert LearnerConfig().resolved_device == "cpu"


def test_a_transition_of_n_steps_is_discounted_n_times() -> None:
    algo = HilSerlConfig(**SMALL, gamma=0.5).make(spec(), 0)
    algo.slow["critic"].zero_()
    bias = algo.critic_net.layers(algo.slow["critic"])[-1][1]
    bias.fill_(8.0)  # every slow critic says 8
    batch = algo.transitions(Data(reward=1.0, steps=3.0)(16, 0.0))
    _, metrics = algo.critic_loss(batch)
    assert float(metrics["critic/target_mean"]) == pytest.approx(1.0 + 0.5**3 * 8.0)


def test_histogram_critics_say_what_they_were_told() -> None:
    histogram = HlGauss(0.0, 1.0, 51)
    values = torch.linspace(0.0, 1.0, 21)
    probabilities = histogram.encode(values)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(21))
    torch.testing.assert_close(histogram.value(probabilities.log()), values, atol=2e-3, rtol=0)
    config = {**SMALL, "learning_rate": 3e-3, "value_range": (0.0, 1.0), "value_bins": 51}
    algo = HilSerlConfig(**config).make(spec(), 0)
    batch = algo.transitions(Data()(64, 0.0))
    before = algo.q(batch.now, batch.action, algo.critic.detach())
    assert float(before.abs().max()) < 0.1  # starts near zero
    algo = trained(HilSerlConfig(**config), Data(reward=0.7, mask=0.0))
    q = algo.q(batch.now, batch.action, algo.critic)
    assert float((q.detach() - 0.7).abs().max()) < 0.05


def test_rlif_charges_the_step_before_a_takeover_and_nothing_else() -> None:
    algo = RlifConfig(**SMALL).make(spec(), 0)
    before = np.arange(16) % 4 == 0
    batch = algo.transitions(Data(reward=5.0, mask=0.0, before_takeover=before)(16, 0.0))
    assert batch.reward.tolist() == [-1.0 if b else 0.0 for b in before]
    assert bool((batch.mask == 1.0).all())  # the episode goes on, whatever ended it


@pytest.mark.parametrize("given", [(-1.0, 0.5), (-50.0, -1.0), (0.0, 1.0)])
def test_the_bounds_of_rlif_hold_a_takeover_at_each_step(given: tuple[float, float]) -> None:
    config = RlifConfig(**SMALL, gamma=0.9, takeover_penalty=2.0, value_range=given)
    algo = config.make(spec(), 0)
    low, high = algo.config.value_range
    assert low == pytest.approx(min(given[0], -20.0)) and high == max(given[1], 0.0)
    taken = Data(before_takeover=1.0)(16, 0.0)
    assert float(algo.target(algo.transitions(taken)).max()) < -1.5  # not clipped to the given one


def trained(config: HilSerlConfig, data: Data, updates: int = 300) -> HilSerl:
    algo = config.make(spec(), 0)
    for _ in range(updates):
        algo.update(data)
    return algo


def pose_action(algo: HilSerl) -> float:
    """Mean first action over random states."""
    return float(algo.act(Data().observation(256), True)[:, 0].mean())


def test_td3_climbs_the_critic_and_leaves_its_exploration_alone() -> None:
    config = Td3Config(**SMALL, learning_rate=3e-3)
    algo = trained(config, Data(bandit=1.0, mask=0.0))
    assert pose_action(algo) > 0.9
    _, log_std = algo.net.distribution(torch.randn(64, 3), algo.actor["policy"])
    assert float(log_std.detach().exp().mean()) == pytest.approx(config.std_init, rel=0.05)
    noisy = algo.transitions(Data()(16, 0.0)).next_action
    assert float(noisy.abs().max()) <= 1.0


def test_iql_clones_what_was_better_than_usual() -> None:
    data = Data(bandit=1.0, mask=0.0)  # actions uniform in +-0.9, each worth its first entry
    greedy = trained(IqlConfig(**SMALL, learning_rate=3e-3, inverse_temperature=10.0), data, 150)
    cloned = trained(IqlConfig(**SMALL, learning_rate=3e-3, inverse_temperature=0.0), data, 150)
    assert abs(pose_action(cloned)) < 0.15
    assert pose_action(greedy) > 0.3


class Keeps(Data):
    """A gripper that always keeps still, while every step costs 0.5."""

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        batch = super().__call__(batch_size, demo_fraction)
        batch.action[:, -1] = 0.0
        return batch


@pytest.mark.parametrize("config", [IqlConfig, CalQlConfig])
def test_offline_the_gripper_does_what_the_data_does_though_all_of_it_costs(
    config: type[HilSerlConfig],
) -> None:
    # a plain double DQN believes that the commands nobody gave are worth their first value, 0
    algo = config(**SMALL, learning_rate=3e-3).make(spec(gripper=True), 0)
    data = Keeps(size=7, reward=-0.5, return_to_go=-0.5 / (1 - algo.config.gamma))
    for _ in range(120):
        algo.update(data)
    chosen = algo.act(Data().observation(256), True)[:, -1]
    assert float((chosen == 0.0).float().mean()) == 1.0


def test_actions_at_their_bound_count_no_more_than_others_in_iql() -> None:
    # handsets at full deflection: one action in ten is exactly 1
    class Saturated(Data):
        def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
            batch = super().__call__(batch_size, demo_fraction)
            batch.action[:, 0] = 0.37
            batch.action[::10, 0] = 1.0
            return batch

    config = IqlConfig(**SMALL, learning_rate=3e-3, inverse_temperature=0.0)
    algo = trained(config, Saturated(mask=0.0), 150)
    assert pose_action(algo) == pytest.approx(0.9 * 0.37 + 0.1, abs=0.06)
    noisy = algo.act(Data().observation(512), False)
    assert float(noisy.abs().max()) <= 1.0


def test_the_expectile_sets_how_optimistic_the_value_is() -> None:
    values = []
    for expectile in (0.5, 0.9):
        config = IqlConfig(**SMALL, learning_rate=3e-3, expectile=expectile)
        algo = trained(config, Data(bandit=1.0, mask=0.0), 350)
        _, metrics = algo.value_loss(algo.transitions(Data()(512, 0.0)))
        values.append(float(metrics["value/mean"]))
    assert values[0] == pytest.approx(0.0, abs=0.1)
    # expectile e of a uniform +-0.9: 0.9 (sqrt(e) - sqrt(1 - e)) / (sqrt(e) + sqrt(1 - e))
    want = 0.9 * (math.sqrt(0.9) - math.sqrt(0.1)) / (math.sqrt(0.9) + math.sqrt(0.1))
    assert values[1] == pytest.approx(want, abs=0.15)


def half_space() -> Data:
    """All actions have a positive first entry; each step is worth 1, as its return says."""
    data = Data(reward=1.0, mask=0.0, return_to_go=1.0)
    draw = data.__class__.__call__

    class Half(Data):
        def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
            batch = draw(self, batch_size, demo_fraction)
            batch.action[:, 0] = np.abs(batch.action[:, 0])
            return batch

    return Half(reward=1.0, mask=0.0, return_to_go=1.0)


def q_of(algo: HilSerl, first: float) -> float:
    action = torch.zeros(256, 6)
    action[:, 0] = first
    return float(algo.q(Moment(torch.randn(256, 3), {}, {}), action, algo.critic).mean())


def test_conservative_critics_doubt_what_nobody_did_and_calibrated_ones_not_below_the_return() -> (
    None
):
    config = {**SMALL, "learning_rate": 3e-3, "conservative_weight": 2.0}
    cql = trained(CalQlConfig(**config, calibrate=False), half_space(), 120)
    calql = trained(CalQlConfig(**config), half_space(), 120)
    assert q_of(cql, -0.7) < q_of(cql, 0.5) - 0.3
    assert q_of(cql, -0.7) < 0.5  # pushed below the true value of 1
    assert q_of(calql, -0.7) > q_of(cql, -0.7) + 0.2  # the return to go is the floor


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("td3", "target_noise", -1.0),
        ("iql", "expectile", 0.3),
        ("calql", "conservative_actions", 0),
        ("hil_serl", "n_step", 0),
        ("hil_serl", "value_bins", 51),  # without a value_range
        ("bc", "loss", "nll"),  # gone
        ("rlif", "takeover_penalty", 0.0),
    ],
)
def test_impossible_values_are_refused(name: str, key: str, value: object) -> None:
    with pytest.raises(ConfigError):
        resolve("algo", {"name": name, key: value})


def test_configs_are_what_their_names_say() -> None:
    read = {p.stem: resolve("algo", yaml.safe_load(p.read_text())) for p in CONFIGS}
    assert isinstance(read["rlif"], RlifConfig) and read["rlif"].takeover_penalty == 1.0
    assert read["drq_v2"].n_step == 3 and isinstance(read["drq_v2"], Td3Config)
    assert isinstance(read["rac"], BcConfig) and read["rac"].own_successes
    assert not read["hg_dagger"].own_successes


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("hil_serl", False),
        pytest.param("hil_serl", True, marks=pytest.mark.slow),  # a minute of compiling
        *(pytest.param(name, False, marks=pytest.mark.slow) for name in COMPILED_LATER),
    ],
)
def test_a_compiled_update_is_the_same_update(name: str, images: bool) -> None:
    """Equal draws, equal mathematics: tensors differ by rounding only."""
    text = {"name": name, "hidden": [16], "batch_size": 16, "critics": 3, "target_subset": 2}
    text |= {"encoder": {"channels": [8, 8], "latent": 8}, "precision": "float32"}
    if name == "bc":
        text = {k: v for k, v in text.items() if k in ("name", "hidden", "batch_size", "encoder")}
    space = spec(images=images, gripper=True)
    plain, compiled = (resolve("algo", text).make(space, 0) for _ in range(2))
    compiled.compile()
    for algo in (plain, compiled):
        sample = Data(images, 7)
        for _ in range(3):
            algo.update(sample)
    fresh, state = resolve("algo", text).make(space, 0).state_dict(), compiled.state_dict()
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(state[key], value, rtol=1e-3, atol=2e-4, msg=key)
    assert not torch.allclose(fresh["actor/policy"], state["actor/policy"], atol=3e-4)


def test_compiling_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SetupError, match="C\\+\\+ compiler"):
        need_compiler(torch.device("cpu"))
    need_compiler(torch.device("meta"))
