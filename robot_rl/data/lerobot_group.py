"""One file group of a LeRobotDataset: rows of steps, videos, and rows about the episodes.

A group holds some consecutive episodes. It is made in memory and written as whole files.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robot_rl.data import lerobot_format as fmt
from robot_rl.data.episodes import Piece
from robot_rl.data.folder import ExportFolder
from robot_rl.data.lerobot_stats import image_stats, vector_stats
from robot_rl.data.names import image_keys, vector_keys
from robot_rl.data.video import VideoWriter, encode_still
from robot_rl.spec import Spec
from robot_rl.types import Ending, Step


@dataclass(frozen=True, slots=True)
class Layout:
    """What all groups of one dataset share. tasks: name of a task -> its text."""

    spec: Spec
    fps: int
    codec: str
    crf: int
    tasks: dict[str, str]
    features: dict[str, dict[str, Any]]

    @property
    def texts(self) -> list[str]:
        """Each text once; its place is the task_index."""
        return list(dict.fromkeys(self.tasks.values()))


class FileGroup:
    """Group `number`, with so many episodes and steps in the groups before it."""

    def __init__(self, layout: Layout, number: int, episodes: int, steps: int) -> None:
        self.layout, self.where = layout, place(number)
        self._episodes, self._steps = episodes, steps
        self._schema = fmt.arrow_schema(layout.features)
        self._tables: list[pa.Table] = []
        self._rows: list[dict[str, Any]] = []
        self._last: list[dict[str, Any]] = []
        self._videos = {key: self._video(key) for key in image_keys(layout.spec)}

    def add(self, piece: Piece) -> None:
        """Append one episode to the files of the group."""
        columns = self._columns(piece)
        stats = {k: vector_stats(v) for k, v in columns.items() if isinstance(v, np.ndarray)}
        row = self._row(piece)
        for key, video in self._videos.items():
            images = [f.observation[key] for f in piece.frames[:-1]]
            row |= self._video_row(fmt.feature_of(key), video.count, len(images))
            stats[fmt.feature_of(key)] = image_stats(images)
            for image in images:
                video.add(image)
        row |= {f"stats/{f}/{k}": v for f, figures in stats.items() for k, v in figures.items()}
        self._tables.append(_table(columns, self._schema))
        self._rows.append(row)
        self._last.append(_last_row(piece, self.layout.spec, self._episodes))
        self._episodes += 1
        self._steps += len(piece.steps)

    def write(self, folder: ExportFolder) -> None:
        """Write the files, last the rows about episodes, which say that the others are complete."""
        if not self._rows:
            return
        for key, video in self._videos.items():
            name = fmt.VIDEO.format(video_key=fmt.feature_of(key), **self.where)
            folder.write(name, video.close())
        folder.write(fmt.DATA.format(**self.where), parquet(self._tables))
        folder.write(fmt.LAST.format(**self.where), parquet([pa.Table.from_pylist(self._last)]))
        rows = pa.Table.from_pylist(self._rows)
        folder.write(fmt.EPISODES.format(**self.where), parquet([rows]))

    def _video(self, key: str) -> VideoWriter:
        height, width, _ = self.layout.spec.observation[key].shape
        return VideoWriter(height, width, self.layout.fps, self.layout.codec, self.layout.crf)

    def _row(self, piece: Piece) -> dict[str, Any]:
        row = {
            "episode_index": self._episodes,
            "tasks": [self.layout.tasks[piece.start.task]],
            "length": len(piece.steps),
            "dataset_from_index": self._steps,
            "dataset_to_index": self._steps + len(piece.steps),
        }
        for group in ("data", "meta/episodes"):
            row |= {f"{group}/{k}": v for k, v in self.where.items()}
        return row

    def _video_row(self, feature: str, first: int, count: int) -> dict[str, Any]:
        fps = self.layout.fps
        values = self.where | {"from_timestamp": first / fps, "to_timestamp": (first + count) / fps}
        return {f"videos/{feature}/{k}": v for k, v in values.items()}

    def _columns(self, piece: Piece) -> dict[str, Any]:
        """Values of every feature but the videos: arrays [N, ...], and lists of text."""
        count, steps, layout = len(piece.steps), piece.steps, self.layout
        columns: dict[str, Any] = {
            fmt.feature_of(key): np.stack([f.observation[key] for f in piece.frames[:-1]])
            for key in vector_keys(layout.spec)
        }
        columns["action"] = np.stack([s.action for s in steps])
        columns["robot_rl.policy_action"] = np.stack([s.policy_action for s in steps])
        columns |= _step_columns(steps)
        columns["robot_rl.t_measured_ns"] = np.array([f.stamp_ns for f in piece.frames[:-1]])
        index = np.arange(count)
        return columns | {
            "timestamp": (index / layout.fps).astype(np.float32),
            "frame_index": index,
            "episode_index": np.full(count, self._episodes),
            "index": index + self._steps,
            "task_index": np.full(count, layout.texts.index(layout.tasks[piece.start.task])),
        }


def place(number: int) -> dict[str, int]:
    """Where the files of group `number` lie."""
    return {"chunk_index": number // fmt.CHUNK, "file_index": number % fmt.CHUNK}


def parquet(tables: Sequence[pa.Table]) -> bytes:
    """A parquet file with one row group per table, and checksums."""
    buffer, schema = io.BytesIO(), tables[0].schema
    options: dict[str, Any] = {"compression": "snappy", "write_page_checksum": True}
    with pq.ParquetWriter(buffer, schema, **options) as writer:
        for table in tables:
            writer.write_table(table)
    return buffer.getvalue()


def _step_columns(steps: list[Step]) -> dict[str, NDArray[Any] | list[str]]:
    """What is known of each step. An unlabelled reward is 0 for LeRobot, which knows no None."""
    over = np.array([s.ending is not None for s in steps])
    rewards = np.array([s.reward or 0.0 for s in steps])
    return {
        "next.reward": rewards.astype(np.float32),
        "next.done": over,
        "next.truncated": over & np.array([s.ending is not Ending.TERMINATED for s in steps]),
        "next.success": over & np.array([s.success is True for s in steps]),
        "robot_rl.reward": rewards,
        "robot_rl.labelled": np.array([s.reward is not None for s in steps]),
        "robot_rl.ending": [s.ending.value if s.ending else "" for s in steps],
        "robot_rl.driver": [s.driver.value for s in steps],
        "robot_rl.segment": np.array([s.segment for s in steps]),
        "robot_rl.outcome": [s.outcome.value for s in steps],
        "robot_rl.reason": [s.reason for s in steps],
        "robot_rl.weights_version": np.array([s.weights_version for s in steps]),
    }


def _table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    arrays = []
    for field in schema:
        values, kind = columns[field.name], field.type
        flat = values.ravel() if isinstance(values, np.ndarray) else values
        if pa.types.is_fixed_size_list(kind):
            items = pa.array(flat, kind.value_type)
            arrays.append(pa.FixedSizeListArray.from_arrays(items, kind.list_size))
        else:
            arrays.append(pa.array(flat, kind))
    return pa.Table.from_arrays(arrays, schema=schema)


def _last_row(piece: Piece, spec: Spec, episode: int) -> dict[str, Any]:
    """The frame after the last step, which has no place in LeRobot, and the episode's identity."""
    start, frame, last = piece.start, piece.frames[-1], piece.steps[-1]
    row: dict[str, Any] = {
        "episode_index": episode,
        "run": start.id.run,
        "actor": start.id.actor,
        "episode": start.id.episode,
        "first_step": piece.steps[0].step,
        "length": len(piece.steps),
        "purpose": start.purpose,
        "seed": start.seed,
        "limits_hash": start.limits_hash,
        "start_stamp_ns": start.stamp_ns,
        "success": {None: "", True: "yes", False: "no"}[last.success],
        "t_measured_ns": frame.stamp_ns,
    }
    for key in vector_keys(spec):
        row[fmt.feature_of(key)] = frame.observation[key].ravel().tolist()
    for key in image_keys(spec):
        row[fmt.feature_of(key)] = encode_still(frame.observation[key], "png")
    return row
