"""A success classifier: learned from recorded pictures, judged on others, used as reward."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.samples import episode_rows
from robot_rl.cli.main import main
from robot_rl.errors import CheckpointError, ConfigError
from robot_rl.learn.replay import Replay
from robot_rl.nets.encoder import EncoderConfig
from robot_rl.ports import RewardResult
from robot_rl.reward.metrics import operating_point
from robot_rl.reward.predicate import PredicateReward
from robot_rl.reward.success.model import ClassifierReward, SuccessModel, Where
from robot_rl.reward.success.recorded import judged
from robot_rl.reward.success.train import (
    HACKS,
    Footage,
    SuccessConfig,
    crossed,
    deceive,
    footage,
    judge,
    learn_success,
    split,
)
from robot_rl.run.experiment import Experiment
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.labels import SUCCESS_SCORE
from robot_rl.store.store import Store
from robot_rl.types import Driver, Ending, EpisodeId, Frame, Label, Row, Step

IMAGE = "image/eye"
FACTS, TENSORS = "success.json", "success.safetensors"
SPEC = Spec(
    "sample",
    10.0,
    {"state": TensorSpec((2,), "float32"), IMAGE: TensorSpec((16, 16, 3), "uint8")},
    ActionSpec(0.01, 0.1, True),
)
SMALL = EncoderConfig(channels=(8, 8), embeddings=2, latent=8, shift_px=1)
CONFIG = SuccessConfig(updates=80, batch_size=16, encoder=SMALL, positives=3, margin=2)
STEPS = 12


def picture(success: bool, rng: np.random.Generator) -> np.ndarray:
    """Noise; a bright square somewhere in the middle where the task is done."""
    image = rng.integers(0, 80, (16, 16, 3), dtype=np.uint8)
    if success:
        x, y = rng.integers(4, 8, 2)
        image[y : y + 4, x : x + 4] = 220
    return image


def episode(number: int, success: bool, shown: int = 3, purpose: str = "demo") -> list[Row]:
    """An episode whose last `shown` frames show success, if it is one."""
    rng = np.random.default_rng(number)

    def told(row: Row) -> Row:
        if isinstance(row, Frame):
            done = success and row.frame > STEPS - shown
            return replace(row, observation=row.observation | {IMAGE: picture(done, rng)})
        if isinstance(row, Step):
            won = success if row.ending else None
            return replace(row, success=won, reward=float(bool(won)), driver=Driver.DEMO)
        return replace(row, purpose=purpose) if hasattr(row, "purpose") else row

    return [told(row) for row in episode_rows(SPEC, EpisodeId("run", "actor", number), STEPS)]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "store.sqlite", spec=SPEC, reserve_bytes=0) as made:
        for number in range(16):
            made.append(episode(number, success=number % 2 == 0))
        yield made


def films(store: Store, config: SuccessConfig = CONFIG) -> list[Footage]:
    return list(footage(store, (IMAGE,), config))


@pytest.fixture
def model(store: Store) -> SuccessModel:
    return learn_success(films(store), SPEC, CONFIG, source=["runs/good"])


def test_frames_near_the_end_of_a_success_show_it_and_those_just_before_say_nothing(
    store: Store,
) -> None:
    good, poor = films(store)[:2]
    assert good.success and good.shows.tolist() == [0] * 8 + [-1] * 2 + [1] * 3
    assert not poor.success and poor.shows.tolist() == [0] * (STEPS + 1)
    assert good.images[IMAGE].shape == (STEPS + 1, 16, 16, 3)


def test_a_recording_ends_where_the_model_has_seen_success_for_long_enough(
    model: SuccessModel,
) -> None:
    patient = replace(model, hold_steps=2)
    for success, last in ((True, 8), (False, STEPS - 1)):
        rows = judged(patient, episode(20 + success, success, shown=5))
        steps = [r for r in rows if isinstance(r, Step)]
        assert [s.step for s in steps] == list(range(last + 1))
        assert [r.frame for r in rows if isinstance(r, Frame)] == list(range(last + 2))
        assert [s.reward for s in steps] == [0.0] * last + [float(success)]
        assert {s.ending for s in steps[:-1]} == {s.success for s in steps[:-1]} == {None}
        assert steps[-1].ending is (Ending.TERMINATED if success else Ending.TRUNCATED)
        assert steps[-1].success is success
        scores = [r for r in rows if isinstance(r, Label)]
        assert [x.step for x in scores] == list(range(last + 1))
        assert {(x.kind, x.source, x.author) for x in scores} == {
            (SUCCESS_SCORE, "classifier", patient.author)
        }
        assert (scores[-1].value > 0.5) is success


def test_what_people_said_counts_more_than_what_was_recorded(store: Store) -> None:
    for number, (kind, value) in enumerate((("success", 0.0), ("success", 1.0), ("neutral", 1.0))):
        label = Label(EpisodeId("run", "actor", number), 0, None, kind, value, "person", "ada", 1)
        store.append([label])
    store.append(episode(16, success=True, purpose="eval"))
    found = {film.id.episode: film.success for film in films(store)}
    assert found[0] is False and found[1] is True and found[3] is False
    assert 2 not in found and 16 not in found  # neither of both; not for learning


def test_the_predicates_own_score_of_each_moment_counts_where_it_was_recorded(store: Store) -> None:
    shown = {2, 3, 11}
    id_ = EpisodeId("run", "actor", 0)
    store.append(
        Label(id_, s, s, SUCCESS_SCORE, float(s in shown), "predicate", "predicate", 1)
        for s in range(STEPS)
    )
    assert films(store)[0].shows.tolist() == [0, -1, -1, 1, 1, 0, 0, 0, 0, 0, -1, -1, 1]
    scored(store, 2, 0.0, "predicate")  # the classifier took it for a success, and it is none
    scored(store, 2, 0.9, "classifier")
    film = films(store)[2]
    assert film.success is False and not film.shows.any()


def scored(store: Store, number: int, value: float, source: str) -> None:
    """Every moment of an episode."""
    id_ = EpisodeId("run", "actor", number)
    store.append(Label(id_, s, s, SUCCESS_SCORE, value, source, source, 1) for s in range(STEPS))


def test_a_person_who_says_the_opposite_of_the_predicate_is_believed(store: Store) -> None:
    end = [0] * 8 + [-1] * 2 + [1] * 3
    for number in (0, 2, 3):
        scored(store, number, 0.0, "predicate")
        scored(store, number, 0.9, "classifier")
    scored(store, 4, 0.0, "predicate")  # no classifier: a key has ended it as a success
    scored(store, 6, 1.0, "predicate")
    for number, value in ((2, 1.0), (3, 1.0), (6, 0.0)):
        id_ = EpisodeId("run", "actor", number)
        store.append([Label(id_, 0, None, "success", value, "person", "ada", 1)])
    found = {film.id.episode: film for film in films(store)}
    for number, success in ((0, False), (2, True), (3, True), (4, True), (6, False)):
        film = found[number]
        assert film.success is success, number
        assert film.shows.tolist() == (end if success else [0] * (STEPS + 1)), number


def test_where_a_person_agrees_the_predicate_says_which_moments(store: Store) -> None:
    id_ = EpisodeId("run", "actor", 0)
    scores = [float(s in (2, 11)) for s in range(STEPS)]
    store.append(
        Label(id_, s, s, SUCCESS_SCORE, v, "predicate", "predicate", 1)
        for s, v in enumerate(scores)
    )
    store.append([Label(id_, 0, None, "success", 1.0, "person", "ada", 1)])
    assert films(store)[0].shows.tolist() == [0, -1, -1, 1, 0, 0, 0, 0, 0, 0, -1, -1, 1]


@pytest.mark.parametrize("ending", [Ending.ABORTED, Ending.STALE])
def test_an_episode_that_did_not_come_to_an_end_is_no_failure(store: Store, ending: Ending) -> None:
    for row in episode(16, success=False):
        ended = isinstance(row, Step) and row.ending
        store.append([replace(row, **({"ending": ending} if ended else {}))])
    assert 16 not in {film.id.episode for film in films(store)}


def shows(number: int, words: dict[int, float]) -> list[Label]:
    """What a person says of the moments after some steps."""
    id_ = EpisodeId("run", "actor", number)
    return [
        Label(id_, i, s, "shows", v, "person", "ada", i) for i, (s, v) in enumerate(words.items())
    ]


def test_what_a_person_says_of_a_moment_stands_above_everything_else(store: Store) -> None:
    """Step s leads to frame s + 1."""
    store.append(shows(0, {8: 0.0, 11: 0.0}))  # of a success: its end, and what looks like it
    store.append(shows(1, {5: 1.0, 4: 0.0}))  # of a failure: one moment was a success
    store.append(shows(2, {9: 0.0, 10: 0.0, 11: 0.0}))  # all that was taken for a success was none
    id_ = EpisodeId("run", "actor", 4)  # the rule of the task, too, is overruled
    rule = (float(s == 11) for s in range(STEPS))
    store.append(Label(id_, s, s, SUCCESS_SCORE, v, "predicate", "predicate", 1)
                 for s, v in enumerate(rule))  # fmt: skip
    store.append(shows(4, {11: 0.0, 2: 1.0}))
    found = {film.id.episode: film for film in films(store)}
    assert found[0].success and found[0].shows.tolist() == [0] * 8 + [-1, 0, 1, 1, 0]
    assert found[1].success and found[1].shows.tolist() == [0] * 4 + [-1, 0, 1] + [0] * 6
    assert not found[2].success and found[2].shows.tolist() == [0] * (STEPS + 1)
    assert found[4].success and found[4].shows.tolist() == [0, -1, -1, 1] + [0] * 9


def test_of_an_episode_that_nobody_has_judged_only_what_was_said_is_known(store: Store) -> None:
    unknown = [replace(r, success=None) if isinstance(r, Step) else r for r in episode(16, True)]
    store.append(unknown)
    assert 16 not in {film.id.episode for film in films(store)}
    store.append(shows(16, {3: 0.0, 4: 0.0}))
    film = films(store)[-1]
    assert film.shows.tolist() == [-1] * 4 + [0, 0] + [-1] * 7
    assert not film.success and not film.failed and films(store)[1].failed
    store.append([Label(film.id, 0, None, "vlm_success", 1.0, "vlm", "model-x", 1)])
    film = films(store)[-1]  # a model's word counts where there is no other
    assert film.shows.tolist() == [0] * 8 + [-1] * 2 + [1] * 3 and film.success


def test_whole_episodes_of_both_kinds_are_held_out(store: Store) -> None:
    episodes = films(store)
    learned, held_out = split(episodes, 0.3, np.random.default_rng(0))
    assert {e.id for e in learned} | {e.id for e in held_out} == {e.id for e in episodes}
    assert len(learned) + len(held_out) == len(episodes) == 16
    assert [sum(e.success for e in part) for part in (learned, held_out)] == [6, 2]
    for few in (episodes[:1], episodes[::2], episodes[1::2]):
        with pytest.raises(ConfigError, match="too few episodes"):
            split(few, 0.3, np.random.default_rng(0))


def test_it_learns_to_tell_and_chooses_a_threshold(store: Store, model: SuccessModel) -> None:
    assert model.figures["episodes"] == 4 and model.figures["successes"] == 2
    for number in range(20, 40):  # nobody has seen these
        store.append(episode(number, success=number % 2 == 0))
    others = [film for film in films(store) if film.id.episode >= 20]
    figures = judge(model, others)
    assert figures["episodes"] == 20 and figures["frame_auc"] > 0.95
    assert figures["true_positive_rate"] >= 0.8 and figures["false_positive_rate"] <= 0.1


def test_a_threshold_is_not_judged_by_the_episodes_that_chose_it() -> None:
    rng, own, other = np.random.default_rng(0), 0.0, 0.0
    for _ in range(50):  # scores that tell nothing
        ends, ways = rng.normal(size=20).tolist(), rng.normal(size=20).tolist()
        own += operating_point(ends, ways, 0.02)[2] / 50
        other += crossed(ends, ways, 0.02)["false_positive_rate"] / 50
    assert own == 0.0 and 0.05 < other < 0.15  # the highest of 10 others is beaten by one in 11
    sure = crossed([5.0, 6.0, 7.0], [0.0, 1.0, 2.0], 0.02)
    assert sure == {"true_positive_rate": 1.0, "false_positive_rate": 0.0}
    assert crossed([5.0], [0.0, 1.0], 0.02) == {}


def test_judging_needs_successes_and_failures(store: Store, model: SuccessModel) -> None:
    for some in ([], films(store)[1::2]):
        with pytest.raises(ConfigError, match="cannot tell"):
            judge(model, some)


def test_equal_seeds_learn_equal_models(store: Store) -> None:
    config = replace(CONFIG, updates=5)
    versions = {learn_success(films(store), SPEC, config).version for _ in range(2)}
    other = learn_success(films(store), SPEC, replace(config, seed=1)).version
    assert len(versions) == 1 and other not in versions


def test_a_model_comes_back_from_its_folder(model: SuccessModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    same = SuccessModel.load(tmp_path / "model", SPEC)
    seen = {IMAGE: picture(True, np.random.default_rng(3))}
    assert same.logit(seen) == model.logit(seen)
    assert same.version == model.version and same.source == ("runs/good",)
    assert (same.threshold, same.hold_steps) == (model.threshold, model.hold_steps)


def test_what_is_no_model_or_sees_other_cameras_is_refused(
    model: SuccessModel, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    with pytest.raises(CheckpointError, match="not a success classifier"):
        SuccessModel.load(folder, SPEC)
    model.save(folder)
    larger = SPEC.observation | {IMAGE: TensorSpec((32, 32, 3), "uint8")}
    with pytest.raises(ConfigError, match="looks at something else"):
        SuccessModel.load(folder, replace(SPEC, observation=larger))
    facts = json.loads((folder / FACTS).read_text())
    for key, value in (("hidden", [9]), ("sha256", "0" * 64), ("format", 9), ("encoder", {"x": 1})):
        (folder / FACTS).write_text(json.dumps(facts | {key: value}))
        with pytest.raises(CheckpointError, match="not a success classifier"):
            SuccessModel.load(folder, SPEC)
    (folder / FACTS).write_text(json.dumps(facts))
    (folder / TENSORS).write_bytes((folder / TENSORS).read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="damaged"):
        SuccessModel.load(folder, SPEC)


def test_a_model_that_can_be_deceived_is_found_out(store: Store, model: SuccessModel) -> None:
    shares = deceive(model, films(store))
    assert shares.keys() == HACKS.keys()
    assert shares["lens covered"] == 0.0  # all glare is bright, as this task's successes are
    everything = deceive(replace(model, threshold=-np.inf), films(store))
    assert set(everything.values()) == {1.0}
    good, poor = films(store)[:2]
    emptied = deceive(model, films(store), [poor, poor, good])
    assert emptied.pop("objects not there") == pytest.approx(1 / 3) and emptied == shares
    before = good.images[IMAGE]
    for name, hack in HACKS.items():
        after = hack(before.copy())
        assert after.shape == before.shape and after.dtype == np.uint8, name
        assert not np.array_equal(after, before), name


class Truth(PredicateReward):
    """The predicate, told what it shall say."""

    def __init__(self) -> None:
        self.says = False

    def begin_episode(self, purpose: str) -> None:
        """Nothing to forget."""

    def score(self, state: object, observation: object) -> RewardResult:
        return RewardResult(float(self.says), self.says, self.says)


def test_success_has_to_be_held_and_evaluation_asks_the_task(model: SuccessModel) -> None:
    truth = Truth()
    reward: Any = ClassifierReward(model, truth, hold_steps=2)
    rng = np.random.default_rng(0)
    yes, no = ({IMAGE: picture(success, rng)} for success in (True, False))
    assert model.logit(yes) >= model.threshold > model.logit(no)
    reward.begin_episode("train")
    seen = [reward.score(None, o) for o in (no, yes, no, yes, yes)]
    assert [r.success for r in seen] == [False] * 4 + [True]
    assert [r.terminated for r in seen] == [False] * 4 + [True]
    assert [r.reward for r in seen] == [0.0] * 4 + [1.0]
    assert seen[1].score > 0.5 > seen[0].score and seen[1].truth is False
    assert seen[1].author == f"success-{model.version}" and seen[1].source == "classifier"
    reward.begin_episode("train")
    assert not reward.score(None, yes).success  # the last episode is forgotten
    reward.begin_episode("eval")
    truth.says = False
    assert [reward.score(None, yes).success for _ in range(3)] == [False] * 3
    truth.says = True
    last = reward.score(None, no)
    assert last.success and last.score is None


def test_k_of_n_ticks_and_the_state_have_to_agree(model: SuccessModel) -> None:
    spec = replace(SPEC, state_layout=(("gripper", 1, "m"), ("speed", 1, "m/s")))
    where = Where.of({"gripper": (0.0, 0.02)}, spec)
    reward: Any = ClassifierReward(model, Truth(), hold_steps=3, agree=2, where=where)
    rng = np.random.default_rng(0)
    closed, wide = np.array([0.01, 9.0], np.float32), np.array([0.5, 9.0], np.float32)

    def seen(success: bool, state: np.ndarray = closed) -> bool:
        return reward.score(None, {IMAGE: picture(success, rng), "state": state}).success

    reward.begin_episode("train")
    assert [seen(x) for x in (True, False, True)] == [False, False, True]
    reward.begin_episode("train")
    assert [seen(x) for x in (True, True, False)] == [False, True, False]  # this moment shows none
    reward.begin_episode("train")
    assert [seen(True, wide) for _ in range(3)] == [False] * 3
    assert seen(True)


def test_more_ticks_than_are_held_can_never_agree(model: SuccessModel) -> None:
    truth: Any = Truth()
    with pytest.raises(ConfigError, match="never agree") as error:
        ClassifierReward(model, truth, agree=CONFIG.hold_steps + 1)
    assert "reward.hold_steps=4" in error.value.fix
    ClassifierReward(model, truth, hold_steps=4, agree=4)


@pytest.mark.parametrize(
    ("named", "match"),
    [
        ({"griper": (0, 1)}, "no single number"),
        ({"tcp": (0, 1)}, "no single number"),
        ({"tcp.3": (0, 1)}, "no single number"),
        ({"tcp.1": (1, 0)}, "lowest and a highest"),
        ({"gripper": (1,)}, "lowest and a highest"),
    ],
)
def test_a_bound_on_what_the_state_does_not_hold_is_refused(named: Any, match: str) -> None:
    spec = replace(SPEC, state_layout=(("gripper", 1, "m"), ("tcp", 3, "m")))
    with pytest.raises(ConfigError, match=match):
        Where.of(named, spec)
    assert Where.of({"tcp.2": (0, 1)}, spec).bounds == ((3, 0.0, 1.0),)


def test_scores_beside_the_steps_change_nothing_that_is_learned(store: Store) -> None:
    plain, scored = (Replay(SPEC, 1000) for _ in range(2))
    rows = episode(0, success=True)
    labels = [
        Label(EpisodeId("run", "actor", 0), s, s, SUCCESS_SCORE, 0.5, "classifier", "x", 1)
        for s in range(STEPS)
    ]
    plain.ingest(rows)
    scored.ingest([*rows, *labels])
    batches = [r.sample(32, 0.5, np.random.default_rng(0)) for r in (plain, scored)]
    assert np.array_equal(batches[0].reward, batches[1].reward)
    assert np.array_equal(batches[0].action, batches[1].action)


@pytest.mark.gl
def test_a_run_learns_what_success_looks_like_and_another_is_paid_by_it(
    tmp_path: Path, capsys: Any
) -> None:
    words = ["experiment=peg_insert_easy_pixels", "runtime=lockstep", "task.image_size=32"]
    good, poor = tmp_path / "good", tmp_path / "poor"
    record = ["record", *words, "reward.hold_steps=3"]
    assert main([*record, "--demos", "3", f"run_dir={good}"]) == 0
    lost = ["operator.skill=0.1", "seed=1", "--demos", "1"]
    assert main([*record, *lost, f"run_dir={poor}"]) == 0
    with Store(good / "store.sqlite") as store:
        labels = store.all_labels()
        assert {x.source for x in labels} == {"predicate"}
        assert sum(x.value for x in labels) >= 9  # three moments of each success
    model, told = tmp_path / "model", tmp_path / "told.json"
    train = ["reward", "train", str(good), str(poor), "--out", str(model), "--positives", "3"]
    assert main([*train, "--updates", "20", "--hold-steps", "2", "--json", str(told)]) == 0
    assert json.loads(told.read_text())["episodes"] >= 2
    before = (model / "success.safetensors").read_bytes()
    assert main([*train, "--updates", "1", "--seed", "1"]) == 2, "a run may use this model"
    assert "has a model already" in capsys.readouterr().err
    assert (model / "success.safetensors").read_bytes() == before
    evaluate = ["reward", "eval", str(good), str(poor), "--model", str(model), "--json", str(told)]
    assert main([*evaluate, "--positives", "3"]) == 0
    assert (model / "success.html").stat().st_size > 10_000
    progress = [*train[:5], str(model), "--kind", "progress", "--updates", "5"]
    assert main(progress) == 0
    assert main([*evaluate, "--positives", "3"]) == 0  # of two models, each under its name
    both = json.loads(told.read_text())
    assert set(both) == {"success", "progress"} and both["progress"]["episodes"] >= 2
    paid = tmp_path / "paid"
    reward = ["reward=classifier", f"reward.model={model}", "algo.encoder.channels=[8]"]
    assert Experiment.compose([*words, *reward]).reward
    small = ["train.demos=1", "train.max_env_steps=0", "train.eval_episodes=1", "train.video=false"]
    small += ["train.stochastic_eval_episodes=0", "task.max_steps=40"]
    main(["train", *words, *reward, *small, f"run_dir={paid}"])  # a model so poor may never pay
    with Store(paid / "store.sqlite") as store:
        labels = store.all_labels()
    assert labels and {x.source for x in labels} == {"classifier", "predicate"}
    assert all(0.0 <= x.value <= 1.0 for x in labels)


def test_a_wrong_word_says_what_is_missing(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    small = ["runtime=lockstep", "--demos", "1", f"run_dir={run}"]
    assert main(["record", "experiment=reach", *small]) == 0
    assert main(["reward", "train", str(run), "--out", str(tmp_path / "model")]) == 2
    assert "has no cameras" in capsys.readouterr().err
    assert main(["reward", "train", str(run)]) == 2
    assert "--out" in capsys.readouterr().err
    more = ["--out", "x", "--hold-steps", "9"]
    assert main(["reward", "train", str(run), *more]) == 2
    assert "hold_steps must not be more" in capsys.readouterr().err
    words = ["experiment=peg_insert_easy_pixels", "reward=classifier", f"reward.model={run}"]
    assert main(["train", *words, f"run_dir={tmp_path / 'paid'}"]) == 2
    assert "not a success classifier" in capsys.readouterr().err
