"""The learner's promises: budget, publication, exact resume, and no harm from bad checkpoints."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from robot_rl.errors import CheckpointError, ConfigError, RobotRLError, StoreError
from robot_rl.learn import ranks
from robot_rl.learn.algos import HilSerlConfig, Td3Config
from robot_rl.learn.algos.base import Trained
from robot_rl.learn.checkpoint import CheckpointFolder, read_checkpoint
from robot_rl.learn.learner import Learner, LearnerConfig
from robot_rl.learn.metrics import MetricSink
from robot_rl.learn.versions import AHEAD
from robot_rl.types import Driver
from tests.support.clock import ManualClock
from tests.support.point_mass import SPEC, FakeStore, PointMass, demonstrate

ALGO = HilSerlConfig(hidden=(16, 16), batch_size=16, critics=3)
CONFIG = LearnerConfig(min_steps=20, publish_period_s=0.0, checkpoint_updates=0, log_updates=10)


def random_practice(store: FakeStore, episodes: int, seed: int = 0) -> None:
    """Practice rows of a policy that knows nothing."""
    env = PointMass(seed)
    env.episodes = len(store.rows)  # fresh identities
    for _ in range(episodes):
        act = lambda _: (env.rng.uniform(-1, 1, 6).astype(np.float32), Driver.POLICY)  # noqa: E731
        store.rows += env.episode(act)[0]


@pytest.fixture
def store() -> FakeStore:
    rows = FakeStore()
    demonstrate(rows, PointMass(0), 3)
    random_practice(rows, 3)
    return rows


def make(store: FakeStore, folder: Path, config: LearnerConfig = CONFIG, seed: int = 0) -> Learner:
    return Learner(config, ALGO, SPEC, store, run_dir=folder, seed=seed, clock=ManualClock())


def states_equal(a: Learner, b: Learner) -> bool:
    one, other = a.algo.state_dict(), b.algo.state_dict()
    return one.keys() == other.keys() and all(torch.equal(v, other[k]) for k, v in one.items())


def test_updates_follow_the_data_and_stop_with_it(store: FakeStore, tmp_path: Path) -> None:
    learner = make(store, tmp_path, replace(CONFIG, utd=2.0))
    new = learner.ingest()
    assert new == learner.env_steps
    assert learner.updates_due() == 2 * new
    learner.update(learner.updates_due())
    assert learner.updates_due() == 0
    assert learner.ingest() == 0
    assert learner.updates_due() == 0
    assert learner.updates == 2 * new


def test_backlog_is_capped(store: FakeStore, tmp_path: Path) -> None:
    learner = make(store, tmp_path, replace(CONFIG, utd=20.0, max_backlog=50))
    learner.ingest()
    assert learner.updates_due() == 50


def test_learning_waits_for_min_steps_but_not_for_pre_training(
    store: FakeStore, tmp_path: Path
) -> None:
    learner = make(store, tmp_path, replace(CONFIG, min_steps=10_000, pretrain_updates=6))
    assert learner.updates_due() == 0  # no data at all
    learner.ingest()
    assert learner.updates_due() == 6
    assert learner.update(6) == 6
    assert learner.updates_due() == 0


def test_practice_pays_for_its_updates_while_there_is_nothing_to_pre_train_on(
    tmp_path: Path,
) -> None:
    store = FakeStore()
    random_practice(store, 3)
    learner = make(store, tmp_path, replace(CONFIG, utd=1.0, pretrain_updates=1000))
    due = learner.ingest()
    assert learner.updates_due() == due > 0
    learner.update(due)
    assert learner.updates_due() == 0
    env = PointMass(1)
    env.episodes = 100  # not those of practice
    demonstrate(store, env, 1)
    learner.ingest()
    assert learner.updates_due() == 1000  # none of them was used up


@pytest.mark.parametrize(
    ("settings", "compiler", "compiled_before"),
    [
        ({"compile_after_updates": 20}, "g++", [False, False, True]),
        ({"compile_after_updates": 20}, "no-such-compiler", [False, False, False]),
        ({"compile_after_updates": 0}, "g++", [False, False, False]),
        ({"compile_after_updates": 20, "publish_period_s": 1.0}, "g++", [False, False, False]),
        ({"compile": True}, "g++", [True, True, True]),
    ],
)
def test_a_long_run_is_compiled_by_itself_where_there_is_a_compiler(
    *,
    settings: dict[str, Any],
    compiler: str,
    compiled_before: list[bool],
    store: FakeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = list[str]()
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "g++" else None)
    monkeypatch.setattr(Trained, "compile", lambda self: compiled.append(type(self).__name__))
    learner = make(store, tmp_path, replace(CONFIG, **settings))
    learner.ingest()
    seen = list[bool]()
    for _ in range(3):
        learner.update(10)
        seen.append(bool(compiled))
    assert seen == compiled_before
    assert len(compiled) <= 1


def test_resume_is_exact_to_the_bit(store: FakeStore, tmp_path: Path) -> None:
    learner = make(store, tmp_path)
    learner.ingest()
    learner.update(20)
    learner.save()
    random_practice(store, 2, seed=5)  # arrives after the checkpoint
    learner.ingest()
    learner.update(20)
    resumed = make(store, tmp_path, seed=99)
    assert resumed.load()
    assert resumed.updates == 20
    resumed.ingest()
    resumed.update(20)
    assert states_equal(learner, resumed)
    assert resumed.env_steps == learner.env_steps
    assert resumed.updates_due() == learner.updates_due()
    assert resumed.weights().version > learner.weights().version - 1


def test_equal_seeds_give_equal_runs(store: FakeStore, tmp_path: Path) -> None:
    runs = [make(store, tmp_path / str(i)) for i in range(2)]
    for learner in runs:
        learner.ingest()
        learner.update(20)
    assert states_equal(*runs)


def test_nothing_to_load_is_no_error(store: FakeStore, tmp_path: Path) -> None:
    assert make(store, tmp_path).load() is False


@pytest.mark.parametrize("damage", ["truncate", "flip", "manifest", "gone"])
def test_damaged_checkpoint_falls_back_to_the_one_before(
    damage: str, store: FakeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner = make(store, tmp_path)
    learner.ingest()
    learner.update(4)
    good = learner.save()
    learner.update(4)
    bad = learner.save()
    tensors, manifest = bad / "tensors.safetensors", bad / "manifest.json"
    data = bytearray(tensors.read_bytes())
    if damage == "truncate":
        tensors.write_bytes(data[:-100])
    elif damage == "flip":
        data[-5] ^= 1
        tensors.write_bytes(data)
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:50])
    else:
        tensors.unlink()
    before = sorted(p.name for p in bad.iterdir())
    resumed = make(store, tmp_path)
    assert resumed.load()
    assert resumed.updates == 4
    assert "left aside" in caplog.text
    for _ in range(5):
        resumed.save()
    assert sorted(p.name for p in bad.iterdir()) == before  # evidence stays
    assert not good.exists()  # while good ones are pruned


def test_any_changed_bit_of_a_checkpoint_is_noticed_or_means_nothing(
    store: FakeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner = make(store, tmp_path)
    learner.ingest()
    learner.update(4)
    good = learner.save()
    learner.update(4)
    newest = learner.save()
    whole = read_checkpoint(newest, SPEC.hash)
    rng = np.random.default_rng(0)
    fell_back = 0
    for flip in range(200):
        path = newest / ("manifest.json" if flip % 4 else "tensors.safetensors")
        data = path.read_bytes()
        at = int(rng.integers(len(data)))
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        caplog.clear()
        loaded = CheckpointFolder(tmp_path / "checkpoints").load(SPEC.hash)
        assert loaded is not None
        if "left aside" in caplog.text:
            fell_back += 1
            assert loaded.facts["updates"] == 4
        else:  # white space between two fields
            assert chr(data[at]).isspace()
            assert (loaded.facts, loaded.score) == (whole.facts, whole.score)
            assert all(torch.equal(v, whole.tensors[k]) for k, v in loaded.tensors.items())
        path.write_bytes(data)
    assert fell_back >= 150
    assert good.exists()


def test_a_checkpoint_of_the_format_before_is_read(
    store: FakeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner = make(store, tmp_path)
    learner.ingest()
    learner.update(4)
    path = learner.save() / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["manifest_sha256"]
    path.write_text(json.dumps(manifest | {"format": 1}))
    resumed = make(store, tmp_path)
    assert resumed.load() and resumed.updates == 4
    assert "of an older version" in caplog.text


def test_checkpoints_of_another_spec_are_refused_and_kept(store: FakeStore, tmp_path: Path) -> None:
    learner = make(store, tmp_path)
    path = learner.save()
    other = replace(SPEC, task="other")
    foreign = Learner(CONFIG, ALGO, other, store, run_dir=tmp_path, seed=0)
    with pytest.raises(CheckpointError, match="cannot be used"):
        foreign.load()
    assert path.exists()


def test_checkpoint_of_another_network_is_refused(store: FakeStore, tmp_path: Path) -> None:
    make(store, tmp_path).save()
    bigger = replace(ALGO, hidden=(32, 32))
    with pytest.raises(CheckpointError, match="another network"):
        Learner(CONFIG, bigger, SPEC, store, run_dir=tmp_path, seed=0).load()


def test_keeps_the_newest_and_the_best(store: FakeStore, tmp_path: Path) -> None:
    learner = make(store, tmp_path, replace(CONFIG, keep_checkpoints=2))
    for score in (0.1, 0.9, None, 0.3, None):
        learner.save(score)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "000002",
        "000004",
        "000005",
    ]


def test_full_disk_ends_neither_training_nor_earlier_checkpoints(
    store: FakeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    learner = make(store, tmp_path, replace(CONFIG, checkpoint_updates=2))
    learner.ingest()
    learner.update(2)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("robot_rl.learn.checkpoint.write_synced", full)
    learner.update(2)
    assert "No space left" in caplog.text
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["000001"]


def test_weights_are_versioned_and_paced(store: FakeStore, tmp_path: Path) -> None:
    clock = ManualClock()
    config = replace(CONFIG, publish_period_s=1.0)
    learner = Learner(config, ALGO, SPEC, store, run_dir=tmp_path, seed=0, clock=clock)
    assert learner.weights().version == 0  # untrained
    learner.ingest()
    learner.update(2)
    assert learner.weights().version == 0  # too soon
    clock.sleep_until_s(1.5)
    first = learner.weights()
    clock.sleep_until_s(3.0)
    assert first.version == 1
    assert learner.weights() is first  # nothing learned since
    tensors = safetensors.torch.load(first.data)
    assert set(tensors) == {"policy", "mean", "scale"}


def test_a_disk_that_takes_no_reservation_leaves_the_weights_as_they_are(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make(store, tmp_path)
    learner.publish_period_s = 0.0
    learner.ingest()
    for _ in range(AHEAD):
        learner.updates += 1
        learner.weights()
    before = learner.weights()
    assert before.version == AHEAD - 1

    def full(_key: str, _value: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(store, "set_meta", full)
        for _ in range(2):  # a number that was not reserved is not used the second time either
            learner.updates += 1
            assert learner.weights() is before
    learner.updates += 1
    assert learner.weights().version == AHEAD


@pytest.mark.parametrize("saves", [False, True])
def test_a_version_has_one_content_for_ever_though_the_learner_dies(
    store: FakeStore, tmp_path: Path, saves: bool
) -> None:
    seen: dict[int, str] = {}
    config = replace(CONFIG, publish_period_s=0.0)
    for life in range(3):
        learner = make(store, tmp_path, config, seed=life)
        learner.load()
        learner.ingest()
        if saves and not life:
            learner.update(2)
            learner.save()
        for _ in range(4):
            learner.update(2)
            weights = learner.weights()
            assert seen.setdefault(weights.version, weights.sha256) == weights.sha256
    assert list(seen) == sorted(seen)  # and versions only grow


def test_nan_is_never_published_and_three_bad_steps_restore_the_last_good_state(
    store: FakeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner = make(store, tmp_path)
    learner.ingest()
    learner.update(4)
    learner.save()
    good = learner.weights()
    with torch.no_grad():
        learner.algo.actor["policy"].fill_(float("nan"))  # type: ignore[attr-defined]
    learner.updates += 1
    assert learner.weights() is good
    learner.update(4)
    assert "back to the last good state" in caplog.text
    assert torch.isfinite(learner.algo.actor_state()["policy"]).all()
    assert learner.weights().version == good.version + 1


def test_a_rank_that_writes_nothing_remembers_the_same_good_state(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    learner = make(store, tmp_path)
    learner.ingest()
    learner.update(4)
    learner.save()
    assert not list(tmp_path.glob("checkpoints/*.safetensors"))
    learned = learner.algo.actor_state()["policy"].clone()
    with torch.no_grad():
        learner.algo.actor["policy"].fill_(float("nan"))  # type: ignore[attr-defined]
    learner._watch({"optimizer/bad_in_a_row": torch.tensor(3)})
    assert torch.equal(learner.algo.actor_state()["policy"], learned)


def test_endless_nan_ends_with_one_clear_error(store: FakeStore, tmp_path: Path) -> None:
    learner = make(store, tmp_path)
    learner.ingest()
    learner.replay.steps.reward.fill(np.inf)
    with pytest.raises(RobotRLError, match="gradients stay non-finite"):
        learner.update(100)


def test_without_memory_it_learns_from_half_of_a_batch_once_and_then_says_what_to_do(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make(store, tmp_path)
    learner.ingest()
    learner.update(4)
    learner.save()
    update, short = learner.algo.update, [True]
    asked: list[int] = []

    def fails(sample: Any) -> Any:
        if short:
            short.pop()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return update(sample)

    def noted(of: Learner) -> Any:
        draw = of._draw

        def draws(size: int, share: float) -> Any:
            asked.append(size)
            return draw(size, share)

        return draws

    monkeypatch.setattr(learner.algo, "update", fails)
    monkeypatch.setattr(learner, "_draw", noted(learner))
    done = learner.update(4)
    assert 0 < done < 4 and learner.updates == 4 + done  # the one that failed is left out
    learner.update(4)
    halves = set(asked)
    short.append(True)
    with pytest.raises(ConfigError, match=r"(?s)too little memory.*algo\.batch_size"):
        learner.update(4)
    whole = make(store, tmp_path)
    assert whole.load() and whole.updates == 4
    whole.ingest()
    asked.clear()
    monkeypatch.setattr(whole, "_draw", noted(whole))
    whole.update(4)
    assert halves == {size // 2 for size in asked}


@pytest.mark.parametrize(
    "algo", [ALGO, Td3Config(hidden=(16,), batch_size=15, critic_actor_ratio=4)]
)
def test_of_half_a_batch_every_step_gets_its_part(
    algo: Any, store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Learner(CONFIG, algo, SPEC, store, run_dir=tmp_path, seed=0, clock=ManualClock())
    learner.ingest()
    learner._room.short(torch.OutOfMemoryError("CUDA out of memory"))
    parts: list[int] = []
    step, metrics = learner.algo.critic_step, {}  # type: ignore[attr-defined]
    monkeypatch.setattr(
        learner.algo, "critic_step", lambda b: (parts.append(len(b.reward)), step(b))[1]
    )
    before = learner.algo.actor_state()["policy"].clone()
    for _ in range(3):
        metrics = learner.algo.update(learner._sample)
    assert set(parts) == {algo.batch_size // 2}
    assert torch.isfinite(metrics["actor/loss"]) and torch.isfinite(metrics["critic/loss"])
    assert int(metrics["optimizer/bad_in_a_row"]) == int(metrics["optimizer/skipped"]) == 0
    assert not torch.equal(learner.algo.actor_state()["policy"], before)
    learner.close()


def test_metrics_have_stable_keys(store: FakeStore, tmp_path: Path) -> None:
    learner = make(store, tmp_path)
    learner.ingest()
    learner.update(10)
    line = json.loads((tmp_path / "learner.jsonl").read_text().splitlines()[-1])
    assert line["env_steps"] == learner.env_steps
    for key in ("critic/q_mean", "critic/loss", "actor/entropy", "learner/utd", "replay/demo"):
        assert np.isfinite(line[key])


def test_metric_file_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"a": 1}\n{"torn')
    sink = MetricSink(path)
    sink.write(5, {"x/y": float("nan"), "x/z": 2.0}, phase="practice")
    sink.close()
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["env_steps"], last["x/y"], last["x/z"], last["phase"]) == (
        5,
        None,
        2.0,
        "practice",
    )
