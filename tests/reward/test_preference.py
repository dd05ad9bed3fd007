"""A reward from preferences: asked, learned, saved, and put in the place of recorded rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows
from robot_rl.cli.main import main
from robot_rl.errors import CheckpointError, ConfigError
from robot_rl.learn.replay import Replay, View
from robot_rl.reward.assembly import Assembly
from robot_rl.reward.preference.model import PreferenceModel
from robot_rl.reward.preference.train import (
    Moment,
    PreferenceConfig,
    Reel,
    learn_preference,
    reels,
    truthful,
)
from robot_rl.reward.scorer import FrameScorer
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.labels import MODEL_REWARD, PREDICATE, PROGRESS
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Frame, Label, Row, Step

SPEC = Spec("sample", 10.0, {"state": TensorSpec((3,), "float32")}, ActionSpec(0.01, 0.1, True))
CONFIG = PreferenceConfig(pairs=200, rounds=2, updates=300, hidden=(32,), learning_rate=3e-3)
STEPS = 10


def episode(number: int) -> list[Row]:
    """The first number of the state is how far it is; some episodes go all the way, some back."""
    rng, id_, out = np.random.default_rng(number), EpisodeId("run", "actor", number), []
    way = np.linspace(0.0, rng.choice((-1.0, 1.0)) * rng.uniform(0.5, 1.0), STEPS + 1)
    for row in episode_rows(SPEC, id_, STEPS):
        if isinstance(row, Frame):
            state = np.array([way[row.frame], *rng.normal(size=2)], np.float32)
            row = replace(row, observation={"state": state})  # noqa: PLW2901
        elif isinstance(row, Step):
            row = replace(row, reward=None, success=None)  # noqa: PLW2901
        out.append(row)
    told = [
        Label(id_, 2 * f + 1, f, PROGRESS, float(way[f]), PREDICATE, PREDICATE, 1)
        for f in range(STEPS + 1)
    ]
    return [*out, *told]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as made:
        for number in range(20):
            made.append(episode(number))
        yield made


def films(store: Store) -> list[Reel]:
    return list(reels(store, ["state"]))


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_it_orders_moments_as_the_answers_do(store: Store, noise: float) -> None:
    model = learn_preference(films(store), SPEC, truthful(noise), CONFIG)
    figures = model.figures
    assert figures["asked"] == 200 and figures["answers"] + figures["held_out_answers"] > 190
    assert figures["agreement"] > 0.85 - 1.5 * noise  # half of them on what is unclear
    assert figures["voc_truth"] > 0.75 - noise and figures["kendall_end"]["a"] > 0.3
    worth = model.curve(films(store)[0].observation)
    assert worth.shape == (STEPS + 1,) and (worth <= 0.0).all() and (worth >= -1.0).all()


def test_it_asks_about_what_is_unclear_and_leaves_out_what_nobody_answers(store: Store) -> None:
    asked: list[int] = []

    def shy(pairs: Sequence[tuple[Moment, Moment]]) -> list[float | None]:
        asked.append(len(pairs))
        answers = truthful(0.0)(pairs)
        return [None if i % 4 == 0 else 0.0 if i % 4 == 1 else y for i, y in enumerate(answers)]

    model = learn_preference(films(store), SPEC, shy, CONFIG)
    assert asked == [100, 100]
    assert model.figures["silent"] == 50 <= model.figures["ties"]
    with pytest.raises(ConfigError, match="hardly any question"):
        learn_preference(films(store), SPEC, lambda pairs: [None] * len(pairs), CONFIG)
    with pytest.raises(ConfigError, match="nothing to compare"):
        learn_preference(films(store)[:1], SPEC, truthful(0.0), CONFIG)


def test_whole_episodes_are_held_out(store: Store) -> None:
    learned: set[int] = set()
    aside: set[int] = set()

    def judge(pairs: Sequence[tuple[Moment, Moment]]) -> list[float | None]:
        tests = round(CONFIG.held_out * len(pairs))
        for part, seen in ((pairs[:-tests], learned), (pairs[-tests:], aside)):
            seen.update(reel.id.episode for pair in part for reel, _ in pair)
        return truthful(0.0)(pairs)

    figures = learn_preference(films(store), SPEC, judge, CONFIG).figures
    assert learned and aside and not learned & aside
    assert len(aside) <= figures["held_out_episodes"] < len(films(store))


def test_answers_that_are_held_out_are_as_unclear_as_the_others(store: Store) -> None:
    """Pairs come sorted: it is wrong about the first fifth of each round, the least clear ones."""

    def judge(pairs: Sequence[tuple[Moment, Moment]]) -> list[float | None]:
        answers = truthful(0.0)(pairs)
        return [-y if y and i < len(pairs) // 5 else y for i, y in enumerate(answers)]

    assert learn_preference(films(store), SPEC, judge, CONFIG).figures["agreement"] > 0.6


def test_a_model_comes_back_from_its_folder(store: Store, tmp_path: Path) -> None:
    config = replace(CONFIG, updates=4)
    model = learn_preference(films(store), SPEC, truthful(0.0), config, source=["runs/mixed"])
    model.save(tmp_path / "model")
    same = PreferenceModel.load(tmp_path / "model", SPEC)
    seen = films(store)[0].observation
    np.testing.assert_array_equal(same.curve(seen), model.curve(seen))
    assert same.author == model.author and same.source == ("runs/mixed",)
    again = learn_preference(films(store), SPEC, truthful(0.0), config)
    assert again.author == model.author  # equal seeds
    wider = replace(SPEC, observation={"state": TensorSpec((4,), "float32")})
    with pytest.raises(ConfigError, match="looks at something else"):
        PreferenceModel.load(tmp_path / "model", wider)
    with pytest.raises(CheckpointError, match="not a reward learned"):
        PreferenceModel.load(tmp_path, SPEC)


def test_its_rewards_take_the_place_of_what_was_recorded(store: Store) -> None:
    model = learn_preference(films(store), SPEC, truthful(0.0), replace(CONFIG, updates=4))
    rows, _ = store.rows_since(0, 10**6)
    assembly = Assembly(rewards_by=model.author)
    empty = Replay(SPEC, 1000, view=View(assembly=assembly))
    empty.ingest(rows)
    assert not empty.can_sample  # nobody has labelled anything
    assert FrameScorer(store, model).turn() == 20 * (STEPS + 1)
    every, _ = store.rows_since(0, 10**6)
    late = Replay(SPEC, 1000, view=View(assembly=assembly))
    late.ingest(every)
    labels = [r for r in every if isinstance(r, Label)]
    early = Replay(SPEC, 1000, view=View(assembly=assembly))
    early.ingest([r for r in every if hasattr(r, "purpose")] + labels)
    early.ingest([r for r in every if not isinstance(r, Label)])
    said = {(x.id, x.step): x.value for x in labels if x.kind == MODEL_REWARD}
    for replay in (late, early):
        assert replay.len_online == 20 * STEPS
        for id_, one in replay.episodes.items():
            for number, slot in one.steps.items():
                assert replay.steps.reward[slot] == pytest.approx(said[id_, number + 1])
    other = Replay(SPEC, 1000, view=View(assembly=Assembly(rewards_by="preference-other")))
    other.ingest(every)
    assert not other.can_sample


def test_one_command_asks_learns_and_trains(tmp_path: Path, capsys: Any) -> None:
    mixed, worth, out = tmp_path / "mixed", tmp_path / "worth", tmp_path / "out"
    words = ["experiment=reach", "runtime=lockstep"]
    record = ["record", *words, "reward.hold_steps=2", "operator.skill=0.5"]
    assert main([*record, "--demos", "3", f"run_dir={mixed}"]) == 0
    prefer = ["reward", "prefer", str(mixed), "--out", str(worth), "--truth", "0.1"]
    small = ["--pairs", "40", "--updates", "40", "--rounds", "2"]
    train = ["experiment=reach", "algo=iql", "algo.hidden=[16]", "learner.pretrain_updates=20"]
    train += ["train.eval_episodes=1", "train.stochastic_eval_episodes=0", "train.video=false"]
    assert main([*prefer, *small, "--train", *train, f"run_dir={out}"]) == 0
    assert "40 questions" in capsys.readouterr().out
    assert (out / "eval.json").is_file()
    with Store(out / "store.sqlite") as store:
        kinds = {x.kind for x in store.all_labels()}
    assert MODEL_REWARD in kinds


def test_who_shall_answer_has_to_be_said(tmp_path: Path, capsys: Any) -> None:
    assert main(["reward", "prefer", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert "--truth NOISE" in capsys.readouterr().err
    few = ["--truth", "0", "--pairs", "5"]
    assert main(["reward", "prefer", str(tmp_path), "--out", "x", *few]) == 2
    assert "pairs >= 10" in capsys.readouterr().err
