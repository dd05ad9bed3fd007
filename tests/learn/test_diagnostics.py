"""Why is it not learning: each check fires on its own trouble, stays silent on a healthy run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.learn import diagnostics
from robot_rl.learn.algos import BcConfig, HilSerlConfig
from robot_rl.learn.diagnostics import CHECKS, Diagnostics, Finding, Setup, Symptoms, probe
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.learn.replay import Batch, EpisodeCounts, Replay, ReplaySummary
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.spec import TensorSpec
from robot_rl.types import Driver, Step
from tests.support.clock import ManualClock
from tests.support.point_mass import SPEC, FakeStore, PointMass, demonstrate

COUNTS = EpisodeCounts(episodes=20, labelled=20, rewarded=15, truncated=5, toggled=12)
HEALTHY = Symptoms(
    setup=Setup(gripper=True, gamma=0.95, value_range=(0.0, 1.0), entropy_target=-1.5),
    updates=30_000,
    env_steps=4000,
    replay=ReplaySummary(
        practice=COUNTS,
        demos=EpisodeCounts(episodes=20, labelled=20, rewarded=20, toggled=20),
        reward=(0.0, 1.0),
        ending=(1.0, 1.0),
        returns=(0.1, 1.0),
    ),
    metrics={
        "critic/q_mean": 0.6,
        "critic/q_std": 0.2,
        "critic/dormant": 0.01,
        "actor/dormant": 0.0,
        "actor/saturated": 0.1,
        "actor/entropy": -8.5,
        "temperature/value": 1e-3,
    },
    silent_s=0.2,
    staleness_s=1.5,
    backlog=0.1,
)


def with_metrics(**metrics: float) -> Symptoms:
    """Healthy figures but for some metrics; `critic_q_mean` means critic/q_mean."""
    changed = {k.replace("_", "/", 1): v for k, v in metrics.items()}
    return replace(HEALTHY, metrics={**HEALTHY.metrics, **changed})


def with_replay(purpose: str = "practice", **counts: int) -> Symptoms:
    """Healthy figures but for some counts."""
    part = replace(getattr(HEALTHY.replay, purpose), **counts)
    return replace(HEALTHY, replay=replace(HEALTHY.replay, **{purpose: part}))


def with_reward(reward: float) -> Symptoms:
    """Every step of every episode is worth the same."""
    same = replace(HEALTHY.replay, reward=(reward, reward), ending=(0.0, 0.0))
    return replace(HEALTHY, replay=same)


def with_returns(low: float, high: float) -> Symptoms:
    """The returns that were recorded."""
    return replace(HEALTHY, replay=replace(HEALTHY.replay, returns=(low, high)))


def after(updates: int, figures: Symptoms) -> Symptoms:
    return replace(figures, updates=updates)


UNBOUNDED = replace(HEALTHY, setup=replace(HEALTHY.setup, value_range=None))

SICK: list[tuple[str, str, Symptoms]] = [
    ("labels", "problem", with_reward(0.0)),
    ("labels", "problem", with_reward(1.0)),
    ("labels", "problem", with_replay(at_once=20)),
    ("weights", "warning", replace(HEALTHY, staleness_s=40.0)),
    ("weights", "problem", replace(HEALTHY, staleness_s=200.0)),
    ("buffer", "warning", replace(HEALTHY, silent_s=90.0)),
    ("buffer", "problem", replace(HEALTHY, silent_s=400.0)),
    ("buffer", "warning", replace(HEALTHY, backlog=1.0)),
    ("demonstrations", "problem", with_replay("demos", rewarded=0)),
    ("demonstrations", "warning", with_replay("demos", rewarded=7)),
    ("time_limit", "warning", with_replay(truncated=12)),
    ("time_limit", "problem", with_replay(truncated=19)),
    ("q_values", "warning", with_metrics(critic_q_mean=1.2)),
    ("q_values", "problem", with_metrics(critic_q_mean=1.7)),
    ("q_values", "problem", with_metrics(critic_q_mean=-0.7)),
    ("q_values", "problem", with_metrics(critic_q_mean=float("nan"))),
    ("q_values", "warning", with_metrics(critic_q_std=1e-4)),
    ("q_values", "problem", with_returns(-20.0, 0.0)),
    ("q_values", "problem", with_returns(0.5, 1.2)),
    ("dormant", "warning", with_metrics(critic_dormant=0.3)),
    ("dormant", "problem", with_metrics(actor_dormant=0.6)),
    ("saturation", "warning", with_metrics(actor_saturated=0.6)),
    ("saturation", "problem", with_metrics(actor_saturated=0.95)),
    ("gripper", "warning", with_replay(toggled=0)),
    ("entropy", "warning", with_metrics(actor_entropy=-2.0)),
    ("entropy", "warning", with_metrics(temperature_value=3.0)),
    ("entropy", "warning", with_metrics(temperature_value=1e-8, actor_entropy=-10.0)),
    ("noise", "warning", with_metrics(noise_error_ratio=2.0)),
    ("noise", "problem", with_metrics(noise_error_ratio=4.0)),
]


def found(figures: Symptoms) -> list[Finding]:
    """What the checks say, without waiting for several lines."""
    return [finding for check in CHECKS if (finding := check(figures))]


def test_a_healthy_run_has_no_finding() -> None:
    assert found(HEALTHY) == []
    assert found(UNBOUNDED) == []


@pytest.mark.parametrize(("name", "severity", "figures"), SICK)
def test_each_check_fires_alone_and_names_a_fix(
    name: str, severity: str, figures: Symptoms
) -> None:
    (finding,) = found(figures)
    assert (finding.name, finding.severity) == (name, severity)
    assert finding.what and finding.fix
    assert "\n" not in finding.what + finding.fix


def test_every_check_is_covered_here_and_has_a_name_in_the_metrics() -> None:
    assert {name for name, *_ in SICK} == set(diagnostics.NAMES)


def test_nothing_is_said_before_there_is_enough_data() -> None:
    few = EpisodeCounts(episodes=9, truncated=9)
    early = Symptoms(
        setup=HEALTHY.setup,
        updates=999,
        replay=ReplaySummary(practice=few),
        metrics={"critic/q_mean": 50.0, "actor/dormant": 1.0, "actor/saturated": 1.0},
    )
    assert found(early) == []
    two = EpisodeCounts(episodes=2)
    assert found(replace(early, replay=ReplaySummary(demos=two))) == []
    assert found(after(19_000, with_metrics(actor_entropy=5.0))) == []
    assert found(after(4_000, with_metrics(critic_q_std=0.0))) == []
    assert found(replace(early, silent_s=1e6)) == []  # no step yet


def test_without_value_range_the_rewards_say_what_is_possible() -> None:
    assert found(replace(UNBOUNDED, metrics={"critic/q_mean": 1.05})) == []
    (finding,) = found(replace(UNBOUNDED, metrics={"critic/q_mean": 1.7}))  # paid once, at the end
    assert finding.severity == "problem"
    paid = replace(UNBOUNDED.replay, running=(0.0, 1.0))  # 1 per step: 1 / (1 - 0.95) and the end
    assert found(replace(UNBOUNDED, replay=paid, metrics={"critic/q_mean": 20.0})) == []
    assert found(replace(UNBOUNDED, replay=paid, metrics={"critic/q_mean": 40.0}))
    assert found(replace(UNBOUNDED, metrics={"critic/q_mean": -9.0})) == []  # a conservative critic


def test_returns_that_fit_no_value_range_are_a_problem_with_one_that_they_fit() -> None:
    cost = replace(HEALTHY.replay, returns=(-20.0, -1.0), running=(-1.0, -1.0), ending=(0.0, 0.0))
    (finding,) = found(replace(HEALTHY, replay=cost, updates=0))  # before anything is learned
    assert "between -20 and -1" in finding.what and "[0,1]" in finding.what
    assert "algo.value_range=null" in finding.fix and "[-20,0]" in finding.fix
    assert found(replace(UNBOUNDED, replay=cost, metrics={})) == []
    assert found(with_returns(0.0, 1.01)) == []


def test_a_run_that_has_no_use_for_rewards_is_not_asked_for_them() -> None:
    setup = replace(HEALTHY.setup, task_reward=False, gamma=None)
    assert found(replace(with_reward(0.0), setup=setup)) == []


def test_practice_that_never_succeeds_is_a_warning_although_demonstrations_do() -> None:
    names = [f.name for f in found(with_replay(episodes=50, rewarded=0, truncated=50))]
    assert names == ["labels", "time_limit"]


def test_what_may_pass_must_be_there_line_after_line() -> None:
    watch, behind = Diagnostics(), replace(HEALTHY, backlog=1.0)
    for line in range(9):
        assert watch.check(after(1000 + 200 * line, behind)) == ()
    assert watch.check(after(2600, behind)) == ()  # nothing was learned since: not another line
    assert [f.name for f in watch.check(after(2800, behind))] == ["buffer"]
    assert watch.check(after(3000, HEALTHY)) == ()
    assert watch.check(after(3200, behind)) == ()  # from the beginning


def test_a_line_has_a_figure_per_check_and_text_for_what_was_found() -> None:
    findings = tuple(found(replace(with_replay(truncated=19), silent_s=90.0)))
    values, text = diagnostics.as_line(findings)
    assert len(values) == 11 and sum(values.values()) == 3.0
    assert values["diagnostics/time_limit"] == 2.0 and values["diagnostics/buffer"] == 1.0
    assert "95 %" in text["diagnostics/time_limit/what"]
    assert text["diagnostics/buffer/fix"]


ALGO = HilSerlConfig(hidden=(32, 32), batch_size=16, precision="float32")


def batch(rows: int = 128) -> Batch:
    """Transitions of the point task's demonstrations."""
    store, replay = FakeStore(), Replay(SPEC, 1000)
    demonstrate(store, PointMass(0), 5)
    replay.ingest(store.rows)
    return replay.sample(rows, 0.5, np.random.default_rng(0))


def test_the_probe_sees_what_the_networks_compute() -> None:
    algo = ALGO.make(SPEC, 0)
    x = torch.randn(7, algo.critic_net.sizes[0])
    hidden, output = algo.critic_net.activations(x, algo.critic)
    assert [h.shape for h in hidden] == [(2, 7, 32)] * 2
    torch.testing.assert_close(output, algo.critic_net(x, algo.critic))
    weight, bias = algo.critic_net.layers(algo.critic)[-1]
    torch.testing.assert_close(hidden[-1] @ weight + bias, output)  # the last one feeds the output


def test_a_fresh_network_is_awake_and_the_probe_changes_nothing() -> None:
    algo = replace(ALGO, hidden=(128, 128)).make(SPEC, 0)
    before = algo.state_dict()
    figures = probe(algo, batch())
    assert max(figures["actor/dormant"], figures["critic/dormant"]) < diagnostics.DORMANT
    assert figures["actor/saturated"] == 0.0
    assert 0.0 < figures["critic/q_std"] < 0.1
    assert all(torch.equal(v, before[k]) for k, v in algo.state_dict().items())  # generator too


@torch.no_grad()
def test_killed_units_are_counted_as_dormant() -> None:
    algo = ALGO.make(SPEC, 0)
    policy, critics = (algo.net.policy, algo.actor["policy"]), (algo.critic_net, algo.critic)
    for net, flat in (policy, critics):
        for _, _, _, offset in net.layers(flat)[:-1]:
            offset.fill_(4.0)  # every unit answers to something
    assert probe(algo, batch())["actor/dormant"] == 0.0
    _, _, gain, offset = algo.net.policy.layers(algo.actor["policy"])[0]
    gain[..., :16], offset[..., :16] = 0.0, 0.0
    _, _, gain, offset = algo.critic_net.layers(algo.critic)[1]
    gain.zero_(), offset.zero_()  # a whole layer is silent
    figures = probe(algo, batch())
    assert figures["actor/dormant"] == 0.25  # 16 of 64
    assert figures["critic/dormant"] == 0.5
    assert figures["critic/q_std"] == 0.0


@torch.no_grad()
def test_a_policy_at_its_limits_is_saturated() -> None:
    algo = ALGO.make(SPEC, 0)
    bias = algo.net.policy.layers(algo.actor["policy"])[-1][1]
    bias[..., :3] = torch.tensor([5.0, -5.0, 5.0])
    assert probe(algo, batch())["actor/saturated"] == pytest.approx(0.5)


def test_without_critics_the_policy_alone_is_looked_at() -> None:
    assert set(probe(BcConfig(hidden=(32,)).make(SPEC, 0), batch())) == {
        "actor/dormant",
        "actor/saturated",
    }


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "learner.jsonl").read_text().splitlines()]


def learner_of(store: FakeStore, folder: Path, clock: ManualClock, **config: Any) -> Learner:
    settings = LearnerConfig(min_steps=20, publish_period_s=0.0, log_updates=10, **config)
    return Learner(settings, ALGO, SPEC, store, run_dir=folder, seed=0, clock=clock)


def practise(store: FakeStore, episodes: int) -> None:
    """Steps of a policy that stands still: never rewarded."""
    env = PointMass(0)
    env.episodes = len(store.rows)
    for _ in range(episodes):
        store.rows += env.episode(lambda _: (np.zeros(6, np.float32), Driver.POLICY))[0]


def test_a_run_without_rewards_says_so_in_its_metrics(tmp_path: Path) -> None:
    store, clock = FakeStore(), ManualClock()
    practise(store, 12)
    learner = learner_of(store, tmp_path, clock)
    learner.ingest()
    learner.update(10)
    (line,) = lines(tmp_path)
    assert line["diagnostics/labels"] == 1.0
    assert "same reward, 0" in line["diagnostics/labels/what"]
    assert line["diagnostics/labels/fix"] == learner.metrics["diagnostics/labels/fix"]
    assert line["diagnostics/time_limit"] == 2.0
    assert line["diagnostics/q_values"] == 0.0
    assert 0.0 <= line["actor/dormant"] <= 1.0 and line["critic/q_std"] >= 0.0  # the probe ran


@pytest.mark.parametrize(("cost", "level"), [(0.0, 0.0), (1.0, 2.0)])
def test_a_learner_that_clips_every_return_says_so(
    cost: float, level: float, tmp_path: Path
) -> None:
    store = FakeStore()
    demonstrate(store, PointMass(0), 3)
    rows = (
        replace(r, reward=(r.reward or 0) - cost) if isinstance(r, Step) else r for r in store.rows
    )
    store.rows = list(rows)
    settings = LearnerConfig(min_steps=20, publish_period_s=0.0, log_updates=10)
    algo = replace(ALGO, value_range=(0.0, 1.0))
    learner = Learner(settings, algo, SPEC, store, run_dir=tmp_path, seed=0, clock=ManualClock())
    learner.ingest()
    learner.update(10)
    assert learner.metrics["diagnostics/q_values"] == level


def test_an_idle_learner_says_why(tmp_path: Path) -> None:
    store, clock = FakeStore(), ManualClock()
    practise(store, 2)
    learner = learner_of(store, tmp_path, clock, utd=0.1)
    learner.ingest()
    learner.update(learner.updates_due())
    clock.sleep_until_s(5.0)
    learner.ingest()
    before = len(lines(tmp_path)) if (tmp_path / "learner.jsonl").exists() else 0
    clock.sleep_until_s(70.0)
    learner.ingest()
    assert len(lines(tmp_path)) == before + 1
    assert lines(tmp_path)[-1]["diagnostics/buffer"] == 1.0
    assert "70 s" in lines(tmp_path)[-1]["diagnostics/buffer/what"]


def test_weights_that_never_reach_the_robot_are_seen(tmp_path: Path) -> None:
    store, clock = FakeStore(), ManualClock()
    learner = learner_of(store, tmp_path, clock)
    for second in range(0, 200, 20):
        clock.sleep_until_s(float(second))
        practise(store, 1)  # all of it with version 0
        learner.ingest()
        learner.update(20)
        learner.weights()
    assert lines(tmp_path)[0]["diagnostics/weights"] == 0.0
    assert lines(tmp_path)[-1]["diagnostics/weights"] == 2.0


def test_the_replay_counts_its_episodes_by_purpose() -> None:
    store, replay = FakeStore(), Replay(SPEC, 10_000)
    demonstrate(store, PointMass(0), 3)
    practise(store, 4)
    replay.ingest(store.rows)
    summary = replay.summary()
    assert summary.demos == EpisodeCounts(episodes=3, labelled=3, rewarded=3)
    assert summary.practice == EpisodeCounts(episodes=4, labelled=4, truncated=4)
    assert summary.reward == (0.0, 1.0)
    assert summary.running == (0.0, 0.0) and summary.ending == (1.0, 1.0)
    assert summary.returns == (0.0, 1.0)
    assert replay.weights_version == 0


def test_unlabelled_episodes_are_counted_as_such() -> None:
    store, replay = FakeStore(), Replay(SPEC, 10_000)
    practise(store, 2)
    replay.ingest(
        replace(r, reward=None, success=None) if isinstance(r, Step) else r for r in store.rows
    )
    assert replay.summary().practice == EpisodeCounts(episodes=2, truncated=2)
    assert Replay(SPEC, 10).summary() == ReplaySummary()


def test_the_probe_sees_through_cameras() -> None:
    spec = replace(SPEC, observation={"image/wrist": TensorSpec((32, 32, 3), "uint8")})
    encoder = EncoderConfig(channels=(8, 16), latent=8)
    flat = batch(32)
    pictures = np.random.default_rng(0).integers(0, 256, (32, 32, 32, 3), np.uint8)
    figures = probe(
        replace(ALGO, encoder=encoder).make(spec, 0),
        replace(flat, observation={"image/wrist": pictures}),
    )
    assert set(figures) == {"actor/dormant", "actor/saturated", "critic/dormant", "critic/q_std"}
    assert figures["actor/dormant"] < 1.0 and figures["critic/q_std"] > 0.0
