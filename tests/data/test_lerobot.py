"""LeRobotDataset: round trip, the format's own rules, interruption at any moment."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_rl.data import lerobot_write
from robot_rl.data.episodes import INCLUDE, choose
from robot_rl.data.lerobot_import import import_lerobot
from robot_rl.data.lerobot_read import LeRobotDataset
from robot_rl.data.lerobot_rows import ImportOptions
from robot_rl.data.lerobot_stats import QUANTILES, image_stats, merged, vector_stats
from robot_rl.data.lerobot_write import WriteOptions, write_lerobot
from robot_rl.errors import ConfigError, SpecError, StoreError
from robot_rl.spec import Spec, TensorSpec
from robot_rl.store.store import Store
from robot_rl.types import Ending, Frame, Row, Step
from tests.support.data_samples import FPS, files, made_episode, made_spec, made_store

CAMERAS = ((16, 24), (32, 32))
LOSS = 12.0  # mean difference of a plain colour after the codec, of 255


def export(store: Store, out: Path, **options: object) -> dict[str, int]:
    return write_lerobot(store, choose(store, INCLUDE), out, WriteOptions(**options))  # type: ignore[arg-type]


def back(out: Path, spec: Spec, folder: Path) -> Store:
    import_lerobot(out, spec, folder, ImportOptions())
    return Store(folder / "store.sqlite")


FIELDS = ("segment", "driver", "outcome", "reason", "reward", "weights_version", "stamp_ns")


def same_step(a: Step, b: Step) -> bool:
    """Equal in everything that is not a position."""
    arrays = np.array_equal(a.action, b.action) and np.array_equal(a.policy_action, b.policy_action)
    return arrays and all(getattr(a, name) == getattr(b, name) for name in FIELDS)


def same_frame(a: Frame, b: Frame | None) -> bool:
    """Equal numbers and time, and pictures of the same colour."""
    assert b is not None
    for key, value in a.observation.items():
        other = b.observation[key]
        if value.dtype == np.uint8:
            if np.abs(value.astype(float) - other).mean() > LOSS:
                return False
        elif not np.array_equal(value, other):
            return False
    return a.stamp_ns == b.stamp_ns


@dataclass(frozen=True)
class Case:
    """Episodes to record; lost: (is a step, episode, number) of rows that never arrive."""

    lengths: list[int]
    cameras: int
    lost: set[tuple[bool, int, int]]
    file_s: float
    endings: list[Ending]

    def rows(self, spec: Spec) -> list[Row]:
        """What arrives."""
        rows: list[Row] = []
        for number, length in enumerate(self.lengths):
            for row in made_episode(spec, number, length, ending=self.endings[number]):
                place = row.step if isinstance(row, Step) else getattr(row, "frame", -1)
                if (isinstance(row, Step), number, place) not in self.lost:
                    rows.append(row)
        return rows


CASES = st.builds(
    Case,
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    cameras=st.integers(0, 2),
    lost=st.sets(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 7)), max_size=4),
    file_s=st.sampled_from([0.1, 0.6, 60.0]),
    endings=st.lists(st.sampled_from(Ending), min_size=4, max_size=4),
)


@settings(max_examples=25)
@given(case=CASES)
def test_round_trip_of_random_episodes_with_gaps(
    tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    """Every step whose frames exist comes back with its own frames; nothing is shifted."""
    tmp, spec = tmp_path_factory.mktemp("trip"), made_spec(CAMERAS[: case.cameras])
    rows = case.rows(spec)
    frames = {(r.id.episode, r.frame): r for r in rows if isinstance(r, Frame)}
    before = {r.stamp_ns: frames.get((r.id.episode, r.frame)) for r in rows if isinstance(r, Step)}
    steps = {r.stamp_ns: r for r in rows if isinstance(r, Step) and before[r.stamp_ns]}
    after = {t: frames.get((s.id.episode, s.next_frame)) for t, s in steps.items()}
    steps = {t: s for t, s in steps.items() if after[t]}
    with (
        Store(tmp / "store.sqlite", spec=spec, reserve_bytes=0) as store,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(lerobot_write, "FILE_S", case.file_s)
        store.append(rows)
        store.recover("made", "arm")  # the end of an episode may be lost as well
        if not steps:
            with pytest.raises(StoreError, match=r"no (episode|step)"):
                export(store, tmp / "out")
            return
        export(store, tmp / "out")
    seen: list[int] = []
    with back(tmp / "out", spec, tmp / "back") as again:
        for start in again.episodes():
            new = again.steps(start.id)
            held = again.frames(start.id)
            assert [s.step for s in new] == list(range(len(new)))
            for step in new:
                seen.append(step.stamp_ns)
                assert same_step(step, steps[step.stamp_ns])
                assert same_frame(held[step.frame], before[step.stamp_ns])
                assert same_frame(held[step.next_frame], after[step.stamp_ns])
            last, old = new[-1], steps[new[-1].stamp_ns]
            cut = (Ending.TRUNCATED, Ending.ABORTED)  # at a gap; when nobody ended the episode
            assert last.ending in ((old.ending,) if old.ending else cut)
            assert old.ending is None or last.success == old.success
    assert seen == sorted(steps), "every step once, in order"


def test_files_and_figures_are_those_of_the_format(tmp_path: Path) -> None:
    spec = made_spec(CAMERAS, gripper=True)
    with made_store(tmp_path / "s.sqlite", spec, [5, 3, 8]) as store:
        assert export(store, tmp_path / "out", robot_type="panda") == {"episodes": 3, "steps": 16}
    assert sorted(files(tmp_path / "out")) == [
        "data/chunk-000/file-000.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
        "robot_rl.json",
        "robot_rl/chunk-000/file-000.parquet",
        "videos/observation.images.cam0/chunk-000/file-000.mp4",
        "videos/observation.images.cam1/chunk-000/file-000.mp4",
    ]
    info = json.loads((tmp_path / "out" / "meta" / "info.json").read_text())
    assert info["codebase_version"] == "v3.0" and info["fps"] == FPS
    assert info["splits"] == {"train": "0:3"} and info["robot_type"] == "panda"
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (3, 16, 1)
    action = {"dtype": "float32", "shape": [7], "names": ["dx", "dy", "dz", "rx", "ry", "rz"]}
    action["names"] = [*action["names"], "gripper"]  # type: ignore[misc]
    assert info["features"]["action"] == action
    video = info["features"]["observation.images.cam0"]
    assert video["shape"] == [16, 24, 3] and video["info"]["video.width"] == 24
    rows = pq.ParquetFile(tmp_path / "out" / "meta/episodes/chunk-000/file-000.parquet").read()
    table = rows.to_pydict()
    assert table["dataset_from_index"] == [0, 5, 8] and table["dataset_to_index"] == [5, 8, 16]
    assert table["videos/observation.images.cam0/from_timestamp"] == [0.0, 0.5, 0.8]
    assert np.shape(table["stats/observation.images.cam1/q99"]) == (3, 3, 1, 1)
    tasks = pq.ParquetFile(tmp_path / "out" / "meta/tasks.parquet").read()
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    data = pq.ParquetFile(tmp_path / "out" / "data/chunk-000/file-000.parquet")
    assert data.num_row_groups == 3, "one per episode"
    done = data.read(["next.done"]).to_pydict()["next.done"]
    assert [k for k, over in enumerate(done) if over] == [4, 7, 15]


def test_one_number_actions_and_states_are_scalars_and_come_back(tmp_path: Path) -> None:
    spec = made_spec(state=1)
    spec = Spec("pole", 10.0, {"state": TensorSpec((1,), "float32")}, spec.action)
    with made_store(tmp_path / "s.sqlite", spec, [4]) as store:
        export(store, tmp_path / "out")
        old = store.frames(store.episodes()[0].id)
    with back(tmp_path / "out", spec, tmp_path / "back") as again:
        new = again.frames(again.episodes()[0].id)
    assert all(same_frame(a, b) for a, b in zip(old, new, strict=True))


def test_a_rate_lerobot_cannot_hold_and_odd_sizes_of_h264_are_refused(tmp_path: Path) -> None:
    slow = Spec("slow", 12.5, made_spec().observation, made_spec().action)
    store = made_store(tmp_path / "s.sqlite", slow, [2])
    with store, pytest.raises(SpecError, match="control_hz=12"):
        export(store, tmp_path / "out")
    with made_store(tmp_path / "t.sqlite", made_spec(((15, 15),)), [2]) as store:
        with pytest.raises(SpecError, match="15x15"):
            export(store, tmp_path / "out", codec="h264")
        export(store, tmp_path / "av1")
    assert LeRobotDataset(tmp_path / "av1").lengths == [2]


def test_statistics_agree_with_numpy_and_merge_like_one_episode() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 3)) for n in (1, 4, 30)]
    whole, one = merged([vector_stats(p) for p in parts]), np.concatenate(parts)
    for name, expected in (("mean", one.mean(0)), ("std", one.std(0)), ("max", one.max(0))):
        assert np.allclose(whole[name], expected)
    assert whole["count"] == [35] and set(QUANTILES) < set(whole)
    images = [rng.integers(0, 256, (6, 5, 3), np.uint8) for _ in range(7)]
    stats, flat = image_stats(images), np.stack(images).reshape(-1, 3) / 255
    assert np.allclose(np.ravel(stats["mean"]), flat.mean(0))
    assert np.allclose(np.ravel(stats["std"]), flat.std(0))
    assert np.allclose(np.ravel(stats["q50"]), np.median(flat, axis=0), atol=0.02)
    assert np.shape(stats["min"]) == (3, 1, 1) and stats["count"] == [7]


# -- interruption --------------------------------------------------------------------------------


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lerobot_write, "FILE_S", 0.8)


@pytest.fixture
def store(tmp_path: Path):
    with made_store(tmp_path / "s.sqlite", made_spec(CAMERAS[:1]), [5, 3, 8, 2, 6]) as opened:
        yield opened


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_ends_clearly_leaves_no_half_file_and_the_same_call_goes_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(store, tmp_path / "whole")
    whole = files(tmp_path / "whole")
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 13 == 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    failures = 0
    while True:
        try:
            export(store, tmp_path / "out")
            break
        except StoreError as error:
            assert "the disk is full" in str(error) and "goes on" in error.fix
        failures += 1
        now = files(tmp_path / "out")
        assert "meta/info.json" not in now, "not a dataset yet"
        assert not any(name.endswith(".part") for name in now)
        assert all(whole[name] == data for name, data in now.items()), "nothing half"
        with pytest.raises(StoreError, match=r"not finished|no dataset"):
            LeRobotDataset(tmp_path / "out")
    assert failures > 2
    assert files(tmp_path / "out") == whole


@pytest.mark.usefixtures("small_files")
def test_ctrl_c_loses_one_group_and_finished_files_are_not_written_again(
    store: Store, tmp_path: Path
) -> None:
    def stop(done: int, _all: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_lerobot(store, choose(store), tmp_path / "out", WriteOptions(), stop)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.mp4")}
    assert before
    export(store, tmp_path / "out")
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    export(store, tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


PROGRAM = """
import sys
from pathlib import Path
from robot_rl.data import lerobot_write
from robot_rl.data.episodes import choose
from robot_rl.store.dataset import open_store
lerobot_write.FILE_S = 0.8
with open_store(Path(sys.argv[1])) as store:
    print("ready", flush=True)
    options = lerobot_write.WriteOptions()
    lerobot_write.write_lerobot(store, choose(store), Path(sys.argv[2]), options)
"""


def test_kill_9_at_random_moments_never_leaves_a_dataset_that_looks_finished(
    tmp_path: Path,
) -> None:
    spec, rng = made_spec(CAMERAS), np.random.default_rng(1)
    out, kills = tmp_path / "out", 0
    longest_s = 0.1  # grows, so that a slow machine also gets past its slowest step
    made_store(tmp_path / "s.sqlite", spec, [8] * 16).close()
    while not (out / "meta" / "info.json").exists():
        words = [sys.executable, "-c", PROGRAM, str(tmp_path / "s.sqlite"), str(out)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0.02, longest_s))
            process.send_signal(signal.SIGKILL)
        kills += process.returncode == -signal.SIGKILL
        longest_s *= 1.4
        assert longest_s < 30.0
    assert kills >= 3
    with Store(tmp_path / "s.sqlite") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lerobot_write, "FILE_S", 0.8)
        export(store, tmp_path / "whole")
    left = {k: v for k, v in files(out).items() if not k.endswith(".part")}
    assert left == files(tmp_path / "whole")


def test_a_folder_with_something_else_is_refused_and_untouched(
    store: Store, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "holiday.txt").write_text("mine")
    with pytest.raises(ConfigError, match="other files"):
        export(store, out)
    assert files(out) == {"holiday.txt": b"mine"}
    with pytest.raises(ConfigError, match="other files"):
        export(store, out / "holiday.txt")


def test_another_export_is_not_continued(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(store, out)
    before = files(out)
    with pytest.raises(ConfigError, match="crf: 30 -> 20"):
        export(store, out, crf=20)
    store.append(made_episode(made_spec(CAMERAS[:1]), 9, 3))
    with pytest.raises(ConfigError, match="episodes: "):
        export(store, out)
    assert files(out) == before


def test_two_processes_never_write_into_one_folder(store: Store, tmp_path: Path) -> None:
    def second(_done: int, _all: int) -> None:
        with pytest.raises(ConfigError, match="another process"):
            export(store, tmp_path / "out")

    write_lerobot(store, choose(store), tmp_path / "out", WriteOptions(), second)
    export(store, tmp_path / "out")
