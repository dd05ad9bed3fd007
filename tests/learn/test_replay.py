"""Replay: every sampled transition is one that really happened, whatever the stream looked like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robot_rl.errors import SpecError
from robot_rl.learn.replay import Replay
from robot_rl.learn.replay.storage import Gone
from robot_rl.store.store import EPISODE_ABORTED
from robot_rl.types import (
    Driver,
    Ending,
    EpisodeId,
    Event,
    Label,
    Row,
    Step,
)
from tests.support.replay_rows import SPEC, episode, episode_id, frame, gappy_stream, start, step


def replay_of(*rows: Row, capacity: int = 1000) -> Replay:
    replay = Replay(SPEC, capacity)
    replay.ingest(rows)
    return replay


@pytest.mark.parametrize("seed", range(20))
def test_samples_of_a_gappy_stream_are_true_transitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = gappy_stream(rng)
    steps = {(r.id.episode, r.step): r for r in rows if isinstance(r, Step)}
    replay = replay_of(*rows, capacity=60 if seed % 2 else 1000)  # also with eviction
    if not replay.len_online + replay.len_demo:
        return
    batch = replay.sample(512, 0.5, rng)
    for i in range(512):
        number, index = (int(v) for v in batch.action[i, :2])
        source = steps[number, index]
        assert tuple(batch.observation["state"][i]) == (number, index)
        assert tuple(batch.next_observation["state"][i]) == (number, index + 1)
        assert (batch.observation["image/wrist"][i] == (100 * number + index) % 256).all()
        assert (batch.next_observation["image/wrist"][i] == (100 * number + index + 1) % 256).all()
        assert batch.reward[i] == np.float32(source.reward)
        assert batch.mask[i] == (source.ending is not Ending.TERMINATED)
        assert source.driver is not Driver.RESET
        assert source.ending not in (Ending.ABORTED, Ending.STALE)


def test_images_stay_uint8_and_are_stored_once() -> None:
    replay = replay_of(*episode(0))
    batch = replay.sample(4, 0.0, np.random.default_rng(0))
    assert batch.observation["image/wrist"].dtype == np.uint8
    assert replay.bytes_per_step < 2 * 12 + 8 + 28 + 40  # one image, one state, action, scalars


def test_truncation_bootstraps_from_the_true_last_frame_and_termination_does_not() -> None:
    for ending, mask in ((Ending.TRUNCATED, 1.0), (Ending.TERMINATED, 0.0)):
        batch = replay_of(*episode(3, length=1, ending=ending)).sample(
            1, 0.0, np.random.default_rng(0)
        )
        assert batch.mask[0] == mask
        assert tuple(batch.next_observation["state"][0]) == (3, 1)


def test_aborted_episode_disappears_and_stale_step_alone() -> None:
    assert replay_of(*episode(0, ending=Ending.ABORTED)).len_online == 0
    assert replay_of(*episode(0, length=5, ending=Ending.STALE)).len_online == 4


def test_an_episode_that_was_cut_short_disappears_once_somebody_says_so() -> None:
    def event(number: int, name: str) -> Event:
        return Event(episode_id(number), 0, 2, name, "", 0)

    torn, whole = episode(0)[:-4], episode(1)
    replay = replay_of(*torn, *whole, event(0, "takeover"))
    assert replay.len_online == 3 + 5
    replay.ingest([event(0, EPISODE_ABORTED), event(1, EPISODE_ABORTED)])  # 1 has ended: as export
    assert (replay.len_online, replay.env_steps, replay.refused_rows) == (5, 8, 0)
    assert replay.ingest(torn) == 0 and replay.len_online == 5


def test_evaluation_reset_and_foreign_spec_never_appear() -> None:
    assert replay_of(*episode(0, purpose="eval")).len_online == 0
    assert replay_of(*episode(0, driver=Driver.RESET)).len_online == 0
    foreign = [start(0, spec_hash="another"), *episode(0)[1:]]
    assert replay_of(*foreign).len_online == 0


def test_rows_delivered_twice_count_once() -> None:
    replay = Replay(SPEC, 100)
    rows = episode(0) + episode(1, purpose="demo", driver=Driver.DEMO)
    assert replay.ingest(rows) == 5
    assert replay.ingest(rows) == 0
    assert (replay.len_online, replay.len_demo, replay.env_steps) == (5, 5, 5)


def test_a_corrected_step_is_in_both_views_and_a_demo_in_one() -> None:
    rows = [start(0), frame(0, 0), step(0, 0), frame(0, 1)]
    rows += [step(0, 1, Driver.CORRECTION), frame(0, 2), step(0, 2, Driver.RECOVERY), frame(0, 3)]
    replay = replay_of(*rows)
    assert (replay.len_online, replay.len_demo) == (3, 2)
    replay.ingest(episode(1, length=4, purpose="demo", driver=Driver.DEMO))
    assert (replay.len_online, replay.len_demo) == (3, 6)


def test_unlabelled_step_waits_for_its_label() -> None:
    label = Label(episode_id(0), 0, 0, "reward", 0.75, "person", "anna", 0)
    rows = [start(0), frame(0, 0), step(0, 0, reward=None), frame(0, 1)]
    for order in ([*rows, label], [rows[0], label, *rows[1:]]):
        replay = replay_of(*order)
        assert replay.sample(1, 0.0, np.random.default_rng(0)).reward[0] == 0.75
    assert replay_of(*rows).len_online == 0


def test_step_is_usable_only_when_both_frames_are_here() -> None:
    replay = replay_of(start(0), step(0, 0), frame(0, 1))
    assert replay.len_online == 0
    replay.ingest([frame(0, 0)])
    assert replay.len_online == 1


def test_rows_alternate_between_the_views() -> None:
    replay = replay_of(*episode(0), *episode(1, purpose="demo", driver=Driver.DEMO))
    batch = replay.sample(64, 0.5, np.random.default_rng(0))
    assert batch.human.sum() == 32
    for part in np.split(batch.human, 8):
        assert part.sum() == 4
    assert replay.sample(64, 0.25, np.random.default_rng(0)).human.sum() == 16
    assert replay.sample(64, 0.0, np.random.default_rng(0)).human.sum() == 0


def test_one_empty_view_leaves_all_rows_to_the_other() -> None:
    demos = replay_of(*episode(0, purpose="demo", driver=Driver.DEMO))
    assert demos.sample(8, 0.5, np.random.default_rng(0)).human.all()
    assert not replay_of(*episode(0)).sample(8, 0.5, np.random.default_rng(0)).human.any()


def test_empty_replay_says_what_is_missing() -> None:
    with pytest.raises(SpecError, match="nothing to learn from"):
        Replay(SPEC, 10).sample(1, 0.5, np.random.default_rng(0))


def test_full_replay_forgets_the_oldest_practice_and_keeps_demonstrations() -> None:
    replay = replay_of(*episode(0, purpose="demo", driver=Driver.DEMO), capacity=20)
    for number in range(1, 30):
        replay.ingest(episode(number))
    batch = replay.sample(256, 0.5, np.random.default_rng(0))
    assert replay.len_demo == 5
    assert set(batch.action[~batch.human][:, 0]) == {27, 28, 29}
    assert set(batch.action[batch.human][:, 0]) == {0}
    assert replay.ingest(episode(1)) == 0  # a forgotten episode does not come back


def test_practice_goes_on_although_demonstrations_and_data_fill_the_replay() -> None:
    replay = Replay(SPEC, 20)
    for number, purpose in enumerate(["demo", "data", "data", "demo"]):
        replay.ingest(episode(number, purpose=purpose, driver=Driver.DEMO))
    for number in (4, 5):
        assert replay.ingest(episode(number)) == 5
        assert replay.len_online == 5 and replay.len_demo == 15  # one of them made room, no more
        batch = replay.sample(256, 0.5, np.random.default_rng(0))
        assert set(batch.action[~batch.human][:, 0]) == {number}
        assert set(batch.action[batch.human][:, 0]) == {1, 2, 3}


def test_what_each_of_two_actors_is_at_stays_until_nothing_else_is_left() -> None:
    def of(actor: str, row: Row) -> Row:
        return replace(row, id=replace(row.id, actor=actor))

    replay = replay_of(*episode(0, 10, "demo", Driver.DEMO), capacity=10)
    left = [of("left", row) for row in episode(1, 4)]
    right = [of("right", row) for row in episode(2, 4)]
    for pair in zip(left, right, strict=True):  # at the same time
        replay.ingest(pair)
    assert (replay.len_online, replay.len_demo) == (8, 0)


def test_gripper_reversals_are_marked() -> None:
    rows: list[Row] = [start(0), frame(0, 0)]
    for index, command in enumerate([0.0, -1.0, -1.0, 0.3, 1.0, 0.0, 1.0, -1.0]):
        rows += [step(0, index, gripper=command), frame(0, index + 1)]
    batch = replay_of(*rows).sample(256, 0.0, np.random.default_rng(0))
    assert set(batch.action[batch.toggle > 0][:, 1]) == {4, 7}


def test_non_finite_rows_are_refused() -> None:
    bad = frame(0, 1)
    bad.observation["state"][0] = np.nan
    replay = replay_of(start(0), frame(0, 0), step(0, 0), bad)
    assert (replay.len_online, replay.refused_rows) == (0, 1)
    nan_reward = replace(step(1, 0), reward=float("nan"))
    assert replay_of(start(1), frame(1, 0), nan_reward, frame(1, 1)).len_online == 0


@pytest.mark.parametrize("seed", range(10))
def test_gone_episodes_are_those_that_were_added(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gone, expected = Gone(), set[EpisodeId]()
    for _ in range(200):
        id_ = EpisodeId("run", f"actor-{rng.integers(2)}", int(rng.integers(150)))
        gone.add(id_)
        expected.add(id_)
    every = [
        EpisodeId(r, f"actor-{a}", n) for r in ("run", "b") for a in range(3) for n in range(152)
    ]
    assert {id_ for id_ in every if id_ in gone} == expected
    gaps = {
        id_ for id_ in expected if EpisodeId(id_.run, id_.actor, id_.episode - 1) not in expected
    }
    assert len(gone) == len(gaps)  # neighbours are one range


def test_forgotten_episodes_take_no_memory_each() -> None:
    replay = Replay(SPEC, 20)
    for number in range(200):
        replay.ingest(episode(number))
    assert len(replay._gone) == 1
