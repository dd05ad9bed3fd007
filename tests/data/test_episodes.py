"""Which episodes are given away, what reviews do to them, and where gaps cut them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from robot_rl.data.episodes import (
    INCLUDE,
    choose,
    fingerprint,
    read,
    spec_of,
    unbroken,
)
from robot_rl.errors import ConfigError, StoreError
from robot_rl.store.dataset import open_store
from robot_rl.store.store import Store
from robot_rl.types import Ending, EpisodeId, Event, Frame, Label, Row, Step
from tests.support.data_samples import made_episode, made_spec, made_store

SPEC = made_spec()
Say = Callable[..., None]


@pytest.fixture
def store(tmp_path: Path):
    with made_store(tmp_path / "store.sqlite", SPEC, [6, 6, 6]) as opened:
        yield opened


@pytest.fixture
def say(store: Store) -> Say:
    def append(kind: str, value: float = 1.0, step: int | None = None, episode: int = 0) -> None:
        id_ = EpisodeId("made", "arm", episode)
        number = store.next_label(id_, "ada")
        store.append([Label(id_, number, step, kind, value, "person", "ada", number)])

    return append


def only(store: Store, rows: list[Row], drop: Callable[[Row], bool]) -> None:
    store.append([r for r in rows if not drop(r)])


def test_evaluation_aborted_excluded_and_running_episodes_are_left_out(
    store: Store, say: Say
) -> None:
    store.append(made_episode(SPEC, 3, 4, purpose="eval"))
    store.append(made_episode(SPEC, 4, 4, ending=Ending.ABORTED))
    store.append(made_episode(SPEC, 5, 4, ending=None))
    say("exclude", episode=1)
    assert [c.start.id.episode for c in choose(store)] == [0, 2]
    assert [c.start.id.episode for c in choose(store, ["excluded"])] == [0, 1, 2]
    assert [c.start.id.episode for c in choose(store, INCLUDE)] == [0, 1, 2, 3, 4]


def test_a_dead_actors_episode_is_aborted_and_its_last_step_says_so(store: Store) -> None:
    store.append(made_episode(SPEC, 3, 4, ending=None))
    store.recover("made", "arm")
    assert len(choose(store)) == 3
    last = choose(store, ["aborted"])[-1]
    assert read(store, last).steps[-1].ending is Ending.ABORTED


def test_trimmed_steps_are_left_out_and_the_cut_end_is_truncated(store: Store, say: Say) -> None:
    say("keep_from", step=2)
    say("keep_to", step=4)
    chosen = choose(store)[0]
    episode = read(store, chosen)
    assert chosen.steps == 3 and [s.step for s in episode.steps] == [2, 3, 4]
    assert [s.ending for s in episode.steps] == [None, None, Ending.TRUNCATED]
    assert sorted(episode.frames) == [2, 3, 4, 5]
    assert len(read(store, choose(store, ["trimmed"])[0]).steps) == 6


def test_what_people_said_replaces_rewards_and_success(store: Store, say: Say) -> None:
    say("reward", 0.25, step=1)
    say("success", 0.0)
    steps = read(store, choose(store)[0]).steps
    assert steps[1].reward == 0.25 and steps[-1].success is False
    assert steps[-1].reward == 0.0
    assert store.steps(steps[0].id)[1].reward != 0.25, "the store is never changed"


def test_success_said_later_pays_and_ends_as_in_the_replay(store: Store, say: Say) -> None:
    store.append(made_episode(SPEC, 3, 4, ending=Ending.TRUNCATED))
    say("success", 1.0, episode=3)
    last = read(store, choose(store)[3]).steps[-1]
    assert (last.success, last.reward, last.ending) == (True, 1.0, Ending.TERMINATED)
    say("keep_to", step=1, episode=3)  # the step that succeeded is cut off
    cut = read(store, choose(store)[3]).steps[-1]
    assert cut.reward != 1.0 and cut.ending is Ending.TRUNCATED


def test_a_neutral_episode_is_no_success_whatever_was_recorded(store: Store, say: Say) -> None:
    """Episode 1 of the samples is recorded as a success."""
    assert read(store, choose(store)[1]).steps[-1].success is True
    say("neutral", episode=1)
    before = [s.reward for s in store.steps(EpisodeId("made", "arm", 1))]
    steps = read(store, choose(store, ["excluded"])[1]).steps
    assert (steps[-1].success, steps[-1].reward) == (None, None)
    assert [s.reward for s in steps[:-1]] == before[:-1]


def test_words_about_steps_that_are_cut_off_are_left_out(store: Store, say: Say) -> None:
    id_ = EpisodeId("made", "arm", 0)
    store.append([Event(id_, n, step, "note", "", step) for n, step in enumerate((-1, 1, 3, 5))])
    for step in (1, 3, 5):
        say("shows", step=step)
    say("keep_from", step=2)
    say("keep_to", step=4)
    episode = read(store, choose(store)[0])
    assert [e.step for e in episode.events] == [3]
    assert [(x.kind, x.step) for x in episode.labels] == [
        ("shows", 3),
        ("keep_from", 2),
        ("keep_to", 4),
    ]
    whole = read(store, choose(store, ["trimmed"])[0])
    assert len(whole.events) == 4 and len(whole.labels) == 5


def test_steps_that_a_filter_leaves_out_are_counted(store: Store, say: Say) -> None:
    for step in (0, 3, 5):
        say("leave_out", step=step)
    assert choose(store)[0].not_learned_from == 3
    say("keep_from", step=2)
    assert choose(store)[0].not_learned_from == 2


def test_nothing_left_is_an_error_that_says_why(store: Store, say: Say) -> None:
    for episode in range(3):
        say("exclude", episode=episode)
    with pytest.raises(StoreError, match="3 excluded"):
        choose(store)
    with pytest.raises(ConfigError, match="did you mean 'aborted'"):
        choose(store, ["abortd"])


def test_trimming_everything_away_leaves_the_episode_out(store: Store, say: Say) -> None:
    say("keep_from", step=4)
    say("keep_to", step=2)
    assert [c.start.id.episode for c in choose(store)] == [1, 2]


def test_a_new_review_changes_the_fingerprint(store: Store, say: Say) -> None:
    before = fingerprint(choose(store))
    assert before == fingerprint(choose(store))
    say("reward", 1.0, step=0)
    assert before != fingerprint(choose(store))


def test_an_episode_is_cut_at_a_missing_step_and_a_missing_frame(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(tmp_path / "s.sqlite", spec=SPEC, reserve_bytes=0) as store:
        only(store, made_episode(SPEC, 0, 9), lambda r: isinstance(r, Step) and r.step == 3)
        only(store, made_episode(SPEC, 1, 9), lambda r: isinstance(r, Frame) and r.frame == 5)
        with caplog.at_level(logging.WARNING):
            cut = [unbroken(read(store, c)) for c in choose(store)]
    assert [[s.step for s in piece.steps] for piece in cut[0]] == [[0, 1, 2], [4, 5, 6, 7, 8]]
    assert [[s.step for s in piece.steps] for piece in cut[1]] == [[0, 1, 2, 3], [6, 7, 8]]
    assert [piece.steps[-1].ending for piece in cut[1]] == [Ending.TRUNCATED, Ending.TERMINATED]
    for piece in (*cut[0], *cut[1]):
        assert [f.frame for f in piece.frames[:-1]] == [s.frame for s in piece.steps]
        assert piece.frames[-1].frame == piece.steps[-1].next_frame
    assert "1 steps are missing" in caplog.text and "becomes 2 episodes" in caplog.text


def test_a_place_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such folder"):
        open_store(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="neither"):
        open_store(tmp_path)
    assert not list(tmp_path.iterdir())
    with (
        Store(tmp_path / "store.sqlite") as empty,
        pytest.raises(StoreError, match="its observations and actions"),
    ):
        spec_of(empty)
