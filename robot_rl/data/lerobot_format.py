"""LeRobotDataset v3.0 on disk: paths, names of features, and which of our entries is which feature.

What stock LeRobot knows (`observation.*`, `action`, `next.*`) is written in its own terms, so that
it trains on an export. Everything else is in features `robot_rl.*`, which LeRobot carries along.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from robot_rl.data.names import action_names, image_keys, state_names, vector_keys
from robot_rl.data.video import GOP, OPTIONS, PIXEL_FORMAT
from robot_rl.errors import SpecError
from robot_rl.spec import PRIVILEGED, Spec

VERSION = "v3.0"
CHUNK = 1000  # files in one folder
DATA_MB, VIDEO_MB = 100, 200  # LeRobot's limits of a file; ours are far smaller

INFO = "meta/info.json"
STATS = "meta/stats.json"
TASKS = "meta/tasks.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
LAST = "robot_rl/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
"""Our own file: one row per episode with its last frame, which has no step, and its identity."""

AUTOMATIC = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
STEP = {
    "next.reward": "float32",
    "next.done": "bool",
    "next.truncated": "bool",
    "next.success": "bool",
    "robot_rl.reward": "float64",
    "robot_rl.labelled": "bool",
    "robot_rl.ending": "string",
    "robot_rl.driver": "string",
    "robot_rl.segment": "int64",
    "robot_rl.outcome": "string",
    "robot_rl.reason": "string",
    "robot_rl.weights_version": "int64",
    "robot_rl.t_measured_ns": "int64",
}
"""Features with one value per step: name -> dtype."""


def feature_of(key: str) -> str:
    """Feature name of an observation entry: `image/wrist` -> `observation.images.wrist`.

    What is privileged is no `observation`, or another program would let a policy look at it.
    """
    if key.startswith(PRIVILEGED):
        return "robot_rl." + key.replace("/", ".")
    group, _, name = key.partition("/")
    plain = f"images.{name}" if group == "image" and name else key
    return "observation." + plain.replace("/", ".")


def whole_fps(spec: Spec) -> int:
    """The control rate. Raises `SpecError` when it is not a whole number, as LeRobot needs it."""
    if spec.control_hz != int(spec.control_hz) or spec.control_hz < 1:
        raise SpecError(
            "LeRobot cannot hold this control rate",
            expected="a whole number of steps per second",
            got=f"control_hz={spec.control_hz}",
            fix="export to mcap or rerun",
        )
    return int(spec.control_hz)


def features(spec: Spec, codec: str, crf: int) -> dict[str, dict[str, Any]]:
    """The `features` of info.json."""
    size = spec.action.size
    found: dict[str, dict[str, Any]] = {}
    for key in vector_keys(spec):
        tensor = spec.observation[key]
        names = state_names(spec) if key == "state" else None
        found[feature_of(key)] = _feature(tensor.dtype, (math.prod(tensor.shape),), names)
    for key in image_keys(spec):
        found[feature_of(key)] = _video(spec.observation[key].shape, whole_fps(spec), codec, crf)
    found["action"] = _feature("float32", (size,), action_names(spec))
    found["robot_rl.policy_action"] = _feature("float32", (size,), action_names(spec))
    scalars = STEP | AUTOMATIC
    return found | {name: _feature(dtype, (1,), None) for name, dtype in scalars.items()}


def arrow_schema(described: Mapping[str, Mapping[str, Any]]) -> pa.Schema:
    """Columns of a data file: every feature that is not a video."""
    fields = [
        pa.field(name, _arrow_type(f["dtype"], f["shape"]))
        for name, f in described.items()
        if f["dtype"] != "video"
    ]
    return pa.schema(fields)


def info(
    described: Mapping[str, Any], fps: int, totals: tuple[int, int, int], robot_type: str | None
) -> dict[str, Any]:
    """Content of info.json; totals: episodes, frames (LeRobot's word for steps), tasks."""
    episodes, frames, tasks = totals
    with_video = any(f["dtype"] == "video" for f in described.values())
    return {
        "codebase_version": VERSION,
        "fps": fps,
        "features": dict(described),
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": CHUNK,
        "data_files_size_in_mb": DATA_MB,
        "video_files_size_in_mb": VIDEO_MB,
        "data_path": DATA,
        "video_path": VIDEO if with_video else None,
        "robot_type": robot_type,
        "splits": {"train": f"0:{episodes}"},
    }


def tasks_table(tasks: Iterable[str]) -> pa.Table:
    """Table of tasks.parquet. LeRobot reads it with pandas and looks tasks up by their index."""
    texts = list(tasks)
    table = pa.table({"task_index": pa.array(range(len(texts)), pa.int64()), "task": texts})
    return table.replace_schema_metadata({"pandas": _PANDAS})


_PANDAS = (
    '{"index_columns": ["task"], "column_indexes": [], "columns": ['
    '{"name": "task_index", "field_name": "task_index", "pandas_type": "int64",'
    ' "numpy_type": "int64", "metadata": null},'
    '{"name": "task", "field_name": "task", "pandas_type": "unicode",'
    ' "numpy_type": "object", "metadata": null}], "pandas_version": "2.0.0"}'
)
"""What makes pandas take the column `task` as the index."""


def _feature(dtype: str, shape: Iterable[int], names: list[str] | None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "names": names}


def _video(shape: tuple[int, ...], fps: int, codec: str, crf: int) -> dict[str, Any]:
    height, width, channels = shape
    details = {
        "video.height": height,
        "video.width": width,
        "video.codec": codec,
        "video.pix_fmt": PIXEL_FORMAT,
        "video.fps": fps,
        "video.channels": channels,
        "has_audio": False,
        "video.g": GOP,
        "video.crf": crf,
        "is_depth_map": False,
    }
    details |= {f"video.{k}": int(v) for k, v in OPTIONS[codec].items()}
    return _feature("video", shape, ["height", "width", "channels"]) | {"info": details}


def _arrow_type(dtype: str, shape: list[int]) -> pa.DataType:
    plain = {"bool": pa.bool_(), "string": pa.string()}.get(dtype) or pa.type_for_alias(dtype)
    return plain if shape == [1] else pa.list_(plain, shape[0])
