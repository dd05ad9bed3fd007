"""Import of a Minari dataset, as Minari's own storage writes it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from robot_rl.cli.main import main
from robot_rl.config.run_folder import STORE
from robot_rl.data.minari_import import import_minari, is_minari
from robot_rl.errors import ConfigError, SpecError, StoreError
from robot_rl.store.dataset import import_dataset
from robot_rl.store.store import Store
from robot_rl.tasks.gym import GymTask
from robot_rl.types import Driver, Ending, EpisodeStart, Frame, Step
from tests.support.gym import POINT, Point, ToGoal, register_point

minari = pytest.importorskip("minari", reason="needs the extra 'minari'")
EpisodeBuffer = minari.data_collector.EpisodeBuffer
MinariStorage = minari.dataset.minari_storage.MinariStorage


class Seen(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The point with a picture, in a Dict."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        picture = spaces.Box(0, 255, (16, 16, 3), np.uint8)
        self.observation_space = spaces.Dict({"place": env.observation_space, "top": picture})

    def observation(self, observation: Any) -> dict[str, Any]:
        shade = np.uint8(100 + 100 * observation[0])
        return {"place": observation, "top": np.full((16, 16, 3), shade)}


def seen(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    return Seen(Point(**kwargs))


SEEN = "robot_rl_test/Seen-v0"


@pytest.fixture(autouse=True)
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both are registered while the test runs, and Minari writes into the test's folder."""
    before = dict(gymnasium.registry)
    register_point()
    gymnasium.register(SEEN, f"{__name__}:seen", max_episode_steps=30)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def recorded(env_id: str = POINT, *, steps: int = 30, infos: bool = True) -> Path:
    """Three episodes of the expert, each of at most `steps`; returns the dataset's folder.

    Written by Minari's storage, without its collector, which needs JAX.
    """
    env, expert = gymnasium.make(env_id), ToGoal()
    folder = Path(os.environ["MINARI_DATASETS_PATH"]) / "lab" / "point-v0"
    (folder / "data").mkdir(parents=True)
    spaces_ = env.observation_space, env.action_space
    storage = MinariStorage.new(folder / "data", *spaces_, env_spec=env.spec)
    storage.update_metadata({"dataset_id": "lab/point-v0", "minari_version": minari.__version__})
    for seed in range(3):
        seen, said, done = [env.reset(seed=seed)[0]], [(np.nan, False, False, False)], []
        while len(done) < steps and not any(said[-1][1:3]):
            done.append(np.asarray(expert(env), env.action_space.dtype))
            observation, reward, terminated, truncated, info = env.step(done[-1])
            seen.append(observation)
            said.append((float(reward), terminated, truncated, info["is_success"]))
        rewards, terminations, truncations, won = (list(some) for some in zip(*said, strict=True))
        episode = EpisodeBuffer(
            id=seed,
            observations=_columns(seen),
            actions=done,
            rewards=rewards[1:],
            terminations=terminations[1:],
            truncations=[*truncations[1:-1], truncations[-1] or not terminations[-1]],
            infos={"is_success": won} if infos else {},
        )
        storage.update_episodes([episode])
    env.close()
    return folder


def _columns(observations: list[Any]) -> Any:
    first = observations[0]
    return (
        {k: [o[k] for o in observations] for k in first}
        if isinstance(first, dict)
        else observations
    )


def rows(folder: Path) -> list[list[Step]]:
    with Store(folder / STORE) as store:
        return [store.steps(start.id) for start in store.episodes()]


def test_every_step_is_a_demonstration_in_our_units(tmp_path: Path) -> None:
    source, task, out = recorded(), GymTask(env_id=POINT), tmp_path / "demos"
    assert is_minari(source) and is_minari(source / "data") and not is_minari(tmp_path)
    figures = import_minari(source, task, out)
    theirs = list(minari.MinariDataset(source / "data"))
    assert figures == {"episodes": 3, "steps": sum(map(len, theirs))}
    for steps, their in zip(rows(out), theirs, strict=True):
        assert {step.driver for step in steps} == {Driver.DEMO}
        assert np.allclose([step.action for step in steps], their.actions / 10.0, atol=1e-6)
        assert [step.reward for step in steps] == [*[0.0] * (len(their) - 1), 1.0]
        assert (steps[-1].ending, steps[-1].success) == (Ending.TERMINATED, True)
    with Store(out / STORE) as store:
        frames = store.frames(store.episodes()[1].id)
        found, _ = store.rows_since(0, 100_000)
        kinds = [type(row) for row in found if row.id.episode == 1]
        assert kinds == [EpisodeStart, Frame, *[Step, Frame] * len(theirs[1])]  # as a loop records
    assert np.array_equal([f.observation["state"] for f in frames], theirs[1].observations)
    with Store(tmp_path / "run.sqlite", spec=task.spec, reserve_bytes=0) as store:
        assert import_dataset(store, str(out), task.spec) == 3


def test_pictures_in_a_dict(tmp_path: Path) -> None:
    source, task = recorded(SEEN), GymTask(env_id=SEEN)
    import_minari(source, task, tmp_path / "demos")
    with Store(tmp_path / "demos" / STORE) as store:
        frame = store.frames(store.episodes()[0].id)[0].observation
    shade = 100 + 100 * frame["state"][0]
    assert frame["image/top"].shape == (16, 16, 3)
    assert np.abs(frame["image/top"] - shade).max() < 8  # Minari stores JPEG


def test_an_episode_that_was_cut_is_truncated_and_nobody_says_what_it_was_worth(
    tmp_path: Path,
) -> None:
    import_minari(recorded(steps=2), GymTask(env_id=POINT), tmp_path / "said")
    last = rows(tmp_path / "said")[0][-1]
    assert (last.ending, last.success, last.reward) == (Ending.TRUNCATED, False, 0.0)


def test_without_infos_only_success_last_knows(tmp_path: Path) -> None:
    source, task = recorded(infos=False), GymTask(env_id=POINT)
    import_minari(source, task, tmp_path / "silent")
    assert rows(tmp_path / "silent")[0][-1].success is None
    import_minari(source, task, tmp_path / "told", "last")
    for steps in rows(tmp_path / "told"):
        assert [step.reward for step in steps] == [*[0.0] * (len(steps) - 1), 1.0]
        assert steps[-1].success is True
    with pytest.raises(ConfigError, match="holds something else"):
        import_minari(source, task, tmp_path / "told")


def test_an_interrupted_import_goes_on(tmp_path: Path) -> None:
    source, task, out = recorded(), GymTask(env_id=POINT), tmp_path / "demos"

    def stop(done: int, _all: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_minari(source, task, out, progress=stop)
    assert not (out / STORE).exists()
    import_minari(source, task, out)
    import_minari(source, task, out)  # complete: nothing to do
    assert len(rows(out)) == 3
    data = next(p for p in source.rglob("*.hdf5"))
    data.write_bytes(data.read_bytes() + b" ")
    with pytest.raises(ConfigError, match="holds another dataset"):
        import_minari(source, task, out)


def test_another_environment_is_refused(tmp_path: Path) -> None:
    source, out = recorded(), tmp_path / "demos"
    with pytest.raises(SpecError, match=r"place: nothing -> \[4\]"):
        import_minari(source, GymTask(env_id=SEEN), out)
    gripper = GymTask(env_id=POINT, env_kwargs={"grip": True})
    with pytest.raises(SpecError, match="action: Box"):
        import_minari(source, gripper, out)
    assert not out.exists()


def test_a_dataset_never_chooses_what_code_is_run(tmp_path: Path) -> None:
    source = recorded()
    file = source / "data" / "metadata.json"
    said = json.loads(file.read_text())
    evil = json.loads(said["env_spec"]) | {"entry_point": f"{__name__}:_run"}
    del said["observation_space"]
    file.write_text(json.dumps(said | {"env_spec": json.dumps(evil)}))
    with pytest.raises(StoreError, match="does not say what the spaces"):
        import_minari(source, GymTask(env_id=POINT), tmp_path / "demos")


def _run(**_kwargs: Any) -> None:
    raise AssertionError("the dataset was obeyed")


@pytest.mark.parametrize("harm", ["cut", "metadata", "action", "nan"])
def test_damage_is_told_and_leaves_no_store(tmp_path: Path, harm: str) -> None:
    source, out = recorded(), tmp_path / "demos"
    data = source / "data" / "main_data.hdf5"
    if harm == "cut":
        data.write_bytes(data.read_bytes()[:5000])
    elif harm == "metadata":
        file = source / "data" / "metadata.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"data_format": "tar"}))
    else:
        import h5py

        with h5py.File(data, "a") as file:
            part: Any = file["episode_1/actions" if harm == "action" else "episode_1/observations"]
            part[0] = 11.0 if harm == "action" else np.nan
    with pytest.raises((StoreError, SpecError)):
        import_minari(source, GymTask(env_id=POINT), out)
    assert not (out / STORE).exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = recorded(), tmp_path / "demos"
    words = ["import", str(source), "--out", str(out)]
    assert main([*words, "experiment=gym", f"task.env_id={POINT}"]) == 0
    assert "3 episodes" in capsys.readouterr().out
    assert main([*words, "experiment=reach"]) == 2
    assert "experiment=gym" in capsys.readouterr().err
    assert main([*words, "experiment=gym", f"task.env_id={POINT}", "--map", "a=b"]) == 2
    assert "--map" in capsys.readouterr().err
