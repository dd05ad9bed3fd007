"""Targets: files of others - runs, datasets, models, archives, configurations, keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from robot_rl.errors import (
    CheckpointError,
    ConfigError,
    LinkError,
    SetupError,
    SpecError,
    StoreError,
)
from tests.fuzz.mutate import PART
from tests.fuzz.target import Open, target


def parts_into(folder: Path, names: tuple[str, ...]) -> Callable[[bytes], None]:
    """Writes the parts of an input into files of these names."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(data: bytes) -> None:
        parts = data.split(PART, len(names) - 1)
        for name, part in zip(names, [*parts, *[b""] * len(names)], strict=False):
            (folder / name).write_bytes(part)

    return write


# -- configuration ---------------------------------------------------------------------------------


@target("yaml", "config.yaml_file.parse_yaml", ConfigError, yaml.YAMLError, weight=0.15,
        longest=2048)  # fmt: skip
def _(_folder: Path) -> Any:
    from robot_rl.config.yaml_file import parse_yaml

    return lambda data: parse_yaml(data, "file")


@target("config_section", "config.registry.resolve", ConfigError, weight=0.1, tree="json", skip=2)
def _(_folder: Path) -> Any:
    import importlib

    from robot_rl.config.registry import PROVIDERS, REGISTRY, resolve

    for modules in PROVIDERS.values():
        for module in modules:
            importlib.import_module(module)
    names = sorted((group, name) for group, known in REGISTRY.items() for name in known)

    def run(data: bytes) -> None:
        group, name = names[int.from_bytes(data[:2], "little") % len(names)]
        try:
            values = json.loads(data[2:])
        except (ValueError, RecursionError):
            return
        if isinstance(values, dict):
            resolve(group, {"name": name, **{k: v for k, v in values.items() if k != "name"}})

    return run


@target("run_config", "run.experiment.Experiment.from_dict", ConfigError, SetupError,
        weight=0.03, longest=32_768, tree="json")  # fmt: skip
def _(_folder: Path) -> Any:
    import importlib

    from robot_rl.config.registry import PROVIDERS
    from robot_rl.run.experiment import Experiment, config_hash

    for module in (name for names in PROVIDERS.values() for name in names):
        importlib.import_module(module)

    def run(data: bytes) -> None:
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(values, dict):
            config_hash(values)
            experiment = Experiment.from_dict(values)
            for section in ("task", "reward", "algo", "learner", "link"):
                experiment.section(section)

    return run


@target("config_edit", "config.edit.with_values", ConfigError, weight=0.05, longest=1024)
def _(_folder: Path) -> Any:
    from robot_rl.config.edit import with_values

    def run(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        changed = with_values(text, ("cameras", "wrist"), {"width": 640})
        assert yaml.safe_load(changed)["cameras"]["wrist"]["width"] == 640

    return run


@target("spec", "spec.spec_from_dict", SpecError, tree="json")
def _(_folder: Path) -> Any:
    from robot_rl.spec import Spec, spec_from_dict

    def run(data: bytes) -> None:
        try:
            found = spec_from_dict(json.loads(data))
        except (ValueError, RecursionError):
            return
        assert isinstance(found, Spec)
        assert spec_from_dict(found.as_dict()) == found
        assert found.hash and found.cameras is not None and found.state_slices is not None

    return run


@target("rest_position", "operate.calibration.load_rest", ConfigError, weight=0.1, longest=1024)
def _(folder: Path) -> Any:
    from robot_rl.operate import calibration

    write = parts_into(folder / "devices", ("pad.yaml",))

    def run(data: bytes) -> None:
        write(data)
        with patch.object(calibration, "user_folder", lambda: folder):
            calibration.load_rest("pad", ("X", "-Y", "Z", "RX", "RY", "RZ"))

    return run


@target("leader_map", "robot_rl_hardware.leader_map.load", ConfigError, weight=0.1, longest=1024)
def _(folder: Path) -> Any:
    from robot_rl.operate import calibration
    from robot_rl_hardware import leader_map

    write = parts_into(folder / "devices", ("gello.yaml",))

    def run(data: bytes) -> None:
        write(data)
        with patch.object(calibration, "user_folder", lambda: folder):
            leader_map.load("gello", 3)

    return run


@target("task_poses", "run.task_file.from_poses", ConfigError, weight=0.1, longest=1024)
def _(folder: Path) -> Any:
    from robot_rl.run.task_file import from_poses

    write = parts_into(folder, ("poses.yaml",))

    def run(data: bytes) -> None:
        write(data)
        from_poses(folder / "poses.yaml")

    return run


@target("prompt", "reward.vlm.questions.load_prompts", ConfigError, weight=0.05, longest=2048)
def _(folder: Path) -> Any:
    from robot_rl.reward.vlm.questions import load_prompts

    write = parts_into(folder, ("success.yaml",))

    def run(data: bytes) -> None:
        write(data)
        load_prompts(folder)

    return run


# -- keys and certificates -------------------------------------------------------------------------


@target("key_folder", "link.auth.load_keys", LinkError, weight=0.2, longest=256)
def _(folder: Path) -> Any:
    from robot_rl.link.auth import load_keys

    write = parts_into(folder, ("actor.secret", "actor.public", "learner.public"))
    (folder / "actor.secret").touch(mode=0o600)

    def run(data: bytes) -> None:
        write(data)
        load_keys(folder, "actor")

    return run


@target("certificate", "console.certificate.load", ConfigError, weight=0.1)
def _(folder: Path) -> Any:
    from robot_rl.console.certificate import CA, KEY, PAGE, load

    write = parts_into(folder, (CA, PAGE, KEY))
    (folder / KEY).touch(mode=0o600)

    def run(data: bytes) -> None:
        write(data)
        load(folder)

    return run


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


@target("run_facts", "config.run_folder.read_facts, run.preflight.kept_findings", ConfigError,
        weight=0.3, tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    from robot_rl.config.run_folder import PREFLIGHT, read_facts
    from robot_rl.run.preflight import kept_findings

    write = parts_into(folder, ("plan.json", PREFLIGHT))

    def run(data: bytes) -> None:
        write(data)
        kept_findings(folder)
        read_facts(folder / "plan.json")

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
            assert found.series(key) is not None and found.last(key) is not None
            assert found.total(key) is not None
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
        assert 0.0 <= budget.used < float("inf")

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


def _read_all(root: Path) -> None:
    from robot_rl.data.lerobot_read import LeRobotDataset

    dataset = LeRobotDataset(root)
    for number in range(min(len(dataset.lengths), 3)):
        dataset.last(number)
        dataset.columns(number, list(dataset.features)[:20])


@target("lerobot_info", "data.lerobot_read.LeRobotDataset, its info.json", StoreError, weight=0.1,
        longest=8192, tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    root = _dataset(folder)
    info = root / "meta" / "info.json"

    def run(data: bytes) -> None:
        info.write_bytes(data)
        _read_all(root)

    return run


@target("lerobot_table", "data.lerobot_read.LeRobotDataset, its tables", StoreError, weight=0.1,
        longest=16_384, spare_mb=256)  # fmt: skip
def _(folder: Path) -> Any:
    root = _dataset(folder)
    (episodes,) = (root / "meta" / "episodes").glob("*/*.parquet")

    def run(data: bytes) -> None:
        episodes.write_bytes(data)
        _read_all(root)

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
