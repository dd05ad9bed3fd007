"""Replays: exact in lockstep, honest about what differs, clear about what cannot be played."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.cli.main import main
from robot_rl.cli.replay import line
from robot_rl.control.loop import Policy
from robot_rl.errors import ConfigError, SetupError, StoreError
from robot_rl.run.experiment import Experiment
from robot_rl.run.lockstep import make_rig
from robot_rl.run.parts import session_of
from robot_rl.run.replay import replay, ruler_of
from robot_rl.spec import Spec
from robot_rl.store.store import Store
from robot_rl.types import EpisodeStart, Event, Row
from tests.support.session import Lines

WORDS = ["runtime=lockstep", "train.demos=1", "task.max_steps=40", "seed=3"]
FAR_MM = 1e-3  # of a command that was clipped, the action is stored in single precision


class Untrained(Policy):
    """`Policy` that does anything, anew in every tick."""

    version = 0

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def act(self, observation: object, deterministic: bool) -> np.ndarray:
        return self.rng.uniform(-1.0, 1.0, 6).astype(np.float32)


def record(folder: Path, *words: str) -> Path:
    """A run: one demonstration, then three episodes of practice with corrections."""
    experiment = Experiment.compose([*WORDS, *words, f"run_dir={folder}"])
    experiment.save()
    with Store(folder / "store.sqlite", spec=experiment.task.spec, reserve_bytes=0) as store:
        bench: Any = make_rig(experiment, Untrained(), record=store.append)
        session = session_of(experiment, bench.loop, bench.reset, metrics=Lines(), store=store)
        session.demos()
        for seed in (1, 2, 3):
            session.episode("train", seed)
    return folder


@pytest.fixture(scope="module", params=["peg_insert_easy", "reach"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each of two tasks; tests only read it."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    return record(folder, f"experiment={request.param}")


@pytest.fixture(scope="module")
def peg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run; copy it to change it."""
    return record(tmp_path_factory.mktemp("peg") / "run", "experiment=peg_insert_easy")


@pytest.fixture
def changed(peg: Path, tmp_path: Path) -> Callable[[Callable[[Row], Row | None]], Path]:
    """The run with its rows passed through a function; None drops a row."""

    def change(edit: Callable[[Row], Row | None]) -> Path:
        folder = shutil.copytree(peg, tmp_path / "run")
        with Store(folder / "store.sqlite") as store:
            rows, spec = store.rows_since(0, 10**6)[0], store.spec
        for path in folder.glob("store.sqlite*"):
            path.unlink()
        with Store(folder / "store.sqlite", spec=spec, reserve_bytes=0) as store:
            store.append([new for row in rows if (new := edit(row)) is not None])
        return folder

    return change


def content(run: Path) -> dict[str, str]:
    """Digest of every file of a run."""
    files = sorted(p for p in run.rglob("*") if p.is_file())
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_a_replay_comes_out_as_the_recording_and_every_time_alike(run: Path) -> None:
    before = content(run)
    first, again = replay(run, every=True), replay(run, every=True)
    assert first == again
    assert content(run) == before
    assert [one.episode for one in first] == [0, 1, 2, 3]
    assert [one.purpose for one in first] == ["demo", "train", "train", "train"]
    for one in first:
        assert one.as_recorded and max(one.off) < FAR_MM and one.unit == "mm"
        assert one.off[0] == 0.0, "the start is the same to the last bit"
        assert one.outcomes_before["clipped"] or not any(one.off), "and so is what was not clipped"
        assert one.steps == sum(one.outcomes.values()) == sum(one.outcomes_before.values())
        assert one.outcomes["hold"] == one.outcomes_before["hold"]
    assert first[0].success and any(one.outcomes_before["clipped"] for one in first)


def test_a_line_says_why_the_gate_held_and_what_it_did_before(peg: Path) -> None:
    (one,) = replay(peg)
    held = {"pass": one.steps - 1, "clipped": 0, "hold": 1}
    said = line(replace(one, held="force: contact beyond the limit", outcomes=held, success=True))
    assert "BEFORE: no success" in said and "1 hold (before: " in said
    assert said.endswith("first held because of force: contact beyond the limit")
    assert "nobody said" in line(replace(one, before=None))


def test_the_newest_episode_is_the_default_and_numbers_choose(peg: Path) -> None:
    assert [one.episode for one in replay(peg)] == [3]
    done: list[tuple[int, int]] = []
    chosen = replay(peg, numbers=[2, 0], progress=lambda *now: done.append(now))
    assert [one.episode for one in chosen] == [2, 0]
    steps = sum(one.steps for one in chosen)
    assert done == [(n, steps) for n in range(1, steps + 1)]


def test_a_replay_from_another_start_is_seen(changed: Any, capsys: Any, tmp_path: Path) -> None:
    folder = changed(lambda r: replace(r, seed=r.seed + 7) if isinstance(r, EpisodeStart) else r)
    (one,) = replay(folder, numbers=[0])
    assert one.off[0] > 5.0 and one.before is True
    code = main(["replay", str(folder), "--episode", "0", "--json", str(tmp_path / "f.json")])
    assert code == (0 if one.success else 1)
    said = capsys.readouterr().out
    assert "off the recorded start" in said and ("BEFORE: success" in said) is not one.success
    figures = json.loads((tmp_path / "f.json").read_text())["episodes"][0]
    assert figures["off_max"] == max(one.off) and figures["as_recorded"] is one.success


def test_the_verb_says_how_it_went(peg: Path, capsys: Any, tmp_path: Path) -> None:
    assert main(["replay", str(peg), "--all", "--json", str(tmp_path / "f.json")]) == 0
    said = capsys.readouterr().out
    assert "steps replayed" in said and "4 of 4 end as before; off by 0.00 mm at most" in said
    assert "in 'tip_in_hole'" in said and said.count("\nepisode ") == 4
    figures = json.loads((tmp_path / "f.json").read_text())["episodes"]
    assert [f["episode"] for f in figures] == [0, 1, 2, 3]
    assert figures[0]["outcomes"].keys() == {"pass", "clipped", "hold"}
    assert len(figures[0]["off"]) == figures[0]["steps"] + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--episode", "9"], "one of 0-3"),
        (["--episode", "1,x"], "takes numbers"),
        (["--episode", "-1"], "takes numbers"),
        (["--episode", "1", "--all"], "not allowed with"),
        (["--actor", "actor-1"], "did you mean 'actor-0'"),
        (["--video", "film.avi"], "an .mp4 file"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_error(
    peg: Path, words: list[str], message: str, capsys: Any
) -> None:
    assert main(["replay", str(peg), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and all(f"  {x}:" in error for x in ("expected", "got", "fix"))


def test_an_episode_that_has_not_ended_is_not_played(changed: Any) -> None:
    folder = changed(lambda r: None if getattr(r, "ending", None) and r.id.episode >= 2 else r)
    with pytest.raises(StoreError, match="episode 3 has not ended") as error:
        replay(folder, numbers=[3])
    assert "0-1" in error.value.expected and "train with the same run_dir" in error.value.fix
    assert [one.episode for one in replay(folder)] == [1]
    unended = changed_again(folder, "episode_aborted", 2)
    assert [one.episode for one in replay(unended)] == [2], "closed when the run was taken up again"


def changed_again(folder: Path, event: str, episode: int) -> Path:
    """The same run, with one more event in an episode."""
    with Store(folder / "store.sqlite", reserve_bytes=0) as store:
        id_ = next(s.id for s in store.episodes() if s.id.episode == episode)
        store.append([Event(id_, len(store.events(id_)), 0, event, "", 0)])
    return folder


def test_a_store_without_any_episode_that_ended(changed: Any) -> None:
    with pytest.raises(StoreError, match="there is no episode to replay"):
        replay(changed(lambda r: None if getattr(r, "ending", None) else r), every=True)


def test_a_run_that_recorded_nothing(tmp_path: Path) -> None:
    folder = Experiment.compose([*WORDS, f"run_dir={tmp_path / 'new'}"]).save()
    with pytest.raises(StoreError, match="no data in"):
        replay(folder)


def test_gaps_are_said(changed: Any) -> None:
    folder = changed(lambda r: None if getattr(r, "frame", None) == 4 else r)
    with pytest.raises(StoreError, match="has gaps"):
        replay(folder, numbers=[0])


def test_two_robots_with_one_number_need_a_name(changed: Any) -> None:
    def second(row: Row) -> Row:
        return replace(row, id=replace(row.id, actor="left")) if row.id.episode == 1 else row

    def both(row: Row) -> Row:
        row = second(row)
        return replace(row, id=replace(row.id, episode=0)) if row.id.actor == "left" else row

    folder = changed(both)
    with pytest.raises(ConfigError, match="several robots have an episode 0"):
        replay(folder, numbers=[0])
    (one,) = replay(folder, numbers=[0], actor="left")
    assert one.actor == "left" and one.purpose == "train" and max(one.off) < FAR_MM


def test_data_of_another_run_is_not_played_from_this_ones_seed(changed: Any) -> None:
    def imported(row: Row) -> Row:
        if row.id.episode != 3:
            return row
        row = replace(row, id=replace(row.id, run="other"))
        return replace(row, purpose="data") if isinstance(row, EpisodeStart) else row

    folder = changed(imported)
    assert [one.episode for one in replay(folder, every=True)] == [0, 1, 2]
    with pytest.raises(ConfigError, match="there is no episode 3"):
        replay(folder, numbers=[3])


def test_a_folder_that_was_renamed_replays(peg: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(peg, tmp_path / "kept")
    assert max(replay(folder, numbers=[0])[0].off) < FAR_MM


def test_a_store_of_another_task_is_refused(peg: Path, tmp_path: Path) -> None:
    folder = Experiment.compose(
        [*WORDS, "experiment=reach", f"run_dir={tmp_path / 'reach'}"]
    ).save()
    shutil.copy(peg / "store.sqlite", folder)
    with pytest.raises(StoreError, match="recorded with another task") as error:
        replay(folder)
    assert "task: peg_insert -> reach" in error.value.got


def test_a_task_without_a_simulated_arm_is_refused(tmp_path: Path) -> None:
    words = ["experiment=gym", "task.env_id=Pendulum-v1", f"run_dir={tmp_path / 'gym'}"]
    with pytest.raises(ConfigError, match="'Pendulum-v1' has no simulated arm"):
        replay(Experiment.compose(words).save())


def test_other_limits_are_said(changed: Any, caplog: pytest.LogCaptureFixture) -> None:
    replay(changed(lambda r: replace(r, limits_hash="x") if isinstance(r, EpisodeStart) else r))
    assert "under other limits" in caplog.text


@pytest.mark.parametrize(
    ("words", "entry", "scale_mm"),
    [
        (["task=peg_insert"], "tip_in_hole", 50.0),
        (["task=reach"], "goal_in_tcp", 100.0),
        (["task=lift", "task.privileged=false", "task.images=[wrist]"], "tcp_in_workspace", 100.0),
    ],
)
def test_distances_are_those_of_a_position(words: list[str], entry: str, scale_mm: float) -> None:
    ruler = ruler_of(Experiment.compose(words).task.spec)
    state = np.zeros(40, np.float32)
    there = state.copy()
    there[:3] = (0.0, 0.3, 0.4)
    assert (ruler.entry, ruler.unit) == (entry, "mm")
    assert ruler.apart(state, there) == pytest.approx(0.5 * scale_mm)


def test_without_a_position_the_largest_difference_of_any_entry_counts() -> None:
    layout = (("speed", 3, "0.1 m/s"), ("height", 1, "100 mm"), ("fine", 3, "tanh of 2 mm"))
    ruler = ruler_of(Spec("t", 10.0, {}, Experiment.compose([]).task.spec.action, layout))
    state = np.arange(7, dtype=np.float32)
    assert (ruler.entry, ruler.unit) == ("", "")
    assert ruler.apart(state, state[::-1]) == 6.0


@pytest.mark.gl
def test_a_replay_can_be_filmed(peg: Path, tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "films" / "replay.mp4"
    try:
        (one,) = replay(peg, numbers=[0], video=path)
    except SetupError as error:
        if os.environ.get("REQUIRE_GL"):
            raise
        pytest.skip(f"no OpenGL here: {error}")
    with av.open(str(path)) as film:
        assert film.streams.video[0].frames == one.steps + 6  # the last one stays for 0.6 s
    assert [p.name for p in path.parent.iterdir()] == ["replay.mp4"]
