"""Read an export with the real `lerobot` package: `python lerobot_reads_export.py FOLDER`.

Runs in an environment of its own (LeRobot pins other versions than this project) and knows nothing
of robot_rl: what is compared comes from the files, read with pyarrow and PyAV. Ends with 1 and a
traceback when something does not hold.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # whatever is wrong with the folder, nothing is downloaded

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from lerobot.configs.types import FeatureType
from lerobot.datasets.lerobot_dataset import LeRobotDataset

try:
    from lerobot.utils.feature_utils import dataset_to_policy_features
except ImportError:  # before 0.5
    from lerobot.datasets.utils import dataset_to_policy_features
from torch.utils.data import DataLoader

REPO = "local/export"
OURS = ("policy_action", "driver", "segment", "t_measured_ns", "reason", "ending", "labelled")


def say(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(text + "\n")


def table_of(root: Path) -> pa.Table:
    """All steps, in the order of the files."""
    return pa.concat_tables([pq.read_table(p) for p in sorted(root.glob("data/*/*.parquet"))])


def pictures(root: Path, camera: str) -> list[np.ndarray]:
    """Every picture of a camera, in the order of the files; uint8 [H, W, 3]."""
    found: list[np.ndarray] = []
    for path in sorted(root.glob(f"videos/{camera}/*/*.mp4")):
        with av.open(str(path)) as video:
            found += [f.to_ndarray(format="rgb24") for f in video.decode(video=0)]
    return found


def check_every_step(dataset: LeRobotDataset, root: Path) -> None:
    """Each item is the row and the pictures at its position."""
    table = table_of(root)
    images = {camera: pictures(root, camera) for camera in dataset.meta.video_keys}
    assert len(dataset) == len(table) == dataset.meta.total_frames
    state, action = (np.array(table[k].to_pylist()) for k in ("observation.state", "action"))
    tasks, starts = set(), 0
    for index in range(len(dataset)):
        item = dataset[index]
        assert item["index"].item() == index
        assert np.array_equal(item["observation.state"].numpy(), state[index].astype(np.float32))
        assert np.array_equal(item["action"].numpy(), action[index].astype(np.float32))
        for camera, frames in images.items():
            assert item[camera].dtype == torch.float32 and item[camera].shape[0] == 3
            shown = item[camera].numpy().transpose(1, 2, 0) * 255
            assert np.abs(shown - frames[index]).max() <= 2, f"{camera} at {index}"
        ends = index + 1 == dataset.meta.episodes[item["episode_index"].item()]["dataset_to_index"]
        assert item["next.done"].item() is ends
        tasks.add(item["task"])
        starts += item["frame_index"].item() == 0
    for camera, frames in images.items():
        assert len(frames) == len(table), camera
    assert starts == dataset.num_episodes
    say(f"steps        {len(dataset)} in {starts} episodes, each with its row and its pictures")
    say(f"tasks        {', '.join(sorted(tasks))}")


def check_borders(dataset: LeRobotDataset, root: Path) -> None:
    """A window of time never reaches into a neighbouring episode."""
    step = 1.0 / dataset.meta.fps
    keys = ["observation.state", "action", *dataset.meta.video_keys]
    near = {k: [-step, 0.0, step] for k in keys}
    windows = LeRobotDataset(
        REPO, root=root, delta_timestamps=near, video_backend=dataset.video_backend
    )
    for episode in dataset.meta.episodes:
        first, last = episode["dataset_from_index"], episode["dataset_to_index"] - 1
        for index, pad in (
            (first, [True, False, first == last]),
            (last, [first == last, False, True]),
        ):
            item = windows[index]
            for key in keys:
                assert item[f"{key}_is_pad"].tolist() == pad, (key, index)
            middle = item["observation.state"][1]
            assert torch.equal(middle, dataset[index]["observation.state"])
    say("borders      windows of three steps stop at both ends of every episode")


def check_loader(dataset: LeRobotDataset) -> None:
    """A shuffled DataLoader with a worker gives every step once."""
    seen: list[int] = []
    for batch in DataLoader(dataset, batch_size=8, shuffle=True, num_workers=1):
        seen += batch["index"].tolist()
        assert batch["action"].ndim == 2 and batch["next.reward"].ndim == 1
        assert len(batch["robot_rl.driver"]) == len(batch["task"])
    assert sorted(seen) == list(range(len(dataset)))
    say(f"DataLoader   {len(seen)} steps in shuffled batches of 8")


def check_meta(dataset: LeRobotDataset) -> None:
    """What a policy would see, statistics it can normalise with, and what is ours."""
    seen: dict[str, Any] = dataset_to_policy_features(dataset.meta.features)
    kinds = {kind: [k for k, f in seen.items() if f.type is kind] for kind in FeatureType}
    assert kinds[FeatureType.ACTION] == ["action"]
    assert sorted(kinds[FeatureType.VISUAL]) == sorted(dataset.meta.video_keys)
    for key, feature in seen.items():
        stats = dataset.meta.stats[key]
        shape = (3, 1, 1) if key in dataset.meta.video_keys else feature.shape
        for name in ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"):
            assert stats[name].shape == shape and np.isfinite(stats[name]).all(), (key, name)
        assert (stats["min"] <= stats["mean"]).all() and (stats["mean"] <= stats["max"]).all()
    assert all(f"robot_rl.{name}" in dataset.meta.features for name in OURS)
    say(f"policy sees  {', '.join(seen)}")


def main(root: Path) -> int:
    """Check one dataset; 0 when all holds."""
    for backend in ("torchcodec", "pyav"):
        try:
            opened = LeRobotDataset(REPO, root=root, video_backend=backend)
            opened[0]
        except (ImportError, RuntimeError) as error:  # torchcodec finds no ffmpeg
            say(f"{backend} is not usable here: {type(error).__name__}")
            continue
        dataset = opened
        say(f"backend      {backend}")
        check_every_step(dataset, root)
    check_meta(dataset)
    check_borders(dataset, root)
    check_loader(dataset)
    last = LeRobotDataset(
        REPO, root=root, episodes=[dataset.num_episodes - 1], video_backend=dataset.video_backend
    )
    assert len(last) == dataset.meta.episodes[-1]["length"]
    assert last[0]["frame_index"].item() == 0
    say(f"one episode  {len(last)} steps of the last one alone")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve()))
