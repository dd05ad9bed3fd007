"""`robot-rl bench inverse`: the four sets of demonstrations are what they claim to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("robot_rl_sim")

from robot_rl.bench import inverse
from robot_rl.config.run_folder import STORE
from robot_rl.errors import ConfigError
from robot_rl.store.labels import ACTION_SPREAD
from robot_rl.store.store import Store
from robot_rl.types import EpisodeId


def test_the_sets_differ_in_their_actions_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inverse, "DEMONSTRATIONS", {"peg_insert": 10})
    monkeypatch.setattr(inverse, "SHARE", 2)
    monkeypatch.setattr(inverse, "_measured", lambda *_: 7)
    found = inverse.bench(folder=tmp_path, seeds=1, progress=lambda *_: None, only="clone")
    assert {k: v for k, v in found.items() if "/" in k} == {
        f"clone/{name}": [7] for name in inverse.SETS
    }
    assert found["known"][0] > 0.5 and found["wrong"][0] < 0.5
    place = tmp_path / "peg_insert_s0"
    states, actions, labels = {}, {}, {}
    for name in inverse.SETS:
        with Store(place / f"set_{name}" / STORE) as store:
            ids = [s.id for s in store.episodes() if s.id.run != "with"]
            states[name] = [_states(store, i) for i in ids]
            actions[name] = [np.stack([s.action for s in store.steps(i)]) for i in ids]
            labels[name] = len(store.all_labels((ACTION_SPREAD,)))
            assert len(store.episodes()) == (5 if name == "few" else 10)
    for a, b, c in zip(states["all"], states["inverse"], states["guided"], strict=True):
        assert np.array_equal(a, c), "guided or not, the same motions"
        assert np.array_equal(a[:-1], b), "without the frame after the last step"
    for a, b, c in zip(actions["all"], actions["inverse"], actions["guided"], strict=True):
        assert not np.array_equal(a, c) and not np.array_equal(a[:-1], b)
        assert np.abs(a[:-1] - b).mean() < np.abs(a - c).mean()
    assert labels == {"all": 0, "few": 0, "guided": 0, "inverse": sum(map(len, actions["inverse"]))}
    again = inverse.bench(folder=tmp_path, seeds=1, progress=lambda *_: None, only="clone")
    assert again == found, "what is finished is kept"


def test_figures_of_another_commit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figures.jsonl"
    monkeypatch.setattr(inverse, "git_state", lambda: {"commit": "a", "dirty": False})
    inverse._Kept(path).get(["clone"], lambda: 90)
    monkeypatch.setattr(inverse, "git_state", lambda: {"commit": "a", "dirty": True})  # this file
    assert inverse._Kept(path).get(["clone"], lambda: 10) == 90, "what is finished is kept"
    monkeypatch.setattr(inverse, "git_state", lambda: {"commit": "b", "dirty": False})
    with pytest.raises(ConfigError, match="of another commit") as error:
        inverse._Kept(path)
    assert error.value.got.endswith("of a") and error.value.expected.endswith("of b")
    path.write_text('[["clone"], 90]\n')  # as it was kept once
    with pytest.raises(ConfigError, match="not kept"):
        inverse._Kept(path)


def test_a_part_that_is_not_there_gets_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'clone'"):
        inverse.bench(folder=tmp_path, seeds=1, progress=lambda *_: None, only="clones")


def _states(store: Store, id_: EpisodeId) -> np.ndarray:
    return np.stack([f.observation["state"] for f in store.frames(id_)])
