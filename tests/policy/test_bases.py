"""Base policies: chunks in order, recorded as they were said, and what is learned on top."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from robot_rl.bench.samples import episode_rows
from robot_rl.config.registry import build
from robot_rl.errors import ConfigError, SpecError
from robot_rl.learn.algos.bc import BcConfig
from robot_rl.learn.algos.bc_act import BcActConfig
from robot_rl.learn.algos.bc_flow import BcFlowConfig
from robot_rl.learn.algos.opd import OpdConfig
from robot_rl.learn.algos.resfit import ResFitConfig, ResidualNet
from robot_rl.learn.replay import Batch
from robot_rl.nets.actor import gripper_index
from robot_rl.policy.base.own import ActBase, FlowBase, FlowBaseConfig
from robot_rl.policy.base.schedule import ChunkSchedule
from robot_rl.policy.base.served import ServedConfig
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.policy.runtime import PolicyRuntime
from robot_rl.run.experiment import Experiment
from robot_rl.run.parts import policy_of
from robot_rl.spec import BASE_ACTION, ActionSpec, Spec, TensorSpec
from robot_rl.store.dataset import import_dataset
from robot_rl.store.store import Store
from robot_rl.types import Driver, Ending, EpisodeId, Frame, Observation, Step
from tests.support.fakes import FakeOperator, make_loop, start

PLAIN = Spec(
    "fake", 10.0, {"state": TensorSpec((2,), "float32")}, ActionSpec(0.01, 0.1, gripper=True)
)
BASED = PLAIN.with_base(2)


class Counting:
    """A base whose chunk says which query it is of and which place it has."""

    spec = BaseSpec(chunk=4, action_size=7)

    def __init__(self) -> None:
        self.queries = self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        self.queries += 1
        place = np.arange(4, dtype=np.float32) * 0.1 + self.queries * 0.001
        return np.repeat(place[:, None], 7, 1)


def places(seen: Observation) -> list[tuple[int, int]]:
    """(query, place) of the actions ahead."""
    return [(round(x * 1000) % 100, int(x * 10 + 1e-4)) for x in seen[BASE_ACTION][:, 0]]


def test_a_chunk_is_carried_out_in_order_and_asked_for_again_in_time() -> None:
    base = Counting()
    schedule = ChunkSchedule(base, execute=3, ahead=2)
    schedule.begin_episode()
    got = [places(schedule.annotate({})) for _ in range(4)]
    assert got == [[(1, 0), (1, 1)], [(1, 1), (1, 2)], [(1, 2), (1, 3)], [(2, 0), (2, 1)]]
    schedule.interrupt()  # a person took over
    assert places(schedule.annotate({})) == [(3, 0), (3, 1)]
    assert base.resets == 1


def test_a_chunk_too_short_for_what_is_recorded_is_asked_for_earlier() -> None:
    schedule = ChunkSchedule(Counting(), execute=4, ahead=3)
    assert [places(schedule.annotate({}))[0] for _ in range(4)] == [(1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    "chunk", [np.full((4, 7), np.nan, np.float32), np.zeros((4, 6)), np.zeros((3, 7))]
)
def test_a_chunk_that_is_not_finite_or_of_another_shape_is_never_executed(chunk: NDArray) -> None:
    base = Counting()
    base.sample = lambda observation, noise=None: chunk  # type: ignore[method-assign]
    with pytest.raises(SpecError, match="cannot be used"):
        ChunkSchedule(base, execute=2, ahead=1).annotate({})


def test_actions_beyond_the_bounds_are_recorded_within_them() -> None:
    base = Counting()
    base.sample = lambda observation, noise=None: np.full((4, 7), 3.0)  # type: ignore[method-assign]
    seen = ChunkSchedule(base, execute=2, ahead=1).annotate({})[BASE_ACTION]
    assert seen.dtype == np.float32 and seen.shape == (1, 7) and seen.max() == 1.0


# -- in the loop -------------------------------------------------------------------------------


def test_a_takeover_ends_the_plan_and_every_frame_says_what_the_base_would_do() -> None:
    hand = FakeOperator(lambda tick: tick in (5, 6), np.full(6, 0.1, np.float32))
    loop, _, rows = make_loop(operator=hand)

    class Flat(Counting):
        spec = BaseSpec(chunk=4, action_size=6)

        def sample(self, observation, noise=None):  # type: ignore[no-untyped-def]
            return super().sample(observation)[:, :6]

    config = ResFitConfig(hidden=(8,))
    schedule = ChunkSchedule(Flat(), execute=4, ahead=1)
    loop.policy = PolicyRuntime(config, loop.task.spec.with_base(1), base=schedule)
    loop.run_episode(start())
    frames = [r.observation for r in rows if isinstance(r, Frame)]
    steps = [r for r in rows if isinstance(r, Step)]
    human = [s.step for s in steps if s.driver is Driver.CORRECTION]
    assert human
    after = [places(f)[0] for f in frames]
    first = human[0]
    assert [p for _, p in after[: first + 1]] == [i % 4 for i in range(first + 1)]
    for step in human:  # each frame after a human step begins a fresh plan
        assert after[step + 1][1] == 0 and after[step + 1][0] > after[step][0]


# -- residual ----------------------------------------------------------------------------------


def seen(n: int, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    return {
        "state": rng.normal(size=(n, 2)).astype(np.float32),
        BASE_ACTION: rng.uniform(-1.2, 1.2, (n, 2, 7)).astype(np.float32),
    }


def test_before_any_update_the_base_drives_exactly() -> None:
    algo = ResFitConfig(hidden=(16,), residual=0.3).make(BASED, seed=0)
    observation = seen(64, np.random.default_rng(0))
    base = torch.from_numpy(observation[BASE_ACTION][:, 0])
    action = algo.act(observation, deterministic=True)
    torch.testing.assert_close(action[:, :6], base[:, :6].clamp(-1, 1), rtol=0, atol=0)
    assert torch.equal(gripper_index(action[:, -1]), gripper_index(base[:, -1]))
    explored = algo.act(observation, deterministic=False)[:, :6]
    assert float((explored - base[:, :6].clamp(-1, 1)).abs().max()) <= 0.3 + 1e-6
    assert float((explored - action[:, :6]).abs().mean()) > 0.01


def test_a_correction_reaches_no_further_than_its_scale() -> None:
    net = ResidualNet.from_spec(BASED, (8,), residual=0.1, gripper_margin=0.0)
    base = torch.tensor([[0.95, -0.95, 0.0, 0.0, 0.0, 0.0, 1.0]])
    up = net.compose(torch.ones(1, 6), {"action": base}, {})
    assert up.tolist()[0] == pytest.approx([1.0, -0.85, 0.1, 0.1, 0.1, 0.1])


def test_the_base_keeps_the_gripper_until_another_command_is_clearly_better() -> None:
    net = ResidualNet.from_spec(BASED, (8,), residual=0.1, gripper_margin=0.05)
    base = torch.zeros(2, 7)
    base[:, -1] = -1.0  # close
    q = torch.tensor([[0.50, 0.40, 0.54], [0.50, 0.40, 0.56]])
    assert net.choose_gripper(q, {"action": base}).tolist() == [0, 2]


class Bandit:
    """One step; the reward is largest where the executed action is the base's plus `offset`."""

    def __init__(self, offset: float) -> None:
        self.rng, self.offset = np.random.default_rng(0), offset

    def __call__(self, batch_size: int, demo_fraction: float) -> Batch:
        observation = seen(batch_size, self.rng)
        observation[BASE_ACTION] *= 0.5
        base = observation[BASE_ACTION][:, 0]
        action = base + self.rng.uniform(-0.2, 0.2, base.shape).astype(np.float32)
        miss = (action - base - self.offset)[:, :6]
        zero = np.zeros(batch_size, np.float32)
        return Batch(
            observation=observation,
            action=action,
            reward=(1.0 - 20.0 * (miss**2).mean(1)).astype(np.float32),
            next_observation=seen(batch_size, self.rng),
            mask=zero,
            human=zero > 0,
            toggle=zero,
            steps=zero + 1,
            return_to_go=zero,
            before_takeover=zero,
        )


def test_the_correction_that_pays_is_learned() -> None:
    config = ResFitConfig(
        hidden=(64, 64),
        batch_size=64,
        critic_actor_ratio=2,
        value_range=None,
        learning_rate=2e-3,
        actor_learning_rate=1e-3,
        actor_delay_updates=100,
    )
    algo = config.make(BASED, seed=0)
    bandit = Bandit(offset=0.1)
    for _ in range(280):
        algo.update(bandit)
    batch = bandit(256, 0.0)
    action = algo.act(batch.observation, deterministic=True).numpy()
    correction = (action - batch.observation[BASE_ACTION][:, 0])[:, :6]
    assert correction.mean() == pytest.approx(0.1, abs=0.06)  # 0 is the base, 0.2 the limit
    assert np.abs(correction).max() <= 0.2 + 1e-6


def test_critics_learn_alone_until_the_actor_may_begin() -> None:
    algo = ResFitConfig(hidden=(16,), actor_delay_updates=2).make(BASED, seed=0)
    bandit = Bandit(offset=0.1)
    before = algo.actor["policy"].detach().clone()
    for _ in range(2):
        assert "actor/loss" not in algo.update(bandit)
        assert torch.equal(algo.actor["policy"], before)
    again = ResFitConfig(hidden=(16,), actor_delay_updates=2).make(BASED, seed=1)
    again.load_state_dict(algo.state_dict())
    for one in (algo, again):  # a restart neither forgets nor repeats the wait
        assert "actor/loss" in one.update(Bandit(offset=0.1))


def test_a_residual_without_a_base_is_refused() -> None:
    with pytest.raises(ConfigError, match="base=flow"):
        ResFitConfig().make(PLAIN, seed=0)
    with pytest.raises(ConfigError, match="residual"):
        build(ResFitConfig, {"residual": -0.1})


# -- flow --------------------------------------------------------------------------------------


def two_ways(batch_size: int, demo_fraction: float, rng: np.random.Generator) -> Batch:
    """Whatever the state: a chunk of all +0.5 or all -0.5, the second half often missing."""
    side = rng.choice([-0.5, 0.5], batch_size).astype(np.float32)
    chunk = np.broadcast_to(side[:, None, None], (batch_size, 4, 7)).copy()
    valid = np.ones((batch_size, 4), np.bool_)
    valid[::2, 2:] = False
    chunk[~valid] = 0.0
    zero, state = np.zeros(batch_size, np.float32), rng.normal(size=(batch_size, 2))
    observation = {"state": state.astype(np.float32)}
    return Batch(
        observation, chunk[:, 0], zero, observation, zero, zero > -1, zero, zero + 1, zero, zero,
        chunk, valid,
    )  # fmt: skip


def test_a_flow_learns_both_ways_of_doing_it_and_never_the_mean() -> None:
    rng = np.random.default_rng(0)
    config = BcFlowConfig(
        hidden=(64, 64), chunk=4, execute=2, learning_rate=3e-3, batch_size=128, policy_tau=0.02
    )
    algo = config.make(PLAIN, seed=0)
    first = algo.update(lambda n, f: two_ways(n, f, rng))["actor/loss"]
    for _ in range(600):
        last = algo.update(lambda n, f: two_ways(n, f, rng))["actor/loss"]
    assert float(last) < 0.5 * float(first)
    net, state = algo.net, algo.actor_state()
    observation = {"state": rng.normal(size=(200, 2)).astype(np.float32)}
    generator = torch.Generator().manual_seed(0)
    plan = net.act(observation, state, deterministic=True, generator=generator)
    assert plan.shape == (200, 2, 7)
    side = plan.mean((1, 2))
    assert 40 < int((side > 0).sum()) < 160
    assert float((side.abs() - 0.5).abs().median()) < 0.15
    assert float((plan[:, 0] - plan[:, 1]).abs().median()) < 0.1  # what was missing is not zero
    noise, features = torch.randn(200, 4, 7), net.look(observation, state)
    chunks = [net.decode(features, noise, state["velocity"]) for _ in range(2)]
    assert torch.equal(*chunks)  # the noise decides
    calm = replace(net, spread=0.0)
    plans = [calm.act(observation, state, deterministic=True) for _ in range(2)]
    assert torch.equal(*plans)
    drawn = calm.act(observation, state, deterministic=False, generator=generator)
    assert float((drawn.mean((1, 2)).abs() - 0.5).abs().median()) < 0.15  # it still explores


def test_a_base_without_noise_says_the_same_each_time_unless_a_head_chooses() -> None:
    algo = BcFlowConfig(hidden=(16,), chunk=4).make(PLAIN, seed=0)
    seen = {"state": np.zeros(2, np.float32)}
    tensors = algo.actor_state() | {"velocity": torch.randn(algo.actor["velocity"].shape)}
    said = {
        spread: [FlowBase(algo.net, tensors, seed, spread).sample(seen) for seed in (0, 1)]
        for spread in (0.0, 1.0)
    }
    np.testing.assert_array_equal(*said[0.0])
    assert np.abs(np.subtract(*said[1.0])).max() > 0.01
    noise = np.ones((4, 7), np.float32)
    chosen = [FlowBase(algo.net, tensors, 0, spread).sample(seen, noise) for spread in (0.0, 1.0)]
    np.testing.assert_array_equal(*chosen)


# -- transformer -------------------------------------------------------------------------------


def turning(batch_size: int, demo_fraction: float, rng: np.random.Generator) -> Batch:
    """A chunk that follows from the state: action i is 0.8 sin(s_0 + i / 2)."""
    batch = two_ways(batch_size, demo_fraction, rng)
    ahead = np.arange(4, dtype=np.float32) / 2
    wave = 0.8 * np.sin(batch.observation["state"][:, :1] + ahead).astype(np.float32)
    chunk = np.where(batch.valid[..., None], np.repeat(wave[..., None], 7, -1), np.float32(9.0))
    return replace(batch, chunk=chunk, action=chunk[:, 0])


def cloned(sampler: Any, updates: int, **changes: Any) -> Any:
    """ACT after so many updates on a sampler's chunks."""
    rng = np.random.default_rng(0)
    config = BcActConfig(
        chunk=4, execute=2, width=16, layers=1, latent=2, learning_rate=3e-3, batch_size=128,
        policy_tau=0.02, **changes,
    )  # fmt: skip
    algo = config.make(PLAIN, seed=0)
    for _ in range(updates):
        algo.metrics = algo.update(lambda n, f: sampler(n, f, rng))
    return algo


def test_a_transformer_learns_chunks_and_ignores_what_is_missing() -> None:
    algo = cloned(turning, 400)
    state = np.random.default_rng(1).normal(size=(200, 2)).astype(np.float32)
    net, tensors = algo.net, algo.actor_state()
    plan = net.act({"state": state}, tensors, deterministic=False)
    assert plan.shape == (200, 2, 7)
    chunk = net.plan(net.look({"state": state}, tensors), tensors["chunk"]).numpy()
    wave = 0.8 * np.sin(state[:, :1] + np.arange(4) / 2)
    assert np.median(np.abs(chunk - wave[..., None])) < 0.05  # the 9.0s are not seen
    assert np.abs(chunk - wave[..., None]).max(0).max() < 0.8
    again = net.act({"state": state}, tensors, deterministic=True)
    assert torch.equal(plan, again)  # nothing is drawn


@pytest.mark.slow
def test_the_style_says_what_the_state_does_not() -> None:
    told, untold = (
        cloned(two_ways, 300, kl_weight=weight).metrics["actor/loss"] for weight in (1e-3, 10.0)
    )
    assert float(told) < 0.15  # z says which of the two ways it was
    assert 0.4 < float(untold) < 0.6  # z must say nothing: half of the time the other way


def test_a_base_of_transformers_has_one_chunk_and_takes_no_noise() -> None:
    algo = cloned(turning, 2)
    base = ActBase(algo.net, algo.actor_state())
    assert base.spec == BaseSpec(4, 7, None)
    seen = {"state": np.zeros(2, np.float32)}
    one = base.sample(seen)
    assert one.shape == (4, 7) and np.abs(one).max() <= 1.0
    np.testing.assert_array_equal(one, base.sample(seen))
    many = base.sample_many({"state": np.zeros((3, 2), np.float32)})
    np.testing.assert_allclose(many, np.stack([one] * 3), atol=1e-6)


def test_chunk_settings_that_make_no_sense_are_refused() -> None:
    for config, wrong, said in (
        (BcFlowConfig, {"chunk": 4, "execute": 5}, "execute"),
        (BcFlowConfig, {"noise": 1.5}, "noise"),
        (FlowBaseConfig, {"noise": -0.1}, "noise"),
        (BcActConfig, {"width": 30}, "multiple"),
        (BcActConfig, {"layers": 0}, "layers"),
        (BcActConfig, {"kl_weight": -1.0}, "kl_weight"),
    ):
        with pytest.raises(ConfigError, match=said):
            build(config, wrong)


@pytest.mark.parametrize("word", ["base.noise=0", "base.run=runs/base"])
def test_keys_of_a_base_without_a_base_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="no base") as caught:
        Experiment.compose(["experiment=reach", word]).check()
    assert word.partition("=")[0] in str(caught.value) and "base=flow" in str(caught.value)


def test_a_served_base_of_a_folder_that_is_not_there_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="serve-policy"):
        ServedConfig(run=str(tmp_path / "tpyo")).open(PLAIN, 0)
    assert not list(tmp_path.iterdir())


# -- a base that teaches ------------------------------------------------------------------------


def test_a_student_imitates_the_base_and_needs_it_no_more() -> None:
    rng = np.random.default_rng(0)

    def taught(batch_size: int, _fraction: float) -> Batch:
        """The base says sin(s_0) everywhere; what was carried out is something else."""
        batch = two_ways(batch_size, 0.5, rng)
        said = 0.8 * np.sin(batch.observation["state"][:, :1])
        plan = np.repeat(said, 7, 1).astype(np.float32)[:, None]
        return replace(batch, observation=batch.observation | {BASE_ACTION: plan})

    config = OpdConfig(hidden=(64, 64), learning_rate=3e-3)
    algo = config.make(PLAIN.with_base(1), seed=0)
    for _ in range(400):
        algo.update(taught)
    state = rng.normal(size=(200, 2)).astype(np.float32)
    found = algo.act({"state": state}, deterministic=True)  # no base in sight
    wave = 0.8 * np.sin(state[:, :1])
    assert found.shape == (200, 7)
    assert float(np.median(np.abs(found.detach().numpy()[:, :6] - wave))) < 0.05
    plain = BcConfig(hidden=(64, 64)).make(PLAIN, seed=1)  # the same network
    plain.start_from(algo.state_dict())
    assert torch.equal(plain.act({"state": state}, deterministic=True), found)


def test_a_student_without_a_teacher_is_refused() -> None:
    with pytest.raises(ConfigError, match="which teaches"):
        OpdConfig().make(PLAIN, seed=0)
    with pytest.raises(ConfigError, match="own_successes"):
        build(OpdConfig, {"own_successes": True})


# -- data that was recorded without the base -----------------------------------------------------


def test_data_recorded_without_the_base_passes_through_it_once(tmp_path: Path) -> None:
    plain = replace(PLAIN, task="sample")
    with Store(tmp_path / "old.sqlite", spec=plain, reserve_bytes=0) as old:
        for number in range(2):
            rows = episode_rows(plain, EpisodeId("old", "actor", number), 6)
            old.append([replace(r, driver=Driver.DEMO) if isinstance(r, Step) else r for r in rows])
    based, base = plain.with_base(1), Counting()
    runtime = PolicyRuntime(
        ResFitConfig(hidden=(8,)),
        based,
        base=ChunkSchedule(base, execute=4, ahead=1),
    )
    with Store(tmp_path / "new.sqlite", spec=based, reserve_bytes=0) as new:
        assert import_dataset(new, str(tmp_path / "old.sqlite"), plain, runtime) == 2
        starts = new.episodes()
        assert {s.spec_hash for s in starts} == {based.hash}
        for episode in starts:
            frames = new.frames(episode.id)
            assert [places(f.observation)[0][1] for f in frames] == [0] * 7  # always a fresh plan
        last = new.last_seq()
        import_dataset(new, str(tmp_path / "old.sqlite"), plain, runtime)
        assert new.last_seq() == last
    with (
        Store(tmp_path / "none.sqlite", spec=based, reserve_bytes=0) as new,
        pytest.raises(SpecError, match="another observation"),
    ):
        import_dataset(new, str(tmp_path / "old.sqlite"), plain)


def test_what_a_head_did_well_can_be_cloned_without_the_base_it_had(tmp_path: Path) -> None:
    plain = replace(PLAIN, task="sample")
    based = plain.with_base(2)
    with Store(tmp_path / "head.sqlite", spec=based, reserve_bytes=0) as head:
        for number in range(4):
            rows = episode_rows(based, EpisodeId("head", "actor", number), 6)
            last = max(i for i, r in enumerate(rows) if isinstance(r, Step))
            rows[last] = replace(rows[last], ending=Ending.TERMINATED, success=number % 2 == 0)
            head.append(rows)
    with Store(tmp_path / "clone.sqlite", spec=plain, reserve_bytes=0) as clone:
        source = str(tmp_path / "head.sqlite")
        assert import_dataset(clone, source, plain, only_successes=True) == 2
        starts = clone.episodes()
        assert {s.id.episode for s in starts} == {0, 2}
        assert {s.spec_hash for s in starts} == {plain.hash}
        assert set(clone.frames(starts[0].id)[0].observation) == set(plain.observation)


# -- the whole way -------------------------------------------------------------------------------

SHORT = (
    "experiment=reach",
    "train.demos=3",
    "train.max_env_steps=0",
    "train.eval_episodes=4",
    "train.stochastic_eval_episodes=0",
    "train.video=false",
)


@pytest.mark.parametrize("kind", ["flow", "act"])
def test_from_demonstrations_to_a_base_to_a_residual_that_begins_as_the_base(
    tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("robot_rl_sim")
    from robot_rl.run.train import train

    size = {"flow": "algo.hidden=[32]", "act": "algo.width=16"}[kind]
    cloning = (f"algo=bc_{kind}", size, "learner.pretrain_updates=50")
    train(Experiment.compose([*SHORT, *cloning, f"run_dir={tmp_path / 'base'}"]))
    base = (f"base={kind}", f"base.run={tmp_path / 'base'}", "base.execute=4")
    on_top = ("algo=resfit", f"train.dataset={tmp_path / 'base'}", "train.demos=0")
    run = tmp_path / "residual"
    experiment = Experiment.compose([*SHORT, *base, *on_top, f"run_dir={run}"])
    train(experiment)
    one, other = (
        json.loads((folder / "eval.json").read_text())["deterministic"]
        for folder in (tmp_path / "base", run)
    )
    assert one["episodes"] == other["episodes"] == 4
    with Store(run / "store.sqlite") as store:
        evals = [s for s in store.episodes() if s.purpose == "eval"]
        frames, steps = store.frames(evals[0].id), store.steps(evals[0].id)
        assert frames[0].observation[BASE_ACTION].shape == (1, 6)
        for step in steps:  # what was proposed is what the base said
            said = frames[step.frame].observation[BASE_ACTION][0]
            np.testing.assert_array_equal(step.policy_action, said)
    assert Experiment.load(run).spec.hash == experiment.spec.hash


def test_from_a_base_to_a_student_to_a_run_without_the_base(tmp_path: Path) -> None:
    pytest.importorskip("robot_rl_sim")
    from robot_rl.run.train import train

    flow = ("algo=bc_flow", "algo.hidden=[32]", "learner.pretrain_updates=20")
    train(Experiment.compose([*SHORT, *flow, f"run_dir={tmp_path / 'base'}"]))
    base = ("base=flow", f"base.run={tmp_path / 'base'}", "base.execute=1")
    practice = ("train.max_env_steps=60", "train.demos=0", f"train.dataset={tmp_path / 'base'}")
    opd = ("algo=opd", "algo.hidden=[16]", "operator=none", "learner.pretrain_updates=20")
    run = tmp_path / "student"
    train(Experiment.compose([*SHORT, *base, *opd, *practice, f"run_dir={run}"]))
    alone = ("algo=bc", "algo.hidden=[16]", "train.demos=0", f"learner.init_from={run}")
    train(Experiment.compose([*SHORT, *alone, f"run_dir={tmp_path / 'alone'}"]))
    one, other = (
        json.loads((folder / "eval.json").read_text())["deterministic"]
        for folder in (run, tmp_path / "alone")
    )
    assert one["episodes"] == other["episodes"] == 4
    assert one["successes"] == other["successes"]
    with Store(run / "store.sqlite") as store:  # what the teacher says in the student's states
        trained = [s for s in store.episodes() if s.purpose == "train"]
        assert BASE_ACTION in store.frames(trained[-1].id)[0].observation


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["base=flow", "base.run=nowhere"], "not a run folder"),
        (["base=flow"], "needs base.run"),
        (["base=flwo"], "flow"),
    ],
)
def test_a_base_that_is_not_there_is_named(words: list[str], match: str) -> None:
    pytest.importorskip("robot_rl_sim")
    with pytest.raises(ConfigError, match=match):
        policy_of(Experiment.compose(["experiment=reach", *words]))


def test_a_run_of_another_algorithm_is_no_base(tmp_path: Path) -> None:
    pytest.importorskip("robot_rl_sim")
    folder = Experiment.compose(["experiment=reach", f"run_dir={tmp_path / 'rl'}"]).save()
    for base in ("flow", "act"):
        words = ["experiment=reach", f"base={base}", f"base.run={folder}"]
        with pytest.raises(ConfigError, match="no such chunk policy"):
            policy_of(Experiment.compose(words))


def test_the_other_kind_of_base_is_named(tmp_path: Path) -> None:
    pytest.importorskip("robot_rl_sim")
    words = ["experiment=reach", "algo=bc_act", f"run_dir={tmp_path / 'act'}"]
    folder = Experiment.compose(words).save()
    with pytest.raises(ConfigError, match="base=act uses it"):
        policy_of(Experiment.compose(["experiment=reach", "base=flow", f"base.run={folder}"]))
    noise = ["experiment=reach", "base=act", f"base.run={folder}", "algo=dsrl"]
    with pytest.raises(ConfigError, match="base=flow"):
        policy_of(Experiment.compose(noise))
