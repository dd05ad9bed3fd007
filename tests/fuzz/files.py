"""Targets: files of others - runs, models, archives, datasets, pictures, robots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from robot_rl.errors import (
    CheckpointError,
    ConfigError,
    LinkError,
    SetupError,
    SpecError,
    StoreError,
)
from tests.fuzz.mutate import PART
from tests.fuzz.target import Open, parts_into, target

# -- runs: stores, policies, checkpoints, models, metrics ------------------------------------------


@target("store_file", "store.store.Store, verify", StoreError, weight=0.1, longest=65_536)
def _(folder: Path) -> Any:
    from robot_rl.store.store import Store

    path = folder / "store.sqlite"

    def run(data: bytes) -> None:
        for name in ("store.sqlite-wal", "store.sqlite-shm"):
            (folder / name).unlink(missing_ok=True)
        path.write_bytes(data)
        with Store(path, reserve_bytes=0) as store:
            store.rows_since(0, 100)
            for start in store.episodes():
                store.labels(start.id)
                store.episode_summaries()
            store.verify()

    return run


@target("store_facts", "store.store.Store, its meta values", StoreError, SpecError, weight=0.05,
        tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    import sqlite3

    from robot_rl.bench.samples import episode_rows, sample_spec
    from robot_rl.store.schema import _meta_crc
    from robot_rl.store.store import Store
    from robot_rl.types import EpisodeId

    path, spec = folder / "store.sqlite", sample_spec(images=1, image_size=4)
    id_ = EpisodeId("run", "actor", 0)
    with Store(path, spec=spec, reserve_bytes=0, synchronous="episode") as store:
        store.append(episode_rows(spec, id_, 2))

    def run(data: bytes) -> None:
        parts = data.split(PART)
        with sqlite3.connect(path, isolation_level=None) as db:  # with a right CRC
            db.execute("PRAGMA synchronous=OFF")
            for key, part in zip(("spec", "acked_seq", "unchecked", "forgotten", "set_aside",
                                  "receiver"), parts, strict=False):  # fmt: skip
                text = part.decode("utf-8", "replace")
                row = (key, text, _meta_crc(key, text))
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", row)
        db.close()
        with Store(path, reserve_bytes=0) as store:
            assert store.pending_count() is not None and store.next_episode("run", "actor") == 1
            store.pending(1 << 20, 10)
            store.verify()

    return run


@target("run_facts", "config.run_folder, run.preflight.kept_findings", ConfigError,
        weight=0.3, tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    from robot_rl.config.run_folder import PREFLIGHT, RUN, read_facts, run_name
    from robot_rl.run.preflight import kept_findings

    write = parts_into(folder, ("plan.json", PREFLIGHT, RUN))

    def run(data: bytes) -> None:
        write(data)
        assert run_name(folder)
        kept_findings(folder)
        read_facts(folder / "plan.json")

    return run


@target("api_key", "config.api_key.api_key", ConfigError)
def _(folder: Path) -> Any:
    from robot_rl.config import api_key

    path = folder / "key"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        path.chmod(0o600)
        with patch.object(api_key, "_path", lambda _name: path):
            key = api_key.api_key("key", "example.org")
        assert key and key.isascii() and key.isprintable() and " " not in key

    return run


@target("sealed_order", "run.sealed.sealed_secret", ConfigError, weight=0.3)
def _(folder: Path) -> Any:
    from robot_rl.run.sealed import SEALED, order_of, sealed_secret

    write = parts_into(folder, (SEALED, "plan.json"))

    def run(data: bytes) -> None:
        write(data)
        assert sorted(order_of(sealed_secret(folder), 0, 3)) == [0, 1, 2]

    return run


@target("weights", "policy.runtime.tensors_of", LinkError, SpecError, weight=0.5)
def _(_folder: Path) -> Any:
    import hashlib

    import torch

    from robot_rl.policy.runtime import tensors_of
    from robot_rl.types import Weights

    like = {"a": torch.zeros(3), "b": torch.zeros(2, 2)}

    def run(data: bytes) -> None:
        tensors_of(Weights(1, hashlib.sha256(data).hexdigest(), data), like)

    return run


@target("policy_file", "policy.runtime.load_policy", CheckpointError, weight=0.3, tree="json")
def _(folder: Path) -> Any:
    from robot_rl.bench.samples import sample_spec
    from robot_rl.policy.runtime import load_policy

    write = parts_into(folder, ("policy.json", "policy.safetensors"))
    spec = sample_spec()

    def run(data: bytes) -> None:
        write(data)
        load_policy(folder, spec)

    return run


@target("checkpoint", "learn.checkpoint.read_checkpoint", CheckpointError, weight=0.3, tree="json")
def _(folder: Path) -> Any:
    import hashlib

    from robot_rl.learn.checkpoint import MANIFEST, SEAL, TENSORS, _seal, read_checkpoint

    write = parts_into(folder, (MANIFEST, TENSORS))

    def run(data: bytes) -> None:
        if data[:1] != b"\0":
            write(data)
        else:  # who has made this checkpoint has sealed it
            text, _, tensors = data[1:].partition(PART)
            try:
                manifest = json.loads(text)
                manifest["sha256"] = hashlib.sha256(tensors).hexdigest()
                manifest.pop(SEAL, None)
                manifest[SEAL] = _seal(manifest)
            except (ValueError, TypeError, AttributeError, RecursionError):
                return
            write(json.dumps(manifest).encode() + PART + tensors)
        found = read_checkpoint(folder)
        assert found.score is None or abs(found.score) < float("inf")

    return run


@target("reward_model", "reward.success.model.SuccessModel.load", CheckpointError, ConfigError,
        weight=0.1, tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    from robot_rl.bench.samples import sample_spec
    from robot_rl.reward.success.model import SuccessModel

    write = parts_into(folder, ("success.json", "success.safetensors"))
    spec = sample_spec(images=1, image_size=16)

    def run(data: bytes) -> None:
        write(data)
        SuccessModel.load(folder, spec)

    return run


@target("clip_model", "reward.progress.clip.ClipModel.load", CheckpointError, ConfigError,
        SetupError, weight=0.2, tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    from robot_rl.bench.samples import sample_spec
    from robot_rl.reward.progress import clip

    write = parts_into(folder, ("clip.json", "clip.safetensors"))
    spec = sample_spec(images=1, image_size=16)

    def run(data: bytes) -> None:
        write(data)
        with patch.object(clip, "ClipNet"):  # no CLIP is looked for
            clip.ClipModel.load(folder, spec)

    return run


@target("scenes", "store.scenes.Scenes", weight=0.5)
def _(folder: Path) -> Any:
    from robot_rl.store.scenes import Scenes

    path = folder / "scenes.bin"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        scenes = Scenes(path)
        scenes.has(0)
        scenes.state(0, 0)
        scenes.state(3, 5)

    return run


@target("metric_lines", "system.files.Tail, console.telemetry, report.rundata", weight=0.1)
def _(folder: Path) -> Any:
    from robot_rl.config.run_folder import EVALUATION, METRICS
    from robot_rl.console.telemetry import RunFigures
    from robot_rl.report.rundata import read_run

    write = parts_into(folder, (METRICS, EVALUATION, "run.json"))

    def run(data: bytes) -> None:
        write(data)
        figures = RunFigures(folder, folder)
        figures.read()
        json.dumps([figures.findings, figures.numbers])
        found = read_run(folder)
        for key in found.keys:
            aborted = key.startswith("episode/")  # may all be
            assert found.series(key) is not None or aborted
            assert found.last(key) is not None and found.total(key) is not None
        assert len(found.episodes()) >= 0 and found.by_arm() is not None

    return run


@target("report_page", "report.report.page_of", ConfigError, weight=0.01,
        longest=8192, tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    from robot_rl.config.run_folder import DEPLOYMENT, EVALUATION, METRICS
    from robot_rl.report.report import page_of

    write = parts_into(folder, (METRICS, EVALUATION, "run.json", "config.yaml", DEPLOYMENT))

    def run(data: bytes) -> None:
        write(data)
        page_of(folder)

    return run


@target("export_identity", "data.folder.ExportFolder", ConfigError, weight=0.2, tree="json")
def _(folder: Path) -> Any:
    from robot_rl.data.folder import IDENTITY, ExportFolder

    write = parts_into(folder, (IDENTITY,))

    def run(data: bytes) -> None:
        write(data)
        with ExportFolder(folder, {"episodes": 3}):
            pass

    return run


@target("vlm_budget", "reward.vlm.guards.Budget", weight=0.3)
def _(folder: Path) -> Any:
    from robot_rl.reward.vlm.guards import Budget

    path = folder / "spent"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        budget = Budget(100.0, lambda: 50.0, path, lambda: 1e9)
        assert abs(budget.used) < float("inf")

    return run


@target("ray_archive", "run.on_ray.unpack", StoreError, weight=0.1, longest=16_384)
def _(folder: Path) -> Any:
    import shutil

    from robot_rl.run.on_ray import unpack

    def run(data: bytes) -> None:
        inner = folder / "inner"
        try:
            unpack(data, inner)
        finally:
            names = {p.name for p in folder.iterdir()}
            size = sum(p.lstat().st_size for p in inner.rglob("*") if p.is_file())
            shutil.rmtree(inner, ignore_errors=True)
        assert names <= {"inner"} and size <= len(data)

    return run


# -- datasets, pictures, policies of LeRobot -------------------------------------------------------


@target("still", "data.video.decode_still", StoreError, weight=0.3, longest=2048, spare_mb=256)
def _(_folder: Path) -> Any:
    from robot_rl.data.video import decode_still

    return decode_still


@target("video", "data.video.read_video", StoreError, weight=0.1, longest=8192, spare_mb=512)
def _(folder: Path) -> Any:
    from robot_rl.data.video import read_video

    path = folder / "v.mp4"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        read_video(path, 0.0, 3, 10.0, (8, 8))

    return run


def _dataset(folder: Path) -> Path:
    """A dataset of two short episodes without pictures."""
    from robot_rl.data.episodes import choose
    from robot_rl.data.lerobot_write import WriteOptions, write_lerobot
    from tests.support.data_samples import made_spec, made_store

    with made_store(folder / "source.sqlite", made_spec(), [2, 1]) as store:
        write_lerobot(store, choose(store), folder / "dataset", WriteOptions())
    return folder / "dataset"


def _read_all(reader: Any, root: Path) -> None:
    dataset = reader(root)
    for number in range(min(len(dataset.lengths), 3)):
        dataset.last(number)
        dataset.columns(number, list(dataset.features)[:20])


@target("lerobot_info", "data.lerobot_read.LeRobotDataset, its info.json", StoreError, weight=0.1,
        longest=8192, tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    from robot_rl.data.lerobot_read import LeRobotDataset

    root = _dataset(folder)
    info = root / "meta" / "info.json"

    def run(data: bytes) -> None:
        info.write_bytes(data)
        _read_all(LeRobotDataset, root)

    return run


@target("lerobot_table", "data.lerobot_read.LeRobotDataset, its tables", StoreError, weight=0.1,
        longest=16_384, spare_mb=256)  # fmt: skip
def _(folder: Path) -> Any:
    from robot_rl.data.lerobot_read import LeRobotDataset

    root = _dataset(folder)
    (episodes,) = (root / "meta" / "episodes").glob("*/*.parquet")

    def run(data: bytes) -> None:
        episodes.write_bytes(data)
        _read_all(LeRobotDataset, root)

    return run


def _lerobot_policy(folder: Path) -> Any:
    from robot_rl.policy.base.lerobot_files import PROCESSORS, checked_folder

    write = parts_into(folder, ("config.json", *PROCESSORS))

    def run(data: bytes) -> None:
        write(data)
        checked_folder(str(folder), "")

    return run


_opener: Open = _lerobot_policy
target("lerobot_policy", "policy.base.lerobot_files.checked_folder", CheckpointError,
       weight=0.2, tree="json")(_opener)  # fmt: skip


# -- robots ----------------------------------------------------------------------------------------


@target("urdf", "robots.urdf.parse", ConfigError, weight=0.3, longest=8192)
def _(_folder: Path) -> Any:
    import numpy as np

    from robot_rl.robots.urdf import parse

    def run(data: bytes) -> None:
        found = parse(data.decode("utf-8", "surrogateescape"), "file")
        assert len(found.behind(found.root)) == len(found.links)
        for name, joint in found.joints.items():
            found.path(found.root, name)
            assert np.isfinite(joint.origin.quaternion_xyzw).all()
            assert joint.kind == "fixed" or abs(np.linalg.norm(joint.axis) - 1.0) < 1e-6

    return run


@target("urdf_arm", "robots.fold.fold", ConfigError, weight=0.1, longest=16_384)
def _(folder: Path) -> Any:
    from robot_rl.robots.fold import Wishes, fold
    from robot_rl.robots.urdf import parse

    def run(data: bytes) -> None:
        fold(parse(data.decode("utf-8", "surrogateescape"), "file"), "arm", Wishes())

    return run


@target("mesh", "robots.enclose.vertices", weight=0.15, skip=1)
def _(folder: Path) -> Any:
    import numpy as np

    from robot_rl.robots.enclose import around, vertices

    def run(data: bytes) -> None:
        path = folder / ("m.obj" if data[:1] == b"o" else "m.stl")
        path.write_bytes(data[1:])
        found = vertices(path)
        if found is not None:
            assert found.ndim == 2 and found.shape[1] == 3 and np.isfinite(found).all()
            if len(found):
                assert np.isfinite(around(found)[2])

    return run
