"""Rewards assembled when sampled: shaping by progress, a cost per step; nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.cli.main import main
from robot_rl.learn.replay import Batch, Replay, View
from robot_rl.reward.assembly import Assembly, after_change, potential_based, widened
from robot_rl.reward.config import ClassifierRewardConfig, PredicateRewardConfig
from robot_rl.run.experiment import Experiment
from robot_rl.store.labels import MODEL_REWARD, PROGRESS
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Label, Row, Step

SPEC = sample_spec()
STEPS, GAMMA = 6, 0.9
SHAPED = Assembly(shaping=0.5, progress_by="progress-1")


def episode(ending: Ending, number: int = 0) -> list[Row]:
    """Six steps, reward 1 on the last one if it is terminated."""
    rows = []
    for row in episode_rows(SPEC, EpisodeId("run", "actor", number), STEPS):
        if isinstance(row, Step):
            won = float(row.ending is not None and ending is Ending.TERMINATED)
            last = (ending, bool(won)) if row.ending else (None, None)
            row = replace(row, reward=won, ending=last[0], success=last[1])  # noqa: PLW2901
        rows.append(row)
    return rows


def said(frame: int, phi: float, author: str = SHAPED.progress_by, number: int = 0) -> Label:
    id_ = EpisodeId("run", "actor", number)
    return Label(id_, frame, frame, PROGRESS, phi, "progress", author, 1)


def replay_of(rows: list[Row], assembly: Assembly, n_step: int = 1) -> Replay:
    replay = Replay(SPEC, 100, view=View(n_step=n_step, gamma=GAMMA, assembly=assembly))
    replay.ingest(rows)
    return replay


def everything(replay: Replay) -> Batch:
    """Each step of the first episode once, in order."""
    (slots,) = (list(e.steps.values()) for e in replay.episodes.values())
    return replay.gather(np.array(slots))


PHI = np.array([0.1, 0.3, 0.2, 0.5, 0.8, 0.9, 1.0], np.float32)


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("ending", [Ending.TERMINATED, Ending.TRUNCATED])
def test_a_shaped_reward_is_the_reward_and_the_gain_of_potential(
    ending: Ending, n_step: int
) -> None:
    rows = episode(ending)
    plain = everything(replay_of(rows, Assembly(), n_step))
    labels = [said(f, float(p)) for f, p in enumerate(PHI)]
    shaped = everything(replay_of([*rows, *labels], SHAPED, n_step))
    for t in range(STEPS):
        span = min(n_step, STEPS - t)
        over = t + span == STEPS and ending is Ending.TERMINATED
        gain = GAMMA**span * (0.0 if over else PHI[t + span] - 1.0) - (PHI[t] - 1.0)
        assert shaped.reward[t] == pytest.approx(plain.reward[t] + 0.5 * gain, abs=1e-6)
        assert shaped.return_to_go[t] == pytest.approx(
            plain.return_to_go[t] + 0.5 * (1.0 - PHI[t]), abs=1e-6
        )
        assert shaped.room is not None
        np.testing.assert_allclose(shaped.room[t], [0.5 * (1.0 - PHI[t]), 0.5 * PHI[t]], atol=1e-6)
    assert plain.room is None
    np.testing.assert_array_equal(shaped.mask, plain.mask)
    assert shaped.reward.dtype == shaped.return_to_go.dtype == np.float32


def test_a_transition_waits_for_the_progress_of_both_its_frames() -> None:
    replay = replay_of(episode(Ending.TERMINATED), SHAPED)
    assert replay.len_online == 0
    replay.ingest([said(0, 0.1), said(2, 0.2), said(2, 0.9, author="progress-other")])
    assert replay.len_online == 0
    replay.ingest([said(1, 0.3)])
    assert replay.len_online == 2
    replay.ingest([said(f, 0.5) for f in (3, 4, 5)])
    assert replay.len_online == STEPS  # of a terminal frame nothing is asked


def test_progress_may_come_before_its_frame() -> None:
    start, *rows = episode(Ending.TERMINATED)
    labels = [said(f, float(p)) for f, p in enumerate(PHI)]
    late, early = (
        replay_of([start, *rows, *labels], SHAPED),
        replay_of([start, *labels, *rows], SHAPED),
    )
    np.testing.assert_array_equal(everything(late).reward, everything(early).reward)


def test_progress_is_the_mean_of_the_last_frames_in_whatever_order_they_come() -> None:
    smooth = replace(SHAPED, smooth_steps=3)
    labels = [said(f, float(p)) for f, p in enumerate(PHI)]
    mean = [PHI[max(t - 2, 0) : t + 1].mean() for t in range(len(PHI))]
    for order in (labels, labels[::-1], [*labels[1::2], *labels[::2]]):
        batch = everything(replay_of([*episode(Ending.TRUNCATED), *order], smooth))
        assert batch.room is not None
        np.testing.assert_allclose(batch.room[:, 1], 0.5 * np.array(mean[:-1]), atol=1e-6)
    gap = [x for x in labels if x.step != 2]
    replay = replay_of([*episode(Ending.TRUNCATED), *gap], smooth)
    assert replay.len_online == STEPS - 2  # the steps from and to frame 2 wait, no other
    replay.ingest([said(2, float("nan"))])
    assert replay.len_online == STEPS - 2
    replay.ingest([labels[2]])
    np.testing.assert_allclose(everything(replay).room[:, 1], batch.room[:, 1], atol=1e-6)  # type: ignore[index]


def test_a_frame_that_is_far_from_here_is_waited_for() -> None:
    start, *rows = episode(Ending.TERMINATED)
    far = [replace(r, frame=r.frame + 900, next_frame=r.next_frame + 900) if isinstance(r, Step)
           else r for r in rows]  # fmt: skip
    assert replay_of([start, *far], SHAPED).len_online == 0


@pytest.mark.parametrize(
    ("kind", "assembly"),
    [(PROGRESS, SHAPED), (MODEL_REWARD, Assembly(rewards_by=SHAPED.progress_by))],
)
def test_a_models_word_on_no_frame_is_refused(kind: str, assembly: Assembly) -> None:
    replay = replay_of(episode(Ending.TERMINATED), assembly)
    replay.ingest([replace(said(0, 0.5), step=None, kind=kind)])
    assert replay.refused_rows == 1 and replay.len_online == 0


def test_a_cost_of_each_step_is_part_of_every_return() -> None:
    plain = everything(replay_of(episode(Ending.TERMINATED), Assembly()))
    cost = everything(replay_of(episode(Ending.TERMINATED), Assembly(step_cost=0.01)))
    np.testing.assert_allclose(cost.reward, plain.reward - 0.01, atol=1e-6)
    left = np.arange(STEPS, 0, -1)
    charged = 0.01 * (1 - GAMMA**left) / (1 - GAMMA)
    np.testing.assert_allclose(cost.return_to_go, plain.return_to_go - charged, atol=1e-6)


def test_a_cost_of_time_does_not_end_where_an_episode_was_cut_off() -> None:
    cost = everything(replay_of(episode(Ending.TRUNCATED), Assembly(step_cost=0.01)))
    np.testing.assert_allclose(cost.return_to_go, -0.01 / (1 - GAMMA), atol=1e-6)
    plain = everything(replay_of(episode(Ending.TRUNCATED), Assembly()))
    np.testing.assert_allclose(plain.return_to_go, 0.0)  # what may come is not counted on


def test_what_is_unlabelled_stays_so() -> None:
    rows = [
        replace(r, reward=None, success=None) if isinstance(r, Step) else r
        for r in episode(Ending.TRUNCATED)
    ]
    labels = [said(f, float(p)) for f, p in enumerate(PHI)]
    assert replay_of([*rows, *labels], replace(SHAPED, step_cost=0.1)).len_online == 0


@pytest.mark.parametrize("seed", range(5))
def test_no_potential_changes_the_best_policy(seed: int) -> None:
    """Value iteration on a made-up world of 8 states, with terminal ones, for random potentials."""
    rng = np.random.default_rng(seed)
    states, actions, n_step = 8, 3, 2
    after = rng.integers(0, states, (states, actions))
    reward, mask = rng.random((states, actions)), np.ones(states)
    mask[6:] = 0.0  # arriving there ends it
    phi = rng.normal(size=states)

    def best(shaping: float) -> np.ndarray:
        q = np.zeros((states, actions))
        for _ in range(600):
            gain = shaping * potential_based(phi[:, None], phi[after], mask[after], GAMMA)
            q = reward + gain + GAMMA * mask[after] * q.max(1)[after]
        return q

    plain, shaped = best(0.0), best(3.0)
    np.testing.assert_array_equal(plain.argmax(1), shaped.argmax(1))
    np.testing.assert_allclose(shaped, plain - 3.0 * phi[:, None], atol=1e-4)
    # two steps at once: the gains in between cancel
    one, two = after[:, 0], after[after[:, 0], 0]
    alive = mask[one] > 0
    steps = (
        potential_based(phi, phi[one], mask[one], GAMMA)[alive]
        + GAMMA * potential_based(phi[one], phi[two], mask[two], GAMMA)[alive]
    )
    both = potential_based(phi, phi[two], mask[two], GAMMA**n_step)[alive]
    np.testing.assert_allclose(steps, both, atol=1e-5)


def test_the_bounds_of_the_value_follow() -> None:
    assert widened((0.0, 1.0), Assembly(), 0.9) == (0.0, 1.0)
    low, high = widened((0.0, 1.0), Assembly(shaping=1.0, step_cost=0.01), 0.9)
    assert low == pytest.approx(-0.1) and high == 2.0


def test_an_experiment_widens_the_range_of_its_critics(tmp_path: Path) -> None:
    words = ["experiment=peg_insert_easy", f"run_dir={tmp_path}"]
    assert Experiment.compose(words).algorithm.value_range == (0.0, 1.0)  # type: ignore[attr-defined]
    shaped = Experiment.compose([*words, "reward.shaping=0.5", "reward.progress=somewhere"])
    assert shaped.algorithm.value_range == (0.0, 1.5)  # type: ignore[attr-defined]
    learned = Experiment.compose([*words, "reward.preference=somewhere", "algo.gamma=0.9"])
    assert learned.algorithm.value_range == pytest.approx((-10.0, 0.0))  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", [{"shaping": -1.0}, {"step_cost": -0.1}, {"smooth_steps": 0}])
def test_negative_weights_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        PredicateRewardConfig(**wrong)


def test_a_classifier_alone_cannot_shape() -> None:
    with pytest.raises(ValueError, match="shaping needs progress=FOLDER"):
        ClassifierRewardConfig(shaping=1.0)


def test_the_tasks_own_progress_shapes_where_there_is_no_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["experiment=reach", "reward.shaping=0.5", "--demos", "2", f"run_dir={run}"]
    assert main(["record", *words]) == 0
    experiment = Experiment.load(run)
    with Store(run / "store.sqlite") as store:
        assembly, scorers = experiment.reward.shaped_by(store, experiment.spec)
        rows, _ = store.rows_since(0, 100_000)
    assert assembly.progress_by == "predicate" and not scorers
    replay = Replay(experiment.spec, 1000, view=View(gamma=GAMMA, assembly=assembly))
    replay.ingest(rows)
    steps = [row for row in rows if isinstance(row, Step)]
    assert steps and replay.len_demo == len(steps)  # none waits for what nobody says
    first = replay.gather(np.array([e.steps[0] for e in replay.episodes.values()]))
    np.testing.assert_allclose(first.room, [[0.5, 0.0]] * 2)  # at the start all is left


def test_a_share_of_what_is_left_never_leaves_zero_to_one() -> None:
    rng, phi = np.random.default_rng(0), 0.0
    for change in rng.uniform(-1, 1, 1000):
        phi = after_change(phi, change)
        assert 0.0 <= phi <= 1.0
    assert after_change(0.5, 0.5) == 0.75 and after_change(0.5, -0.5) == 0.25
