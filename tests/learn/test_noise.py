"""DSRL-SAC: which noise a base samples from is decided, recorded and learned, wherever it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from robot_rl.errors import ConfigError
from robot_rl.learn.algos.dsrl_sac import DsrlSacConfig
from robot_rl.learn.replay import Replay
from robot_rl.policy.base.schedule import AsyncSchedule, ChunkSchedule
from robot_rl.policy.base.spec import BaseSpec
from robot_rl.policy.runtime import PolicyRuntime
from robot_rl.run.experiment import Experiment
from robot_rl.spec import BASE_ACTION, BASE_AGE, BASE_NOISE
from robot_rl.store.store import Store
from robot_rl.types import Driver, Frame, Observation, Step
from tests.support.fakes import TASK, FakeOperator, make_loop, start

CONFIG = DsrlSacConfig(
    hidden=(32, 32), batch_size=32, knots=2, span=8, learning_rate=3e-3, gamma=0.97,
    value_range=None, policy_tau=1.0,
)  # fmt: skip
SPEC = TASK.spec.with_base(1, CONFIG.noise_size(TASK.spec))


class Echo:
    """Does what its noise says; noise of its own is 0.01."""

    def __init__(self, noise_shape: tuple[int, ...] | None = (4, 6)) -> None:
        self.spec = BaseSpec(4, 6, noise_shape)
        self.heard: list[NDArray[np.float32] | None] = []

    def reset(self) -> None:
        pass

    def sample(
        self, observation: Observation, noise: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        self.heard.append(noise)
        return np.full((4, 6), 0.01, np.float32) if noise is None else np.clip(noise, -1, 1)


def weights_of(algo, version: int):  # type: ignore[no-untyped-def]
    import hashlib

    import safetensors.torch

    from robot_rl.types import Weights

    data = safetensors.torch.save({k: v.contiguous() for k, v in algo.actor_state().items()})
    return Weights(version, hashlib.sha256(data).hexdigest(), data)


def runtime(base: Echo) -> PolicyRuntime:
    made = PolicyRuntime(CONFIG, SPEC, base=ChunkSchedule(base, execute=3, ahead=1))
    made.load(weights_of(CONFIG.make(SPEC, seed=0), 0))
    return made


def test_every_frame_says_which_decision_its_plan_came_from_and_how_old_it_is() -> None:
    base, seen = Echo(), {"state": np.zeros(18, np.float32)}
    policy = runtime(base)
    policy.begin_episode()
    frames = [policy.annotate(dict(seen)) for _ in range(5)]
    assert [float(f[BASE_AGE][0]) for f in frames] == [0, 1, 2, 0, 1]
    assert np.array_equal(frames[0][BASE_NOISE], frames[2][BASE_NOISE])
    assert not np.array_equal(frames[0][BASE_NOISE], frames[3][BASE_NOISE])
    first = frames[0][BASE_NOISE].reshape(2, 6) * CONFIG.reach
    np.testing.assert_allclose(base.heard[0][[0, -1]], first, atol=1e-6)  # at both knots
    np.testing.assert_allclose(frames[0][BASE_ACTION][0], np.clip(first[0], -1, 1), atol=1e-6)
    np.testing.assert_array_equal(policy.act(frames[0], False), frames[0][BASE_ACTION][0])


def test_an_evaluation_before_any_update_is_the_base_with_noise_of_its_own() -> None:
    base = Echo()
    policy = runtime(base)
    policy.begin_episode(deterministic=True)
    seen = policy.annotate({"state": np.zeros(18, np.float32)})
    assert base.heard == [None] and float(seen[BASE_AGE][0]) > 0.0  # nothing was decided here
    assert policy.act(seen, True).tolist() == pytest.approx([0.01] * 6)


@pytest.mark.parametrize("shape", [None, (4, 7), (24,)])
def test_a_base_whose_noise_cannot_be_chosen_is_named(shape: tuple[int, ...] | None) -> None:
    policy = runtime(Echo(shape))
    policy.begin_episode()
    with pytest.raises(ConfigError, match="noise cannot be chosen"):
        policy.annotate({"state": np.zeros(18, np.float32)})


def test_a_slow_base_s_plan_counts_as_decided_when_it_arrived() -> None:
    base = Echo()
    schedule = AsyncSchedule(base, execute=2, ahead=1, blend=0)
    policy = PolicyRuntime(CONFIG, SPEC, base=schedule)
    policy.load(weights_of(CONFIG.make(SPEC, seed=0), 0))
    policy.begin_episode()
    ages, noises = [], []
    for _ in range(12):
        seen = policy.annotate({"state": np.zeros(18, np.float32)})
        while schedule._asked is not None and not schedule._asked.done():
            pass
        ages.append(float(seen[BASE_AGE][0]))
        noises.append(seen[BASE_NOISE].tobytes())
    assert ages[0] == 0.0 and ages.count(0.0) >= 4
    for before, after, age in zip(noises, noises[1:], ages[1:], strict=False):
        assert (before != after) == (age == 0.0)
    schedule.close()


def test_only_decisions_are_learned_from_and_each_spans_its_plan() -> None:
    hand = FakeOperator(lambda tick: tick in (7, 8), np.full(6, 0.1, np.float32))
    loop, _, rows = make_loop(operator=hand)
    loop.policy = runtime(Echo())
    loop.run_episode(replace(start(), spec_hash=SPEC.hash))
    replay = Replay(SPEC, 1000, CONFIG.make(SPEC, 0).net.observation_keys, view=CONFIG.view)
    replay.ingest(rows)
    frames = {r.frame: r.observation for r in rows if isinstance(r, Frame)}
    steps = [r for r in rows if isinstance(r, Step)]
    assert any(s.driver is Driver.CORRECTION for s in steps)
    wanted = [
        s.step
        for s in steps
        if s.driver is Driver.POLICY and float(frames[s.frame][BASE_AGE][0]) == 0.0
    ]
    assert replay.len_online == len(wanted) and replay.len_demo == 0
    batch = replay.sample(256, 0.0, np.random.default_rng(0))
    assert (batch.observation[BASE_AGE] == 0.0).all()
    assert batch.steps.max() == 3.0  # base.execute, although `span` would allow 8
    ends = batch.next_observation[BASE_AGE][:, 0]
    assert (ends[batch.steps == 3.0] == 0.0).all()  # where the next one was made


def test_the_noise_that_pays_is_learned() -> None:
    algo = CONFIG.make(SPEC, seed=0)
    rng = np.random.default_rng(0)

    def sample(n: int, fraction: float):  # type: ignore[no-untyped-def]
        from robot_rl.learn.replay import Batch

        decision = rng.uniform(-1, 1, (n, 12)).astype(np.float32)
        seen = {
            "state": rng.normal(size=(n, 18)).astype(np.float32),
            BASE_ACTION: np.zeros((n, 1, 6), np.float32),
            BASE_NOISE: decision,
            BASE_AGE: np.zeros((n, 1), np.float32),
        }
        zero = np.zeros(n, np.float32)
        reward = decision[:, :6].mean(1) - decision[:, 6:].mean(1)
        return Batch(
            seen, np.zeros((n, 6), np.float32), reward, seen, zero, zero > 0, zero, zero + 3,
            zero, zero,
        )  # fmt: skip

    for _ in range(400):
        algo.update(sample)
    seen = {"state": rng.normal(size=(64, 18)).astype(np.float32)}
    found = algo.net.decide(seen, algo.actor_state(), deterministic=True, generator=None)
    assert found is not None
    assert float(found[:, :6].min()) > 0.5 and float(found[:, 6:].max()) < -0.5


@pytest.mark.parametrize("served", [False, True])
def test_from_a_base_to_a_learner_that_chooses_its_noise(tmp_path: Path, served: bool) -> None:
    pytest.importorskip("robot_rl_sim")
    import threading

    from robot_rl.run.serve_policy import serve_run
    from robot_rl.run.train import train

    short = ["experiment=reach", "train.eval_episodes=3", "train.stochastic_eval_episodes=0"]
    short += ["train.video=false", "algo.hidden=[16]"]
    run = tmp_path / "base"
    flow = ["algo=bc_flow", "learner.pretrain_updates=20", "train.demos=2", "train.max_env_steps=0"]
    train(Experiment.compose([*short, *flow, f"run_dir={run}"]))
    base, stop, where = ["base=flow", f"base.run={run}"], threading.Event(), []
    if served:
        asked = threading.Thread(
            target=serve_run,
            args=(run,),
            kwargs={
                "host": "127.0.0.1", "port": 0, "keys": None, "stop": stop, "started": where.append
            },
        )  # fmt: skip
        asked.start()
        while not where:
            assert asked.is_alive()
        base = ["base=served", f"base.run={run}", f"base.port={where[0].split(':')[1]}"]
    head = ["algo=dsrl_sac", "algo.batch_size=16", "train.demos=0", "operator=none"]
    head += ["train.max_env_steps=150", "learner.min_steps=50", "learner.utd=1"]
    try:
        train(Experiment.compose([*short, *base, *head, f"run_dir={tmp_path / 'head'}"]))
    finally:
        stop.set()
    with Store(tmp_path / "head" / "store.sqlite") as store:
        practice = [s for s in store.episodes() if s.purpose == "train"]
        frames = store.frames(practice[-1].id)
    assert {float(f.observation[BASE_AGE][0]) for f in frames} >= {0.0, 1.0}
    assert frames[0].observation[BASE_NOISE].any()


def test_a_noise_head_without_a_base_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a base"):
        CONFIG.make(TASK.spec, seed=0)
