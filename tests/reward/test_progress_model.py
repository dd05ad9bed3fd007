"""Progress models: learned from made-up episodes, judged, saved, and scoring a store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows
from robot_rl.cli.reward import as_words
from robot_rl.errors import CheckpointError, ConfigError
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.report.rewards import write_reward_page
from robot_rl.reward.progress.model import WAYS, Past, ProgressModel
from robot_rl.reward.progress.train import (
    ProgressConfig,
    controls,
    judge_progress,
    learn_progress,
    strips,
    targets,
)
from robot_rl.reward.scorer import FrameScorer
from robot_rl.reward.success.train import Footage, SuccessConfig, footage
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.labels import PREDICATE, PROGRESS
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId, Frame, Label, Row, Step

IMAGE = "image/eye"
SPEC = Spec(
    "sample",
    10.0,
    {"state": TensorSpec((2,), "float32"), IMAGE: TensorSpec((16, 16, 3), "uint8")},
    ActionSpec(0.01, 0.1, True),
)
SMALL = EncoderConfig(channels=(8, 8), embeddings=2, latent=8, shift_px=0)
CONFIG = ProgressConfig(
    updates=150, batch_size=32, encoder=SMALL, hidden=(16,), covered=0.0, discount=0.8
)
STEPS = 12


def picture(progress: float, rng: np.random.Generator) -> np.ndarray:
    """Noise; a bright square that moves from left to right."""
    image = rng.integers(0, 60, (16, 16, 3), dtype=np.uint8)
    x = round(12 * progress)
    image[6:10, x : x + 4] = 220
    return image


def episode(number: int, success: bool, purpose: str = "demo") -> list[Row]:
    """The square goes all the way, or half and back."""
    rng, id_, out = np.random.default_rng(number), EpisodeId("run", "actor", number), []
    t = np.arange(STEPS + 1) / STEPS
    way = t if success else np.minimum(t, 1.0 - t)
    for row in episode_rows(SPEC, id_, STEPS):
        if isinstance(row, Frame):
            seen = row.observation | {IMAGE: picture(way[row.frame], rng)}
            row = replace(row, observation=seen)  # noqa: PLW2901
        elif isinstance(row, Step):
            row = replace(row, success=success if row.ending else None)  # noqa: PLW2901
        elif hasattr(row, "purpose"):
            row = replace(row, purpose=purpose)  # noqa: PLW2901
        out.append(row)
    truth = [
        Label(id_, 2 * f + 1, f, PROGRESS, float(way[f]), PREDICATE, PREDICATE, 1)
        for f in range(STEPS + 1)
    ]
    return [*out, *truth]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as made:
        for number in range(16):
            made.append(episode(number, success=number % 2 == 0))
        yield made


def films(store: Store) -> list[Footage]:
    return list(footage(store, (IMAGE,), SuccessConfig(positives=2, hold_steps=1)))


def test_targets_are_discounted_steps_to_the_next_success(store: Store) -> None:
    good, poor = films(store)[:2]
    left = np.array([*range(STEPS - 1, -1, -1), 0])  # the last two frames show it
    np.testing.assert_allclose(targets(good, 0.8, 99), 0.8**left, rtol=1e-5)
    np.testing.assert_allclose(targets(good, 1.0, 22), 1 - left / 22, rtol=1e-5)
    assert not targets(poor, 0.8, 99).any()
    undone = replace(good, shows=np.array([0, 1, 0, 0], np.int8))
    np.testing.assert_allclose(targets(undone, 0.5, 99), [0.5, 1.0, 0.0, 0.0])


def test_an_episode_of_which_nobody_knows_the_end_is_no_failure(store: Store) -> None:
    known = films(store)
    unknown = [
        replace(r, success=None) if isinstance(r, Step) else r for r in episode(20, success=True)
    ]
    store.append(unknown)
    store.append([Label(EpisodeId("run", "actor", 20), 0, 3, "shows", 0.0, "person", "ada", 1)])
    every = films(store)
    assert len(every) == len(known) + 1
    config = replace(CONFIG, updates=3, failures=0.5)
    with_it, without = (learn_progress(some, SPEC, config) for some in (every, known))
    assert with_it.version == without.version
    figures = [judge_progress(without, some, SPEC.control_hz) for some in (every, known)]
    assert figures[0]["episode_auc"] == figures[1]["episode_auc"]


def test_episodes_of_two_runs_of_one_name_are_not_taken_for_each_other(store: Store) -> None:
    every = films(store)
    short = [
        replace(
            e,
            images={k: v[:6] for k, v in e.images.items()},
            shows=np.arange(6) >= 4 if e.success else e.shows[:6],
            progress=e.progress[:6],
        )
        for e in every
    ]
    learn_progress([*every, *short], SPEC, replace(CONFIG, updates=5))  # lengths differ: it raised


@pytest.mark.parametrize("way", WAYS)
def test_each_way_learns_which_moment_is_further(store: Store, way: str) -> None:
    model = learn_progress(films(store), SPEC, replace(CONFIG, way=way, gap=3))
    for number in range(20, 32):  # nobody has seen these
        store.append(episode(number, success=number % 2 == 0))
    others = [film for film in films(store) if film.id.episode >= 20]
    figures = judge_progress(model, others, SPEC.control_hz)
    for film in others:
        curve = model.curve(film.images)
        assert curve.shape == (STEPS + 1,) and (curve >= 0.0).all() and (curve <= 1.0).all()
        assert not film.success or curve[-1] > curve[0]
    assert figures["voc_success_episodes"] == 6 and figures["episode_auc"] > 0.9
    told = controls(model, others, [e for e in others if not e.success])
    assert told["emptied_auc"] > 0.9
    assert told["ramp_voc"] == 1.0 and told["ramp_auc"] == 0.5  # a clock orders, and tells nothing
    least = 0.9 if way == "value" else 0.75  # errors of pairs add up
    assert figures["voc_success"] > least and figures["voc_truth_success"] > least
    if way == "value":  # a pair cannot go back from where it begins
        assert told["reversed_voc"] < -0.9 and abs(told["shuffled_voc"]) < 0.6
        assert told["undone_progress"] == pytest.approx(told["start_progress"])


@pytest.mark.parametrize("way", WAYS)
def test_it_looks_at_no_frame_that_comes_later(store: Store, way: str) -> None:
    model = learn_progress(films(store), SPEC, replace(CONFIG, way=way, gap=3, updates=5))
    images = films(store)[0].images
    whole, past = model.curve(images), Past()
    parts = [model.curve({k: v[t : t + 1] for k, v in images.items()}, past) for t in range(13)]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_comes_back_from_its_folder(store: Store, way: str, tmp_path: Path) -> None:
    model = learn_progress(films(store), SPEC, replace(CONFIG, way=way, updates=5))
    model.save(tmp_path / "model")
    same = ProgressModel.load(tmp_path / "model", SPEC)
    images = films(store)[0].images
    np.testing.assert_array_equal(same.curve(images), model.curve(images))
    assert same.author == model.author and same.way == way
    facts = json.loads((tmp_path / "model" / "progress.json").read_text())
    (tmp_path / "model" / "progress.json").write_text(json.dumps(facts | {"way": "guess"}))
    with pytest.raises(CheckpointError, match="not a progress model"):
        ProgressModel.load(tmp_path / "model", SPEC)


def labels_of(store: Store, model: ProgressModel) -> dict[tuple[EpisodeId, int | None], float]:
    return {(x.id, x.step): x.value for x in store.all_labels() if x.author == model.author}


@pytest.mark.parametrize("way", ["value", "pair"])
def test_every_frame_of_a_store_gets_one_label_whenever_it_is_asked(store: Store, way: str) -> None:
    model = learn_progress(films(store), SPEC, replace(CONFIG, way=way, gap=3, updates=5))
    store.append(episode(16, success=True, purpose="eval"))
    assert FrameScorer(store, model).turn() == 16 * (STEPS + 1)
    before = labels_of(store, model)
    assert len(before) == 16 * (STEPS + 1) and {id_.episode for id_, _ in before} == set(range(16))
    again = FrameScorer(store, model)  # after a restart
    assert again.turn() == 0
    rows = episode(17, success=True)
    for row in rows:  # and as it comes in, frame by frame
        store.append([row])
        again.turn()
    after = labels_of(store, model)
    assert len(after) == 17 * (STEPS + 1) and before.items() <= after.items()
    curve = model.curve(films(store)[-1].images)
    got = [after[EpisodeId("run", "actor", 17), f] for f in range(STEPS + 1)]
    np.testing.assert_allclose(got, curve, atol=1e-5)


def test_a_models_word_that_comes_with_imported_data_stays(store: Store) -> None:
    """On another machine the same model says nearly the same; the learner ended with an error."""
    model = learn_progress(films(store), SPEC, replace(CONFIG, updates=5))
    FrameScorer(store, model).turn()
    own = [x for x in store.all_labels() if x.author == model.author and x.id.episode == 0]
    with Store(store.path.with_name("learner.sqlite"), spec=SPEC, reserve_bytes=0) as learner:
        scorer = FrameScorer(learner, model)
        learner.append(episode(0, success=True))
        imported = [replace(x, value=x.value / 2 + 0.1) for x in own[:5]]
        learner.append(imported)
        assert scorer.turn() == STEPS + 1 - 5
        held = labels_of(learner, model)
        assert len(held) == STEPS + 1
        assert all(held[x.id, x.step] == x.value for x in imported)


def test_of_several_processes_the_first_one_scores(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = learn_progress(films(store), SPEC, replace(CONFIG, updates=5))
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    assert FrameScorer(store, model).turn() == 0 and not labels_of(store, model)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    assert FrameScorer(store, model).turn() == 16 * (STEPS + 1)


def test_judging_needs_successes_and_failures(store: Store) -> None:
    model = learn_progress(films(store), SPEC, replace(CONFIG, updates=2))
    for some in (films(store)[::2], films(store)[1::2]):
        with pytest.raises(ConfigError, match="cannot tell"):
            judge_progress(model, some, SPEC.control_hz)


@pytest.mark.parametrize(
    "wrong", [{"way": "guess"}, {"discount": 0.0}, {"gap": 0}, {"covered": 1.0}, {"updates": 0}]
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|>="):
        replace(CONFIG, **wrong)


def test_the_page_shows_what_misleads_first_and_holds_everything(
    store: Store, tmp_path: Path
) -> None:
    model = learn_progress(films(store), SPEC, replace(CONFIG, updates=2))
    figures = judge_progress(model, films(store), SPEC.control_hz)
    page = write_reward_page(
        tmp_path / "sub" / "page.html",
        name="<model>",
        subtitle="on runs",
        figures=as_words("progress", figures),
        strips=strips(model, films(store), 5),
    )
    html = page.read_text()
    assert "&lt;model&gt;" in html and "<model>" not in html
    assert html.count('class="strip-row"') == 5 and html.count("data:image/png") == 50
    assert 'src="http' not in html and 'href="http' not in html
