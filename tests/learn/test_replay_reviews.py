"""What people say about an episode reaches the replay: excluded, trimmed, relabelled, undone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows, sample_spec
from robot_rl.learn.replay import Replay, View
from robot_rl.learn.replay.rewards import Rewards
from robot_rl.reward.assembly import Assembly
from robot_rl.store.labels import MODEL_REWARD
from robot_rl.types import Driver, Ending, EpisodeId, Label, Row, Step
from tests.support.corrected import corrected
from tests.support.replay_rows import SPEC, episode_id

P, C = Driver.POLICY, Driver.CORRECTION
DRIVERS = [P, P, C, C, P, P]


def said(*words: tuple[str, float, int | None]) -> list[Label]:
    """Labels of one person about episode 0: (kind, value, step)."""
    return [
        Label(episode_id(0), i, step, kind, value, "person", "ada", i * 10**9)
        for i, (kind, value, step) in enumerate(words)
    ]


def offered(replay: Replay) -> dict[int, tuple[float, float]]:
    """Step number of episode 0 -> (reward, mask), of everything that can be drawn."""
    if not replay.can_sample:
        return {}
    batch = replay.sample(3000, 0.5, np.random.default_rng(0))
    rows = zip(batch.action, batch.reward, batch.mask, strict=True)
    return {int(a[1]): (float(r), float(m)) for a, r, m in rows if a[0] == 0}


def replay_of(rows: list[Row]) -> Replay:
    replay = Replay(SPEC, 100)
    replay.ingest(rows)
    return replay


RECORDED = dict.fromkeys(range(5), (0.0, 1.0)) | {5: (1.0, 0.0)}


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ((), RECORDED),
        ((("exclude", 1, None),), {}),
        ((("exclude", 1, None), ("exclude", 0, None)), RECORDED),
        ((("exclude", 1, None), ("undo", 0, None)), RECORDED),
        ((("keep_from", 0, 2), ("keep_to", 0, 3)), {2: (0.0, 1.0), 3: (0.0, 1.0)}),
        ((("success", 0, None),), RECORDED | {5: (0.0, 0.0)}),
        ((("success", 0, None), ("undo", 0, None)), RECORDED),
        ((("neutral", 1, None),), {}),
        ((("success", 1, None), ("neutral", 1, None)), {}),
        ((("neutral", 1, None), ("undo", 0, None)), RECORDED),
        ((("neutral", 1, None), ("success", 0, None)), RECORDED | {5: (0.0, 0.0)}),
        ((("exclude", 1, None), ("neutral", 1, None), ("success", 1, None)), {}),
        ((("reward", 0.5, 1),), RECORDED | {1: (0.5, 1.0)}),
        ((("classifier", 0.9, 1),), RECORDED),
    ],
)
def test_the_newest_word_stands_whenever_it_arrives(
    words: tuple[tuple[str, float, int | None], ...], want: dict[int, tuple[float, float]]
) -> None:
    rows = corrected(0, DRIVERS)
    for late in range(1, len(rows) + 1):  # a label may be here before the steps it speaks about
        replay = replay_of([*rows[:late], *said(*words), *rows[late:]])
        assert offered(replay) == want, late


def test_a_time_limit_that_a_person_calls_success_ends_there_and_can_be_taken_back() -> None:
    from dataclasses import replace

    from robot_rl.types import Ending, Step

    rows = [
        replace(r, ending=Ending.TRUNCATED, success=False, reward=0.0)
        if isinstance(r, Step) and r.ending
        else r
        for r in corrected(0, DRIVERS, success=False)
    ]
    replay = replay_of(rows)
    assert offered(replay)[5] == (0.0, 1.0)
    word, back = said(("success", 1, None), ("undo", 0, None))
    replay.ingest([word])
    assert offered(replay)[5] == (1.0, 0.0)
    replay.ingest([back])
    assert offered(replay)[5] == (0.0, 1.0)


def test_order_of_arrival_does_not_matter() -> None:
    words = said(("exclude", 1, None), ("keep_to", 0, 4), ("undo", 0, None), ("success", 0, None))
    outcomes = []
    for order in itertools.permutations(words):
        replay = replay_of([*corrected(0, DRIVERS), *order])
        outcomes.append((offered(replay), replay.len_online, replay.len_demo))
    assert all(o == outcomes[0] for o in outcomes)
    assert outcomes[0][1:] == (5, 2)


def test_views_shrink_and_grow_with_the_words_and_other_episodes_stay() -> None:
    replay = replay_of([*corrected(0, DRIVERS), *corrected(1, DRIVERS)])
    assert (replay.len_online, replay.len_demo) == (12, 4)
    out, back = said(("exclude", 1, None), ("undo", 0, None))
    replay.ingest([out])
    assert (replay.len_online, replay.len_demo) == (6, 2)
    replay.ingest([back])
    assert (replay.len_online, replay.len_demo) == (12, 4)


def test_a_model_speaks_where_nothing_else_is_known_and_a_person_overrules_it() -> None:
    spec, id_ = sample_spec(), EpisodeId("run", "actor", 0)

    def unlabelled(row: Row) -> Row:
        if not isinstance(row, Step):
            return row
        ending = Ending.TRUNCATED if row.ending else None
        return replace(row, reward=None, success=None, ending=ending)

    rows = [unlabelled(row) for row in episode_rows(spec, id_, 5)]
    replay = Replay(spec, 100)
    replay.ingest(rows)
    assert replay.len_online == 0

    def said(kind: str, value: float, source: str, label: int) -> list[float]:
        replay.ingest([Label(id_, label, None, kind, value, source, source, label)])
        (episode,) = replay.episodes.values()
        slots = [episode.steps[n] for n in range(5)]
        assert replay.len_online == 5
        return [*replay.steps.reward[slots].tolist(), float(replay.steps.mask[slots[-1]])]

    assert said("vlm_success", 1.0, "vlm", 1) == [0, 0, 0, 0, 1, 0]  # over: no bootstrap
    assert said("success", 0.0, "person", 2) == [0, 0, 0, 0, 0, 1]
    assert said("vlm_success", 1.0, "vlm", 3) == [0, 0, 0, 0, 0, 1]
    replay.ingest([Label(id_, 4, None, "neutral", 1.0, "person", "person", 4)])
    assert replay.len_online == 0


def test_a_model_changes_nothing_that_was_recorded() -> None:
    spec, id_ = sample_spec(), EpisodeId("run", "actor", 0)
    replay = Replay(spec, 100)
    replay.ingest(episode_rows(spec, id_, 5))
    before = replay.steps.reward.copy(), replay.steps.mask.copy()
    replay.ingest([Label(id_, 1, None, "vlm_success", 1.0, "vlm", "vlm", 1)])
    np.testing.assert_array_equal(replay.steps.reward, before[0])
    np.testing.assert_array_equal(replay.steps.mask, before[1])


def test_a_word_at_the_end_labels_the_steps_that_were_not() -> None:
    spec, id_ = sample_spec(), EpisodeId("run", "actor", 0)

    def pressed(row: Row) -> Row:  # a person's key ends the episode; nothing else gives rewards
        if not isinstance(row, Step):
            return row
        return replace(row, reward=1.0 if row.ending else None, success=row.ending and True)

    replay = Replay(spec, 100)
    replay.ingest([pressed(row) for row in episode_rows(spec, id_, 5)])
    (episode,) = replay.episodes.values()
    assert replay.len_online == 5
    assert replay.steps.reward[[episode.steps[n] for n in range(5)]].tolist() == [0, 0, 0, 0, 1]


def worth(number: int, value: float, frames: int) -> list[Label]:
    """A model's rewards of the frames of an episode."""
    id_ = episode_id(number)
    return [Label(id_, f, f, MODEL_REWARD, value, "m", "m", 1) for f in range(frames)]


@pytest.mark.parametrize("success", [0.0, 1.0])
def test_what_a_person_says_of_success_pays_nothing_where_a_model_gives_the_rewards(
    success: float,
) -> None:
    replay = Replay(SPEC, 100, view=View(gamma=0.9, assembly=Assembly(rewards_by="m")))
    replay.ingest([*corrected(0, DRIVERS), *said(("success", success, None))])
    assert not replay.can_sample  # the model has not spoken
    replay.ingest(worth(0, -0.5, 7))
    last = -0.5 if success else -0.5 - 0.9 / 0.1  # after a failure the worst reward goes on
    assert offered(replay) == dict.fromkeys(range(5), (-0.5, 1.0)) | {5: (last, 0.0)}


def test_a_success_that_a_person_denies_is_no_demonstration_any_more() -> None:
    replay = Replay(SPEC, 100, view=View(own_successes=True))
    replay.ingest([*corrected(0, [P, P, P]), *corrected(1, [P, P])])
    assert replay.len_demo == 5
    denied, back = said(("success", 0, None), ("undo", 0, None))
    replay.ingest([denied])
    assert (replay.len_online, replay.len_demo) == (5, 2)
    assert set(replay.sample(200, 1.0, np.random.default_rng(0)).action[:, 0]) == {1}
    replay.ingest([back])
    assert replay.len_demo == 5


def test_a_models_rewards_are_added_up_once_whatever_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View(gamma=0.9, assembly=Assembly(rewards_by="m"))
    one, other = Replay(SPEC, 100, view=view), Replay(SPEC, 100, view=view)
    for replay in (one, other):
        replay.ingest([*corrected(0, DRIVERS), *said(("success", 0, None))])
    calls: list[str] = []

    def counted(name: str) -> None:
        plain = getattr(Rewards, name)
        monkeypatch.setattr(Rewards, name, lambda *a: calls.append(name) or plain(*a))

    monkeypatch.setattr(
        "robot_rl.learn.replay.rewards.review", lambda _: pytest.fail("folded again")
    )
    counted("assign")
    counted("add_up")
    labels = worth(0, -0.5, 7)
    one.ingest(labels)
    assert (calls.count("assign"), calls.count("add_up")) == (6, 1)
    for label in labels:
        other.ingest([label])
    draws = [r.sample(300, 0.0, np.random.default_rng(0)) for r in (one, other)]
    after = -1.0 / 0.1  # a failure: the worst reward goes on
    want = {n: -0.5 * (1 - 0.9 ** (6 - n)) / 0.1 + 0.9 ** (6 - n) * after for n in range(6)}
    for batch in draws:
        got = dict(zip(batch.action[:, 1].tolist(), batch.return_to_go.tolist(), strict=True))
        assert got == pytest.approx(want)
