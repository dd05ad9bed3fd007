"""Data of other runs: imported once, learned from offline, and what comes after."""

from __future__ import annotations

from pathlib import Path

import pytest

from robot_rl.errors import CheckpointError, SpecError, StoreError
from robot_rl.learn.algos import BcConfig, CalQlConfig, HilSerlConfig, IqlConfig
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.spec import ActionSpec, Spec, TensorSpec
from robot_rl.store.dataset import import_dataset
from robot_rl.store.store import Store
from tests.support.point_mass import SPEC, FakeStore, PointMass, demonstrate

SMALL = {"hidden": (16,), "batch_size": 32}
QUIET = LearnerConfig(publish_period_s=0.0, checkpoint_updates=0)


def recorded(folder: Path, episodes: int = 3) -> Path:
    """A run folder with a store of demonstrations."""
    rows = FakeStore()
    demonstrate(rows, PointMass(0), episodes)
    folder.mkdir()
    with Store(folder / "store.sqlite", spec=SPEC, reserve_bytes=0) as store:
        store.append(rows.rows)
    return folder


def test_imported_episodes_are_offline_data_and_arrive_once(tmp_path: Path) -> None:
    source = recorded(tmp_path / "old")
    with Store(tmp_path / "new.sqlite", spec=SPEC, reserve_bytes=0) as store:
        assert import_dataset(store, str(source), SPEC) == 3
        before = store.last_seq()
        assert import_dataset(store, str(source / "store.sqlite"), SPEC) == 3
        assert store.last_seq() == before
        assert {s.purpose for s in store.episodes()} == {"data"}
        learner = Learner(QUIET, HilSerlConfig(**SMALL), SPEC, store, run_dir=tmp_path, seed=0)
        learner.ingest()
        assert learner.env_steps == 0 and learner.replay.len_online == 0
        assert learner.replay.len_demo == sum(len(store.steps(s.id)) for s in store.episodes())
        learner.close()


def test_data_of_another_spec_or_no_data_is_refused(tmp_path: Path) -> None:
    source = recorded(tmp_path / "old")
    other = Spec("point_mass", 10.0, {"state": TensorSpec((5,), "float32")}, SPEC.action)
    with Store(tmp_path / "new.sqlite", spec=other, reserve_bytes=0) as store:
        with pytest.raises(SpecError, match=r"(?s)another observation or action.*shape"):
            import_dataset(store, str(source), other)
        with pytest.raises(StoreError, match="no data"):
            import_dataset(store, str(tmp_path), other)
        assert store.last_seq() == 0


def test_networks_of_another_run_are_taken_over_and_its_counters_not(tmp_path: Path) -> None:
    store = FakeStore()
    demonstrate(store, PointMass(0), 3)
    offline = LearnerConfig(pretrain_updates=20, publish_period_s=0.0, checkpoint_updates=0)
    old = Learner(offline, CalQlConfig(**SMALL), SPEC, store, run_dir=tmp_path / "old", seed=0)
    old.ingest()
    old.update(old.updates_due())
    old.save()
    config = LearnerConfig(init_from=str(tmp_path / "old"), publish_period_s=0.0)
    new = Learner(config, HilSerlConfig(**SMALL), SPEC, store, run_dir=tmp_path / "new", seed=1)
    assert new.updates == 0 and new.updates_due() == 0
    for key, value in old.algo.actor_state().items():
        assert (value == new.algo.actor_state()[key]).all()
    with pytest.raises(CheckpointError, match="nothing to start from"):
        Learner(
            LearnerConfig(init_from=str(tmp_path)),
            HilSerlConfig(**SMALL),
            SPEC,
            store,
            run_dir=tmp_path / "n",
            seed=0,
        )
    wide = HilSerlConfig(hidden=(32,), batch_size=32)
    with pytest.raises(CheckpointError, match="another network"):
        Learner(config, wide, SPEC, store, run_dir=tmp_path / "wide", seed=0)
    gripper = Spec("point_mass", 10.0, SPEC.observation, ActionSpec(0.1, 0.1, gripper=True))
    with pytest.raises(CheckpointError):
        Learner(config, HilSerlConfig(**SMALL), gripper, store, run_dir=tmp_path / "g", seed=0)
    old.close()
    new.close()


def pretrained(algo: object, folder: Path) -> Learner:
    """A learner that learned from demonstrations and saved."""
    store = FakeStore()
    demonstrate(store, PointMass(0), 3)
    config = LearnerConfig(pretrain_updates=20, publish_period_s=0.0, checkpoint_updates=0)
    learner = Learner(config, algo, SPEC, store, run_dir=folder, seed=0)  # type: ignore[arg-type]
    learner.ingest()
    learner.update(learner.updates_due())
    learner.save()
    learner.close()
    return learner


@pytest.mark.parametrize("before", [IqlConfig(**SMALL), BcConfig(hidden=(16,), batch_size=32)])
def test_networks_of_another_algorithm_are_taken_over_as_far_as_both_have_them(
    tmp_path: Path, before: object
) -> None:
    old = pretrained(before, tmp_path / "old")
    config = LearnerConfig(init_from=str(tmp_path / "old"), publish_period_s=0.0)
    algo = HilSerlConfig(**SMALL, policy_tau=0.1)
    new = Learner(config, algo, SPEC, FakeStore(), run_dir=tmp_path / "new", seed=1)
    was, now = old.algo.state_dict(), new.algo.state_dict()
    for key, value in old.algo.actor_state().items():
        assert (value == new.algo.actor_state()[key]).all()  # the slow policy drives
    if "critic" in was:
        assert (was["critic"] == now["critic"]).all()
        assert (was["critic_slow"] == now["critic_slow"]).all()
        assert (was["critic_optimizer/critic/exp_avg"] != 0).any()
        first = "critic_optimizer/critic/exp_avg"
        assert (was[first] == now[first]).all()
    assert int(was["updates"]) and not int(now["updates"])
    assert (was["generator"] != now["generator"]).any()
    new.close()
