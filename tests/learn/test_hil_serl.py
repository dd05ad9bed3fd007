"""HIL-SERL's losses do what their equations say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from robot_rl.config.registry import resolve
from robot_rl.errors import CheckpointError, ConfigError
from robot_rl.learn.algos import BcConfig, HilSerlConfig
from robot_rl.learn.algos.hil_serl import HilSerl
from robot_rl.learn.replay import Batch
from robot_rl.nets import heads
from robot_rl.spec import ActionSpec, Spec, TensorSpec


def spec(gripper: bool = False) -> Spec:
    action = ActionSpec(translation_m=0.01, rotation_rad=0.1, gripper=gripper)
    return Spec("fake", 10.0, {"state": TensorSpec((3,), "float32")}, action)


SMALL = HilSerlConfig(hidden=(16, 16), batch_size=32, precision="float32")


class Fixed:
    """A sampler of random transitions, some of them from a person."""

    def __init__(self, action_size: int, **columns: float) -> None:
        self.rng, self.size, self.columns = np.random.default_rng(0), action_size, columns

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        rng, n = self.rng, batch_size
        draw = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)  # noqa: E731
        column = lambda name, value: np.full(n, self.columns.get(name, value), np.float32)  # noqa: E731
        return Batch(
            observation={"state": draw(n, 3)},
            action=draw(n, self.size),
            reward=column("reward", 0.0),
            next_observation={"state": draw(n, 3)},
            mask=column("mask", 1.0),
            human=np.arange(n) % 2 == 0,
            toggle=column("toggle", 0.0),
            steps=column("steps", 1.0),
            return_to_go=column("return_to_go", 0.0),
            before_takeover=column("before_takeover", 0.0),
        )


def learner(config: HilSerlConfig = SMALL, gripper: bool = False, seed: int = 0) -> HilSerl:
    return config.make(spec(gripper), seed)


def test_terminal_transitions_do_not_bootstrap() -> None:
    algo = learner(replace(SMALL, learning_rate=3e-3))
    for _ in range(150):
        metrics = algo.update(Fixed(6, reward=1.0, mask=0.0))
    assert abs(float(metrics["critic/target_mean"]) - 1.0) < 1e-5
    assert abs(float(metrics["critic/q_mean"]) - 1.0) < 0.05


def test_truncated_transitions_bootstrap() -> None:
    algo = learner(replace(SMALL, learning_rate=3e-3, tau=0.05, gamma=0.5))
    for _ in range(300):
        metrics = algo.update(Fixed(6, reward=1.0))
    assert float(metrics["critic/q_mean"]) == pytest.approx(2.0, abs=0.2)  # 1 / (1 - gamma)


def test_target_is_the_lowest_of_the_slow_critics() -> None:
    algo = learner(replace(SMALL, critics=3, target_subset=3))
    batch = algo.transitions(Fixed(6)(32, 0.0))
    q = algo.q(batch.then, batch.next_action, algo.slow["critic"])
    _, metrics = algo.critic_loss(batch)
    assert float(metrics["critic/target_mean"]) == pytest.approx(0.97 * float(q.amin(0).mean()))


def test_slow_critic_lags_by_tau() -> None:
    algo = learner()
    before = algo.slow["critic"].clone()
    algo.critic_step(algo.transitions(Fixed(6, reward=1.0)(32, 0.0)))
    want = before + SMALL.tau * (algo.critic.detach() - before)
    assert not torch.equal(algo.slow["critic"], before)
    torch.testing.assert_close(algo.slow["critic"], want)


def test_the_policy_that_drives_lags_by_policy_tau() -> None:
    algo, newest = learner(replace(SMALL, policy_tau=0.1)), learner()
    before, sample = algo.actor_state()["policy"].clone(), Fixed(6, reward=1.0)
    algo.update(sample)
    newest.update(Fixed(6, reward=1.0))
    assert torch.equal(algo.actor["policy"], newest.actor["policy"])  # it learns as without
    assert torch.equal(newest.actor_state()["policy"], newest.actor["policy"])
    want = before + 0.1 * (algo.actor["policy"].detach() - before)
    torch.testing.assert_close(algo.actor_state()["policy"], want)
    other = learner(replace(SMALL, policy_tau=0.1), seed=1)
    other.load_state_dict(algo.state_dict())
    seen = sample(8, 0.0).observation
    assert torch.equal(other.act(seen, True), algo.act(seen, True))
    assert not torch.equal(algo.act(seen, True), newest.act(seen, True))


@pytest.mark.parametrize(
    ("policy_tau", "utd", "want"),
    [
        (0.002, 8.0, 0.002),
        (0.002, 4.0, 0.002),
        (0.002, 1.0, 0.008),
        (0.1, 0.5, 0.1),
        (1.0, 1.0, 1.0),
    ],
)
def test_with_few_updates_a_step_the_policy_that_drives_lags_no_longer(
    policy_tau: float, utd: float, want: float
) -> None:
    assert replace(SMALL, policy_tau=policy_tau).paced(utd).policy_tau == pytest.approx(want)


def test_gripper_penalty_reaches_the_gradient_of_every_critic_step() -> None:
    grads = []
    for toggle in (0.0, 1.0):
        algo = learner(gripper=True)
        loss, _ = algo.gripper_loss(algo.transitions(Fixed(7, toggle=toggle)(32, 0.0)))
        grads.append(torch.autograd.grad(loss, algo.actor["gripper"])[0])
    assert not torch.allclose(grads[0], grads[1])
    algo = learner(replace(SMALL, gripper_penalty=0.5, learning_rate=3e-3), gripper=True)
    for _ in range(150):
        metrics = algo.update(Fixed(7, toggle=1.0, mask=0.0))
    assert float(metrics["gripper/q_mean"]) == pytest.approx(-0.5, abs=0.05)
    assert float(metrics["critic/q_mean"]) == pytest.approx(
        0.0, abs=0.05
    )  # pose critic: no penalty


def test_gripper_acts_greedily_and_explores_with_epsilon() -> None:
    algo = learner(gripper=True)
    observation = {"state": np.zeros((400, 3), np.float32)}
    assert set(algo.act(observation, False)[:, 6].tolist()) <= {-1.0, 0.0, 1.0}
    assert len(set(algo.act(observation, False)[:, 6].tolist())) == 1
    exploring = learner(replace(SMALL, gripper_epsilon=1.0), gripper=True)
    assert set(exploring.act(observation, False)[:, 6].tolist()) == {-1.0, 0.0, 1.0}
    assert len(set(exploring.act(observation, True)[:, 6].tolist())) == 1


def test_actor_loss_leaves_the_critics_alone_and_temperature_the_policy() -> None:
    algo = learner()
    loss, log_prob, _ = algo.actor_loss(algo.transitions(Fixed(6)(32, 0.0)))
    temperature_loss, _ = algo.temperature_loss(log_prob)
    total = loss + temperature_loss
    names = (algo.actor["policy"], algo.critic, algo.temperature)
    policy, critic, temperature = torch.autograd.grad(total, names, allow_unused=True)
    assert policy is not None and policy.abs().sum() > 0
    assert critic is None and temperature is not None


@pytest.mark.parametrize(("entropy", "sign"), [(-10.0, -1), (10.0, 1)])
def test_temperature_falls_above_the_target_entropy_and_rises_below(
    entropy: float, sign: int
) -> None:
    algo = learner()  # target: -3
    loss, _ = algo.temperature_loss(torch.full((8,), -entropy))
    (grad,) = torch.autograd.grad(loss, algo.temperature)
    assert math.copysign(1, float(grad)) == sign  # descent: positive gradient lowers alpha


def test_value_range_bounds_the_target() -> None:
    algo = learner(replace(SMALL, value_range=(0.0, 1.0)))
    _, metrics = algo.critic_loss(algo.transitions(Fixed(6, reward=7.0)(32, 0.0)))
    assert float(metrics["critic/target_mean"]) == 1.0


@pytest.mark.parametrize(("reward", "bound"), [(7.0, 1.4), (-7.0, 0.4)])
def test_where_shaping_says_more_of_a_state_the_bounds_are_its_own(
    reward: float, bound: float
) -> None:
    """Of a range that shaping by 0.5 has widened; here 0.8 of the way is left."""
    algo = learner(replace(SMALL, value_range=(0.0, 1.5)))
    batch = Fixed(6, reward=reward)(32, 0.0)
    batch = replace(batch, room=np.tile(np.float32([0.4, 0.1]), (32, 1)))
    _, metrics = algo.critic_loss(algo.transitions(batch))
    assert float(metrics["critic/target_mean"]) == pytest.approx(bound)


def test_states_are_standardised() -> None:
    algo = learner(SMALL)
    algo.standardize(Fixed(6)(4096, 0.0).observation)
    assert float(algo.actor["scale"][0]) == pytest.approx(math.sqrt(3.0), rel=0.05)  # uniform +-1
    mean = algo.actor["mean"].clone()
    algo.update(Fixed(6))
    assert torch.equal(algo.actor["mean"], mean)


def test_non_finite_gradient_is_skipped_and_counted() -> None:
    algo = learner()
    algo.update(Fixed(6))
    critic, policy = algo.critic.detach().clone(), algo.actor["policy"].detach().clone()
    metrics = algo.update(Fixed(6, reward=math.nan))
    assert int(metrics["optimizer/skipped"]) == SMALL.critic_actor_ratio
    assert torch.equal(algo.critic, critic)
    assert not torch.equal(algo.actor["policy"], policy)  # its own gradient was finite
    assert torch.isfinite(algo.actor["policy"]).all()
    assert int(metrics["optimizer/bad_in_a_row"]) == SMALL.critic_actor_ratio
    metrics = algo.update(Fixed(6))
    assert int(metrics["optimizer/skipped"]) == SMALL.critic_actor_ratio
    assert int(metrics["optimizer/bad_in_a_row"]) == 0


def test_weight_decay_shrinks_the_critics_alone_and_only_in_steps_that_count() -> None:
    config = replace(SMALL, learning_rate=1e-4, critic_weight_decay=1000.0)  # a tenth in each step
    plain, decayed = learner(replace(config, critic_weight_decay=0.0)), learner(config)
    before = decayed.critic.detach().clone()
    for algo in (plain, decayed):
        algo.update(Fixed(6, reward=math.nan))
    assert torch.equal(decayed.critic, before)  # a skipped step is skipped whole
    plain.critic_step(plain.transitions(Fixed(6)(32, 0.5)))
    decayed.critic_step(decayed.transitions(Fixed(6)(32, 0.5)))
    # AdamW: the step of Adam, and a share of the parameters themselves (arXiv 1711.05101, line 12)
    assert torch.allclose(decayed.critic, plain.critic - 0.1 * before, atol=1e-6)
    assert torch.equal(decayed.actor["policy"], plain.actor["policy"])


@pytest.mark.parametrize("gripper", [False, True])
def test_loaded_state_continues_bit_for_bit(gripper: bool) -> None:
    config = replace(SMALL, critics=4)
    one, other = learner(config, gripper), learner(config, gripper, seed=9)
    sampler = Fixed(7 if gripper else 6)
    for _ in range(3):
        one.update(sampler)
    other.load_state_dict(one.state_dict())
    samplers = [Fixed(7 if gripper else 6), Fixed(7 if gripper else 6)]
    for _ in range(3):
        one.update(samplers[0])
        other.update(samplers[1])
    for key, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key


def test_foreign_state_is_refused_before_anything_is_written() -> None:
    algo = learner()
    before = algo.state_dict()
    with pytest.raises(CheckpointError, match="another network"):
        algo.load_state_dict(learner(replace(SMALL, hidden=(8, 8))).state_dict())
    assert all(torch.equal(v, before[k]) for k, v in algo.state_dict().items())


def test_equal_seeds_give_equal_curves() -> None:
    curves = []
    for _ in range(2):
        algo, sampler = learner(), Fixed(6)
        curves.append([float(algo.update(sampler)["critic/loss"]) for _ in range(5)])
    assert curves[0] == curves[1]
    assert float(learner(seed=1).update(Fixed(6))["critic/loss"]) != curves[0][0]


def test_log_prob_is_stable_and_matches_the_change_of_variables() -> None:
    mean, log_std = torch.zeros(5, 1), torch.zeros(5, 1)
    noise = torch.tensor([[-30.0], [-1.0], [0.0], [1.0], [30.0]])
    action, log_prob = heads.sample(mean, log_std, noise)
    assert torch.isfinite(log_prob).all()
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(noise[1:4, 0])
    want = normal - torch.log(1 - action[1:4, 0] ** 2)
    torch.testing.assert_close(log_prob[1:4], want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        heads.log_prob(action[1:4], mean[1:4], log_std[1:4]), want, rtol=1e-3, atol=1e-3
    )
    assert torch.isfinite(heads.log_prob(torch.ones(1, 1), mean[:1], log_std[:1])).all()


def test_behaviour_cloning_learns_the_mapping() -> None:
    config = BcConfig(hidden=(32, 32), batch_size=64, learning_rate=3e-3)
    algo, sampler = config.make(spec(gripper=True), 0), Fixed(7)

    def sample(batch_size: int, demo_fraction: float) -> Batch:
        assert demo_fraction == 1.0
        batch = sampler(batch_size, demo_fraction)
        state = batch.observation["state"]
        action = np.concatenate((0.5 * state, -0.5 * state, np.sign(state[:, :1])), 1)
        return replace(batch, action=action)

    for _ in range(300):
        algo.update(sample)
    state = sampler(64, 1.0).observation["state"]
    got = algo.act({"state": state}, True).numpy()
    assert np.abs(got[:, :3] - 0.5 * state).mean() < 0.05
    clear = np.abs(state[:, 0]) > 0.2
    assert (got[clear, 6] == np.sign(state[clear, 0])).mean() > 0.95


@pytest.mark.parametrize("before", ["bc", "iql", "calql"])
def test_a_gripper_that_was_cloned_is_no_critic_of_its_commands(before: str) -> None:
    """Logits are not values: IQL has values beside them, a clone has none."""
    small = {"hidden": [16, 16], "batch_size": 32}
    old = resolve("algo", {"name": before, **small}).make(spec(gripper=True), 5)
    algo, fresh = learner(gripper=True), learner(gripper=True)
    for _ in range(3):
        old.update(Fixed(7, reward=1.0))
    was = old.state_dict()
    algo.start_from(was)
    now, unlike = algo.state_dict(), fresh.state_dict()
    assert torch.equal(now["actor/policy"], was["actor/policy"])
    want = {
        "bc": unlike["actor/gripper"],
        "iql": was.get("gripper_critic"),
        "calql": was["actor/gripper"],
    }[before]
    assert want is not None and torch.equal(now["actor/gripper"], want)
    slow = was["gripper_slow"] if before == "calql" else want
    assert torch.equal(now["gripper_slow"], slow)
    moment = "critic_optimizer/gripper/exp_avg"
    assert torch.equal(now[moment], (was if before == "calql" else unlike)[moment])
    again = resolve("algo", {"name": "iql", **small}).make(spec(gripper=True), 6)
    again.start_from(was)  # IQL's gripper is a policy
    assert torch.equal(again.state_dict()["actor/gripper"], was["actor/gripper"])


@pytest.mark.parametrize(
    "bad",
    [
        {"gamma": 1.0},
        {"target_subset": 3},
        {"demo_fraction": 1.5},
        {"precision": "float16"},
        {"value_range": [1.0, 0.0]},
        {"critic_weight_decay": -0.1},
        {"critic_weight_decay": 1e4},
    ],
)
def test_nonsense_configuration_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        resolve("algo", {"name": "hil_serl", **bad})
