"""The inverse dynamics model, and imports whose actions it infers, on an arm of a few lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from robot_rl.cli import import_
from robot_rl.config.run_folder import STORE
from robot_rl.data.episodes import choose
from robot_rl.data.import_store import SUMMARY
from robot_rl.data.inverse import Inverse, Moves, learn_inverse, own_moves
from robot_rl.data.lerobot_import import has_actions, import_lerobot
from robot_rl.data.lerobot_rows import ImportOptions
from robot_rl.data.lerobot_write import WriteOptions, write_lerobot
from robot_rl.data.without_actions import import_run
from robot_rl.errors import ConfigError, SpecError
from robot_rl.run.experiment import Experiment
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.dataset import import_dataset
from robot_rl.store.labels import ACTION_SPREAD, INVERSE
from robot_rl.store.store import Store
from robot_rl.types import (
    Driver,
    Ending,
    EpisodeId,
    EpisodeStart,
    Frame,
    Label,
    Outcome,
    Row,
    Step,
)
from tests.support.data_samples import drop_features, make_foreign

LAYOUT = (("tcp", 6, "m"), ("gripper_width", 1, "40 mm"), ("force_in_tcp", 3, "10 N"))
SPEC = Spec(
    "made", 10.0, {"state": TensorSpec((10,), "float32")}, ActionSpec(0.01, 0.05, True), LAYOUT
)
F32 = NDArray[np.float32]


def episode(
    number: int,
    steps: int = 20,
    *,
    spec: Spec = SPEC,
    directed: bool = False,
    drivers: tuple[Driver, ...] = (Driver.DEMO,),
    guided: bool = False,
    ending: Ending = Ending.TERMINATED,
) -> list[Row]:
    """An arm that follows half of what it is asked for at once, and the rest later.

    directed: towards one place instead of at random; guided: what is recorded is the motion.
    """
    rng, id_ = np.random.default_rng((3, number, directed)), EpisodeId("made", "arm", number)
    tcp, speed, width = rng.normal(size=6) * 0.1, np.zeros(6), 1.0
    rows: list[Row] = [EpisodeStart(id_, "demo", spec.task, spec.hash, "", number, 0)]
    frames: list[Row] = []
    for k in range(steps + 1):
        state = np.concatenate((tcp, [width], rng.normal(size=3))).astype(np.float32)
        frames.append(Frame(id_, k, k * 10**8, {"state": state}))
        motion = np.clip(-10.0 * tcp, -1, 1) if directed else rng.uniform(-1, 1, 6)
        command = (-1.0, 1.0)[k % 12 < 6]
        speed = 0.5 * speed + 0.5 * motion * 0.01
        tcp, before = tcp + speed, tcp
        width = float(np.clip(width + 0.25 * command, -0.2, 1.0))
        recorded = (tcp - before) / 0.01 if guided else motion
        if k < steps:
            rows.append(
                Step(
                    id=id_,
                    step=k,
                    frame=k,
                    next_frame=k + 1,
                    segment=0,
                    driver=drivers[k % len(drivers)],
                    action=np.append(recorded, command).astype(np.float32),
                    policy_action=np.zeros(7, np.float32),
                    outcome=Outcome.PASS,
                    reason="",
                    reward=float(k == steps - 1),
                    ending=ending if k == steps - 1 else None,
                    success=True if k == steps - 1 else None,
                    weights_version=-1,
                    stamp_ns=k * 10**8,
                )
            )
    return [*rows, *frames]


def store_of(path: Path, *episodes: list[Row], spec: Spec = SPEC) -> Store:
    """A store with these episodes."""
    store = Store(path, spec=spec, reserve_bytes=0)
    for rows in episodes:
        store.append(rows)
    return store


def learned(path: Path, episodes: int = 6) -> Inverse:
    """A model of the arm, from episodes that were driven at random."""
    with store_of(path, *map(episode, range(episodes))) as store:
        return learn_inverse(own_moves(store, SPEC), SPEC)


def parts(rows: list[Row]) -> tuple[list[Frame], F32]:
    """Frames and actions of an episode."""
    actions = np.stack([r.action for r in rows if isinstance(r, Step)])
    return [r for r in rows if isinstance(r, Frame)], actions


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A dataset of another recorder, without actions: three episodes of 20, 9 and 2 frames."""
    rows = [episode(n, k, directed=True) for n, k in ((30, 20), (31, 9), (32, 2))]
    with store_of(tmp_path / "source.sqlite", *rows) as store:
        write_lerobot(store, choose(store), tmp_path / "dataset", WriteOptions())
    make_foreign(tmp_path / "dataset")
    drop_features(tmp_path / "dataset", "action")
    return tmp_path / "dataset"


# -- the model -----------------------------------------------------------------------------------


def test_steps_driven_at_random_tell_what_somebody_with_a_goal_did(tmp_path: Path) -> None:
    inverse = learned(tmp_path / "own.sqlite")
    assert (inverse.episodes, inverse.steps) == (6, 120)
    assert inverse.overall > 0.9
    assert dict(inverse.known).keys() == {"dx", "dy", "dz", "rx", "ry", "rz", "gripper"}
    assert dict(inverse.known)["gripper"] > 0.8
    frames, wanted = parts(episode(40, directed=True))
    action, spread = inverse.label(frames)
    assert action.dtype == np.float32 and abs(action).max() <= 1.0
    assert np.abs(action[:, :6] - wanted[:, :6]).mean() < 0.08 * np.abs(wanted[:, :6]).mean()
    assert set(action[:, 6]) <= {-1.0, 0.0, 1.0} and (action[:, 6] == wanted[:, 6]).mean() > 0.9
    assert spread.shape == (20,) and (spread > 0.0).all()


def test_what_pushes_the_arm_does_not_count(tmp_path: Path) -> None:
    inverse = learned(tmp_path / "own.sqlite")
    frames, _ = parts(episode(40))
    pushed = []
    for f in frames:
        state = f.observation["state"].copy()
        state[7:] = 2.0
        pushed.append(replace(f, observation={"state": state}))
    assert np.array_equal(inverse.label(frames)[0], inverse.label(pushed)[0])


def test_the_spread_grows_where_nobody_has_been(tmp_path: Path) -> None:
    inverse = learned(tmp_path / "own.sqlite")
    frames, _ = parts(episode(40))
    far = [replace(f, observation={"state": f.observation["state"] * 30.0}) for f in frames]
    assert inverse.label(far)[1].mean() > 3.0 * inverse.label(frames)[1].mean()
    assert (inverse.label(far)[1] > inverse.sure).mean() > 0.5


def test_actions_that_led_to_nothing_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with store_of(tmp_path / "own.sqlite", *map(episode, range(8))) as store:
        moves = own_moves(store, SPEC)
    drawn = [Moves(m.around, rng.permutation(m.action)) for m in moves]
    with pytest.raises(ConfigError, match=r"cannot be told(.|\n)*0\.5(.|\n)*dx -?\d"):
        learn_inverse(drawn, SPEC)
    still = [Moves(m.around, np.zeros_like(m.action)) for m in moves]
    with pytest.raises(ConfigError, match=r"motion nan"):
        learn_inverse(still, SPEC)


@pytest.mark.parametrize(("episodes", "steps"), [(4, 50), (6, 5)])
def test_too_few_steps_are_refused(tmp_path: Path, episodes: int, steps: int) -> None:
    rows = [episode(n, steps) for n in range(episodes)]
    with (
        store_of(tmp_path / "own.sqlite", *rows) as store,
        pytest.raises(ConfigError, match=rf"too few(.|\n)*{episodes} episodes, {episodes * steps}"),
    ):
        learn_inverse(own_moves(store, SPEC), SPEC)


def test_what_is_not_known_is_not_learned_from(tmp_path: Path) -> None:
    both = (Driver.POLICY, Driver.DEMO)
    rows = [episode(0), episode(1), episode(2, ending=Ending.STALE), episode(3, drivers=both)]
    rows[1].append(
        Label(EpisodeId("made", "arm", 1), 1, 0, ACTION_SPREAD, 0.1, INVERSE, INVERSE, 0)
    )
    with store_of(tmp_path / "own.sqlite", *rows) as store:
        assert [len(m.action) for m in own_moves(store, SPEC)] == [20, 20]
        assert [len(m.action) for m in own_moves(store, SPEC, guided=True)] == [10]


def test_a_run_of_something_else_is_refused(tmp_path: Path) -> None:
    other = replace(SPEC, control_hz=20.0)
    with store_of(tmp_path / "own.sqlite", episode(0, spec=other), spec=other) as store:
        with pytest.raises(SpecError, match=rf"{SPEC.hash}(.|\n)*{other.hash}"):
            own_moves(store, SPEC)
        inverse = learned(tmp_path / "mine.sqlite")
        with pytest.raises(SpecError, match="not a run of 'made'"):
            import_run(store, inverse, tmp_path / "out")


def test_a_state_that_is_no_number_is_refused(tmp_path: Path) -> None:
    frames, _ = parts(episode(40))
    frames[3].observation["state"][2] = np.nan
    with pytest.raises(SpecError, match=r"frame 3 of episode 40(.|\n)*NaN"):
        learned(tmp_path / "own.sqlite").label(frames)


def test_pictures_alone_are_refused(tmp_path: Path) -> None:
    spec = replace(SPEC, observation={"image/top": TensorSpec((8, 8, 3), "uint8")}, state_layout=())
    with pytest.raises(SpecError, match="pictures only"):
        replace(learned(tmp_path / "own.sqlite"), spec=spec).label(parts(episode(1))[0])


# -- imports -------------------------------------------------------------------------------------


def test_a_dataset_without_actions_gets_them(theirs: Path, tmp_path: Path) -> None:
    inverse = learned(tmp_path / "own.sqlite")
    with pytest.raises(SpecError, match=r"nothing for action(.|\n)*--without-actions"):
        import_lerobot(theirs, SPEC, tmp_path / "demos", ImportOptions())
    assert not has_actions(theirs)
    options = ImportOptions(success="last")
    figures = import_lerobot(theirs, SPEC, tmp_path / "demos", options, inverse=inverse)
    assert (figures["episodes"], figures["steps"], figures["inferred"]) == (3, 28, 28)
    with Store(tmp_path / "demos" / STORE) as store:
        for start, rows in zip(store.episodes(), ((30, 20), (31, 9), (32, 2)), strict=True):
            steps, wanted = store.steps(start.id), parts(episode(*rows, directed=True))[1]
            assert len(steps) == rows[1] - 1 and len(store.frames(start.id)) == rows[1]
            assert {s.driver for s in steps} == {Driver.DEMO}
            off = np.stack([s.action for s in steps]) - wanted[:-1]
            assert np.abs(off[:, :6]).mean() < 0.1
            assert (steps[-1].reward, steps[-1].success) == (1.0, True)
            assert [s.reward for s in steps[:-1]] == [0.0] * (len(steps) - 1)
            labels = store.labels(start.id)
            assert [x.step for x in labels] == list(range(len(steps)))
            assert {(x.kind, x.source, x.author) for x in labels} == {
                (ACTION_SPREAD, INVERSE, INVERSE)
            }
        assert not own_moves(store, SPEC), "nobody learns from what was inferred"
    said = json.loads((tmp_path / "demos" / SUMMARY).read_text())
    assert said[INVERSE]["steps"] == 120 and said[INVERSE]["motion"] > 0.9
    assert said["inferred"] == 28 and 0 <= said["unsure"] <= 28


def test_who_learns_from_it_or_gets_it_can_tell(
    theirs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inverse = learned(tmp_path / "own.sqlite")
    import_lerobot(theirs, SPEC, tmp_path / "demos", ImportOptions(), inverse=inverse)
    with Store(tmp_path / "demos" / STORE) as store:
        write_lerobot(store, choose(store), tmp_path / "again", WriteOptions())
    identity = json.loads((tmp_path / "again" / "robot_rl.json").read_text())
    assert identity["inferred_actions"] == 28
    import_lerobot(tmp_path / "again", SPEC, tmp_path / "back", ImportOptions())
    assert "actions of 28 steps were inferred" in caplog.text
    with Store(tmp_path / "run.sqlite", spec=SPEC, reserve_bytes=0) as store:
        import_dataset(store, str(tmp_path / "demos"), SPEC)
        assert len(store.all_labels((ACTION_SPREAD,))) == 28


def test_the_end_is_taken_from_the_last_frame(theirs: Path, tmp_path: Path) -> None:
    inverse = learned(tmp_path / "own.sqlite")
    import_lerobot(theirs, SPEC, tmp_path / "demos", ImportOptions(), inverse=inverse)
    with Store(tmp_path / "demos" / STORE) as store:
        ends = [store.steps(s.id)[-1] for s in store.episodes()]
    assert [(s.reward, s.success, s.ending) for s in ends] == [(1.0, True, Ending.TERMINATED)] * 3


def test_a_single_frame_is_refused(tmp_path: Path) -> None:
    with store_of(tmp_path / "source.sqlite", episode(30, 1)) as store:
        write_lerobot(store, choose(store), tmp_path / "dataset", WriteOptions())
    make_foreign(tmp_path / "dataset")
    inverse = learned(tmp_path / "own.sqlite")
    with pytest.raises(SpecError, match="nothing happens in episode 0"):
        import_lerobot(
            tmp_path / "dataset", SPEC, tmp_path / "demos", ImportOptions(), inverse=inverse
        )


def test_an_interrupted_import_goes_on(theirs: Path, tmp_path: Path) -> None:
    def stop(done: int, _all: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    inverse, out = learned(tmp_path / "own.sqlite"), tmp_path / "demos"
    with pytest.raises(KeyboardInterrupt):
        import_lerobot(theirs, SPEC, out, ImportOptions(), stop, inverse=inverse)
    figures = import_lerobot(theirs, SPEC, out, ImportOptions(), inverse=inverse)
    assert figures == import_lerobot(theirs, SPEC, out, ImportOptions(), inverse=inverse)
    assert figures["inferred"] == 28
    with pytest.raises(ConfigError, match="another import"):  # by another model
        other = learned(tmp_path / "more.sqlite", 7)
        import_lerobot(theirs, SPEC, out, ImportOptions(), inverse=other)


def test_of_a_guided_run_the_persons_steps_get_actions(tmp_path: Path) -> None:
    inverse, both = learned(tmp_path / "own.sqlite"), (Driver.POLICY, Driver.DEMO)
    rows = [episode(n, guided=True, directed=True, drivers=both) for n in (50, 51)]
    with store_of(tmp_path / "guided.sqlite", *rows) as store:
        figures = import_run(store, inverse, tmp_path / "out")
    assert (figures["episodes"], figures["steps"], figures["inferred"]) == (2, 40, 20)
    with Store(tmp_path / "out" / STORE) as store:
        steps = store.steps(store.episodes()[0].id)
        labelled = {x.step for x in store.labels(steps[0].id)}
    asked, moved = (parts(episode(50, directed=True, guided=g))[1][:, :6] for g in (False, True))
    assert labelled == set(range(1, 20, 2))
    gripper = parts(episode(50, directed=True))[1][:, 6]
    assert [s.action[6] for s in steps] == gripper.tolist(), "what the person said"
    for s in steps:
        if s.driver is Driver.POLICY:
            assert np.array_equal(s.action[:6], moved[s.step])
        else:
            assert (
                np.abs(s.action[:6] - asked[s.step]).max()
                < 0.5 * np.abs(moved[s.step] - asked[s.step]).max() + 0.05
            )


def test_a_gap_becomes_two_episodes(tmp_path: Path) -> None:
    inverse = learned(tmp_path / "own.sqlite")
    rows = [r for r in episode(50) if not (isinstance(r, Step) and r.step == 7)]
    with store_of(tmp_path / "gap.sqlite", rows) as store:
        assert import_run(store, inverse, tmp_path / "out")["steps"] == 19
    with Store(tmp_path / "out" / STORE) as store:
        found = [[s.step for s in store.steps(e.id)] for e in store.episodes()]
    assert found == [list(range(7)), list(range(12))]


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A run of a task of ours, whose arm is the one made here: the state's last six are forces."""
    spec = Experiment.compose(["experiment=peg_insert"]).section("task").spec
    folder = tmp_path / "run"
    folder.mkdir()
    with Store(folder / STORE, spec=spec, reserve_bytes=0) as store:
        for number in range(6):
            store.append(list(map(_as_peg(spec), episode(number))))
    return folder


def _as_peg(spec: Spec) -> Callable[[Row], Row]:
    size = spec.observation["state"].shape[0]

    def row(r: Row) -> Row:
        if isinstance(r, EpisodeStart):
            return replace(r, task=spec.task, spec_hash=spec.hash)
        if isinstance(r, Frame):
            state = np.resize(r.observation["state"][:6], size)
            return replace(r, observation={"state": state})
        if isinstance(r, Step):
            return replace(r, action=r.action[:6], policy_action=r.policy_action[:6])
        return r

    return row


def test_the_command(
    real: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset, out = tmp_path / "dataset", tmp_path / "demos"
    with Store(real / STORE) as store:
        write_lerobot(store, choose(store), dataset, WriteOptions())
    words = [str(dataset), "--out", str(out), "experiment=peg_insert"]
    with pytest.raises(ConfigError, match="needs --inverse RUN"):
        import_.run([*words, "--without-actions"])
    inverse = ["--inverse", str(real)]
    with pytest.raises(ConfigError, match=r"has actions(.|\n)*a feature 'action'"):
        import_.run([*words, "--without-actions", *inverse])
    with pytest.raises(ConfigError, match=r"has actions(.|\n)*a run of ours"):
        import_.run([str(real), *words[1:], "--without-actions", *inverse])
    with pytest.raises(ConfigError, match="a run says all of this"):
        import_.run([str(real), *words[1:], *inverse, "--success", "last"])
    with pytest.raises(ConfigError, match="neither 'last'"):
        import_.run([*words, *inverse, "--success", "lst"])
    drop_features(dataset, "action")
    assert import_.run([*words, "--without-actions", *inverse]) == 0
    said = capsys.readouterr().out
    assert "learned from 6 episodes, 120 steps" in said and "(R2): motion 1.00; dx" in said
    assert "actions inferred of 120 steps" in said, "our export keeps the last frame"
    assert "WARNING" not in said
    monkeypatch.setattr(import_, "STRANGE", -1.0)  # as if most steps were unlike the model's
    assert import_.run([str(real), "--out", str(tmp_path / "again"), *words[3:], *inverse]) == 0
    assert "WARNING: most of these steps are unlike" in capsys.readouterr().out
    (real / "config.yaml").write_text("operator: {name: kinesthetic}\n")
    with pytest.raises(ConfigError, match="0 episodes, 0 steps"):
        import_.run([*words, "--without-actions", *inverse])
