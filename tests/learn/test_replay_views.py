"""Reads of several steps, views and labels of the replay: nothing that did not happen in a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robot_rl.control.arbiter import Arbiter, ArbiterConfig
from robot_rl.errors import SpecError
from robot_rl.learn.frames import in_memory, on_device, on_disk
from robot_rl.learn.replay import Replay, View
from robot_rl.types import Driver, Ending, Label, Row, Step
from tests.support.corrected import corrected, with_segments
from tests.support.fakes import TASK, FakeOperator, make_loop
from tests.support.fakes import start as header
from tests.support.replay_rows import SPEC, episode, episode_id, gappy_stream

GAMMA = 0.9


def in_order(rows: list[Row]) -> list[Row]:
    """Each row once, as the store commits them."""
    return list({(type(r), getattr(r, "id", 0), getattr(r, "step", getattr(r, "frame", 0))): r
                 for r in rows}.values())  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_read_of_several_steps_never_leaves_its_segment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = in_order(with_segments(gappy_stream(rng)))
    steps = {(r.id.episode, r.step): r for r in rows if isinstance(r, Step)}
    replay = Replay(SPEC, 60 if seed % 2 else 1000, view=View(n_step=4, gamma=GAMMA))
    replay.ingest(rows)
    if not replay.len_online + replay.len_demo:
        return
    batch = replay.sample(512, 0.5, rng)
    for i in range(512):
        number, index = (int(v) for v in batch.action[i, :2])
        span = int(batch.steps[i])
        sources = [steps[number, index + k] for k in range(span)]
        assert 1 <= span <= 4
        assert len({s.segment for s in sources}) == 1 and len({s.driver for s in sources}) == 1
        assert all(s.ending is None for s in sources[:-1])  # nothing after an end
        want = sum(GAMMA**k * (s.reward or 0.0) for k, s in enumerate(sources))
        assert batch.reward[i] == pytest.approx(want, abs=1e-5)
        assert tuple(batch.next_observation["state"][i]) == (number, index + span)
        assert (
            batch.next_observation["image/wrist"][i] == (100 * number + index + span) % 256
        ).all()
        assert batch.mask[i] == (sources[-1].ending is not Ending.TERMINATED)


def test_every_reversal_of_the_gripper_in_a_transition_counts() -> None:
    rows = [replace(r, action=np.array([*r.action[:6], (-1.0) ** r.step], np.float32))
            if isinstance(r, Step) else r for r in episode(0, length=4)]  # fmt: skip
    replay = Replay(SPEC, 100, view=View(n_step=3, gamma=GAMMA))
    replay.ingest(rows)
    held = replay.episodes[episode_id(0)]
    batch = replay.gather(np.array([held.steps[n] for n in range(4)]))
    once, twice = 1.0, 1.0 + GAMMA
    assert batch.toggle.tolist() == pytest.approx([GAMMA * twice, twice + GAMMA**2, twice, once])


def test_a_read_is_as_long_as_the_episode_allows() -> None:
    replay = Replay(SPEC, 100)
    replay.ingest(episode(0, length=7))
    first = np.array([replay.episodes[episode_id(0)].steps[0]])
    assert replay.steps.action[replay.read(first, 7)[0], 1].tolist() == [*range(7)]
    assert (replay.read(first, 9)[0, 7:] == -1).all()


def test_the_step_before_a_takeover_is_marked_and_no_other() -> None:
    p, c = Driver.POLICY, Driver.CORRECTION
    replay = Replay(SPEC, 100)
    replay.ingest(corrected(0, [p, p, c, c, p, c]) + corrected(1, [c, p, p]))
    batch = replay.sample(2000, 0.0, np.random.default_rng(0))
    marked = {tuple(a[:2].tolist()) for a in batch.action[batch.before_takeover > 0]}
    assert marked == {(0.0, 1.0), (0.0, 4.0)}


def test_a_takeover_within_n_steps_is_discounted_like_a_reward() -> None:
    p, c = Driver.POLICY, Driver.CORRECTION
    replay = Replay(SPEC, 100, view=View(n_step=3, gamma=GAMMA))
    replay.ingest(corrected(0, [p, p, p, p, c, c, p]))
    batch = replay.sample(2000, 0.0, np.random.default_rng(0))
    rows = zip(batch.action[:, 1], batch.before_takeover, strict=True)
    expected = {0: 0.0, 1: GAMMA**2, 2: GAMMA, 3: 1.0, 4: 0.0, 5: 0.0, 6: 0.0}
    assert {(int(i), round(float(v), 6)) for i, v in rows} == {
        (i, round(v, 6)) for i, v in expected.items()
    }


def charged(held: str, **config: float) -> list[int]:
    """Steps that count as the last before a takeover, of an episode that an arbiter ran.

    held: "x" for each tick in which the person holds the device, "." for each of the others.
    """
    own = np.full(TASK.spec.action.size, -0.1, np.float32)
    operator = FakeOperator(lambda tick: held[tick : tick + 1] == "x", -own)
    loop, _, rows = make_loop(action=own, operator=operator)
    loop.arbiter = Arbiter(ArbiterConfig(**config), TASK.spec.action.size)  # type: ignore[arg-type]
    loop.run_episode(header())
    replay = Replay(TASK.spec, 1000)
    replay.ingest(rows)
    steps = replay.episodes[header().id].steps
    return [n for n, slot in steps.items() if replay.steps.before_takeover[slot]]


@pytest.mark.parametrize(
    ("held", "config", "last"),
    [
        ("...xxx...xx", {}, [2, 8]),
        ("...xxxx....xx", {"debounce_samples": 2}, [2, 10]),
        ("...xxxx....xx", {"debounce_samples": 3}, [2]),  # held too briefly the second time
        (".x.xxxx", {"debounce_samples": 2}, [2]),  # a bump, then a takeover
        ("...xx..xx", {"hold_s": 0.5}, [2]),  # gripped again: the policy did nothing since
        ("...xx..xx", {"hold_s": 0.05}, [2, 6]),  # it drove in one tick
        ("...xx.xxx..xxx", {"hold_s": 0.5, "debounce_samples": 2}, [2]),
        ("xxx...", {"debounce_samples": 2}, []),
    ],
)
def test_a_takeover_is_charged_to_what_the_policy_did_last(
    held: str, config: dict[str, float], last: list[int]
) -> None:
    """Not to the robot's standing still between two drivers, which the arbiter does."""
    assert charged(held, **config) == last


def test_returns_to_go_are_discounted_and_follow_later_labels() -> None:
    replay = Replay(SPEC, 100, view=View(gamma=GAMMA))
    replay.ingest(corrected(0, [Driver.POLICY] * 3))

    def returns() -> dict[float, float]:
        batch = replay.sample(200, 0.0, np.random.default_rng(0))
        return dict(zip(batch.action[:, 1].tolist(), batch.return_to_go.tolist(), strict=True))

    assert returns() == pytest.approx({0.0: 0.81, 1.0: 0.9, 2.0: 1.0})
    replay.ingest([Label(episode_id(0), 0, 1, "reward", 0.5, "person", "me", 0)])
    assert returns() == pytest.approx({0.0: 0.9 * 1.4, 1.0: 1.4, 2.0: 1.0})


def test_own_successes_join_the_demonstrations_when_nobody_helped() -> None:
    p, c = Driver.POLICY, Driver.CORRECTION
    rows = corrected(0, [p, p]) + corrected(1, [p, p], success=False) + corrected(2, [p, c])
    replay = Replay(SPEC, 100, view=View(own_successes=True))
    replay.ingest(rows)
    batch = replay.sample(500, 1.0, np.random.default_rng(0))
    assert {tuple(a[:2].tolist()) for a in batch.action} == {(0.0, 0.0), (0.0, 1.0), (2.0, 1.0)}
    plain = Replay(SPEC, 100)
    plain.ingest(rows)
    assert plain.len_demo == 1


def test_recent_steps_get_their_share() -> None:
    replay = Replay(SPEC, 1000, view=View(recent_fraction=0.5, recent_steps=10))
    for number in range(20):
        replay.ingest(episode(number, length=10))
    batch = replay.sample(4000, 0.0, np.random.default_rng(0))
    newest = float((batch.action[:, 0] == 19).mean())
    assert newest == pytest.approx(0.5 + 0.5 / 20, abs=0.03)


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("demo_fraction", [0.0, 0.5])
def test_every_part_of_a_batch_has_its_share_of_recent_steps(
    parts: int, demo_fraction: float
) -> None:
    """The policy learns from the last part alone."""
    replay = Replay(SPEC, 2000, view=View(recent_fraction=0.5, recent_steps=10))
    replay.ingest(episode(100, purpose="demo", driver=Driver.DEMO))
    for number in range(100):
        replay.ingest(episode(number, length=10))
    batch = replay.sample(4000, demo_fraction, np.random.default_rng(0))
    for rows in np.array_split(np.arange(4000), parts):
        online = batch.action[rows][~batch.human[rows], 0]
        assert len(online) == pytest.approx(len(rows) * (1.0 - demo_fraction), abs=1)
        assert float((online == 99).mean()) == pytest.approx(0.5 + 0.5 / 100, abs=0.03)


def test_frames_elsewhere_read_like_frames_in_memory(tmp_path: Path) -> None:
    rows = episode(0) + episode(1, purpose="demo", driver=Driver.DEMO)
    batches = []
    for allocate in (in_memory, on_disk(tmp_path / "replay"), on_device("cpu")):
        replay = Replay(SPEC, 100, allocate=allocate)
        replay.ingest(rows)
        batches.append(replay.sample(64, 0.5, np.random.default_rng(0)))
    assert (tmp_path / "replay" / "image-wrist.dat").is_file()
    for key, value in batches[0].observation.items():
        for other in batches[1:]:
            assert value.dtype == np.asarray(other.observation[key]).dtype
            assert (value == np.asarray(other.observation[key])).all()


def test_a_cloner_never_clones_practice_while_there_are_no_demonstrations() -> None:
    replay = Replay(SPEC, 100, view=View(demo_only=True))
    replay.ingest(episode(0))
    assert not replay.can_sample
    with pytest.raises(SpecError, match="nothing to learn from") as caught:
        replay.sample(8, 1.0, np.random.default_rng(0))
    assert "did not fail" in str(caught.value)
    replay.ingest(episode(1, purpose="demo", driver=Driver.DEMO))
    assert replay.can_sample and (replay.sample(8, 1.0, np.random.default_rng(0)).human).all()


@pytest.mark.parametrize("purpose", ["demo", "data"])
def test_a_cloner_leaves_demonstrations_out_that_failed_until_somebody_says_otherwise(
    purpose: str,
) -> None:
    def tried(number: int, success: bool | None) -> list[Row]:
        rows = episode(number, purpose=purpose, driver=Driver.DEMO)
        last = max(i for i, row in enumerate(rows) if isinstance(row, Step))
        rows[last] = replace(rows[last], success=success)
        return rows

    rows = [*tried(0, False), *tried(1, True), *tried(2, None)]
    cloner, other = Replay(SPEC, 100, view=View(demo_only=True)), Replay(SPEC, 100)
    for replay in (cloner, other):
        replay.ingest(rows)
    assert (cloner.len_demo, other.len_demo) == (10, 15)  # nobody knows how the third ended
    drawn = cloner.sample(64, 1.0, np.random.default_rng(0)).action[:, 0]
    assert set(drawn) == {1.0, 2.0}
    cloner.ingest([Label(episode_id(0), 0, None, "success", 1.0, "person", "anna", 1)])
    assert cloner.len_demo == 15


def test_a_cloner_keeps_corrections_of_a_practice_episode_that_failed() -> None:
    rows = episode(0, driver=Driver.CORRECTION, ending=Ending.TERMINATED)
    last = max(i for i, row in enumerate(rows) if isinstance(row, Step))
    rows[last] = replace(rows[last], success=False)
    replay = Replay(SPEC, 100, view=View(demo_only=True))
    replay.ingest(rows)
    assert replay.len_demo == 5


def test_a_reward_that_is_not_a_number_is_left_out_and_counted() -> None:
    replay = Replay(SPEC, 100)
    rows = [r if not isinstance(r, Step) or r.step != 2 else replace(r, reward=float("nan"))
            for r in episode(0)]  # fmt: skip
    replay.ingest(rows)
    assert (replay.len_online, replay.refused_rows) == (4, 1)
    assert np.isfinite(replay.sample(64, 0.0, np.random.default_rng(0)).reward).all()
