"""A failure never pays better than going on until the time limit, whatever pays the rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.learn.algos import RlifConfig
from robot_rl.learn.replay import Batch, Replay, View
from robot_rl.reward.assembly import Assembly, widened
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.labels import MODEL_REWARD, PROGRESS
from robot_rl.types import Ending, Label, Row, Step
from tests.support.replay_rows import SPEC, episode, episode_id

LENGTH = 4
unit = st.floats(0.0, 1.0, width=32)
SOURCES = {  # every way to make a reward of what was recorded
    "recorded": Assembly(),
    "cost": Assembly(step_cost=0.05),
    "preferences": Assembly(rewards_by="m"),
    "progress": Assembly(shaping=0.5, progress_by="m"),
    "all": Assembly(shaping=0.5, progress_by="m", step_cost=0.05, rewards_by="m"),
}


def ended(ending: Ending, model: Sequence[float], progress: Sequence[float]) -> list[Row]:
    """An episode that ends in one way or another, with what models say of its frames."""
    rows = [
        replace(r, success=False if r.ending else None) if isinstance(r, Step) else r
        for r in episode(0, LENGTH, ending=ending)
    ]
    for kind, said in ((MODEL_REWARD, [-x for x in model]), (PROGRESS, progress)):
        rows += [Label(episode_id(0), 0, f, kind, x, "m", "m", 1) for f, x in enumerate(said)]
    return rows


def drawn(rows: list[Row], view: View) -> Batch:
    replay = Replay(SPEC, 100, view=view)
    replay.ingest(rows)
    episode = replay.episodes[episode_id(0)]
    return replay.gather(np.array([episode.steps[n] for n in range(LENGTH)]))


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=20)
@given(
    model=st.lists(unit, min_size=LENGTH + 1, max_size=LENGTH + 1),
    progress=st.lists(unit, min_size=LENGTH + 1, max_size=LENGTH + 1),
    n_step=st.integers(1, 3),
    gamma=st.sampled_from([0.9, 0.97]),
)
def test_a_failure_never_pays_better_than_a_time_limit(
    name: str, model: list[float], progress: list[float], n_step: int, gamma: float
) -> None:
    source = SOURCES[name]
    view = View(n_step=n_step, gamma=gamma, assembly=source)
    failed, cut = (
        drawn(ended(e, model, progress), view) for e in (Ending.TERMINATED, Ending.TRUNCATED)
    )
    # the value after a time limit is not known: whatever it is, it lies between these bounds
    given_low = -1.0 / (1.0 - gamma) if source.rewards_by else 0.0
    low, _ = widened((given_low, 0.0), source, gamma)
    shift = source.shaping * (1.0 - np.array(progress[n_step:] + [progress[-1]] * n_step))
    after = low + shift[:LENGTH]  # the lowest value of the state that a transition leads to
    discount = gamma**cut.steps
    paid = failed.reward + failed.mask * discount * after
    lowest = cut.reward + discount * after
    assert (paid <= lowest + 1e-4).all()
    room = np.zeros(LENGTH) if failed.room is None else failed.room[:, 0]
    assert (paid >= low + room - 1e-4).all()  # and it is within the bounds of the critics
    assert (failed.return_to_go <= cut.return_to_go + 1e-4).all()


def test_where_nothing_costs_a_failure_is_worth_nothing() -> None:
    batch = drawn(ended(Ending.TERMINATED, [0.0] * 5, [0.0] * 5), View(gamma=0.9))
    assert (batch.reward == 0.0).all() and batch.mask[-1] == 0.0


def test_with_rewards_of_a_model_a_failure_is_the_worst_for_ever() -> None:
    view = View(gamma=0.95, assembly=Assembly(rewards_by="m"))
    model = [0.0, 0.7, 0.7, 0.7, 0.7]
    failed = drawn(ended(Ending.TERMINATED, model, model), view)
    assert failed.reward[-1] == pytest.approx(-0.7 - 0.95 / 0.05)  # going on: at worst -0.7 - 19
    won = [replace(r, success=True) if isinstance(r, Step) and r.ending else r
           for r in ended(Ending.TERMINATED, model, model)]  # fmt: skip
    assert drawn(won, view).reward[-1] == pytest.approx(-0.7)


@pytest.mark.parametrize("n_step", [1, 3])
def test_rlif_does_not_escape_takeovers_by_a_failure(n_step: int) -> None:
    config = RlifConfig(hidden=(8,), batch_size=8, gamma=0.9, n_step=n_step, takeover_penalty=2.0)
    space = Spec("fake", 10.0, {"state": TensorSpec((2,), "float32")}, ActionSpec(0.01, 0.1, True))
    algo, low = config.make(space, 0), -2.0 / 0.1
    failed, cut, won = (
        algo.transitions(drawn(rows, algo.view))
        for rows in (
            ended(Ending.TERMINATED, [], []),
            ended(Ending.TRUNCATED, [], []),
            [
                replace(r, success=True) if isinstance(r, Step) and r.ending else r
                for r in ended(Ending.TERMINATED, [], [])
            ],
        )
    )
    taken_over_for_ever = cut.reward + cut.discount * low
    assert failed.mask.tolist()[-1] == 0.0
    paid = failed.reward + failed.mask * failed.discount * low
    assert bool((paid <= taken_over_for_ever + 1e-4).all())
    assert float(failed.reward[-1]) == pytest.approx(0.9 * low)
    assert won.mask.tolist() == [1.0] * LENGTH and not won.reward.any()
