"""Demonstrations that contradict each other: the formula, who is judged by whom, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robot_rl.bench.samples import episode_rows
from robot_rl.cli.main import main
from robot_rl.config.run_folder import COMPATIBLE, COMPATIBLE_EPISODES
from robot_rl.console.compatible import Agreement, Compatible
from robot_rl.errors import CheckpointError, ConfigError
from robot_rl.nets import ensemble, observation
from robot_rl.nets.ensemble import EnsembleMLP
from robot_rl.reward import compatible as model
from robot_rl.reward.compatible import Ensemble, compatibility, encoded
from robot_rl.reward.compatible_train import (
    AUTHOR,
    CompatibleConfig,
    Driven,
    by_person,
    driven,
    judge,
    judge_each_other,
    learn_ensemble,
)
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.labels import DROVE, review
from robot_rl.store.left_out import leave_out
from robot_rl.store.store import Store
from robot_rl.types import Driver, EpisodeId, EpisodeStart, Frame, Label, Row, Step

SPEC = Spec("sample", 10.0, {"state": TensorSpec((2,), "float32")}, ActionSpec(0.01, 0.1, True))
QUICK = CompatibleConfig(hidden=(32,), updates=150, batch_size=64, learning_rate=6e-3)
STEPS = 25


def steps_of(number: int, way: float, where: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """States around `where`, and what somebody does there; way: -1 = the opposite of the others."""
    rng = np.random.default_rng(number)
    state = (where + rng.uniform(-1.0, 1.0, (STEPS, 2))).astype(np.float32)
    action = np.zeros((STEPS, 7), np.float32)
    action[:, :2] = 0.6 * way * state[:, ::-1] + rng.normal(0.0, 0.03, (STEPS, 2))
    action[:, -1] = way * np.sign(state[:, 0])
    return state, np.clip(action, -1.0, 1.0)


def episode(number: int, way: float = 1.0, who: str = "ada", where: float = 0.0) -> Driven:
    id_ = EpisodeId("run", "actor", number)
    return Driven(id_, who, list(range(STEPS)), *steps_of(number, way, where))


def recorded(store: Store, number: int, way: float, who: str = "", where: float = 0.0) -> None:
    """The same episode in a store; who: the console saw this person drive it."""
    state, action = steps_of(number, way, where)

    def told(row: Row) -> Row:
        if isinstance(row, EpisodeStart):
            return replace(row, purpose="demo")
        if isinstance(row, Frame):
            return replace(row, observation={"state": state[min(row.frame, STEPS - 1)]})
        if isinstance(row, Step):
            return replace(row, driver=Driver.DEMO, action=action[row.step])
        return row

    id_ = EpisodeId("run", "actor", number)
    store.append([told(row) for row in episode_rows(SPEC, id_, STEPS)])
    if who:
        store.append([Label(id_, 0, None, DROVE, float(STEPS), "person", who, number)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Ada has driven eight episodes, and Bob three, who does the opposite."""
    folder = tmp_path / "run"
    folder.mkdir()
    with Store(folder / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        for number in range(11):
            bob = number > 7
            recorded(store, number, -1.0 if bob else 1.0, "bob" if bob else "ada")
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that are cloned in a moment."""
    monkeypatch.setattr("robot_rl.reward.compatible_train.CompatibleConfig", lambda: QUICK)


@pytest.fixture(scope="module")
def learned() -> Ensemble:
    """An ensemble of ten episodes of the base."""
    return learn_ensemble([episode(n) for n in range(10)], SPEC, QUICK, source=["runs/ada"])


# --- one step -------------------------------------------------------------------------------------


def test_far_is_incompatible_and_a_new_state_is_welcome() -> None:
    spread = np.array((0.1, 0.1, 0.1, 0.5, 0.3), np.float32)
    far = np.array((0.0, 0.5, 9.0, 9.0, 9.0), np.float32)
    value, sure = compatibility(spread, far, 0.3, 2.0)
    assert value.tolist() == [1.0, 0.75, 0.0, 1.0, 1.0]
    assert sure.tolist() == [True, True, True, False, False]


def test_a_gripper_command_is_one_of_three_and_never_far() -> None:
    action = np.array(((0.2, -1.0), (0.2, -0.4), (0.2, 0.9)), np.float32)
    said = encoded(action, gripper=True)
    root = float(np.sqrt(0.5))
    assert np.allclose(said, [(0.2, root, 0, 0), (0.2, 0, root, 0), (0.2, 0, 0, root)])
    assert np.square(said[0] - said[2]).sum() == pytest.approx(1.0)
    assert encoded(action, gripper=False) is action


def test_numpy_says_what_the_networks_were_taught_to_say(learned: Ensemble) -> None:
    state = steps_of(77, 1.0)[0]
    net = EnsembleMLP(model.MEMBERS, (2, 32, 9))
    seen = torch.from_numpy((state - learned.tensors["mean"]) * learned.tensors["scale"])
    out = net(seen, torch.from_numpy(learned.tensors["members"]))
    chances = torch.softmax(out[..., -3:], -1) / 2**0.5
    wanted = torch.cat((torch.tanh(out[..., :-3]), chances), -1).numpy()
    assert np.allclose(learned.outputs(state), wanted, atol=1e-5)
    assert ensemble.LAYER_NORM_EPS == model.LAYER_NORM_EPS
    assert observation.SCALED_LIMIT == model.SCALED_LIMIT


def test_without_a_gripper_the_action_is_motion_alone() -> None:
    spec = replace(SPEC, action=ActionSpec(0.01, 0.1, False))
    some = [episode(n) for n in range(6)]
    some = [replace(e, action=e.action[:, :6]) for e in some]
    made = learn_ensemble(some, spec, QUICK)
    assert made.outputs(some[0].state).shape == (model.MEMBERS, STEPS, 6)
    assert judge(made, some[0]).mean > 0.7


# --- episodes -------------------------------------------------------------------------------------


def test_who_contradicts_is_told_from_who_agrees_and_from_who_goes_elsewhere(
    learned: Ensemble,
) -> None:
    same, opposite, elsewhere = (
        judge(learned, one)
        for one in (episode(20), episode(21, -1.0), episode(22, -1.0, where=8.0))
    )
    assert same.mean > 0.7 and same.sure.mean() > 0.7
    assert opposite.mean < 0.45
    assert not elsewhere.sure.any() and elsewhere.mean == 1.0
    people = by_person([same, replace(opposite, driven=episode(21, -1.0, "bob"))])
    assert people["ada"]["compatible"] > people["bob"]["compatible"] + 0.3
    assert people["bob"]["episodes"] == 1 and people["bob"]["steps"] == STEPS


def test_new_states_do_not_make_up_for_a_contradiction(learned: Ensemble) -> None:
    same, opposite, elsewhere = episode(20), episode(21, -1.0), episode(22, -1.0, where=8.0)
    other_side = replace(
        opposite,
        state=np.concatenate((opposite.state[:5], elsewhere.state[5:])),
        action=np.concatenate((opposite.action[:5], elsewhere.action[5:])),
    )
    turns, stays = judge(learned, other_side), judge(learned, same)
    assert turns.compatible.mean() > stays.compatible.mean() - 0.1  # most of it is new
    assert turns.mean < learned.usual <= stays.mean + 0.1 and turns.usual == learned.usual


def test_the_thresholds_come_from_episodes_that_the_networks_have_not_seen() -> None:
    calm, wild = [episode(n) for n in range(8)], []
    for one in calm:
        noise = np.random.default_rng(one.id.episode).normal(0.0, 0.4, one.action.shape)
        wild.append(replace(one, action=np.clip(one.action + noise, -1, 1).astype(np.float32)))
    sharp, blunt = (learn_ensemble(some, SPEC, QUICK) for some in (calm, wild))
    assert blunt.far > 3.0 * sharp.far  # who varies, leaves others more room


def test_the_newest_steps_of_who_drives_are_judged(learned: Ensemble, run: Path) -> None:
    agreement = Agreement(run)
    with Store(run / "store.sqlite") as store:
        assert agreement.read(store) is None  # there is no ensemble
        learned.save(run / COMPATIBLE)
        recorded(store, 12, -1.0)
        opposite = agreement.read(store)
        recorded(store, 13, 1.0)
        same = agreement.read(store)
        recorded(store, 14, 1.0, where=50.0)
        new = agreement.read(store)
        store.append(episode_rows(SPEC, EpisodeId("run", "actor", 15), 6))
        assert agreement.read(store) == {"driving": False, "value": None}  # the policy drives
        (run / COMPATIBLE / "ensemble.json").write_text("{}")
        assert agreement.read(store) is None
    assert opposite and same and opposite["driving"] and opposite["value"] < 0.5 < same["value"]
    assert new == {"driving": True, "value": None}


def test_without_a_base_the_odd_one_shows() -> None:
    some = [*(episode(n) for n in range(11)), episode(11, -1.0)]
    judged = judge_each_other(some, SPEC, QUICK)
    assert [one.driven.id.episode for one in judged] == list(range(12))
    assert min(judged, key=lambda one: one.mean).driven.id.episode == 11
    assert judged[11].mean < min(one.mean for one in judged[:11]) - 0.2


def test_a_persons_own_episodes_do_not_judge_them() -> None:
    ada, bob = [episode(n) for n in range(8)], [episode(n, -1.0, "bob") for n in range(8, 16)]
    people = by_person(judge_each_other([*ada, *bob], SPEC, QUICK))
    assert people["ada"]["compatible"] < 0.5 and people["bob"]["compatible"] < 0.5
    alone = [replace(e, who="ada") for e in (*ada, *bob)]
    together = by_person(judge_each_other(alone, SPEC, QUICK))["ada"]["compatible"]
    assert together > max(row["compatible"] for row in people.values()) + 0.1


def test_too_few_demonstrations_are_named() -> None:
    with pytest.raises(ConfigError, match="too few demonstrations"):
        learn_ensemble([episode(0), episode(1)], SPEC, QUICK)


def test_pictures_are_refused() -> None:
    images = {"image/wrist": TensorSpec((8, 8, 3), "uint8"), **SPEC.observation}
    with pytest.raises(ConfigError, match="pictures"):
        learn_ensemble([episode(n) for n in range(5)], replace(SPEC, observation=images), QUICK)


def test_read_is_what_training_would_learn_from(run: Path) -> None:
    with Store(run / "store.sqlite") as store:
        id_ = EpisodeId("run", "actor", 0)

        def say(number: int, kind: str, step: int | None, author: str = "eve") -> None:
            store.append([Label(id_, number, step, kind, 1.0, "person", author, number)])

        say(0, "keep_from", 5)
        say(1, "leave_out", 7)
        leave_out(store, {id_: [9]}, AUTHOR)
        store.append(
            [Label(EpisodeId("run", "actor", 1), 0, None, "exclude", 1.0, "person", "eve", 0)]
        )
        found = {e.id.episode: e for e in driven(store, SPEC)}
    assert found[0].steps == [5, 6, *range(8, STEPS)]  # its own labels do not count
    assert found[0].state.shape == (STEPS - 6, 2) and found[0].who == "ada"
    assert 1 not in found and found[9].who == "bob"


# --- on disk --------------------------------------------------------------------------------------


def test_what_is_saved_judges_as_before(learned: Ensemble, tmp_path: Path) -> None:
    learned.save(tmp_path)
    loaded = Ensemble.load(tmp_path, SPEC)
    assert loaded.source == ("runs/ada",) and (loaded.eta, loaded.far) == (learned.eta, learned.far)
    state, action = steps_of(30, 1.0)
    for one, other in zip(loaded.judge(state, action), learned.judge(state, action), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"hidden": [10**6]}, {"hidden": []}, {"hidden": ["a"]},
        {"eta": float("nan")}, {"far": 0.0}, {"inputs": {"state": [3]}}, {"inputs": 3},
        {"sha256": "0"}, {"hidden": [31]}, {"usual": 2.0}, {"usual": float("nan")},
    ],
)  # fmt: skip
def test_a_damaged_file_is_no_ensemble(
    learned: Ensemble, tmp_path: Path, change: dict[str, object]
) -> None:
    learned.save(tmp_path)
    path = tmp_path / "ensemble.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match="holds no ensemble"):
        Ensemble.load(tmp_path, SPEC)


def test_an_ensemble_of_another_run_is_refused(learned: Ensemble, tmp_path: Path) -> None:
    learned.save(tmp_path)
    others = (
        replace(SPEC, observation={"state": TensorSpec((3,), "float32")}),
        replace(SPEC, action=ActionSpec(0.01, 0.1, False)),
    )
    for spec in others:
        with pytest.raises(ConfigError, match="something else"):
            Ensemble.load(tmp_path, spec)
    with pytest.raises(CheckpointError, match="holds no ensemble"):
        Ensemble.load(tmp_path / "nowhere", SPEC)


# --- the command ----------------------------------------------------------------------------------


def left_out(run: Path) -> dict[int, int]:
    """Episode -> how many of its steps are left out."""
    with Store(run / "store.sqlite") as store:
        found = {s.id.episode: len(review(store.labels(s.id)).left_out) for s in store.episodes()}
    return {number: count for number, count in found.items() if count}


def test_the_command_leaves_bob_out_and_takes_him_back(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["filter", str(run), "--compatible", "--to", "ada"]
    assert main(said) == 0
    out = capsys.readouterr().out
    assert "75 steps in 3 episodes; --write leaves them out" in out and not left_out(run)
    assert "bob: 3 episodes, compatibility 0." in out and "ada:" not in out
    assert main([*said, "--write", "--json", str(tmp_path / "f.json")]) == 0
    assert left_out(run) == {8: STEPS, 9: STEPS, 10: STEPS}
    told = json.loads((tmp_path / "f.json").read_text())
    assert told["left_out"] == 3 * STEPS and told["people"]["bob"]["episodes"] == 3
    assert [x["compatible"] for x in told["list"]] == sorted(x["compatible"] for x in told["list"])
    assert main([*said, "--write", "--below", "0"]) == 0  # another threshold moves the labels
    assert not left_out(run)
    assert main([*said, "--write"]) == 0 and len(left_out(run)) == 3
    assert main(["filter", str(run), "--compatible", "--to", "bob", "--write"]) == 0
    assert sorted(left_out(run)) == list(range(8))  # who is the base is not left out any more
    assert main([*said, "--write"]) == 0 and len(left_out(run)) == 3
    assert main(["filter", str(run), "--undo"]) == 0
    assert "75 taken back in" in capsys.readouterr().out and not left_out(run)


def test_another_run_is_the_base_and_its_ensemble_is_kept(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    with Store(base / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        for number in range(20, 30):
            recorded(store, number, 1.0)
    assert main(["filter", str(run), "--compatible", str(base), "--keep"]) == 0
    first = capsys.readouterr().out
    assert "ada: 8 episodes" in first and "75 steps in 3 episodes" not in first.splitlines()[0]
    assert Ensemble.load(run / COMPATIBLE, SPEC).source == (str(base),)
    assert main(["filter", str(run), "--compatible", str(run / COMPATIBLE)]) == 0
    again = capsys.readouterr().out
    assert first.splitlines()[-1] == again.splitlines()[-1]
    known = Compatible(run).read()
    assert len(known) == 11
    value, steps = known[EpisodeId("run", "actor", 9)]
    assert value < 0.5 and [n for n, _ in steps] == list(range(STEPS))


def test_the_figures_for_the_review_may_be_missing_or_damaged(run: Path) -> None:
    figures = Compatible(run)
    assert figures.read() == {}
    (run / COMPATIBLE).mkdir()
    path = run / COMPATIBLE / COMPATIBLE_EPISODES
    row = {"run": "run", "actor": "a", "episode": 1, "compatible": 0.5, "steps": [[0, 0.5]]}
    for text in ("", "[]", "{}", '{"episodes": [{}]}',
                 json.dumps({"episodes": [row | {"compatible": float("nan")}]})):  # fmt: skip
        path.write_text(text)
        assert Compatible(run).read() == {}
    path.write_text(json.dumps({"episodes": [row]}))
    assert figures.read() == {EpisodeId("run", "a", 1): (0.5, [(0, 0.5)])}


WRONG = (
    (["--compatible", "--undo"], "give --compatible [BASE], or --undo"),
    (["--to", "ada"], "give --compatible [BASE], or --undo"),
    (["--undo", "--to", "ada"], "belong to --compatible"),
    (["--compatible", "--below", "1.5"], "--below must lie"),
    (["--compatible", "--keep"], "--keep needs a base"),
    (["--compatible", "--to", "adda"], "nobody called 'adda' has driven"),
    (["--compatible", "nowhere"], "no data in nowhere"),
    (["--compatible", "--to", "bob"], ""),
)


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_what_makes_no_sense_is_named(
    run: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["filter", str(run), *words])
    assert (code != 0) == bool(said)
    assert said in capsys.readouterr().err


def test_a_base_of_another_task_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(SPEC, observation={"state": TensorSpec((3,), "float32")})
    with Store(tmp_path / "other.sqlite", spec=other, reserve_bytes=0) as store:
        store.append(episode_rows(other, EpisodeId("run", "actor", 0), 4))
    assert main(["filter", str(run), "--compatible", str(tmp_path / "other.sqlite")]) != 0
    assert "cannot be compared" in capsys.readouterr().err
